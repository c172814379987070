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
        ("record", ctypes.c_void_p),  # None: closed
        ("itself", ctypes.c_void_p),
        ("look_ns", ctypes.c_int64),  # spent in looks at gradients
    ]

    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.itself, self.record = id(self), session.record.address
        self.depth = 0
        self.retained = False
        self.accumulating = []  # parameters whose gradients accumulate over micro-batches
        self.reduced = {}  # Entry -> None; those without a wrapper whose gradients the program has reduced in this step
        self.seen_between = False  # these, before the backward that followed
        self.keeps = 0  # native.KEEP while gradient values are kept

    def close(self):
        """Hooks that stay do nothing."""
        self.record = None

    @passive
    def begins(self, tensors, retained):
        session, record = self.session, self.session.record
        self.depth += 1
        if self.depth > 1:
            record.token("R")  # reentrant: a checkpoint inside a backward
            return
        session.forwards.inside.clear()
        session.forwards.around = None
        session.enter(native.BACKWARD)
        tensors = graph.as_list(tensors, self.torch)
        session.gathers.backward_begins(tensors)
        if record.backwards() < FIRST_BACKWARDS:
            # Finds models without a wrapper before their gradients arrive.
            leaves = list(graph.leaves(tensors).values())
            session.tensors.add_parameters(leaves, anonymous=False)
            session.updates.differentiated(leaves)
        session.tensors.hook_trainable()
        # Shows whether the program changes the gradients of an earlier micro-batch.
        self.examine_gradients(native.BEFORE_BACKWARD, self.accumulating, native.SAMPLE)
        self.accumulating = []
        if self.reduced and not self.seen_between:  # what was summed over the ranks may be summed again
            self.seen_between = True
            self.examine_gradients(native.BEFORE_BACKWARD, list(self.reduced), native.SAMPLE)
        session.collectives.targets = None
        for made in session.forwards.wrappers:
            wrapper = made.ref()
            record.forward_unseen(made.number, wrapper is not None and bool(wrapper.require_backward_grad_sync))
        # In step 1 of small models: enough to show that the synchronized gradients are the mean.
        first = session.number == 1
        small = first and 3 * 4 * sum(e.numel for e in session.tensors.parameters()) <= session.values_budget // 4
        self.keeps = native.KEEP if small else 0
        record.backward_begins(*places.place()[:2], native.DIGEST | native.SAMPLE | self.keeps)
        self.retained = retained
        session.site("backward")
        if session.recording and len(tensors) == 1 and isinstance(tensors[0], self.torch.Tensor) and tensors[0].numel() == 1:
            loss = session.values.loss(tensors[0])
            if loss is not None:
                record.loss(loss)
            scale = graph.Scale(tensors[0])
            factor = scale.factor
            session.fact("loss", "factor", "unknown" if factor is None else round(factor, 9))
            by_all = scale.divides_by_all(session.collectives.reduced_numbers, session.world_size)
            for key, holds in (("sum", scale.is_sum), ("mixed", scale.is_mixed), ("global", by_all)):
                if holds or ("loss", key) in session.facts:
                    session.fact("loss", key, holds)

    def examine_local(self, id):
        """Called by the hook, in autograd, for what it cannot look at itself."""
        begin = time.perf_counter_ns()
        try:
            entry = self.session.tensors.entries[id]
            parameter = entry.ref()
            if parameter is not None and parameter.grad is not None:
                self.session.values.observe(native.LOCAL, native.DIGEST | native.SAMPLE | self.keeps, [(entry, parameter.grad)])
        except Exception as error:
            self.session.failed("examine_local", error)
        finally:
            self.session.probe_ns += time.perf_counter_ns() - begin

    def reduced_by_hand(self, entry, moment):
        """A collective on the gradient itself. During the backward it is still the local one."""
        if not self.session.recording:
            return
        if entry.index is None and not self.seen_between and entry not in self.reduced:
            self.reduced[entry] = None
            if moment == "backward":
                self.examine_gradients(native.ACCUMULATED, [entry], native.SAMPLE)
        if moment == "backward" and self.session.record.is_still_local(entry.address):
            self.examine_local(entry.id)

    def examine_gradients(self, stage, entries, what=native.DIGEST | native.SAMPLE):
        keep = self.keeps if what & native.DIGEST and stage != native.COLLECTIVE else 0
        self.session.values.observe(stage, what | keep, entries, native.GRADIENTS)

    @passive
    def ends(self, raised):
        session = self.session
        self.depth = max(0, self.depth - 1)
        if self.depth > 0:
            return
        session.probe_ns, self.look_ns = session.probe_ns + self.look_ns, 0
        record = session.record
        unwrapped = record.backward_ends(self.retained, raised, bool(session.forwards.hooks))
        touched, synchronized = [], []
        for made in session.forwards.wrappers:
            was = record.backward_of(made.number)
            if was & native.TOUCHED:
                touched.append(made.number)
            if was & native.SYNCHRONIZED:
                synchronized.append(made.number)
            if was & native.UNSEEN:
                session.forwards.unusual = True
            if was & native.AGAIN:
                session.site(f"backward-again {made.number}")
            if was & native.PARTIAL:
                session.fact(f"wrapper {made.number}", "partial", True)
        if raised:
            return
        if session.recording:
            parameters = session.tensors.parameters()
            for number in synchronized:
                self.examine_gradients(native.REDUCED, [e for e in parameters if e.wrapper == number and e.index is not None])
            # What reduces them itself has done so by now.
            self.examine_gradients(native.REDUCED, [e for e in parameters if e.managed], native.SAMPLE)
            self.accumulating = [] if synchronized else [e for e in parameters if e.wrapper in touched]
            self.examine_gradients(native.ACCUMULATED, self.accumulating, native.SAMPLE)
            if unwrapped:
                # Nothing reduces these during a backward. A few values are enough to see whether they change before they are reduced.
                self.examine_gradients(
                    native.LOCAL, [e for e in parameters if e.index is None and not record.was_local(e.address)], native.SAMPLE)
        session.updates.gradients_are_there()
        session.enter(native.BATCH)

    @passive
    def by_hand(self, inputs):
        """torch.autograd.grad: the reducer's hooks do not fire in it."""
        session = self.session
        if any(session.tensors.known(tensor) is not None for tensor in graph.as_list(inputs, self.torch)):
            session.record.token("G")
            session.site("autograd.grad")
        session.updates.differentiated(graph.as_list(inputs, self.torch))

    @passive
    def by_hand_ends(self, inputs, gradients):
        self.session.updates.returned(graph.as_list(inputs, self.torch), gradients)
        self.session.updates.gradients_are_there()

    def step_ended(self):
        self.accumulating, self.reduced, self.seen_between = [], {}, False
