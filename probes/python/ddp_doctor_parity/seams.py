# SPDX-License-Identifier: BSD-3-Clause
"""The places in torch where a training step's data pass, and what is switched off because it is random."""
import functools
import importlib
import inspect
import sys
import threading
import weakref

from . import draws

DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
STOCHASTIC_DEPTH = ("DropPath", "StochasticDepth")  # modules that drop a residual branch by chance
LOSSES = (
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "ctc_loss", "gaussian_nll_loss",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
    "triplet_margin_loss",
)
EXCHANGES = (
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "reduce_scatter", "reduce_scatter_tensor",
)
FEW = 16  # numbers: counts of samples, tokens or boxes, and no gradients
CLASS_WEIGHTS = ("cross_entropy", "multilabel_soft_margin_loss", "nll_loss")  # (input, target, weight)


class Watcher:
    """What both runs are told. Methods that get data return what the program is to get in its place."""

    def loader_begins(self, number, original):
        """The `number`th DataLoader, by first use, makes an iterator, for which it may draw random numbers."""
        return original()

    def loader_length(self, number, original):
        """The `number`th DataLoader that was made is asked for its number of batches."""
        return original()

    def loader_next(self, number, original):
        """The `number`th DataLoader, by first use, is asked for a batch."""
        return original()

    def forward_begins(self, module, args, kwargs):
        """Of an outermost module with parameters, while gradients are computed."""
        return args, kwargs

    def forward_ends(self, module, output):
        pass

    def inner_output(self, module, output):
        """A module inside an outermost forward returned."""

    def quiet_forward(self, module):
        """Another outermost forward begins: of a teacher, of an evaluation, of a loss."""

    def target(self, tensors):
        """Tensors without gradients that a loss function, called outside of any module, gets beside its input."""
        return tensors

    def draw_begins(self, inside):
        """torch is about to draw random numbers; `inside`: in a forward or backward."""

    def draw_ends(self, name, value, inside):
        """It drew this tensor by the function `name`. What is written into it, the program gets."""

    def total(self, place, values, times):
        """Ranks reduced or gathered a few numbers, outside of any forward and backward, at a `place` of the program: the sum over the ranks is `times`
        the sum of `values`; None if it is not. What is written into the first of them, the program gets."""

    def exchanges(self):
        """Ranks exchange activations or their gradients, by a collective in a forward or backward: they may hold parts of a model."""

    def loss(self, roots):
        """A backward begins."""

    def clips(self, parameters):
        """Gradients are about to be clipped."""

    def optimizer_made(self, optimizer):
        pass

    def step_begins(self, optimizer):
        """The gradients of the step are there; of one with a closure, each time that it was called."""


def install(torch, watcher):
    depth = _Depth()
    _without_dropout(torch)
    _loaders(torch, watcher, depth)
    _modules(torch, watcher, depth)
    _losses(torch, watcher, depth)
    _totals(torch, watcher, depth)
    _exchanges(torch, watcher, depth)
    _backward(torch, watcher, depth)
    _clipping(torch, watcher)
    _optimizers(torch, watcher)
    draws.watch(torch, watcher, depth)


def one_rank(torch):
    """A process group whose number of ranks the program says itself, as in imagenet's --world-size 2, has one rank all the same."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    signature = inspect.signature(distributed.init_process_group)

    def make(original):
        def init_process_group(*args, **kwargs):
            given = signature.bind(*args, **kwargs)
            if given.arguments.get("world_size", -1) > 1:
                given.arguments.update(world_size=1, rank=0)
            return original(*given.args, **given.kwargs)

        return init_process_group

    for module in distributed, distributed.distributed_c10d:
        _wrap(module, "init_process_group", make)


def any_order(torch):
    """Sentences that each rank sorted by their length are not sorted when joined."""

    def make(original):
        signature = inspect.signature(original)

        def pack_padded_sequence(*args, **kwargs):
            given = signature.bind(*args, **kwargs)
            given.arguments["enforce_sorted"] = False
            return original(*given.args, **given.kwargs)

        return pack_padded_sequence

    _wrap(torch.nn.utils.rnn, "pack_padded_sequence", make)


def _wrap(owner, name, make):
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(make(original)))


def _without_dropout(torch):
    functional = torch.nn.functional

    def identity(original):
        def dropout(input, *args, **kwargs):
            return input

        return dropout

    for name in DROPOUTS:
        _wrap(functional, name, identity)

    def attention(original):
        def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
            return original(query, key, value, attn_mask, 0.0, *args, **kwargs)

        return scaled_dot_product_attention

    _wrap(functional, "scaled_dot_product_attention", attention)

    def recurrent(original):
        def forward(self, *args, **kwargs):
            rate, self.dropout = self.dropout, 0.0
            try:
                return original(self, *args, **kwargs)
            finally:
                self.dropout = rate

        return forward

    for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU):
        _wrap(kind, "forward", recurrent)


def _loaders(torch, watcher, depth):
    from torch.utils.data import dataloader

    def loading(original, loader):
        depth.loading += 1
        try:
            return original(loader)
        finally:
            depth.loading -= 1

    numbers = weakref.WeakKeyDictionary()  # by first use
    made = weakref.WeakKeyDictionary()

    def constructs(original):
        def __init__(self, *args, **kwargs):
            made.setdefault(self, len(made))
            original(self, *args, **kwargs)

        return __init__

    def length(original):
        def __len__(self):
            return watcher.loader_length(made.get(self, -1), functools.partial(original, self))

        return __len__

    def begins(original):
        def __iter__(self):
            iterator = watcher.loader_begins(numbers.setdefault(self, len(numbers)), functools.partial(loading, original, self))
            try:
                iterator._ddp_doctor_loader = (numbers[self], self.batch_size or getattr(self.batch_sampler, "batch_size", None))
            except AttributeError:
                pass
            return iterator

        return __iter__

    def takes(original):
        def __next__(self):
            number, size = getattr(self, "_ddp_doctor_loader", (None, None))
            if number is None or not torch.is_grad_enabled():
                return loading(original, self)
            return watcher.loader_next((number, size), functools.partial(loading, original, self))

        return __next__

    _wrap(dataloader.DataLoader, "__init__", constructs)
    _wrap(dataloader.DataLoader, "__len__", length)
    _wrap(dataloader.DataLoader, "__iter__", begins)
    _wrap(dataloader._BaseDataLoaderIter, "__next__", takes)


def careful(method):
    """What goes wrong in it is not the program's: watcher.failed decides."""

    @functools.wraps(method)
    def observe(self, *args):
        try:
            return method(self, *args)
        except Exception as error:
            return self.failed(method.__name__, error)

    return observe


class _Depth(threading.local):
    """Of this thread, in forwards, backwards and DataLoaders."""

    forward = backward = loading = 0


def _modules(torch, watcher, depth):
    def call(original):
        def __call__(self, *args, **kwargs):
            if depth.backward or threading.current_thread() is not threading.main_thread():
                return original(self, *args, **kwargs)
            if not torch.is_grad_enabled():
                if depth.forward == 0:
                    watcher.quiet_forward(self)
                depth.forward += 1
                try:
                    return original(self, *args, **kwargs)
                finally:
                    depth.forward -= 1
            if type(self).__name__ in STOCHASTIC_DEPTH and args:
                return args[0]
            outermost = depth.forward == 0 and any(True for _ in self.parameters())
            if depth.forward == 0 and not outermost:
                watcher.quiet_forward(self)  # a loss, which may have buffers
            if outermost:
                args, kwargs = watcher.forward_begins(self, args, kwargs)
            inside = outermost or depth.forward > 0
            depth.forward += inside
            try:
                output = original(self, *args, **kwargs)
            finally:
                depth.forward -= inside
            if outermost:
                watcher.forward_ends(self, output)
            elif inside:
                watcher.inner_output(self, output)
            return output

        return __call__

    _wrap(torch.nn.Module, "__call__", call)


def _losses(torch, watcher, depth):
    def make(name, original):
        def is_data(value, place):
            """Of samples, and not weights of classes."""
            if not isinstance(value, torch.Tensor) or value.requires_grad:
                return False
            return place != "pos_weight" and not (place in (1, "weight") and name in CLASS_WEIGHTS)

        def loss(input, *args, **kwargs):
            if depth.forward or depth.backward or not isinstance(input, torch.Tensor) or not input.requires_grad:
                return original(input, *args, **kwargs)
            at = [i for i, a in enumerate(args) if is_data(a, i)]
            named = [n for n in sorted(kwargs) if is_data(kwargs[n], n)]
            given = watcher.target([args[i] for i in at] + [kwargs[n] for n in named])
            args, kwargs = list(args), dict(kwargs)
            for i, replacement in zip(at, given):
                args[i] = replacement
            for name, replacement in zip(named, given[len(at):]):
                kwargs[name] = replacement
            depth.forward += 1  # a loss function may call another
            try:
                return original(input, *args, **kwargs)
            finally:
                depth.forward -= 1

        return loss

    for name in LOSSES:
        _wrap(torch.nn.functional, name, functools.partial(make, name))


def _totals(torch, watcher, depth):
    distributed = torch.distributed
    if not distributed.is_available():
        return
    from ddp_doctor_probe import places

    def make(original, mine, most, sums):
        signature = inspect.signature(original)

        def collective(*args, **kwargs):
            work = original(*args, **kwargs)
            if work is None and not (depth.forward or depth.backward):
                given = signature.bind(*args, **kwargs)
                given.apply_defaults()
                tensor = given.arguments.get(mine)
                if isinstance(tensor, torch.Tensor) and 0 < tensor.numel() <= most and not tensor.requires_grad and not tensor.is_complex():
                    watcher.total(places.place()[:2], *sums(given.arguments))
            return work

        return collective

    def reduced(given):
        op, kinds = given.get("op"), distributed.ReduceOp
        return [given["tensor"]], 1 if op == kinds.SUM else distributed.get_world_size(given.get("group")) if op == kinds.AVG else None

    collectives = {
        "all_reduce": ("tensor", FEW, reduced), "all_gather": ("tensor", 1, lambda given: (given["tensor_list"], 1)),
        "all_gather_into_tensor": ("input_tensor", 1, lambda given: (list(given["output_tensor"].flatten()), 1)),
    }
    for name, (mine, most, sums) in collectives.items():
        for module in distributed, distributed.distributed_c10d:
            _wrap(module, name, functools.partial(make, mine=mine, most=most, sums=sums))


def _exchanges(torch, watcher, depth):
    distributed = torch.distributed
    if not distributed.is_available():
        return

    def make(original):
        def collective(*args, **kwargs):
            if depth.forward or depth.backward:
                watcher.exchanges()
            return original(*args, **kwargs)

        return collective

    for name in EXCHANGES:
        for module in distributed, distributed.distributed_c10d:
            _wrap(module, name, make)


def _backward(torch, watcher, depth):
    def make(original):
        def backward(tensors, *args, **kwargs):
            roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            if depth.backward == 0:
                watcher.loss(roots)
            depth.backward += 1
            try:
                return original(roots, *args, **kwargs)
            finally:
                depth.backward -= 1

        return backward

    _wrap(torch.autograd, "backward", make)


def _clipping(torch, watcher):
    def make(original):
        def clip(parameters, *args, **kwargs):
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            watcher.clips(parameters)
            return original(parameters, *args, **kwargs)

        return clip

    utils = torch.nn.utils
    for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"):
        if hasattr(utils, name):  # the last one is newer
            wrapped = functools.wraps(getattr(utils, name))(make(getattr(utils, name)))
            setattr(utils, name, wrapped)
            setattr(importlib.import_module("torch.nn.utils.clip_grad"), name, wrapped)


def _sharded_clipping(watcher):
    """FullyShardedDataParallel clips by a method of its own. Once the program has imported it."""
    module = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    sharded = getattr(module, "FullyShardedDataParallel", None)
    if sharded is None or hasattr(sharded.clip_grad_norm_, "_ddp_doctor"):
        return

    def make(original):
        def clip_grad_norm_(self, *args, **kwargs):
            watcher.clips(list(self.parameters()))
            return original(self, *args, **kwargs)

        clip_grad_norm_._ddp_doctor = True
        return clip_grad_norm_

    _wrap(sharded, "clip_grad_norm_", make)


def _optimizers(torch, watcher):
    from ddp_doctor_strategy import moments

    def constructs(original):
        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            _sharded_clipping(watcher)
            watcher.optimizer_made(self)

        return __init__

    _wrap(torch.optim.Optimizer, "__init__", constructs)
    moments.before_each_update(torch, watcher.step_begins)
