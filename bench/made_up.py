# SPDX-License-Identifier: BSD-3-Clause
"""Steps of a program that does not exist, announced as a probe would: for benchmarks of records."""
import ctypes


class Steps:
    def __init__(self, record, entry, count, elements, wrapped=True):
        """`entry`: the probe's module. `wrapped`: a wrapper holds all parameters."""
        self.record, self.wrapped, self.owner = record, wrapped, ctypes.c_int64()
        self.parameters = [self._parameter(entry, i, elements) for i in range(count)]
        if wrapped:
            record.wrapper_made(record.wrapper_begins(), count, "")
        self.optimizer = record.optimizer()
        record.holds(self.optimizer, self.parameters)
        record.covered_by(self.optimizer, [], self.parameters)

    def _parameter(self, entry, number, elements):
        made = entry.Entry(self.owner)
        made.id, made.numel, made.is_parameter, made.trainable = number, elements, True, True
        made.belongs(0 if self.wrapped else None, number if self.wrapped else None)
        return made

    def initial(self):
        self.record.row(-1, 0)
        self.record.write_row(True)

    def trains(self, loss=1.0):
        """A forward and a backward, in which every parameter gets a gradient."""
        if self.wrapped:
            self.record.forward_begins(0, 1)
            self.record.forward_ends(0)
        self.record.backward_begins("made_up.py", 1, 0)
        self.record.loss(loss)
        for parameter in self.parameters if self.record.is_recorded() else self.parameters[:1]:
            self.record.gradient_arrives(parameter.address)
        self.record.backward_ends(False, False, True)

    def ends(self, duration_ns):
        """The optimizer's step. What was observed since the last one belongs to it."""
        examined = bool(self.record.is_recorded())
        self.record.step_begins()
        self.record.gradients_taken()
        self.record.step_ends()
        if examined:
            self.record.usages(self.optimizer)
        self.record.row(self.optimizer, self.record.step_number() * duration_ns, duration_ns)
        self.record.write_row(examined, 0)
        self.record.step_closed(self.optimizer)
