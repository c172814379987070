#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""ddp-doctor's digest compared with other ways to compare tensors: one table, GiB/s and the share of the read floor, 256 MiB on one core.

usage: digest_python.py --benchmark BUILD/bin/digest_benchmark [--rounds N]      (run by a Python that has torch)

    norm()               torch's L2 norm: magnitudes only, no bits
    norm() and SHA-256   the norm, and hashlib over the tensor's NumPy array
    Megatron-LM          check_param_hashes_across_dp_replicas (megatron/core/utils.py): SHA-1 of the parameter as float32, on the CPU
    TrainCheck           tensor_hash (traincheck/proxy_wrapper/hash.py), which this file computes by its formula: each value times 1e8 as an
                         int64, then along each row h = h * 6364136223846793005 + x + 1, a column at a time in NumPy

Rounds take the C++ benchmark and the Python cases in turn. Rates are by processor time, so that what else runs on the core does not count; what
remains only ever slows a case down, so the figure of a case is its best round, and its share of the floor is best to best; the range is that of
the shares within a round.
"""
import argparse
import array
import hashlib
import json
import os
import statistics
import subprocess
import time

MIB = 256
MULTIPLIER = 6364136223846793005
OURS = "**ddp-doctor: digest, norm, max, non-finite (C++)**"
CPP = (  # what the C++ benchmark calls it, what the table does, which type it is of
    ("floor_xxh3", "XXH3, 128 bits, alone (C++)", "any"),
    ("sha1", "SHA-1 alone (C++, libcrypto)", "any"),
    ("digest_view/float32_contiguous", OURS, "float32"),
    ("digest_view/bfloat16_contiguous", OURS, "bfloat16"),
)


# ---- the Python cases


def bytes_of(torch, tensor):
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()  # NumPy has no bfloat16


def norm(torch, tensor):
    return tensor.norm().item()


def norm_and_hash(torch, tensor):
    return tensor.norm().item(), hashlib.sha256(bytes_of(torch, tensor)).digest()


def megatron(torch, tensor):
    return torch.frombuffer(array.array("B", hashlib.sha1(tensor.data.to("cpu").float().numpy()).digest()), dtype=torch.uint8)


def traincheck(torch, tensor):
    import numpy

    columns = (tensor * 1e8).to(torch.int64).numpy().T
    hashes = numpy.zeros(columns.shape[1], dtype=numpy.int64)
    for column in columns:
        hashes = hashes * MULTIPLIER + column + 1
    return int(hashes[0])


PYTHON = (("norm()", norm), ("norm() and SHA-256 of the NumPy array", norm_and_hash), ("Megatron-LM's check", megatron), ("TrainCheck's hash", traincheck))


def tensors(torch):
    for dtype, rows, columns in ((torch.float32, 8192, 8192), (torch.bfloat16, 8192, 16384)):
        yield str(dtype).removeprefix("torch."), torch.randn(rows, columns, generator=torch.Generator().manual_seed(1)).mul_(0.01).to(dtype)


# ---- running them


def cpp_round(options):
    cases = "|".join(["floor_read", *(name for name, _, _ in CPP)])
    done = subprocess.run([options.benchmark, f"--benchmark_filter=^({cases})", "--benchmark_format=json", "--benchmark_min_time=0.2"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{options.benchmark} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    rates = {case["name"]: case["bytes_per_second"] / 2**30 for case in json.loads(done.stdout)["benchmarks"] if "bytes_per_second" in case}
    result = {("floor", "any"): max(rate for name, rate in rates.items() if name.startswith("floor_read"))}
    result.update({(text, dtype): rates[name] for name, text, dtype in CPP if name in rates})
    return result


def python_round(torch, data):
    result = {}
    for dtype, tensor in data:
        for text, function in PYTHON:
            begin = time.process_time()
            function(torch, tensor)
            result[text, dtype] = MIB / 1024 / (time.process_time() - begin)
    return result


def rate_text(rate):
    return f"{rate:.1f}" if rate >= 1 else f"{rate:.2g}"


def share_text(share):
    return f"{share:.2f}" if share >= 0.1 else f"{share:.2g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", required=True, help="BUILD/bin/digest_benchmark")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    data = list(tensors(torch))
    rounds = []
    for _ in range(options.rounds):
        rounds.append({**cpp_round(options), **python_round(torch, data)})
    best = {case: max(one[case] for one in rounds) for case in rounds[0]}
    floor = ("floor", "any")
    print(f"{MIB} MiB, one core, torch {torch.__version__}, {len(rounds)} rounds; read floor {best[floor]:.1f} GiB/s at best "
          f"({min(one[floor] for one in rounds):.1f} to {best[floor]:.1f}, median {statistics.median(one[floor] for one in rounds):.1f})\n")
    print("| what | type | GiB/s | of the read floor | range within a round |\n|---|---|---|---|---|")
    print(f"| reading alone (C++) | any | {rate_text(best[floor])} | 1 | |")
    order = [(text, dtype) for _, text, dtype in CPP] + [(text, dtype) for dtype, _ in data for text, _ in PYTHON]
    for case in (case for case in order if case in best):
        shares = [one[case] / one[floor] for one in rounds]
        print(f"| {case[0]} | {case[1]} | {rate_text(best[case])} | {share_text(best[case] / best[floor])} | {share_text(min(shares))} to {share_text(max(shares))} |")
    print()
    for dtype in ("float32", "bfloat16"):
        ratios = {text: best[OURS, dtype] / best[text, dtype] for text, _ in PYTHON}
        print(f"- {dtype}, ddp-doctor's digest: " + ", ".join(f"{ratio:.3g} times the rate of {text}" for text, ratio in ratios.items()))


if __name__ == "__main__":
    main()
