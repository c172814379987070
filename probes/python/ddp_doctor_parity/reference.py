# SPDX-License-Identifier: BSD-3-Clause
"""The reference: the same program as one process, in which each training step plays one of the ranks' steps again (plays.py).

Its first steps tell how many batches one process takes in a step. If the program ends before all is played, the next start goes on. Then
figures.json has the inner products of the gradients, and the process exits."""
import collections
import json
import os
import sys

from . import Impossible, draws, figures, nested, owners, plays, ranks, seams, tensors

LEARNING = 4  # steps in which the number of micro-batches must have shown itself
MOST_SHORT = 3  # steps in a row that take fewer batches than they should


class Reference(seams.Watcher):
    def __init__(self, torch, folder):
        self.torch, self.folder = torch, folder
        self.out = os.path.join(folder, "figures.json")
        self.saved = os.path.join(folder, "played")
        os.makedirs(self.saved, mode=0o700, exist_ok=True)
        try:
            self.script = plays.Script(torch, folder)
            self.all_plays = list(self.script.plays())
        except Impossible as reason:
            self._end({"impossible": str(reason)})
        self.left = [i for i in range(len(self.all_plays)) if not os.path.exists(self._file(i))]
        if not self.left:
            self._judge()
        self.drawn = {}  # stream -> items that were given
        self.drawn_before = {}  # the same at the last step
        self.own = {}  # stream -> a batch of the program's own class
        self.times = None  # micro-batches of one process for one of a rank; None: not known
        self.offset = 0  # steps of this process before the first play
        self.has_played = False  # something, since this start
        self.cycles = 0  # steps, or turns of all optimizers, of this process
        self.steps = 0
        self.gradients = []  # of the turn under way
        self.clipped, self.losses, self.outputs = {}, [], []
        self.begun = False  # a batch was drawn or a model called
        self.random = set()  # where this process drew numbers that are not those of the ranks
        self.draws = {}  # inside or outside -> those of the ranks that this turn plays
        self.random_draws = collections.Counter()  # of this turn: inside of forwards and backwards, and outside
        self.unlike = {}  # inside or outside: what was drawn in this turn and is not the ranks'
        self.counted = collections.Counter()  # place in the program -> how often it reduced numbers in this step
        self.optimizers, self.names = [], {}
        self.parameters = {}  # id of a parameter of the module that is called -> its name
        self.owned = {}  # number of an optimizer -> for each of its parameters (position of the rank that has it or None, its place among the rank's)
        self.assembled = False  # in an order that was assumed: what ranks have parts of
        self.forwards = 0  # of the turn under way
        self.short_turns = 0  # one after the other, that took fewer batches than they should have
        self.has_forward = False  # in training, since the last optimizer step
        self.restored = False  # the weights of the step that is being played
        self.settled = set()  # modules whose other tensors were restored in this step
        self.cache = (None, {})
        self.times_known = os.path.join(folder, "times")
        if os.path.exists(self.times_known):
            with open(self.times_known, encoding="utf-8") as file:
                self.times = json.load(file)
        self.raises, sys.excepthook = sys.excepthook, self._raised

    def _raised(self, kind, error, trace):
        """The program fails; after it was given samples, hardly for want of arguments. What has played is not lost: a learning rate's schedule, for
        instance, may end with as many steps as the program expects to make, and the next start goes on."""
        self.raises(kind, error, trace)
        if False in self.unlike and self.script.mode == "batches":
            self._feed_inputs()
        if any(self.drawn.values()) and not self.has_played:
            why = "it may not take a batch of this size" if self.script.mode == "batches" else (
                "it may compute its loss from data that neither a DataLoader nor a model or loss function of PyTorch gets; batches of a DataLoader could be "
                "given to it")
            self._end({"impossible": f"on the samples of all ranks the program fails as one process ({kind.__name__}: {error}): {why}"})

    def _file(self, index):
        return os.path.join(self.saved, f"{self.script.mode}-{index:04}.pt")

    # ---- what the program is given

    def failed(self, where, error):
        self._end({"impossible": f"the samples could not be given to one process ({where}: {type(error).__name__}: {error})"})

    def loader_begins(self, number, original):
        self._give_again(("batch", number))
        return original()

    @seams.careful
    def _give_again(self, stream):
        """What the last iterator had read ahead when a step ended: here the epoch would have gone on, in the ranks' run it was over."""
        stream = self._stream_of(stream)
        drawn = self.drawn.get(stream, 0)
        if stream is not None and drawn == self.drawn_before.get(stream, 0):
            self.drawn[stream] = min(drawn, self.cycles * self._counts()[stream] * (self.times or 1))

    def loader_next(self, loader, original):
        self.begun = True
        stream = self._stream_of(("batch", *loader))
        if stream is None:
            return original()
        batch = self._draw(stream)
        if not nested.is_the_programs(batch):
            return batch
        if stream not in self.own:
            self.own[stream] = original()
        return nested.merged(batch, self.own[stream])

    def _stream_of(self, stream):
        """The ranks' stream of that name and number; a DataLoader may have another batch size in one process."""
        if not self.script.feeds(stream):
            return None
        for known in self.script.steps[0].micro_batches:
            if known[:2] == stream[:2]:
                return known
        return None

    @seams.careful
    def forward_begins(self, module, args, kwargs):
        self.begun = self.has_forward = True
        self.parameters = {id(parameter): ranks.plain(name) for name, parameter in module.named_parameters()}
        self._restore()
        self._settle(module)
        stream = self._stream_of(("inputs",))
        if self.forwards == self.cycles == 0 and self.script.deals(nested.arguments(args, kwargs)):
            self._play_its_own()
        if self.script.dealt and not self.script.is_whole(self._play(self.cycles).step, self.forwards, nested.arguments(args, kwargs)):
            self._judge_until_now()
        self.forwards += 1
        if stream is not None and not self.script.dealt:
            device = _device_of((args, kwargs))
            given = nested.merged(self._draw(stream, device), nested.arguments(args, kwargs))
            args, kwargs = list(given["args"].values()), given["kwargs"]
        self.names = {id(inner): name for name, inner in module.named_modules()}
        self.first_output = not self.outputs
        if self.first_output:
            self.outputs += ranks.input_norms((list(args), kwargs))
        return tuple(args), kwargs

    def _play_its_own(self):
        """Nothing is drawn: each step of this process is the ranks' step of the same number."""
        self.all_plays = list(self.script.plays())
        self.left = list(range(len(self.all_plays)))
        self.times = 1

    def _judge_until_now(self):
        """Here the samples of one process are no longer those of all ranks."""
        if self.cycles == 0:
            self._end({"impossible": "without a DataLoader, one process takes other samples than the ranks together"})
        self.script.steps = self.script.steps[:self.cycles]
        self._judge()

    def loader_length(self, number, original):
        """An epoch has as many steps as the ranks' has."""
        return self.script.told.get("lengths", {}).get(str(number)) or original()

    @seams.careful
    def quiet_forward(self, module):
        self._restore()  # its output may be a target of this step
        self._settle(module)

    @seams.careful
    def target(self, given):
        stream = self._stream_of(("targets",))
        if stream is None or self.script.dealt:
            return given
        drawn = self._draw(stream, _device_of(given))["args"].values()
        return [rows.flatten() if own.dim() < rows.dim() else rows for own, rows in zip(given, drawn)]

    @seams.careful
    def inner_output(self, module, output):
        if self.first_output and isinstance(output, self.torch.Tensor) and output.is_floating_point() and output.dim() > 0:
            if not any(True for _ in module.children()):
                self.outputs.append((ranks.plain(self.names.get(id(module), "")), type(module).__name__, ranks.row_norms(output)))

    @seams.careful
    def _draw(self, stream, device="cpu"):
        position = self.drawn.get(stream, 0)
        self.drawn[stream] = position + 1
        times = self.times or 1
        count = len(self.script.steps[0].micro_batches[stream][0]) * times
        turn = position // count
        play = self._play(turn)
        known, items = self.cache
        if known is not play:
            self.cache = known, items = play, {}
        if stream not in items:
            try:
                items[stream] = self.script.items(play, stream, times)
            except Impossible as reason:
                self._end({"impossible": str(reason)})
        item = items[stream][position % count % len(items[stream])]
        return nested.mapped(item, lambda tensor, path: tensor.to(device, copy=True))

    def _play(self, turn):
        """Of the `turn`th step; the first and the last also stand for those that are not counted."""
        index = min(max(turn - self.offset, 0), len(self.left) - 1)
        return self.all_plays[self.left[index]]

    @seams.careful
    def total(self, place, values, times):
        """Here the program has counted its own samples, which are not those that are played."""
        if self.script.mode != "inputs" or not self.optimizers:
            return
        k = self.counted[place]
        self.counted[place] += 1
        counts = []
        for rank in self._part():
            counts += [count for at, count in rank["totals"] if at == place][k:k + 1]
        if len(counts) == len(self._part()) and all(count is not None and self.torch.equal(count, counts[0]) for count in counts):
            values[0].copy_(counts[0].reshape(values[0].shape))

    @seams.careful
    def draw_ends(self, name, value, inside):
        """What the loop draws itself is needed where it is fed batches; it may have no row for each sample, which the turn's end judges."""
        if not self.begun or not self.optimizers or not (inside or self.script.mode == "batches"):
            return
        k = self.random_draws[inside]
        self.random_draws[inside] += 1
        given = self._draws_of_ranks(inside)
        if given is None or k >= len(given) or not draws.give(self.torch, name, value, *given[k]):
            self.unlike.setdefault(inside, f"(torch.{name} of {tuple(value.shape)}), not one for each sample")

    def _draws_of_ranks(self, inside):
        if inside not in self.draws:
            self.draws[inside] = self.script.draws(self._play(self.cycles), inside, self.times or 1)
        return self.draws[inside]

    def _compare_draws(self):
        """At the end of a turn that counts, whose play is known."""
        self.draws = {}
        for inside in (True, False) if self.script.mode == "batches" else (True,):
            given = self._draws_of_ranks(inside)
            if given is None or self.random_draws[inside] != len(given):
                self.unlike.setdefault(inside, "another number of times than on the ranks")
            if inside in self.unlike and inside:
                self.random.add(f"in a forward {self.unlike[inside]}")
            elif inside in self.unlike:
                self._feed_inputs()

    def _feed_inputs(self):
        """The next start is fed what the loop makes of its batches and random numbers: what enters the model."""
        open(self.script.fed_inputs, "w").close()
        os._exit(0)

    # ---- what it computes

    def optimizer_made(self, optimizer):
        self.optimizers.append(optimizer)

    @seams.careful
    def loss(self, roots):
        self.losses.append(sum(float(root.detach().float().sum()) for root in roots if root.numel() == 1))

    @seams.careful
    def clips(self, parameters):
        for parameter in parameters:
            if parameter.grad is not None and id(parameter) not in self.clipped:
                self.clipped[id(parameter)] = tensors.kept(self.torch, parameter.grad)

    def _part(self):
        """What the ranks kept of the optimizer step that is being played."""
        return self._play(self.cycles).step.parts[self.steps % self.script.cycle]

    def _restore(self):
        """The weights from which the ranks' step began. A model may be called before its optimizer is made."""
        if self.restored or not self.optimizers:
            return
        self.restored = True
        part = self._part()
        for i, optimizer in enumerate(self.optimizers[:len(part[0]["weights"])]):
            held = [p for group in optimizer.param_groups for p in group["params"]]
            kept = [rank["weights"][i] for rank in part]
            if i not in self.owned:
                self.owned[i] = self._owners_of(i, held, part)
            for parameter, (owner, j) in zip(held, self.owned[i]):
                value = self.script.whole(kept, owner, j, parameter.shape)
                if value is None or not tensors.give(self.torch, parameter, value):
                    self._end({"impossible": f"parameter {j} of the optimizer has another shape in one process: {tuple(parameter.shape)}"})
                self.assembled = self.assembled or owner is not None or tensors.is_dealt_out(kept[0][j], parameter.shape)

    def _owners_of(self, i, held, part):
        """Where the parameters of the `i`th optimizer are on the ranks."""
        count = len(part[0]["weights"][i])
        if len(held) == count:
            return [(None, j) for j in range(count)]
        names = [self.parameters.get(id(parameter), "") for parameter in held]
        found = owners.owners([ranks.plain(name) for name in part[0]["names"]], names, len(part)) if len(self.optimizers) == 1 else None
        if found is None:
            self._end({"impossible": f"the optimizer holds {count} tensors on rank 0 and {len(held)} in one process"})
        return found

    def _settle(self, module):
        """What else the module held then: buffers, the weights of a teacher."""
        if module in self.settled:
            return
        self.settled.add(module)
        states = self._part()[0]["states"]
        for key, tensor in ranks.state_of(module, self.optimizers).items():
            value = states.get(key)
            if value is not None and not tensors.is_part(value):
                tensors.give(self.torch, tensor, value)

    @seams.careful
    def step_begins(self, optimizer):
        if not self.has_forward and self.steps % self.script.cycle == 0:
            return  # a step without a forward in training; several optimizers may step after one
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradient = [
            self.clipped[id(p)] if id(p) in self.clipped else tensors.kept(self.torch, p.grad) for p in parameters]
        gradient = [g["local"] if tensors.is_part(g) else g for g in gradient]
        number = next((i for i, known in enumerate(self.optimizers) if known is optimizer), 0)
        self.gradients.append({
            "gradient": gradient, "losses": self.losses, "shapes": [tuple(p.shape) for p in parameters], "forward": self.has_forward,
            "owned": self.owned.get(number) or [(None, j) for j in range(len(parameters))], "assembled": self.assembled,
            "names": [self.parameters.get(id(p)) for p in parameters],
        })
        if len(self.gradients) == 1:
            self.gradients[0]["outputs"] = self.outputs
        self.steps += 1
        self.has_forward, self.restored, self.settled = False, False, set()
        self.clipped, self.losses = {}, []
        self.counted.clear()
        if self.steps % self.script.cycle == 0:
            self._turn_ends()

    def _turn_ends(self):
        turn, self.cycles = self.cycles, self.cycles + 1
        played, self.gradients, self.outputs = self.gradients, [], []
        if self.script.dealt and self.forwards < len(self.all_plays[turn].step.micro_batches[("inputs",)][0]):
            self.cycles = turn
            self._judge_until_now()
        self.forwards = 0
        if self.times is None:
            self._learn()
        regular = self.times is not None and self._regular(turn)
        if regular and turn >= self.offset:
            self.cycles = turn
            self._compare_draws()
            self.cycles = turn + 1
        self.draws, self.unlike = {}, {}
        self.random_draws.clear()
        if regular:
            index = turn - self.offset
            if 0 <= index < len(self.left):
                self.torch.save(played, self._file(self.left[index]))
                self.has_played = True
                if index == len(self.left) - 1:
                    self._judge()
        self.drawn_before = dict(self.drawn)

    def _counts(self):
        return {stream: len(per_rank[0]) for stream, per_rank in self.script.steps[0].micro_batches.items()}

    def _learn(self):
        """How many micro-batches one process takes for one of a rank: as many, or those of all ranks."""
        drawn = {stream: self.drawn.get(stream, 0) - self.drawn_before.get(stream, 0) for stream in self._counts()}
        if not any(drawn.values()):
            self._end({"impossible": "one process takes its samples from somewhere else: no batch was drawn in its first step"})
        for times in (1, len(self.script.shared)):
            fits = all(
                drawn[stream] == count * times or (self.cycles == 1 and drawn[stream] == count * times + self._ahead(stream))
                for stream, count in self._counts().items())
            if fits:
                break
        else:
            if self.cycles < LEARNING:
                return
            stream, count = next((s, c) for s, c in self._counts().items() if drawn[s] != c)
            self._end({"impossible": f"one process takes {drawn[stream]} batches in a step, and a rank takes {count}"})
        self.times = times
        with open(self.times_known, "w", encoding="utf-8") as file:
            json.dump(times, file)
        if times == 1 and self.cycles == 1:
            return  # as was assumed: this step counts
        # Batches that were read ahead belong to steps that are not counted.
        ahead = max(-(-self.drawn.get(stream, 0) // (count * times)) for stream, count in self._counts().items())
        self.offset = max(self.cycles, ahead)

    def _ahead(self, stream):
        return self.script.count.get(stream, (0, 0))[1]

    def _regular(self, turn):
        """The step took as many batches as it should have. One with fewer, such as an epoch's last, does not count: the next plays the same."""
        if self.script.dealt:
            return True
        counts = {stream: count * self.times for stream, count in self._counts().items()}
        short = [stream for stream, count in counts.items() if self.drawn.get(stream, 0) < (turn + 1) * count]
        self.short_turns = self.short_turns + 1 if short else 0
        if self.short_turns > MOST_SHORT:
            self._end({"impossible": f"one process took {self.drawn.get(short[0], 0) - self.drawn_before.get(short[0], 0)} batches for a step, and "
                                     f"{self.short_turns} times fewer than {counts[short[0]]}, as a rank does"})
        if short:
            self.offset += turn >= self.offset
            self.drawn.update({stream: (turn + 1) * counts[stream] for stream in short})
        return not short

    # ---- the end

    def _judge(self):
        """What was played is compared with what the ranks computed."""
        script, torch = self.script, self.torch
        judging = figures.Figures(torch, script, self.times or 1)
        steps = []
        try:
            for step in script.steps:
                played = {}
                for index, play in enumerate(self.all_plays):
                    if play.step is step:
                        played[(play.kind, tuple(play.ranks), play.micro_batch)] = torch.load(
                            self._file(index), **({"weights_only": False} if torch.__version__ >= "2" else {}))
                judging.add(steps, step, played)
        except Impossible as reason:
            self._end({"impossible": str(reason)})
        self._end({
            "steps": steps, "random": sorted({*script.random, *self.random}), "low_precision": script.told["low_precision"], "frozen_differ": script.frozen_differ,
            "dealt": script.dealt,
        })

    def _end(self, content):
        with open(self.out + ".new", "w", encoding="utf-8") as file:
            json.dump(dict(content, version=2), file)
        os.replace(self.out + ".new", self.out)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _device_of(item):
    found = nested.tensors_of(item)
    return found[0][1].device if found else "cpu"
