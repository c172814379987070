# SPDX-License-Identifier: BSD-3-Clause
"""The examined parameters and buffers: their names, the objects they currently are, and their gradient hooks.

Tensors are found through wrappers (all parameters and buffers of the wrapped module) and through optimizers (parameters that no
wrapper covers, named by the module that holds them). Only weak references are kept, so that the probe extends no lifetime.
"""
import weakref

from . import deepspeed, note, placements, places, stated
from .entry import Entry, address_of
from .living import living
from .passive import passive
from .values import DTYPES

MAX_CREATED = 10000  # parameters whose origin is remembered
FLATTENED = {"FullyShardedDataParallel"}  # cuts tensors where it likes
UNSEEN = {"ShardedTensor"}  # what a rank has of a parameter is not found in its module


class Tensors:
    def __init__(self, torch, session):
        self.session, self.torch = session, torch
        self.entries = []
        self.by_object = {}  # id(parameter) -> Entry, checked against the weak reference
        self.by_place = {}  # (model, name within it) -> Entry
        self.nodes = weakref.WeakKeyDictionary()  # module -> accumulators of its parameters that we hooked (torch before 2.1)
        self.unhooked = []
        self.models = []  # (weak reference to the module, label)
        self.wrapped = {}  # wrapper -> label of its module
        self.undescribed = []
        self.created = {}  # id(parameter) -> (weak reference to it, where, in which step), of those created after a model was wrapped
        self.skipped = set()  # objects that cannot be examined
        self.managed = {}  # placements.by_module of the model that is being added
        self.gathers = False  # a module had plain parameters in the place of its shards
        self.meshes = []  # of the placements, as recorded
        self.told = None  # how many statements and parameters there were when statements were last recorded
        self.sharding = []  # weak references to modules that fully_shard was applied to
        self._changed = session.record.builtin("changed", None)

    # ---- finding

    def known(self, parameter):
        entry = self.by_object.get(id(parameter))
        return entry if entry is not None and entry.ref() is parameter else None

    def add_model(self, module, wrapper=None, indices=None, held=()):
        """All parameters and buffers of `module`. `indices`: id(parameter) -> index in the reducer's list. `held`: ids of parameters that an
        optimizer holds."""
        label, fresh = self._label(module)
        self.managed = {key: placement for key, placement in placements.by_module(module).items() if placement or key not in held}
        self.gathers = self.gathers or None in self.managed.values()
        if self.managed:
            known = {ref() for ref in self.sharding}
            self.sharding += [weakref.ref(part) for part in placements.sharding_modules(module) if part not in known]
        if wrapper is not None:
            self.wrapped[wrapper] = label
        added = []
        for prefix, owner in module.named_modules():
            dot = prefix + "." if prefix else ""
            for attribute, parameter in owner._parameters.items():
                if parameter is not None:
                    added += self._add(label, dot + attribute, "parameter", parameter, owner, attribute, prefix, wrapper, indices)
            for attribute, buffer in owner._buffers.items():
                if buffer is not None and fresh:
                    added += self._add(label, dot + attribute, "buffer", buffer, owner, attribute, prefix, wrapper, None)
        if wrapper is None and not fresh:
            self._adopt(added, label)
        return added

    def _adopt(self, added, label):
        """Parameters that came into a model after it was wrapped, found through an optimizer."""
        failed = self.session.forwards.failed
        wrapper = max((number for number, known in self.wrapped.items() if known == label and number not in failed), default=None)
        for entry in added:
            if wrapper is not None and entry.kind == "parameter":
                entry.belongs(wrapper, entry.index)
                self._note_creation(entry)

    def add_parameters(self, parameters, anonymous):
        """Adds parameters that are not known yet, through the outermost modules that hold them; `anonymous`: also those in no module."""
        unknown = {id(p): p for p in parameters if self.known(p) is None and id(p) not in self.skipped}
        if not unknown:
            return
        anonymous = anonymous and not deepspeed.is_unknown()
        for module in self._outermost_modules_with(unknown):
            self.add_model(module, held=unknown if anonymous else ())
            if any(placement and placement["source"] in FLATTENED for placement in self.managed.values()):
                anonymous = False  # the optimizer's other tensors are its shards
        for position, parameter in enumerate(parameters):
            if anonymous and id(parameter) in unknown and self.known(parameter) is None and id(parameter) not in self.skipped:
                self._add("", f"parameter{position}", "parameter", parameter, None, "", "", None, None)

    def note_the_rest(self):
        """Models of which nothing is examined, because no wrapper and no optimizer holds them: a teacher, the centre of a loss."""
        lazy = self.torch.nn.parameter.UninitializedTensorMixin
        for module in self._outermost_modules():
            tensors = [t for t in (*module.parameters(), *module.buffers()) if not isinstance(t, lazy) and t.is_floating_point()]
            mine = any(self.known(t) is not None or id(t) in self.skipped for t in tensors) or placements.by_module(module)
            if not tensors or mine:
                continue
            self._note_copy(module)
            if type(module).__module__.startswith("torch."):
                continue
            if module in self.session.forwards.called and not any(True for _ in module.parameters()):
                self._add_statistics(module)
            else:
                self.session.fact("unexamined", type(module).__name__, len(tensors))

    def _note_copy(self, module):
        """Of a model that ran in this step, or a part of which did, and that looks like a trained one: whether it has the same weights."""
        def shapes(of):
            return [parameter.shape for parameter in of.parameters()]

        forwards = self.session.forwards
        if any(part in forwards.called or part in forwards.called_without_grad for part in module.modules()):
            alike = [model for model in (ref() for ref, _ in self.models) if model is not None and shapes(model) == shapes(module) != []]
            if alike:
                weights = self._checksum(module)
                self.session.fact("copy", type(module).__name__, any(self._checksum(model) == weights for model in alike))

    def _checksum(self, module):
        """Of the bits of its parameters: integers add up to the same in any order."""
        sums = []
        for parameter in module.parameters():
            bits = {1: self.torch.uint8, 2: self.torch.int16, 4: self.torch.int32, 8: self.torch.int64}[parameter.element_size()]
            sums.append(int(parameter.detach().contiguous().view(bits).sum(dtype=self.torch.int64)))
        return sums

    def _add_statistics(self, module):
        """The buffers of a module without parameters that computes a loss."""
        for prefix, owner in module.named_modules():
            for attribute, buffer in owner._buffers.items():
                if buffer is not None:
                    path = ".".join(filter(None, (type(module).__name__, prefix)))
                    self._add("", f"{path}.{attribute}", "buffer", buffer, owner, attribute, path, None, None)

    def _outermost_modules(self):
        torch = self.torch
        modules = living(torch.nn.Module)
        wrappers = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
        modules = [m for m in modules if not isinstance(m, wrappers) and not deepspeed.is_engine(m) and "_modules" in m.__dict__]
        inner = {id(child) for module in modules for child in module._modules.values() if child is not None}
        return [module for module in modules if id(module) not in inner]

    def _outermost_modules_with(self, unknown):
        """But not what holds only parameters of another, such as a slice of a ModuleList: of those that hold the same, the one with most
        modules."""
        outermost = self._outermost_modules()
        held = {id(module): {id(parameter) for parameter in module.parameters()} for module in outermost}
        kept = set()
        for module in sorted(outermost, key=lambda one: (len(held[id(one)]), len(list(one.modules()))), reverse=True):
            mine = held[id(module)]
            if mine & unknown.keys() and not any(mine <= held[other] for other in kept):
                kept.add(id(module))
        return [module for module in outermost if id(module) in kept]

    def _label(self, module):
        """(label that distinguishes several models, whether this model is new). The first model needs no label until there is a second."""
        for ref, label in self.models:
            if ref() is module:
                return label, False
        name = type(module).__name__
        taken = sum(label.split("#")[0] == name for _, label in self.models)
        label = name if taken == 0 else f"{name}#{taken + 1}"
        self.models.append((weakref.ref(module), label))
        if len(self.models) == 2:
            self._rename_all()
        return label, True

    def _label_in(self, wrapper, module):
        """The label of the module that is now in the wrapper."""
        label = self.wrapped.get(wrapper)
        if label is not None and not any(ref() is module for ref, _ in self.models):
            self.models = [(weakref.ref(module) if known == label else ref, known) for ref, known in self.models]
        return self._label(module)[0]

    def _rename_all(self):
        for entry in self.entries:
            if entry.model:
                entry.name = f"{entry.model}:{entry.name}"
                if entry not in self.undescribed:
                    self.undescribed.append(entry)

    def _add(self, label, name, kind, tensor, owner, attribute, prefix, wrapper, indices):
        entry = self.known(tensor)
        if entry is not None:
            if wrapper is not None and (entry.wrapper != wrapper or indices):
                entry.belongs(wrapper, (indices or {}).get(id(tensor)))
                entry.replaced, entry.pointer = False, address_of(tensor)
                self.undescribed.append(entry)
            return []
        placement = None
        if kind == "parameter" and id(tensor) not in self.skipped:
            if id(tensor) in self.managed and self.managed[id(tensor)] is None:
                return []  # gathered from shards, for a while
            placement = self.managed.get(id(tensor)) or placements.of(tensor)
            if placement and owner is None and self.gathers:
                placement = dict(placement, source="fully_shard")  # what stands for it in its module is gathered
            if placement and self._is_a_part(f"{label}:{name}" if label else name, tensor, placement):
                return []
        local = placements.local(tensor)
        dtype_name = str(tensor.dtype)[len("torch."):]
        reason = self._why_not(tensor, dtype_name)
        if reason:
            self.skipped.add(id(tensor))
            self.session.warn(f"not examined: {name}: {reason}")
            return []
        entry = Entry(self.session.backwards)
        entry.id = len(self.entries)
        entry.model = label
        entry.name = f"{label}:{name}" if label and len(self.models) > 1 else name
        entry.kind, entry.is_parameter = kind, kind == "parameter"
        entry.lies(tensor, dtype_name, local)
        entry.placement, entry.gradient_placement, entry.placed = placement, None, placement is not None
        entry.trainable = kind == "parameter" and tensor.requires_grad
        entry.managed = id(tensor) in self.managed
        entry.belongs(wrapper, (indices or {}).get(id(tensor)))
        entry.module = weakref.ref(owner) if owner is not None else None
        entry.attribute, entry.module_name = attribute, prefix
        entry.hook = None
        self.by_place[label, name] = entry
        entry.since = self.session.record.backwards()
        self.entries.append(entry)
        self.undescribed.append(entry)
        self._bind(entry, tensor)
        return [entry]

    @passive
    def created_now(self, parameter):
        if len(self.created) < MAX_CREATED:
            self.created[id(parameter)] = weakref.ref(parameter), places.place(), self.session.number

    def _note_creation(self, entry):
        parameter = entry.ref()
        ref, place, step = self.created.get(id(parameter), (None, None, None))
        if ref is not None and ref() is parameter:
            self.session.site(f"created {entry.name}", at=place, step=step)

    def unwrap(self, wrappers):
        """These wrappers were never constructed; their parameters without a gradient so far count as not trained."""
        for entry in self.entries:
            if entry.wrapper in wrappers:
                entry.belongs(None, None)
                entry.trainable = entry.trainable and entry.arrivals > 0
                self.undescribed.append(entry)

    def _is_a_part(self, name, tensor, placement):
        """Records the placement. Whether the tensor cannot be examined."""
        self._note_placement("placement", name, placement)
        source = placement["source"]
        if source in UNSEEN and not placements.is_whole(placement):
            self.skipped.add(id(tensor))
            if id(tensor) in self.managed:
                note.saw(source)
            return True
        return False

    def _note_placement(self, subject, name, placement):
        """A mesh is described once, and referred to by its number."""
        mesh = {key: placement[key] for key in ("mesh", "dimensions") if key in placement}
        if mesh:
            placement = {key: value for key, value in placement.items() if key not in mesh}
            placement["mesh"] = self._number(mesh)
        self.session.fact(subject, name, placement)

    def _number(self, mesh):
        if mesh not in self.meshes:
            self.meshes.append(mesh)
            self.session.fact("mesh", str(len(self.meshes) - 1), mesh)
        return self.meshes.index(mesh)

    def note_mesh(self, mesh):
        """A DeviceMesh of the program whose dimensions have names."""
        if getattr(mesh, "mesh_dim_names", None):
            self._number({"mesh": mesh.mesh.tolist(), "dimensions": list(mesh.mesh_dim_names)})

    def note_stated(self):
        """What the program stated since the last step, or of parameters that were not known then."""
        told = len(stated), len(self.entries)
        if stated and told != self.told:
            self.told = told
            alive = [(part, dimensions) for ref, dimensions in stated if (part := ref()) is not None]
            said = placements.stated(self.torch, alive, self.parameters(), self.session.warn)
            for name, dimensions in said.items():
                self.session.fact("stated placement", name, dimensions)

    def note_unused_statements(self):
        """At the end: statements about parts of which nothing is trained."""
        known = {id(entry.ref()) for entry in self.parameters()}
        for part, _ in stated:
            part = part()
            if part is not None and not any(id(parameter) in known for parameter in placements.parameters_of(part)):
                self.session.warn(f"not used: ddp_doctor.placement() of a {type(part).__name__}: no wrapper and no optimizer holds a parameter of it; "
                                  "pass the module that is trained")

    def note_gradient(self, entry, gradient):
        """A gradient at optimizer.step may lie otherwise than its parameter."""
        if entry.placement is None or type(gradient).__name__ != "DTensor":
            return
        kinds = placements.kinds_of(gradient)
        if kinds != (entry.gradient_placement or entry.placement["placements"]):
            entry.gradient_placement = kinds
            name = entry.name.split(":")[-1]
            self._note_placement("gradient placement", f"{entry.model}:{name}" if entry.model else name, dict(placements.of(gradient)))

    def _why_not(self, tensor, dtype_name):
        if tensor.device.type == "meta" or isinstance(tensor, self.torch.nn.parameter.UninitializedTensorMixin):
            return "it has no storage yet"
        if dtype_name not in DTYPES:
            return f"its dtype is {dtype_name}"
        return ""

    def _bind(self, entry, tensor):
        """The entry represents `tensor` from now on."""
        entry.ref = weakref.ref(tensor)
        entry.pointer = address_of(tensor)
        if entry.kind != "parameter":
            return
        self.by_object[id(tensor)] = entry
        entry.hook = None
        self.unhooked.append(entry)
        self.hook_trainable()

    # ---- gradients

    def unhook(self):
        for entry in self.entries:
            if entry.hook is not None:
                entry.hook.remove()

    def hook_trainable(self):
        """Hooks the arrival of gradients; for frozen parameters as soon as they are unfrozen."""
        left = []
        for entry in self.unhooked:
            parameter = entry.ref()
            if parameter is None or entry.hook is not None or entry.managed:
                continue
            if not parameter.requires_grad or not parameter.is_leaf:
                left.append(entry)
                continue
            if hasattr(parameter, "register_post_accumulate_grad_hook"):
                entry.hook = parameter.register_post_accumulate_grad_hook(self.session.record.builtin("gradient_arrived", entry.as_argument()))
                _put_first(parameter._post_accumulate_grad_hooks, entry.hook.id)
            else:  # torch 1.13, 2.0: a hook on the AccumulateGrad node, which must be kept alive
                node = self._accumulator(parameter)
                entry.hook = node.register_hook(self.session.record.builtin("gradient_accumulated", entry.as_argument()))
                owner = entry.module() if entry.module is not None else None
                if owner is not None:
                    self.nodes.setdefault(owner, {})[entry.attribute] = node
            if not entry.trainable:
                entry.trainable = True
                self.undescribed.append(entry)
        self.unhooked = left

    def _accumulator(self, parameter):
        with self.torch.enable_grad():
            return parameter.expand_as(parameter).grad_fn.next_functions[0][0]

    def remember_accumulators(self, wrapper):
        """The AccumulateGrad nodes that the reducer of `wrapper` hooked. The wrapper keeps them alive."""
        return {e.id: self._accumulator(e.ref()) for e in self.entries if e.wrapper == wrapper and e.index is not None}

    def changed(self, wrapper):
        """Whether a parameter of `wrapper` is a different object or at a different address than before."""
        return self._changed(self.entries, wrapper)

    def follow(self, module, wrapper, accumulators):
        """Finds parameters of a wrapped module that are no longer what its reducer hooked: a different object at the same place, the same
        object with a new accumulator (after .double(), .cuda(), ...), parameters added later. Returns the modules in it."""
        label = self._label_in(wrapper, module)
        modules, met = [], set()
        for prefix, owner in module.named_modules():
            modules.append(owner)
            dot = prefix + "." if prefix else ""
            for attribute, parameter in owner._parameters.items():
                if parameter is None:
                    continue
                entry = self.known(parameter)
                if entry is None:
                    self._add_or_replace(label, dot + attribute, parameter, owner, attribute, prefix, wrapper)
                elif (pointer := address_of(parameter)) != entry.pointer:
                    self._moved(entry, parameter, pointer, accumulators)
                met.add(self.known(parameter))
        for entry in self.entries:
            if entry.wrapper == wrapper and entry.index is not None and entry not in met:
                entry.replaced = True  # the module no longer has it, and the reducer waits for it: parametrized, deleted
        return modules

    def _add_or_replace(self, label, name, parameter, owner, attribute, prefix, wrapper):
        entry = self.by_place.get((label, name))
        if entry is None:
            for added in self._add(label, name, "parameter", parameter, owner, attribute, prefix, wrapper, None):
                self._note_creation(added)
            return
        if id(parameter) in self.skipped or self._why_not(parameter, str(parameter.dtype)[len("torch."):]):
            return
        entry.replaced = entry.replaced or entry.index is not None
        entry.module, entry.attribute = weakref.ref(owner), attribute
        self._redescribe(entry, parameter)
        self._bind(entry, parameter)

    def _moved(self, entry, parameter, pointer, accumulators):
        entry.pointer = pointer
        if parameter.dtype is not entry.dtype:
            self._redescribe(entry, parameter)
        node = accumulators.get(entry.id)
        if node is not None and parameter.requires_grad and self._accumulator(parameter) is not node:
            entry.replaced = True
            if not hasattr(parameter, "register_post_accumulate_grad_hook"):
                self._bind(entry, parameter)  # our hook was on the old accumulator

    def _redescribe(self, entry, tensor):
        local = placements.local(tensor)
        entry.lies(tensor, str(tensor.dtype)[len("torch."):], local)
        self.undescribed.append(entry)

    def note_sharding(self):
        """Before an optimizer's step: what became of the gradients."""
        modules = [module for ref in self.sharding if (module := ref()) is not None]
        if modules:
            for key, value in placements.settings(modules).items():
                self.session.fact("fully_shard", key, value)

    def complete(self):
        """Before the first step: parameters that were gathered when their model was found, and pieces whose bounds were others then."""
        for ref, _ in list(self.models):
            if self.gathers and ref() is not None:
                self.add_model(ref())
        for entry in self.entries:
            tensor = entry.ref()
            if entry.managed and tensor is not None and placements.local(tensor).numel() != entry.numel:
                self._redescribe(entry, tensor)

    # ---- the record

    def parameters(self):
        return [e for e in self.entries if e.kind == "parameter"]

    def describe(self):
        """Records descriptions of new and changed tensors."""
        if not self.undescribed:
            return
        entries, self.undescribed = {e.id: e for e in self.undescribed}, []
        self.session.record.tensors([
            {
                "id": e.id, "name": e.name, "kind": e.kind, "dtype": e.dtype_name, "sizes": e.sizes, "trainable": e.trainable,
                "ddp_index": e.index, "module": e.module_name, "wrapper": e.wrapper,
            }
            for e in entries.values()
        ])


def _put_first(hooks, number):
    """Of hooks that run in the order of their registration."""
    if next(iter(hooks)) != number:
        others = [(key, hook) for key, hook in hooks.items() if key != number]
        ours = hooks[number]
        hooks.clear()
        hooks[number] = ours
        hooks.update(others)
