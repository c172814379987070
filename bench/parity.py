#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What `ddp-doctor parity` can tell apart, and what it costs.

usage: parity.py --doctor BUILD/bin/ddp-doctor [--python PYTHON] [--parts healthy,planted,cost] [--steps N]

    healthy  programs whose ranks compute what one process does, in float32, float64 and bfloat16 (autocast), on 2 and 4 ranks, and the healthy programs of
             tests/corpus: how much of the allowed difference they use. A comparison is a step of a program
    planted  the gradient of one parameter is multiplied by a factor, on all ranks alike: the smallest factor that is found
    cost     time and disk of parity beside the plain run of as many steps, on a GPT-like program of 30 M parameters, and a factor of 1.01 planted in it
"""
import argparse
import collections
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import python_overhead

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE.parent / "tests/corpus"
DTYPES = ("float32", "float64", "bfloat16")
FACTORS = (1.1, 1.03, 1.01, 1.003, 1.001, 1.0003, 1.0001, 1.00003, 1.00001)
# lib/parity/comparison.cpp: times what the order of the samples does, of the gradient's length, of the length of all gradients
MULTIPLE, FLOOR, LOW_PRECISION_FLOOR, TINY = 20.0, 1e-5, 3e-2, 0.1


# ---- the programs, one rank each


def classifier(torch, body, shape, classes=10):
    return torch.nn.Sequential(body, torch.nn.Flatten(), torch.nn.LazyLinear(classes)), torch.randn(64, *shape), torch.randint(classes, (64,))


def mlp(torch):
    model, _, _ = python_overhead.mlp(hidden=3, width=48)
    return model, torch.randn(64, 48), torch.randint(10, (64,))


def cnn(torch):
    nn = torch.nn
    body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.GELU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU())
    return classifier(torch, body, (3, 12, 12))


def lstm(torch):
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.layers = torch.nn.Embedding(50, 24), torch.nn.LSTM(24, 24, num_layers=2, batch_first=True)

        def forward(self, words):
            return self.layers(self.embedding(words))[0][:, -1]

    body, words = Last(), torch.randint(50, (64, 12))
    return torch.nn.Sequential(body, torch.nn.Linear(24, 10)), words, torch.randint(10, (64,))


def language_model(torch, **sizes):
    model, data, _ = python_overhead.gpt(**sizes)
    pairs = [data() for _ in range(64 // sizes.get("batch", 2))]
    inputs = torch.cat([text for text, _ in pairs])
    return model, inputs, torch.cat([labels.view(len(text), -1) for text, labels in pairs])


PROGRAMS = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "gpt": lambda torch: language_model(torch, vocabulary=128, width=48, depth=2, context=24, batch=4),
    "gpt-30m": lambda torch: language_model(torch),
}
BATCH = {"gpt-30m": 2}


def train(options):
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    model, inputs, labels = PROGRAMS[options.train](torch)
    if options.dtype == "float64":
        model = model.double()
        inputs = inputs.double() if inputs.is_floating_point() else inputs
    model(inputs[:2])  # lazy layers
    if options.factor != 1 and dist.get_world_size() > 1:
        parameters = list(model.parameters())
        parameters[len(parameters) // 2].register_hook(lambda gradient: gradient * options.factor)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    data = TensorDataset(inputs, labels)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH.get(options.train, 4), sampler=sampler)
    steps, epoch = 0, -1
    while steps < options.steps:
        epoch += 1
        sampler.set_epoch(epoch)
        for batch, targets in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bfloat16"):
                loss = torch.nn.functional.cross_entropy(ddp(batch), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == options.steps:
                break
    dist.barrier()
    os._exit(0)  # torch 1.13 may hang as it takes its process group down, 2.15 abort


# ---- running them


def parity(options, program, words, out, ranks=2, steps=5):
    """Verdict, rules found, and figures of one comparison."""
    command = [options.doctor, "parity", "--python", options.python, "--nproc-per-node", str(ranks), "--steps", str(steps), "--format", "json",
               "--fail-on", "never", "--out", str(out), str(program), "--", *words]
    done = subprocess.run(command, env=python_overhead.environment(), capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    report = json.loads(done.stdout)
    figures = out / "parity/figures.json"
    return report["verdict"], [finding["rule"] for finding in report["findings"]], json.loads(figures.read_text()) if figures.exists() else {"steps": []}


def own(options, program, out, dtype="float32", ranks=2, seed=0, factor=1.0, steps=5):
    words = ["--train", program, "--dtype", dtype, "--seed", str(seed), "--factor", repr(factor), "--steps", str(max(8, steps))]
    return parity(options, __file__, words, out, ranks, steps)


def distance(products, size, i, j):
    at = lambda a, b: products[a * size - a * (a - 1) // 2 + b - a]  # noqa: E731, of the upper triangle, row by row
    return math.sqrt(max(0.0, at(i, i) - 2 * at(i, j) + at(j, j)))


def shares(figures):
    """Of each step: how much of the allowed difference its worst parameter uses."""
    floor = LOW_PRECISION_FLOOR if figures.get("low_precision") else FLOOR
    for step in figures["steps"]:
        size = 3 + len(step["alone"]) + (step["padded"] is not None) + step["again"]
        one = size  # the products of vector 1 with itself
        total = math.sqrt(sum(parameter["products"][one] for parameter in step["parameters"]))
        worst = 0.0
        for parameter in step["parameters"]:
            products = parameter["products"]
            allowed = max(MULTIPLE * distance(products, size, 1, 2), floor * math.sqrt(products[one]), floor * TINY * total)
            found = distance(products, size, 0, 1)
            worst = max(worst, found / allowed if allowed else float(found > 0))
        yield worst


class Tally:
    def __init__(self):
        self.shares, self.alarms, self.inconclusive = [], [], 0

    def add(self, name, verdict, rules, figures):
        compared = verdict != "inconclusive" and "impossible" not in figures
        self.shares += shares(figures) if compared else []
        self.inconclusive += not compared
        if any(rule.startswith("DDP7") for rule in rules):
            self.alarms.append(name)


def healthy(options, folder):
    tallies = collections.defaultdict(Tally)
    runs = [(program, dtype, ranks, seed) for dtype in DTYPES for program in ("mlp", "cnn", "lstm", "gpt") for ranks, seed in ((2, 0), (4, 1))]
    for program, dtype, ranks, seed in runs:
        name = f"{program}-{dtype}-{ranks}"
        say(name)
        tallies[dtype].add(name, *own(options, program, folder / name, dtype, ranks, seed, steps=options.steps))
    for file in sorted(CORPUS.glob("*.py")):
        if "\n# command: parity\n" not in file.read_text():
            continue
        say(file.stem)
        try:
            tallies["tests/corpus"].add(file.stem, *parity(options, file, [] if file.stem.startswith("traps_") else ["fixed"], folder / file.stem))
        except SystemExit as failed:  # it needs another torch
            print(f"left out: {file.stem}: {str(failed).splitlines()[-1]}", file=sys.stderr)
    print("\n| | comparisons | false alarms | inconclusive programs | largest share of the allowed difference |\n|---|---|---|---|---|")
    for name, tally in tallies.items():
        print(f"| {name} | {len(tally.shares)} | {', '.join(tally.alarms) or 0} | {tally.inconclusive} | {max(tally.shares, default=0):.3f} |")
    print(f"\n{sum(len(tally.shares) for tally in tallies.values())} healthy comparisons, {sum(len(tally.alarms) for tally in tallies.values())} false alarms")


def planted(options, folder):
    print("\n| | smallest factor found | largest factor missed |\n|---|---|---|")
    for dtype in DTYPES:
        found = None
        for factor in FACTORS:
            say(f"{dtype}, {factor}")
            _, rules, _ = own(options, "gpt", folder / f"{dtype}-{factor}", dtype, factor=factor, steps=3)
            if "DDP703" not in rules:
                break
            found = factor
        print(f"| {dtype} | {found or 'none'} | {factor if found != factor else 'none'} |", flush=True)


def cost(options, folder):
    words = ["--train", "gpt-30m", "--steps", "8"]
    say("gpt-30m, plain")
    begin = time.monotonic()
    subprocess.run([options.python, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone", __file__, *words],
                   env=python_overhead.environment(), check=True, capture_output=True)
    plain = time.monotonic() - begin
    say("gpt-30m, parity")
    begin = time.monotonic()
    verdict, rules, _ = parity(options, __file__, words, folder / "cost", steps=3)
    took = time.monotonic() - begin
    disk = sum(file.stat().st_size for file in (folder / "cost").rglob("*") if file.is_file())
    print(f"\nGPT-like, 30 M parameters, 2 ranks, 8 steps: plain {plain:.0f} s, parity {took:.0f} s ({took / plain:.1f} times), {disk / 1e9:.1f} GB on disk: {verdict}")
    say("gpt-30m, planted")
    verdict, rules, _ = parity(options, __file__, [*words, "--factor", "1.01"], folder / "planted-30m", steps=3)
    print(f"a factor of 1.01 in the gradient of one of its parameters: {verdict}: {', '.join(rules)}")


def say(what):
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--factor", type=float, default=1.0, help=argparse.SUPPRESS)
    parser.add_argument("--doctor")
    parser.add_argument("--python", default=sys.executable, help="has torch [this one]")
    parser.add_argument("--parts", default="healthy,planted,cost")
    parser.add_argument("--steps", type=int, default=6, help="compared steps of each healthy program [6]")
    options = parser.parse_args()
    if options.train:
        return train(options)
    if not options.doctor:
        parser.error("--doctor is needed: BUILD/bin/ddp-doctor")
    options.doctor, options.python = (str(pathlib.Path(path).absolute()) for path in (options.doctor, options.python))
    for part in options.parts.split(","):
        if part not in ("healthy", "planted", "cost"):
            parser.error(f"--parts: {part} is none of healthy, planted, cost")
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as folder:
            {"healthy": healthy, "planted": planted, "cost": cost}[part](options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
