# SPDX-License-Identifier: BSD-3-Clause
"""What enters the wrappers in a step: a checksum, to see whether several ranks are given the same data."""
import ctypes
import zlib

from . import graph
from .passive import passive

MAX_STEPS = 64  # a pattern shows in the first ones
CHUNK = 32 << 10  # bytes read at either end of a tensor
LARGEST = 1 << 20  # elements of a tensor that is copied to be read


class Inputs:
    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.checksum = None  # over the forwards of the current step; None: nothing could be read
        self.steps_left = MAX_STEPS

    @passive
    def seen(self, arguments):
        """The arguments of a wrapper's forward. Only CPU memory is read: a copy from a GPU would make the step wait."""
        if self.steps_left > 0:
            for tensor in graph.tensors_in(arguments, self.torch):
                self._add(tensor)

    def _add(self, tensor):
        plain = type(tensor) is self.torch.Tensor and tensor.is_cpu and tensor.layout is self.torch.strided
        if not plain or tensor.requires_grad or tensor.numel() < 2:
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

    def step_ended(self):
        self.checksum = None
