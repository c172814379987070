# SPDX-License-Identifier: BSD-3-Clause
"""ddp, ddp-find-unused, ddp-static-graph: sets the wrapper's flags, and runs every forward in training through the wrapper.

A call from outside of the wrapped module, or of one of its computing methods, is run as the wrapper's forward: the wrapper is called with the
same arguments, and that method temporarily replaces its module's forward. A submodule that the training loop calls directly cannot be run
through the wrapper: it would be half a forward.
"""
import functools
import inspect
import types
import weakref

from . import applied, cannot, moments

_FLAGS = {
    "ddp": {"find_unused_parameters": False, "static_graph": False},
    "ddp-find-unused": {"find_unused_parameters": True, "static_graph": False},
    "ddp-static-graph": {"find_unused_parameters": False, "static_graph": True},
}


def install(torch, name):
    wrapper_class = torch.nn.parallel.DistributedDataParallel
    constructor, forward = wrapper_class.__init__, wrapper_class.forward
    signature = inspect.signature(constructor)
    routes = Routes(torch, name)

    @functools.wraps(constructor)
    def __init__(self, *args, **kwargs):
        given = signature.bind(self, *args, **kwargs)
        before = {flag: bool(given.arguments.get(flag, signature.parameters[flag].default)) for flag in _FLAGS[name]}
        given.arguments.update(_FLAGS[name])
        constructor(*given.args, **given.kwargs)
        changed = [f"{flag}={after} instead of {before[flag]}" for flag, after in _FLAGS[name].items() if after != before[flag]]
        applied(name, f"DistributedDataParallel({type(self.module).__name__}) with {' and '.join(changed) or 'unchanged flags'}")
        routes.add(self)

    @functools.wraps(forward)
    def inside(self, *args, **kwargs):
        routes.inside.append(self)
        try:
            return forward(self, *args, **kwargs)
        finally:
            routes.inside.pop()

    wrapper_class.__init__, wrapper_class.forward = __init__, inside


class Routes:
    def __init__(self, torch, name):
        self.torch, self.name = torch, name
        self.wrapper_of = weakref.WeakKeyDictionary()  # wrapped module -> weak reference to its wrapper
        self.part_of = weakref.WeakKeyDictionary()  # module inside it -> the same reference
        self.inside = []  # wrappers whose forward is running
        self.classes = set()
        self.calls_go_through()

    def add(self, wrapper):
        module, reference = wrapper.module, weakref.ref(wrapper)
        self.wrapper_of[module] = reference
        for part in module.modules():
            self.part_of[part] = reference
        for name in computing_methods(self.torch, module):
            self.method_goes_through(type(module), name)

    def bypassed(self, module):
        """The wrapper that this call would bypass; None if it would not, or does not train."""
        reference = self.wrapper_of.get(module)
        wrapper = reference and reference()
        outside = wrapper is not None and wrapper not in self.inside
        return wrapper if outside and moments.trains(self.torch, module) else None

    def calls_go_through(self):
        original = self.torch.nn.Module.__call__

        def __call__(module, *args, **kwargs):
            if module in self.part_of and not self.inside:
                wrapper = self.bypassed(module)
                if wrapper is not None:
                    self.note(module, "")
                    return wrapper(*args, **kwargs)
                if module not in self.wrapper_of and moments.trains(self.torch, module) and any(p.requires_grad for p in module.parameters()):
                    cannot(self.name, f"{type(module).__name__}, a part of the wrapped module, is called by itself from outside of the wrapper's "
                                      "forward: such a call cannot be sent through the wrapper")
            return original(module, *args, **kwargs)

        self.torch.nn.Module.__call__ = __call__

    def method_goes_through(self, kind, name):
        if (kind, name) in self.classes:
            return
        self.classes.add((kind, name))
        original = getattr(kind, name)

        @functools.wraps(original)
        def through(module, *args, **kwargs):
            wrapper = self.bypassed(module)
            if wrapper is None:
                return original(module, *args, **kwargs)
            self.note(module, name)
            before = module.__dict__.get("forward")

            def forward(*a, **k):
                restore()
                return original(module, *a, **k)

            def restore():
                if before is None:
                    module.__dict__.pop("forward", None)
                else:
                    module.__dict__["forward"] = before

            module.__dict__["forward"] = forward
            try:
                return wrapper(*args, **kwargs)
            finally:
                restore()

        setattr(kind, name, through)

    def note(self, module, method):
        applied(f"{self.name} route", f"{type(module).__name__}{'.' + method if method else ''}(...) runs through the wrapper")


def computing_methods(torch, module):
    """Names of the methods that use a submodule, a parameter, or another such method: forward, compute_loss, ..."""
    parts = {name for name, _ in module.named_children()} | {name for name, _ in module.named_parameters(recurse=False)} | {"forward"}
    names_in = {}
    for kind in reversed(type(module).__mro__):
        if not issubclass(kind, torch.nn.Module) or kind.__module__.startswith("torch."):
            continue
        for name, value in vars(kind).items():
            if isinstance(value, types.FunctionType) and not name.startswith("__"):
                names_in[name] = set(inspect.unwrap(value).__code__.co_names)
    computing = {"forward"} & set(names_in)
    while True:
        more = {name for name, names in names_in.items() if name not in computing and names & (parts | computing)}
        if not more:
            return computing
        computing |= more
