# SPDX-License-Identifier: BSD-3-Clause
"""A Python that has imported torch already: most of the time of a short training program is that import.

`warm.py serve ADDRESS` imports what every DDP program loads, and forks a process for each program that it is asked for.
`warm.py run ADDRESS PYTHON ...` stands for `PYTHON ...`: it asks for `PROGRAM ...`, passes signals on and ends as the program ends.
What else PYTHON may be asked to do, or where nobody serves, it leaves to PYTHON itself. `warm.py stop ADDRESS` ends the server.
ADDRESS is any word; the socket has no file.

A program sees what it would see otherwise: its own arguments, environment, folder, output, sitecustomize, random numbers. But torch is
loaded: what reads the environment while torch is loaded, and what tests how torch is imported, must do without. So must what tests how
the interpreter ends: modules are not torn down, which would take as long as the rest.
"""
import array
import atexit
import contextlib
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import types

STREAMS = range(3)  # standard input, output and error
NAMESPACES = ("mnt", "net", "pid", "user")
REFUSED = -1
POLL = 0.02  # seconds
STOP = struct.pack("=I", 0)
# Of torch; a wrapper's constructor imports the last one, where there is one.
ALWAYS_LOADED = ("torch", "torch.distributed", "torch.nn.parallel", "torch.optim", "torch.utils.data", "torch._dynamo")


def main(verb, word, *rest):
    address = f"\0ddp-doctor-warm-{os.getuid()}-{word}"
    if verb == "run":
        run(address, *rest)
    elif verb == "stop":
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as channel:
            channel.connect(address)
            channel.sendall(STOP)
            channel.recv(1)
    elif verb == "serve":
        order = serve(address)
        if order:
            become(**order)


def namespaces():
    return [os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES]


def received(channel, size):
    """Less than `size` bytes only where the other side is gone."""
    data = b""
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


# What stands for Python.


def run(address, python, *arguments):
    status = ask(address, arguments) if arguments and not arguments[0].startswith("-") else None
    if status is None:
        os.execv(python, [python, *arguments])
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def ask(address, arguments):
    """How the program ended, as a status of waitpid(); None if nobody serves."""
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.connect(address)
    except OSError:
        return None
    order = json.dumps({"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ), "from_where": namespaces()}).encode()
    streams = array.array("i", STREAMS)
    channel.sendmsg([struct.pack("=I", len(order))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    channel.sendall(order)
    process = number_from(channel)
    if process == REFUSED:
        return None

    def pass_on(number, _):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)

    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, pass_on)
    return number_from(channel)


def number_from(channel):
    data = received(channel, 4)
    if len(data) < 4:
        sys.exit("warm.py: the server is gone")
    return struct.unpack("=i", data)[0]


# The server.


def serve(address):
    """Each order that comes in, returned in the process that is to become the program; None in the server, once it is to stop."""
    for name in ALWAYS_LOADED:
        try:
            importlib.import_module(name)
        except Exception:
            if name == "torch":
                return None
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address)
    except OSError:
        return None  # somebody serves already
    listener.listen(64)
    if os.fork():
        os._exit(0)  # whoever starts the server goes on
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in STREAMS:
        os.dup2(nowhere, stream)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how keepers end
    while True:
        channel, _ = listener.accept()
        size, ancillary, *_ = channel.recvmsg(4, socket.CMSG_SPACE(4 * len(STREAMS)))
        streams = array.array("i", ancillary[0][2] if ancillary else b"")
        if size == STOP:
            return None
        if os.fork() == 0:
            listener.close()
            return keep(channel, size, streams)
        channel.close()
        for stream in streams:
            os.close(stream)


def keep(channel, size, streams):
    """In a process of its own for each program, so that programs have different parents, as those of several shells."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order = json.loads(received(channel, struct.unpack("=I", size)[0]))
    if order.pop("from_where") != namespaces():
        channel.sendall(struct.pack("=i", REFUSED))
        os._exit(0)
    process = os.fork()
    if process == 0:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        channel.detach()
        os.closerange(len(STREAMS), 1024)
        return order
    for stream in streams:
        os.close(stream)
    channel.sendall(struct.pack("=i", process))
    ended = 0
    while not ended:
        left, _, _ = select.select([channel], [], [], POLL)
        if left:
            os.kill(process, signal.SIGKILL)  # who asked for it was killed
        ended, status = os.waitpid(process, 0 if left else os.WNOHANG)
    with contextlib.suppress(OSError):
        channel.sendall(struct.pack("=i", status))
    os._exit(0)


# The program.


def become(arguments, folder, environment):
    os.setpgid(0, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdout.reconfigure(write_through=bool(os.environ.get("PYTHONUNBUFFERED")))
    added = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:0] = [os.path.dirname(os.path.abspath(arguments[0])), *added]  # the server's own folder is not there (-I)
    sys.argv = list(arguments)
    sys.path_importer_cache.clear()
    for name in ("random", "numpy.random"):
        if name in sys.modules:
            sys.modules[name].seed()
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")
    module = types.ModuleType("__main__")
    module.__file__ = arguments[0]
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    with open(arguments[0], "rb") as text:
        code = compile(text.read(), arguments[0], "exec")
    status = 0
    try:
        exec(code, module.__dict__)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        traceback = error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


main(*sys.argv[1:])
