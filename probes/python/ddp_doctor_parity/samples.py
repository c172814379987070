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


def arguments(args, kwargs):
    """Of a call: each is joined by itself, whatever their sizes."""
    return {"args": dict(enumerate(args)), "kwargs": dict(kwargs)}


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


class Layout:
    """How batches are laid out, as seen in the batches themselves: by which values shorter rows were filled up, and on which side; which dimension
    has the samples."""

    def __init__(self):
        self.fillers = collections.defaultdict(collections.Counter)  # path -> (side, value) -> rows
        self.dimensions = collections.defaultdict(collections.Counter)  # path -> dimension -> batches

    def see(self, item, size):
        for path, tensor in tensors_of(item):
            if tensor.dim() > 0:
                self.dimensions[path][_dimension_of_samples(tensor, size)] += 1
            if tensor.dim() < 2 or tensor.numel() > 1 << 22:
                continue
            rows = self.samples_first(path, tensor)
            if rows.size(1) < 2:
                continue
            rows = rows.reshape(rows.size(0), rows.size(1), -1)[:, :, 0]
            for side, last, before in (("right", rows[:, -1], rows[:, -2]), ("left", rows[:, 0], rows[:, 1])):
                for value in last[last == before].tolist():
                    self.fillers[path][side, value] += 1

    def filler(self, path):
        """(side, value)"""
        seen = self.fillers[path].most_common(1)
        return seen[0][0] if seen else ("right", 0)

    def samples_first(self, path, tensor):
        """With the samples along the first dimension; the same again undoes it."""
        seen = self.dimensions[path]
        return tensor.transpose(0, 1) if tensor.dim() > 1 and seen[1] > seen[0] else tensor


def _dimension_of_samples(tensor, size):
    """The second one of tokens (time, batch) and of features (time, batch, width)."""
    if not size or size == 1 or tensor.dim() < 2 or tensor.size(0) == size or tensor.size(1) != size:
        return 0
    return 1 if tensor.dim() > 2 or not tensor.is_floating_point() else 0


def _walk(parts, size, tensors, lists, others, path=""):
    """The structure of the first of `parts`, with tensors(parts, path) in the place of tensors, lists(parts) in that of lists of samples, and
    others(parts, path) in that of what else it has."""
    first = parts[0]
    further = lambda values, name, size: _walk(values, size, tensors, lists, others, f"{path}.{name}")
    if hasattr(first, "shape") and hasattr(first, "detach"):
        return tensors(parts, path)
    if isinstance(first, Mapping):
        if any(set(part) != set(first) for part in parts):
            raise Impossible(f"the ranks' batches have different keys ({', '.join(map(str, first))})")
        return _like(first, {key: further([part[key] for part in parts], key, size) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(further(list(values), name, size) for name, values in zip(first._fields, zip(*parts))))
    if isinstance(first, (list, tuple)):
        fields, rows = _fields(parts, size)
        if fields:
            return type(first)(further(list(values), i, rows) for i, values in enumerate(zip(*parts)))
        return type(first)(lists(parts))
    return others(parts, path)


def join(torch, parts, layout, size=None):
    """One batch of those of several ranks, rank by rank. `size`: samples in a batch of one rank, where that is known."""

    def same(parts, path):
        first = parts[0]
        if all(type(part) is type(first) and part == first for part in parts):
            return first
        raise Impossible(f"a batch holds {type(first).__name__}{f' in {path[1:]}' if path else ''}, which cannot be joined across ranks")

    return _walk(parts, size, lambda parts, path: _cat(torch, parts, path, layout), lambda parts: [value for part in parts for value in part], same)


def _fields(parts, size):
    """Whether a list is [inputs, labels], and not a list of samples; and the number of samples in the first part, if it can be told."""
    first = parts[0]
    if any(len(part) != len(first) for part in parts):
        return False, size
    if any(isinstance(value, (str, bytes, int, float, bool)) for value in first):
        return all(part == first for part in parts), size
    rows = []
    for part in parts:
        values = [value for value in part if tensors_of(value)]
        if not values:
            return True, size
        if len(part) == size and _alike(part) and not all(_may_hold(value, size) for value in values):
            return False, size
        rows.append(next((n for n in (size, rows_of(values[0]), _length(values[0])) if n is not None and all(_may_hold(v, n) for v in values)), None))
    return None not in rows, rows[0] if rows[0] is not None else size


def _alike(values):
    """As samples are."""
    if len({type(value) for value in values}) > 1:
        return False
    if hasattr(values[0], "detach"):
        return len({(value.dtype, value.dim()) for value in values}) == 1
    return not isinstance(values[0], Mapping) or all(set(value) == set(values[0]) for value in values)


def _length(value):
    return len(value) if isinstance(value, (list, tuple)) else None


def _may_hold(value, rows):
    """So many samples: by the tensors in it, or one by one."""
    return rows_of(value) == rows or _length(value) == rows


def _cat(torch, parts, path, layout):
    first = parts[0]
    if first.dim() == 0:
        if all(torch.equal(part, first) for part in parts):
            return first
        raise Impossible(f"a batch holds a single number{f' in {path[1:]}' if path else ''} that differs between ranks")
    if any(part.dim() != first.dim() for part in parts):
        raise Impossible(f"the ranks' batches have different dimensions{f' in {path[1:]}' if path else ''}")
    parts = [layout.samples_first(path, part) for part in parts]
    joined = torch.cat([padded(torch, part, _longest(parts), *layout.filler(path)) for part in parts])
    return layout.samples_first(path, joined).contiguous()


def _longest(parts):
    """The sizes after the first."""
    return [max(part.size(d) for part in parts) for d in range(1, parts[0].dim())]


def padded(torch, tensor, sizes, side, value):
    """`tensor` with these sizes after the first."""
    if list(tensor.shape[1:]) == list(sizes):
        return tensor
    wide = tensor.new_full((tensor.size(0), *sizes), value)
    at = tuple(slice(size - have, None) if side == "left" else slice(0, have) for size, have in zip(sizes, tensor.shape[1:]))
    wide[(slice(None), *at)] = tensor
    return wide


def needs_padding(parts, layout, size=None):
    """Whether tensors that are joined differ in more than the number of samples."""
    differing = []

    def compare(parts, path):
        if len({layout.samples_first(path, part).shape[1:] for part in parts}) > 1:
            differing.append(path)

    _walk(parts, size, compare, lambda parts: [], lambda parts, path: None)
    return bool(differing)


def widened(torch, part, parts, layout, size=None):
    """`part` alone, padded as it is among `parts`."""

    def widen(parts, path):
        mine, *all_parts = (layout.samples_first(path, part) for part in parts)
        if mine.dim() < 2 or any(other.dim() != mine.dim() for other in all_parts):
            return parts[0]
        wide = padded(torch, mine, _longest(all_parts), *layout.filler(path))
        return layout.samples_first(path, wide).contiguous()

    return _walk([part, *parts], size, widen, lambda parts: parts[0], lambda parts, path: parts[0])


def reversed_rows(torch, item, layout, size=None):
    """The same samples in another order."""

    def turn(parts, path):
        tensor = parts[0]
        return layout.samples_first(path, layout.samples_first(path, tensor).flip(0)).contiguous() if tensor.dim() else tensor

    return _walk([item], size, turn, lambda parts: list(reversed(parts[0])), lambda parts, path: parts[0])


def is_ragged(item, layout, size=None):
    """Whether some tensor has more or fewer rows than there are samples, as targets of different lengths that are put one after another."""
    rows = set()

    def see(parts, path):
        if parts[0].dim() > 0:
            rows.add(len(layout.samples_first(path, parts[0])))

    _walk([item], size, see, lambda parts: [], lambda parts, path: None)
    return len(rows) > 1


def counts_of(item):
    """What a loss may weigh by: of each tensor of integers or flags, how many are neither a filler (-100) nor zero, by its place; of what each
    sample in a list has, such as boxes, how many there are."""
    counts = {"samples": rows_of(item)}
    for path, tensor in tensors_of(item):
        if tensor.dim() > 1 and not tensor.is_floating_point():
            ignores = bool((tensor == -100).any())
            name = _name(path, "targets" if ignores else "inputs")
            if ignores:
                counts[f"{name} that are not -100"] = int((tensor != -100).sum())
                counts[f"{name} but the first that are not -100"] = int((tensor[:, 1:] != -100).sum())
            counts[f"{name} that are not 0"] = int((tensor != 0).sum())
    rows = collections.defaultdict(list)  # of tensors of the same name in each sample
    for path, tensor in tensors_of(item):
        rows[".".join(part for part in path.split(".") if part and not part.isdigit())].append(len(tensor) if tensor.dim() else 1)
    counts.update({name: sum(each) for name, each in rows.items() if name and len(each) > 1})
    return counts


def _name(path, otherwise):
    parts = [part for part in path.split(".") if part not in ("", "args", "kwargs")]
    return ".".join(parts) if any(not part.isdigit() for part in parts) else otherwise + "".join(f"[{part}]" for part in parts)
