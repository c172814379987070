# SPDX-License-Identifier: BSD-3-Clause
"""What the program did, in order. Each optimizer reads the part since its own last step."""

MAX_TOKENS = 400  # in a step's trace
MAX_CALLS = 1000  # hand-written collectives that a step records individually


class Counts:
    __slots__ = ("backwards", "unsynchronized", "reduced", "through", "around", "collectives", "bytes")

    def __init__(self, other=None):
        for name in self.__slots__:
            setattr(self, name, getattr(other, name) if other is not None else 0)


class Tail:
    """The end of a list that grows: items keep their positions when earlier ones are dropped."""

    def __init__(self):
        self.items = []
        self.dropped = 0

    def end(self):
        return self.dropped + len(self.items)

    def since(self, position):
        return self.items[max(0, position - self.dropped):]

    def forget(self, position):
        if position > self.dropped:
            del self.items[:position - self.dropped]
            self.dropped = position


class Mark:
    """A moment in the history."""

    def __init__(self, counts=None, tokens=0, calls=0):
        self.counts, self.tokens, self.calls = Counts(counts), tokens, calls


class History:
    def __init__(self):
        self.counts = Counts()
        self.tokens = Tail()  # [text, count]
        self.calls = Tail()
        self.last_step = Mark()  # of any optimizer
        self.round = Mark()  # the step before the last backward: an optimizer that has not stepped yet reads from there
        self.losses = []  # of the backward passes since the step before the last backward
        self.losses_of_next_step = False

    def token(self, text):
        """Adds to the trace. docs/record.md has the grammar."""
        items = self.tokens.items
        if items and items[-1][0] == text:
            items[-1][1] += 1
        else:
            items.append([text, 1])

    def backward(self):
        self.counts.backwards += 1
        if not self.losses_of_next_step:
            self.losses, self.losses_of_next_step = [], True
            self.round = self.last_step

    def call(self, call):
        """Adds a collective; repeated identical calls are counted together."""
        items = self.calls.items
        if self.calls.end() > self.last_step.calls and all(items[-1][key] == value for key, value in call.items()):
            items[-1]["count"] += 1
        elif len(self.calls.since(self.last_step.calls)) < MAX_CALLS:
            items.append(dict(call, count=1))

    def beginning(self):
        """The earliest moment that is still remembered."""
        return Mark(tokens=self.tokens.dropped, calls=self.calls.dropped)

    def now(self):
        return Mark(self.counts, self.tokens.end(), self.calls.end())

    def trace(self, mark):
        tokens = self.tokens.since(mark.tokens)
        spelled = [text if count == 1 else f"{text}*{count}" for text, count in tokens[-MAX_TOKENS:]]
        return ("... " if len(tokens) > MAX_TOKENS or mark.tokens < self.tokens.dropped else "") + " ".join(spelled)

    def step_ended(self, optimizers):
        """Forgets what no optimizer will read again, and what is too old: an optimizer that never steps again must not keep everything."""
        self.losses_of_next_step = False
        self.last_step = self.now()
        self.tokens.forget(max(self.tokens.end() - MAX_TOKENS, min(mark.tokens for mark in self._read_from(optimizers))))
        self.calls.forget(max(self.calls.end() - MAX_CALLS, min(mark.calls for mark in self._read_from(optimizers))))

    def _read_from(self, optimizers):
        return [self.round] + [optimizer.begin for optimizer in optimizers]
