# SPDX-License-Identifier: BSD-3-Clause
"""Calls a function once the program has imported a module, and leaves no trace in the import system afterwards.

Programs look for torch without importing it (find_spec), import it lazily, fail and try again, and replace finders. So nothing counts
but the module's execution: each spec that is found keeps its own loader, whose exec_module tells us when it has run. Specs come from
the finders behind ours, or from PathFinder if another hook goes around us. Anyone who looks at a spec sees what Python made.
"""
import importlib.machinery
import importlib.util
import sys


def after(name, callback):
    """Calls callback(module) after `name` is first imported; immediately if it already is."""
    module = sys.modules.get(name)
    if module is None:
        _Watch(name, callback).install()
    elif type(module) is getattr(importlib.util, "_LazyModule", None):
        _Watch(name, callback).install().follow(object.__getattribute__(module, "__spec__"))
    else:
        callback(module)


class _Watch:
    """On sys.meta_path until the module has been executed."""

    def __init__(self, name, callback):
        self.name, self.callback = name, callback
        self.path_finder = None  # PathFinder's own find_spec, while ours is in its place

    def install(self):
        sys.meta_path.insert(0, self)
        self.path_finder = own = vars(importlib.machinery.PathFinder)["find_spec"]

        def find_spec(cls, fullname, path=None, target=None):
            spec = own.__func__(cls, fullname, path, target)
            return self.follow(spec) if fullname == self.name else spec

        importlib.machinery.PathFinder.find_spec = classmethod(find_spec)
        return self

    def remove(self):
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self.path_finder is not None:
            importlib.machinery.PathFinder.find_spec = self.path_finder
            self.path_finder = None

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1:]:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                return self.follow(spec)
        return None

    def follow(self, spec):
        loader = getattr(spec, "loader", None)
        execute = getattr(loader, "exec_module", None)
        kept = getattr(loader, "__dict__", None)
        if execute is None or isinstance(loader, type) or kept is None or "exec_module" in kept:
            return spec

        def exec_module(module):
            kept.pop("exec_module", None)
            try:
                execute(module)
            except BaseException:
                kept["exec_module"] = exec_module  # it may be tried again
                raise
            self.executed(module)

        kept["exec_module"] = exec_module
        return spec

    def executed(self, module):
        if self.path_finder is None or sys.modules.get(self.name) is not module:
            return
        self.remove()
        try:
            self.callback(module)
        except Exception as error:  # must not stop the program
            print(f"ddp-doctor: the probe did not start: {error!r}", file=sys.stderr)
