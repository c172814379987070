# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that train TorchScript programs with Python's own DistributedDataParallel, for comparison.

Reads a job a line, {"programs": [PATH, ...], "options": {...}, "folder": PATH}: forks a rank for each program, since torch is loaded by now, and
answers each job with a line: 0, or 1 if a rank failed. Rank R writes FOLDER/R.json: {"tensors": {"STEP/STAGE/NAME": digest}, "construction": {...}, "runtime": {...}, "error": "..."}.
It does what probes/torchscript/trainer.cpp does, in the words of a Python user.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_128bits.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
xxhash.XXH3_128bits.restype = Xxh128
BLOCK = 8192


def hashed(pointer, size):
    """XXH3-128 as 32 hexadecimal digits."""
    value = xxhash.XXH3_128bits(pointer, size)
    return f"{value.high:016x}{value.low:016x}"


def digest(tensor):
    """As docs/record.md defines it: of more than a block, the hash of the blocks' hashes."""
    tensor = tensor.detach().contiguous()
    size = tensor.numel() * tensor.element_size()
    blocks = [hashed(tensor.data_ptr() + at, min(BLOCK, size - at)) for at in range(0, size, BLOCK)]
    if len(blocks) == 1:
        return blocks[0]
    bits = bytes.fromhex("".join(blocks))
    return hashed(bits, len(bits))


def train(ddp, module, options, out):
    parameters = [p for p in module.parameters() if p.requires_grad]
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=options["lr"])
    rank, world = dist.get_rank(), dist.get_world_size()
    accumulate = options.get("accumulate", 1)
    keeps = options["wrapper"].get("gradient_as_bucket_view", False)
    for step in range(1, options["steps"] + 1):
        optimizer.zero_grad(set_to_none=not keeps)
        for micro in range(1, accumulate + 1):
            with ddp.no_sync() if micro < accumulate else contextlib.nullcontext():
                micro_batch(ddp, module, options, rank, world, (step - 1) * accumulate + micro)
        for name, parameter in named:
            if parameter.grad is not None:
                out["tensors"][f"{step}/1/{name}"] = digest(parameter.grad)
        optimizer.step()
        for name, parameter in named:
            out["tensors"][f"{step}/2/{name}"] = digest(parameter)
        for name, buffer in module.named_buffers():
            out["tensors"][f"{step}/3/{name}"] = digest(buffer)


def micro_batch(ddp, module, options, rank, world, number):
    batch = module.batch(rank, world, number)
    batch = batch if isinstance(batch, tuple) else (batch,)
    taken = len(batch) - (len(module.loss.schema.arguments) - 2)  # without self and the output
    loss = module.loss(ddp(*batch[:taken]), *batch[taken:])
    if options.get("beside"):  # a parameter that the loss uses beside the wrapper's forward
        loss = loss + dict(module.named_parameters())[options["beside"]].sum()
    loss.backward()


def run_rank(rank, world, program, options, path):
    torch.set_num_threads(1)
    # As the script probe does: plain interpretation, nothing fused.
    torch._C._jit_set_profiling_mode(False)
    torch._C._set_graph_executor_optimize(False)
    dist.init_process_group("gloo", init_method=f"file://{path.parent}/rendezvous", rank=rank, world_size=world)
    module = torch.jit.load(program)
    module.train()
    torch.manual_seed(options["seed"] + rank)
    out = {"tensors": {}, "construction": {}, "runtime": {}, "error": None}
    ddp = None
    try:
        ddp = DistributedDataParallel(module, **options["wrapper"])
        out["construction"] = dict(ddp._get_ddp_logging_data())
        train(ddp, module, options, out)
    except RuntimeError as error:
        out["error"] = str(error)
    if ddp is not None:
        out["runtime"] = dict(ddp._get_ddp_logging_data())
    with open(path, "w") as file:
        json.dump(out, file)


def run_job(programs, options, folder):
    ranks = []
    for rank, program in enumerate(programs):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run_rank(rank, len(programs), program, options, pathlib.Path(folder) / f"{rank}.json")
                code = 0
            finally:
                os._exit(code)  # a failed reduction can leave the group waiting for peers
        ranks.append(pid)
    return any([os.waitpid(pid, 0)[1] for pid in ranks])


if __name__ == "__main__":
    for job in sys.stdin:
        print(int(run_job(**json.loads(job))), flush=True)
