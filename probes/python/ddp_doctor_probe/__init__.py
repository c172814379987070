# SPDX-License-Identifier: BSD-3-Clause
"""The Python side of ddp-doctor: watches an unmodified training program from inside its processes.

Nothing here affects the training: no collective, no random number, no change to a tensor, no exception into the program.
(ddp_doctor_strategy does, on request.) `patches` lists everything that is patched, with reasons. Digests, numbers and the
record are written in C++ behind `native`.

    importing  calls us when the program imports torch (the probe never imports it first)
    patches    the places in torch that report to the session
    session    one per rank: from init_process_group to the end of the process; its parts, in the order of a training step:
      forwards     wrappers, forwards through them and forwards that bypass them
      backwards    backward passes, gradients as they arrive
      gradient_hooks   what the program's hooks on parameters do to gradients
      collectives  those that the program calls itself
      gathers      those of activations: whether a loss depends on them
      steps        optimizer steps: a row of the record each
      usage        how each parameter was used in a step
      tensors      parameters and buffers: names, identity, gradient hooks; an `entry` each
      values       what they hold, given to the record
    endings    exceptions that end the program, or that it catches
    passive    protects the program from errors of the probe
    placements what torch declares, and what the program states through ddp_doctor.placement()
    places     the user's file and line
    graph      which parameters an output depends on
    note       process-<pid>.json: the kind of this process
"""
import atexit
import os
import sys
import weakref

__all__ = ["start", "state"]

_started = False
stated = []  # (weak reference to a module or a parameter, what ddp_doctor.placement() was told of it)


def start():
    """Waits for the program to import torch. Does nothing outside `ddp-doctor run`, with DDP_DOCTOR=0, or a second time: another tool's
    sitecustomize may run ours again."""
    global _started
    if _started or not os.environ.get("DDP_DOCTOR_RECORD") or os.environ.get("DDP_DOCTOR") == "0":
        return
    _started = True
    from . import importing

    atexit.register(_at_exit)  # registered first, so that it runs last
    importing.after("torch", _torch_imported)


def state(part, dimensions):
    """What ddp_doctor.placement() was told. The session reads it before each step."""
    if _started:
        stated.append((weakref.ref(part), dict(dimensions)))


def _at_exit():
    from . import note

    session = sys.modules.get("ddp_doctor_probe.session")  # the probe of a process without torch loads nothing
    if session is not None and session.current is not None:
        session.current.finish()
    note.missed(sys.modules.get("torch"))


def _torch_imported(torch):
    from . import note, patches

    note.begin(torch)
    patches.install(torch)
    if os.environ.get("DDP_DOCTOR_APPLY"):
        import ddp_doctor_strategy

        ddp_doctor_strategy.install(torch)
    if os.environ.get("DDP_DOCTOR_PARITY"):
        import ddp_doctor_parity

        ddp_doctor_parity.install(torch)
