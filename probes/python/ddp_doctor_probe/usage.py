"""What became of each parameter in a step: whether a gradient arrived, and if not, how far the forward got towards it."""


def rows(session, known, covered):
    """One row per parameter, as record/probe_api.cpp reads it: id, used, reached, in_output, frozen, arrivals, last_backward, replaced,
    in_optimizer, assigned."""
    before = known.begin.counts
    counts = session.history.counts
    held = {e.id for e in known.entries}
    # A reduction, or after a backward a hand-written collective, gives other ranks' gradients to a parameter that was not used here.
    backwards = counts.backwards > before.backwards
    shared = counts.reduced > before.reduced or (backwards and counts.collectives > before.collectives)
    found = []
    for entry in covered:
        parameter = entry.ref()
        if not entry.trainable and entry.arrivals == 0 and (parameter is None or not parameter.requires_grad):
            continue
        if entry.since > before.backwards:
            continue  # found in this step: what it got before that is not known
        arrivals = entry.arrivals - entry.arrivals_at_step
        reached, in_output = (1, 1) if arrivals else _how_far(session.forwards, entry, parameter)
        frozen = entry.trainable and parameter is not None and not parameter.requires_grad
        assigned = arrivals == 0 and not shared and parameter is not None and _has_gradient(session.torch, parameter)
        found.append([
            entry.id, int(arrivals > 0), reached, in_output, int(frozen), arrivals, max(0, entry.last_backward - before.backwards),
            int(entry.replaced), int(entry.id in held), int(assigned),
        ])
    return found


def _has_gradient(torch, parameter):
    """One that no backward of this step made: not the zeros that zero_grad left."""
    gradient = parameter.grad
    if gradient is None:
        return False
    return bool(gradient.detach().ne(0).any()) if gradient.layout is torch.strided else True


def _how_far(forwards, entry, parameter):
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
