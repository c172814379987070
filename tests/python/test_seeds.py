# SPDX-License-Identifier: BSD-3-Clause
"""The reports that ddp-doctor was made for, as programs: what it says of each is what really happened there.

The programs and the facts about them: tests/seeds/README.md. Those of transformers' Trainer are started by torchrun, as their report
has it; the others by ddp-doctor itself, because Debian's torch 1.13 has a torchrun that fails on Python 3.11.
"""
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import sqlite3
import struct
import subprocess
import sys
import tempfile
import unittest

from test_programs import skip

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = HERE.parent / "seeds"
DOCTOR = os.environ["DDP_DOCTOR"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", USE_LIBUV="0", PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1")
DEADLINE = 150


def norm_of(content, position, tensors):
    """The L2 norm of one tensor, from a row of digests (docs/record.md)."""
    return struct.unpack_from("=d", content, 16 * tensors + 8 * position)[0]


UNFINISHED = "Expected to have finished reduction in the prior iteration"


class Examined:
    """`ddp-doctor run` or compare: `code`, `report` (JSON), `text`, `messages` (stderr, with what the program printed), `folder`."""

    def __init__(self, folder, verb, *arguments):
        self.folder = pathlib.Path(folder)
        command = [DOCTOR, verb, "--out", str(self.folder / "run"), "--format", "json", "--report", str(self.folder / "report.txt"), *arguments]
        done = subprocess.run(command, cwd=SEEDS, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=DEADLINE)
        self.code, self.messages = done.returncode, done.stderr
        if self.code not in (0, 1):
            raise AssertionError(f"{' '.join(command)}\nended with {self.code}:\n{done.stderr[-4000:]}")
        self.report = json.loads(done.stdout)
        self.text = (self.folder / "report.txt").read_text()

    @property
    def run(self):
        return self.report["runs"][0]

    @property
    def steps(self):
        return self.run["steps_table"]

    def rules(self, *severities):
        return [finding["rule"] for finding in self.report["findings"] if not severities or finding["severity"] in severities]


class Seeds(unittest.TestCase):
    @contextlib.contextmanager
    def examine(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-seeds-") as folder:
            yield Examined(folder, "run", *arguments)

    @contextlib.contextmanager
    def compare(self, *programs):
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-seeds-") as folder:
            yield Examined(folder, "compare", "--python", sys.executable, *programs)

    def examine_ranks(self, program, *arguments):
        return self.examine("--python", sys.executable, "--nproc-per-node", "2", program, "--", *arguments)

    def assert_healthy(self, run):
        self.assertEqual((run.code, run.report["verdict"]), (0, "healthy"), run.text)
        self.assertEqual(run.rules("error", "warning"), [])
        self.assertTrue(run.run["exit"]["completed"], run.run["outcome"])
        for step in run.steps:
            self.assertTrue(step["synced"], step)
            self.assertEqual((step["drift"], step["weights_differ"]), (0, False), step)


# ---- an orphan layer under transformers' Trainer

def torchrun():
    """The command, or why there is none."""
    beside = pathlib.Path(sys.executable).with_name("torchrun")
    command = [str(beside)] if beside.exists() else [sys.executable, "-m", "torch.distributed.run"]
    tried = subprocess.run(command + ["--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--no_python", "true"],
                           env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE)
    if tried.returncode != 0:
        last = (tried.stdout.strip().splitlines() or ["no message"])[-1]
        skip(f"the torchrun of {sys.executable} does not work: {last}")
    return command


class OrphanUnderTrainer(Seeds):
    @classmethod
    def setUpClass(cls):
        missing = [name for name in ("transformers", "accelerate") if importlib.util.find_spec(name) is None]
        if missing:
            skip(f"{sys.executable} has no {' and no '.join(missing)}")
        cls.launch = torchrun() + ["--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0"]

    def examine_trainer(self, variant):
        return self.examine("--", *self.launch, "trainer_orphan.py", variant)

    def assert_names_the_orphan(self, finding):
        self.assertEqual([(p["name"], p["index"]) for p in finding["parameters"]], [("orphan.weight", 0), ("orphan.bias", 1)])
        self.assertEqual((finding["ranks"], finding["first_step"]), ([0, 1], 1))
        where = finding["where"]
        self.assertEqual(where["file"], "trainer_orphan.py")
        self.assertIn(".train()", (SEEDS / "trainer_orphan.py").read_text().splitlines()[where["line"] - 1])
        self.assertRegex(" ".join(where["via"]), r"^transformers/trainer\.py:\d+ accelerate/accelerator\.py:\d+$")

    def test_default_is_sick_of_unused_parameters_before_pytorch_says_so(self):
        with self.examine_trainer("default") as run:
            self.assertEqual(run.code, 1, run.text)
            self.assertEqual(run.rules(), ["DDP201"])
            finding = run.report["findings"][0]
            self.assertEqual((finding["severity"], finding["certainty"]), ("error", "certain"))
            self.assert_names_the_orphan(finding)
            self.assertEqual([c["rule"] for c in finding["consequences"]], ["DDP504"])
            self.assertRegex(run.run["outcome"], rf"^raised in step 2 \(forward\): RuntimeError: {UNFINISHED}")
            self.assertEqual([step["unused"] for step in run.steps], [[[0, 1], [0, 1]]])

    def test_find_unused_cures_it(self):
        with self.examine_trainer("find_unused") as run:
            self.assert_healthy(run)
            self.assertEqual(run.run["steps"], 3)
            self.assertEqual(run.run["ddp"]["construction"]["find_unused_parameters"], 1)

    def test_one_comparison_shows_what_fails_and_what_trains(self):
        with self.compare("trainer_orphan.py default", "@ddp-find-unused,ddp-static-graph") as run:
            self.assertEqual(run.code, 1, run.text)
            self.assertEqual([(r["label"], r["verdict"]) for r in run.report["runs"]],
                             [("as-is", "sick"), ("ddp-find-unused", "healthy"), ("ddp-static-graph", "healthy")])
            self.assertRegex(run.report["runs"][0]["outcome"], rf"^raised in step 2 \(forward\): RuntimeError: {UNFINISHED}")
            self.assertIn("static_graph=True instead of False", " ".join(run.report["runs"][2]["changes"]))

    def test_static_graph_cures_it(self):
        with self.examine_trainer("static_graph") as run:
            self.assert_healthy(run)
            self.assertEqual(run.run["steps"], 3)
            self.assertEqual(run.run["ddp"]["construction"]["static_graph"], 1)


# ---- the loss computed on the module inside the wrapper

PRINTED = re.compile(r"^\[rank 0\] +(\d+) \| (\[.*\]) \| (yes|no) \| (\S+)$", re.MULTILINE)
ROWS = re.compile(r"^ *(\d+)(?:\.\.(\d+))? \| +(\S.*?) \| +(yes|no) \| +(\S+)$", re.MULTILINE)
FIGURE = re.compile(r"[0-9.]+")


class BypassedWrapper(Seeds):
    def assert_shows_what_the_program_printed(self, run, steps):
        """Norms, whether they agree, and drift: each digit that the program printed from its own collectives."""
        printed = [(norms, synced, drift) for _, norms, synced, drift in PRINTED.findall(run.messages)]
        self.assertEqual(len(printed), steps, run.messages)
        in_json = [
            (f"[{', '.join(format(norm, '.5f') for norm in step['gradient_norm'])}]", "yes" if step["synced"] else "no",
             format(step["drift"], ".3e"))
            for step in run.steps
        ]
        self.assertEqual(in_json, printed)
        shown = 0
        for first, last, norms, synced, drift in ROWS.findall(run.text):
            of_row = printed[int(first) - 1:int(last or first)]
            self.assertEqual([(synced, format(float(drift), ".3e"))] * len(of_row), [(s, d) for _, s, d in of_row], run.text)
            figures = [figure for step_norms, _, _ in of_row for figure in FIGURE.findall(step_norms)]
            if ".." in norms:
                low, high = norms.split(" .. ")
                self.assertEqual((float(low), float(high)), (min(map(float, figures)), max(map(float, figures))), run.text)
            else:  # one figure where it is equal on every rank
                self.assertIn(FIGURE.findall(norms), (figures, figures[:1] if len(set(figures)) == 1 else figures), run.text)
            shown += len(of_row)
        self.assertEqual(shown, steps, run.text)

    def test_bypassed_is_named_and_shown_in_the_programs_own_figures(self):
        with self.examine_ranks("bypassed_wrapper.py", "bypassed") as run:
            self.assertEqual(run.code, 1, run.text)
            self.assertEqual(run.rules(), ["DDP101"])
            finding = run.report["findings"][0]
            self.assertEqual((finding["severity"], finding["certainty"], finding["ranks"], finding["first_step"]), ("error", "certain", [0, 1], 1))
            line = (SEEDS / "bypassed_wrapper.py").read_text().splitlines()[finding["where"]["line"] - 1]
            self.assertIn("model(shard)", line)
            self.assertEqual([c["rule"] for c in finding["consequences"]], ["DDP102", "DDP301"])
            self.assert_shows_what_the_program_printed(run, 5)
            self.assertTrue(all(step["weights_differ"] and not step["synced"] for step in run.steps))

    def test_averaged_by_hand_is_healthy(self):
        with self.examine_ranks("bypassed_wrapper.py", "averaged") as run:
            self.assert_healthy(run)
            self.assertEqual(run.rules(), [])
            self.assert_shows_what_the_program_printed(run, 5)

    def test_one_comparison_shows_both_as_published(self):
        with self.compare("bypassed_wrapper.py bypassed", "bypassed_wrapper.py averaged") as run:
            self.assertEqual(run.code, 1, run.text)
            bypassed, averaged = run.report["runs"]
            self.assertEqual([[step["synced"] for step in r["steps_table"]] for r in (bypassed, averaged)], [[False] * 5, [True] * 5])
            self.assertEqual([step["drift"] for step in averaged["steps_table"]], [0] * 5)
            self.assertTrue(all(step["drift"] > 0 for step in bypassed["steps_table"]))
            self.assertEqual(run.report["equalities"][0]["parting"]["step"], 1)
            # The cure on the wrapper's side, without a change to the program.
        with self.compare("bypassed_wrapper.py bypassed", "@ddp") as run:
            self.assertEqual([r["verdict"] for r in run.report["runs"]], ["sick", "healthy"], run.text)

    def test_both_in_one_process_as_published(self):
        with self.examine_ranks("bypassed_wrapper.py", "both") as run:
            self.assertEqual(run.code, 1, run.text)
            self.assertEqual(run.rules(), ["DDP101"])
            self.assert_shows_what_the_program_printed(run, 10)
            self.assertEqual([step["synced"] for step in run.steps], [False] * 5 + [True] * 5)


# ---- find_unused_parameters, as an article explains it

class FindUnusedParameters(Seeds):
    def gradient_norms(self, run, stage, name):
        """Of step 1, by rank; None where there was no gradient."""
        norms = []
        for rank in (0, 1):
            with contextlib.closing(sqlite3.connect(run.folder / "run" / "00-as-is" / f"rank-{rank:05}.sqlite")) as record:
                rows = record.execute(
                    "SELECT bytes, position, (SELECT COUNT(*) FROM tensor_list WHERE list = seen.list) FROM seen JOIN content ON content.id = content"
                    " JOIN tensor_list USING (list) JOIN tensor ON tensor.id = tensor WHERE step = 1 AND what = 0 AND stage = ? AND name = ?", (stage, name))
                found = rows.fetchone()
                norms.append(norm_of(*found) if found else None)
        return norms

    def assert_rank_dependent(self, run):
        self.assertEqual(run.code, 1, run.text)
        self.assertEqual(run.rules(), ["DDP202"])
        finding = run.report["findings"][0]
        self.assertEqual((finding["severity"], finding["certainty"], finding["ranks"], finding["first_step"]), ("error", "certain", [0, 1], 1))
        self.assertEqual([(p["name"], p["index"]) for p in finding["parameters"]],
                         [("linear2.weight", 2), ("linear2.bias", 3), ("linear3.weight", 4), ("linear3.bias", 5)])
        self.assertEqual(run.steps[0]["unused"], [[2, 3], [4, 5]])
        self.assertTrue(run.steps[0]["weights_differ"])
        self.assertFalse(run.steps[0]["synced"])

    def test_one_step_of_a_branch_per_rank_ends_well_and_has_synchronized_nothing(self):
        with self.examine_ranks("conditional.py", "default", "1") as run:
            self.assert_rank_dependent(run)
            self.assertTrue(run.run["exit"]["completed"], run.run["outcome"])
            # Not even the layer that both ranks used: what the optimizer got is the local gradient.
            for name in ("linear1.weight", "linear1.bias"):
                local, applied = self.gradient_norms(run, 0, name), self.gradient_norms(run, 1, name)
                self.assertEqual(local, applied)
            self.assertEqual(self.gradient_norms(run, 1, "linear2.weight")[0], None)

    def test_a_second_step_of_a_branch_per_rank_raises(self):
        with self.examine_ranks("conditional.py", "default", "4") as run:
            self.assert_rank_dependent(run)
            self.assertRegex(run.run["outcome"], rf"^raised in step 2 \(forward\): RuntimeError: {UNFINISHED}")
            self.assertEqual(len(run.steps), 1)

    def test_find_unused_gives_both_branches_to_both_ranks(self):
        for steps in (1, 4):
            with self.subTest(steps=steps), self.examine_ranks("conditional.py", "find_unused", str(steps)) as run:
                self.assert_healthy(run)
                self.assertEqual(run.rules(), [])
                self.assertEqual([step["unused"] for step in run.steps], [[[2, 3], [4, 5]]] * steps)
                # The rank that did not run the branch has half of the other's gradient, and so has the other.
                for name, runs in (("linear2.weight", 1), ("linear3.weight", 0)):
                    local, applied = self.gradient_norms(run, 0, name), self.gradient_norms(run, 1, name)
                    self.assertEqual(applied, [local[runs] / 2] * 2)

    def test_find_unused_without_unused_parameters_is_advised_against(self):
        for steps in (1, 4):
            with self.subTest(steps=steps), self.examine_ranks("multi_forward.py", "find_unused", str(steps)) as run:
                self.assert_healthy(run)
                self.assertEqual(run.rules(), ["DDP204"])
                self.assertEqual(run.report["findings"][0]["severity"], "advice")

    def test_layers_in_a_chain_need_no_flag(self):
        with self.examine_ranks("multi_forward.py", "default", "4") as run:
            self.assert_healthy(run)
            self.assertEqual(run.rules(), [])


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: this Python has no torch")
        sys.exit(77)
    unittest.main(verbosity=2)
