# SPDX-License-Identifier: BSD-3-Clause
"""Guards every call from the program into the probe: exceptions of the probe do not reach the program, the cost is measured, what the probe
itself calls is not observed, and processes forked from the rank do nothing (patches.py closes the session there)."""
import functools
import threading
import time

PATIENCE = 5  # seconds


def passive(method):
    """Decorates a method of the session, or of a part of it, that is called from the program."""

    @functools.wraps(method)
    def guarded(self, *arguments):
        session = self.session
        if session.closed or session.busy():
            return None
        # Another thread's call is waited for: a step that it hides would be missing. Not for ever, since it may be waiting for a GPU that waits
        # for this thread.
        if not session.turn.acquire(timeout=PATIENCE):
            return None
        session.owner = threading.get_ident()
        begin = time.perf_counter_ns()
        try:
            return method(self, *arguments)
        except Exception as error:
            session.failed(method.__name__, error)
            return None
        finally:
            session.probe_ns += time.perf_counter_ns() - begin
            session.owner = 0
            session.turn.release()

    return guarded
