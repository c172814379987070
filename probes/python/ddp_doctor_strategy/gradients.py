# SPDX-License-Identifier: BSD-3-Clause
"""allreduce-flat and allreduce-each: gradients averaged over all ranks before each optimizer.step, instead of by a wrapper's reducer.

With a GradScaler, before unscale_, so that every rank checks the same gradients. Every rank contributes every trainable parameter that the
optimizer holds, with zeros if it has no gradient; a parameter without a gradient on any rank stays without one.
"""
import functools
import weakref

from . import applied, collective, moments


def install(torch, name):
    average = {"allreduce-flat": _flat, "allreduce-each": _each}[name]

    def synchronize(optimizer):
        if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
            return
        held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        if not held:
            return
        with torch.no_grad():
            average(torch, held)
        applied(name, f"the gradients of {len(held)} parameters are averaged over all ranks before each step of {type(optimizer).__name__}")

    _without_reducers(torch)
    before_each_use(torch, synchronize)


def before_each_use(torch, synchronize):
    """Calls synchronize(optimizer) before each step, after a closure's backward, before a GradScaler looks at the gradients, and before updates that the
    program writes itself."""
    from ddp_doctor_probe import updates

    done = weakref.WeakSet()  # optimizers whose gradients are already synchronized for the next step

    def unless_done(optimizer):
        if optimizer in done:
            done.discard(optimizer)
        else:
            synchronize(optimizer)

    moments.before_each_update(torch, unless_done)
    updates.before_each.append(synchronize)
    _before_unscaling(torch, synchronize, done)


def _without_reducers(torch):
    """As if every forward of a wrapper ran under no_sync; buffers are still broadcast."""
    wrapper_class = torch.nn.parallel.DistributedDataParallel
    constructor, original = wrapper_class.__init__, wrapper_class.forward

    @functools.wraps(constructor)
    def __init__(self, *args, **kwargs):
        constructor(self, *args, **kwargs)
        self.require_backward_grad_sync = False

    @functools.wraps(original)
    def forward(self, *args, **kwargs):
        self.require_backward_grad_sync = False  # the program's no_sync may have reset it
        result = original(self, *args, **kwargs)
        self.require_forward_param_sync = True
        return result

    wrapper_class.__init__, wrapper_class.forward = __init__, forward


def _before_unscaling(torch, synchronize, done):
    from torch.cuda.amp import grad_scaler

    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or grad_scaler.GradScaler
    unscale, step = scaler.unscale_, scaler.step

    def unscale_(self, optimizer):
        if self.is_enabled() and optimizer not in done:
            synchronize(optimizer)
            done.add(optimizer)
        return unscale(self, optimizer)

    def step_(self, optimizer, *args, **kwargs):
        if self.is_enabled() and optimizer not in done:
            synchronize(optimizer)
            done.add(optimizer)
        try:
            return step(self, optimizer, *args, **kwargs)
        finally:
            done.discard(optimizer)  # also if the scaler skipped the step

    scaler.unscale_, scaler.step = unscale_, functools.wraps(step)(step_)


def _counts(torch, parameters):
    """How many ranks have a gradient, by parameter."""
    present = torch.tensor([float(p.grad is not None) for p in parameters], device=parameters[0].device)
    collective(torch, "all_reduce", present)
    return [int(count) for count in present.tolist()]


def _gradient_of(torch, parameter):
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(parameter)
    return gradient.to_dense() if gradient.is_sparse else gradient


def _flat(torch, parameters):
    counts, groups = _counts(torch, parameters), {}
    for parameter, count in zip(parameters, counts):
        if count:
            groups.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for members in groups.values():
        flat = torch.cat([_gradient_of(torch, p).reshape(-1) for p in members])
        collective(torch, "all_reduce", flat)
        flat.div_(torch.distributed.get_world_size())
        at = 0
        for parameter in members:
            _give(torch, parameter, flat[at:at + parameter.numel()].view(parameter.shape))
            at += parameter.numel()


def _each(torch, parameters):
    for parameter, count in zip(parameters, _counts(torch, parameters)):
        if count:
            gradient = _gradient_of(torch, parameter).contiguous()
            collective(torch, "all_reduce", gradient)
            _give(torch, parameter, gradient.div_(torch.distributed.get_world_size()))


def _give(torch, parameter, mean):
    if parameter.grad is None or parameter.grad.is_sparse:
        parameter.grad = mean.clone()
    elif parameter.grad is not mean:
        parameter.grad.copy_(mean)
