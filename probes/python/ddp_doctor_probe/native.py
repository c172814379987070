# SPDX-License-Identifier: BSD-3-Clause
"""libddp-doctor-probe.so: the C API of lib/record/probe_api.h."""
import ctypes
import json
import os
import signal

# Stages of record.h.
LOCAL, GRADIENT, WEIGHT, BUFFER, REDUCED, COLLECTIVE, WEIGHT_BEFORE, ACCUMULATED, BEFORE_BACKWARD = range(9)
# What to take from a tensor: probe_api.h.
DIGEST, SAMPLE, KEEP, KEEP_LAST, KEEP_WANTED = 1, 2, 4, 8, 16
# Flags for the use of a parameter: probe_api.h.
USED, REACHED_KNOWN, REACHED, IN_OUTPUT_KNOWN, IN_OUTPUT, FROZEN, REPLACED, IN_OPTIMIZER, ASSIGNED = (1 << bit for bit in range(9))
# Phases of progress.h.
STARTING, CONNECTING, BATCH, FORWARD, BACKWARD, IN_COLLECTIVE, OPTIMIZER, RECORDING, FINISHED, UNEXAMINED = range(10)
PHASES = ("starting", "connecting", "batch", "forward", "backward", "collective", "optimizer", "recording", "finished", "unexamined")
# On this signal a rank writes its stack: tool/launch/launch.cpp.
STACK_SIGNAL = signal.SIGRTMAX - 3

_library = None


def _load():
    global _library
    if _library is not None:
        return _library
    libexec = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    library = ctypes.CDLL(os.path.join(libexec, "libddp-doctor-probe.so"))
    handle, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    long, array = ctypes.c_int64, ctypes.c_void_p
    for name, result, arguments in (
        ("ddpd_version", text, []),
        ("ddpd_error", text, []),
        ("ddpd_open", handle, [text, text, long]),
        ("ddpd_close", None, [handle]),
        ("ddpd_tensors", number, [handle, text]),
        ("ddpd_observe", number, [handle, number, number, long, array, array]),
        ("ddpd_observe_view", number, [handle, number, number, ctypes.c_int32, handle, text, number, array, array]),
        ("ddpd_observe_on_device", number, [handle, number, number, number, handle, long, array, array]),
        ("ddpd_loss_on_device", number, [handle, number, handle, array, text]),
        ("ddpd_usages", number, [handle, long, array]),
        ("ddpd_forget", None, [handle]),
        ("ddpd_swap", None, [handle]),
        ("ddpd_step", number, [handle, text]),
        ("ddpd_write", number, [handle, text, text]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    # These take nanoseconds, so they keep the GIL.
    quick = ctypes.PyDLL(library._name)
    for name, result, arguments in (
        ("ddpd_enter", None, [handle, number, long]),
        ("ddpd_wanted_step", long, [handle]),
        ("ddpd_call_begins", long, [handle, long, number, text, text, text, long, text, text, text, text, number]),
        ("ddpd_call_ends", None, [handle, long]),
        ("ddpd_call_resumes", None, [handle, long]),
    ):
        function = getattr(quick, name)
        function.restype, function.argtypes = result, arguments
        setattr(library, name, function)
    library.builtin = quick.ddpd_builtin
    library.builtin.restype, library.builtin.argtypes = ctypes.py_object, [text, ctypes.py_object, ctypes.py_object]
    _library = library
    return library


class RecordError(Exception):
    pass


class Record:
    """One rank's record. Methods raise RecordError if something could not be stored."""

    def __init__(self, folder, header, values_budget, strided=None):
        """`strided`: torch.strided; tensors cannot be observed without it."""
        self._library, self._strided = _load(), strided
        self._handle = self._library.ddpd_open(os.fsencode(folder), _text(header), values_budget)
        if not self._handle:
            raise RecordError(self._error())
        self._enter = self._library.ddpd_enter
        self.address = self._handle
        self._look = self.builtin("observe", self._handle)

    def close(self):
        handle, self._handle, self._look = self._handle, None, None
        if handle:
            self._library.ddpd_close(handle)

    def enter(self, phase, step):
        self._enter(self._handle, phase, step)

    def wanted_step(self):
        return self._library.ddpd_wanted_step(self._handle)

    def call_begins(self, step, paired, op, reduce="", dtype="", numel=0, group="", moment="", target="", place=("", 0)):
        """Adds to the call log. `place` is the user's file and line. Returns a number for call_ends."""
        return self._library.ddpd_call_begins(
            self._handle, step, paired, op.encode(), reduce.encode(), dtype.encode(), numel, group.encode(), moment.encode(),
            target.encode(), place[0].encode("utf-8", "surrogateescape"), place[1])

    def call_ends(self, number):
        self._library.ddpd_call_ends(self._handle, number)

    def call_resumes(self, number):
        self._library.ddpd_call_resumes(self._handle, number)

    def tensors(self, described):
        self._check(self._library.ddpd_tensors(self._handle, _text(described)))

    def builtin(self, name, argument):
        """A function of probes/python/builtins.cpp, whose `self` is the argument."""
        return self._library.builtin(name.encode(), argument, self._strided)

    def look(self, stage, what, pairs):
        """Observes (Entry, tensor) pairs. Returns those that are left: no contiguous CPU tensors of the dtype and size that they were described with."""
        left = self._look(stage, what, pairs)
        self._check(left == 1)
        return left

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

    def usages(self, numbers):
        """An array of int32, four for each parameter."""
        address, count = numbers.buffer_info()
        self._check(self._library.ddpd_usages(self._handle, count // 4, address))

    def forget(self):
        self._library.ddpd_forget(self._handle)

    def swap(self):
        self._library.ddpd_swap(self._handle)

    def step(self, step):
        self._check(self._library.ddpd_step(self._handle, _text(step)))

    def write(self, kind, content):
        self._check(self._library.ddpd_write(self._handle, kind.encode(), _text(content)))

    def _check(self, failed):
        if failed:
            raise RecordError(self._error())

    def _error(self):
        return self._library.ddpd_error().decode(errors="replace")


def _text(content):
    return json.dumps(content, separators=(",", ":")).encode()
