# SPDX-License-Identifier: BSD-3-Clause
"""rebuild-optimizer: an optimizer that was made before the model was sharded, moved or re-assigned gets the model's current parameters, by their
names, in the same groups with the same hyper-parameters."""
import functools
import weakref

from . import applied, cannot, moments, named_parameters


def install(torch, name):
    known = weakref.WeakKeyDictionary()  # optimizer -> {id(parameter): name when the optimizer was made}
    constructor = torch.optim.Optimizer.__init__

    @functools.wraps(constructor)
    def __init__(self, *args, **kwargs):
        constructor(self, *args, **kwargs)
        known[self] = {id(parameter): title for title, parameter in named_parameters(torch)}

    def rebuild(optimizer, args, kwargs):
        before = known.pop(optimizer, None)
        if before is None:
            return
        live = dict(named_parameters(torch))
        replaced = 0
        for group in optimizer.param_groups:
            for position, parameter in enumerate(group["params"]):
                current = live.get(before.get(id(parameter)))
                if current is not None and current is not parameter:
                    group["params"][position] = current
                    optimizer.state.pop(parameter, None)
                    replaced += 1
        if replaced:
            applied(name, f"{type(optimizer).__name__} holds {replaced} current parameters of the model in place of those that they replaced")
        else:
            cannot(name, f"{type(optimizer).__name__} holds no parameter that another one of the same name has replaced")

    torch.optim.Optimizer.__init__ = __init__
    moments.before_each_step(torch, rebuild)

