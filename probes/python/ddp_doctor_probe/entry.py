# SPDX-License-Identifier: BSD-3-Clause
"""One tensor of the record."""
import ctypes

from . import placements


class Entry(ctypes.Structure):
    """One tensor of the record, identified by its place in a module: the object there may change. The hook on gradients has the fields, too
    (builtins.cpp)."""

    _fields_ = [
        # Parameter, of lib/recorder/parameter.h
        ("numel", ctypes.c_int64), ("since", ctypes.c_int64), ("arrivals", ctypes.c_int64), ("arrivals_at_step", ctypes.c_int64),
        ("last_backward", ctypes.c_int64), ("seen_in", ctypes.c_int64), ("seen_version", ctypes.c_int64), ("seen_address", ctypes.c_int64),
        ("id", ctypes.c_int32), ("in_wrapper", ctypes.c_int32), ("in_reducer", ctypes.c_int32),
        ("is_parameter", ctypes.c_bool), ("trainable", ctypes.c_bool), ("managed", ctypes.c_bool), ("replaced", ctypes.c_bool),
        ("read", ctypes.c_bool), ("began", ctypes.c_bool),
        # and of builtins.cpp
        ("in_backwards", ctypes.c_void_p), ("dtype_address", ctypes.c_void_p), ("tensor_address", ctypes.c_void_p),
        ("placed", ctypes.c_bool),  # the tensor is more than this rank's part
    ]
    __slots__ = (
        "address", "backwards", "name", "kind", "dtype", "dtype_name", "sizes", "wrapper", "index", "module", "attribute", "module_name", "ref",
        "hook", "pointer", "model", "placement", "gradient_placement",
    )
    __hash__ = object.__hash__

    def __init__(self, backwards):
        self.address, self.backwards, self.in_backwards = ctypes.addressof(self), backwards, ctypes.addressof(backwards)

    def belongs(self, wrapper, index):
        """To a wrapper, and is a parameter of its reducer; None: to none, and is not."""
        self.wrapper, self.index = wrapper, index
        self.in_wrapper, self.in_reducer = -1 if wrapper is None else wrapper, -1 if index is None else index

    def lies(self, tensor, dtype_name, local):
        """As this tensor does, of which `local` is this rank's part."""
        self.dtype, self.dtype_name, self.dtype_address = tensor.dtype, dtype_name, id(tensor.dtype)
        self.sizes, self.numel = list(local.shape), local.numel()

    def as_argument(self):
        """For the hook on its gradients."""
        return _Address(self)

    def is_changed(self):
        return self.live() is not self.ref() or address_of(self.ref()) != self.pointer

    def live(self):
        """The object now at the entry's place in its module; the known object if there is no module."""
        module = self.module() if self.module is not None else None
        if module is None:
            return self.ref()
        table = module._parameters if self.kind == "parameter" else module._buffers
        found = table.get(self.attribute)
        return self.ref() if found is None else found


class _Address(int):
    """Of an entry, which it keeps alive: what the hook on its gradients is told. Copies of the parameter share the hook."""

    def __new__(cls, entry):
        address = super().__new__(cls, entry.address)
        address.entry = entry
        return address

    def parameter(self):
        return self.entry.ref()

    def __reduce__(self):
        return (_Forgotten, ())


class _Forgotten:
    """What a parameter that was saved with its hook, and loaded, has for it."""

    def gradient_arrived(self, parameter):
        pass

    def gradient_accumulated(self, *given):
        pass


def version_of(parameter):
    """Another one after every in-place write, except through `.data`, and after an assignment to `.data`, which gives it other storage."""
    return -1 if parameter.is_inference() else parameter._version, address_of(parameter)


def address_of(tensor):
    """Of its local part."""
    try:
        return placements.local(tensor).data_ptr()
    except (AttributeError, RuntimeError):  # deleted, or without its own storage
        return 0
