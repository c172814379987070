# SPDX-License-Identifier: BSD-3-Clause
"""Everything that comes from the program passes here: no exception of ours gets through, what we cost is measured, and processes
forked from the rank stay quiet (patches.py closes the session there)."""
import functools
import time


def passive(method):
    """A method of the session, or of a part of it, that the program calls without knowing it."""

    @functools.wraps(method)
    def guarded(self, *arguments):
        session = self.session
        if session.closed or session.busy:
            return None
        session.busy = True
        begin = time.perf_counter_ns()
        try:
            return method(self, *arguments)
        except Exception as error:
            session.failed(method.__name__, error)
            return None
        finally:
            session.probe_ns += time.perf_counter_ns() - begin
            session.busy = False

    return guarded
