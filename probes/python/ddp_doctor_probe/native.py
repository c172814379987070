# SPDX-License-Identifier: BSD-3-Clause
"""libddp-doctor-probe.so: the C API of lib/recorder/probe_api.h."""
import ctypes
import functools
import json
import os
import signal

# Stages of record.h.
LOCAL, GRADIENT, WEIGHT, BUFFER, REDUCED, COLLECTIVE, WEIGHT_BEFORE, ACCUMULATED, BEFORE_BACKWARD = range(9)
# What to take from a tensor: probe_api.h.
DIGEST, SAMPLE, KEEP, KEEP_LAST, KEEP_WANTED = 1, 2, 4, 8, 16
# What a backward was to a wrapper, and how the backward of a forward will be: probe_api.h.
TOUCHED, SYNCHRONIZED, PARTIAL, AGAIN, UNSEEN = (1 << bit for bit in range(5))
UNREDUCED, REDUCED_LATER, WITHOUT_GRADIENTS = range(3)
# What is looked at: builtins.cpp.
PAIRS, TENSORS, GRADIENTS = range(3)
# Phases of progress.h.
STARTING, CONNECTING, BATCH, FORWARD, BACKWARD, IN_COLLECTIVE, OPTIMIZER, RECORDING, FINISHED, UNEXAMINED = range(10)
PHASES = ("starting", "connecting", "batch", "forward", "backward", "collective", "optimizer", "recording", "finished", "unexamined")
# On this signal a rank writes its stack: tool/launch/launch.cpp.
STACK_SIGNAL = signal.SIGRTMAX - 3

_library = None


class _Text(ctypes.c_char_p):
    @classmethod
    def from_param(cls, text):
        return ctypes.c_char_p(text.encode("utf-8", "surrogateescape"))


class Row(ctypes.Structure):
    """ddpd_row."""

    _fields_ = [("started_ns", ctypes.c_int64), ("duration_ns", ctypes.c_int64), ("scale", ctypes.c_double), ("optimizer", ctypes.c_int32),
                ("skipped", ctypes.c_int32)]


_handle, _number, _long, _array = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
_SLOW = (  # they release the GIL
    ("version", ctypes.c_char_p, []),
    ("error", ctypes.c_char_p, []),
    ("open", _handle, [ctypes.c_char_p, ctypes.c_char_p, _long]),
    ("close", None, [_handle]),
    ("tensors", _number, [_handle, ctypes.c_char_p]),
    ("observe", _number, [_handle, _number, _number, _long, _array, _array]),
    ("observe_view", _number, [_handle, _number, _number, ctypes.c_int32, _handle, ctypes.c_char_p, _number, _array, _array]),
    ("observe_on_device", _number, [_handle, _number, _number, _number, _handle, _long, _array, _array]),
    ("loss_on_device", _number, [_handle, _number, _handle, _array, ctypes.c_char_p]),
    ("forget", None, [_handle]),
    ("swap", None, [_handle]),
    ("write_row", _number, [_handle, _number, _long]),
    ("write", _number, [_handle, ctypes.c_char_p, ctypes.c_char_p]),
)
_EVENTS = (  # they take nanoseconds, and come one at a time, so they keep it
    ("enter", None, [_number, _long]),
    ("step_number", _long, []),
    ("is_recorded", _number, []),
    ("reads_graphs", _number, []),
    ("examine", None, []),
    ("wanted_step", _long, []),
    ("backwards", _long, []),
    ("call_begins", _long, [_long, _number, _Text, _Text, _Text, _long, _Text, _Text, _Text, _Text, _number]),
    ("call_ends", None, [_long]),
    ("call_resumes", None, [_long]),
    ("wrapper_begins", _number, []),
    ("wrapper_made", None, [_number, _number, _Text]),
    ("forward_begins", None, [_number, _number]),
    ("forward_ends", None, [_number]),
    ("forward_around", None, [_number]),
    ("forward_unseen", None, [_number, _number]),
    ("forget_forwards", None, []),
    ("backward_begins", None, [_Text, _number, _number]),
    ("gradient_arrives", _number, [_array]),
    ("is_still_local", _number, [_array]),
    ("was_local", _number, [_array]),
    ("backward_ends", _number, [_number, _number, _number]),
    ("backward_of", _number, [_number]),
    ("loss", None, [ctypes.c_double]),
    ("token", None, [_Text]),
    ("moment", ctypes.c_char_p, []),
    ("first_before_step", _number, []),
    ("collective", _long, [_number, _Text, _Text, _Text, _long, _long, _Text, _Text, _Text, _Text, _Text, _number]),
    ("optimizer", _number, []),
    ("optimizer_holds", None, [_number, _long, _array]),
    ("backwards_before", _long, [_number]),
    ("cover", _long, [_number, _long, _array, _long, _array, _array]),
    ("usages", None, [_number]),
    ("step_begins", _number, []),
    ("gradients_taken", None, []),
    ("step_ends", _number, []),
    ("take_row", None, [ctypes.POINTER(Row)]),
    ("step_closed", None, [_number]),
)


def _load():
    global _library
    if _library is None:
        libexec = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        library = ctypes.CDLL(os.path.join(libexec, "libddp-doctor-probe.so"))
        quick = ctypes.PyDLL(library._name)
        for source, functions, first in ((library, _SLOW, []), (quick, _EVENTS, [_handle])):
            for name, result, arguments in functions:
                function = getattr(source, "ddpd_" + name)
                function.restype, function.argtypes = result, first + arguments
                setattr(library, "ddpd_" + name, function)
        library.builtin = quick.ddpd_builtin
        library.builtin.restype, library.builtin.argtypes = ctypes.py_object, [ctypes.c_char_p, ctypes.py_object, ctypes.py_object]
        _library = library
    return _library


class RecordError(Exception):
    pass


class Record:
    """One rank's record, and its step machine: each of _EVENTS is a method. Methods raise RecordError if something could not be stored."""

    def __init__(self, folder, header, values_budget, strided=None):
        """`strided`: torch.strided; tensors cannot be observed without it."""
        self._library, self._strided = _load(), strided
        self._handle = self._library.ddpd_open(os.fsencode(folder), _text(header), values_budget)
        if not self._handle:
            raise RecordError(self._error())
        self.address = self._handle
        for name, _, _ in _EVENTS:
            setattr(self, name, functools.partial(getattr(self._library, "ddpd_" + name), self._handle))
        self._look, self._look_before_step = self.builtin("observe", self._handle), self.builtin("observe_before_step", self._handle)

    def close(self):
        handle, self._handle, self._look, self._look_before_step = self._handle, None, None, None
        if handle:
            for name, _, _ in _EVENTS:
                delattr(self, name)
            self._library.ddpd_close(handle)

    def call(self, step, paired, op, reduce="", group="", target="", place=("", 0)):
        """Adds to the call log. `place` is the user's file and line. Returns a number for call_ends."""
        return self.call_begins(step, paired, op, reduce, "", 0, group, "", target, *place)

    def tensors(self, described):
        self._check(self._library.ddpd_tensors(self._handle, _text(described)))

    def builtin(self, name, argument):
        """A function of probes/python/builtins.cpp, whose `self` is the argument."""
        return self._library.builtin(name.encode(), argument, self._strided)

    def look(self, stage, what, items, of=PAIRS, step=-1):
        """Observes PAIRS of (Entry, tensor), or the TENSORS or GRADIENTS of entries. Returns pairs that are left: no contiguous CPU tensors of the
        dtype and size that they were described with. `step`: at whose end these are the weights."""
        left = self._look(stage, what, items, of, step)
        self._check(left == 1)
        return left

    def look_before_step(self, entries):
        """Samples of weights before an optimizer's step, and all of those that something else wrote or that are new. Returns those that are left."""
        left = self._look_before_step(entries)
        self._check(left == 1)
        return left

    def holds(self, optimizer, entries):
        self.optimizer_holds(optimizer, len(entries), _addresses(entries))

    def covered_by(self, optimizer, elsewhere, entries):
        """Those of `entries` that the optimizer's steps answer for."""
        ids = (ctypes.c_int32 * len(entries))()
        count = self.cover(optimizer, len(elsewhere), _addresses(elsewhere), len(entries), _addresses(entries), ids)
        return [entries[id] for id in ids[:count]]

    def observe(self, stage, what, ids, pointers):
        """Contiguous CPU tensors, with the dtype and size that they were described with."""
        count = len(ids)
        self._check(
            self._library.ddpd_observe(
                self._handle, stage, what, count, (ctypes.c_int32 * count)(*ids), (ctypes.c_void_p * count)(*pointers)
            )
        )

    def observe_view(self, stage, what, id, pointer, dtype, sizes, strides):
        count = len(sizes)
        self._check(
            self._library.ddpd_observe_view(
                self._handle, stage, what, id, pointer, dtype.encode(), count,
                (ctypes.c_int64 * count)(*sizes), (ctypes.c_int64 * count)(*strides),
            )
        )

    def observe_on_device(self, stage, what, device, stream, ids, pointers):
        """Contiguous GPU tensors, examined in order on the program's stream, without synchronizing."""
        count = len(ids)
        self._check(
            self._library.ddpd_observe_on_device(
                self._handle, stage, what, device, stream, count, (ctypes.c_int32 * count)(*ids), (ctypes.c_void_p * count)(*pointers)
            )
        )

    def loss_on_device(self, device, stream, pointer, dtype):
        self._check(self._library.ddpd_loss_on_device(self._handle, device, stream, pointer, dtype.encode()))

    def forget(self):
        self._library.ddpd_forget(self._handle)

    def swap(self):
        self._library.ddpd_swap(self._handle)

    def row(self, optimizer, started_ns, duration_ns=0, skipped=False, scale=None):
        """What the step of this optimizer did; -1: step 0."""
        self.take_row(Row(started_ns, duration_ns, float("nan") if scale is None else scale, optimizer, skipped))

    def write_row(self, examined, probe_ns=-1):
        """The row that was taken; a second time in its place."""
        self._check(self._library.ddpd_write_row(self._handle, examined, probe_ns))

    def write(self, kind, content):
        self._check(self._library.ddpd_write(self._handle, kind.encode(), _text(content)))

    def _check(self, failed):
        if failed:
            raise RecordError(self._error())

    def _error(self):
        return self._library.ddpd_error().decode(errors="replace")


def _text(content):
    return json.dumps(content, separators=(",", ":")).encode()


def _addresses(entries):
    return (ctypes.c_void_p * len(entries))(*[entry.address for entry in entries])
