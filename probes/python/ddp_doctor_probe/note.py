# SPDX-License-Identifier: BSD-3-Clause
"""process-<pid>.json in the run's folder: which Python processes imported torch, and their role in the job. ddp-doctor reads it to
explain why there was nothing to examine."""
import json
import multiprocessing
import os
import sys

_content = None


def begin(torch):
    """Notes this process. multiprocessing workers are noted only if they become ranks."""
    global _content
    _content = {
        "schema_version": 1,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "argv": list(getattr(sys, "orig_argv", sys.argv)),
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "torch": str(getattr(torch, "__version__", "")),
        "distributed": False,
        "rank": None,
        "world_size": None,
        "steps": 0,
        "seen": [],
    }
    if multiprocessing.parent_process() is None:
        _write()


def update(**changes):
    if _content is None:
        return
    if _content["pid"] != os.getpid():  # forked
        _content.update(pid=os.getpid(), parent=os.getppid(), distributed=False, rank=None, world_size=None, steps=0, seen=[])
    _content.update(changes)
    _write()


def missed(torch):
    """At the end of the process: torch was imported, and the probe was not told."""
    if _content is None and type(torch) is type(sys) and torch.__spec__ is not None:
        begin(torch)
        saw("torch imported around the probe")


def saw(what):
    """Something that ddp-doctor does not examine."""
    if _content is not None and what not in _content["seen"]:
        update(seen=_content["seen"] + [what])


def _write():
    folder = os.environ["DDP_DOCTOR_RECORD"]
    name = os.path.join(folder, f"process-{os.getpid()}.json")
    try:
        with open(name + ".new", "w", encoding="utf-8") as out:
            json.dump(_content, out)
        os.replace(name + ".new", name)
    except OSError:
        pass  # the record reports a full disk
