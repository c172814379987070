# SPDX-License-Identifier: BSD-3-Clause
"""How each parameter was used in a step: whether a gradient arrived, and if not, how far the forward got."""
import array

from .native import ASSIGNED, FROZEN, IN_OPTIMIZER, IN_OUTPUT, IN_OUTPUT_KNOWN, REACHED, REACHED_KNOWN, REPLACED, USED

ARRIVED = USED | REACHED_KNOWN | REACHED | IN_OUTPUT_KNOWN | IN_OUTPUT


def of(session, known, covered):
    """(four numbers for each parameter, as for ddpd_usages; the ids of unused parameters)."""
    before = known.begin.counts
    counts = session.history.counts
    held = {e.id for e in known.entries}
    # A reduction, or a hand-written collective after a backward, gives an unused parameter the gradients of other ranks.
    backwards = counts.backwards > before.backwards
    shared = counts.reduced > before.reduced or (backwards and counts.collectives > before.collectives)
    before_backwards = before.backwards
    numbers, unused = array.array("i"), []
    for entry in covered:
        parameter = entry.ref()
        if not entry.trainable and entry.arrivals == 0 and (parameter is None or not parameter.requires_grad):
            continue
        if entry.since > before_backwards:
            continue  # found in this step: its earlier gradients are unknown
        arrivals = entry.arrivals - entry.arrivals_at_step
        if entry.managed and entry.numel == 0:
            continue  # this rank has no part of it
        if entry.managed:  # what shards it takes the gradients out of the graph, and leaves the reduced one
            arrivals = int(parameter is not None and parameter.grad is not None)
        if arrivals:
            flags = ARRIVED
        else:
            unused.append(entry.id)
            flags = _how_far(session.forwards, entry, parameter)
            if not shared and parameter is not None and _has_gradient(session.torch, parameter):
                flags |= ASSIGNED
        if entry.trainable and parameter is not None and not parameter.requires_grad:
            flags |= FROZEN
        if entry.replaced:
            flags |= REPLACED
        if entry.id in held:
            flags |= IN_OPTIMIZER
        numbers.extend((entry.id, flags, arrivals, max(0, entry.last_backward - before_backwards)))
    return numbers, unused


def _has_gradient(torch, parameter):
    """A gradient that no backward of this step computed; the zeros of zero_grad do not count."""
    gradient = parameter.grad
    if gradient is None:
        return False
    return bool(gradient.detach().ne(0).any()) if gradient.layout is torch.strided else True


def _how_far(forwards, entry, parameter):
    reached, in_output = _reached_and_in_output(forwards, entry, parameter)
    return (
        (0 if reached is None else REACHED_KNOWN | (REACHED if reached else 0))
        | (0 if in_output is None else IN_OUTPUT_KNOWN | (IN_OUTPUT if in_output else 0)))


def _reached_and_in_output(forwards, entry, parameter):
    """Did a module that is known to read this parameter run, and does an output depend on it? None: unknown."""
    in_output = None
    if forwards.in_output is not None and parameter is not None:
        in_output = int(id(parameter) in forwards.in_output)
    module = entry.module() if entry.module is not None else None
    if module is None:
        return None, in_output
    if module in forwards.called:
        # Torch's own layers read all their parameters when they run.
        return (1 if type(module).__module__.startswith("torch.nn.modules") or in_output else None), in_output
    if module in forwards.called_without_grad:
        return 1, 0
    return in_output or 0, in_output
