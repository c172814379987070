# SPDX-License-Identifier: BSD-3-Clause
"""One rank's examination: what happens in the current step, and what is recorded of it.

A step ends with an optimizer's step(). Tensors are examined in the first `warmup` steps, then in every `every`-th step, and at the
end of the program; in between only counts are kept.
"""
import collections
import faulthandler
import os
import sys
import threading
import time
import traceback
import weakref
from multiprocessing import util as multiprocessing_util

from . import endings, native, note, places
from .backwards import Backwards
from .collectives import Collectives
from .forwards import Forwards
from .gathers import Gathers
from .gradient_hooks import GradientHooks
from .inputs import Inputs
from .passive import passive
from .steps import Steps
from .tensors import Tensors
from .updates import Updates
from .values import Values

KEPT_VALUES = 96 << 20  # bytes of tensor values that a record may keep
MAX_WARNINGS = 100
MOST_MOVES = 20  # of a place in the program, that are recorded
MAX_CAUGHT = 200  # exceptions that are recorded although the program may catch them

current = None  # the session of this process
left_in = None  # the process whose examination is over, although it goes on


class Session:
    def __init__(self, torch, folder, rank, world_size, backend):
        self.session, self.torch = self, torch
        self.rank, self.world_size = rank, world_size
        self.folder = folder
        self.pid = os.getpid()
        self.every = max(1, int(os.environ.get("DDP_DOCTOR_EVERY") or 10))
        self.warmup = max(1, int(os.environ.get("DDP_DOCTOR_WARMUP") or 50))
        self.last_step = int(os.environ.get("DDP_DOCTOR_STEPS") or 0) or None  # that is examined
        self.values_budget = KEPT_VALUES
        self.closed = self.left = self.raised = False
        self.turn, self.owner = threading.Lock(), 0  # one thread at a time is in the probe; its identifier
        self.probe_ns = 0  # time spent in the probe since the last step
        self.number = 1  # of the current step
        self.before = 0  # steps before the last wrapper was made: one rank may have trained something else first
        self.recording = True  # tensors are examined in this step
        self.wanted = 0  # the step for which the watcher requested values
        self.phase = native.BATCH
        self.warned, self.sites, self.facts = set(), {}, {}
        self.moves = collections.Counter()  # of sites
        self.caught = {}  # id of an exception -> the step in which it was noted, what it then said
        self.samplers, self.samplers_seen = weakref.WeakKeyDictionary(), 0  # -> number
        self.record = native.Record(folder, {
            "rank": rank, "world_size": world_size, "probe": "python", "every": self.every, "warmup": self.warmup,
            "program": os.environ.get("DDP_DOCTOR_PROGRAM") or " ".join(sys.argv),
            "details": {
                "backend": backend, "torch_version": torch.__version__, "python": sys.version.split()[0], "pid": str(self.pid),
                "every": str(self.every), "warmup": str(self.warmup), "summary": f"Python {sys.version.split()[0]}",
            },
        }, self.values_budget, torch.strided)
        # This rank's stack, for a launcher that is about to terminate it: written by a signal handler in C, even if Python is stuck.
        self.stack = open(os.path.join(folder, f"rank-{rank:05}.stack"), "w", encoding="utf-8")
        faulthandler.register(native.STACK_SIGNAL, self.stack, all_threads=True)
        self.tensors = Tensors(torch, self)
        self.values = Values(torch, self)
        self.forwards = Forwards(self)
        self.backwards = Backwards(self)
        self.gradient_hooks = GradientHooks(self)
        self.collectives = Collectives(self)
        self.gathers = Gathers(self)
        self.inputs = Inputs(self)
        self.steps = Steps(self)
        self.updates = Updates(self)
        self.forwards.watch()
        self.enter(native.BATCH)

    def busy(self):
        """Whether the probe itself makes this call."""
        return self.owner != 0 and self.owner == threading.get_ident()

    def enter(self, phase):
        self.phase = phase
        self.record.enter(phase, self.number)

    def next_step(self):
        self.number, self.recording, self.wanted = self.record.step_number(), bool(self.record.is_recorded()), self.record.wanted_step()
        self.forwards.watch()

    def wrapper_made(self):
        self.before = self.number - 1
        self.examine()

    def examine(self):
        """This step, whose forward has not begun."""
        if not self.recording:
            self.record.examine()
            self.recording = True
            self.forwards.watch()

    # ---- what is recorded about the run

    def event(self, kind, text):
        self.record.write("event", {
            "step": self.number, "time_ns": time.time_ns(), "kind": kind, "phase": native.PHASES[self.phase], "text": text,
        })

    def warn(self, text):
        """Something is not examined. Each text is reported once."""
        if text not in self.warned and len(self.warned) < MAX_WARNINGS:
            self.warned.add(text)
            self.event("warning", text)

    def failed(self, where, error):
        """The probe failed; the training continues."""
        if os.environ.get("DDP_DOCTOR_DEBUG"):
            traceback.print_exc()
        try:
            self.warn(f"the probe failed in {where}: {type(error).__name__}: {error}")
        except Exception:
            self.closed = True  # the record can no longer be written

    def fact(self, subject, key, value):
        """Writes a fact if it is new or changed."""
        if self.facts.get((subject, key)) != value:
            self.facts[(subject, key)] = value
            self.record.write("fact", {"step": self.number, "subject": subject, "key": key, "value": value})

    def site(self, what, skip=None, at=None, step=None):
        """Notes the place in the program where `what` first happened: here and now, or `at` and in `step`."""
        if what not in self.sites:
            self._write_site(what, at or places.place(skip), step or self.number)

    def moving_site(self, what):
        """Notes the place where `what` happens whenever it is another than before, in examined steps; a few times at most."""
        if what not in self.sites or self.recording and self.moves[what] < MOST_MOVES:
            at = places.place()
            if self.sites.get(what) != at:
                self.moves[what] += 1
                self._write_site(what, at, self.number)

    def _write_site(self, what, at, step):
        self.sites[what] = at
        self.record.write("site", dict(zip(("file", "line", "via"), at), what=what, step=step))

    @passive
    def sampler_iterates(self, sampler):
        if sampler not in self.samplers:
            self.samplers[sampler] = self.samplers_seen
            self.samplers_seen += 1
        subject = f"sampler {self.samplers[sampler]}"
        count = self.facts.get((subject, "passes"), 0) + 1
        self.site(subject)
        self.fact(subject, "shuffle", bool(getattr(sampler, "shuffle", False)))
        self.fact(subject, "seed", getattr(sampler, "seed", None))
        self.fact(subject, "replicas", [getattr(sampler, "rank", None), getattr(sampler, "num_replicas", None)])
        dataset = getattr(sampler, "dataset", None)
        if hasattr(dataset, "__len__"):
            self.fact(subject, "data", [id(dataset), len(dataset)])
        self.fact(subject, "passes", count)
        self.fact(subject, "pass", [count, getattr(sampler, "epoch", None), self.record.backwards()])

    @passive
    def mesh_made(self, mesh):
        self.tensors.note_mesh(mesh)

    @passive
    def join_ends(self):
        """A Join, in which ranks may make different numbers of steps: after it their numbers do not pair."""
        self.fact("join", "ended", self.facts.get(("join", "ended"), 0) + 1)

    @passive
    def data_moves(self, what):
        """A data loader starts a pass ("data.begin"), or is exhausted ("data.end")."""
        self.record.call_ends(self.record.call(self.number, False, what, place=places.place()[:2]))

    # ---- the end

    @passive
    def group_ends(self):
        """Usually the last call of a program, while its model still exists."""
        self.updates.end()
        self.steps.examine_last_step()
        self.forwards.write_runtime_fields()
        self.tensors.note_unused_statements()

    def program_raised(self, error):
        """Nobody catches it."""
        try:
            self.steps.raised(str(error))  # its parts are passive, each by itself
        except Exception as failure:
            self.failed("raised", failure)
        self._raised_last(error)

    @passive
    def _raised_last(self, error):
        if not self.raised:
            self.raised = True
            chain = endings.chain_of(error, self.caught)
            self.event("error", self.before_rewording(chain[0]) + endings.text_of(chain))
            self.raised_at("raised", chain)

    @passive
    def call_raised(self, error):
        """Torch raised it into the program, or a thread or the process ends by it. The program may catch it and train on: it counts only
        for a rank that completes no further step and fails."""
        if len(self.caught) >= MAX_CAUGHT:
            return
        chain = endings.chain_of(error, self.caught)
        again = any(self.caught.get(id(inner), (0,))[0] == self.number for inner in chain)
        self.caught.setdefault(id(error), (self.number, str(error)))
        if not again:
            self.event("caught", endings.text_of(chain))
            self.raised_at(f"caught {self.number}", chain)

    def call_in_handler(self, error):
        """The program ends, or calls torch, in an except or finally block."""
        if isinstance(error, Exception):
            self.call_raised(error)

    def before_rewording(self, error):
        """What torch said, where a framework has put its own words into the same exception."""
        said = self.caught.get(id(error), (0, ""))[1]
        return f"{type(error).__name__}: {said}\n{endings.CAUSE}" if said and said != str(error) else ""

    def raised_at(self, what, chain):
        """The root's line in the user's code, otherwise that of the first that has one; of a call that is still under way, the call's."""
        places_seen = [places.raised_at(error.__traceback__) for error in chain]
        at = next(filter(None, places_seen), None) or places.place()[:2]
        if at[0] and what not in self.sites:
            self._write_site(what, (*at, []), self.number)

    def leave(self):
        """As many steps were examined as the user wanted: from here on the program runs as it would without the probe."""
        global current, left_in
        try:
            self.updates.end()
            self.steps.examine_last_step()
            self.forwards.write_runtime_fields()
            if not self.backwards.depth:  # hooks are not removed while they run; those that stay do nothing
                self.tensors.unhook()
            self.forwards.rest()
            self.event("end", "")
            self.enter(native.UNEXAMINED)
        finally:
            self.backwards.close()
            self.closed = self.left = True
            current, left_in = None, self.pid

    def finish(self):
        """The interpreter, or the worker function of a spawned process, is about to exit."""
        global current
        if self.left and self.pid == os.getpid():
            self.left = False
            self.enter(native.FINISHED)
            self.record.close()
        if self.closed:
            return
        if endings.uncaught() is not None and not self.raised:
            self.call_raised(endings.uncaught())
        self.group_ends()
        try:
            self.forwards.rest()
            self.enter(native.FINISHED)
            if not self.raised:
                self.event("end", "")
            self.closed = True
            self.backwards.close()
            self.record.close()
            faulthandler.unregister(native.STACK_SIGNAL)
            self.stack.close()
            note.update(steps=self.number - 1)
        except Exception:
            self.closed = True
        current = None


def begin(torch):
    """The process group exists: this process is a rank."""
    global current
    distributed = torch.distributed
    if (current is not None and current.pid == os.getpid()) or left_in == os.getpid():
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
    endings.watch(session)
