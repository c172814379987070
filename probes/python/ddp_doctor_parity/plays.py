# SPDX-License-Identifier: BSD-3-Clause
"""What the reference computes: each of the ranks' steps several times, and the samples of each of its micro-batches."""
import collections
import glob
import json
import os

from . import Impossible, nested, samples, tensors

MAX_ALONE = 12  # gradients of single ranks, or of their micro-batches, beside those of all


class Step:
    """One of the ranks' steps, or the steps of all optimizers on the same batches."""

    def __init__(self, number, parts, micro_batches):
        self.number = number  # the first of them
        self.parts = parts  # for each optimizer step: the files of all ranks
        self.micro_batches = micro_batches  # stream -> for each rank, its items in order


class Play:
    """`kind`: "joined", "permuted", "alone", "padded" or "again". `micro_batch`: this one of a rank, in the place of all of its own."""

    def __init__(self, step, kind, ranks, micro_batch=None):
        self.step, self.kind, self.ranks, self.micro_batch = step, kind, ranks, micro_batch


class Script:
    """All of the ranks' files, as steps and plays."""

    def __init__(self, torch, folder):
        self.torch, self.folder = torch, folder
        self.ranks = sorted(int(path.rsplit("-", 1)[1]) for path in glob.glob(os.path.join(folder, "rank-*")))
        told = []
        for rank in self.ranks:
            try:
                with open(os.path.join(folder, f"rank-{rank:05}", "ranks.json"), encoding="utf-8") as file:
                    told.append(json.load(file))
            except FileNotFoundError:
                raise Impossible(f"rank {rank} reached no step of a torch.optim.Optimizer after a backward") from None
        if not told:
            raise Impossible("no rank reached an optimizer step")
        self.told = told[0]
        if len(told) < told[0]["world_size"]:
            raise Impossible(f"only {len(told)} of {told[0]['world_size']} ranks were seen")
        for rank, each in zip(self.ranks, told):
            if each["impossible"]:
                raise Impossible(each["impossible"])
        self.random = sorted({where for each in told for where in each["random"]})
        self.frozen_differ = sorted(
            kind for kind, print_ in told[0]["frozen"].items() if any(each["frozen"].get(kind, print_) != print_ for each in told))
        self.cycle = _cycle(told[0]["stepped"])
        numbers = sorted(set.intersection(*(set(each["captured"]) for each in told)))
        if not numbers:
            raise Impossible("no step was seen on all ranks")
        self.numbers = [n for n in numbers if (n - 1) % self.cycle == 0 and all(n + i in numbers for i in range(self.cycle))]
        if not self.numbers:
            raise Impossible("the optimizers do not step in turn")
        self.layouts = collections.defaultdict(samples.Layout)  # by stream
        self.fed_inputs = os.path.join(folder, "played", "inputs")  # exists where draws outside of forwards are not one for each sample
        self.mode = self._mode()
        self.count = {}  # stream -> micro-batches in a step of a rank
        self.steps = [self._step(number) for number in self.numbers]
        self.steps = [step for step in self.steps if step is not None]
        if not self.steps:
            raise Impossible("in no step does every rank have as many batches as in the others")
        self.shared = self._ranks_with_samples_of_their_own()
        self.dealt = False  # one process itself takes what the ranks take together: nothing is put in its place
        self.dealt_along = None  # the dimension of its inputs that is dealt out: 0, samples; 1, sequences

    def file(self, rank, number):
        path = os.path.join(self.folder, f"rank-{rank:05}", f"step-{number:05}.pt")
        return self.torch.load(path, **({"weights_only": False} if self.torch.__version__ >= "2" else {}))

    def _mode(self):
        """Which streams the reference is fed: batches of DataLoaders, or what enters the model and the loss."""
        streams = {stream[0] for _, interval in self.file(self.ranks[0], self.numbers[0])["intervals"] for stream in interval}
        outside = any(where.startswith("between") for where in self.random)
        return "batches" if "batch" in streams and not outside and not os.path.exists(self.fed_inputs) else "inputs"

    def feeds(self, stream):
        return (stream[0] == "batch") == (self.mode == "batches")

    def _step(self, number):
        parts = [[self.file(rank, number + i) for rank in self.ranks] for i in range(self.cycle)]
        first = parts[0]
        micro_batches = {}
        for stream in {stream for content in first for _, interval in content["intervals"] for stream in interval if self.feeds(stream)}:
            per_rank = []
            for rank_parts in zip(*parts):
                items = self._items(stream, number, rank_parts)
                if items is None:
                    return None
                per_rank.append(items)
            if len({len(items) for items in per_rank}) > 1:
                return None
            if not per_rank[0]:
                continue  # for example targets that only one of two optimizers uses
            micro_batches[stream] = per_rank
        self._see(micro_batches)
        return Step(number, parts, micro_batches)

    def _see(self, micro_batches):
        """How their samples are laid out. Targets that were flattened for the loss get a row for each sample again."""
        for position in range(len(self.ranks)):
            items = {stream: per_rank[position] for stream, per_rank in micro_batches.items()}
            inputs, targets = items.get(("inputs",), []), items.get(("targets",), [])
            if inputs:
                targets[:] = [samples.by_rows(target, inputs[m * len(inputs) // len(targets)]) for m, target in enumerate(targets)]
            for stream, mine in items.items():
                beside = [others for other, others in items.items() if other != stream and len(others) == len(mine)]
                for m, item in enumerate(mine):
                    self.layouts[stream].see(item, _size_of(stream), [others[m] for others in beside])

    def _items(self, stream, number, rank_parts):
        """The items of the steps from `number` on: an iterator that is read ahead gave them in earlier intervals."""
        drawn, forwards = {}, {}
        for content in rank_parts:
            for step, interval in content["intervals"]:
                drawn[step] = interval.get(stream, [])
                forwards[step] = len(interval.get(("inputs",), []))
        if self.cycle > 1:
            return [item for i in range(self.cycle) for item in drawn.get(number + i, [])]
        if stream not in self.count:
            self.count[stream] = self._count(stream)
        count, ahead = self.count[stream]
        earlier = [step for step in sorted(drawn) if step < number]
        ready = [item for step in earlier for item in drawn[step]]
        if forwards[number] == count:  # one for each batch: the others are not used yet, none at the end of an epoch
            ahead = len(ready) - sum(forwards[step] for step in earlier) if ahead else 0
        mine = (ready[len(ready) - ahead:] if ahead > 0 else []) + drawn[number]
        return mine[:count] if len(mine) >= count else None

    def _count(self, stream):
        """(micro-batches in a step, batches that are read ahead), from the first steps."""
        draws, forwards = [], []
        for number in self.numbers[:3]:
            interval = dict(self.file(self.ranks[0], number)["intervals"])[number]
            draws.append(len(interval.get(stream, [])))
            forwards.append(len(interval.get(("inputs",), [])))
        if len(draws) == 1 or self.numbers[1] != self.numbers[0] + 1:
            return draws[0], 0
        if 0 < draws[0] < draws[1] and forwards[0] < forwards[1]:  # step % accumulation == 0; reading ahead makes the first one larger
            raise Impossible(f"the first step took {draws[0]} micro-batches and the second one {draws[1]}: only steps of as many can be repeated")
        if draws[1] == 0:  # an epoch of two steps, all of it read in the first one?
            all_read = forwards[0] == forwards[1] and draws[0] == 2 * forwards[0]
            return (forwards[0], forwards[0]) if all_read else (draws[0], 0)
        if len(draws) == 3 and draws[0] == draws[2] > draws[1] and self.numbers[2] == self.numbers[1] + 1:
            return draws[0], 0  # the second step got what was left of an epoch
        return draws[1], max(0, draws[0] - draws[1])

    def _ranks_with_samples_of_their_own(self):
        """One rank of each set of ranks that were given the same samples, as those of a tensor-parallel group are."""
        seen, own = [], []
        for position in range(len(self.ranks)):
            mine = [t for per_rank in self.steps[0].micro_batches.values() for item in per_rank[position] for _, t in nested.tensors_of(item)]
            if mine and any(len(mine) == len(other) and all(self.torch.equal(a, b) for a, b in zip(mine, other)) for other in seen):
                continue
            seen.append(mine)
            own.append(position)
        return own

    def plays(self):
        """The joined samples first: a program that counts its steps computes what it did in the ranks' steps. Again at the end, which shows
        whether it does so in other steps, too; the last ones first, or a program of few steps would be started in time for both."""
        for step in self.steps:
            yield Play(step, "joined", self.shared)
        if self.dealt:
            return
        for step in self.steps:
            yield Play(step, "permuted", self.shared)
            alone = self.alone(step)
            for position, micro_batch in alone:
                yield Play(step, "alone", [position], micro_batch)
            most_padded = self.most_padded(step)
            if most_padded is not None:
                position, micro_batch = alone[most_padded]
                yield Play(step, "padded", [position], micro_batch)
        for step in dict.fromkeys((self.steps[-1], self.steps[0])):
            yield Play(step, "again", self.shared)

    def alone(self, step):
        """(rank, micro-batch) whose gradients are computed one by one; None: all of a rank together. Where batches are dealt out, those that the
        ranks kept."""
        if len(self.shared) == 1 or (self.dealt and any(rank["local"] is None for part in step.parts for rank in part)):
            return []
        count = 1 if self.dealt else self._micro_batches(step)
        if count > 1 and len(self.shared) * count <= MAX_ALONE:
            return [(position, m) for position in self.shared for m in range(count)]
        return [(position, None) for position in self.shared] if len(self.shared) <= MAX_ALONE else []

    def _micro_batches(self, step):
        """How many a rank takes in a step, each with a backward of its own and like the others: none of a generator's forwards beside those of
        its discriminator. A loop may draw a batch more than it uses."""
        counts = {len(per_rank[0]) for per_rank in step.micro_batches.values()}
        kinds = [{str([(path, t.dtype, t.dim()) for path, t in nested.tensors_of(item)]) for item in per_rank[0]} for per_rank in step.micro_batches.values()]
        backwards = sum(len(part[0]["losses"]) for part in step.parts)
        alike = len(counts) == 1 and all(len(kind) == 1 for kind in kinds)
        count = counts.pop() if alike else 1
        return count if backwards == count or (self.mode == "batches" and backwards > 1) else 1

    def most_padded(self, step):
        """Of those that are computed alone, the one that joining makes larger by the most; None if it makes none of them larger."""
        grown = []
        for position, micro_batch in self.alone(step):
            grown.append(0)
            for stream, per_rank in step.micro_batches.items():
                size = _size_of(stream)
                for m in range(len(per_rank[0])) if micro_batch is None else [micro_batch]:
                    own = per_rank[position][m]
                    wide = samples.widened(self.torch, own, [per_rank[p][m] for p in self.shared], self.layouts[stream], size)
                    grown[-1] += nested.elements_of(wide) - nested.elements_of(own)
        return grown.index(max(grown)) if any(grown) else None

    def pads(self, step):
        return any(
            samples.needs_padding([per_rank[p][m] for p in self.shared], self.layouts[stream], _size_of(stream))
            for stream, per_rank in step.micro_batches.items() for m in range(len(per_rank[0])))

    def deals(self, own):
        """Whether the program deals each batch out to its ranks, or each sequence: the first inputs of one process are those of all ranks. Then its
        steps are those of the ranks of the same numbers."""
        in_time = [step.number == 1 + i * self.cycle for i, step in enumerate(self.steps)]
        if self.mode != "inputs" or self.random or not in_time[0]:
            return False
        self.dealt_along = self._dealt_along(self.steps[0], 0, own)
        if self.dealt_along is None:
            return False
        self.dealt = True
        self.steps = self.steps[:(in_time + [False]).index(False)]
        return True

    def is_whole(self, step, k, own):
        """Whether the `k`th inputs of a step are those of all ranks together."""
        return self._dealt_along(step, k, own) == self.dealt_along

    def _dealt_along(self, step, k, own):
        per_rank = step.micro_batches.get(("inputs",), [[]])
        if k >= len(per_rank[0]):
            return None
        return samples.dealt_along(self.torch, own, [per_rank[p][k] for p in self.shared], self.layouts[("inputs",)])

    def items(self, play, stream, times):
        """The samples of its micro-batches. `times`: how many times as many of them one process takes."""
        per_rank, torch = play.step.micro_batches[stream], self.torch
        size, layout = _size_of(stream), self.layouts[stream]
        order = range(len(per_rank[0])) if play.micro_batch is None else [play.micro_batch] * len(per_rank[0])
        if times > 1:  # one process takes the ranks' micro-batches one after another
            if len(play.ranks) == 1:
                items = [per_rank[play.ranks[0]][m] for _ in range(times) for m in order]
            else:
                items = [per_rank[p][m] for p in play.ranks for m in order]
            return items[::-1] if play.kind == "permuted" else items
        everyone = [[per_rank[p][m] for p in self.shared] for m in order]
        if play.kind == "alone":
            return [per_rank[play.ranks[0]][m] for m in order]
        if play.kind == "padded":
            return [samples.widened(torch, per_rank[play.ranks[0]][m], everyone[m], layout, size) for m in order]
        joined = [samples.join(torch, parts, layout, size) for parts in everyone]
        if play.kind == "permuted":
            if not self._has_rows(play.step):
                return [samples.join(torch, parts[::-1], layout, size) for parts in everyone]
            return [samples.reversed_rows(torch, item, layout, size * len(parts) if size else None) for parts, item in zip(everyone, joined)]
        return joined

    def draws(self, play, inside, times):
        """What the ranks drew: for each draw of one process those that it stands for, rank by rank, and the number of their samples if these are in
        reverse order. None if that cannot be told."""
        step = play.step
        drawn = [[value for part in step.parts for value in part[p]["draws"][inside]] for p in range(len(self.ranks))]
        main = max(step.micro_batches.values(), key=lambda per_rank: len(per_rank[0]))
        count = len(main[0])
        if any(len(drawn[p]) != len(drawn[play.ranks[0]]) for p in play.ranks):
            return None
        each, rest = divmod(len(drawn[play.ranks[0]]), count)
        if rest and (times > 1 or play.micro_batch is not None):
            return None
        blocks = [drawn[p][m * each:(m + 1) * each] for p in play.ranks for m in range(count)] if times > 1 else []
        if play.micro_batch is not None:
            m = play.micro_batch
            return [([value], 0) for _ in range(count * times) for value in drawn[play.ranks[0]][m * each:(m + 1) * each]]
        if times > 1:
            if len(play.ranks) == 1:
                blocks = blocks * times
            return [([value], 0) for block in (blocks[::-1] if play.kind == "permuted" else blocks) for value in block]
        reverse = play.kind == "permuted"
        if reverse and not self._has_rows(step):
            return [(list(parts), 0) for parts in zip(*(drawn[p] for p in play.ranks[::-1]))]
        rows = [sum(nested.rows_of(main[p][m]) for p in play.ranks) if reverse else 0 for m in range(count)]
        total = len(drawn[play.ranks[0]])
        return [(list(parts), rows[k * count // total]) for k, parts in enumerate(zip(*(drawn[p] for p in play.ranks)))]

    def _has_rows(self, step):
        """Whether each tensor of a micro-batch has a row for each sample. Then these are permuted, otherwise the ranks."""
        rows = [
            [samples.rows_in(item, self.layouts[stream], _size_of(stream)) for p in self.shared for item in per_rank[p]]
            for stream, per_rank in step.micro_batches.items()]
        return all(stream == rows[0] and all(len(numbers) <= 1 for numbers in stream) for stream in rows)

    def gradient(self, step, i, shapes, owned):
        """Of the ranks, in the `i`th optimizer step: one tensor for each parameter of one process; None where it cannot be told or there is none."""
        kept = [part["gradient"] for part in step.parts[i]]
        return [self.whole(kept, *place, shape) for place, shape in zip(owned, shapes)]

    def whole(self, kept, owner, j, shape):
        """Of what each rank kept, in the order of its parameters."""
        return tensors.whole(self.torch, [each[j] for each in kept], shape) if owner is None else kept[owner][j]


def _size_of(stream):
    """Samples in a batch, where the DataLoader tells."""
    return stream[2] if stream[0] == "batch" else None


def _cycle(stepped):
    """How many optimizer steps belong to one batch: those until an optimizer steps for the second time."""
    for i, number in enumerate(stepped):
        if number in stepped[:i]:
            return i
    return max(1, len(stepped))
