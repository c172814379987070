# SPDX-License-Identifier: BSD-3-Clause
"""Strategies: other ways to synchronize an unmodified training program. The one mode of ddp-doctor that does touch the training.

`ddp-doctor compare` and `run --fix` ask for them, by name, several joined with "+"; the probe examines the program so changed.

    ddp, ddp-find-unused, ddp-static-graph   wrapper: DistributedDataParallel with these flags, and no forward that trains goes around it
    allreduce-flat, allreduce-each           gradients: averaged over all ranks before each optimizer.step
    broadcast-init                           broadcasts: rank 0's weights and buffers for all, before the first forward that trains
    broadcast-buffers                        broadcasts: rank 0's buffers for all, before each forward that trains
    freeze=NAME,NAME                         freezing: these modules and parameters do not train (for `bisect --model`)

Each says in the record what it did (`applied`), once, or what it could not do (`cannot`).
"""
import os

KEY = "DDP_DOCTOR_APPLY"
_said = set()


def wanted():
    return [name for name in os.environ.get(KEY, "").split("+") if name and name != "as-is"]


def install(torch):
    """After the probe's patches: what is done here comes before what the probe looks at."""
    from . import broadcasts, freezing, gradients, wrapper

    for name in wanted():
        if name.startswith("ddp"):
            wrapper.install(torch, name)
        elif name.startswith("freeze="):
            freezing.install(torch, name)
        elif name.startswith("allreduce"):
            gradients.install(torch, name)
        else:
            broadcasts.install(torch, name)


def applied(name, what):
    _say(name, "applied", what)


def cannot(name, why):
    _say(name, "cannot", why)


def _say(name, key, text):
    from ddp_doctor_probe import session

    if session.current is not None and (name, key, text) not in _said:
        _said.add((name, key, text))
        session.current.fact(f"strategy {name}", key, text)
