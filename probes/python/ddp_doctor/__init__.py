# SPDX-License-Identifier: BSD-3-Clause
"""What a training program may say to ddp-doctor, and where pip put its program, which is no Python."""
import os
import sys


def placement(part, dimensions):
    """States how the parameters of `part` (a module or a parameter) lie on the ranks, where no DTensor says it; returns `part`.

        norm = ddp_doctor.placement(RMSNorm(width), {"tp": "replicate"})
        ddp_doctor.placement(experts, {ep_group: "shard"})

    `dimensions`: by the name of a dimension of a DeviceMesh, or by this rank's process group, "replicate" (equal on all of these ranks) or
    "shard" (another part on each). Along other dimensions all stays as it was. Does nothing unless ddp-doctor runs the program."""
    probe = sys.modules.get("ddp_doctor_probe")
    if probe is not None:
        probe.state(part, dimensions)
    return part


def program():
    """The path of ddp-doctor's executable. Raises FileNotFoundError."""
    import importlib.metadata

    for file in importlib.metadata.files("ddp-doctor") or ():
        if file.parts[-2:] == ("bin", "ddp-doctor"):
            return os.path.realpath(file.locate())
    raise FileNotFoundError("this installation of ddp-doctor has no program; install it again: pip install --force-reinstall ddp-doctor")
