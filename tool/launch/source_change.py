# SPDX-License-Identifier: BSD-3-Clause
"""Where in a Python program a change belongs, by Python's own parser. source_change.cpp asks the program's interpreter.

usage: python -c SOURCE REQUEST     REQUEST: {"kind": KIND, "file": FILE, "line": N, ...}

    flags    "flags": {NAME: VALUE or null}: sets or removes arguments of the wrapper that is made at that line; "text": which
    module   WRAPPER.module(x) at that line becomes WRAPPER(x)
    model    "text": the model whose parameters the optimizer at that line gets
    average  "lines": they stand after the last backward before the optimizer steps at that line, {optimizer} is its name

Prints {"line": N, "before": LINES, "after": LINES, "text": TEXT}, without lines where the program does not tell the place; null where
there is no such line, or nothing of that kind in it.
"""
import ast
import json
import re
import sys
import tokenize

BLOCKS = ("body", "orelse", "finalbody")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Source:
    """Lines from 1 and columns in bytes of UTF-8, as ast counts them."""

    def __init__(self, file):
        with tokenize.open(file) as stream:
            self.set(stream.read().encode())

    def set(self, text):
        self.lines, self.tree = text.split(b"\n"), ast.parse(text)

    def text(self, first, last):
        return b"\n".join(self.lines[first - 1:last]).decode()

    def code(self, node):
        return ast.get_source_segment(self.text(1, len(self.lines)), node)

    def replace(self, begins, ends, text):
        (first, left), (last, right) = begins, ends
        here = self.lines[first - 1][:left] + text.encode() + self.lines[last - 1][right:]
        self.set(b"\n".join(self.lines[:first - 1] + [here] + self.lines[last:]))

    def calls(self, line, names):
        """Those at that line, the innermost first."""
        found = [node for node in ast.walk(self.tree) if called(node) in names and node.lineno <= line <= node.end_lineno]
        return sorted(found, key=lambda node: (node.end_lineno - node.lineno, begin(node)))


def begin(node):
    return node.lineno, node.col_offset


def end(node):
    return node.end_lineno, node.end_col_offset


def called(node):
    """The name of what a call calls: "step" in opt.step()."""
    return getattr(node.func, "attr", getattr(node.func, "id", None)) if isinstance(node, ast.Call) else None


def runs(node, wanted):
    """Something wanted runs in this statement, not only in a function that is defined there."""
    return not isinstance(node, FUNCTIONS) and (wanted(node) or any(runs(child, wanted) for child in ast.iter_child_nodes(node)))


def runs_backward(node):
    return (called(node) or "").endswith("backward")


def touches_gradients(node):
    return getattr(node, "attr", "") == "grad" or re.search("^unscale_|clip|^step$|zero_grad", called(node) or "")


def change(line, before="", after="", text=""):
    return {"line": line, "before": before, "after": after, "text": text}


def flags(source, line, wanted):
    names = {"DistributedDataParallel", "DDP"}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            names.update(name.asname for name in node.names if name.name == "DistributedDataParallel" and name.asname)
    calls = source.calls(line, names)
    if not calls:
        return None
    call, said, possible = calls[0], [], True
    first, before = call.lineno, source.text(call.lineno, call.end_lineno)
    for name, value in wanted.items():
        given = next((word.value for word in call.keywords if word.arg == name), None)
        if given is None and value is None or isinstance(given, ast.Constant) and str(given.value) == value:
            continue
        said.append(f"remove {name}" if value is None else f"set {name}={value}")
        arguments = sorted(call.args + [word.value for word in call.keywords], key=begin)
        place = len(arguments) if given is None else arguments.index(given)
        known = isinstance(given, ast.Constant) if given else all(word.arg for word in call.keywords)
        if not known or place == 0:  # an expression, **options
            possible = False
        elif value is None or given is None:
            source.replace(end(arguments[place - 1]), end(given or arguments[-1]), f", {name}={value}" if value else "")
        else:
            source.replace(begin(given), end(given), value)
        call = next(one for one in ast.walk(source.tree) if called(one) in names and begin(one) == begin(calls[0]))
    if not said:
        return None
    return change(first, before, source.text(first, call.end_lineno), ", ".join(said)) if possible else change(first, text=", ".join(said))


def module(source, line):
    functions = sorted((call.func for call in source.calls(line, {"module"}) if isinstance(call.func, ast.Attribute)), key=end)
    if not functions:
        return change(line)
    first, last = functions[0].lineno, functions[-1].end_lineno
    before = source.text(first, last)
    for node in reversed(functions):
        source.replace(end(node.value), end(node), "")
    return change(first, before, source.text(first, last))


def model(source, line):
    for call in source.calls(line, {"parameters"}):
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, (ast.Name, ast.Attribute)):
            return change(line, text=source.code(call.func.value))
    return change(line, text="model")


def path_to(inside, node):
    """The statements around it, outermost first: what has the block, the block, the place in it."""
    for part in [inside] + getattr(inside, "handlers", []) + getattr(inside, "cases", []):
        for block in filter(None, (getattr(part, name, None) for name in BLOCKS)):
            for place, one in enumerate(block):
                if begin(one) <= begin(node) and end(node) <= end(one):
                    return [(inside, block, place)] + path_to(one, node)
    return []


def place_in(path):
    """The block and the place in it before which gradients are to be averaged; None: the text does not tell."""
    inside = None  # the beginning of the step's block, once that was left
    for owner, block, place in reversed(path):
        for earlier in reversed(block[:place]):
            if runs(earlier, runs_backward):
                return inside or (owner, block, block.index(earlier) + 1)
            if inside and runs(earlier, touches_gradients):
                return None
        inside = inside or (owner, block, 0)
        if isinstance(owner, ast.Try) and block is not owner.body and any(runs(one, runs_backward) for one in owner.body):
            return inside
        if not isinstance(owner, (ast.If, ast.With, ast.AsyncWith, ast.Try)):
            return None  # it is in another function, or in another turn of the loop
    return None


def average(source, line, lines):
    calls = [call for call in source.calls(line, {"step"}) if isinstance(call.func, ast.Attribute) and len(call.args) < 2 and not call.keywords]
    if not calls:
        return None
    optimizer = source.code(calls[0].args[0] if calls[0].args else calls[0].func.value)
    path = path_to(source.tree, calls[0])
    place = None if runs(path[-1][1][path[-1][2]], runs_backward) else place_in(path)
    functions = {node.name for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS[:2])}
    if place is None or optimizer in functions or not re.fullmatch(r"[\w.\[\]]+", optimizer) or "closure" in optimizer:
        return change(line)
    owner, block, index = place
    following, above = block[index], block[index - 1] if index > 0 else None
    first = min([following.lineno] + [node.lineno for node in getattr(following, "decorator_list", [])])
    if block[0].lineno == getattr(owner, "lineno", None):  # if ready: opt.step()
        return change(line)
    before = source.lines[first - 1]
    cut = above.end_col_offset if above and above.end_lineno == first else 0  # a(); b()
    head = source.lines[above.lineno - 1] if cut else before
    pad = head[:len(head) - len(head.lstrip())].decode()
    added = "".join(f"{pad}{text}\n" for text in lines.format(optimizer=optimizer).splitlines())
    after = f"{before[:cut].decode()}\n{added}{pad}{before[following.col_offset:].decode()}" if cut else added + before.decode()
    return change(first, before.decode(), after)


def answer(request):
    line, parts = request["line"], [request[key] for key in ("flags", "lines") if key in request]
    try:
        source = Source(request["file"])
    except OSError:
        return None
    except (SyntaxError, ValueError):  # not Python, or not this one's
        return change(line)
    if not 1 <= line <= len(source.lines):
        return None
    try:
        return {kind.__name__: kind for kind in (flags, module, model, average)}[request["kind"]](source, line, *parts)
    except SyntaxError:  # after the change: the call is written in an unusual way
        return change(line)


if __name__ == "__main__":
    print(json.dumps(answer(json.loads(sys.argv[1]))))
