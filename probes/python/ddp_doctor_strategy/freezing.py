# SPDX-License-Identifier: BSD-3-Clause
"""freeze=NAME,NAME: modules and parameters that do not train, as if they had been frozen before the model was wrapped.

For `bisect --model`: the modules that explain "unused parameters" are those that must be frozen for the program to finish.
"""
import functools

from . import applied, cannot


def install(torch, name):
    wrapper_class = torch.nn.parallel.DistributedDataParallel
    constructor = wrapper_class.__init__
    wanted = [part for part in name.partition("=")[2].split(",") if part]

    @functools.wraps(constructor)
    def __init__(self, module, *args, **kwargs):
        frozen = 0
        for full_name, parameter in module.named_parameters():
            if parameter.requires_grad and any(full_name == part or full_name.startswith(part + ".") for part in wanted):
                parameter.requires_grad_(False)
                frozen += 1
        (applied if frozen else cannot)(name, f"{frozen} parameters of {type(module).__name__} frozen before it was wrapped")
        constructor(self, module, *args, **kwargs)

    wrapper_class.__init__ = __init__
