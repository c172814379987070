# SPDX-License-Identifier: BSD-3-Clause
"""Batches of several ranks as one: nested structures of tensors, joined along their first dimension, padded to the longest."""
import collections
from collections.abc import Mapping

from . import Impossible


class Derived:
    """In the place of a tensor that the program computed from others: it computes it again."""

    def __eq__(self, other):
        return isinstance(other, Derived)

    __hash__ = None


def merged(item, original):
    """`item` with the program's own tensors where it says Derived."""
    if isinstance(item, Derived):
        return original
    if isinstance(item, Mapping):
        return _like(item, {key: merged(value, original[key]) for key, value in item.items()})
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(merged(value, other) for value, other in zip(item, original)))
    if isinstance(item, (list, tuple)):
        return type(item)(merged(value, other) for value, other in zip(item, original)) if len(item) == len(original) else item
    return item


def mapped(item, change, path=""):
    """The structure of `item` with change(tensor, path) in the place of its tensors. Also a copy."""
    kind = type(item)
    if hasattr(item, "shape") and hasattr(item, "detach"):
        return change(item, path)
    if isinstance(item, Mapping):
        pairs = {key: mapped(value, change, f"{path}.{key}") for key, value in item.items()}
        return _like(item, pairs)
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return kind(*(mapped(value, change, f"{path}.{name}") for name, value in zip(item._fields, item)))
    if isinstance(item, (list, tuple)):
        values = [mapped(value, change, f"{path}.{i}") for i, value in enumerate(item)]
        return values if kind is list else kind(values)
    return item


def _like(mapping, pairs):
    """A mapping of the same kind, where its kind can be made from pairs."""
    if type(mapping) is dict:
        return pairs
    for make in (lambda: type(mapping)(pairs), lambda: type(mapping)(**pairs)):
        try:
            return make()
        except Exception:
            continue
    return pairs


def tensors_of(item, path=""):
    """(path, tensor) of all tensors."""
    if hasattr(item, "shape") and hasattr(item, "detach"):
        return [(path, item)]
    if isinstance(item, Mapping):
        inner = item.items()
    elif isinstance(item, tuple) and hasattr(item, "_fields"):
        inner = zip(item._fields, item)
    else:
        inner = enumerate(item) if isinstance(item, (list, tuple)) else ()
    return [pair for key, value in inner for pair in tensors_of(value, f"{path}.{key}")]


def rows_of(item):
    """The number of samples: the first dimension that most tensors have in common; 0 without any."""
    sizes = collections.Counter(len(tensor) for _, tensor in tensors_of(item) if tensor.dim() > 0)
    return sizes.most_common(1)[0][0] if sizes else 0


def signature(item):
    return str([(path, tuple(tensor.shape)) for path, tensor in tensors_of(item)])


class Padding:
    """By which values shorter rows were filled up, and on which side, as seen in the batches themselves."""

    def __init__(self):
        self.votes = collections.defaultdict(collections.Counter)  # path -> (side, value) -> rows

    def see(self, item):
        for path, tensor in tensors_of(item):
            if tensor.dim() < 2 or tensor.size(1) < 2 or tensor.numel() > 1 << 22:
                continue
            rows = tensor.reshape(tensor.size(0), tensor.size(1), -1)[:, :, 0]
            for side, last, before in (("right", rows[:, -1], rows[:, -2]), ("left", rows[:, 0], rows[:, 1])):
                for value in last[last == before].tolist():
                    self.votes[path][side, value] += 1

    def of(self, path, tensor):
        seen = self.votes[path].most_common(1)
        if seen:
            return seen[0][0]
        return "right", 0


def join(torch, parts, padding, size=None):
    """One batch of those of several ranks, rank by rank. `size`: samples in a batch of one rank, where that is known."""

    def joined(parts, path):
        first = parts[0]
        if isinstance(first, torch.Tensor):
            return _cat(torch, parts, path, padding)
        if isinstance(first, Mapping):
            if any(set(part) != set(first) for part in parts):
                raise Impossible(f"the ranks' batches have different keys ({', '.join(map(str, first))})")
            return _like(first, {key: joined([part[key] for part in parts], f"{path}.{key}") for key in first})
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*(joined(list(values), f"{path}.{name}") for name, values in zip(first._fields, zip(*parts))))
        if isinstance(first, (list, tuple)):
            if _holds_fields(torch, parts, size):
                return type(first)(joined(list(values), f"{path}.{i}") for i, values in enumerate(zip(*parts)))
            return type(first)(value for part in parts for value in part)
        if all(type(part) is type(first) and part == first for part in parts):
            return first
        raise Impossible(f"a batch holds {type(first).__name__}{f' in {path[1:]}' if path else ''}, which cannot be joined across ranks")

    return joined(parts, "")


def _holds_fields(torch, parts, size):
    """Whether a list is [inputs, labels], and not a list of samples."""
    first = parts[0]
    if any(len(part) != len(first) for part in parts):
        return False
    if any(isinstance(value, (str, bytes, int, float, bool)) for value in first):
        return all(part == first for part in parts)
    rows = {rows_of(value) for value in first if tensors_of(value)}
    if size is not None and rows and rows != {size} and len(first) == size:
        return False
    return len(rows) <= 1


def _cat(torch, parts, path, padding):
    first = parts[0]
    if first.dim() == 0:
        if all(torch.equal(part, first) for part in parts):
            return first
        raise Impossible(f"a batch holds a single number{f' in {path[1:]}' if path else ''} that differs between ranks")
    if any(part.dim() != first.dim() for part in parts):
        raise Impossible(f"the ranks' batches have different dimensions{f' in {path[1:]}' if path else ''}")
    longest = [max(part.size(d) for part in parts) for d in range(1, first.dim())]
    return torch.cat([padded(torch, part, longest, *padding.of(path, part)) for part in parts])


def padded(torch, tensor, sizes, side, value):
    """`tensor` with these sizes after the first."""
    if list(tensor.shape[1:]) == list(sizes):
        return tensor
    wide = tensor.new_full((tensor.size(0), *sizes), value)
    at = tuple(slice(size - have, None) if side == "left" else slice(0, have) for size, have in zip(sizes, tensor.shape[1:]))
    wide[(slice(None), *at)] = tensor
    return wide


def needs_padding(parts):
    """Whether tensors of the same place differ in more than their first dimension."""
    shapes = [[(path, tuple(tensor.shape[1:])) for path, tensor in tensors_of(part)] for part in parts]
    return any(shape != shapes[0] for shape in shapes)


def widened(torch, part, parts, padding):
    """`part` alone, padded as it is among `parts`."""
    longest = {}
    for other in parts:
        for path, tensor in tensors_of(other):
            known = longest.setdefault(path, list(tensor.shape[1:]))
            longest[path] = [max(pair) for pair in zip(known, tensor.shape[1:])] if len(known) == tensor.dim() - 1 else known
    return mapped(part, lambda tensor, path: padded(torch, tensor, longest[path], *padding.of(path, tensor)) if tensor.dim() > 1 else tensor)


def reversed_rows(torch, item, size):
    """The same samples in another order."""
    if isinstance(item, torch.Tensor):
        return item.flip(0) if item.dim() else item
    if isinstance(item, Mapping):
        return _like(item, {key: reversed_rows(torch, value, size) for key, value in item.items()})
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(reversed_rows(torch, value, size) for value in item))
    if isinstance(item, (list, tuple)):
        if _holds_fields(torch, [item], size):
            return type(item)(reversed_rows(torch, value, size) for value in item)
        return type(item)(reversed(item))
    return item


def counts_of(item):
    """What a loss may weigh by: of each tensor of integers or flags, how many are neither a filler (-100) nor zero, by its place."""
    counts = {"samples": rows_of(item)}
    for path, tensor in tensors_of(item):
        if tensor.dim() > 1 and not tensor.is_floating_point():
            name = path.strip(".") or "inputs"
            if bool((tensor == -100).any()):
                counts[f"{name} that are not -100"] = int((tensor != -100).sum())
                counts[f"{name} but the first that are not -100"] = int((tensor[:, 1:] != -100).sum())
            counts[f"{name} that are not 0"] = int((tensor != 0).sum())
    return counts
