# SPDX-License-Identifier: BSD-3-Clause
"""Collectives that the program calls itself."""
import collections
import os

from . import deepspeed, native, places
from .groups import group_key, ranks_of
from .passive import passive

MAX_LOOKS = 8  # steps that are examined because weights may have been averaged before them
MAX_AWAITED = 1000  # programs may drop their handles
MAX_NUMBERS = 16  # single numbers that were reduced, such as how many tokens all ranks have
DIFFERENTIABLE = os.path.join("distributed", "nn", "functional.py")
SHARDED_OPTIMIZER = os.path.join("distributed", "optim", "zero_redundancy_optimizer.py")
BETWEEN_STEPS = (b"outside", b"forward")  # moments in which no gradients wait for an optimizer
POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv")


class Collectives:
    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.in_progress = False  # torch's own calls inside a collective are not the program's
        self.phase_before = native.BATCH
        self.number = 0  # of the collective in progress, in the call log
        self.awaited = {}  # id(work) -> number of an asynchronous collective that the program has not waited for yet
        self.targets = None  # address -> name of the gradient or weight there
        self.gradients = {}  # name of a gradient, as in `targets` -> Entry
        self.exchanged = 0  # numbers, between the last step and this one's forward
        self.weights = None  # numbers in all parameters, where it was asked for in this step
        self.looks_left = MAX_LOOKS
        self.gathers = False  # the collective in progress gathers activations
        self.without = []  # parameters whose gradient is not in `targets`
        self.reduced_numbers = collections.deque(maxlen=MAX_NUMBERS)

    @passive
    def begins(self, op, tensors, reduce, group):
        session = self.session
        ranks = ranks_of(self.torch, group) if group is not None else None
        whole = ranks is None or len(ranks) == session.world_size
        moment = session.record.moment().decode()
        if moment == "outside" and session.recording and places.in_forward(self.torch.autograd.function.FunctionCtx):
            moment = "forward"
        numel = sum(t.numel() for t in tensors)
        self.phase_before = session.phase
        session.enter(native.IN_COLLECTIVE)
        target = ""
        if session.recording or (moment == "outside" and numel > 1):  # buffers may be synchronized once per epoch
            target = self.target_of(tensors)
        if moment == "outside" and op not in POINT_TO_POINT:
            self.may_average(numel)
        if numel == 1 and op.startswith("all_reduce") and tensors[0].device.type == "cpu":
            if not tensors[0].requires_grad and not tensors[0].is_complex():  # a graph would stay alive
                self.reduced_numbers.append(tensors[0])
        if target in self.gradients:
            session.backwards.reduced_by_hand(self.gradients[target], moment)
        if session.recording and session.record.first_before_step():
            session.backwards.examine_gradients(native.COLLECTIVE, session.tensors.parameters())
        if not target and numel > 1 and op not in POINT_TO_POINT:
            self.exchanges(moment)
        self.gathers = session.recording and not target and numel > 1 and op.startswith("all_gather") and moment in ("outside", "forward")
        dtype = str(tensors[0].dtype)[len("torch."):] if tensors else ""
        self.number = session.record.collective(
            op not in POINT_TO_POINT, op, reduce, dtype, numel, sum(t.numel() * t.element_size() for t in tensors), group_key(self.torch, group),
            "" if whole else ",".join(map(str, ranks)), moment, target, *places.place()[:2])

    def may_average(self, numel):
        """Between steps as many numbers were exchanged as half the weights have, perhaps to average them: the step that follows shows whether they are
        the same again."""
        session = self.session
        if session.recording or self.looks_left == 0:
            return
        self.exchanged += numel
        if self.weights is None:
            parameters = [entry.ref() for entry in session.tensors.parameters()]
            self.weights = sum(parameter.numel() for parameter in parameters if parameter is not None)
        if 2 * self.exchanged >= self.weights:
            self.looks_left -= 1
            session.examine()

    def given(self, tensors):
        """What the collective gets, and has its results put into."""
        if self.gathers:
            self.session.gathers.begins(tensors)
        if self.session.record.moment() in BETWEEN_STEPS and self.torch.is_grad_enabled():
            if any(tensor.grad_fn is not None for tensor in tensors):
                self.session.site("cut")  # no gradient comes back through what it returns

    def exchanges(self, moment):
        """Ranks exchange tensors that are neither gradients nor weights: in both directions of the graph, these are activations."""
        if self.session.recording and moment in ("forward", "backward") and not deepspeed.calls():
            self.session.fact("activations", moment, True)

    @passive
    def by_torch(self, op, file):
        """A collective that torch issues: of these, only what tells how the program spreads its model over the ranks."""
        if op in POINT_TO_POINT and "pipelining" in file:
            self.session.fact("activations", "point-to-point", True)
        elif file.endswith(DIFFERENTIABLE):
            self.exchanges("backward" if self.session.backwards.depth else "forward")

    def of_the_program(self, file):
        """torch.distributed.nn's functions are called by the program; their backward is not. So is what gathers a sharded optimizer's state, between steps."""
        session = self.session
        if session.backwards.depth:
            return False
        return file.endswith(DIFFERENTIABLE) or (file.endswith(SHARDED_OPTIMIZER) and session.record.moment() in BETWEEN_STEPS)

    @passive
    def ends(self):
        self.session.record.call_ends(self.number)
        self.session.enter(self.phase_before)

    @passive
    def issued(self, result):
        """The collective returned immediately, with one or more handles to wait for."""
        for work in result if isinstance(result, list) else [result]:
            while len(self.awaited) >= MAX_AWAITED:
                del self.awaited[next(iter(self.awaited))]
            self.awaited[id(work)] = self.number

    @passive
    def wait_begins(self, work):
        number = self.awaited.pop(id(work), 0)
        if number:
            self.phase_before = self.session.phase
            self.session.enter(native.IN_COLLECTIVE)
            self.session.record.call_resumes(number)
        return number

    @passive
    def wait_ends(self, number):
        self.session.record.call_ends(number)
        self.session.enter(self.phase_before)

    def target_of(self, tensors):
        """Name of the gradient or weight that is reduced; "" for a copy or anything else."""
        strided = self.torch.strided
        pointer = tensors[0].data_ptr() if tensors and tensors[0].layout is strided else 0
        if not pointer:
            return ""
        if self.targets is None:  # once per step: gradients may move from step to step
            self.targets, self.without = {}, []
            for entry in self.session.tensors.entries:
                tensor = entry.ref()
                if tensor is not None:
                    self.targets[tensor.data_ptr()] = f"weight of {entry.name}"
                    if entry.kind == "parameter":
                        self.without.append(entry)
        if pointer not in self.targets or self._has_moved(self.targets[pointer], pointer):
            self._find_gradients()  # also gradients created since then
        return self.targets.get(pointer, "")

    def _has_moved(self, target, pointer):
        """The program gave the parameter another gradient, and something else may lie where the old one was. They are looked for again."""
        entry = self.gradients.get(target)
        parameter = entry.ref() if entry is not None else None
        if entry is None or parameter is not None and parameter.grad is not None and parameter.grad.data_ptr() == pointer:
            return False
        self.targets = {address: name for address, name in self.targets.items() if name not in self.gradients}
        self.without = [other for other in self.session.tensors.entries if other.kind == "parameter" and other.ref() is not None]
        return True

    def _find_gradients(self):
        left = []
        for entry in self.without:
            parameter = entry.ref()
            if parameter is None or parameter.grad is None:
                left.append(entry)
            elif parameter.grad.layout is self.torch.strided:
                self.targets[parameter.grad.data_ptr()] = f"gradient of {entry.name}"
                self.gradients[f"gradient of {entry.name}"] = entry
        self.without = left

    def step_ended(self):
        self.exchanged, self.weights = 0, None
        self.targets = None
