# SPDX-License-Identifier: BSD-3-Clause
"""The line of the user's code that something was called from."""
import functools
import os
import sys
import sysconfig

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STRATEGIES = os.path.join(_OURS, "ddp_doctor_strategy", "")
_LIBRARIES = tuple({
    os.path.join(os.path.realpath(path), "")
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    for path in (sysconfig.get_path(name),)
    if path
})
_PACKAGE_FOLDERS = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_AVERAGERS = os.path.join("torch", "distributed", "algorithms", "model_averaging", "")  # the program asked for their collectives
_USER, _LIBRARY, _TORCH, _NOBODY = range(4)
_kinds = {}  # by file name as in code objects


def _kind(file):
    kind = _kinds.get(file)
    if kind is None:
        kind = _kinds[file] = _classify(file)
    return kind


def _classify(file):
    if file.startswith("<") or file.startswith(_OURS):
        return _NOBODY
    real = os.path.realpath(file)
    for folder in _PACKAGE_FOLDERS:
        at = real.rfind(folder)
        if at >= 0:
            within = real[at + len(folder):]
            return _TORCH if within.startswith("torch" + os.sep) and not within.startswith(_AVERAGERS) else _LIBRARY
    if real.startswith(_LIBRARIES):
        return _NOBODY
    return _LIBRARY if real.startswith(_installed()) else _USER


_other_folders = None


def _installed():
    """Folders on sys.path with packages installed in other ways (pip --target): those that contain a *.dist-info."""
    global _other_folders
    if _other_folders is None:
        _other_folders = tuple(
            os.path.join(os.path.realpath(folder), "")
            for folder in sys.path
            if folder and os.path.isdir(folder) and any(name.endswith(".dist-info") for name in os.listdir(folder))
        )
    return _other_folders


@functools.lru_cache(maxsize=None)
def _shown(file):
    """Relative to the packages' folder, or to the working directory if the file is below it."""
    real = os.path.realpath(file)
    for folder in _PACKAGE_FOLDERS:
        at = real.rfind(folder)
        if at >= 0:
            return real[at + len(folder):]
    for folder in _installed():
        if real.startswith(folder):
            return real[len(folder):]
    relative = os.path.relpath(real)
    return real if relative.startswith(os.pardir) else relative


def torch_caller(depth):
    """The file, within torch, of the frame `depth` above the caller's; "" if it does not belong to torch. A strategy counts as the program."""
    frame = sys._getframe(depth + 1)
    while frame is not None and _kind(frame.f_code.co_filename) == _NOBODY:
        if frame.f_code.co_filename.startswith(_STRATEGIES):
            return ""
        frame = frame.f_back
    if frame is None or _kind(frame.f_code.co_filename) != _TORCH:
        return ""
    return frame.f_code.co_filename.rpartition(f"{os.sep}torch{os.sep}")[2]


def called_by(folder, through):
    """Whether `folder`, within a library, is the innermost that calls, apart from torch and the folders `through`."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _kind(file)
        if kind == _USER:
            return False
        if kind == _LIBRARY and not (shown := _shown(file)).startswith(through):
            return shown.startswith(folder)
        frame = frame.f_back
    return False


def in_forward(context):
    """Whether the forward of a module, or of an autograd function, whose first argument is a `context`, is on the stack."""
    return any(_is_of_module(frame) or _is_of_function(frame, context) for frame in _frames())


def function_of(context):
    """The name that the autograd function whose forward is on the stack has in the graph; None without one."""
    for frame in _frames():
        if _is_of_function(frame, context):
            return type(frame.f_locals[frame.f_code.co_varnames[0]]).__name__
    return None


def _frames():
    frame = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_of_module(frame):
    return frame.f_code.co_name == "_call_impl" and _kind(frame.f_code.co_filename) == _TORCH


def _is_of_function(frame, context):
    code = frame.f_code
    return code.co_name == "forward" and code.co_argcount and isinstance(frame.f_locals.get(code.co_varnames[0]), context)


def raised_at(trace):
    """(file, line) of the innermost line of the user's own code in a traceback; None if there is none."""
    found = None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if _kind(file) == _USER:
            found = _shown(file), trace.tb_lineno
        trace = trace.tb_next
    return found


def place(skip=None):
    """(file, line, via): the innermost line of the user's code on the stack, and the lines of the libraries between it and here, outermost
    first. Without user code, the outermost library's line. Methods of objects for which `skip(self)` is true are ignored if there is
    user code further out."""
    via = []
    frame = sys._getframe(1)
    last = inner = None
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _kind(file)
        if kind == _USER:
            if skip is None or not skip(frame.f_locals.get("self")):
                return _shown(file), frame.f_lineno, via[::-1]
            inner = inner or (_shown(file), frame.f_lineno)
        if kind == _LIBRARY:
            shown = _shown(file)
            package = shown.split(os.sep)[0]
            if package != last:  # the innermost line of each package
                via.append(f"{shown}:{frame.f_lineno}")
                last = package
        frame = frame.f_back
    if inner:
        return *inner, []
    if via:
        file, line = via.pop().rsplit(":", 1)
        return file, int(line), via[::-1]
    return "", 0, []
