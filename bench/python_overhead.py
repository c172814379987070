#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The cost of the examination for an unmodified Python program, compared with other ways to check replicas: step times on two ranks over gloo.

usage: python_overhead.py --doctor BUILD/bin/ddp-doctor [--python PYTHON] [--programs mlp,deep,gpt,fsdp] [--ways ...] [--repeats N] [--steps N]

    mlp  10 parameter tensors, steps of some milliseconds, and
    deep 200 small ones: what the calls cost
    gpt  about 30 M parameters, steps of about a second: what the bytes cost
    fsdp the same with fully_shard on each block and on the whole, instead of DistributedDataParallel; all-gather and sha1 do not apply

    plain       the program alone
    sampled     ddp-doctor's default: every one of the first steps, then every 10th
    every       ddp-doctor, every step examined
    alternate   ddp-doctor, every other step examined: each is put beside the two around it
    detail      TORCH_DISTRIBUTED_DEBUG=DETAIL
    all-gather  what people write by hand, done the fast way: all gradients as one flat tensor before optimizer.step(), all weights after it,
                gathered from all ranks and compared (max |a - b|), every step
    sha1        Megatron-LM's check_param_hashes_across_dp_replicas: SHA-1 of every parameter, gathered and compared, every step

How the figures are made robust. On a shared machine a core may run at half its speed for seconds, so that single medians of two runs may
differ by two though the programs are the same. Other work only ever adds time. So: many short runs rather than a few long ones; in a repeat every
way takes its turn, in the opposite order every other time; of a run counts the lower quartile of its steps, which holds as long as a quarter of
them met a quiet machine; and of a way the lowest of these over the repeats. The ratio to plain is lowest to lowest. Beside it stands the median of
the ratios within a repeat and their range: where they are far from the first, the machine was too busy for these figures. Steps after the warm-up only.
"""
import argparse
import array
import contextlib
import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

WAYS = ("plain", "sampled", "every", "alternate", "detail", "all-gather", "sha1")
CHECKS = ("all-gather", "sha1")  # are part of the loop
EVERY = 10  # the default of `ddp-doctor run`
EVERY_OF = {"sampled": EVERY, "every": 1, "alternate": 2}
FEWEST_ALTERNATE = 80  # steps, half of which are examined
RANKS = 2
WARMUP = {"mlp": 20, "deep": 20, "gpt": 2, "fsdp": 2}  # 20 is the default of `ddp-doctor run`; the first two steps build buckets
STEPS = {"mlp": 100, "deep": 100, "gpt": 10, "fsdp": 10}  # after the warm-up
REPEATS = {"mlp": 6, "deep": 5, "gpt": 2, "fsdp": 2}
MARK = "step times "
ABRUPTLY = "DDP_DOCTOR_BENCH_ABRUPTLY"


# ---- the programs, one rank each


def mlp(hidden=4, width=256, batch=32):
    import torch
    from torch import nn

    layers = [layer for _ in range(hidden) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    return model, lambda: (torch.randn(batch, width), torch.randint(10, (batch,))), torch.optim.SGD


def deep():
    return mlp(hidden=99, width=32, batch=8)


def gpt(vocabulary=16384, width=512, depth=7, context=128, batch=2):
    import torch
    from torch import nn

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.positions = nn.Embedding(context, width)
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
                for _ in range(depth)
            )
            self.norm = nn.LayerNorm(width)
            self.register_buffer("future", torch.full((context, context), float("-inf")).triu(1), persistent=False)

        def forward(self, text):
            x = self.tokens(text) + self.positions.weight
            for block in self.blocks:
                x = block(x, src_mask=self.future)
            return (self.norm(x) @ self.tokens.weight.t()).flatten(0, 1)

    def data():
        text = torch.randint(vocabulary, (batch, context + 1))
        return text[:, :-1], text[:, 1:].flatten()

    return Gpt(), data, torch.optim.AdamW


def gathered_alike(torch, dist, tensors):
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
    everyones = [torch.zeros_like(flat) for _ in range(RANKS)]
    dist.all_gather(everyones, flat)
    return (everyones[0] - everyones[1]).abs().max().item() == 0


def hashes_alike(torch, dist, parameters):
    hashes = torch.stack([
        torch.frombuffer(array.array("B", hashlib.sha1(p.data.to("cpu").float().numpy()).digest()), dtype=torch.uint8) for p in parameters
    ])
    everyones = [torch.zeros_like(hashes) for _ in range(RANKS)]
    dist.all_gather(everyones, hashes)
    return torch.equal(hashes, everyones[0])


def wrapped(program, model):
    """The model to call, by DistributedDataParallel or sharded."""
    if program != "fsdp":
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(program, steps, check):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model, data, optimizer = {"mlp": mlp, "deep": deep, "gpt": gpt, "fsdp": gpt}[program]()
    ddp = wrapped(program, model)
    parameters = list(model.parameters())
    optimizer = optimizer(ddp.parameters(), lr=1e-3)
    moments = [time.perf_counter()]
    for _ in range(steps):
        inputs, labels = data()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(inputs), labels).backward()
        if check == "all-gather":
            assert gathered_alike(torch, dist, [p.grad for p in parameters])
        optimizer.step()
        if check == "all-gather":
            assert gathered_alike(torch, dist, parameters)
        elif check == "sha1":
            assert hashes_alike(torch, dist, parameters)
        moments.append(time.perf_counter())
    if dist.get_rank() == 0:
        times = [round(1e6 * (end - begin), 1) for begin, end in zip(moments, moments[1:])]
        shape = {"tensors": len(parameters), "parameters": sum(p.numel() for p in parameters)}
        print(MARK + json.dumps(dict(shape, microseconds=times, torch=torch.__version__)), flush=True)
    if ABRUPTLY in os.environ:  # torch 1.13 may hang as it takes its process group down, 2.15 abort
        dist.barrier()
        os._exit(0)
    dist.destroy_process_group()


# ---- running them


def environment(**more):
    return dict(os.environ, OMP_NUM_THREADS="1", USE_LIBUV="0", **more)


def printed(text, command):
    found = re.search(re.escape(MARK) + r"(\{.*\})", text)
    if found is None:
        raise SystemExit(f"{' '.join(map(str, command))} printed no step times:\n{text[-3000:]}")
    return json.loads(found.group(1))


class Crashed(Exception):
    """A rank was killed by a signal: torch 2.15 crashes under DETAIL."""


def run_plainly(options, rank_arguments, **more):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [options.python, __file__, *rank_arguments]
    ranks = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                            **{ABRUPTLY: "1"}, **more),
        )
        for rank in range(RANKS)
    ]
    text = "".join(rank.communicate()[0] for rank in ranks)
    killed = [-rank.returncode for rank in ranks if rank.returncode < 0]
    if killed and MARK not in text:
        raise Crashed(signal.Signals(killed[0]).name)
    return printed(text, command)


def run_examined(options, rank_arguments, every, warmup):
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as folder:
        out = pathlib.Path(folder) / "run"
        command = [
            options.doctor, "run", "--python", options.python, "--nproc-per-node", str(RANKS), "--every", str(every), "--warmup", str(warmup),
            "--fail-on", "error", "--format", "json", "--out", str(out), __file__, "--", *rank_arguments,
        ]
        done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        size = sum(file.stat().st_size for file in out.glob("*/rank-00000.sqlite*"))
        with contextlib.closing(sqlite3.connect(next(out.glob("*/rank-00000.sqlite")))) as record:
            kept = record.execute("SELECT coalesce(sum(length(bytes)), 0) FROM kept_values").fetchone()[0]
        return dict(printed(done.stderr, command), bytes=size - kept, kept=kept, own_ms=json.loads(done.stdout)["runs"][0]["overhead"]["milliseconds_per_step"])


def low(times):
    """The lower quartile."""
    return statistics.quantiles(times, n=4, method="inclusive")[0] if len(times) > 1 else times[0]


def repeat(options, program, steps, backwards):
    """Runs each way once; returns lower quartiles of single steps, in microseconds."""
    warmup = WARMUP[program]
    words = ["--train", program, "--steps", str(warmup + steps)]
    runs = {}
    for way in reversed(options.ways) if backwards else options.ways:
        print(f"{time.strftime('%H:%M:%S')} {program}, {way}", file=sys.stderr, flush=True)
        if way in EVERY_OF:
            more = ["--train", program, "--steps", str(warmup + max(FEWEST_ALTERNATE, 2 * steps))]
            runs[way] = run_examined(options, more if way == "alternate" else words, EVERY_OF[way], warmup)
        elif way == "detail":
            try:
                runs[way] = run_plainly(options, words, TORCH_DISTRIBUTED_DEBUG="DETAIL")
            except Crashed as crashed:
                print(f"under TORCH_DISTRIBUTED_DEBUG=DETAIL the program crashes with {crashed}, so it is omitted", file=sys.stderr)
                options.ways = [way for way in options.ways if way != "detail"]
                options.left_out = f"TORCH_DISTRIBUTED_DEBUG=DETAIL: the program dies of {crashed} with this torch"
        else:
            runs[way] = run_plainly(options, words + (["--check", way] if way in CHECKS else []))
    times = {way: low(run["microseconds"][warmup:]) for way, run in runs.items() if way not in ("sampled", "alternate")}
    if "sampled" in runs:
        numbered = list(enumerate(runs["sampled"]["microseconds"], 1))[warmup:]
        times["examined"] = low([time for number, time in numbered if number % EVERY == 0])
        times["between"] = low([time for number, time in numbered if number % EVERY != 0])
        times["sampled"] = (times["examined"] + (EVERY - 1) * times["between"]) / EVERY
    return {"times": times, "runs": runs}


# ---- the table


def against_neighbours(run, warmup):
    """Of each examined step of a run in which every other one is, the ratio to the mean of the steps before and after it."""
    times = run["microseconds"]
    numbers = [n for n in range(warmup + 2, len(times)) if n % 2 == 0]  # step n is times[n - 1]
    return [2 * times[n - 1] / (times[n - 2] + times[n]) for n in numbers]


def duration(microseconds):
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(microseconds) >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


def spread(values, show):
    return f"{show(statistics.median(values))} ({show(min(values))} to {show(max(values))})"


ROWS = (
    ("plain", "plain"),
    ("between", f"ddp-doctor, default sampling: steps in between ({EVERY - 1} of {EVERY})"),
    ("examined", f"ddp-doctor, default sampling: examined steps (1 of {EVERY})"),
    ("sampled", "**ddp-doctor, default sampling, on average**"),
    ("every", "**ddp-doctor, every step**"),
    ("detail", "TORCH_DISTRIBUTED_DEBUG=DETAIL"),
    ("all-gather", "gradients and weights gathered and compared, every step"),
    ("sha1", "Megatron-LM's SHA-1 of the weights, every step"),
)


def records(repeats, warmup, steps):
    """Lines about the size of rank 0's record."""
    runs = repeats[0]["runs"]
    tensors = runs["plain"]["tensors"]
    sizes, looked_at = {}, {}
    for way, name, every in (("sampled", "default sampling", EVERY), ("every", "every step", 1)):
        if way in runs:
            sizes[way] = runs[way]["bytes"]
            looked_at[way] = sum(1 for step in range(1, steps + 1) if step <= warmup or step % every == 0)
            yield (f"- record of a rank, {name}: {sizes[way] / 1e3:.0f} kB for {steps} steps of which {looked_at[way]} were examined: "
                   f"{sizes[way] / steps / tensors:.0f} bytes per step and parameter tensor; and {runs[way]['kept'] / 1e6:.3g} MB of kept values, "
                   "within a budget for the whole run")
    if len(sizes) == 2 and looked_at["every"] > looked_at["sampled"]:
        more = (sizes["every"] - sizes["sampled"]) / (looked_at["every"] - looked_at["sampled"]) / tensors
        yield f"- one more examined step: {more:.0f} bytes per parameter tensor, by the difference of the two"


def table(program, repeats, warmup, steps, left_out):
    shape = repeats[0]["runs"]["plain"]
    tensors = shape["tensors"]
    print(f"\n**{program}**: {tensors} parameter tensors, {shape['parameters'] / 1e6:.3g} M parameters, torch {shape['torch']}, "
          f"{len(repeats)} repeats of {steps} steps\n")
    print("| | step, lowest (and median) of the repeats | ratio to plain, lowest to lowest | within a repeat: median (range) |\n|---|---|---|---|")
    best = {way: min(r["times"][way] for r in repeats) for way in repeats[0]["times"]}
    for way, name in ROWS:
        if way in best:
            times, ratios = [r["times"][way] for r in repeats], [r["times"][way] / r["times"]["plain"] for r in repeats]
            print(f"| {name} | {duration(best[way])} ({duration(statistics.median(times))}) | {best[way] / best['plain']:.3f} "
                  f"| {spread(ratios, lambda ratio: f'{ratio:.3f}') if way != 'plain' else ''} |")
    print()
    plain = [r["times"]["plain"] for r in repeats]
    print(f"- noise: the plain steps of the slowest repeat took {max(plain) / min(plain):.2f} times those of the fastest")
    if "alternate" in repeats[0]["runs"]:
        ratios = [ratio for r in repeats for ratio in against_neighbours(r["runs"]["alternate"], warmup)]
        low_end, middle, high_end = statistics.quantiles(ratios, n=4)
        half = 1.57 * (high_end - low_end) / len(ratios) ** 0.5  # McGill, Tukey, Larsen 1978: 95 % of the median
        print(f"- **an examined step against its neighbours**, in one run with --every 2, so that drift of the machine does not matter: {middle:.3f} "
              f"({middle - half:.3f} to {middle + half:.3f}, {len(ratios)} steps); with default sampling a tenth of that: {1 + (middle - 1) / EVERY:.4f} on average")
    if "every" in best:
        extra = best["every"] - best["plain"]
        own = 1000 * min(r["runs"]["every"]["own_ms"] for r in repeats)
        print(f"- an examined step costs {duration(extra)} more than a plain one, {duration(extra / tensors)} per parameter tensor; by the report's own account "
              f"{duration(own)}, {duration(own / tensors)} per parameter tensor")
        first = [sum(r["runs"]["every"]["microseconds"][:warmup]) - sum(r["runs"]["plain"]["microseconds"][:warmup]) for r in repeats]
        print(f"- the first {warmup} steps, all examined, cost {spread(first, duration)} once")
    for line in records(repeats, warmup, warmup + steps):
        print(line)
    if left_out:
        print(f"- {left_out}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--check", choices=CHECKS, help=argparse.SUPPRESS)
    parser.add_argument("--doctor")
    parser.add_argument("--python", default=sys.executable, help="has torch [this one]")
    parser.add_argument("--programs", default="mlp,deep,gpt,fsdp")
    parser.add_argument("--ways", default=",".join(WAYS), help="[all]")
    parser.add_argument("--repeats", type=int, help=f"[{REPEATS}]")
    parser.add_argument("--steps", type=int, help=f"after the warm-up of {WARMUP} [{STEPS}]")
    options = parser.parse_args()
    if options.train:
        return train(options.train, options.steps, options.check)
    if not options.doctor:
        parser.error("--doctor is needed: BUILD/bin/ddp-doctor")
    options.doctor, options.python = (str(pathlib.Path(path).absolute()) for path in (options.doctor, options.python))
    options.ways, options.left_out = options.ways.split(","), ""
    if "plain" not in options.ways or not set(options.ways) <= set(WAYS):
        parser.error(f"--ways: plain, and of {', '.join(WAYS[1:])} any")
    chosen = options.ways
    for program in options.programs.split(","):
        options.ways = [way for way in chosen if program != "fsdp" or way not in CHECKS]
        if program not in STEPS:
            parser.error(f"--programs: {program} is none of {', '.join(STEPS)}")
        steps = max(EVERY, options.steps or STEPS[program])  # at least one sampled step
        load = os.getloadavg()[0]
        begin = time.monotonic()
        repeats = [repeat(options, program, steps, i % 2 == 1) for i in range(options.repeats or REPEATS[program])]
        table(program, repeats, WARMUP[program], steps, options.left_out)
        print(f"- load of the machine before: {load:.1f}, {os.cpu_count()} cores; all this took {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
