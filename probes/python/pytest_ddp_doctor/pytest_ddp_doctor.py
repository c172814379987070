# SPDX-License-Identifier: BSD-3-Clause
"""Tests of data-parallel training that fail with ddp-doctor's report where the ranks do not really synchronize.

    @pytest.mark.ddp_doctor
    def test_training_synchronizes():
        torch.multiprocessing.spawn(train, nprocs=2)       # or subprocess.run(["torchrun", ...])

    def test_script(ddp_doctor):
        report = ddp_doctor.run("train.py", "--epochs", "1", nproc=2)
        assert report["runs"][0]["steps"] == 8

The marker examines every rank that the test starts as a new Python process, or as a C++ program with an Examination. A process that the
test forks has torch already, and is not seen. A test in which nothing could be compared fails, too: it proves nothing.
Options of both: fail_on="error" | "warning" (default) | "advice"; of the marker, anything else is refused.
"""
import contextlib
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sysconfig
import tempfile

import pytest

SICK, INCONCLUSIVE = 1, 3
MAX_LINES = 40  # of a report that a failed test shows
PROBE = pathlib.Path("libexec") / "ddp-doctor" / "python"


def pytest_addoption(parser):
    parser.addoption("--ddp-doctor", metavar="PATH", help="the program ddp-doctor [the first on PATH, or the one beside this Python]")


def pytest_configure(config):
    config.addinivalue_line("markers", "ddp_doctor(fail_on='warning'): examine the ranks that the test starts; fail where they are out of sync")


@pytest.fixture
def ddp_doctor(request):
    """Runs training programs under ddp-doctor."""
    return Doctor(request.config)


class Doctor:
    def __init__(self, config):
        given = config.getoption("--ddp-doctor") or shutil.which("ddp-doctor") or shutil.which("ddp-doctor", path=sysconfig.get_path("scripts"))
        if not given or not os.access(given, os.X_OK):
            raise pytest.UsageError(f"{given or 'ddp-doctor'}: not found; name it with --ddp-doctor PATH, or put it on PATH")
        self.program = pathlib.Path(given).resolve()

    def run(self, program, *arguments, nproc=2, fail_on="warning", timeout=600):
        """Examines `program` (train.py, or an executable with an Examination) and returns the JSON report. Fails the test by its findings."""
        command = [str(program)] if str(program).endswith(".py") else []
        words = arguments if command else (program, *arguments)
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-") as folder:
            records = os.path.join(folder, "run")
            self._call(["run", *command, "--nproc-per-node", str(nproc), "--out", records, "-q", "--", *map(str, words)], timeout,
                       accept=(SICK, INCONCLUSIVE))
            self.check(records, fail_on)
            return json.loads(self._call(["report", records, "--format", "json", "--fail-on", "never"], timeout).stdout)

    def check(self, folder, fail_on="warning"):
        """Fails the test by the findings of the records in `folder`, and shows them with the verdict."""
        self._call(["report", str(folder), "--brief", "--fail-on", fail_on], 600)

    @contextlib.contextmanager
    def examining(self):
        """Lets every rank that is started meanwhile leave its record in the folder that this yields."""
        probe = self.program.parent.parent / PROBE
        before = {name: os.environ.get(name) for name in ("DDP_DOCTOR_RECORD", "PYTHONPATH")}
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-") as folder:
            os.environ["DDP_DOCTOR_RECORD"] = folder
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(probe), before["PYTHONPATH"]]))
            try:
                yield folder
            finally:
                for name, value in before.items():
                    if value is None:
                        os.environ.pop(name, None)
                    else:
                        os.environ[name] = value

    def _call(self, arguments, timeout, accept=()):
        done = subprocess.run([str(self.program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              timeout=timeout)
        if done.returncode and done.returncode not in accept:
            text = done.stdout if done.returncode in (SICK, INCONCLUSIVE) else done.stderr
            pytest.fail(f"ddp-doctor: {shortened(text)}", pytrace=False)
        return done


def shortened(text):
    """At most MAX_LINES of `text`; the last one is the verdict."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        lines[MAX_LINES - 2:-1] = [f"... {len(lines) - MAX_LINES + 1} more lines; run the program under `ddp-doctor run` for the whole report"]
    return "\n".join(lines)


def _examined(item):
    """Around the call of a test; what the test raises is raised at the yield."""
    marker = item.get_closest_marker("ddp_doctor")
    if marker is None:
        return (yield)
    unknown = set(marker.kwargs) - {"fail_on"}
    if marker.args or unknown:
        raise pytest.UsageError(f"ddp_doctor takes fail_on=... only, not {marker.args or sorted(unknown)}")
    doctor = Doctor(item.config)
    with doctor.examining() as folder:
        result = yield  # a test that failed by itself says enough
        if not any(name.endswith(".sqlite") for name in os.listdir(folder)):
            pytest.fail("ddp-doctor: no rank was examined: the test started no new process that initialized torch.distributed (a forked one "
                        "is not seen: use the spawn method)", pytrace=False)
        doctor.check(folder, marker.kwargs.get("fail_on", "warning"))
    return result


if "wrapper" in inspect.signature(type(pytest.hookimpl).__call__).parameters:
    pytest_runtest_call = pytest.hookimpl(wrapper=True)(_examined)
else:  # pluggy before 1.2

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(item):
        with contextlib.contextmanager(_examined)(item):
            (yield).get_result()
