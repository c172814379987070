# SPDX-License-Identifier: BSD-3-Clause
"""Batches of several ranks as one: joined along their first dimension, padded to the longest."""
import collections
import functools
import operator
from collections.abc import Mapping

from . import Impossible
from .nested import Derived, is_number, is_tensor, mapped, named_parts, numbers_of, of_its_kind, rows_of, tensors_of


class Layout:
    """How batches are laid out, as seen in the batches themselves: by which values shorter rows were filled up, and on which side; which dimension
    has the samples; what the numbers beside the tensors count."""

    def __init__(self):
        self.with_numbers = []  # batches
        self.numbers = None  # path -> what it may be: keys of measures(), and the number itself if it is always the same
        self.fillers = collections.defaultdict(collections.Counter)  # path -> (side, value) -> rows, where others of the batch are filled up, too
        self.alone = collections.defaultdict(collections.Counter)  # the same for a tensor by itself: labels may ignore what is no filler
        self.dimensions = collections.defaultdict(collections.Counter)  # path -> dimension -> batches

    def see(self, item, size, beside=()):
        """`beside`: what else belongs to its samples."""
        if numbers_of(item):
            self.with_numbers.append(item)
        for path, tensor in tensors_of(item):
            if tensor.dim() > 0:
                self.dimensions[path][_dimension_of_samples(tensor, size)] += 1
        self._see_fillers(item, beside)

    def _see_fillers(self, item, beside):
        """Rows that end, or begin, with a value twice: those in which all tensors with as many rows and as long ones do. Targets may be shorter by
        one, where each token predicts the next."""
        mine = self._rows(tensors_of(item))
        others = self._rows([(None, tensor) for other in beside for _, tensor in tensors_of(other)])
        for path, rows in mine:
            alike = [other for _, other in mine + others if len(other) == len(rows) and abs(other.size(1) - rows.size(1)) <= 1]
            for side, last, before in (("right", -1, -2), ("left", 0, 1)):
                filled = [each[:, last] == each[:, before] for each in alike]
                for value in rows[functools.reduce(operator.and_, filled), last].tolist() if len(alike) > 1 else []:
                    self.fillers[path][side, value] += 1
                for value in rows[rows[:, last] == rows[:, before], last].tolist():
                    self.alone[path][side, value] += 1

    def _rows(self, tensors):
        """(path, rows) of tensors whose rows have two elements or more; of each element the first number."""
        found = []
        for path, tensor in tensors:
            if tensor.dim() >= 2 and tensor.numel() <= 1 << 22:
                rows = tensor if path is None else self.samples_first(path, tensor)
                if rows.size(1) >= 2:
                    found.append((path, rows.reshape(rows.size(0), rows.size(1), -1)[:, :, 0]))
        return found

    def measures(self, item):
        """What a number in a batch may be: ("count", ...) adds up where batches are joined, ("size", ...) is that of the largest."""
        measures = {("count", "samples"): rows_of(item)}
        for path, tensor in tensors_of(item):
            if tensor.dim() == 0 or tensor.numel() > 1 << 22:
                continue
            measures["count", path, "elements"] = tensor.numel()
            measures["count", path, "rows"] = len(tensor)
            for d in range(1, tensor.dim()):
                measures["size", path, d] = tensor.size(d)
            if tensor.is_floating_point():
                continue
            for value in {0, -100, self.filler(path)[1]}:
                measures["count", path, value] = int((tensor != value).sum())
            if tensor.dim() == 1:  # lengths
                measures["count", path, "sum"] = int(tensor.sum())
                measures["size", path, "largest"] = int(tensor.max()) if len(tensor) else 0
        return measures

    def _tell_numbers(self):
        self.numbers = {}
        for item in self.with_numbers:
            measures = self.measures(item)
            for path, number in numbers_of(item):
                may_be = {key for key, measure in measures.items() if measure == number} | {number}
                self.numbers[path] = self.numbers.get(path, may_be) & may_be

    def number(self, path, values):
        """That of a joined batch, of those of its parts; None if it cannot be told."""
        if self.numbers is None:
            self._tell_numbers()
        may_be = self.numbers.get(path, set())
        kinds = {key[0] for key in may_be if isinstance(key, tuple)}
        constant = any(not isinstance(key, tuple) for key in may_be)
        if not kinds or (constant and ("count", "samples") not in may_be):
            return values[0] if all(value == values[0] for value in values) else None
        joined = {"count": sum(values), "size": max(values)}
        told = {joined[kind] for kind in kinds}
        return told.pop() if len(told) == 1 else None

    def filler(self, path):
        """(side, value)"""
        seen = (self.fillers[path] or self.alone[path]).most_common(1)
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
    if is_tensor(first):
        return tensors(parts, path)
    named = [named_parts(part) for part in parts]
    if named[0] is not None:
        if any(each is None or set(each) != set(named[0]) for each in named):
            raise Impossible(f"the ranks' batches have different keys ({', '.join(map(str, named[0]))})")
        return of_its_kind(first, {key: further([each[key] for each in named], key, size) for key in named[0]})
    if isinstance(first, (list, tuple)):
        fields, rows = _fields(parts, size)
        if fields:
            return type(first)(further(list(values), i, rows) for i, values in enumerate(zip(*parts)))
        return type(first)(lists(parts))
    return others(parts, path)


def join(torch, parts, layout, size=None):
    """One batch of those of several ranks, rank by rank. `size`: samples in a batch of one rank, where that is known."""

    def cat(parts, path):
        if parts[0].dim() > 0:
            return _cat(torch, parts, path, layout)
        number = layout.number(path, [part.item() for part in parts])
        if number is None:
            raise Impossible(f"a batch holds a single number{_in(path)}, and what it would be in a joined batch cannot be told")
        return torch.tensor(number, dtype=parts[0].dtype)

    def same(parts, path):
        first = parts[0]
        number = layout.number(path, parts) if all(map(is_number, parts)) else None
        if number is not None:
            return number
        if not is_number(first) and all(type(part) is type(first) and part == first for part in parts):
            return first
        raise Impossible(f"a batch holds {getattr(first, 'kind', type(first).__name__)}{_in(path)}, which cannot be joined across ranks")

    return _walk(parts, size, cat, lambda parts: [value for part in parts for value in part], same)


def _in(path):
    return f" in {path[1:]}" if path else ""


def _fields(parts, size):
    """Whether a list is [inputs, labels], and not a list of samples; and the number of samples in the first part, if it can be told."""
    first = parts[0]
    if any(len(part) != len(first) for part in parts):
        return False, size
    if any(isinstance(value, (str, bytes, int, float, bool)) for value in first):
        return any(map(tensors_of, first)) or all(part == first for part in parts), size
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
    if any(part.dim() != parts[0].dim() for part in parts):
        raise Impossible(f"the ranks' batches have different dimensions{_in(path)}")
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


def dealt_along(torch, whole, parts, layout):
    """0: `whole` has the samples of all `parts` together; 1: its samples are cut into them along their second dimension, as sequences are; in any
    order, padded with zeros or not. None: neither."""
    return next((dim for dim in (0, 1) if _is_dealt(torch, whole, parts, layout, dim)), None)


def _is_dealt(torch, whole, parts, layout, dim):
    dealt, differing = [], []

    def sums(tensor, path):
        rows = layout.samples_first(path, tensor).detach().cpu().double()
        rows = rows.transpose(0, dim).reshape(rows.size(dim), -1)
        return torch.stack([rows.sum(1), rows.square().sum(1)]).sort(dim=1).values

    def compare(all_parts, path):
        own, *others = all_parts
        if all(isinstance(other, Derived) for other in others):
            return
        if own.dim() == 0 or own.is_complex():
            differing.append(path)
            return
        if dim == 1 and all(torch.equal(own, other) for other in others):
            return  # no sequence
        mine, theirs = sums(own, path), torch.cat([sums(other, path) for other in others], dim=1).sort(dim=1).values
        same = mine.shape == theirs.shape and torch.allclose(mine, theirs, rtol=1e-9, atol=1e-9)
        (dealt if same else differing).append(path)

    def compare_lists(all_parts):
        own, *others = ([_summary(sample) for sample in part] for part in all_parts)
        if sorted(own) != sorted(summary for other in others for summary in other):
            differing.append("")
        return []

    try:
        _walk([whole, *parts], None, compare, compare_lists, lambda parts, path: differing.append(path) if len(set(map(str, parts))) > 1 else None)
    except (Impossible, AttributeError, TypeError, ValueError, RuntimeError, IndexError):
        return False  # of another structure
    return not differing and (dim == 0 or bool(dealt))


def _summary(sample):
    """The same for equal samples, and hardly for others."""
    of_tensors = [(tuple(tensor.shape), float(tensor.double().sum()), float(tensor.double().square().sum())) for _, tensor in tensors_of(sample)]
    return of_tensors, "" if of_tensors else str(sample)


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


def by_rows(item, inputs):
    """Flattened targets as rows, one for each row of tokens or frames that a model gets, or for all of it but one token where each predicts the
    next."""
    of_rows = (tensor.shape for _, tensor in tensors_of(inputs) if tensor.dim() == 2 + tensor.is_floating_point())
    n, length = next(of_rows, (0, 0))[:2]

    def rows(tensor, path):
        return tensor.reshape(n, -1) if tensor.dim() == 1 and n < len(tensor) in (n * length, n * (length - 1)) else tensor

    return mapped(item, rows)


def rows_in(item, layout, size=None):
    """How many rows its tensors have; more than one number where some have more or fewer than there are samples, as targets of different lengths
    that are put one after another."""
    rows = set()

    def see(parts, path):
        if parts[0].dim() > 0:
            rows.add(len(layout.samples_first(path, parts[0])))

    _walk([item], size, see, lambda parts: [], lambda parts, path: None)
    return rows


def counts_of(item):
    """What a loss may weigh by: of each tensor of integers, flags or masks, how many are neither a filler (-100) nor zero, by its place; of what
    each sample in a list has, such as boxes, how many there are."""
    counts = {"samples": rows_of(item)}
    for path, tensor in tensors_of(item):
        if tensor.dim() > 1 and (not tensor.is_floating_point() or _is_mask(tensor)):
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


def _is_mask(tensor):
    return bool(((tensor == 0) | (tensor == 1)).all())


def _name(path, otherwise):
    parts = [part for part in path.split(".") if part not in ("", "args", "kwargs")]
    return ".".join(parts) if any(not part.isdigit() for part in parts) else otherwise + "".join(f"[{part}]" for part in parts)
