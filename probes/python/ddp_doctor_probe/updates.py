# SPDX-License-Identifier: BSD-3-Clause
"""Updates that the program writes itself, as `p -= lr * p.grad`, where it has no torch.optim.Optimizer. A step begins with the first write to a
parameter after a backward, and ends before the next forward or backward.

Writes are seen by a TorchFunctionMode, which is there only between a backward and the next forward, and only if the program has no mode of its
own then: theirs are left in the order in which they were entered."""
import sys
import weakref

from . import forwards, native
from .living import living
from .passive import passive

LOOKS = 8  # at what gradients are asked of
IN_PLACE = {f"__i{name}__" for name in ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")} | {"__setitem__"}
NO_WRITES = {"requires_grad_", "detach_", "share_memory_"}
PREPARES = ("/torch/nn/modules/", "/torch/nn/init.py")  # where weights are converted, loaded and initialized, which is no update

before_each = []  # functions that get a HandWrittenUpdate before the first write


def _prepares(frame):
    """Whether one of torch's own files that prepare weights wrote, perhaps by the modes' dispatcher."""
    while frame is not None and frame.f_code.co_filename.endswith("torch/overrides.py"):
        frame = frame.f_back
    return frame is not None and any(part in frame.f_code.co_filename for part in PREPARES)


class HandWrittenUpdate:
    """What stands for an optimizer in the record."""

    def __init__(self, parameters):
        self.param_groups = [{"params": parameters}]
        self.state = {}


class Updates:
    def __init__(self, session):
        self.session, self.torch = session, session.torch
        overrides = sys.modules.get("torch.overrides")
        self.modes = getattr(overrides, "_get_current_function_mode_stack", None)  # torch 1.13 and later
        self.kind = getattr(overrides, "TorchFunctionMode", None)
        self.possible = self.modes is not None
        self.looks = 0
        self.leaves = []  # what the program asked gradients of
        self.mode, self.entered = None, False
        self.watching = False  # writes are looked for
        self.addresses = {}  # of parameters' memory -> Entry
        self.optimizer = None
        self.under_way = False
        self.taken = set()  # parameters whose gradients are examined, in this step
        self.given = {}  # id of a parameter -> the gradient that torch.autograd.grad returned, since the last step
        self.reduced = None  # addresses of what collectives got since then; None: there was none

    # ---- which writes are looked for

    def differentiated(self, leaves):
        """The program asks for gradients of these."""
        if self.possible and self.looks < LOOKS:
            known = {id(leaf()) for leaf in self.leaves}
            self.leaves += [weakref.ref(leaf) for leaf in self._leaves_in(leaves) if id(leaf) not in known]

    def returned(self, leaves, gradients):
        """By torch.autograd.grad: they do not go into `grad`."""
        if self.possible:
            self.given.update((id(leaf), weakref.ref(g)) for leaf, g in zip(leaves, gradients) if self._leaves_in([leaf]) and g is not None)

    def _leaves_in(self, inputs):
        """Of torch.autograd.grad, which takes edges of the graph, too."""
        return [tensor for tensor in inputs if isinstance(tensor, self.torch.Tensor) and tensor.is_leaf]

    def gradients_are_there(self):
        """Of a backward, or torch.autograd.grad. An update may follow."""
        session = self.session
        if not self.possible or self._has_optimizer() or forwards.compiles or "deepspeed" in sys.modules or self.modes() and not self.entered:
            self.given.clear()
            return
        if not session.tensors.parameters():  # beside a module's parameters, other leaves may be inputs
            session.tensors.add_parameters([leaf for leaf in (ref() for ref in self.leaves) if leaf is not None], anonymous=True)
        session.tensors.hook_trainable()
        pairs = [(entry, entry.ref()) for entry in session.tensors.parameters() if entry.trainable]
        self.addresses = {parameter.data_ptr(): entry for entry, parameter in pairs if parameter is not None}
        self.addresses.pop(0, None)
        parameters = {id(parameter) for _, parameter in pairs}
        self.given = {leaf: gradient for leaf, gradient in self.given.items() if leaf in parameters}  # and not those of inputs
        self.watching = bool(self.addresses)
        if self.watching and not self.entered:
            self.mode = self.mode or self._mode()
            self.mode.__enter__()
            self.entered = True

    def _has_optimizer(self):
        """If it once has, what it writes itself is no step."""
        steps = self.session.steps
        self.looks += 1
        made_before = self.looks == 1 and living(self.torch.optim.Optimizer)  # before the session began; later ones are known
        if made_before or steps.made_at or any(known is not self.optimizer for known in steps.optimizer_of):
            self.possible = False
        return not self.possible

    def _mode(self):
        updates, data = self, self.torch.Tensor.data.__set__

        class Writes(self.kind):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                kwargs = kwargs or {}
                name = getattr(function, "__name__", "")
                is_write = name.endswith("_") and not name.endswith("__") and name not in NO_WRITES or name in IN_PLACE
                written = args[0] if args and (is_write or name == "__set__" and function == data) else kwargs.get("out")
                if written is not None and not _prepares(sys._getframe(1)):
                    updates.writes(written)
                return function(*args, **kwargs)

        return Writes()

    # ---- a step

    @passive
    def writes(self, target):
        """The program is about to write into tensors."""
        tensors = target if isinstance(target, (list, tuple)) else [target]
        own = (self.torch.Tensor, self.torch.nn.Parameter)
        entries = [self.addresses.get(tensor.data_ptr()) for tensor in tensors if type(tensor) in own]
        entries = [entry for entry in entries if entry is not None and entry not in self.taken]
        if not entries or not self.watching:
            return
        if not self.under_way:
            self._begins()
        self._take(entries)

    def holds_gradient_of(self, parameter):
        """The program updates it by hand, with what torch.autograd.grad returned."""
        return id(parameter) in self.given

    def collective_begins(self, tensors):
        if self.watching:
            self._collective_begins(tensors)

    @passive
    def _collective_begins(self, tensors):
        if self.under_way and not any(self._has_gradient(entry.ref()) for entry in self.addresses.values() if entry not in self.taken):
            self.end()  # all is updated: what follows, such as an average of weights, does not belong to the update
            return
        self.reduced = (self.reduced or set()) | {tensor.data_ptr() for tensor in tensors}

    def _begins(self):
        steps, session = self.session.steps, self.session
        held = [entry.ref() for entry in session.tensors.parameters() if entry.trainable]
        held = [parameter for parameter in held if parameter is not None]
        if self.optimizer is None:
            self.optimizer = HandWrittenUpdate(held)
        self.optimizer.param_groups[0]["params"] = held
        self.under_way = True
        for act in before_each:
            act(self.optimizer)
        steps.begin(self.optimizer)
        session.enter(native.BATCH)  # gradients may still be reduced, one after the other

    def _has_gradient(self, parameter):
        return parameter is not None and (parameter.grad is not None or id(parameter) in self.given)

    def _gradient(self, entry):
        """As far as it is known: of what torch.autograd.grad returned, unless the program reduced a copy of it."""
        parameter = entry.ref()
        if parameter is None:
            return None
        if parameter.grad is not None:
            return parameter.grad
        gradient = self.given[id(parameter)]() if id(parameter) in self.given else None
        return gradient if gradient is None or self.reduced is None or gradient.data_ptr() in self.reduced else None

    def _take(self, entries):
        """Their gradients are now what they are when they are applied."""
        self.taken.update(entries)
        if self.session.recording:
            pairs = [(entry, self._gradient(entry)) for entry in entries]
            self.session.values.observe(
                native.GRADIENT, native.DIGEST | native.SAMPLE | self.session.backwards.keeps, [pair for pair in pairs if pair[1] is not None])

    def ends(self):
        """A forward or a backward begins."""
        if self.watching:
            self._ends()

    @passive
    def _ends(self):
        self.end()

    def end(self):
        self.watching = False
        if self.entered and self.modes()[-1:] == [self.mode]:  # otherwise one of the program's is inside of it
            self.mode.__exit__(None, None, None)
            self.entered = False
        if self.under_way:
            self.under_way = False  # the step may be the last one that is examined, and end the session, which comes back here
            steps = self.session.steps
            known = steps.optimizer_of[self.optimizer]
            self._take([entry for entry in steps.covered_by(known) if entry not in self.taken])
            steps.end(self.optimizer, False)
            self.taken.clear()
            self.given.clear()
            self.reduced = None
