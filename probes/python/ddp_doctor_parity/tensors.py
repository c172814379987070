# SPDX-License-Identifier: BSD-3-Clause
"""Gradients and weights as both runs keep them: on the CPU, a rank's part where they are sharded, and put together again."""


def kept(torch, tensor):
    """A copy to keep: a tensor, or of a DTensor this rank's part and where it belongs. None stays None."""
    if tensor is None:
        return None
    tensor = tensor.detach()
    if hasattr(tensor, "to_local") and hasattr(tensor, "placements"):
        mesh = tensor.device_mesh
        return {
            "local": _copy(torch, tensor.to_local()), "shape": tuple(tensor.shape), "mesh": tuple(mesh.mesh.shape),
            "at": tuple(mesh.get_coordinate() or ()), "shards": [getattr(placement, "dim", None) for placement in tensor.placements],
            "partial": any(placement.is_partial() for placement in tensor.placements),
        }
    return _copy(torch, tensor)


def _copy(torch, tensor):
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    wait = getattr(tensor, "wait", None)
    if wait is not None and type(tensor) is not torch.Tensor:
        tensor = wait()  # of a collective that is still under way
    return tensor.detach().to("cpu", copy=True).contiguous()


def is_part(value):
    return isinstance(value, dict)


def mark(tensor):
    """Two numbers by which a gradient is told from that of another rank, of the size of its norm."""
    values = tensor.double()
    return [float(values.norm()), float(values.sum()) / max(1, values.numel()) ** 0.5]


def marks_differ(marks):
    """Whether ranks hold gradients of their own, `marks` of all parameters by rank: more than another order of summation would explain."""
    told = [[number for pair in each for number in pair or (0.0, 0.0)] for each in marks]
    size = max(sum(number * number for number in each) ** 0.5 for each in told)
    apart = max(sum((a - b) ** 2 for a, b in zip(each, told[0])) ** 0.5 for each in told)
    return apart > 1e-3 * size


def whole(torch, parts, shape):
    """One tensor of `shape` from what each rank kept of it; None if it cannot be told. Where ranks hold replicas, the first one's."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if is_part(known[0]):
        return None if any(part["partial"] for part in known) else _from_mesh(torch, known, shape)
    if tuple(known[0].shape) == tuple(shape):
        return known[0]
    numel = 1
    for size in shape:
        numel *= size
    joined = dealt_out(torch, known, shape)
    if joined is not None:
        return joined
    if all(part.dim() <= 1 for part in known) and sum(part.numel() for part in known) >= numel:  # cut from a flat parameter, and padded
        return torch.cat([part.reshape(-1) for part in known])[:numel].reshape(tuple(shape))
    return None


def dealt_out(torch, parts, shape):
    """Parts that add up to `shape` along one dimension, as those of hand-written tensor and expert parallelism; None if these do not. Whether they belong
    there in this order, nothing tells."""
    if len(parts) < 2 or any(is_part(part) or part.dim() != len(shape) for part in parts):
        return None
    for dim in range(len(shape)) if len(shape) > 1 else ():
        fits = all(list(part.shape[:dim]) + list(part.shape[dim + 1:]) == [*shape[:dim], *shape[dim + 1:]] for part in parts)
        if fits and sum(part.shape[dim] for part in parts) == shape[dim]:
            return torch.cat(parts, dim=dim)
    return None


def is_dealt_out(part, shape):
    """Whether `whole` assumes how it is put together."""
    return part is not None and not is_part(part) and part.dim() > 1 and tuple(part.shape) != tuple(shape)


def _from_mesh(torch, parts, shape):
    """Cut along each dimension of the mesh in turn, as torch.chunk cuts."""
    if tuple(parts[0]["shape"]) != tuple(shape):
        return None
    by_place = {part["at"]: part["local"] for part in parts}
    mesh, shards = parts[0]["mesh"], parts[0]["shards"]

    def assemble(prefix):
        level = len(prefix)
        if level == len(mesh):
            return by_place.get(prefix)
        if shards[level] is None:
            return assemble(prefix + (0,))
        pieces = [assemble(prefix + (i,)) for i in range(mesh[level])]
        if any(piece is None for piece in pieces):
            return None
        return torch.cat(pieces, dim=shards[level])

    result = assemble(())
    return result if result is not None and tuple(result.shape) == tuple(shape) else None


def give(torch, target, value):
    """Puts the whole tensor `value` into a parameter or buffer of one process."""
    local = target.data  # a graph that is not yet walked does not count it as a change
    if hasattr(local, "to_local"):
        local = local.to_local()
    if tuple(local.shape) != tuple(value.shape) and local.numel() == value.numel():
        value = value.reshape(local.shape)
    if tuple(local.shape) != tuple(value.shape):
        return False
    if not torch.equal(local.cpu(), value):
        local.copy_(value)
    return True
