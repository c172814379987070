#!/usr/bin/env python3
"""What the examination costs an unmodified Python program: step times with and without ddp-doctor, in turn, on two ranks over gloo.

usage: python_overhead.py --doctor BUILD/bin/ddp-doctor [--python PYTHON] [--programs mlp,deep,gpt] [--repeats N] [--steps N]

    mlp  10 parameter tensors, steps of some milliseconds, and
    deep 200 small ones: what the calls cost
    gpt  about 30 M parameters, steps of about a second: what the bytes cost

Each repeat runs the program plainly, with the default sampling (every one of the first 20 steps, then every 10th), and with every
step examined. The programs measure their steps themselves; figures are of the steps after the 20th, ratios are taken within a repeat.
"""
import argparse
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WARMUP, EVERY = 20, 10  # the defaults of `ddp-doctor run`
RANKS = 2
STEPS = {"mlp": 200, "deep": 400, "gpt": 20}  # after the warm-up
REPEATS = {"mlp": 7, "deep": 3, "gpt": 3}
MARK = "step times "


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


def train(program, steps):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model, data, optimizer = {"mlp": mlp, "deep": deep, "gpt": gpt}[program]()
    ddp = DistributedDataParallel(model)
    optimizer = optimizer(ddp.parameters(), lr=1e-3)
    moments = [time.perf_counter()]
    for _ in range(steps):
        inputs, labels = data()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(inputs), labels).backward()
        optimizer.step()
        moments.append(time.perf_counter())
    if dist.get_rank() == 0:
        times = [round(1e6 * (end - begin), 1) for begin, end in zip(moments, moments[1:])]
        shape = {"tensors": len(list(model.parameters())), "parameters": sum(p.numel() for p in model.parameters())}
        print(MARK + json.dumps(dict(shape, microseconds=times, torch=torch.__version__)), flush=True)
    dist.destroy_process_group()


# ---- running them


def environment():
    return dict(os.environ, OMP_NUM_THREADS="1", USE_LIBUV="0")


def printed(text, command):
    found = re.search(re.escape(MARK) + r"(\{.*\})", text)
    if found is None:
        raise SystemExit(f"{' '.join(command)} printed no step times:\n{text[-3000:]}")
    return json.loads(found.group(1))


def run_plainly(options, rank_arguments):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [options.python, __file__, *rank_arguments]
    ranks = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=dict(environment(), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)),
        )
        for rank in range(RANKS)
    ]
    texts = [rank.communicate()[0] for rank in ranks]
    return printed("".join(texts), command)


def run_examined(options, rank_arguments, every):
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as folder:
        command = [
            options.doctor, "run", "--python", options.python, "--nproc-per-node", str(RANKS), "--every", str(every), "--warmup", str(WARMUP),
            "--fail-on", "error", "--format", "json", "--out", os.path.join(folder, "run"), __file__, "--", *rank_arguments,
        ]
        done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return dict(printed(done.stderr, command), own_ms=json.loads(done.stdout)["runs"][0]["overhead"]["milliseconds_per_step"])


def repeat(options, program, steps):
    """One plain run and both examined ones; medians of single steps, in microseconds."""
    rank_arguments = ["--train", program, "--steps", str(steps)]
    plain = run_plainly(options, rank_arguments)
    sampled = run_examined(options, rank_arguments, EVERY)
    every = run_examined(options, rank_arguments, 1)
    numbered = list(enumerate(sampled["microseconds"], 1))[WARMUP:]
    examined = statistics.median(time for number, time in numbered if number % EVERY == 0)
    between = statistics.median(time for number, time in numbered if number % EVERY != 0)
    return {
        "shape": plain,
        "plain": statistics.median(plain["microseconds"][WARMUP:]),
        "between": between,
        "examined": examined,
        "average": (examined + (EVERY - 1) * between) / EVERY,
        "every": statistics.median(every["microseconds"][WARMUP:]),
        "warmup": sum(sampled["microseconds"][:WARMUP]) - sum(plain["microseconds"][:WARMUP]),
        "warmup_without_first": sum(sampled["microseconds"][1:WARMUP]) - sum(plain["microseconds"][1:WARMUP]),
        "own": 1000 * every["own_ms"],
    }


# ---- the table


def duration(microseconds):
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(microseconds) >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


def spread(values, show):
    return f"{show(statistics.median(values))} ({show(min(values))} to {show(max(values))})"


def table(program, repeats):
    shape = repeats[0]["shape"]
    tensors = shape["tensors"]
    print(f"\n**{program}**: {tensors} parameter tensors, {shape['parameters'] / 1e6:.3g} M parameters, torch {shape['torch']}, "
          f"{len(repeats)} repeats\n")
    print("| | step | ratio to plain, pair by pair |\n|---|---|---|")
    print(f"| plain | {spread([r['plain'] for r in repeats], duration)} | 1 |")
    for key, name in (
        ("between", f"sampled, steps in between ({EVERY - 1} of {EVERY})"),
        ("examined", f"sampled, examined steps (1 of {EVERY})"),
        ("average", "sampled, on average"),
        ("every", "every step examined"),
    ):
        ratios = [r[key] / r["plain"] for r in repeats]
        print(f"| {name} | {spread([r[key] for r in repeats], duration)} | {spread(ratios, lambda ratio: f'{ratio:.3f}')} |")
    print()
    extra = [r["every"] - r["plain"] for r in repeats]
    print(f"- an examined step costs {spread(extra, duration)} more than a plain one, by the report's own account "
          f"{duration(statistics.median(r['own'] for r in repeats))}: {spread([e / tensors for e in extra], duration)} per parameter tensor")
    print(f"- the first {WARMUP} steps, all examined, cost {spread([r['warmup'] for r in repeats], duration)} once, "
          f"of which {duration(statistics.median(r['warmup'] - r['warmup_without_first'] for r in repeats))} in the first")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--doctor")
    parser.add_argument("--python", default=sys.executable, help="has torch [this one]")
    parser.add_argument("--programs", default="mlp,deep,gpt")
    parser.add_argument("--repeats", type=int, help=f"[{REPEATS}]")
    parser.add_argument("--steps", type=int, help=f"after the first {WARMUP} [{STEPS}]")
    options = parser.parse_args()
    if options.train:
        return train(options.train, options.steps)
    if not options.doctor:
        parser.error("--doctor is needed: BUILD/bin/ddp-doctor")
    options.doctor, options.python = (str(pathlib.Path(path).absolute()) for path in (options.doctor, options.python))
    for program in options.programs.split(","):
        if program not in STEPS:
            parser.error(f"--programs: {program} is none of {', '.join(STEPS)}")
        steps = max(EVERY, options.steps or STEPS[program])  # at least one sampled step
        load = os.getloadavg()[0]
        repeats = [repeat(options, program, WARMUP + steps) for _ in range(options.repeats or REPEATS[program])]
        table(program, repeats)
        print(f"- load of the machine before: {load:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
