# SPDX-License-Identifier: BSD-3-Clause
"""allreduce-dimension:NAME: before each optimizer.step, the gradients that a finding names are summed or averaged over one dimension of the mesh.

Which they are, over which ranks, and whether the sum or the mean is right, ddp-doctor says in DDP_DOCTOR_REDUCTIONS. A rank without a gradient
contributes zeros.
"""
import json
import os

from . import applied, cannot, collective, gradients, named_parameters

KEY = "DDP_DOCTOR_REDUCTIONS"


def install(torch, name):
    told = json.loads(os.environ.get(KEY) or "{}").get(name)
    if told is None:
        cannot(name, "only run --fix applies it, to the parameters of a finding")
        return
    own = []  # the process group of this rank
    names = {}  # id(parameter) -> name, as far as it was asked for

    def reduce(optimizer):
        distributed = torch.distributed
        if not distributed.is_initialized():
            return
        if not own:  # all ranks make all groups, in the same order
            whole = told["groups"] == [list(range(distributed.get_world_size()))]
            groups = [None] if whole else [distributed.new_group(ranks) for ranks in told["groups"]]
            own.append(next(group for ranks, group in zip(told["groups"], groups) if distributed.get_rank() in ranks))
        held = [p for group in optimizer.param_groups for p in group["params"]]
        if any(id(p) not in names for p in held):
            names.update((id(p), "") for p in held)
            names.update((id(p), title) for title, p in named_parameters(torch))
        held = [p for p in held if names[id(p)] in told["parameters"]]
        with torch.no_grad():
            for parameter in held:
                gradient = _local(torch, parameter)
                collective(torch, "all_reduce", gradient, distributed.ReduceOp.SUM, own[0])
                if told["operation"] == "mean":
                    gradient.div_(len(told["groups"][0]))
        if held:
            done = "averaged" if told["operation"] == "mean" else "summed"
            applied(name, f"the gradients of {len(held)} parameters are {done} over {told['dimension']} before each step of {type(optimizer).__name__}")

    gradients.before_each_use(torch, reduce)


def _local(torch, parameter):
    """Its gradient, contiguous; a DTensor's part on this rank."""
    from ddp_doctor_probe import placements

    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    local = placements.local(parameter.grad)
    if not local.is_contiguous():
        parameter.grad = parameter.grad.contiguous()
        local = placements.local(parameter.grad)
    return local
