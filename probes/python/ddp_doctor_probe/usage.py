# SPDX-License-Identifier: BSD-3-Clause
"""How each parameter was used in a step: what only torch knows of those that no gradient arrived at."""
REACHED_KNOWN, REACHED, IN_OUTPUT_KNOWN, IN_OUTPUT = 1, 2, 4, 8  # builtins.cpp


class Usage:
    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.address = session.record.address
        self.write = session.record.builtin("usages", self)  # of (number of the optimizer, entries)

    def has_gradient(self, id):
        """A gradient that no backward of this step computed; the zeros of zero_grad do not count."""
        parameter = self.session.tensors.entries[id].ref()
        gradient = None if parameter is None else parameter.grad
        if gradient is None:
            return int(self.session.updates.holds_gradient_of(parameter))
        return int(gradient.detach().ne(0).any()) if gradient.layout is self.torch.strided else 1

    def reach(self, id):
        reached, in_output = self._reach(self.session.forwards, self.session.tensors.entries[id])
        return (
            (0 if reached is None else REACHED_KNOWN | (REACHED if reached else 0))
            | (0 if in_output is None else IN_OUTPUT_KNOWN | (IN_OUTPUT if in_output else 0)))

    def _reach(self, forwards, entry):
        """Did a module that is known to read this parameter run, and does an output depend on it? None: unknown."""
        parameter, in_output = entry.ref(), None
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
