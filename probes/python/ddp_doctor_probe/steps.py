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

from . import deepspeed, native, places
from .living import living
from .passive import passive
from .usage import Usage

UNFINISHED = "have finished reduction in the prior iteration"
FIELDS_STEP = 3  # by then PyTorch has filled in its logging data


class Optimizer:
    def __init__(self, number):
        self.number = number
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
        self.usage = Usage(session)
        self.scale = None
        self.state_written = False
        self.last_examined = 0
        self.began = time.perf_counter_ns()
        self.started_ns = time.time_ns()

    @passive
    def optimizer_made(self, optimizer):
        self.made_at[optimizer] = places.place()

    # ---- a step begins

    def optimizer_begins(self, optimizer, arguments, keywords):
        """Returns the arguments to continue with. A closure is wrapped, so that its gradients are examined."""
        if not self.session.record.step_begins() or deepspeed.steps_inside():
            return None
        closure = keywords.get("closure") or (arguments[1] if len(arguments) > 1 and callable(arguments[1]) else None)
        self.step_begins(optimizer)
        if closure is None:
            self.gradients_ready(optimizer)
            return None

        @functools.wraps(closure)
        def observed(*a, **k):
            self.session.record.token("L")
            result = closure(*a, **k)
            self.gradients_ready(optimizer)
            return result

        if "closure" in keywords:
            return arguments, dict(keywords, closure=observed)
        return (arguments[0], observed) + tuple(arguments[2:]), keywords

    @passive
    def step_begins(self, optimizer):
        self.begin(optimizer)

    def begin(self, optimizer):
        session = self.session
        session.enter(native.OPTIMIZER)
        known = self.optimizer_of.get(optimizer)
        if known is None:
            known = self.optimizer_of[optimizer] = Optimizer(session.record.optimizer())
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
            session.values.observe_before_step(self.covered_by(known))

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
            session.record.holds(known.number, known.entries)
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
            for entry, _ in pairs:
                entry.began = True
            session.values.observe(stage, native.DIGEST | native.SAMPLE | (native.KEEP if kind == "parameter" else 0), pairs, step=0)
        session.record.row(-1, self.started_ns)
        session.record.write_row(True)
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
        self.session.record.gradients_taken()
        known = self.optimizer_of.get(optimizer)
        if known is not None and self.session.recording:
            self.session.backwards.examine_gradients(native.GRADIENT, self.covered_by(known))

    # ---- a step ends

    def optimizer_ends(self, optimizer, skipped=False):
        if self.session.record.step_ends():
            self.step_ends(optimizer, skipped)

    @passive
    def step_ends(self, optimizer, skipped):
        self.end(optimizer, skipped)

    def end(self, optimizer, skipped):
        known = self.optimizer_of.get(optimizer)
        if known is None:
            return
        session = self.session
        now = time.perf_counter_ns()
        probe_ns = session.probe_ns
        session.enter(native.RECORDING)
        covered = self.covered_by(known)
        session.record.row(known.number, self.started_ns, max(0, now - self.began - probe_ns), skipped, self.scale)
        examined = session.recording and bool(covered)
        if examined:
            self._examine(known, covered)
            session.inputs.write()
        session.record.write_row(examined, probe_ns + time.perf_counter_ns() - now)
        self._close(known)
        if session.number == FIELDS_STEP + 1:
            session.forwards.write_runtime_fields()
        session.enter(native.BATCH)
        self.began = time.perf_counter_ns()
        self.started_ns = time.time_ns()
        # The time of this function counts neither for the program nor for the next step's examination.
        session.probe_ns = -(time.perf_counter_ns() - now)
        if session.last_step and session.number > session.last_step:
            session.leave()

    def _examine(self, known, covered):
        session = self.session
        self.usage.write(known.number, covered)
        session.values.observe(native.WEIGHT, native.DIGEST | native.SAMPLE | native.KEEP, covered, native.TENSORS, session.number)
        session.values.observe_buffers()
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
            session.values.observe(native.WEIGHT, native.KEEP_WANTED, pairs)

    def _close(self, known):
        session = self.session
        for part in (session.forwards, session.inputs, session.backwards, session.collectives, session.gathers):
            part.step_ended()
        self.scale = None
        session.record.step_closed(known.number)
        session.next_step()

    def covered_by(self, known):
        """The optimizer's parameters, and the others in its wrappers that no optimizer holds."""
        entries = self.session.tensors.entries
        if known.covered is None or known.covered_of != len(entries):
            known.covered_of = len(entries)
            known.covered = self.session.record.covered_by(known.number, self._held_by_any(), entries)
        return known.covered

    def _held_by_any(self):
        """Entries that optimizers hold or held, even those that have not stepped."""
        held = {e for other in self.optimizers for e in other.entries}
        for thing in living(self.torch.optim.Optimizer):
            if "param_groups" in vars(thing):
                held.update(self.session.tensors.known(p) for group in thing.param_groups for p in group["params"])
        return held - {None}

    def examine_last_step(self):
        """Examines the final weights, if the last step was not examined."""
        session = self.session
        last = session.number - 1
        if self.last_examined >= last:
            return
        trained = [e for e in session.tensors.parameters() if e.trainable and e.ref() is not None]
        if not trained:
            return
        session.record.forget()
        session.values.observe(native.WEIGHT, native.DIGEST | native.SAMPLE | native.KEEP_LAST, trained, native.TENSORS)
        session.values.observe_buffers()
        session.record.write_row(True)
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
            before = self.session.record.backwards_before(known.number) if known is not None else 0
            if self.session.record.backwards() > before:
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
