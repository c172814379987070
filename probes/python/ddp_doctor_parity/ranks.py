# SPDX-License-Identifier: BSD-3-Clause
"""The ranks' run: keeps what the reference needs of the first steps, and of a few in which the ranks' batches have different shapes; then ends.

By rank and step a file, rank-R/step-K.pt; ranks.json says the rest. No rank waits for another before the end."""
import collections
import contextlib
import functools
import hashlib
import json
import mmap
import os
import random
import struct
import sys
import time

from . import Impossible, nested, seams, tensors

UNEVEN = 2  # further steps with batches of different shapes
SCANNED_STEPS = 200
SCANNED_SECONDS = 20.0
SLOTS = 64
MOST_STATE = 256 << 20  # bytes of tensors that no optimizer holds; more of them are frozen weights
LINGER = 10.0  # seconds that a rank waits for the others before it exits


class Shapes:
    """What each rank's batch looked like, by step, and the step before which all are to end: in memory that the ranks share."""

    def __init__(self, path, rank, world_size):
        self.rank, self.world_size = rank, world_size
        size = 8 + 16 * SLOTS * world_size
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(file, size)
        self.memory = mmap.mmap(file, size)
        os.close(file)

    def _at(self, rank, step):
        return 8 + 16 * (rank * SLOTS + step % SLOTS)

    def put(self, step, text):
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
        struct.pack_into("<qq", self.memory, self._at(self.rank, step), step, number)

    def differ(self, step):
        seen = [struct.unpack_from("<qq", self.memory, self._at(rank, step)) for rank in range(self.world_size)]
        return len({number for known, number in seen if known == step}) > 1

    @property
    def end(self):
        return struct.unpack_from("<q", self.memory, 0)[0]

    @end.setter
    def end(self, step):
        struct.pack_into("<q", self.memory, 0, step)


class Ranks(seams.Watcher):
    def __init__(self, torch, folder):
        self.torch, self.folder = torch, folder
        self.rank, self.world_size = int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
        self.wanted = int(os.environ.get("DDP_DOCTOR_PARITY_STEPS") or 3)
        self.budget = int(os.environ.get("DDP_DOCTOR_PARITY_BUDGET") or 0) or 4 << 30
        self.mine = os.path.join(folder, f"rank-{self.rank:05}")
        os.makedirs(self.mine, mode=0o700, exist_ok=True)
        self.shapes = Shapes(os.path.join(folder, "shapes"), self.rank, self.world_size)
        self.optimizers = []  # in the order in which they were made
        self.stepped = []  # numbers of those that stepped, in order
        self.number = 1  # of the current step
        self.interval = collections.defaultdict(list)  # what passed since the last step: stream -> items
        self.earlier = collections.deque(maxlen=4)  # (step, interval) before this one
        self.losses, self.outputs, self.clipped = [], [], {}
        self.draws = {True: [], False: []}  # what torch drew at random since the last step: inside of forwards and backwards, and outside
        self.totals = []  # (place in the program, what was counted over the ranks there, or None), in order
        self.hooked = set()  # ids of parameters
        self.local = {}  # id of a parameter -> what backwards gave it since its last step, before any reduction
        self.states = {}  # (type of a module, name of a tensor in it) -> what no optimizer holds, at its first forward in this step
        self.frozen = {}  # type of a module -> fingerprint of the weights in it that no optimizer holds, in the first step
        self.known = set()  # modules whose state was kept in this step
        self.names = {}
        self.lengths = {}  # number of a DataLoader -> batches in an epoch of it, where the program asked
        self.captured, self.uneven, self.scan_begins = [], [], 0.0
        self.written = 0  # bytes, within the budget
        self.signature = ""
        self.random_state, self.random = None, set()
        self.low_precision = False
        self.exchanged = False  # activations: each rank may hold a part of the model
        self.over = False
        self.impossible = None

    def failed(self, where, error):
        self.impossible = self.impossible or f"the samples could not be kept ({where}: {type(error).__name__}: {error})"

    # ---- what passes

    def loader_begins(self, number, original):
        self._random("between the batch and the optimizer step")
        iterator = original()
        if self.random_state is not None:
            self.random_state = self._state()  # the order of an epoch belongs to the batches
        return iterator

    def loader_length(self, number, original):
        self.lengths[number] = original()
        return self.lengths[number]

    def loader_next(self, loader, original):
        self._random("between the batch and the optimizer step")
        batch = original()
        self._keep(("batch", *loader), batch)
        self.random_state = self._state()
        return batch

    def forward_begins(self, module, args, kwargs):
        self._random("between the batch and the optimizer step")
        if self.random_state is None:
            self.random_state = self._state()
        self._keep_state(module)
        self._hook(module)
        self._keep(("inputs",), nested.arguments(args, kwargs))
        self._trace(module, (args, kwargs))
        return args, kwargs

    @seams.careful
    def quiet_forward(self, module):
        self._keep_state(module)

    @seams.careful
    def _keep_state(self, module):
        if module in self.known or not self.optimizers or self.number > self.wanted + 1 and not self.states:
            return
        self.known.add(module)
        state = state_of(module, self.optimizers)
        if sum(tensor.numel() * tensor.element_size() for tensor in state.values()) <= MOST_STATE:
            self.states.update({key: tensors.kept(self.torch, tensor) for key, tensor in state.items()})
            weights = [tensor for tensor in state.values() if isinstance(tensor, self.torch.nn.Parameter)]
            if weights and len(self.captured) == 0:
                self.frozen[type(module).__name__] = fingerprint(weights)

    @seams.careful
    def _hook(self, module):
        """Where no DataLoader gives batches, one process may not be given the samples of a single rank: what these contribute is kept here."""
        if self.number > self.wanted or any(stream[0] == "batch" for stream in self.interval):
            return
        for parameter in module.parameters():
            if type(parameter) is self.torch.nn.Parameter and parameter.requires_grad and id(parameter) not in self.hooked:
                self.hooked.add(id(parameter))
                parameter.register_hook(functools.partial(self._arrives, id(parameter)))

    @seams.careful
    def _arrives(self, parameter, gradient):
        if self.number <= self.wanted:
            added = tensors.kept(self.torch, gradient)
            self.local[parameter] = self.local[parameter] + added if parameter in self.local else added

    @seams.careful
    def _trace(self, module, inputs):
        self.signature += nested.signature(inputs)
        self.shapes.put(self.number, self.signature)
        self.names = {id(inner): name for name, inner in module.named_modules()}
        self.first_output = not self.outputs
        if self.first_output:
            self.outputs += input_norms(inputs)

    @seams.careful
    def forward_ends(self, module, output):
        self._random(f"in the forward of {type(module).__name__}")

    @seams.careful
    def inner_output(self, module, output):
        self._random(f"in the forward of {type(module).__name__}")
        if self.first_output and isinstance(output, self.torch.Tensor) and output.is_floating_point() and output.dim() > 0:
            self.low_precision = self.low_precision or output.dtype in (self.torch.float16, self.torch.bfloat16)
            if not any(True for _ in module.children()):
                name = plain(self.names.get(id(module), ""))
                self.outputs.append((name, type(module).__name__, row_norms(output)))

    def target(self, given):
        self._random("between the batch and the optimizer step")
        self._keep(("targets",), nested.arguments(given, {}))
        return given

    @seams.careful
    def total(self, place, values, times):
        self.totals.append((place, self._count_of(values, times)))

    def _count_of(self, values, times):
        """Of tokens, samples or boxes, over the ranks; None of other numbers, of gradients, and of the ranks themselves, as of those with a batch."""
        if times is None or (self.losses and values[0].numel() > 1):
            return None
        value = sum(each.detach().double().cpu() for each in values) * times
        return value if (value == value.round()).all() and value.min() >= 0 and value.max() > self.world_size else None

    @seams.careful
    def loss(self, roots):
        self.losses.append(sum(float(root.detach().float().sum()) for root in roots if root.numel() == 1))

    @seams.careful
    def clips(self, parameters):
        for parameter in parameters:
            if parameter.grad is not None and id(parameter) not in self.clipped:
                self.clipped[id(parameter)] = tensors.kept(self.torch, parameter.grad)

    def exchanges(self):
        self.exchanged = True

    def optimizer_made(self, optimizer):
        self.optimizers.append(optimizer)

    # ---- steps

    @seams.careful
    def step_begins(self, optimizer):
        if self.over:
            return
        if self.shapes.end and self.number >= self.shapes.end:
            self._finish()
        self._random("between the batch and the optimizer step")
        step = self.number
        self.stepped.append(self._number_of(optimizer))
        self.wanted = max(self.wanted, len(set(self.stepped)))  # at least one step of each
        differ = self.shapes.differ(step)
        try:
            if step <= self.wanted or (differ and len(self.uneven) < UNEVEN and len(self.stepped) > 1):
                self._capture(optimizer)
                if step > self.wanted:
                    self.uneven.append(step)
        except Impossible as reason:
            self.impossible = str(reason)
        if step == self.wanted:
            self.scan_begins = time.monotonic()
        scanned = step >= self.wanted and (
            len(self.uneven) >= UNEVEN or step >= SCANNED_STEPS or time.monotonic() - self.scan_begins > SCANNED_SECONDS)
        self._tell()
        # Where nothing can be compared, the ranks' own run is still judged, which takes a few steps.
        if self.rank == 0 and not self.shapes.end and (scanned or (self.impossible and step >= self.wanted)):
            self.shapes.end = step + 1
        self.earlier.append((step, self.interval))
        self.interval = collections.defaultdict(list)
        self.number += 1
        self.losses, self.outputs, self.clipped, self.states, self.signature, self.totals = [], [], {}, {}, "", []
        self.draws = {True: [], False: []}
        self.known = set()

    def _number_of(self, optimizer):
        if not any(known is optimizer for known in self.optimizers):
            self.optimizers.append(optimizer)
        return next(i for i, known in enumerate(self.optimizers) if known is optimizer)

    def _capture(self, optimizer):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradient = [self.clipped[id(p)] if id(p) in self.clipped else tensors.kept(self.torch, p.grad) for p in parameters]
        weights = [[tensors.kept(self.torch, p) for group in each.param_groups for p in group["params"]] for each in self.optimizers]
        mine = self.rank == 0
        all_of_it = mine or self.exchanged
        content = {
            "intervals": [*self.earlier, (self.number, self.interval)],
            "gradient": [g if all_of_it or tensors.is_part(g) or _is_piece(p) else None for g, p in zip(gradient, parameters)],
            "marks": [None if g is None or tensors.is_part(g) or _is_piece(p) else tensors.mark(g) for g, p in zip(gradient, parameters)],
            "weights": [[w if all_of_it or tensors.is_part(w) or (w is not None and w.dim() <= 1) else None for w in each] for each in weights],
            "names": self._names(parameters) if mine else None,
            "losses": self.losses, "totals": self.totals, "outputs": self.outputs, "states": self.states if mine else None, "draws": self.draws,
        }
        content["intervals"] = [(step, dict(streams)) for step, streams in content["intervals"]]
        local = {"local": [self.local.pop(id(p), None) for p in parameters] if self.hooked else None}
        if self.written + _bytes_of(content) + _bytes_of(local) > self.budget:
            local = {"local": None}  # differences are seen as well, if not what causes them
        content.update(local)
        size = _bytes_of(content)
        if self.written + size > self.budget:
            if not self.captured:
                raise Impossible(f"the batches, gradients and weights of one step take {-(-size >> 20)} MiB; allow more with --budget")
            return
        self.written += size
        path = os.path.join(self.mine, f"step-{self.number:05}.pt")
        self.torch.save(content, path + ".new")
        os.replace(path + ".new", path)
        self.captured.append(self.number)

    def _names(self, parameters):
        from ddp_doctor_probe import session

        here = session.current
        if here is not None:
            here.tensors.add_parameters(parameters, anonymous=True)
        known = [here.tensors.known(p) if here is not None else None for p in parameters]
        return [entry.name if entry is not None else f"parameter{i}" for i, entry in enumerate(known)]

    @seams.careful
    def _keep(self, stream, item):
        keep = lambda t, path: nested.Derived() if t.requires_grad else t.detach().to("cpu", copy=True)
        self.interval[stream].append(nested.mapped(item, keep))

    # ---- randomness

    def _state(self):
        numpy = sys.modules.get("numpy")
        untransformed = getattr(self.torch._C, "_DisableFuncTorch", None)  # within torch.func's transforms new tensors have no storage
        with untransformed() if hasattr(untransformed, "__enter__") else contextlib.nullcontext():
            state = [bytes(self.torch.random.get_rng_state().numpy()), random.getstate()]
            if self.torch.cuda.is_available() and self.torch.cuda.is_initialized():
                state.append(bytes(self.torch.cuda.get_rng_state().numpy()))
        if numpy is not None and hasattr(numpy, "random"):
            generator = numpy.random.get_state()
            state.append((bytes(generator[1]), generator[2]))
        return state

    @seams.careful
    def _random(self, where):
        """Whether random numbers were drawn since the last look. Until an optimizer is made, they are those of initial weights."""
        if self.random_state is not None and self.number <= self.wanted:
            now = self._state()
            if now != self.random_state:
                if self.optimizers:
                    self.random.add(where)
                self.random_state = now

    def draw_begins(self, inside):
        self._random("in a forward" if inside else "between the batch and the optimizer step")

    @seams.careful
    def draw_ends(self, name, value, inside):
        """This draw is known, and given to the reference."""
        if self.random_state is None or not self.optimizers or self.over:
            return
        self.draws[inside].append(value.detach().to("cpu", copy=True))
        if self.number <= self.wanted:
            self.random_state = self._state()

    # ---- the end

    def _tell(self):
        content = {
            "captured": self.captured, "uneven": self.uneven, "stepped": self.stepped[:1000], "world_size": self.world_size,
            "random": sorted(self.random), "low_precision": self.low_precision,
            "impossible": self.impossible, "frozen": self.frozen, "lengths": self.lengths,
        }
        path = os.path.join(self.mine, "ranks.json")
        with open(path + ".new", "w", encoding="utf-8") as out:
            json.dump(content, out)
        os.replace(path + ".new", path)

    def _finish(self):
        """All ranks have seen enough: none of them is left waiting for another in a collective."""
        from ddp_doctor_probe import session

        self.over = True
        if session.current is not None:
            session.current.finish()
        open(os.path.join(self.mine, "done"), "w").close()
        deadline = time.monotonic() + LINGER
        others = [os.path.join(self.folder, f"rank-{rank:05}", "done") for rank in range(self.world_size)]
        while time.monotonic() < deadline and not all(map(os.path.exists, others)):
            time.sleep(0.01)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def plain(name):
    """Without what wrappers put before and into a name."""
    return ".".join(part for part in name.split(".") if part not in ("module", "_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"))


def state_of(module, optimizers):
    """The tensors of a module that no optimizer holds, by what they are called: buffers, frozen weights, a teacher's."""
    held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    kind = type(getattr(module, "module", module)).__name__
    named = [*module.named_parameters(), *module.named_buffers()]
    is_lazy = lambda tensor: hasattr(tensor, "materialize")  # of a module that has not yet seen its inputs
    return {(kind, plain(name)): tensor for name, tensor in named if id(tensor) not in held and not is_lazy(tensor)}


def fingerprint(weights):
    digest = hashlib.blake2b(digest_size=16)
    for tensor in weights:
        digest.update(tensor.detach().cpu().double().sum().numpy().tobytes())
        digest.update(str(tuple(tensor.shape)).encode())
    return digest.hexdigest()


def input_norms(inputs):
    """Of each tensor that an outermost forward gets."""
    return [(path, "input", row_norms(tensor)) for path, tensor in nested.tensors_of(inputs) if tensor.dim() > 0 and tensor.numel() > 0]


def _bytes_of(item):
    """Of all tensors in what is written."""
    return sum(tensor.numel() * tensor.element_size() for _, tensor in nested.tensors_of(item))


def _is_piece(parameter):
    """It may be one rank's piece of a flat parameter."""
    return parameter.dim() <= 1


def row_norms(output):
    """The norm of each sample's output."""
    rows = output.detach().double()
    return (rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)).norm(dim=1).cpu()
