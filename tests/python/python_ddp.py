"""One rank that trains a TorchScript program with Python's own DistributedDataParallel, for comparison.

usage: python_ddp.py PROGRAM OPTIONS-AS-JSON OUT        RANK and WORLD_SIZE in the environment

Writes OUT as JSON: {"tensors": {"STEP/STAGE/NAME": digest}, "construction": {...}, "runtime": {...}, "error": "..."}.
It does what probes/script/trainer.cpp does, in the words of a Python user.
"""
import contextlib
import ctypes
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_128bits.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
xxhash.XXH3_128bits.restype = Xxh128


def digest(tensor):
    tensor = tensor.detach().contiguous()
    value = xxhash.XXH3_128bits(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    return f"{value.high:016x}{value.low:016x}"


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
    loss.backward()


def main():
    program, options, path = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    # As the script probe does: plain interpretation, nothing fused.
    torch._C._jit_set_profiling_mode(False)
    torch._C._set_graph_executor_optimize(False)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method="file://" + options["rendezvous"], rank=rank, world_size=world)
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
    # A failed reduction can leave the group waiting for peers; nothing is left to do here.
    os._exit(0)


if __name__ == "__main__":
    main()
