# SPDX-License-Identifier: BSD-3-Clause
"""Gathers of activations: whether a loss takes those of the other ranks for constants.

A metric is computed from gathered activations, too, and needs no gradient. So the graph of the loss must have used what was gathered: the
autograd function that gathers is in it; or an operation on what a wrapper returned has saved the others' values, of which nothing requires a
gradient (where a rank puts its own part back, it takes the others for constants on purpose). What operations inside a wrapper have saved is not
read: a checkpoint would compute it again.
"""
import weakref

from . import graph, places

LOOKS = 4  # at losses
MAX_WAITING = 8  # gathers of one step
MAX_OUTPUTS = 16
COMPARED = 16  # values that tell one rank's activations from another's


class Gathers:
    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.looks_left = LOOKS
        self.outputs = []  # weak references to what wrappers returned in this step
        self.waiting = []  # gathers of this step: (place, name of the function or None, tensors for what ranks gave, what this one gave)

    def forward_ends(self, output):
        if self.looks_left and len(self.outputs) < MAX_OUTPUTS:
            self.outputs += [weakref.ref(tensor) for tensor in graph.tensors_in(output, self.torch) if tensor.grad_fn is not None]

    def begins(self, given):
        """`given`: the tensors of the call, the last of which is this rank's."""
        if self.looks_left == 0 or len(given) < 2 or len(self.waiting) == MAX_WAITING or "gather" in self.session.sites:
            return
        function = places.function_of(self.torch.autograd.function.FunctionCtx)
        *made, own = given
        outputs = [] if self.session.forwards.inside else self._outputs()
        if function or outputs and (own.grad_fn is not None or any(own.data_ptr() == output.data_ptr() for output in outputs)):
            self.waiting.append((places.place(), function, made, own))

    def _outputs(self):
        return [tensor for output in self.outputs if (tensor := output()) is not None]

    def backward_begins(self, roots):
        waiting, self.waiting = self.waiting, []
        if not waiting or self.session.values.capturing(roots):
            return
        try:
            self._look(waiting, roots)
        except Exception as error:  # the backward is examined all the same
            self.session.failed("gathers", error)

    def _look(self, waiting, roots):
        self.looks_left = max(0, self.looks_left - 1)
        outputs = self._outputs()
        inside = graph.nodes(outputs)
        known = {id(node) for node in inside}
        users = [node for node in graph.users_of([output.grad_fn for output in outputs], roots) if id(node) not in known]
        for place, function, made, own in waiting:
            if self._is_in(roots, function) if function else self._is_saved(users, made, own):
                self.session.site("gather", at=place)
                self.session.fact("gather", "gradient", "function" if function else "outside")

    def _is_in(self, roots, function):
        return any(type(node).__name__ == function for node in graph.nodes(roots))

    def _is_saved(self, users, made, own):
        """Whether one of these operations has saved a block of what other ranks gave, as a constant."""
        blocks = [block for tensor in made for block in self._blocks(tensor, own)]
        saved = (tensor for node in users for tensor in graph.saved_by(node, self.torch)) if blocks else ()
        return any(self._holds(tensor, block) for tensor in saved if not tensor.requires_grad for block in blocks)

    def _blocks(self, tensor, own):
        """The first values of each rank's part but this rank's."""
        own = own.detach().reshape(-1)
        if not own.numel() or not tensor.numel() or tensor.numel() % own.numel() or tensor.dtype is not own.dtype:
            return []
        heads = [part[:COMPARED] for part in tensor.detach().reshape(-1).split(own.numel())]
        return [head for head in heads if not self.torch.equal(head, own[:COMPARED]) and bool((head != head[0]).any())]

    def _holds(self, tensor, block):
        """In the order of its rows, or of its columns."""
        if tensor.numel() < len(block) or not tensor.is_floating_point() or tensor.device != block.device:
            return False
        block = block.to(tensor.dtype)
        for rows in (tensor, tensor.transpose(-1, -2)) if tensor.dim() > 1 else (tensor,):
            flat = rows.reshape(-1)
            for at in (flat == block[0]).nonzero().reshape(-1)[:COMPARED].tolist():
                if self.torch.equal(flat[at:at + len(block)], block):
                    return True
        return False

    def step_ended(self):
        self.outputs, self.waiting = [], []
