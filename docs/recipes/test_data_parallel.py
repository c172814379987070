# SPDX-License-Identifier: BSD-3-Clause
"""A test under pytest (or plain Python): each training program of the project keeps its replicas equal."""
import subprocess
import sys

PROGRAMS = ["train.py"]


def check(program, *arguments):
    done = subprocess.run(["ddp-doctor", "check", "--python", sys.executable, program, "--", *arguments],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{program}: ddp-doctor check ended with {done.returncode}\n{done.stdout}{done.stderr}"


def test_replicas_stay_equal():
    for program in PROGRAMS:
        check(program)


if __name__ == "__main__":
    test_replicas_stay_equal()
