#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The cost of an examination per training step on one GPU: a GPT-like model of 405 M parameters in bfloat16, one rank over NCCL, with default sampling.

usage: gpu_overhead.py --doctor BUILD/bin/ddp-doctor --python PYTHON [--repeats 3] [--steps 60]

The plain run and the examined one take turns; of each the median step after the warm-up counts, and the ratio within a pair. Exit 77: there is no GPU.
"""
import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys

WARMUP = 20
MARK = "step times "


def train(steps):
    import time

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    width, depth, context, vocabulary, batch = 1024, 24, 1024, 50304, 4
    device = torch.device("cuda", 0)
    dist.init_process_group("nccl")
    torch.manual_seed(1)
    embed = nn.Embedding(vocabulary, width)
    blocks = nn.Sequential(*(nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True) for _ in range(depth)))
    model = nn.Sequential(embed, blocks, nn.Linear(width, vocabulary, bias=False)).to(device, torch.bfloat16)
    ddp = DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-4, fused=True)
    text = torch.randint(vocabulary, (batch, context + 1), device=device)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    begin = time.perf_counter()
    for step in range(steps):
        events[step].record()
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(text[:, :-1]).flatten(0, 1).float(), text[:, 1:].flatten()).backward()
        optimizer.step()
    events[steps].record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in zip(events, events[1:])]
    parameters = sum(p.numel() for p in model.parameters())
    print(MARK + json.dumps({"parameters": parameters, "gpu": torch.cuda.get_device_name(), "wall": time.perf_counter() - begin, "ms": times}), flush=True)
    dist.destroy_process_group()


def times_of(command):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    rank = dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, **(rank if "run" not in command[1:2] else {})))
    found = re.search(re.escape(MARK) + r"(\{.*\})", done.stdout + done.stderr)
    if found is None:
        raise SystemExit(f"{' '.join(command)} printed no step times:\n{done.stderr[-3000:]}")
    return json.loads(found.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--doctor")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    if options.train:
        return train(options.train)
    if subprocess.run([options.python, "-c", "import torch; raise SystemExit(not torch.cuda.is_available())"], stderr=subprocess.DEVNULL).returncode:
        print("skipped: no GPU is visible")
        return 77
    steps = str(WARMUP + options.steps)
    plainly = [options.python, __file__, "--train", steps]
    examined = [options.doctor, "run", "--python", options.python, "--nproc-per-node", "1", "--warmup", str(WARMUP), "--fail-on", "never", "--format", "json",
                __file__, "--", "--train", steps]
    pairs = [(times_of(plainly), times_of(examined)) for _ in range(options.repeats)]
    shape = pairs[0][0]
    print(f"{shape['gpu']}, {shape['parameters'] / 1e6:.0f} M parameters, bfloat16, {options.steps} steps after {WARMUP}\n")
    print("| plain, mean step | examined, mean step | ratio |\n|---|---|---|")
    ratios = []
    for plain, seen in pairs:
        a, b = (statistics.fmean(run["ms"][WARMUP:]) for run in (plain, seen))
        ratios.append(b / a)
        print(f"| {a:.1f} ms | {b:.1f} ms | {b / a:.4f} |")
    print(f"\nmedian ratio {statistics.median(ratios):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
