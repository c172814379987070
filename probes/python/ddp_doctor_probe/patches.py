# SPDX-License-Identifier: BSD-3-Clause
"""The functions of torch that report to the session. Each call is passed on unchanged: same arguments, same result, same exceptions.

    torch.distributed.init_process_group             this process is a rank
    torch.distributed.destroy_process_group          usually the end of main()
    torch.distributed.all_reduce and its siblings    hand-written collectives
    Work.wait                                        waiting for an asynchronous collective
    DeviceMesh.__init__                              the names of its dimensions
    algorithms.join.Join.__exit__                    the end of a loop with uneven inputs
    DistributedDataParallel.__init__                 what it wraps, with which arguments, where
    DistributedDataParallel.forward                  forwards through wrappers, what enters them
    DistributedDataParallel.register_comm_hook       its name
    nn.Module.load_state_dict, register_parameter    weights loaded and parameters created after a model was wrapped
    nn.Module global forward hooks                   forwards that bypass wrappers, which modules ran: in recorded steps (forwards.py)
    Tensor.register_hook                             what a hook on a parameter makes of its gradient
    torch.compile                                    whether the program uses it
    torch.autograd.backward, .grad                   backward passes (Tensor.backward calls the former)
    torch.optim.Optimizer.__init__                   where it is constructed
    torch.optim.Optimizer step hooks, load_state_dict   optimizer steps, loaded states
    DeepSpeed's optimizers: step                     the same, before the first backward (deepspeed.py)
    GradScaler.step                                  scale, skipped steps
    DistributedSampler.__iter__                      passes over the data, epoch
    DataLoader.__iter__ and its iterator             start and end of a pass over the data
    torch.multiprocessing.spawn's worker function,
    multiprocessing.Process                          exceptions of a spawned rank
    DataParallel.__init__                            to report that it is not examined
"""
import collections.abc
import functools
import importlib
import inspect
import multiprocessing.process
import os
import sys
import warnings
import weakref

from . import deepspeed, forwards, note, places, session

COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "_all_gather_base", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base", "all_to_all", "all_to_all_single", "barrier",
    "monitored_barrier", "all_reduce_coalesced", "all_gather_coalesced", "all_gather_object", "gather_object",
    "broadcast_object_list", "scatter_object_list", "send", "recv", "isend", "irecv", "batch_isend_irecv",
)


def install(torch):
    for patch in (
        _process_group, _mesh, _collectives, _waiting, _join, _wrapper, _hook, _gradient_hook, _forward, _module, _backward, _optimizer, _scaler, _sampler,
        _loader, _spawned, _data_parallel, _forks,
    ):
        try:
            patch(torch)
        except Exception as error:  # if this torch lacks one function, the others are still patched
            note.saw(f"probe: {patch.__name__[1:]} cannot be observed in torch {torch.__version__}: {error!r}")


def _replace(owner, name, make):
    """Replaces owner.name by make(owner.name), with the original's name and docstring."""
    original = getattr(owner, name)
    made = make(original)
    # For Python's warnings a frame of such a file is none: what torch warns of is still said of the caller's line.
    made.__code__ = made.__code__.replace(co_filename=f"{made.__code__.co_filename} (as importlib._bootstrap)")
    replacement = functools.wraps(original)(made)
    setattr(owner, name, replacement)
    return original, replacement


def _everywhere(torch, name, original, replacement):
    """Also in the modules that imported the function by name while torch was imported."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch.") and module.__dict__.get(name) is original:
            setattr(module, name, replacement)


def _process_group(torch):
    if not torch.distributed.is_available():
        return
    c10d = torch.distributed.distributed_c10d

    def begins(original):
        def init_process_group(*args, **kwargs):
            result = original(*args, **kwargs)
            try:
                session.begin(torch)
            except Exception as error:
                print(f"ddp-doctor: this rank is not examined: {error!r}", file=sys.stderr)
            return result

        return init_process_group

    def ends(original):
        def destroy_process_group(*args, **kwargs):
            here = session.current
            if here is not None:
                here.call_in_handler(sys.exc_info()[1])
                here.group_ends()
            return original(*args, **kwargs)

        return destroy_process_group

    for name, make in (("init_process_group", begins), ("destroy_process_group", ends)):
        _everywhere(torch, name, *_replace(c10d, name, make))


def _mesh(torch):
    module = sys.modules.get("torch.distributed.device_mesh")  # torch 2.2 and later
    if not hasattr(module, "DeviceMesh"):
        return

    def constructed(original):
        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            if session.current is not None:
                session.current.mesh_made(self)

        return __init__

    _replace(module.DeviceMesh, "__init__", constructed)


def _collectives(torch):
    c10d = torch.distributed.distributed_c10d
    for name in COLLECTIVES:
        if hasattr(c10d, name):
            _everywhere(torch, name, *_replace(c10d, name, functools.partial(_collective, torch, name)))


def _collective(torch, name, original):
    parameters = list(inspect.signature(original).parameters)
    group_at = parameters.index("group") if "group" in parameters else None
    op_at = parameters.index("op") if "op" in parameters else None

    def argument(args, kwargs, key, position):
        if key in kwargs:
            return kwargs[key]
        return args[position] if position is not None and position < len(args) else None

    def describe(here, args, kwargs):
        first = args[0] if args else next(iter(kwargs.values()), None)
        tensors = first if isinstance(first, (list, tuple)) else [first]
        tensors = [getattr(tensor, "tensor", tensor) for tensor in tensors]  # of a P2POp
        tensors = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
        here.updates.collective_begins(tensors)
        op = argument(args, kwargs, "op", op_at)
        if op is None and op_at is not None:
            op = torch.distributed.ReduceOp.SUM
        reduce = "" if op is None else str(getattr(op, "op", op)).rsplit(".", 1)[-1].strip("<>").split(":")[0].lower()
        here.collectives.begins(name, tensors, reduce, argument(args, kwargs, "group", group_at))
        if here.recording:
            given = [value for each in (*args, *kwargs.values()) for value in (each if isinstance(each, (list, tuple)) else (each,))]
            here.collectives.given([value for value in given if isinstance(value, torch.Tensor)])

    def collective(*args, **kwargs):
        here = session.current
        # Calls by torch itself (join, SyncBatchNorm, ...) or inside another collective are not the user's collectives.
        if here is None or here.collectives.in_progress:
            return original(*args, **kwargs)
        if by := places.torch_caller(1):
            here.collectives.by_torch(name, by)
            if not here.collectives.of_the_program(by):
                return original(*args, **kwargs)
        here.collectives.in_progress = True
        here.call_in_handler(sys.exc_info()[1])
        try:
            try:
                describe(here, args, kwargs)
            except Exception as error:
                here.failed(name, error)
            result = original(*args, **kwargs)
            if result is not None:
                here.collectives.issued(result)
            return result
        except Exception as error:
            here.call_raised(error)
            raise
        finally:
            here.collectives.in_progress = False
            here.collectives.ends()

    return collective


def _waiting(torch):
    def make(original):
        def wait(self, *args, **kwargs):
            here = session.current
            number = here.collectives.wait_begins(self) if here is not None and here.collectives.awaited else 0
            if not number:
                return original(self, *args, **kwargs)
            try:
                return original(self, *args, **kwargs)
            except Exception as error:
                here.call_raised(error)
                raise
            finally:
                here.collectives.wait_ends(number)

        return wait

    _replace(torch._C._distributed_c10d.Work, "wait", make)


def _join(torch):
    def make(original):
        def __exit__(self, *exception):
            result = original(self, *exception)
            here = session.current
            if here is not None:
                here.join_ends()
            return result

        return __exit__

    join = importlib.import_module("torch.distributed.algorithms.join")
    _replace(join.Join, "__exit__", make)


def _wrapper(torch):
    def make(original):
        def __init__(self, module, *args, **kwargs):
            here = session.current
            if here is None:
                return original(self, module, *args, **kwargs)
            here.forwards.wrapper_begins(module)
            try:
                original(self, module, *args, **kwargs)
            except Exception:
                here.forwards.wrapper_failed()
                raise
            here.forwards.wrapper_made(self, kwargs.get("init_sync", True))

        return __init__

    _replace(torch.nn.parallel.DistributedDataParallel, "__init__", make)


def _hook(torch):
    def registers(original):
        def register_comm_hook(self, state, hook):
            original(self, state, hook)
            here = session.current
            if here is not None:
                here.forwards.hook_registered(self, hook)

        return register_comm_hook

    _replace(torch.nn.parallel.DistributedDataParallel, "register_comm_hook", registers)


def _module(torch):
    def loads(original):
        def load_state_dict(self, *args, **kwargs):
            result = original(self, *args, **kwargs)
            here = session.current
            if here is not None:
                here.forwards.state_loaded(self)
            return result

        return load_state_dict

    def creates(original):
        def register_parameter(self, name, param):
            original(self, name, param)
            here = session.current
            if here is not None and here.forwards.wrappers and param is not None:
                here.tensors.created_now(param)

        return register_parameter

    _replace(torch.nn.Module, "load_state_dict", loads)
    _replace(torch.nn.Module, "register_parameter", creates)


def _forward(torch):
    compiler = getattr(torch, "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", None) or (lambda: False)

    def wraps_forward(original):
        def forward(self, *args, **kwargs):
            here = session.current
            if here is None or is_compiling():
                return original(self, *args, **kwargs)
            if here.recording and torch.is_grad_enabled():
                here.inputs.seen((args, kwargs))
            unwatched = here.forwards.wrapper_called(self)
            try:
                output = original(self, *args, **kwargs)
            except Exception as error:
                here.call_raised(error)
                raise
            if unwatched:
                here.forwards.forward_ends(output)
            return output

        return forward

    def compiles(original):
        def compile(*args, **kwargs):
            forwards.compiles = True
            return original(*args, **kwargs)

        return compile

    # If the program compiles a module, torch would warn about the probe's hooks.
    warnings.filterwarnings("ignore", message="Using .torch.compile.module.. when there are global hooks")
    _replace(torch.nn.parallel.DistributedDataParallel, "forward", wraps_forward)
    if hasattr(torch, "compile"):
        _replace(torch, "compile", compiles)


def _gradient_hook(torch):
    def registers(original):
        def register_hook(self, hook):
            if not self.requires_grad or not self.is_leaf:
                return original(self, hook)
            parameter, place = weakref.ref(self), places.place()

            @functools.wraps(hook, updated=())
            def observed(gradient):
                here = session.current
                before = here.gradient_hooks.begins(gradient) if here is not None else None
                result = hook(gradient)
                if before is not None:
                    here.gradient_hooks.ends(parameter(), before, gradient if result is None else result, place)
                return result

            return original(self, observed)

        return register_hook

    _replace(torch.Tensor, "register_hook", registers)


def _backward(torch):
    def once(tensors):
        """A generator, such as model.parameters(), can be read only once."""
        return tuple(tensors) if isinstance(tensors, collections.abc.Iterator) else tensors

    def passes(original):
        def backward(tensors, *args, **kwargs):
            here = session.current
            if here is None:
                return original(tensors, *args, **kwargs)
            deepspeed.follow()
            tensors = once(tensors)
            here.updates.ends()
            retain_graph, create_graph = (tuple(args[1:3]) + (None, None))[:2]  # as Tensor.backward passes them
            here.backwards.begins(tensors, bool(
                kwargs.get("retain_graph", retain_graph) or kwargs.get("create_graph", create_graph)))
            try:
                result = original(tensors, *args, **kwargs)
            except BaseException as error:
                if isinstance(error, Exception):
                    here.call_raised(error)
                here.backwards.ends(True)
                raise
            here.backwards.ends(False)
            return result

        return backward

    def by_hand(original):
        def grad(outputs, inputs, *args, **kwargs):
            here = session.current
            if here is None:
                return original(outputs, inputs, *args, **kwargs)
            inputs = once(inputs)
            here.updates.ends()
            here.backwards.by_hand(inputs)
            result = original(outputs, inputs, *args, **kwargs)
            here.backwards.by_hand_ends(inputs, result)
            return result

        return grad

    _replace(torch.autograd, "backward", passes)
    _replace(torch.autograd, "grad", by_hand)


def _optimizer(torch):
    module = importlib.import_module("torch.optim.optimizer")  # the package has a function with this name

    def begins(optimizer, args, kwargs):
        here = session.current
        if here is None:
            return None
        try:
            return here.steps.optimizer_begins(optimizer, args, kwargs)
        except Exception as error:
            here.failed("optimizer_begins", error)
            return None

    def ends(optimizer, args, kwargs):
        here = session.current
        if here is not None:
            try:
                here.steps.optimizer_ends(optimizer)
            except Exception as error:
                here.failed("optimizer_ends", error)

    def loads(original):
        def load_state_dict(self, *args, **kwargs):
            result = original(self, *args, **kwargs)
            here = session.current
            if here is not None:
                here.steps.state_loaded(self)
            return result

        return load_state_dict

    def constructs(original):
        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            here = session.current
            if here is not None:
                here.steps.optimizer_made(self)

        return __init__

    _replace(torch.optim.Optimizer, "__init__", constructs)
    _replace(torch.optim.Optimizer, "load_state_dict", loads)
    if hasattr(module, "register_optimizer_step_pre_hook"):
        module.register_optimizer_step_pre_hook(begins)
        module.register_optimizer_step_post_hook(ends)
        return

    # torch 1.13 wraps step() for the profiler here, once per optimizer class.
    def wraps_class(original):
        def _hook_for_profile(self):
            original(self)
            step = type(self).step
            if getattr(step, "ddp_doctor", False):
                return

            @functools.wraps(step)
            def observed(*args, **kwargs):
                changed = begins(args[0], args, kwargs)
                if changed is not None:
                    args, kwargs = changed
                result = step(*args, **kwargs)
                ends(args[0], args, kwargs)
                return result

            observed.ddp_doctor = True
            type(self).step = observed

        return _hook_for_profile

    _replace(torch.optim.Optimizer, "_hook_for_profile", wraps_class)


def _scaler(torch):
    def make(original):
        def step(self, optimizer, *args, **kwargs):
            here = session.current
            if here is None:
                return original(self, optimizer, *args, **kwargs)
            number = here.number
            here.steps.scaler_steps(self)
            result = original(self, optimizer, *args, **kwargs)
            here.steps.scaler_stepped(self, optimizer, number)
            return result

        return step

    from torch.cuda.amp import grad_scaler

    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or grad_scaler.GradScaler
    _replace(scaler, "step", make)


def _sampler(torch):
    def make(original):
        def __iter__(self):
            here = session.current
            if here is not None:
                here.sampler_iterates(self)
            return original(self)

        return __iter__

    from torch.utils.data.distributed import DistributedSampler

    _replace(DistributedSampler, "__iter__", make)


def _loader(torch):
    def ends(original):
        def __next__(self):
            try:
                return original(self)
            except StopIteration:
                here = session.current
                if here is not None:
                    here.data_moves("data.end")
                raise
            except Exception as error:
                if session.current is not None:
                    session.current.call_raised(error)
                raise

        return __next__

    def begins(original):
        def __iter__(self):
            here = session.current
            if here is not None:
                here.data_moves("data.begin")
            return original(self)

        return __iter__

    from torch.utils.data import dataloader

    _replace(dataloader._BaseDataLoaderIter, "__next__", ends)
    _replace(dataloader.DataLoader, "__iter__", begins)


def _spawned(torch):
    """A multiprocessing process catches the exceptions of its function, so sys.excepthook never sees them."""

    def observed(function):
        @functools.wraps(function)
        def run(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except Exception as error:
                here = session.current
                if here is not None:
                    here.program_raised(error)
                raise

        return run

    def spawn_worker(original):
        def _wrap(fn, *args):
            return original(observed(fn), *args)

        return _wrap

    def process(original):
        def _bootstrap(self, *args, **kwargs):
            self.run = observed(self.run)
            return original(self, *args, **kwargs)

        return _bootstrap

    spawn = importlib.import_module("torch.multiprocessing.spawn")
    _replace(spawn, "_wrap", spawn_worker)
    _replace(multiprocessing.process.BaseProcess, "_bootstrap", process)


def _data_parallel(torch):
    def make(original):
        def __init__(self, *args, **kwargs):
            note.saw("DataParallel")
            original(self, *args, **kwargs)

        return __init__

    _replace(torch.nn.DataParallel, "__init__", make)


def _forks(torch):
    def forget():
        if session.current is not None:
            session.current.closed = True
            session.current.backwards.close()
        session.current = None

    os.register_at_fork(after_in_child=forget)
