# SPDX-License-Identifier: BSD-3-Clause
"""What became of each parameter in a step: whether a gradient arrived, and if not, how far the forward got towards it."""
import array

from .native import ASSIGNED, FROZEN, IN_OPTIMIZER, IN_OUTPUT, IN_OUTPUT_KNOWN, REACHED, REACHED_KNOWN, REPLACED, USED

ARRIVED = USED | REACHED_KNOWN | REACHED | IN_OUTPUT_KNOWN | IN_OUTPUT


def of(session, known, covered):
    """Four numbers for each parameter, as ddpd_usages takes them, and the ids of those that were not used."""
    before = known.begin.counts
    counts = session.history.counts
    held = {e.id for e in known.entries}
    # A reduction, or after a backward a hand-written collective, gives other ranks' gradients to a parameter that was not used here.
    backwards = counts.backwards > before.backwards
    shared = counts.reduced > before.reduced or (backwards and counts.collectives > before.collectives)
    before_backwards = before.backwards
    numbers, unused = array.array("i"), []
    for entry in covered:
        parameter = entry.ref()
        if not entry.trainable and entry.arrivals == 0 and (parameter is None or not parameter.requires_grad):
            continue
        if entry.since > before_backwards:
            continue  # found in this step: what it got before that is not known
        arrivals = entry.arrivals - entry.arrivals_at_step
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
    """One that no backward of this step made: not the zeros that zero_grad left."""
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
    """Did a module that is known to read this parameter run, and does an output depend on it? None: cannot be told."""
    in_output = None
    if forwards.in_output is not None and parameter is not None:
        in_output = int(id(parameter) in forwards.in_output)
    module = entry.module() if entry.module is not None else None
    if module is None:
        return None, in_output
    if module in forwards.called:
        # Torch's own layers read all their parameters when they run.
        return (1 if type(module).__module__.startswith("torch.nn.modules") or in_output else None), in_output
    if module in forwards.called_quietly:
        return 1, 0
    return in_output or 0, in_output
