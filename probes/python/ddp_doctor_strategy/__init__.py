# SPDX-License-Identifier: BSD-3-Clause
"""Strategies: other ways to synchronize an unmodified training program. The only mode of ddp-doctor that changes the training.

`ddp-doctor compare` and `run --fix` request them by name, several joined with "+"; the probe examines the changed program.

    ddp, ddp-find-unused, ddp-static-graph   wrapper: DistributedDataParallel with these flags; forwards in training cannot bypass it
    allreduce-flat, allreduce-each           gradients: averaged over all ranks before each optimizer.step
    allreduce-dimension:tp                   dimension: the gradients that a finding names, summed or averaged over one dimension of the mesh
    rebuild-optimizer                        optimizers: hold the model's current parameters in place of those that they replaced
    broadcast-init                           broadcasts: rank 0's weights and buffers to all ranks, before the first forward in training
    broadcast-buffers                        broadcasts: rank 0's buffers to all ranks, before each forward in training
    freeze=NAME,NAME                         freezing: these modules and parameters do not train (for `bisect --model`)

Each records once what it did (`applied`) or what it could not do (`cannot`).
"""
import collections
import os

KEY = "DDP_DOCTOR_APPLY"
_reported = set()
_in_flight = collections.deque(maxlen=64)  # the last tensors of our collectives, emptied


def wanted():
    return [name for name in os.environ.get(KEY, "").split("+") if name and name != "as-is"]


def install(torch):
    """Runs after the probe's patches, so that strategies act before the probe examines."""
    from . import broadcasts, dimension, freezing, gradients, optimizers, wrapper

    for name in wanted():
        if name.startswith("ddp"):
            wrapper.install(torch, name)
        elif name.startswith("freeze="):
            freezing.install(torch, name)
        elif name.startswith("allreduce-dimension:"):
            dimension.install(torch, name)
        elif name == "rebuild-optimizer":
            optimizers.install(torch, name)
        elif name.startswith("allreduce"):
            gradients.install(torch, name)
        else:
            broadcasts.install(torch, name)


def collective(torch, name, tensor, *arguments):
    """torch.distributed's collective of that name.

    A thread of Gloo drops its tensors a moment after the collective returned. Were it the last to hold one that Python made, it would wait for
    the interpreter, which in torch 1 waits for that thread where the process group ends."""
    alias = tensor.data
    getattr(torch.distributed, name)(alias, *arguments)
    alias.data = alias.new_empty(0)
    _in_flight.append(alias)


def named_parameters(torch):
    """(name in the outermost module that holds it, parameter) of all modules: as findings name them."""
    from ddp_doctor_probe.living import living

    wrappers = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    modules = [module for module in living(torch.nn.Module) if "_modules" in module.__dict__ and not isinstance(module, wrappers)]
    inner = {id(child) for module in modules for child in module._modules.values() if child is not None}
    return [named for module in modules if id(module) not in inner for named in module.named_parameters()]


def applied(name, what):
    _report(name, "applied", what)


def cannot(name, why):
    _report(name, "cannot", why)


def _report(name, key, text):
    from ddp_doctor_probe import session

    if session.current is not None and (name, key, text) not in _reported:
        _reported.add((name, key, text))
        session.current.fact(f"strategy {name}", key, text)
