# SPDX-License-Identifier: BSD-3-Clause
"""broadcast-init and broadcast-buffers: rank 0's values for every rank."""
import functools
import inspect
import weakref

from . import applied, collective, moments


def install(torch, name):
    (_init if name == "broadcast-init" else _buffers)(torch, name)


def _init(torch, name):
    equal = weakref.WeakSet()  # modules whose values are rank 0's

    def look(module):
        if not torch.distributed.is_initialized() or module in equal:
            return
        tensors = [*module.parameters(), *module.buffers()]
        if any(tensor.requires_grad for tensor in tensors):
            equal.update(module.modules())
            _broadcast(torch, tensors)
            applied(name, f"weights and buffers of {_name(torch, module)} were broadcast from rank 0 before its first forward in training")

    moments.before_each_call(torch, look)


def _buffers(torch, name):
    wrapper_class = torch.nn.parallel.DistributedDataParallel
    constructor = wrapper_class.__init__
    signature = inspect.signature(constructor)
    unwrapped = []  # weak references to modules called without a wrapper, in call order

    @functools.wraps(constructor)
    def __init__(self, *args, **kwargs):
        given = signature.bind(self, *args, **kwargs)
        before = given.arguments.get("broadcast_buffers", True)
        given.arguments["broadcast_buffers"] = True
        constructor(*given.args, **given.kwargs)
        applied(name, f"DistributedDataParallel({_name(torch, self)}) with broadcast_buffers=True{'' if before else ' instead of False'}")

    def look(module):
        if not isinstance(module, torch.nn.parallel.DistributedDataParallel) and all(module is not known() for known in unwrapped):
            unwrapped.append(weakref.ref(module))

    def act(optimizer, args, kwargs):
        if not torch.distributed.is_initialized():
            return
        for module in filter(None, (reference() for reference in unwrapped)):
            buffers = list(module.buffers())
            if buffers:
                _broadcast(torch, buffers)
                applied(name, f"buffers of {_name(torch, module)} are broadcast from rank 0 before each optimizer.step")

    wrapper_class.__init__ = __init__
    moments.before_each_call(torch, look)
    moments.before_each_step(torch, act)


def _broadcast(torch, tensors):
    with torch.no_grad():
        for tensor in tensors:
            collective(torch, "broadcast", tensor, 0)


def _name(torch, module):
    return type(module.module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else module).__name__
