# SPDX-License-Identifier: BSD-3-Clause
"""The Python side of ddp-doctor: watches an unmodified training program from inside its processes.

Nothing here touches the training: no collective, no random number, no change to a tensor, no exception into the program. (What does, on
request, is ddp_doctor_strategy, beside it.) What is patched stands in `patches`, each place with its reason. Digests, figures and the record
are C++ behind `native`.

    importing  calls us when the program itself imports torch (we never do it first)
    patches    the places in torch that report to the session
    session    one per rank: from init_process_group to the end of the process; its parts, in the order of a training step:
      forwards     wrappers, forwards through and around them
      backwards    backward passes, gradients as they arrive
      collectives  those that the program calls itself
      steps        optimizer steps: a row of the record each
      usage        what became of each parameter in a step
      history      what happened, of which each optimizer reads what came since its own last step
      tensors      parameters and buffers: names, identity, gradient hooks
    passive    what keeps the program safe from us
    places     the user's file and line
    graph      which parameters an output depends on
    note       process-<pid>.json: what kind of process this was
"""
import atexit
import os

__all__ = ["start"]


def start():
    """Waits for the program to import torch. Does nothing outside `ddp-doctor run`, or with DDP_DOCTOR=0."""
    if not os.environ.get("DDP_DOCTOR_RECORD") or os.environ.get("DDP_DOCTOR") == "0":
        return
    from . import importing

    atexit.register(_at_exit)  # first of all, so that it runs last
    importing.after("torch", _torch_is_there)


def _at_exit():
    from . import session

    if session.current is not None:
        session.current.finish()


def _torch_is_there(torch):
    from . import note, patches

    note.begin(torch)
    patches.install(torch)
    if os.environ.get("DDP_DOCTOR_APPLY"):
        import ddp_doctor_strategy

        ddp_doctor_strategy.install(torch)
