# SPDX-License-Identifier: BSD-3-Clause
"""Backward passes, and the gradients that arrive in them."""
import ctypes
import time

from . import graph, native, places
from .passive import passive

FIRST_BACKWARDS = 8  # backward passes whose graph is searched for models


class Backwards(ctypes.Structure):
    """The hook on gradients has the fields, too (builtins.cpp)."""

    _fields_ = [
        ("record", ctypes.c_void_p), ("itself", ctypes.c_void_p), ("wrappers", ctypes.c_void_p), ("wrapper_count", ctypes.c_int64),
        ("number", ctypes.c_int64),  # of backwards
        ("look_ns", ctypes.c_int64),  # spent in looks at gradients
        ("what", ctypes.c_int32),  # to take from them
        ("looks", ctypes.c_int32),  # whether they are examined
        ("fresh", ctypes.c_int32),  # gradients arrived that no optimizer has used yet
        ("unwrapped_arrived", ctypes.c_int32),
        ("reduces", ctypes.c_int32),  # the program has reduced during a backward
    ]

    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.itself, self.record = id(self), session.record.address
        self.what, self.looks = native.DIGEST | native.SAMPLE, session.recording
        self.depth = 0
        self.retained = False
        self.place = ("", 0)
        self.accumulating = []  # parameters whose gradients accumulate over micro-batches
        self.keeps = 0  # native.KEEP while gradient values are kept
        self.early = set()  # entries without a reducer whose gradient was examined during this backward

    def know(self, wrappers):
        self.addresses = (ctypes.c_void_p * len(wrappers))(*map(ctypes.addressof, wrappers))
        self.wrappers, self.wrapper_count = ctypes.addressof(self.addresses), len(wrappers)

    @passive
    def begins(self, tensors, retained):
        session = self.session
        self.depth += 1
        if self.depth > 1:
            session.history.token("R")  # reentrant: a checkpoint inside a backward
            return
        session.steps.depth = 0
        session.forwards.inside.clear()
        session.forwards.around = None
        session.enter(native.BACKWARD)
        tensors = graph.as_list(tensors, self.torch)
        if session.history.counts.backwards < FIRST_BACKWARDS:
            # Finds models without a wrapper before their gradients arrive.
            session.tensors.add_parameters(list(graph.leaves(tensors).values()), anonymous=False)
        session.tensors.hook_trainable()
        # Shows whether the program changes the gradients of an earlier micro-batch.
        self.examine_gradients(native.BEFORE_BACKWARD, self.accumulating, native.SAMPLE)
        self.accumulating = []
        session.collectives.targets = None
        session.history.backward()
        self.number = session.history.counts.backwards
        self.unwrapped_arrived = False
        self.early.clear()
        session.collectives.sizes.clear()
        for made in session.forwards.wrappers:
            made.arrived = made.reduced = 0
            if not made.seen:
                wrapper = made.ref()
                made.armed = wrapper is not None and bool(wrapper.require_backward_grad_sync)
        # In step 1 of small models: enough to show that the synchronized gradients are the mean.
        first = session.number == 1
        small = first and 3 * 4 * sum(e.numel for e in session.tensors.parameters()) <= session.values_budget // 4
        self.keeps = native.KEEP if small else 0
        self.what = native.DIGEST | native.SAMPLE | self.keeps
        self.retained = retained
        self.place = places.place()[:2]
        session.site("backward")
        if session.recording and len(tensors) == 1 and isinstance(tensors[0], self.torch.Tensor) and tensors[0].numel() == 1:
            loss = session.tensors.loss(tensors[0])
            if loss is not None:
                session.history.losses.append(loss)
            scale = graph.Scale(tensors[0])
            factor = scale.factor
            session.fact("loss", "factor", "unknown" if factor is None else round(factor, 9))
            by_all = scale.divides_by_all(session.collectives.reduced_numbers, session.world_size)
            for key, holds in (("sum", scale.is_sum), ("mixed", scale.is_mixed), ("global", by_all)):
                if holds or ("loss", key) in session.facts:
                    session.fact("loss", key, holds)

    # ---- called by the hook, in autograd

    def begins_reduction(self, number):
        """The first gradient that a reducer gets in this backward."""
        session = self.session
        if not session.closed:
            made = session.forwards.wrappers[number]
            made.backward = session.record.call_begins(
                session.number, True, "ddp.backward", group=made.group, target=f"wrapper {number}", place=self.place)

    def unwrapped_arrives(self, id):
        """Nothing in torch reduces it, but a hook of the program may do so as soon as it is there, or have done so before it was added up."""
        collectives, entry = self.session.collectives, self.session.tensors.entries[id]
        hooked_before = entry.numel in collectives.sizes
        collectives.sizes.clear()
        self.early.discard(entry)
        if self.session.recording and (self.session.number == 1 or self.reduces) and not hooked_before:
            self.early.add(entry)
            self.examine_local(id)

    def examine_local(self, id):
        begin = time.perf_counter_ns()
        try:
            entry = self.session.tensors.entries[id]
            parameter = entry.ref()
            if parameter is not None and parameter.grad is not None:
                self.session.tensors.observe(native.LOCAL, self.what, [(entry, parameter.grad)])
        except Exception as error:
            self.session.failed("examine_local", error)
        finally:
            self.session.probe_ns += time.perf_counter_ns() - begin

    def reduced_by_hand(self, entry):
        """A collective on the gradient itself, during the backward: it is still the local one."""
        if entry.index is None and entry not in self.early and self.session.recording:
            self.early.add(entry)
            self.examine_local(entry.id)

    def examine_gradients(self, stage, entries, what=native.DIGEST | native.SAMPLE):
        pairs = []
        for entry in entries:
            parameter = entry.ref()
            if parameter is not None and parameter.grad is not None:
                pairs.append((entry, parameter.grad))
                if stage == native.GRADIENT:
                    self.session.tensors.note_gradient(entry, parameter.grad)
        keep = self.keeps if what & native.DIGEST and stage != native.COLLECTIVE else 0
        self.session.tensors.observe(stage, what | keep, pairs)

    @passive
    def ends(self, raised):
        session = self.session
        self.depth = max(0, self.depth - 1)
        if self.depth > 0:
            return
        session.probe_ns, self.look_ns = session.probe_ns + self.look_ns, 0
        touched = [made for made in session.forwards.wrappers if made.arrived]
        synchronized = [made for made in touched if made.armed]
        for made in touched:
            if made.seen and not made.armed and not made.forwarded:
                session.forwards.forward_unseen(made)
            made.forwarded = made.forwarded and self.retained
        if not touched and not self.unwrapped_arrived:
            self._note_empty()
        if touched and not synchronized:
            session.history.counts.unsynchronized += 1
        session.history.counts.reduced += len(synchronized)
        for made in touched:
            if made.spent:
                session.site(f"backward-again {made.number}")
            if made.armed and made.reduced < made.indexed:
                session.fact(f"wrapper {made.number}", "partial", True)
        of = ",".join(f"{m.number}{'?' if not m.seen else '+' if m.armed else '-'}" for m in touched)
        session.history.token("B" + of + ("u" if self.unwrapped_arrived else "") + ("r" if self.retained else ""))
        if raised:
            return
        if session.recording:
            parameters = session.tensors.parameters()
            for made in synchronized:
                self.examine_gradients(native.REDUCED, [e for e in parameters if e.wrapper == made.number and e.index is not None])
            # What reduces them itself has done so by now.
            self.examine_gradients(native.REDUCED, [e for e in parameters if e.managed], native.SAMPLE)
            self.accumulating = [] if synchronized else [e for e in parameters if e.wrapper in {made.number for made in touched}]
            self.examine_gradients(native.ACCUMULATED, self.accumulating, native.SAMPLE)
            if self.unwrapped_arrived:
                # Nothing reduces these during a backward. A few values are enough to see whether they change before they are reduced.
                self.examine_gradients(native.LOCAL, [e for e in parameters if e.index is None and e not in self.early], native.SAMPLE)
        for made in synchronized:
            made.armed, made.spent = False, True
            session.record.call_ends(made.backward)
        session.enter(native.BATCH)

    def _note_empty(self):
        """A backward that reached no parameter, although a forward had armed a reducer: other ranks may wait for this one's gradients."""
        record = self.session.record
        for made in self.session.forwards.wrappers:
            if made.seen and made.armed and made.forwarded:
                record.call_ends(record.call_begins(
                    self.session.number, False, "ddp.backward", "no_gradient", group=made.group, target=f"wrapper {made.number}",
                    place=self.place))

    @passive
    def by_hand(self, inputs):
        """torch.autograd.grad: the reducer's hooks do not fire in it."""
        session = self.session
        if any(session.tensors.known(tensor) is not None for tensor in graph.as_list(inputs, self.torch)):
            session.history.token("G")
            session.site("autograd.grad")

    def step_ended(self):
        self.fresh = False
        self.accumulating = []
