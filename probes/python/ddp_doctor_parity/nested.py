# SPDX-License-Identifier: BSD-3-Clause
"""Nested structures of tensors: lists, tuples, mappings, dataclasses and objects, as batches and arguments are."""
import collections
import copy
import dataclasses
import functools
import os
import sys
from collections.abc import Mapping


class Derived:
    """In the place of a tensor that the program computed from others: it computes it again."""

    def __eq__(self, other):
        return isinstance(other, Derived)

    __hash__ = None


class Parts:
    """In the place of an object with tensors, such as a dataclass: what it holds. The program has its class."""

    def __init__(self, kind, values):
        self.kind, self.values = kind, values


class Opaque:
    """In the place of what only the program can read."""

    def __init__(self, kind):
        self.kind = kind

    def __eq__(self, other):
        return False

    __hash__ = None


def arguments(args, kwargs):
    """Of a call: each is joined by itself, whatever their sizes."""
    return {"args": dict(enumerate(args)), "kwargs": dict(kwargs)}


def is_tensor(item):
    return hasattr(item, "shape") and hasattr(item, "detach")


def _is_named_tuple(item):
    return isinstance(item, tuple) and hasattr(item, "_fields")


def named_parts(item):
    """{name: value} of what has named parts; None of anything else."""
    if isinstance(item, Mapping):
        return dict(item.items())
    if _is_named_tuple(item):
        return dict(zip(item._fields, item))
    if isinstance(item, Parts):
        return item.values
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item) if hasattr(item, field.name)}
    if isinstance(item, (list, tuple, type)) or callable(item):
        return None
    values = getattr(item, "__dict__", None)
    return dict(values) if values and any(is_tensor(value) for value in values.values()) else None


@functools.lru_cache(maxsize=None)
def _is_installed(module):
    """Whether a class of this module can be read where the program has not begun: the module is none of its own."""
    if module in ("__main__", "__mp_main__"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == __name__ or not file or "-packages" in file or file.startswith(os.path.dirname(os.__file__))


def of_its_kind(item, values):
    """With other values for its parts."""
    if _is_installed(type(item).__module__):
        if isinstance(item, Mapping):
            return _like(item, values)
        if _is_named_tuple(item):
            return type(item)(*values.values())
    return Parts(item.kind if isinstance(item, Parts) else type(item).__name__, values)


def merged(item, original):
    """`item` as the program's own `original` is: its class where it says Parts, its tensors where it says Derived."""
    if isinstance(item, Derived):
        return original
    if isinstance(item, Parts):
        own = named_parts(original) or {}
        values = {name: merged(value, own.get(name)) for name, value in item.values.items()}
        if isinstance(original, Mapping):
            return _like(original, values)
        if _is_named_tuple(original):
            return type(original)(*values.values())
        made = copy.copy(original)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made
    if isinstance(item, Mapping):
        return _like(item, {key: merged(value, original[key]) for key, value in item.items()})
    if _is_named_tuple(item):
        return type(item)(*(merged(value, other) for value, other in zip(item, original)))
    if isinstance(item, (list, tuple)) and len(item) == len(original):
        return type(item)(merged(value, other) for value, other in zip(item, original))
    if isinstance(item, (list, tuple)) and len(original) > 0 and any(isinstance(value, Parts) for value in item):
        return type(item)(merged(value, original[0]) for value in item)
    return item


def is_the_programs(item):
    """Whether something in it is of a class that only the program has."""
    return isinstance(item, Parts) or any(is_the_programs(value) for _, value in _inner(item))


def mapped(item, change, path=""):
    """The structure of `item` with change(tensor, path) in the place of its tensors. Also a copy."""
    if is_tensor(item):
        return change(item, path)
    values = named_parts(item)
    if values is not None:
        return of_its_kind(item, {name: mapped(value, change, f"{path}.{name}") for name, value in values.items()})
    if isinstance(item, (list, tuple)):
        values = [mapped(value, change, f"{path}.{i}") for i, value in enumerate(item)]
        return values if type(item) is list else type(item)(values)
    return item if _is_installed(getattr(item, "__module__", None) or "builtins") else Opaque(type(item).__name__)


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


def _inner(item):
    """(name or position, value) of what it holds."""
    values = named_parts(item)
    return values.items() if values is not None else enumerate(item) if isinstance(item, (list, tuple)) else ()


def tensors_of(item, path=""):
    """(path, tensor) of all tensors."""
    if is_tensor(item):
        return [(path, item)]
    return [pair for key, value in _inner(item) for pair in tensors_of(value, f"{path}.{key}")]


def is_number(item):
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def numbers_of(item, path=""):
    """(path, number) of all numbers beside the tensors, and of tensors of one."""
    if is_tensor(item):
        return [(path, item.item())] if item.dim() == 0 and not item.is_complex() else []
    if is_number(item):
        return [(path, item)]
    return [pair for key, value in _inner(item) for pair in numbers_of(value, f"{path}.{key}")]


def elements_of(item):
    return sum(tensor.numel() for _, tensor in tensors_of(item))


def rows_of(item):
    """The number of samples: the first dimension that most tensors have in common; 0 without any."""
    sizes = collections.Counter(len(tensor) for _, tensor in tensors_of(item) if tensor.dim() > 0)
    return sizes.most_common(1)[0][0] if sizes else 0


def signature(item):
    return str([(path, tuple(tensor.shape)) for path, tensor in tensors_of(item)])
