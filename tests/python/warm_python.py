# SPDX-License-Identifier: BSD-3-Clause
"""A Python that has loaded torch, for as long as it is needed (warm.py)."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

WARM = pathlib.Path(__file__).resolve().with_name("warm.py")


@contextlib.contextmanager
def warm_python(python):
    """The path of what stands for `python`."""
    address = f"{pathlib.Path(sys.argv[0]).name}-{os.getpid()}"
    env = {name: value for name, value in os.environ.items() if not name.startswith("DDP_DOCTOR")}
    with tempfile.TemporaryDirectory() as folder:
        stand_in = pathlib.Path(folder) / "python3"
        stand_in.write_text(f"#!/bin/sh\nexec /usr/bin/python3 -IS {WARM} run {address} {python} \"$@\"\n")
        stand_in.chmod(0o755)
        subprocess.run([python, "-I", WARM, "serve", address], env=dict(env, OMP_NUM_THREADS="1", USE_LIBUV="0"), check=True)
        try:
            yield str(stand_in)
        finally:
            subprocess.run([python, "-I", WARM, "stop", address])
