# SPDX-License-Identifier: BSD-3-Clause
"""Which parameters are declared not to be replicas on all ranks: by their class, by attributes that their author set, or by the module that
shards them. Only read: torch.distributed.tensor and torch.distributed.fsdp are not imported.

A placement is {"placements": one for each dimension of the mesh, "source": who declares it}, and where known "mesh" (nested lists of ranks)
and "dimensions" (their names)."""

SHARDED = ["Shard(0)"]


def of(tensor):
    """The placement that the tensor itself declares; None if it declares none."""
    if type(tensor).__name__ == "DTensor":
        mesh = tensor.device_mesh
        return {
            "placements": [_spelled(placement) for placement in tensor.placements], "source": "DTensor",
            "mesh": mesh.mesh.tolist(), "dimensions": list(getattr(mesh, "mesh_dim_names", None) or ()),
        }
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


def by_module(root):
    """id(parameter) -> placement, for the parameters of `root` that FullyShardedDataParallel or DeepSpeed manages. With `fully_shard` its
    DTensors; the plain parameters that stand for them while they are gathered have the placement None."""
    found = {}
    for part in root.modules():
        names = {kind.__name__ for kind in type(part).__mro__}
        if "FullyShardedDataParallel" in names:
            left_out = {id(parameter) for parameter in getattr(part, "_ignored_params", ())}
            placement = {"placements": _of_strategy(getattr(part, "sharding_strategy", None)), "source": "FullyShardedDataParallel"}
            found.update((id(parameter), placement) for parameter in part.parameters() if id(parameter) not in left_out)
        elif "FSDPModule" in names:
            for parameter in part.parameters():
                placement = of(parameter)
                found[id(parameter)] = dict(placement, source="fully_shard") if placement else None
        elif "DeepSpeedEngine" in names and getattr(part, "zero_optimization_stage", int)() > 0:
            found.update((id(parameter), {"placements": SHARDED, "source": "DeepSpeedEngine"}) for parameter in part.parameters())
    return found


def is_whole(placement):
    """Every rank of the mesh has all of it."""
    return all(one == "Replicate" for one in placement["placements"])


def _of_strategy(strategy):
    name = getattr(strategy, "name", "")
    return ["Replicate"] if name == "NO_SHARD" else ["Replicate", *SHARDED] if "HYBRID" in name else SHARDED


def _spelled(placement):
    """The same in every version of torch: Shard(0), Replicate, Partial."""
    name = type(placement).__name__.lstrip("_")
    return f"{name}({placement.dim})" if hasattr(placement, "dim") else name
