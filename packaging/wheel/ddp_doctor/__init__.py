# SPDX-License-Identifier: BSD-3-Clause
"""Where pip put the program ddp-doctor, which is no Python."""
import importlib.metadata
import os


def program():
    """Its path. Raises FileNotFoundError."""
    for file in importlib.metadata.files("ddp-doctor") or ():
        if file.parts[-2:] == ("bin", "ddp-doctor"):
            return os.path.realpath(file.locate())
    raise FileNotFoundError("this installation of ddp-doctor has no program; install it again: pip install --force-reinstall ddp-doctor")
