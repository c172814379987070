# SPDX-License-Identifier: BSD-3-Clause
"""Collectives that the program calls itself."""
from . import native, places
from .forwards import group_key, ranks_of
from .passive import passive

MOST_AWAITED = 1000  # programs may drop their handles
POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv")


class Collectives:
    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.under_way = False  # torch's own calls inside one are not the program's
        self.phase_before = native.BATCH
        self.number = 0  # of the one under way, in the call log
        self.awaited = {}  # id(work) -> number of an asynchronous one that nobody has waited for yet
        self.gradients_seen = False  # those at the first collective before this step
        self.targets = None  # address -> which gradient or weight lies there
        self.without = []  # parameters whose gradient is not among them

    @passive
    def begins(self, op, tensors, reduce, group):
        session = self.session
        ranks = ranks_of(self.torch, group) if group is not None else None
        whole = ranks is None or len(ranks) == session.world_size
        if session.backwards.depth:
            moment = "backward"
        elif session.forwards.inside:
            moment = "forward"
        elif session.backwards.fresh:
            moment = "before-step"
        else:
            moment = "outside"
        numel = sum(t.numel() for t in tensors)
        self.phase_before = session.phase
        session.enter(native.IN_COLLECTIVE)
        counts = session.history.counts
        counts.collectives += 1
        counts.bytes += sum(t.numel() * t.element_size() for t in tensors)
        target = ""
        if session.recording:
            target = self.target_of(tensors)
            if moment == "before-step" and not self.gradients_seen:
                self.gradients_seen = True
                session.backwards.look_at_gradients(native.COLLECTIVE, session.tensors.parameters())
        session.history.token("C" + ("g" if target.startswith("gradient") else "w" if target.startswith("weight") else ""))
        file, line, _ = places.place()
        dtype = str(tensors[0].dtype)[len("torch."):] if tensors else ""
        self.number = session.record.call_begins(
            session.number, op not in POINT_TO_POINT, op, reduce, dtype, numel, group_key(self.torch, group), moment, target,
            (file, line))
        session.history.call({
            "op": op, "reduce": reduce, "dtype": dtype, "numel": numel, "group": "" if whole else ",".join(map(str, ranks)),
            "moment": moment, "target": target, "file": file, "line": line,
        })

    @passive
    def ends(self):
        self.session.record.call_ends(self.number)
        self.session.enter(self.phase_before)

    @passive
    def issued(self, result):
        """It returned at once, with one handle or several to wait for."""
        for work in result if isinstance(result, list) else [result]:
            while len(self.awaited) >= MOST_AWAITED:
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
        """Which gradient or weight is reduced, where it is one itself and not a copy."""
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
        if pointer not in self.targets:
            self._find_gradients()  # also those that the program has made meanwhile
        return self.targets.get(pointer, "")

    def _find_gradients(self):
        left = []
        for entry in self.without:
            parameter = entry.ref()
            if parameter is None or parameter.grad is None:
                left.append(entry)
            elif parameter.grad.layout is self.torch.strided:
                self.targets[parameter.grad.data_ptr()] = f"gradient of {entry.name}"
        self.without = left

    def step_ended(self):
        self.gradients_seen = False
        self.targets = None
