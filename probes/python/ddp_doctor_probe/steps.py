# SPDX-License-Identifier: BSD-3-Clause
"""Optimizer steps: where one row of the record ends and the next begins."""
import ctypes
import functools
import json
import math
import os
import time
import weakref
import zlib

from . import deepspeed, native, places, usage
from .forwards import GRAPH_STEPS
from .living import living
from .passive import passive
from .tensors import address_of

UNFINISHED = "have finished reduction in the prior iteration"
FIELDS_STEP = 3  # by then PyTorch has filled in its logging data


class Optimizer:
    def __init__(self, number, begin):
        self.number = number
        self.begin = begin  # its last step
        self.groups = None  # hyper-parameters as last written
        self.parameters = None  # ids of the objects as last written
        self.entries = []
        self.covered = None  # entries that its steps report on
        self.covered_of = 0
        self.state_is_new = True  # the optimizer is new, or has loaded a state


class Steps:
    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.optimizers = []
        self.optimizer_of = weakref.WeakKeyDictionary()
        self.made_at = weakref.WeakKeyDictionary()  # optimizer -> where it was constructed
        self.depth = 0
        self.updating = False  # an optimizer has its gradients, and its step() has not returned
        self.scale = None
        self.state_written = False
        self.unused_before = None
        self.last_examined = 0
        self.last_row = None
        self.began = time.perf_counter_ns()
        self.started_ns = time.time_ns()

    @passive
    def optimizer_made(self, optimizer):
        self.made_at[optimizer] = places.place()

    # ---- a step begins

    def optimizer_begins(self, optimizer, arguments, keywords):
        """Returns the arguments to continue with. A closure is wrapped, so that its gradients are examined."""
        self.depth += 1
        if self.depth > 1 or deepspeed.steps_inside():
            return None
        closure = keywords.get("closure") or (arguments[1] if len(arguments) > 1 and callable(arguments[1]) else None)
        self.step_begins(optimizer)
        if closure is None:
            self.gradients_ready(optimizer)
            return None

        @functools.wraps(closure)
        def observed(*a, **k):
            self.session.history.token("L")
            result = closure(*a, **k)
            self.gradients_ready(optimizer)
            return result

        if "closure" in keywords:
            return arguments, dict(keywords, closure=observed)
        return (arguments[0], observed) + tuple(arguments[2:]), keywords

    @passive
    def step_begins(self, optimizer):
        session = self.session
        session.enter(native.OPTIMIZER)
        known = self.optimizer_of.get(optimizer)
        if known is None:
            known = self.optimizer_of[optimizer] = Optimizer(len(self.optimizers), session.history.beginning())
            self.optimizers.append(known)
            session.fact(f"optimizer {known.number}", "type", type(optimizer).__name__)
        self._follow(known, optimizer)
        if known.state_is_new:
            known.state_is_new = False
            if type(optimizer).__name__ != "ZeroRedundancyOptimizer":  # each rank has its own part of the state
                session.fact(f"optimizer {known.number}", "state", _state_of(optimizer))
        if optimizer in self.made_at:
            session.site(f"optimizer {known.number}", at=self.made_at[optimizer])
        session.moving_site(f"step {known.number}")
        if not self.state_written:
            self._write_state()
            self._note_the_rest()
        if session.recording:
            session.tensors.note_sharding()
            session.tensors.note_stated()
            pairs = [(e, e.ref()) for e in self._covered(known) if e.ref() is not None]
            session.tensors.observe(native.WEIGHT_BEFORE, native.SAMPLE, pairs)
            written = [(e, p) for e, p in pairs if not e.began or e.seen[0] == session.number - 1 and e.seen[1] != _version(p)]
            if written:  # by something other than an optimizer, or the model is newer than step 0
                session.tensors.observe(native.WEIGHT_BEFORE, native.DIGEST, written)
            for entry, _ in written:
                entry.began = True

    def _follow(self, known, optimizer):
        """The parameters and hyper-parameters that it holds now."""
        session, subject = self.session, f"optimizer {known.number}"
        identities = [id(p) for group in optimizer.param_groups for p in group["params"]]
        if identities != known.parameters:
            known.parameters = identities
            held = [p for group in optimizer.param_groups for p in group["params"]]
            session.forwards.new_parameters = True
            session.tensors.add_parameters(held, anonymous=True)
            session.tensors.hook_trainable()
            known.entries = [e for e in map(session.tensors.known, held) if e is not None]
            for other in self.optimizers:
                other.covered = None
            session.fact(subject, "tensors", [e.id for e in known.entries])
            session.fact(subject, "unknown", len(held) - len(known.entries))
            without_storage = sum(parameter.device.type == "meta" for parameter in held)
            if without_storage:
                session.fact(subject, "without_storage", without_storage)
        if not session.recording and known.groups is not None:
            return
        groups = [
            {key: plain for key, value in group.items() if key != "params" and (plain := _plain(value)) is not None}
            for group in optimizer.param_groups
        ]
        if groups != known.groups:
            known.groups = groups
            session.fact(subject, "groups", groups)

    def _write_state(self):
        """Writes the weights and buffers before training: step 0."""
        session = self.session
        self.state_written = True
        session.forwards.forget_failed()
        session.tensors.complete()
        session.tensors.describe()
        session.record.swap()  # data of step 1 must not go into the row of step 0
        for kind, stage in (("parameter", native.WEIGHT), ("buffer", native.BUFFER)):
            pairs = [(e, e.live()) for e in session.tensors.entries if e.kind == kind and e.live() is not None]
            for entry, tensor in pairs:
                entry.began = True
                entry.seen = 0, _version(tensor)
            session.tensors.observe(stage, native.DIGEST | native.SAMPLE | (native.KEEP if kind == "parameter" else 0), pairs)
        session.record.step({"step": 0, "started_ns": self.started_ns})
        session.record.swap()

    def _note_the_rest(self):
        try:
            self.session.tensors.note_the_rest()
        except Exception as error:  # the step is examined all the same
            self.session.failed("note_the_rest", error)

    def state_loaded(self, optimizer):
        known = self.optimizer_of.get(optimizer)
        if known is not None:
            known.state_is_new = True

    @passive
    def gradients_ready(self, optimizer):
        self.updating = self.depth > 0
        known = self.optimizer_of.get(optimizer)
        if known is not None and self.session.recording:
            self.session.backwards.examine_gradients(native.GRADIENT, self._covered(known))

    # ---- a step ends

    def optimizer_ends(self, optimizer, skipped=False):
        self.depth = max(0, self.depth - 1)
        if self.depth == 0:
            self.updating = False
            self.step_ends(optimizer, skipped)
        else:
            self.session.backwards.fresh = False  # an optimizer inside another one has used the gradients

    @passive
    def step_ends(self, optimizer, skipped):
        known = self.optimizer_of.get(optimizer)
        if known is None:
            return
        session = self.session
        now = time.perf_counter_ns()
        probe_ns = session.probe_ns
        session.enter(native.RECORDING)
        covered = self._covered(known)
        row = dict(
            self._row(known), step=session.number, skipped=skipped, examined=session.recording and bool(covered),
            duration_ns=max(0, now - self.began - probe_ns),
        )
        if row["examined"]:
            self._examine(known, covered)
            session.inputs.write()
        row["probe_ns"] = probe_ns + time.perf_counter_ns() - now
        session.record.step(row)
        self.last_row = row
        self._close(known, covered)
        if session.number == FIELDS_STEP + 1:
            session.forwards.write_runtime_fields()
        session.enter(native.BATCH)
        self.began = time.perf_counter_ns()
        self.started_ns = time.time_ns()
        # The time of this function counts neither for the program nor for the next step's examination.
        session.probe_ns = -(time.perf_counter_ns() - now)
        if session.last_step and session.number > session.last_step:
            session.leave()

    def _row(self, known):
        history = self.session.history
        counts, before = history.counts, known.begin.counts
        row = {
            "started_ns": self.started_ns, "backwards": counts.backwards - before.backwards,
            "unsynchronized_backwards": counts.unsynchronized - before.unsynchronized,
            "forwards_through_wrapper": counts.through - before.through, "forwards_around_wrapper": counts.around - before.around,
            "collectives": counts.collectives - before.collectives, "collective_bytes": counts.bytes - before.bytes,
            "optimizer": known.number, "scale": self.scale, "trace": history.trace(known.begin),
            "calls": history.calls.since(known.begin.calls),
        }
        if history.losses:
            row["loss"] = _number(sum(history.losses) / len(history.losses))
        return row

    def _examine(self, known, covered):
        session = self.session
        usages, unused = usage.of(session, known, covered)
        session.record.usages(usages)
        if unused != self.unused_before:
            if self.unused_before is not None:
                session.forwards.graph_steps_left = GRAPH_STEPS + 1  # and this step, which counts, too
            self.unused_before = unused
        pairs = [(e, e.ref()) for e in covered if e.ref() is not None]
        session.tensors.observe(native.WEIGHT, native.DIGEST | native.SAMPLE | native.KEEP, pairs)
        session.tensors.observe_buffers()
        for entry, parameter in pairs:
            entry.seen = session.number, _version(parameter)
        self.last_examined = session.number
        if session.number == session.wanted:
            self._leave_values(covered)

    def _leave_values(self, covered):
        """The watcher saw that replicas differ, and requests the values of the affected parameters."""
        session = self.session
        with open(os.path.join(session.folder, "values.json"), encoding="utf-8") as request:
            request = json.load(request)
        names, room, pairs = set(request["parameters"]), request["elements"], []
        for entry in covered:
            parameter = entry.ref()
            if entry.name in names and parameter is not None and entry.numel <= room:
                room -= entry.numel
                pairs.append((entry, parameter))
        if request["step"] == session.number:
            session.tensors.observe(native.WEIGHT, native.KEEP_WANTED, pairs)

    def _close(self, known, covered):
        session = self.session
        session.history.token(f"S{known.number}")
        known.begin = session.history.now()
        session.history.step_ended(self.optimizers)
        session.forwards.step_ended()
        session.inputs.step_ended()
        session.backwards.step_ended()
        session.collectives.step_ended()
        self.scale = None
        session.next_step()
        if session.recording or len(self.optimizers) > 1:
            for entry in covered:
                entry.arrivals_at_step = entry.arrivals

    def _covered(self, known):
        """The optimizer's parameters, and the others in its wrappers that no optimizer holds."""
        entries = self.session.tensors.entries
        if known.covered is None or known.covered_of != len(entries):
            known.covered_of = len(entries)
            held = {e.id for e in known.entries}
            wrappers = {e.wrapper for e in known.entries}
            elsewhere, alone = self._held_by_others(held)
            known.covered = [
                e for e in entries
                if e.kind == "parameter" and (e.id in held or ((alone or e.wrapper in wrappers) and e.id not in elsewhere))
            ]
        return known.covered

    def _held_by_others(self, held):
        """(ids of entries that other optimizers hold or held, even if they have not stepped; whether there are none)."""
        elsewhere = {e.id for other in self.optimizers for e in other.entries}
        for thing in living(self.torch.optim.Optimizer):
            if "param_groups" in vars(thing):
                entries = (self.session.tensors.known(p) for group in thing.param_groups for p in group["params"])
                elsewhere |= {e.id for e in entries if e is not None}
        elsewhere -= held
        return elsewhere, not elsewhere

    def examine_last_step(self):
        """Examines the final weights, if the last step was not examined."""
        session = self.session
        last = session.number - 1
        if self.last_examined >= last or self.last_row is None:
            return
        pairs = [(e, e.ref()) for e in session.tensors.parameters() if e.trainable and e.ref() is not None]
        if not pairs:
            return
        session.record.forget()
        session.tensors.observe(native.WEIGHT, native.DIGEST | native.SAMPLE | native.KEEP_LAST, pairs)
        session.tensors.observe_buffers()
        session.record.step(dict(self.last_row, examined=True))
        self.last_examined = last

    # ---- GradScaler

    @passive
    def scaler_steps(self, scaler):
        scale = getattr(scaler, "_scale", None)
        if getattr(scaler, "_enabled", True) and scale is not None:
            self.session.site("scaler")
            if scale.device.type == "cpu" or self.session.recording:  # do not synchronize with a GPU in between
                self.scale = float(scale.detach())

    def scaler_stepped(self, scaler, optimizer, number_before):
        """A scaler that found infinite gradients skips the optimizer's step. It is still recorded as a step, on every rank."""
        if self.session.number == number_before and getattr(scaler, "_enabled", True):
            self.step_begins(optimizer)
            self.gradients_ready(optimizer)
            self.step_ends(optimizer, True)

    def raised(self, text):
        """The program is about to end. A reduction that was not finished belongs to the backwards before: where these were no step yet, as micro-batches, what
        they did is recorded as a step that was skipped."""
        if self.session.closed or UNFINISHED not in text:
            return
        for optimizer in list(self.optimizer_of) or list(self.made_at):
            known = self.optimizer_of.get(optimizer)
            begin = known.begin if known is not None else self.session.history.beginning()
            if self.session.history.counts.backwards > begin.counts.backwards:
                self.step_begins(optimizer)
                self.gradients_ready(optimizer)
                self.step_ends(optimizer, True)
                self.session.enter(native.FORWARD)
                return


def _state_of(optimizer):
    """[number of parameters with state, checksum of its tensors]: zeros unless the program loaded a state."""
    checksum = 0
    for state in optimizer.state.values():
        for value in state.values() if isinstance(state, dict) else ():
            if hasattr(value, "data_ptr") and value.device.type == "cpu" and value.is_contiguous() and value.data_ptr():
                memory = (ctypes.c_char * (value.numel() * value.element_size())).from_address(value.data_ptr())
                checksum = zlib.crc32(memory, checksum)
    return [len(optimizer.state), checksum]


def _version(parameter):
    """Another one after every in-place write, except through `.data`, and after an assignment to `.data`, which gives it other storage."""
    return None if parameter.is_inference() else parameter._version, address_of(parameter)


def _plain(value):
    """A hyper-parameter as a JSON value; None if it is not one."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "numel") and value.numel() == 1 and value.device.type == "cpu":
        return _number(float(value))
    return None


def _number(value):
    """JSON has neither NaN nor infinity."""
    return value if math.isfinite(value) else str(value)
