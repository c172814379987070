# SPDX-License-Identifier: BSD-3-Clause
"""What tensors hold: their memory is given to the record, on the GPU where it is there."""
import itertools

from . import native, placements
from .entry import version_of

DTYPES = {"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool"}


class Values:
    def __init__(self, torch, session):
        self.session, self.torch = session, torch
        self.on_device = torch.version.cuda is not None  # GPU tensors are examined on the GPU

    def observe(self, stage, what, items, of=native.PAIRS, step=-1):
        """Examines PAIRS of (entry, tensor), or the TENSORS or GRADIENTS of entries, all contiguous ones in one call. `step`: at whose end these
        are the weights."""
        self.session.tensors.describe()
        left = self.session.record.look(stage, what, items, of, step)
        if left:
            self._observe_others(stage, what, left)
        for entry, tensor in left:
            if stage == native.GRADIENT:
                self.session.tensors.note_gradient(entry, tensor)
            if step >= 0:
                entry.seen_in, entry.seen_version, entry.seen_address = step, *version_of(tensor)

    def observe_before_step(self, entries):
        """Samples of weights, and all of those that something other than an optimizer wrote, or that are newer than step 0."""
        self.session.tensors.describe()
        left = self.session.record.look_before_step(entries)
        if not left:
            return
        self._observe_others(native.WEIGHT_BEFORE, native.SAMPLE, left)
        last = self.session.number - 1
        written = [(e, p) for e, p in left if not e.began or e.seen_in == last and (e.seen_version, e.seen_address) != version_of(p)]
        if written:
            self._observe_others(native.WEIGHT_BEFORE, native.DIGEST, written)
        for entry, _ in written:
            entry.began = True

    def _observe_others(self, stage, what, pairs):
        ids, pointers, devices = [], [], {}
        strided = self.torch.strided
        for entry, tensor in pairs:
            if entry.placement is not None:
                tensor = placements.local(tensor)
            if not _is_plain(tensor, entry, strided):
                if self.on_device and tensor.is_cuda and tensor.dtype is entry.dtype and tensor.numel() == entry.numel:
                    devices.setdefault(tensor.device.index, []).append((entry, tensor))
                else:
                    self._observe_odd(stage, what, entry, tensor)
                continue
            pointer = tensor.data_ptr()
            if pointer or not entry.numel:  # 0: its storage was freed
                ids.append(entry.id)
                pointers.append(pointer)
        if ids:
            self.session.record.observe(stage, what, ids, pointers)
        for device, there in devices.items():
            self._observe_on_device(stage, what, device, there)

    def _observe_on_device(self, stage, what, device, pairs):
        if self._capturing():
            return
        strided, own = self.torch.strided, (self.torch.Tensor, self.torch.nn.Parameter)
        # Copies made here are freed in stream order, after they were examined.
        dense = [
            tensor if type(tensor) in own and tensor.layout is strided and tensor.is_contiguous() else _dense(tensor, strided)
            for _, tensor in pairs]
        pointers = [tensor.data_ptr() for tensor in dense]
        if not all(pointers):  # 0: its storage was freed, or it is empty
            there = [pointer != 0 or entry.numel == 0 for pointer, (entry, _) in zip(pointers, pairs)]
            pairs, pointers = list(itertools.compress(pairs, there)), list(itertools.compress(pointers, there))
        stream = self.torch.cuda.current_stream(device).cuda_stream
        try:
            self.session.record.observe_on_device(stage, what, device, stream, [entry.id for entry, _ in pairs], pointers)
        except native.RecordError as error:
            self._give_up_devices(error)
            for entry, tensor in pairs:
                self._observe_odd(stage, what, entry, tensor)

    def loss(self, tensor):
        """The value of the loss; None if the GPU writes it to the record."""
        tensor = placements.local(tensor.detach())
        name = str(tensor.dtype)[len("torch."):]
        if tensor.is_cuda and self._capturing():
            return None
        if self.on_device and tensor.is_cuda and name in DTYPES and tensor.data_ptr():
            device = tensor.device.index
            try:
                self.session.record.loss_on_device(device, self.torch.cuda.current_stream(device).cuda_stream, tensor.data_ptr(), name)
                return None
            except native.RecordError as error:
                self._give_up_devices(error)
        return float(tensor)

    def capturing(self, tensors):
        return any(getattr(tensor, "is_cuda", False) for tensor in tensors) and self._capturing()

    def _capturing(self):
        """Whether a CUDA graph is being captured: nothing of the probe may become part of it."""
        if not self.torch.cuda.is_current_stream_capturing():
            return False
        self.session.warn("steps that are captured into a CUDA graph, and steps that replay it, are not examined")
        return True

    def _give_up_devices(self, error):
        self.on_device = False
        self.session.warn(f"tensors on the GPU are copied to the CPU to be examined, so examined steps take longer: {error}")

    def observe_buffers(self):
        self.observe(
            native.BUFFER, native.DIGEST | native.SAMPLE, [(e, e.live()) for e in self.session.tensors.entries if e.kind == "buffer" and e.live() is not None])

    def _observe_odd(self, stage, what, entry, tensor):
        if tensor.is_cuda and self._capturing():
            return
        with self.torch.no_grad():
            local = tensor.detach()
            if local.layout is not self.torch.strided:
                local = local.to_dense()
            if local.device.type != "cpu":
                local = local.cpu()
            name = str(local.dtype)[len("torch."):]
            if name not in DTYPES:
                self.session.warn(f"not examined: {entry.name}: its dtype is {name}")
                return
            if local.data_ptr() or not local.numel():
                self.session.record.observe_view(stage, what, entry.id, local.data_ptr(), name, local.shape, local.stride())


def _is_plain(tensor, entry, strided):
    """Contiguous CPU memory that matches the entry's description."""
    return (
        tensor.dtype is entry.dtype and tensor.is_cpu and tensor.layout is strided and tensor.numel() == entry.numel
        and tensor.is_contiguous())


def _dense(tensor, strided):
    tensor = tensor.detach()
    return (tensor if tensor.layout is strided else tensor.to_dense()).contiguous()
