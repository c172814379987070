# SPDX-License-Identifier: BSD-3-Clause
"""The pytest plugin: a test that trains out of sync fails with the report, one that trains in sync passes."""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DOCTOR = os.environ["DDP_DOCTOR"]
PLUGIN = HERE.parent.parent / "probes" / "python" / "pytest_ddp_doctor"
TRAIN = HERE.parent / "command_line" / "train.py"
SICK = HERE.parent / "corpus" / "ddp101_wrapper_bypassed.py"

TESTS = f'''
import os, subprocess, sys
import pytest, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def train(rank, folder, bypass):
    dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=2)
    torch.manual_seed(1)
    ddp = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        x = torch.randn(2, 4, generator=torch.Generator().manual_seed(10 * step + rank))
        (ddp.module if bypass else ddp)(x).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()

@pytest.mark.ddp_doctor
@pytest.mark.parametrize("bypass", [False, True])
def test_spawned(tmp_path, bypass):
    torch.multiprocessing.spawn(train, (str(tmp_path), bypass), nprocs=2)

@pytest.mark.ddp_doctor
def test_nothing():
    pass

@pytest.mark.ddp_doctor
def test_that_fails_by_itself():
    assert 1 == 2, "one is not two"

def test_environment_is_as_it_was():
    assert "DDP_DOCTOR_RECORD" not in os.environ

def test_script(ddp_doctor):
    report = ddp_doctor.run({str(TRAIN)!r}, "--steps", "3", "--end", "none", nproc=2)
    assert report["verdict"] == "healthy" and report["world_size"] == 2

def test_sick_script(ddp_doctor):
    ddp_doctor.run({str(SICK)!r}, "bug", nproc=2)
'''


def main():
    try:
        import pytest  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        if os.environ.get("CI") == "true":
            raise
        print(f"skipped: {error}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-pytest-") as folder:
        tests = pathlib.Path(folder) / "test_training.py"
        tests.write_text(TESTS)
        command = [sys.executable, "-m", "pytest", "-p", "pytest_ddp_doctor", "-p", "no:cacheprovider", f"--ddp-doctor={DOCTOR}", "--rootdir", folder, "-rA", str(tests)]
        environment = dict(os.environ, PYTHONPATH=str(PLUGIN), OMP_NUM_THREADS="1", DDP_DOCTOR_PYTHON=sys.executable)
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, text=True)
        printed = done.stdout
    print(printed)
    for line in ("PASSED test_training.py::test_spawned[False]", "FAILED test_training.py::test_spawned[True]", "FAILED test_training.py::test_nothing",
                 "FAILED test_training.py::test_that_fails_by_itself", "PASSED test_training.py::test_environment_is_as_it_was",
                 "PASSED test_training.py::test_script", "FAILED test_training.py::test_sick_script", "DDP101 wrapper-bypassed: error", "no rank was examined", "one is not two"):
        assert line in printed, f"not printed: {line}"
    # Each failure shows the brief report: the finding with its fix, and the verdict.
    for test in ("test_spawned[True]", "test_sick_script"):
        failure = printed.split(f"_ {test} _")[1].split("\n___")[0].split("\n===")[0]
        assert failure.count("DDP101 wrapper-bypassed: error") == 1, failure
        assert "Verdict: sick: DDP101" in failure, failure
        assert len(failure.splitlines()) <= 45, failure


if __name__ == "__main__":
    main()
