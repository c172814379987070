# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed's optimizers. They are not torch's; the one of torch's inside of them updates flat partitions of the parameters, which no
module holds. So a step is that of DeepSpeed's optimizer, and its parameters are the model's.

DeepSpeed is never imported: its classes are looked up once the program has imported them."""
import functools
import sys
import weakref

from . import places, session

BASES = (("deepspeed.runtime.base_optimizer", "DeepSpeedOptimizer"), ("deepspeed.runtime", "ZeROOptimizer"))
PARAMETERS = ("bit16_groups", "bf16_groups", "fp16_groups")  # attributes, by class and version: lists of the model's parameters
_wholes = weakref.WeakKeyDictionary()  # DeepSpeed's optimizer -> _Whole


def follow():
    """Before each backward, as the program may import parts of DeepSpeed at any time: its optimizers report their steps from now on."""
    if "deepspeed.runtime" not in sys.modules:
        return
    for kind in _subclasses(_base()):
        step = vars(kind).get("step")
        if step is not None and not hasattr(step, "ddp_doctor"):
            kind.step = _observed(step)


def is_unknown():
    """The program uses a DeepSpeed whose optimizers are not found."""
    return "deepspeed.runtime.engine" in sys.modules and _base() is None


def calls():
    """Whether DeepSpeed's engine makes the collective that is about to begin: it exchanges weights and gradients, no activations."""
    return "deepspeed.runtime" in sys.modules and places.called_by("deepspeed/runtime/", ("deepspeed/comm/", "deepspeed/utils/"))


def steps_inside():
    """Whether DeepSpeed steps an optimizer of torch's for itself, to allocate its state. Its engines do so for the program."""
    engines = ("deepspeed/runtime/engine.py", "deepspeed/runtime/pipe/engine.py", "deepspeed/utils/")
    return "deepspeed.runtime" in sys.modules and places.called_by("deepspeed/runtime/", engines)


def is_engine(module):
    return "deepspeed.runtime" in sys.modules and any(kind.__name__ == "DeepSpeedEngine" for kind in type(module).__mro__)


def _base():
    return next((getattr(sys.modules[file], name) for file, name in BASES if hasattr(sys.modules.get(file), name)), None)


def _subclasses(kind):
    return [] if kind is None else [kind, *(one for inner in kind.__subclasses__() for one in _subclasses(inner))]


def _observed(step):
    @functools.wraps(step)
    def observed(self, *args, **kwargs):
        here = session.current
        if here is None:
            return step(self, *args, **kwargs)
        whole = _begins(here, self)
        result = step(self, *args, **kwargs)
        if whole is not None:
            _ends(here, self, whole)
        return result

    observed.ddp_doctor = True
    return observed


def _begins(here, optimizer):
    try:
        whole = _wholes.get(optimizer)
        if whole is None:
            whole = _wholes[optimizer] = type(type(optimizer).__name__, (_Whole,), {})(optimizer)
            if optimizer.optimizer in here.steps.made_at:
                here.steps.made_at[whole] = here.steps.made_at[optimizer.optimizer]
        here.steps.optimizer_begins(whole, (), {})
        return whole
    except Exception as error:
        here.failed("DeepSpeed's optimizer", error)
        return None


def _ends(here, optimizer, whole):
    try:
        here.steps.optimizer_ends(whole, skipped=bool(getattr(optimizer, "overflow", False)))
    except Exception as error:
        here.failed("DeepSpeed's optimizer", error)


class _Whole:
    """A DeepSpeed optimizer, as the rest of the probe knows optimizers."""

    def __init__(self, optimizer):
        self.optimizer = weakref.ref(optimizer)
        self.state = {}  # each rank has its own part

    @property
    def param_groups(self):
        """The settings of each group; all parameters are in the first one, as ZeRO divides them otherwise than the program did."""
        optimizer = self.optimizer()
        groups = [dict(group, params=[]) for group in optimizer.optimizer.param_groups]
        lists = next((getattr(optimizer, name) for name in PARAMETERS if hasattr(optimizer, name)), [])
        groups[0]["params"] = [parameter for one in lists for parameter in one]
        return groups
