# SPDX-License-Identifier: BSD-3-Clause
"""What the program's hooks on parameters (Tensor.register_hook) do to gradients, before these are accumulated and reduced."""
from .passive import passive

STEPS = 8  # that are examined
MAX_ELEMENTS = 1 << 22  # of a gradient
TOLERANCE = 1e-4


class GradientHooks:
    def __init__(self, session):
        self.session = session

    @passive
    def begins(self, gradient):
        """A copy, as the hook may write to the gradient; None if it is not examined."""
        session = self.session
        first = session.recording and session.number - session.before <= STEPS
        plain = type(gradient) is session.torch.Tensor and gradient.layout is session.torch.strided and gradient.is_floating_point()
        return gradient.detach().clone() if first and plain and gradient.numel() <= MAX_ELEMENTS else None

    @passive
    def ends(self, parameter, before, after, place):
        entry = self.session.tensors.known(parameter)
        if entry is None or entry.index is None or after.shape != before.shape:
            return
        with self.session.torch.no_grad():
            change = change_between(before.double(), after.detach().double())
        if change is not None:
            self.session.site(f"gradient-hook {entry.name}", at=place)
            self.session.fact(f"gradient hook {entry.name}", *change)


def change_between(before, after):
    """("clamped", limit) if every element that changed was larger, and has this size and its sign now; ("scaled", [norm before, norm after]) if
    all are smaller by the same factor; otherwise None: masks, noise, constant factors above 1."""
    changed = after != before
    if not changed.any():
        return None
    cut = after[changed]
    limit = cut.abs().max()
    if limit > 0 and (cut.abs() - limit).abs().max() <= TOLERANCE * limit and ((before[changed] * cut > 0) & (before[changed].abs() > cut.abs())).all() \
            and changed.numel() > changed.sum():
        return "clamped", round(float(limit), 9)
    norms = before.norm(), after.norm()
    if 0 < norms[1] < norms[0] and (after * norms[0] - before * norms[1]).norm() <= TOLERANCE * norms[0] * norms[1]:
        return "scaled", [round(float(norm), 9) for norm in norms]
    return None
