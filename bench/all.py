#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every figure of docs/performance.md in one command: one Markdown document on standard output, progress on standard error.

usage: all.py --build BUILD --python PYTHON [--quick] [--only digests,start-up,...] [--before LIBEXEC] > figures.md

BUILD is a build folder with all targets; PYTHON has torch, numpy and torchrun. The full run takes about an hour and wants a machine that does nothing
else: load and cores stand at the top, with the rate at which memory can be read. --quick takes a fifth of that, with fewer repeats: enough to see
that every benchmark works. A benchmark that fails is said to have failed, and the others go on; then the exit code is 1.
"""
import argparse
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


class Section:
    def __init__(self, name, title, about, command, quick=(), full=(), targets=(), timeout=3600):
        self.name, self.title, self.about = name, title, about
        self.command, self.quick, self.full, self.targets, self.timeout = command, quick, full, targets, timeout


class Target:
    """A number that the output must contain: the group of the pattern's last match, and the limit that it must stay below or above."""

    def __init__(self, text, pattern, below=None, above=None):
        self.text, self.pattern, self.below, self.above = text, pattern, below, above

    def verdict(self, output):
        found = re.findall(self.pattern, output, re.M)
        if not found:
            return "not measured"
        value = float(found[-1])
        met = value < self.below if self.below is not None else value > self.above
        return f"{value:g}: {'met' if met else '**missed**'}"


def sections(options):
    build, python = options.build.resolve(), options.python
    doctor = ["--doctor", build / "bin/ddp-doctor"]
    script = lambda name: [options.python, HERE / name]  # noqa: E731
    examples = build / "examples"
    ours = r"^\| \*\*ddp-doctor: digest[^|]*\| {} \| [^|]*\| ([\d.e-]+)"
    # An examined step compared with its neighbours: ratios of whole runs cannot resolve one percent (docs/performance.md).
    beside = r"^\*\*{}\*\*(?:(?!^\*\*)[\s\S])*?^- \*\*an examined step against its neighbours\*\*.*{}([\d.]+)"
    return [
        Section("digests", "Digests", "Of 256 MiB on one core, beside other ways to compare tensors.",
                [*script("digest_python.py"), "--benchmark", build / "bin/digest_benchmark"], ["--rounds", "2"], ["--rounds", "7"],
                [Target("float32: at least 0.85 of the read floor", ours.format("float32"), above=0.85),
                 Target("bfloat16: at least 0.85 of the read floor", ours.format("bfloat16"), above=0.85)]),
        Section("python", "An unmodified Python program", "Step times on two ranks over Gloo, beside other ways to check.",
                [*script("python_overhead.py"), *doctor, "--python", python], ["--repeats", "1", "--steps", "20"], [],
                [Target("MLP of 200 tensors, default sampling: at most 1.10", beside.format("deep", "a tenth of that: "), below=1.10),
                 Target("GPT-like of 30 M parameters, default sampling: at most 1.01", beside.format("gpt", "a tenth of that: "), below=1.01),
                 Target("GPT-like, every step: at most 1.05", beside.format("gpt", "does not matter: "), below=1.05),
                 Target("GPT-like under fully_shard, default sampling: at most 1.01", beside.format("fsdp", "a tenth of that: "), below=1.01),
                 Target("GPT-like under fully_shard, every step: at most 1.05", beside.format("fsdp", "does not matter: "), below=1.05)]),
        Section("instructions", "Instructions per step", "What the probe adds, whatever the machine is doing.",
                [*script("instructions.py"), *doctor, "--python", options.valgrind_python, "--cpp", *(["--before", options.before] if options.before else [])],
                ["--quick"], []),
        Section("start-up", "Start", "How soon there is an answer.",
                [*script("start_up.py"), *doctor, "--python", python], ["--runs", "2"], ["--runs", "11"],
                [Target("`explain` under 10 ms", r"`ddp-doctor explain DDP101` \| ([\d.]+) ms", below=10),
                 Target("`run` under 2.0 times `import torch`", r"`run` against `import torch` \| ([\d.]+)", below=2.0)]),
        Section("end-to-end", "One examination against one run by hand", "`run orphan.pt` with three strategies against one plain torchrun.",
                [*script("end_to_end.py"), *doctor, "--examples", examples, "--python", python], ["--runs", "2"], ["--runs", "7"],
                [Target("under 1: three strategies before Python has run one", r"ratio, pair by pair +median +([\d.]+)", below=1.0)]),
        Section("compare", "Five strategies in one call", "Wall time against the training in it.",
                [*script("compare_cost.py"), *doctor], ["--repeats", "1", "--steps", "4"], ["--repeats", "3"],
                [Target("under 1.3 times the training", r"median ratio ([\d.]+)", below=1.3)]),
        Section("timing", "Whether costs may be believed", "The method of `compare` and `run --fix` on runs of which the truth is known.",
                [*script("timing_method.py"), *doctor, "--python", python, "--script", examples / "curriculum.pt"],
                ["--trials", "1", "--script-trials", "3"], ["--trials", "8", "--script-trials", "30"],
                [Target("A/A called measurable in under 10 % of 30 trials (the expectation is 3 %)",
                        r"^\| A/A, \S+ \| 1.00 \| 6 \| 30 \| (\d+) of", below=3)]),
        Section("diagnosis", "The diagnosis", "`report` on made-up records of 8 ranks, 1,000 steps, 300 parameters.",
                [*script("diagnosis.py"), *doctor], ["--steps", "100"], [],
                [Target("under 10 s", r"parameters: ([\d.]+) s", below=10.0)]),
        Section("diagnosis-every", "The diagnosis, every step examined", "The same with `--every 1`.",
                [*script("diagnosis.py"), *doctor, "--every", "1"], ["--steps", "100"], [],
                [Target("under 10 s", r"parameters: ([\d.]+) s", below=10.0)]),
        Section("scale", "A thousand ranks", "`report` on made-up records, 6 GB of them, and how its time grows with ranks, steps and parameters.",
                [*script("diagnosis.py"), *doctor, "--steps", "500", "--parameters", "400", "--fit"], ["--ranks", "16"], ["--ranks", "1024"],
                [Target("under 60 s", r"\A.*parameters: ([\d.]+) s", below=60.0),
                 Target("under 2 GB", r"\A.* s, (\d+) MB", below=2000.0)]),
        Section("mesh", "A mesh of a thousand ranks", "The same on a mesh of 128 x 8, two of three parameters sharded over its second dimension.",
                [*script("diagnosis.py"), *doctor, "--steps", "500", "--parameters", "400"], ["--ranks", "16", "--mesh", "4x4"],
                ["--ranks", "1024", "--mesh", "128x8"],
                [Target("under 60 s", r"\A.*parameters: ([\d.]+) s", below=60.0),
                 Target("under 2 GB", r"\A.* s, (\d+) MB", below=2000.0)]),
        Section("growth", "A day of training", "The record of 432,000 steps of 400 parameters: old healthy steps are thinned out.",
                [*script("record_growth.py"), *doctor], ["--steps", "20000"], [],
                [Target("under 1 GB", r"After it was closed: ([\d.]+) MB", below=1000.0)]),
        Section("gate", "The gate", "`check` against the plain run of the same program under torchrun.",
                [*script("gate.py"), *doctor, "--python", python, HERE.parent / "tests/programs/plain_loop.py"], ["--runs", "1"], ["--runs", "5"],
                [Target("under 1.5 times the plain run", r"ratio +([\d.]+) \(", below=1.5)]),
        Section("examination", "An Examination in C++ that nobody asked for", "A step of a C++ program.",
                [build / "bin/examination_benchmark", "--benchmark_enable_random_interleaving=true"],
                ["--benchmark_repetitions=2", "--benchmark_min_time=0.1"],
                ["--benchmark_repetitions=9", "--benchmark_report_aggregates_only=true"]),
        Section("events", "What an event costs in C++", "A phase in the progress map, a call in the call log.",
                [build / "bin/events_benchmark"], ["--benchmark_min_time=0.1"], ["--benchmark_repetitions=5", "--benchmark_report_aggregates_only=true"]),
        Section("events-python", "What an event costs in Python", "The same through ctypes.", [*script("events_python.py")]),
    ]


def model_of_processor():
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M) if pathlib.Path("/proc/cpuinfo").exists() else None
    return found.group(1) if found else platform.machine()


def ceilings(options):
    """Read bandwidth of one core, by the digest benchmark's floor; cores and load."""
    load = os.getloadavg()
    done = subprocess.run([options.build / "bin/digest_benchmark", "--benchmark_filter=^floor", "--benchmark_format=csv", "--benchmark_repetitions=3"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    rates = {}
    for name, rate in re.findall(r'^"(floor_read|floor_xxh3)(?:/\d+)?",\d+,[^,]*,[^,]*,\w+,([\d.e+]+)', done.stdout, re.M):  # no means, no deviations
        rates.setdefault(name, []).append(float(rate) / 2**30)
    print("| ceiling | |\n|---|---|")
    print(f"| processor | {model_of_processor()}, {os.cpu_count()} cores |")
    print(f"| load before (1, 5, 15 minutes) | {load[0]:.1f}, {load[1]:.1f}, {load[2]:.1f}{': **busy, figures below are provisional**' if load[0] > 0.3 * os.cpu_count() else ''} |")
    for name, title in (("floor_read", "memory read by one core"), ("floor_xxh3", "XXH3 by one core")):
        if name in rates:
            print(f"| {title} | {max(rates[name]):.1f} GiB/s |")
    print(flush=True)


def shown(command, options):
    """The command as a user would type it."""
    words = [str(word) for word in command]
    for path, name in ((options.build.resolve(), "$BUILD"), (HERE.parent, "."), (options.python, "$PYTHON"), (options.valgrind_python, "$PYTHON_1_13")):
        words = [word if not word.startswith(str(path)) else name + word[len(str(path)):] for word in words]
    return " ".join(words)


def run(section, options):
    command = [*section.command, *(section.quick if options.quick else section.full)]
    print(f"## {section.title}\n\n{section.about}\n\n```sh\n{shown(command, options)}\n```\n", flush=True)
    begin = time.monotonic()
    print(f"{time.strftime('%H:%M:%S')} {section.name} ...", file=sys.stderr, flush=True)
    environment = dict(os.environ, DDP_DOCTOR=str(options.build.resolve() / "bin/ddp-doctor"))
    if section.name != "events-python":
        environment.pop("DDP_DOCTOR")
    try:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, timeout=section.timeout, env=environment)
        output, failure = done.stdout, "" if done.returncode == 0 else f"it ended with {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        output, failure = "", str(error)
    print(output.strip() if output.lstrip().startswith(("|", "*")) or "\n|---" in output else f"```\n{output.strip()}\n```")
    if failure:
        print(f"\n**Failed**: {failure}.")
    print(f"\nTook {time.monotonic() - begin:.0f} s, load {os.getloadavg()[0]:.1f} at the end.\n", flush=True)
    return [(section.title, target.text, target.verdict(output)) for target in section.targets], bool(failure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--python", required=True, help="has torch, numpy and torchrun")
    parser.add_argument("--valgrind-python", help="for the instruction counts; torch 1.13 starts soonest under valgrind [--python]")
    parser.add_argument("--before", type=pathlib.Path, help="libexec/ddp-doctor of an older build, for the instruction counts")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="names of sections")
    options = parser.parse_args()
    options.python = os.path.abspath(options.python)
    options.valgrind_python = os.path.abspath(options.valgrind_python or options.python)
    chosen = sections(options)
    if options.only:
        unknown = set(options.only.split(",")) - {section.name for section in chosen}
        if unknown:
            parser.error(f"--only: {', '.join(sorted(unknown))}: none of {', '.join(section.name for section in chosen)}")
        chosen = [section for section in chosen if section.name in options.only.split(",")]
    version = subprocess.run([options.build / "bin/ddp-doctor", "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    print(f"# Figures\n\n{version}, {commit or 'no commit'}, {time.strftime('%Y-%m-%d')}{', `--quick`: too few repeats to rely on' if options.quick else ''}\n")
    ceilings(options)
    verdicts, failed = [], []
    for section in chosen:
        targets, failure = run(section, options)
        verdicts += targets
        failed += [section.title] if failure else []
    print("## Targets\n\n| benchmark | target | measured |\n|---|---|---|")
    for verdict in verdicts:
        print("| " + " | ".join(verdict) + " |")
    if failed:
        print(f"\nFailed: {', '.join(failed)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
