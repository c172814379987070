# SPDX-License-Identifier: BSD-3-Clause
"""Calls a function once the program has imported a module, and leaves no trace in the import system afterwards."""
import importlib.util
import sys


def after(name, callback):
    """Calls callback(module) after `name` is first imported; immediately if it already is."""
    if name in sys.modules:
        callback(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, callback))


class _Finder:
    def __init__(self, name, callback):
        self.name, self.callback = name, callback

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.callback)
        return spec


class _Loader:
    def __init__(self, loader, callback):
        self.loader, self.callback = loader, callback

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        try:
            self.callback(module)
        except Exception as error:  # must not stop the program
            print(f"ddp-doctor: the probe did not start: {error!r}", file=sys.stderr)
