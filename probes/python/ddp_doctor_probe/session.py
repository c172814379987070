"""One rank's examination: what happened in the step under way, and what is written of it.

A step ends with an optimizer's step(). Tensors are looked at in the first `warmup` steps, in every `every`-th after them, and at the
end of the program; in between only counts are kept. Everything that comes from the program passes `passive`, which lets no exception
of ours through, measures what we cost, and goes quiet in processes forked from the rank.
"""
import functools
import gc
import json
import math
import os
import sys
import time
import traceback
import weakref
from multiprocessing import util as multiprocessing_util

from . import graph, native, note, places
from .tensors import Tensors

KEPT_VALUES = 96 << 20  # bytes of tensor values that a record may keep
MOST_TOKENS = 400  # of a step's trace
MOST_CALLS = 1000  # hand-written collectives that a step records one by one
FIRST_BACKWARDS = 8  # backward passes whose graph is searched for models
GRAPH_STEPS = 2  # in these first steps, and after each change of what is used, the output's graph is read

current = None  # the session of this process


def passive(method):
    """A method that the program calls without knowing it."""

    @functools.wraps(method)
    def guarded(self, *arguments):
        if self.closed or self.busy or os.getpid() != self.pid:
            return None
        self.busy = True
        begin = time.perf_counter_ns()
        try:
            return method(self, *arguments)
        except Exception as error:
            self.failed(method.__name__, error)
            return None
        finally:
            self.probe_ns += time.perf_counter_ns() - begin
            self.busy = False

    return guarded


class Wrapper:
    """A DistributedDataParallel object."""

    def __init__(self, number, wrapper, ranks):
        self.number, self.ranks = number, ranks
        self.ref = weakref.ref(wrapper)
        self.module = weakref.ref(wrapper.module)
        self.accumulators = {}
        self.armed = False  # the next backward is reduced
        self.arrived = 0  # gradients in the backward under way
        self.seen = False  # a forward of it; inside torch.compile there is none to be seen
        self.fields = {}


class Optimizer:
    def __init__(self, number, optimizer):
        self.number = number
        self.ref = weakref.ref(optimizer)
        self.groups = None  # hyper-parameters as last written
        self.parameters = None  # ids of the objects as last written
        self.entries = []
        self.covered = None  # entries that its steps answer for
        self.covered_of = 0
        self.begin = Counts()  # when it last stepped
        self.trace_begin = 0


class Counts:
    __slots__ = ("backwards", "unsynchronized", "through", "around", "collectives", "bytes")

    def __init__(self, other=None):
        for name in self.__slots__:
            setattr(self, name, getattr(other, name) if other is not None else 0)


class Session:
    def __init__(self, torch, folder, rank, world_size, backend):
        self.torch = torch
        self.rank, self.world_size = rank, world_size
        self.pid = os.getpid()
        self.every = max(1, int(os.environ.get("DDP_DOCTOR_EVERY") or 10))
        self.warmup = max(1, int(os.environ.get("DDP_DOCTOR_WARMUP") or 20))
        self.closed = self.busy = False
        self.raised = False
        self.number = 1  # of the step under way
        self.wanted = 0  # the step of which the watcher would like to have values
        self.folder = folder
        self.phase = native.BATCH
        self.record = native.Record(folder, {
            "rank": rank, "world_size": world_size, "probe": "python",
            "program": os.environ.get("DDP_DOCTOR_PROGRAM") or " ".join(sys.argv),
            "details": {
                "backend": backend, "torch_version": torch.__version__, "python": sys.version.split()[0], "pid": str(self.pid),
                "every": str(self.every), "warmup": str(self.warmup), "summary": f"Python {sys.version.split()[0]}",
            },
        }, KEPT_VALUES)
        self.tensors = Tensors(torch, self)
        self.wrappers = []
        self.wrapper_of = weakref.WeakKeyDictionary()  # DistributedDataParallel -> Wrapper
        self.owner_of = weakref.WeakKeyDictionary()  # module inside a wrapper -> Wrapper
        self.optimizers = []
        self.optimizer_of = weakref.WeakKeyDictionary()
        self.warned = set()
        self.failures = 0
        self.sites = set()
        self.subjects = weakref.WeakKeyDictionary()  # scalers, samplers -> number
        self.facts = {}
        self._begin_window()
        self.trace, self.trace_dropped = [], 0
        self.counts = Counts()
        self.probe_ns = 0
        self.step_began = time.perf_counter_ns()
        self.started_ns = time.time_ns()
        self.depth_backward = self.depth_step = 0
        self.unwrapped_arrived = 0
        self.retained = self.keeps_gradients = False
        self.inside = []  # wrappers whose forward is under way
        self.around = None  # the module whose forward went around its wrapper, while it runs
        self.in_collective = False
        self.called, self.called_quietly = set(), set()  # modules that ran, with and without gradients
        self.in_output = None  # ids of parameters that an output depends on; None: not looked
        self.unused_before = None
        self.look_at_graph = GRAPH_STEPS
        self.last_examined = 0
        self.state_written = False
        self.last_step = None
        self.enter(native.BATCH)

    # ---- small things

    def enter(self, phase):
        self.phase = phase
        self.record.enter(phase, self.number)

    def recorded(self):
        return self.number <= self.warmup or self.number % self.every == 0 or self.number == self.wanted

    def warn(self, text):
        """Something is not examined. Said once."""
        if text not in self.warned and len(self.warned) < 100:
            self.warned.add(text)
            self.event("warning", text)

    def failed(self, where, error):
        """We failed, the training goes on."""
        if os.environ.get("DDP_DOCTOR_DEBUG"):
            traceback.print_exc()
        self.failures += 1
        try:
            self.warn(f"the probe failed in {where}: {type(error).__name__}: {error}")
        except Exception:
            self.closed = True  # the record cannot be written any more

    def event(self, kind, text):
        self.record.write("event", {
            "step": self.number, "time_ns": time.time_ns(), "kind": kind, "phase": native.PHASES[self.phase], "text": text,
        })

    def fact(self, subject, key, value):
        """Writes a fact if it is news."""
        if self.facts.get((subject, key)) != value:
            self.facts[(subject, key)] = value
            self.record.write("fact", {"step": self.number, "subject": subject, "key": key, "value": value})

    def site(self, what):
        """Notes the place in the program where `what` first happened."""
        if what in self.sites:
            return
        self.sites.add(what)
        file, line, via = places.place()
        self.record.write("site", {"what": what, "step": self.number, "file": file, "line": line, "via": via})

    def subject(self, kind, thing):
        """"kind N" for the Nth thing of that kind."""
        number = self.subjects.get(thing)
        if number is None:
            number = self.subjects[thing] = sum(1 for other in self.subjects if type(other) is type(thing))
        return f"{kind} {number}"

    def token(self, text):
        if self.trace and self.trace[-1][0] == text:
            self.trace[-1][1] += 1
        else:
            self.trace.append([text, 1])

    def _begin_window(self):
        self.losses = []
        self.calls = []
        self.calls_dropped = 0
        self.collective_seen = False
        self.fresh = False  # gradients arrived that no optimizer has taken
        self.targets = None
        self.scale = None

    # ---- wrappers

    @passive
    def wrapper_begins(self, wrapper, module):
        """DistributedDataParallel's constructor is about to run: our gradient hooks must come before the reducer's."""
        self.enter(native.CONNECTING)
        number = len(self.wrappers)
        self.tensors.add_model(module, number, _reducer_indices(module))
        self.tensors.describe()
        self.site(f"wrap {number}")
        self.fact(f"wrapper {number}", "module", type(module).__name__)

    @passive
    def wrapper_made(self, wrapper):
        number = len(self.wrappers)
        ranks = _ranks_of(self.torch, wrapper.process_group)
        made = Wrapper(number, wrapper, ranks)
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()) or ())
        if ignored:
            self.tensors.add_model(wrapper.module, number, _reducer_indices(wrapper.module, ignored))
        made.accumulators = self.tensors.remember_accumulators(number)
        weakref.finalize(wrapper, made.accumulators.clear)
        self.wrappers.append(made)
        self.wrapper_of[wrapper] = made
        for module in wrapper.module.modules():
            self.owner_of[module] = made
        subject = f"wrapper {number}"
        self.fact(subject, "type", type(wrapper).__name__)
        self.fact(subject, "ranks", ranks)
        self.fact(subject, "arguments", {
            name: value
            for name in ("find_unused_parameters", "static_graph", "broadcast_buffers", "gradient_as_bucket_view", "bucket_bytes_cap")
            for value in (getattr(wrapper, name, None),)
            if isinstance(value, (bool, int))
        })
        if ignored:
            self.fact(subject, "ignored", sorted(ignored))
        norms = [m for m in wrapper.module.modules() if isinstance(m, self.torch.nn.modules.batchnorm._BatchNorm)]
        if norms:
            synchronized = sum(isinstance(m, self.torch.nn.SyncBatchNorm) for m in norms)
            self.fact(subject, "batchnorm", {"modules": len(norms), "synchronized": synchronized})
        self.ddp_fields(made, "construction")
        self.enter(native.BATCH)

    def ddp_fields(self, made, moment):
        wrapper = made.ref()
        if wrapper is None:
            return
        fields = wrapper._get_ddp_logging_data()
        if moment == "construction":
            fields = dict(fields, find_unused_parameters=int(wrapper.find_unused_parameters), static_graph=int(wrapper.static_graph))
        self.record.write("ddp_fields", [
            {"moment": moment, "key": key, "value": str(value), "is_integer": isinstance(value, int), "wrapper": made.number}
            for key, value in fields.items()
        ])

    # ---- forward

    def module_called(self, module):
        """Any module's forward is about to run. Called very often."""
        if self.busy or self.closed or self.depth_backward:
            return
        if self.torch.is_grad_enabled():
            self.called.add(module)
            if not self.inside and self.around is None:
                if isinstance(module, self.torch.nn.parallel.DistributedDataParallel):
                    self.forward_begins(module)
                elif module in self.owner_of:
                    self.forward_around(module)
            elif self.inside and isinstance(module, self.torch.nn.parallel.DistributedDataParallel):
                self.inside.clear()  # its last forward raised, and the program went on
                self.forward_begins(module)
        elif isinstance(module, self.torch.nn.parallel.DistributedDataParallel):
            self.forward_begins(module)
        else:
            self.called_quietly.add(module)

    def module_returned(self, module, output):
        if self.inside and isinstance(module, self.torch.nn.parallel.DistributedDataParallel):
            self.forward_ends(module, output)
        elif module is self.around:
            self.around = None

    @passive
    def forward_begins(self, wrapper):
        made = self.wrapper_of.get(wrapper)
        if made is None:
            return
        self.enter(native.FORWARD)
        if not self.torch.is_grad_enabled():
            self.token(f"E{made.number}")
            self.inside.append(made)
            return
        synchronizes = wrapper.require_backward_grad_sync
        self.inside.append(made)
        made.seen = True
        self.counts.through += 1
        self.token(f"F{made.number}{'+' if synchronizes else '-'}")
        made.armed = synchronizes
        self.site(f"forward {made.number}")
        if self.recorded():
            for module in self.tensors.follow(wrapper.module, made.number, made.accumulators):
                self.owner_of[module] = made
            self.tensors.describe()

    @passive
    def forward_ends(self, wrapper, output):
        made = self.inside.pop() if self.inside else None
        if made is None:
            return
        if self.torch.is_grad_enabled() and self.look_at_graph > 0:
            reached = set(graph.leaves(graph.tensors_in(output, self.torch)))
            self.in_output = reached if self.in_output is None else self.in_output | reached
        self.enter(native.BATCH)

    @passive
    def forward_around(self, module):
        made = self.owner_of.get(module)
        if not any(p.requires_grad for p in module.parameters()):
            return
        self.around = module
        made.seen = True
        self.counts.around += 1
        self.token(f"N{made.number}")
        self.site(f"forward-around {made.number}")

    # ---- backward

    @passive
    def backward_begins(self, tensors, keywords):
        self.depth_backward += 1
        if self.depth_backward > 1:
            self.token("R")  # reentrant: a checkpoint inside a backward
            return
        self.depth_step = 0
        self.inside.clear()
        self.around = None
        self.enter(native.BACKWARD)
        if isinstance(tensors, self.torch.Tensor):
            tensors = [tensors]
        if self.counts.backwards < FIRST_BACKWARDS:
            # Models that no wrapper has shown us, before their gradients arrive.
            self.tensors.add_parameters(list(graph.leaves(tensors).values()), anonymous=False)
        self.tensors.hook_trainable()
        self.targets = None
        self.counts.backwards += 1
        self.unwrapped_arrived = 0
        for made in self.wrappers:
            made.arrived = 0
            if not made.seen:
                wrapper = made.ref()
                made.armed = wrapper is not None and wrapper.require_backward_grad_sync
        # In step 1, of small models: enough to show that what was synchronized is the mean.
        self.keeps_gradients = self.number == 1 and 3 * 4 * sum(e.numel for e in self.parameters()) <= KEPT_VALUES // 4
        self.retained = bool(keywords.get("retain_graph") or keywords.get("create_graph"))
        self.site("backward")
        if self.recorded() and len(tensors) == 1 and tensors[0].numel() == 1:
            self.losses.append(float(tensors[0].detach()))
            self.fact("loss", "factor", round(graph.factor(tensors[0]), 9))

    def gradient_arrived(self, entry):
        """From inside autograd, once per parameter and backward."""
        if self.closed or os.getpid() != self.pid:
            return
        self.fresh = True
        entry.arrivals += 1
        entry.last_backward = self.counts.backwards
        if entry.index is None:
            self.unwrapped_arrived = 1
            if entry.wrapper is None:
                return
        made = self.wrappers[entry.wrapper] if entry.wrapper < len(self.wrappers) else None
        if made is None:
            return
        made.arrived += 1
        if made.armed and entry.index is not None and self.recorded():
            self.local_gradient(entry)

    def local_gradient(self, entry):
        begin = time.perf_counter_ns()
        try:
            parameter = entry.ref()
            if parameter is not None and parameter.grad is not None:
                what = native.DIGEST | native.SAMPLE | (native.KEEP if self.keeps_gradients else 0)
                self.tensors.observe(native.LOCAL, what, [(entry, parameter.grad)])
        except Exception as error:
            self.failed("local_gradient", error)
        finally:
            self.probe_ns += time.perf_counter_ns() - begin

    def parameters(self):
        return [e for e in self.tensors.entries if e.kind == "parameter"]

    @passive
    def backward_ends(self, raised):
        self.depth_backward = max(0, self.depth_backward - 1)
        if self.depth_backward > 0:
            return
        touched = [made for made in self.wrappers if made.arrived]
        synchronized = [made for made in touched if made.armed]
        if touched and not synchronized:
            self.counts.unsynchronized += 1
        self.token("B" + ",".join(f"{m.number}{'?' if not m.seen else '+' if m.armed else '-'}" for m in touched) + ("u" if self.unwrapped_arrived else "")
                   + ("r" if self.retained else ""))
        if raised:
            return
        if self.recorded():
            for made in synchronized:
                self.observe_gradients(native.REDUCED, [e for e in self.parameters() if e.wrapper == made.number and e.index is not None],
                                       native.KEEP if self.keeps_gradients else 0)
            if self.unwrapped_arrived:
                # Nothing reduces these during a backward. A few values are enough to see whether they are changed before somebody does.
                self.observe_gradients(native.LOCAL, [e for e in self.parameters() if e.index is None], what=native.SAMPLE)
        for made in synchronized:
            made.armed = False
        self.enter(native.BATCH)

    def observe_gradients(self, stage, entries, keep=0, what=native.DIGEST | native.SAMPLE):
        pairs = []
        for entry in entries:
            parameter = entry.ref()
            if parameter is not None and parameter.grad is not None:
                pairs.append((entry, parameter.grad))
        self.tensors.observe(stage, what | keep, pairs)

    @passive
    def gradients_by_hand(self, inputs):
        """torch.autograd.grad: no hook of a reducer fires in it."""
        if any(self.tensors.known(tensor) is not None for tensor in inputs if isinstance(tensor, self.torch.Tensor)):
            self.token("G")
            self.site("autograd.grad")

    # ---- hand-written collectives

    @passive
    def collective_begins(self, op, tensors, reduce, group):
        ranks = _ranks_of(self.torch, group) if group is not None else None
        whole = ranks is None or len(ranks) == self.world_size
        if self.depth_backward:
            moment = "backward"
        elif self.inside:
            moment = "forward"
        elif self.fresh:
            moment = "before-step"
        else:
            moment = "outside"
        numel = sum(t.numel() for t in tensors)
        self.before_collective = self.phase
        self.enter(native.IN_COLLECTIVE)
        self.counts.collectives += 1
        self.counts.bytes += sum(t.numel() * t.element_size() for t in tensors)
        target = self.target_of(tensors) if self.recorded() else ""
        if moment == "before-step" and not self.collective_seen and self.recorded():
            self.collective_seen = True
            self.observe_gradients(native.COLLECTIVE, self.parameters())
        self.token("C" + ("g" if target.startswith("gradient") else "w" if target.startswith("weight") else ""))
        if len(self.calls) >= MOST_CALLS:
            self.calls_dropped += 1
            return
        file, line, _ = places.place()
        call = {
            "op": op, "reduce": reduce, "dtype": str(tensors[0].dtype)[len("torch."):] if tensors else "", "numel": numel,
            "group": "" if whole else ",".join(map(str, ranks)), "moment": moment, "target": target, "file": file, "line": line,
            "count": 1,
        }
        if self.calls and all(self.calls[-1][key] == value for key, value in call.items() if key != "count"):
            self.calls[-1]["count"] += 1
        else:
            self.calls.append(call)

    def target_of(self, tensors):
        """Which gradient or weight is reduced, where it is one itself and not a copy."""
        if not tensors:
            return ""
        strided = self.torch.strided
        pointer = tensors[0].data_ptr() if tensors[0].layout is strided else 0
        if not pointer:
            return ""
        if self.targets is None:  # once per step: gradients may move from step to step
            self.targets = {}
            for entry in self.tensors.entries:
                tensor = entry.ref()
                if tensor is None:
                    continue
                gradient = tensor.grad if entry.kind == "parameter" else None
                self.targets[tensor.data_ptr()] = f"weight of {entry.name}"
                if gradient is not None and gradient.layout is strided:
                    self.targets[gradient.data_ptr()] = f"gradient of {entry.name}"
        return self.targets.get(pointer, "")

    @passive
    def collective_ends(self):
        self.enter(self.before_collective)

    # ---- optimizer

    def optimizer_begins(self, optimizer, arguments, keywords):
        """Returns the arguments to go on with: the closure, where there is one, is followed by a look at its gradients."""
        self.depth_step += 1
        if self.depth_step > 1:
            return None
        closure = keywords.get("closure") or (arguments[1] if len(arguments) > 1 and callable(arguments[1]) else None)
        self.step_begins(optimizer)
        if closure is None:
            self.gradients_ready(optimizer)
            return None

        @functools.wraps(closure)
        def observed(*a, **k):
            self.token("L")
            result = closure(*a, **k)
            self.gradients_ready(optimizer)
            return result

        if "closure" in keywords:
            return arguments, dict(keywords, closure=observed)
        return (arguments[0], observed) + tuple(arguments[2:]), keywords

    @passive
    def step_begins(self, optimizer):
        self.enter(native.OPTIMIZER)
        known = self.optimizer_of.get(optimizer)
        if known is None:
            known = self.optimizer_of[optimizer] = Optimizer(len(self.optimizers), optimizer)
            self.optimizers.append(known)
            self.fact(f"optimizer {known.number}", "type", type(optimizer).__name__)
        held = [p for group in optimizer.param_groups for p in group["params"]]
        identities = tuple(map(id, held))
        if identities != known.parameters:
            known.parameters = identities
            self.tensors.add_parameters(held, anonymous=True)
            self.tensors.hook_trainable()
            known.entries = [e for e in map(self.tensors.known, held) if e is not None]
            for other in self.optimizers:
                other.covered = None
            self.fact(f"optimizer {known.number}", "tensors", [e.id for e in known.entries])
            self.fact(f"optimizer {known.number}", "unknown", len(held) - len(known.entries))
        self.site(f"step {known.number}")
        groups = [
            {key: _plain(value) for key, value in group.items() if key != "params" and _plain(value) is not None}
            for group in optimizer.param_groups
        ]
        if groups != known.groups:
            known.groups = groups
            self.fact(f"optimizer {known.number}", "groups", groups)
        if not self.state_written:
            self.write_state()
        if self.recorded():
            pairs = [(e, e.ref()) for e in known.entries if e.ref() is not None]
            self.tensors.observe(native.WEIGHT_BEFORE, native.SAMPLE, pairs)

    def write_state(self):
        """Weights and buffers as training begins: step 0."""
        self.state_written = True
        self.tensors.describe()
        self.record.swap()  # what was seen of step 1 so far must not go into step 0's row
        for kind, stage in (("parameter", native.WEIGHT), ("buffer", native.BUFFER)):
            pairs = [(e, e.live()) for e in self.tensors.entries if e.kind == kind and e.live() is not None]
            self.tensors.observe(stage, native.DIGEST | native.SAMPLE | (native.KEEP if kind == "parameter" else 0), pairs)
        self.record.step({"step": 0, "started_ns": self.started_ns})
        self.record.swap()

    def covered(self, known):
        """The optimizer's parameters, and those beside them (in its wrappers) that no optimizer holds."""
        if known.covered is None or known.covered_of != len(self.tensors.entries):
            known.covered_of = len(self.tensors.entries)
            held = {e.id for e in known.entries}
            wrappers = {e.wrapper for e in known.entries}
            elsewhere, alone = self.held_by_others(held)
            known.covered = [
                e for e in self.tensors.entries
                if e.kind == "parameter"
                and (e.id in held or ((alone or e.wrapper in wrappers) and e.id not in elsewhere))
            ]
        return known.covered

    def held_by_others(self, held):
        """ids of entries that optimizers hold, or held, beside the one that holds `held`, stepped or not; and whether there is none."""
        elsewhere = {e.id for other in self.optimizers for e in other.entries}
        for thing in gc.get_objects():
            if issubclass(type(thing), self.torch.optim.Optimizer) and "param_groups" in vars(thing):
                entries = (self.tensors.known(p) for group in thing.param_groups for p in group["params"])
                elsewhere |= {e.id for e in entries if e is not None}
        elsewhere -= held
        return elsewhere, not elsewhere

    @passive
    def gradients_ready(self, optimizer):
        known = self.optimizer_of.get(optimizer)
        if known is not None and self.recorded():
            self.observe_gradients(native.GRADIENT, self.covered(known), native.KEEP if self.keeps_gradients else 0)

    def optimizer_ends(self, optimizer):
        self.depth_step = max(0, self.depth_step - 1)
        if self.depth_step == 0:
            self.step_ends(optimizer, False)

    @passive
    def step_ends(self, optimizer, skipped):
        known = self.optimizer_of.get(optimizer)
        if known is None:
            return
        now = time.perf_counter_ns()
        probe_ns, self.probe_ns = self.probe_ns, 0
        self.enter(native.RECORDING)
        covered = self.covered(known)
        examined = self.recorded() and bool(covered)
        counts, before = self.counts, known.begin
        window = self.trace[max(0, known.trace_begin - self.trace_dropped):]
        row = {
            "step": self.number, "started_ns": self.started_ns, "duration_ns": max(0, now - self.step_began - probe_ns),
            "probe_ns": probe_ns, "backwards": counts.backwards - before.backwards,
            "unsynchronized_backwards": counts.unsynchronized - before.unsynchronized,
            "forwards_through_wrapper": counts.through - before.through, "forwards_around_wrapper": counts.around - before.around,
            "collectives": counts.collectives - before.collectives, "collective_bytes": counts.bytes - before.bytes,
            "optimizer": known.number, "examined": examined, "skipped": skipped, "scale": self.scale,
            "trace": _spell(window), "calls": self.calls,
        }
        if self.losses:
            row["loss"] = _number(sum(self.losses) / len(self.losses))
        if examined:
            row["usages"] = self.usages(known, covered, before)
            pairs = [(e, e.ref()) for e in covered if e.ref() is not None]
            self.tensors.observe(native.WEIGHT, native.DIGEST | native.SAMPLE | native.KEEP, pairs)
            self.observe_buffers()
            self.last_examined = self.number
            if self.number == self.wanted:
                self.leave_values(covered)
        row["probe_ns"] += time.perf_counter_ns() - now
        self.record.step(row)
        self.last_step = row
        self.token(f"S{known.number}")
        self.close_window(known, covered)
        if self.number == 3:
            for made in self.wrappers:
                self.ddp_fields(made, "runtime")
        self.number += 1
        self.wanted = self.record.wanted_step()
        self.enter(native.BATCH)
        self.step_began = time.perf_counter_ns()
        self.started_ns = time.time_ns()
        # What this function took is neither the program's time nor the next step's examination.
        self.probe_ns = -(time.perf_counter_ns() - now)

    def leave_values(self, covered):
        """The watcher saw that replicas differ, and asks for the values of the parameters concerned."""
        with open(os.path.join(self.folder, "values.json"), encoding="utf-8") as request:
            request = json.load(request)
        names, room, pairs = set(request["parameters"]), request["elements"], []
        for entry in covered:
            parameter = entry.ref()
            if entry.name in names and parameter is not None and entry.numel <= room:
                room -= entry.numel
                pairs.append((entry, parameter))
        if request["step"] == self.number:
            self.tensors.observe(native.WEIGHT, native.KEEP_WANTED, pairs)

    def observe_buffers(self):
        pairs = [(e, e.live()) for e in self.tensors.entries if e.kind == "buffer" and e.live() is not None]
        self.tensors.observe(native.BUFFER, native.DIGEST, pairs)

    def close_window(self, known, covered):
        for entry in covered:
            entry.arrivals_at_step = entry.arrivals
        known.begin = Counts(self.counts)
        known.trace_begin = self.trace_dropped + len(self.trace)
        keep_from = min(o.trace_begin for o in self.optimizers)
        while self.trace and (self.trace_dropped < keep_from or len(self.trace) > MOST_TOKENS):
            self.trace.pop(0)
            self.trace_dropped += 1
        self._begin_window()
        self.called.clear()
        self.called_quietly.clear()
        self.in_output = None
        if self.look_at_graph > 0:
            self.look_at_graph -= 1

    def usages(self, known, covered, before):
        held = {e.id for e in known.entries}
        # A reduction, or a hand-written collective, gives other ranks' gradients to a parameter that was not used here.
        shared = self.counts.through > before.through or self.counts.collectives > before.collectives
        rows = []
        unused = []
        for entry in covered:
            if not entry.trainable and entry.arrivals == 0:
                parameter = entry.ref()
                if parameter is None or not parameter.requires_grad:
                    continue
            arrivals = entry.arrivals - entry.arrivals_at_step
            if entry.since > before.backwards:
                continue  # found in this step: what it got before that is not known
            parameter = entry.ref()
            reached = in_output = None
            if arrivals:
                reached = in_output = 1
            else:
                unused.append(entry.id)
                reached, in_output = self.how_far(entry, parameter)
            rows.append([
                entry.id, int(arrivals > 0), reached, in_output,
                int(entry.trainable and parameter is not None and not parameter.requires_grad), arrivals,
                max(0, entry.last_backward - before.backwards), int(entry.replaced), int(entry.id in held),
                int(arrivals == 0 and not shared and parameter is not None and parameter.grad is not None and self.grad_assigned(parameter)),
            ])
        if unused != self.unused_before:
            if self.unused_before is not None:
                self.look_at_graph = GRAPH_STEPS
            self.unused_before = unused
        return rows

    def grad_assigned(self, parameter):
        """A gradient that no backward of this step made: not the zeros that zero_grad left."""
        return bool(parameter.grad.detach().ne(0).any()) if parameter.grad.layout is self.torch.strided else True

    def how_far(self, entry, parameter):
        """Did a module that is known to read this parameter run, and does an output depend on it? None: cannot be told."""
        in_output = None
        if self.in_output is not None and parameter is not None:
            in_output = int(id(parameter) in self.in_output)
        module = entry.module() if entry.module is not None else None
        if module is None:
            return None, in_output
        if module in self.called:
            # Torch's own layers read all their parameters when they run.
            reached = 1 if type(module).__module__.startswith("torch.nn.modules") or in_output else None
        elif module in self.called_quietly:
            reached, in_output = 1, 0
        else:
            reached = in_output if in_output else 0
        return reached, in_output

    # ---- scaler, sampler

    @passive
    def scaler_steps(self, scaler, optimizer):
        scale = getattr(scaler, "_scale", None)
        if getattr(scaler, "_enabled", True) and scale is not None:
            self.site("scaler")
            if scale.device.type == "cpu" or self.recorded():  # no waiting for a GPU in between
                self.scale = float(scale.detach())

    def scaler_stepped(self, scaler, optimizer, steps_before):
        """A scaler that found infinite gradients leaves the optimizer's step out: a step all the same, on every rank."""
        if self.number == steps_before and getattr(scaler, "_enabled", True):
            self.step_begins(optimizer)
            self.gradients_ready(optimizer)
            self.step_ends(optimizer, True)

    @passive
    def sampler_iterates(self, sampler):
        subject = self.subject("sampler", sampler)
        count = self.facts.get((subject, "passes"), 0) + 1
        self.site(subject)
        self.fact(subject, "shuffle", bool(getattr(sampler, "shuffle", False)))
        self.fact(subject, "replicas", [getattr(sampler, "rank", None), getattr(sampler, "num_replicas", None)])
        self.fact(subject, "passes", count)
        self.fact(subject, "pass", [count, getattr(sampler, "epoch", None), self.counts.backwards])

    # ---- the end

    @passive
    def last_look(self):
        """The final weights, if the last step was not examined."""
        last = self.number - 1
        if self.last_examined >= last or self.last_step is None:
            return
        pairs = [(e, e.ref()) for e in self.parameters() if e.trainable and e.ref() is not None]
        if not pairs:
            return
        self.record.forget()
        self.tensors.observe(native.WEIGHT, native.DIGEST | native.SAMPLE | native.KEEP_LAST, pairs)
        self.observe_buffers()
        self.record.step(dict(self.last_step, examined=True))
        self.last_examined = last

    @passive
    def group_destroyed(self):
        """The usual last act of a program, while its model is still there."""
        self._finish_fields()

    def _finish_fields(self):
        for made in self.wrappers:
            self.ddp_fields(made, "runtime")

    @passive
    def program_raised(self, kind, error, trace):
        if self.raised:
            return
        self.raised = True
        text = "".join(traceback.format_exception(kind, error, trace))
        self.event("error", text[-16000:])

    def finish(self):
        """The interpreter, or the worker function of a spawned process, has come to its end."""
        global current
        if self.closed or os.getpid() != self.pid:
            return
        self.last_look()
        self.group_destroyed()
        try:
            if not self.raised:
                self.enter(native.FINISHED)
                self.event("end", "")
            self.enter(native.FINISHED)
            self.closed = True
            self.record.close()
            note.update(steps=self.number - 1)
        except Exception:
            self.closed = True
        current = None


def begin(torch):
    """The process group is there: this process is a rank."""
    global current
    distributed = torch.distributed
    if current is not None and current.pid == os.getpid():
        return
    current = None
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    note.update(distributed=True, rank=rank, world_size=world_size)
    try:
        session = Session(torch, os.environ["DDP_DOCTOR_RECORD"], rank, world_size, str(distributed.get_backend()))
    except Exception as error:
        print(f"ddp-doctor: rank {rank} is not examined: {error}", file=sys.stderr)
        return
    current = session
    multiprocessing_util.Finalize(None, session.finish, exitpriority=0)
    before = sys.excepthook

    def excepthook(kind, error, trace):
        session.program_raised(kind, error, trace)
        before(kind, error, trace)

    sys.excepthook = excepthook


def _reducer_indices(module, ignored=()):
    """id(parameter) -> its index in the reducer, the one that PyTorch's errors print: parameters that require gradients, in the order of
    named_modules, each once."""
    indices = {}
    for prefix, owner in module.named_modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None and parameter.requires_grad and f"{prefix}.{name}" not in ignored:
                indices.setdefault(id(parameter), len(indices))
    return indices


def _ranks_of(torch, group):
    c10d = torch.distributed.distributed_c10d
    if group is None or group is getattr(c10d.group, "WORLD", None):
        return list(range(torch.distributed.get_world_size()))
    table = c10d._world.pg_group_ranks if hasattr(c10d, "_world") else c10d._pg_group_ranks
    return sorted(table[group]) if group in table else list(range(torch.distributed.get_world_size()))


def _plain(value):
    """A hyper-parameter as JSON can hold it; None for what is none."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "numel") and value.numel() == 1 and value.device.type == "cpu":
        return _number(float(value))
    return None


def _number(value):
    """JSON knows neither NaN nor infinity."""
    return value if math.isfinite(value) else str(value)


def _spell(window):
    tokens = [text if count == 1 else f"{text}*{count}" for text, count in window[-MOST_TOKENS:]]
    return ("... " if len(window) > MOST_TOKENS else "") + " ".join(tokens)
