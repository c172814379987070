# SPDX-License-Identifier: BSD-3-Clause
"""The moments at which strategies act."""
import functools
import importlib
import threading


def trains(torch, module):
    return module.training and torch.is_grad_enabled()


def before_each_call(torch, look):
    """Calls look(module) before every outermost module call in training."""
    original = torch.nn.Module.__call__
    state = threading.local()

    def __call__(self, *args, **kwargs):
        if getattr(state, "inside", False) or not trains(torch, self):
            return original(self, *args, **kwargs)
        state.inside = True
        try:
            look(self)
            return original(self, *args, **kwargs)
        finally:
            state.inside = False

    torch.nn.Module.__call__ = __call__


def before_each_update(torch, act):
    """Calls act(optimizer) when the gradients of an optimizer step are there: before it, or after each call of its closure."""

    def before_step(optimizer, args, kwargs):
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 and callable(args[1]) else None)
        if closure is None:
            act(optimizer)
            return None

        @functools.wraps(closure)
        def acting(*a, **k):
            result = closure(*a, **k)
            act(optimizer)
            return result

        if "closure" in kwargs:
            return args, dict(kwargs, closure=acting)
        return (args[0], acting) + tuple(args[2:]), kwargs

    before_each_step(torch, before_step)


def before_each_step(torch, act):
    """Calls act(optimizer, args, kwargs) before every optimizer step and before the probe; it returns (args, kwargs) to change them, or None."""
    module = importlib.import_module("torch.optim.optimizer")
    if hasattr(module, "register_optimizer_step_pre_hook"):
        handle = module.register_optimizer_step_pre_hook(act)
        module._global_optimizer_pre_hooks.move_to_end(handle.id, last=False)
        return
    original = torch.optim.Optimizer._hook_for_profile  # torch 1.13 wraps step() here, once per class

    def _hook_for_profile(self):
        original(self)
        step = type(self).step
        if getattr(step, "acts", False):
            return

        @functools.wraps(step)
        def acting(*args, **kwargs):
            changed = act(args[0], args, kwargs)
            if changed is not None:
                args, kwargs = changed
            return step(*args, **kwargs)

        acting.acts = True
        type(self).step = acting

    torch.optim.Optimizer._hook_for_profile = _hook_for_profile
