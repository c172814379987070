# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel objects, forwards through them, and forwards that bypass them."""
import weakref

from . import graph, native, placements, places
from .groups import group_key, ranks_of
from .passive import passive

MAX_LOADS = 100  # of a wrapper, that are recorded
compiles = False  # the program called torch.compile
ARGUMENTS = ("find_unused_parameters", "static_graph", "broadcast_buffers", "gradient_as_bucket_view", "bucket_bytes_cap")


class Wrapper:
    """A DistributedDataParallel object."""

    def __init__(self, number, wrapper):
        self.number = number
        self.ref = weakref.ref(wrapper)
        self.module = weakref.ref(wrapper.module)  # as last examined
        self.accumulators = {}
        self.norm_seen = False
        self.loads = 0  # calls of load_state_dict
        self.group = ""  # as in the call log
        self.forward = 0  # number of the call in progress, in the call log


class Forwards:
    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.wrappers = []
        self.constructing = -1  # number of the wrapper that is being constructed
        self.failed = set()  # numbers of wrappers whose constructor raised
        self.wrapper_of = weakref.WeakKeyDictionary()  # DistributedDataParallel -> Wrapper
        self.owner_of = weakref.WeakKeyDictionary()  # module inside a wrapper -> Wrapper
        self.inside = []  # wrappers whose forward is running
        self.around = None  # the module whose forward is bypassing its wrapper
        self.called, self.called_without_grad = set(), set()  # modules that ran, with and without gradients
        self.in_output = None  # ids of parameters that an output depends on; None: not examined
        self.hooks = []  # on the forwards of all modules, while these are watched
        self.new_parameters = False  # an optimizer's parameters changed
        self.wrappers_suffice = (-1, False)  # (number of wrappers, result of _wrappers_suffice then)
        self.plain = set()  # classes of modules that are no wrappers
        self.unusual = False  # forwards bypassed wrappers, or a wrapper had two backwards

    # ---- which forwards are watched

    def watch(self):
        """Watches the forwards of all modules if the current step is recorded or something unusual was seen before; otherwise only those of
        wrappers, because hooks on every module cost more than the rest of the probe."""
        self._hook_modules(self.session.recording or self.unusual or not self._wrappers_suffice())

    def rest(self):
        self._hook_modules(False)

    def _hook_modules(self, wanted):
        if wanted and not self.hooks:
            module = self.torch.nn.modules.module
            self.hooks = [
                module.register_module_forward_pre_hook(self._before_modules()),
                module.register_module_forward_hook(self._after_modules()),
            ]
        elif self.hooks and not wanted:
            for hook in self.hooks:
                hook.remove()
            self.hooks = []

    def _is_compiling(self):
        """Inside torch.compile this is the constant True, and a hook that begins with it vanishes from the compiled graph."""
        return getattr(getattr(self.torch, "compiler", None), "is_compiling", None) or (lambda: False)

    def _before_modules(self):
        is_compiling, is_grad_enabled, plain = self._is_compiling(), self.torch.is_grad_enabled, self.plain

        def called(module, arguments):
            if is_compiling():
                return
            inside = self.inside
            if inside and inside[-1].norm_seen and type(module) in plain and is_grad_enabled():
                self.called.add(module)
                return
            try:
                self.module_called(module, arguments)
            except Exception as error:
                self.session.failed("module_called", error)

        return called

    def _after_modules(self):
        is_compiling, plain = self._is_compiling(), self.plain

        def returned(module, arguments, output):
            if is_compiling() or (module is not self.around and type(module) in plain):
                return
            try:
                self.module_returned(module, arguments, output)
            except Exception as error:
                self.session.failed("module_returned", error)

        return returned

    def _wrappers_suffice(self):
        """There are wrappers with DistributedDataParallel's own forward, and nothing is compiled: adding and removing hooks would make
        torch.compile recompile."""
        if self.wrappers_suffice[0] != len(self.wrapper_of):
            self.wrappers_suffice = (len(self.wrapper_of), self._have_own_forward())
        return self.wrappers_suffice[1] and not compiles

    def _have_own_forward(self):
        base = self.torch.nn.parallel.DistributedDataParallel
        kinds = {type(wrapper) for wrapper in self.wrapper_of}
        overridden = any("forward" in vars(ancestor) for kind in kinds for ancestor in kind.__mro__[:kind.__mro__.index(base)])
        return bool(kinds) and not overridden

    # ---- wrappers

    @passive
    def wrapper_begins(self, module):
        """DistributedDataParallel's constructor is about to run: our gradient hooks must come before the reducer's."""
        session = self.session
        session.enter(native.CONNECTING)
        number = self.constructing = session.record.wrapper_begins()
        session.tensors.add_model(module, number, _reducer_indices(module))
        session.tensors.describe()
        session.site(f"wrap {number}")
        session.fact(f"wrapper {number}", "module", type(module).__name__)
        self.construction = session.record.call(
            session.number, False, "ddp.construct", target=f"wrapper {number}", place=places.place()[:2])

    @passive
    def wrapper_failed(self):
        """The constructor raised. If the program continues, the first step decides about its parameters (forget_failed)."""
        self.failed.add(self.constructing)
        self.session.record.call_ends(self.construction)
        self.session.enter(native.BATCH)

    def forget_failed(self):
        """In the first step: modules whose constructor raised belong to no wrapper."""
        if self.failed:
            self.session.tensors.unwrap(self.failed)

    @passive
    def wrapper_made(self, wrapper, broadcasts=True):
        session = self.session
        number = self.constructing
        made = Wrapper(number, wrapper)
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()) or ())
        if ignored:
            session.tensors.add_model(wrapper.module, number, _reducer_indices(wrapper.module, ignored))
        made.accumulators = session.tensors.remember_accumulators(number)
        indexed = len(made.accumulators)
        weakref.finalize(wrapper, made.accumulators.clear)
        self.wrappers.append(made)
        self.wrapper_of[wrapper] = made
        for module in wrapper.module.modules():
            self.owner_of[module] = made
        subject = f"wrapper {number}"
        session.fact(subject, "type", type(wrapper).__name__)
        ranks = ranks_of(self.torch, wrapper.process_group)
        made.group = group_key(self.torch, wrapper.process_group)
        session.record.call_ends(self.construction)
        session.fact(subject, "ranks", ranks)
        if not broadcasts:
            session.fact(subject, "init_sync", False)
        values = {name: getattr(wrapper, name, None) for name in ARGUMENTS}
        session.fact(subject, "arguments", {name: value for name, value in values.items() if isinstance(value, (bool, int))})
        if ignored:
            session.fact(subject, "ignored", sorted(ignored))
        norms = [m for m in wrapper.module.modules() if isinstance(m, self.torch.nn.modules.batchnorm._BatchNorm)]
        made.norm_seen = not norms
        session.record.wrapper_made(number, indexed, made.group)
        session.wrapper_made()
        if norms:
            synchronized = sum(isinstance(m, self.torch.nn.SyncBatchNorm) for m in norms)
            session.fact(subject, "batchnorm", {"modules": len(norms), "synchronized": synchronized})
        self._write_fields(made, "construction")
        session.enter(native.BATCH)

    @passive
    def hook_registered(self, wrapper, hook):
        made = self.wrapper_of.get(wrapper)
        if made is not None:
            self.session.fact(f"wrapper {made.number}", "comm_hook", getattr(hook, "__qualname__", type(hook).__name__))
            self.session.site(f"comm-hook {made.number}")

    @passive
    def state_loaded(self, module):
        """load_state_dict of a wrapper, of its module or of a part of it: no longer what the wrapper's constructor broadcast."""
        made = self.wrapper_of.get(module) or self.owner_of.get(module)
        if made is not None:
            made.loads += 1
            if made.loads <= MAX_LOADS:
                self.session.fact(f"wrapper {made.number}", "loaded", made.loads)
                self.session.site(f"load_state_dict {made.loads}")

    def write_runtime_fields(self):
        """PyTorch's logging data of each wrapper, once it is filled in; the last one is kept."""
        for made in self.wrappers:
            self._write_fields(made, "runtime")

    def _write_fields(self, made, moment):
        wrapper = made.ref()
        if wrapper is None:
            return
        fields = wrapper._get_ddp_logging_data()
        if moment == "construction":
            fields = dict(fields, find_unused_parameters=int(wrapper.find_unused_parameters), static_graph=int(wrapper.static_graph))
        self.session.record.write("ddp_fields", [
            {"moment": moment, "key": key, "value": str(value), "is_integer": isinstance(value, int), "wrapper": made.number}
            for key, value in fields.items()
        ])

    # ---- forwards

    def wrapper_called(self, wrapper):
        """A wrapper's forward is about to run: modules are not watched, or the program calls wrapper.forward(x) itself, which no hook sees. Returns
        whether to call forward_ends afterwards."""
        session = self.session
        if session.closed or session.busy() or session.backwards.depth:
            return False
        if self.hooks and (self.around is not None or self.inside and self.inside[-1] is self.wrapper_of.get(wrapper)):
            return False
        if self.torch.is_grad_enabled():
            session.updates.ends()
            self._forget()
        self.forward_begins(wrapper)
        return bool(self.inside)

    def module_called(self, module, arguments):
        """Any module's forward is about to run. Called very often."""
        session = self.session
        if session.closed or session.busy() or session.backwards.depth:
            return
        is_wrapper = self.is_wrapper(module)
        if not self.torch.is_grad_enabled():
            if is_wrapper:
                self.forward_begins(module)
            else:
                self.called_without_grad.add(module)
            return
        session.updates.ends()
        self.called.add(module)
        if session.recording and arguments and placements.is_sharding_root(module, first=len(self.called) == 1):
            session.inputs.seen(arguments)
        if self.inside and not self.inside[-1].norm_seen:
            self.examine_norm(self.inside[-1], module, arguments)
        if is_wrapper:
            if self.inside:
                self._forget()
                self.forward_begins(module)
            elif self.around is None:
                self.forward_begins(module)
        elif not self.inside and self.around is None and module in self.owner_of:
            self.forward_around(module)

    def _forget(self):
        """A forward that raised, and the program continued."""
        self.inside.clear()
        self.session.record.forget_forwards()

    def is_wrapper(self, module):
        """DistributedDataParallel is an abstract base class, where isinstance takes long: that a class is none is remembered."""
        kind = type(module)
        if kind in self.plain:
            return False
        if issubclass(kind, self.torch.nn.parallel.DistributedDataParallel):
            return True
        self.plain.add(kind)
        return False

    def module_returned(self, module, arguments, output):
        if self.inside and self.is_wrapper(module):
            self.forward_ends(output)
        elif module is self.around:
            self.around = None

    @passive
    def forward_begins(self, wrapper):
        made = self.wrapper_of.get(wrapper)
        if made is None:
            return
        session = self.session
        session.enter(native.FORWARD)
        self.inside.append(made)
        quiet = not self.torch.is_grad_enabled()
        made.forward = session.record.call(
            session.number, wrapper.will_sync_module_buffers(), "ddp.forward", "no_grad" if quiet else "", made.group,
            f"wrapper {made.number}", places.place()[:2])
        later = native.REDUCED_LATER if wrapper.require_backward_grad_sync else native.UNREDUCED
        session.record.forward_begins(made.number, native.WITHOUT_GRADIENTS if quiet else later)
        if quiet:
            return
        session.site(f"forward {made.number}")
        if session.recording and (
            session.number <= session.warmup or self.new_parameters or made.module() is not wrapper.module or session.tensors.changed(made.number)
        ):
            made.module = weakref.ref(wrapper.module)
            self.new_parameters = False
            for module in session.tensors.follow(wrapper.module, made.number, made.accumulators):
                self.owner_of[module] = made
            session.tensors.describe()

    @passive
    def forward_ends(self, output):
        made = self.inside.pop() if self.inside else None
        if made is None:
            return
        self.session.record.forward_ends(made.number)
        self.session.record.call_ends(made.forward)
        if self.torch.is_grad_enabled() and self.session.record.reads_graphs():
            reached = set(graph.leaves(graph.tensors_in(output, self.torch)))
            self.in_output = reached if self.in_output is None else self.in_output | reached
        if self.session.recording:
            self.session.gathers.forward_ends(output)
        self.session.enter(native.BATCH)

    @passive
    def forward_around(self, module):
        made = self.owner_of.get(module)
        if not any(p.requires_grad for p in module.parameters()):
            return
        self.around = module
        self.unusual = True
        self.session.record.forward_around(made.number)
        # The caller of the module's method, not a line inside the method.
        self.session.site(f"forward-around {made.number}", lambda thing: isinstance(thing, self.torch.nn.Module) and thing in self.owner_of)

    def examine_norm(self, made, module, arguments):
        """Notes the batch size of the first BatchNorm that runs in training mode."""
        if isinstance(module, self.torch.nn.modules.batchnorm._BatchNorm) and module.training and arguments:
            made.norm_seen = True
            self.session.fact(f"wrapper {made.number}", "batchnorm_samples", len(arguments[0]))

    def step_ended(self):
        self.called.clear()
        self.called_without_grad.clear()
        self.in_output = None


def _reducer_indices(module, ignored=()):
    """id(parameter) -> its index in the reducer, as printed by PyTorch's errors: parameters that require gradients, in the order of
    named_modules, each once."""
    indices = {}
    for prefix, owner in module.named_modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None and parameter.requires_grad and f"{prefix}.{name}" not in ignored:
                indices.setdefault(id(parameter), len(indices))
    return indices
