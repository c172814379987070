# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers that torch draws between a batch and its optimizer step: noise, times of a diffusion, masks. One process gets those of the ranks, sample by
sample."""
import functools
import threading

FUNCTIONS = (
    "bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
    "_sample_dirichlet", "_standard_gamma",
)
METHODS = (
    "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial", "normal_", "random_", "uniform_",
)


def watch(torch, watcher, depth):
    """Tells `watcher` of each draw in the main thread, except those of DataLoaders."""

    def make(name, original):
        def draw(*args, **kwargs):
            if depth.loading or threading.current_thread() is not threading.main_thread():
                return original(*args, **kwargs)
            inside = depth.forward > 0 or depth.backward > 0
            watcher.draw_begins(inside)
            value = original(*args, **kwargs)
            if type(value) in (torch.Tensor, torch.nn.Parameter) and value.dim() > 0 and value.device.type != "meta":
                watcher.draw_ends(name, value, inside)
            return value

        return draw

    for owner, names in (torch, FUNCTIONS), (torch.Tensor, METHODS):
        for name in names:
            original = getattr(owner, name, None)
            if original is None:
                continue
            wrapped = functools.wraps(original)(make(name, original))
            setattr(owner, name, wrapped)
            if owner is torch:
                _stays_a_builtin(torch, original, wrapped)


def _stays_a_builtin(torch, original, wrapped):
    """For programs that compile a function which calls it with torch.jit.script."""
    table = getattr(getattr(torch.jit, "_builtins", None), "_get_builtin_table", dict)()
    if id(original) in table:
        table[id(wrapped)] = table[id(original)]


def give(torch, name, own, parts, samples=0):
    """Puts the ranks' draws, rank by rank, into what one process drew, which has a row for each of their samples; where it is longer otherwise, as
    padding is, it stays. `samples`: their number, if they are in reverse order. False if they do not fit."""
    d = _dimension(own, parts)
    if d is None:
        if any(part.shape != own.shape or not torch.equal(part, parts[0]) for part in parts):
            return False
        joined = parts[0]
    else:
        joined, begin = own.detach().to("cpu", copy=True), 0
        for part in parts:
            end = begin + part.size(d)
            place = [slice(0, size) for size in part.shape]
            place[d] = slice(begin, end)
            joined[tuple(place)] = (part + begin if name == "randperm" else part).to(joined.dtype)
            begin = end
        if samples and begin % samples == 0:
            joined = joined.unflatten(d, (samples, begin // samples)).flip(d).flatten(d, d + 1)
            joined = begin - 1 - joined if name == "randperm" else joined
        elif samples:
            return False
    with torch.no_grad():
        own.copy_(joined)
    return True


def _dimension(own, parts):
    """Along which the rows of `parts` together are those of `own`."""
    if any(part.dim() != own.dim() for part in parts):
        return None
    for d in range(own.dim()):
        fits = all(own.size(e) >= part.size(e) for part in parts for e in range(own.dim()) if e != d)
        if fits and own.size(d) == sum(part.size(d) for part in parts):
            return d
    return None
