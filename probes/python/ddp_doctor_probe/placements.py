# SPDX-License-Identifier: BSD-3-Clause
"""How parameters lie on a mesh of ranks, where that is declared: by their class, by attributes that their author set, or by the module that
shards them. Only read: torch.distributed.tensor and torch.distributed.fsdp are not imported.

A placement is {"placements": one for each dimension of the mesh, "source": who declares it}, and where known "mesh" (nested lists of ranks)
and "dimensions" (their names)."""

import sys

from .groups import ranks_of

SHARDED = ["Shard(0)"]


def of(tensor):
    """The placement that the tensor itself declares; None if it declares none."""
    if type(tensor).__name__ == "DTensor":
        mesh = tensor.device_mesh
        return {
            "placements": kinds_of(tensor), "source": "DTensor",
            "mesh": mesh.mesh.tolist(), "dimensions": list(getattr(mesh, "mesh_dim_names", None) or ()),
        }
    if hasattr(tensor, "ds_tensor"):
        return {"placements": SHARDED, "source": "DeepSpeed"}
    if hasattr(tensor, "_hp_mapping"):  # ZeRO 1 and 2: the optimizer updates a flat copy, and gathers the weights
        return {"placements": ["Replicate"], "source": "DeepSpeed"}
    if getattr(tensor, "_is_flat_param", False):
        return {"placements": SHARDED, "source": "FullyShardedDataParallel"}
    if hasattr(tensor, "_local_shard"):
        return {"placements": SHARDED, "source": "ShardedTensor"}
    # Megatron-LM's attributes, which others copied.
    if getattr(tensor, "tensor_model_parallel", None) is True:
        return {"placements": [f"Shard({getattr(tensor, 'partition_dim', 0)})"], "source": "tensor_model_parallel"}
    if getattr(tensor, "allreduce", None) is False:
        return {"placements": ["Local"], "source": "allreduce=False"}
    return None


def kinds_of(tensor):
    """A DTensor's placements, one for each dimension of its mesh."""
    return [_spelled(placement) for placement in tensor.placements]


def local(tensor):
    """This rank's part of a DTensor, or of a parameter that DeepSpeed partitioned; any other tensor as it is."""
    if type(tensor).__name__ != "DTensor":
        return getattr(tensor, "ds_tensor", tensor)
    part = tensor._local_tensor
    # The result of an asynchronous collective: whoever reads it waits for it.
    return part.trigger_wait() if type(part).__name__ == "AsyncCollectiveTensor" else part


def by_module(root):
    """id(parameter) -> placement, for the parameters of `root` that FullyShardedDataParallel manages. With `fully_shard` its DTensors;
    the parameters that stand for them while they are gathered have the placement None."""
    found = {}
    for part in root.modules():
        names = {kind.__name__ for kind in type(part).__mro__}
        if "FullyShardedDataParallel" in names:
            left_out = {id(parameter) for parameter in getattr(part, "_ignored_params", ())}
            placement = _of_strategy(part)
            found.update((id(parameter), placement) for parameter in part.parameters() if id(parameter) not in left_out)
        elif "FSDPModule" in names:
            gathered = {id(getattr(parameter, "_unsharded_param", None)) for group in _groups(part) for parameter in group.fsdp_params}
            for parameter in part.parameters():
                placement = None if id(parameter) in gathered else of(parameter)
                found[id(parameter)] = dict(placement, source="fully_shard") if placement else None
    return found


def sharding_modules(root):
    """The modules that `fully_shard` was applied to."""
    return [part for part in root.modules() if any(kind.__name__ == "FSDPModule" for kind in type(part).__mro__)]


def _groups(module):
    """What `fully_shard` gathers together."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    return [group for group in groups if group is not None]


def is_sharding_root(module, first):
    """The outermost module that FullyShardedDataParallel or `fully_shard` was applied to. Torch knows it once its first forward has begun; until
    then it is the `first` module that is called."""
    # Asked of the class: a module answers that it has none with an exception, which takes long.
    state = module._get_fsdp_state() if getattr(type(module), "_get_fsdp_state", None) else module
    if "_is_root" not in state.__dict__:
        return False
    return state._is_root or (first and state._is_root is None)


def settings(modules):
    """What `fully_shard` does with gradients: {"shards", "replicas": whether they are reduced over these; "factors": what the sums are divided
    by, where the program set it, and the number of ranks}."""
    groups = [group for module in modules for group in _groups(module)]
    factors = {(group.gradient_divide_factor, group.mesh_info.mesh.size()) for group in groups if getattr(group, "gradient_divide_factor", None)}
    # Replicas exist on a mesh of two dimensions only.
    return {
        "shards": all(getattr(group, "reduce_grads", True) for group in groups),
        "replicas": all(getattr(group, "all_reduce_grads", True) for group in groups if group.mesh_info.mesh.ndim > 1),
        "factors": [{"factor": factor, "ranks": ranks} for factor, ranks in sorted(factors)],
    }


def is_whole(placement):
    """Every rank of the mesh has all of it."""
    return all(one == "Replicate" for one in placement["placements"])


def stated(torch, statements, entries, warn):
    """name -> what the program states of that parameter, for the known parameters (`entries`). Of modules in each other, the inner one
    decides."""
    said = {}
    parts = [(parameters_of(part), dimensions) for part, dimensions in statements]
    for parameters, dimensions in sorted(parts, key=lambda one: -len(one[0])):
        held = {id(parameter) for parameter in parameters}
        for entry in entries:
            if id(entry.ref()) in held:
                said.setdefault(entry.name.split(":")[-1], {}).update(dimensions)
    return {name: [_along(torch, *one) for one in dimensions.items() if _is_kind(*one, warn)] for name, dimensions in said.items()}


def parameters_of(part):
    """Of a module; a parameter itself."""
    return list(part.parameters()) if hasattr(part, "parameters") else [part]


def _is_kind(dimension, kind, warn):
    if _kind(kind) in ("replicate", "shard"):
        return True
    warn(f'ddp_doctor.placement(): {dimension}: {kind!r} is not used; write "replicate" or "shard"')
    return False


def _kind(kind):
    """Of a text, or of torch's Replicate() and Shard(0)."""
    return kind if isinstance(kind, str) else _spelled(kind).split("(")[0].lower()


def _along(torch, dimension, kind):
    if isinstance(dimension, str):
        return {"dimension": dimension, "kind": _kind(kind)}
    return {"ranks": ranks_of(torch, dimension), "kind": _kind(kind)}


def _of_strategy(part):
    """Of a FullyShardedDataParallel module."""
    name = getattr(getattr(part, "sharding_strategy", None), "name", "")
    placement = {"placements": ["Replicate"] if name == "NO_SHARD" else ["Replicate", *SHARDED] if "HYBRID" in name else SHARDED}
    group = getattr(part, "_inter_node_pg", None) if "HYBRID" in name else None
    if group is not None:
        placement["replicas"] = ranks_of(sys.modules["torch"], group)
    return dict(placement, source="FullyShardedDataParallel")


def _spelled(placement):
    """The same in every version of torch: Shard(0), Replicate, Partial."""
    name = type(placement).__name__.lstrip("_")
    return f"{name}({placement.dim})" if hasattr(placement, "dim") else name
