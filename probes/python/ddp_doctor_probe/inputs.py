# SPDX-License-Identifier: BSD-3-Clause
"""What enters the wrappers in a step: checksums, to see whether several ranks are given the same data."""
import ctypes
import zlib

from . import graph
from .passive import passive

MAX_STEPS = 64  # a pattern shows in the first ones
CHUNK = 32 << 10  # bytes read at either end of a tensor
LARGEST = 1 << 20  # elements of a tensor that is copied to be read
SAMPLES = 256  # of a step, that are told apart
SMALLEST = 4  # elements of a sample that are enough for that
PLACES = 64  # elements of a sample that are read


class Inputs:
    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.checksum = None  # over the forwards of the current step; None: nothing could be read
        self.samples = []  # of these, each its checksum
        self.steps_left = MAX_STEPS

    @passive
    def seen(self, arguments):
        """The arguments of a wrapper's forward. Only CPU memory is read: a copy from a GPU would make the step wait."""
        if self.steps_left > 0:
            tensors = graph.tensors_in(arguments, self.torch)
            for tensor in tensors:
                self._add(tensor)
            self._add_samples(next((tensor for tensor in tensors if self._has_samples(tensor)), None))

    def _has_samples(self, tensor):
        return self._is_plain(tensor) and tensor.dim() > 1 and len(tensor) > 1 and tensor.numel() >= SMALLEST * len(tensor)

    def _add_samples(self, tensor):
        """Of the rows of a batch, in its first dimension. A batch that enters a second time is none more."""
        if tensor is None or len(self.samples) >= SAMPLES:
            return
        rows = tensor[:SAMPLES].flatten(1)
        rows = rows[:, ::max(1, rows.shape[1] // PLACES)][:, :PLACES].contiguous()
        width = rows.shape[1] * rows.element_size()
        memory = memoryview((ctypes.c_char * (len(rows) * width)).from_address(rows.data_ptr()))
        samples = [zlib.crc32(memory[at:at + width]) for at in range(0, len(memory), width)]
        if samples[0] not in self.samples:
            self.samples += samples

    def _is_plain(self, tensor):
        return type(tensor) is self.torch.Tensor and tensor.is_cpu and tensor.layout is self.torch.strided and not tensor.requires_grad

    def _add(self, tensor):
        if not self._is_plain(tensor) or tensor.numel() < 2:
            return
        if not tensor.is_contiguous():
            if tensor.numel() > LARGEST:
                return
            tensor = tensor.contiguous()
        size = tensor.numel() * tensor.element_size()
        for begin, end in ((0, min(size, CHUNK)), (max(CHUNK, size - CHUNK), size)):
            if begin < end:
                memory = (ctypes.c_char * (end - begin)).from_address(tensor.data_ptr() + begin)
                self.checksum = zlib.crc32(memory, self.checksum or 0)

    def write(self):
        if self.checksum is not None:
            self.steps_left -= 1
            self.session.fact("inputs", "checksum", self.checksum)
            if self.samples:
                self.session.fact("inputs", "samples", self.samples)

    def step_ended(self):
        self.checksum, self.samples = None, []
