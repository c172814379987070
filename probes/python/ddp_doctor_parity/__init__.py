# SPDX-License-Identifier: BSD-3-Clause
"""`ddp-doctor parity`: what the ranks keep for the comparison with one process, and how that process is fed their samples.

The ranks' run keeps, for a few steps, its batches, the first weights of the step and the synchronized gradients, and then ends. The reference is
the same program as one process: in each of its steps it plays one of the ranks' steps again, from the same weights, on the samples of all ranks,
on those of one rank, or on all of them in another order. What the gradients have in common goes to figures.json.

    seams      the places in torch where batches, inputs, targets, losses, clipping and optimizer steps pass: Watcher
    ranks      Watcher of the ranks' run
    reference  Watcher of the reference
    plays      what the reference computes, and with which samples
    samples    batches of several ranks, joined; padding
    nested     the structures that batches are
    draws      random numbers of the ranks, given to the reference
    tensors    gradients and weights, put together from the ranks' parts
    figures    inner products of gradients
"""
import os

KEY = "DDP_DOCTOR_PARITY"  # "ranks" or "reference"
FOLDER = "DDP_DOCTOR_PARITY_FOLDER"  # shared by both runs


class Impossible(Exception):
    """Why the two cannot be compared."""


def install(torch):
    """Runs after the probe's patches."""
    from . import seams

    role, folder = os.environ[KEY], os.environ[FOLDER]
    if role == "ranks":
        from .ranks import Ranks as Role
    else:
        from .reference import Reference as Role

        seams.one_rank(torch)
        seams.any_order(torch)
    seams.install(torch, Role(torch, folder))
