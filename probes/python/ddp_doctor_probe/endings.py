# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions on their way out of the program, where it ends. A program that catches them and exits by itself (sys.exit in an except block,
an excepthook of its own, a thread that dies) ends for the same reasons as one that does not."""
import functools
import logging
import os
import sys
import threading
import traceback

CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
MAX_CHAIN = 8
MAX_TEXT, MAX_TEXT_OF_FOLLOWING = 16000, 4000


def watch(session):
    """Tells the session what the program raises and does not handle, or handles by ending."""

    def excepthook(kind, error, trace):
        session.program_raised(error)
        before(kind, error, trace)

    def thread_excepthook(args):
        if isinstance(args.exc_value, Exception):
            session.call_raised(args.exc_value)
        before_in_threads(args)

    def finish():
        """Nothing else does when a program leaves at once."""
        try:
            session.finish()
        except Exception as error:
            session.failed("finish", error)

    def exits(original):
        @functools.wraps(original)
        def leave(*status, **named):
            if any((*status, *named.values())):
                session.call_in_handler(sys.exc_info()[1])
            elif original is at_once and session.pid == os.getpid():
                finish()
            return original(*status, **named)

        return leave

    def reports(original):
        @functools.wraps(original)
        def report(*args, **kwargs):
            session.call_in_handler(sys.exc_info()[1])
            return original(*args, **kwargs)

        return report

    before, sys.excepthook = sys.excepthook, excepthook
    before_in_threads, threading.excepthook = threading.excepthook, thread_excepthook
    at_once = os._exit
    sys.exit, os._exit = exits(sys.exit), exits(at_once)
    # A program that goes on after an exception mostly says what it was.
    logging.Logger.handle = reports(logging.Logger.handle)
    traceback.print_exception = reports(traceback.print_exception)


def uncaught():
    """What ended the program, for a hook of its own that did not tell us; None if nothing did."""
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, Exception) else None


def chain_of(error, noted):
    """The exceptions that led to `error`, the root first. A cause that `raise ... from None` hides counts if torch raised it."""
    chain = [error]
    while len(chain) < MAX_CHAIN:
        last = chain[-1]
        inner = last.__cause__
        if inner is None and (not last.__suppress_context__ or id(last.__context__) in noted):
            inner = last.__context__
        if inner is None or any(inner is seen for seen in chain):
            break
        chain.append(inner)
    return chain[::-1]


def text_of(chain):
    """As Python prints it."""
    parts = []
    for position, error in enumerate(chain):
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__, chain=False))
        parts.append(text[-(MAX_TEXT_OF_FOLLOWING if position else MAX_TEXT):])
        if position + 1 < len(chain):
            parts.append(CAUSE if chain[position + 1].__cause__ is error else CONTEXT)
    return "".join(parts)
