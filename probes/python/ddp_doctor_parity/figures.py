# SPDX-License-Identifier: BSD-3-Clause
"""What the gradients of the ranks and those that the reference played have in common: their inner products, in double precision, from which lengths,
ratios, angles and weights follow."""
from . import Impossible, samples, tensors


class Figures:
    """`times`: micro-batches of one process for one of a rank."""

    def __init__(self, torch, script, times):
        self.torch, self.script, self.times = torch, script, times

    def add(self, steps, step, played):
        """Those of one of the ranks' steps to `steps`. `played`: (kind, ranks, micro-batch) of a play -> what the reference computed."""
        joined = played[("joined", tuple(self.script.shared), None)]
        for i in range(self.script.cycle):
            figures = self.of(step, i, played)
            if i > 0 and not joined[i]["forward"]:
                steps[-1]["parameters"] += figures["parameters"]  # of another optimizer, on the same samples
                steps[-1]["not_told"] += figures["not_told"]
            else:
                steps.append(figures)
            if joined[i]["assembled"] and not self._same_loss(figures["loss"]):
                raise Impossible("put together in the order of the ranks, the parts that they hold of the model do not compute what the ranks do")

    def _same_loss(self, loss):
        mean = sum(loss["ranks"]) / len(loss["ranks"])
        near = (1e-2 if self.script.told["low_precision"] else 1e-5) * abs(mean)
        return any(abs(loss["one"] - told) <= near for told in (mean, sum(loss["ranks"])))

    def of(self, step, i, played):
        script = self.script
        everyone = tuple(script.shared)
        joined = played[("joined", everyone, None)][i]
        owned = joined["owned"]
        synchronized = script.gradient(step, i, joined["shapes"], owned)
        on_all = [
            j for (owner, j), shape in zip(owned, joined["shapes"]) if owner is None and not tensors.is_dealt_out(step.parts[i][0]["gradient"][j], shape)]
        plays_alone = [] if script.dealt and joined["assembled"] else script.alone(step)
        alone = [self._alone(step, i, played, *one) for one in plays_alone]
        others = [joined if script.dealt else played[("permuted", everyone, None)][i], *alone]
        padded = [(plays_alone.index((*ranks, micro_batch)), gradients[i]) for (kind, ranks, micro_batch), gradients in played.items() if kind == "padded"]
        again = [gradients[i] for (kind, *_), gradients in played.items() if kind == "again"]
        others += [gradients for _, gradients in padded] + again
        names = [step.parts[i][0]["names"][j] if owner is None else own for (owner, j), own in zip(owned, joined["names"])]
        parameters, untold = [], []
        for j, (name, (owner, place)) in enumerate(zip(names, owned)):
            reference = joined["gradient"][j]
            if synchronized[j] is None:
                # In the ranks' step it may have been frozen, as until some iteration, and this process has made others since.
                if reference is not None or any(part["gradient"][place] is not None for part in step.parts[i]):
                    untold.append(name)
                continue
            products = inner_products(self.torch, [synchronized[j], reference, *(other["gradient"][j] for other in others)])
            parameters.append({"name": name, "rank": None if owner is None else script.ranks[owner], "products": products})
        ranks_losses = [part["losses"] for part in step.parts[i]]
        counts = [self._sample_counts(step, *one) for one in plays_alone] or [{}]
        common = [key for key in counts[0] if all(key in each for each in counts)]
        return {
            "step": step.number + i,
            "alone": [script.ranks[position] for position, _ in plays_alone], "padded": padded[0][0] if padded else None, "again": bool(again),
            "apart": tensors.marks_differ([[step.parts[i][position]["marks"][j] for j in on_all] for position in script.shared]),
            "parameters": parameters, "not_told": untold,
            "loss": {"ranks": [sum(losses) / max(1, len(losses)) for losses in ranks_losses], "one": _mean(joined["losses"])},
            "counts": {key: [each[key] for each in counts] for key in common},
            # Where ranks have parts of the model, their modules get and return other things: that the loss is the same is enough (add).
            "module": self._first_different_module(step, joined, others[0]) if i == 0 and not joined["assembled"] else None,
        }

    def _alone(self, step, i, played, position, micro_batch):
        if self.script.dealt:
            return {"gradient": step.parts[i][position]["local"]}
        return played[("alone", (position,), micro_batch)][i]

    def _sample_counts(self, step, position, micro_batch):
        total = {}
        for per_rank in step.micro_batches.values():
            for item in per_rank[position] if micro_batch is None else [per_rank[position][micro_batch]]:
                for key, count in samples.counts_of(item).items():
                    total[key] = total.get(key, 0) + count
        return total

    def _first_different_module(self, step, joined, permuted):
        """Of the first micro-batch: the first input of the model, or the first module in the order of their calls, whose output is not that of
        the ranks, sample by sample."""
        if self.times > 1 or not joined.get("outputs") or self.script.pads(step):
            return None
        everyone = [step.parts[0][p]["outputs"] for p in self.script.shared]
        for k, (name, kind, norms) in enumerate(joined["outputs"]):
            if any(k >= len(outputs) or outputs[k][0] != name for outputs in everyone):
                return None
            # In order of size: a program may put the samples in another order.
            mine = self.torch.cat([outputs[k][2] for outputs in everyone]).sort().values
            if self.script.dealt_along == 1 and all(outputs[k][2].shape == norms.shape for outputs in everyone):
                mine = self.torch.stack([outputs[k][2] for outputs in everyone]).norm(dim=0).sort().values  # of each sample, a part on every rank
            norms = norms.sort().values
            if mine.shape != norms.shape:
                continue
            size = float(norms.norm())
            distance = float((mine - norms).norm()) / size if size > 0 else 0.0
            turned = permuted["outputs"][k][2].sort().values if k < len(permuted.get("outputs", [])) else norms
            rounding = float((turned - norms).norm()) / size if turned.shape == norms.shape and size > 0 else 0.0
            low = 3e-2 if self.script.told["low_precision"] else 1e-4
            if distance > max(low, 20 * rounding):
                return {"name": name, "type": kind, "distance": distance}
        return None


def inner_products(torch, vectors):
    """The upper triangle, row by row; a vector of None is a zero vector."""
    flat = [None if v is None else v.detach().double().reshape(-1) for v in vectors]
    result = []
    for i, a in enumerate(flat):
        for b in flat[i:]:
            result.append(0.0 if a is None or b is None else float(torch.dot(a, b)))
    return result


def _mean(values):
    return sum(values) / max(1, len(values))
