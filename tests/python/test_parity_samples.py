# SPDX-License-Identifier: BSD-3-Clause
"""Batches and random draws of several ranks, joined to one: structures as DataLoaders yield them, padding, order, counts.

usage: test_parity_samples.py [unittest's options]
environment: DDP_DOCTOR=bin/ddp-doctor
"""
import collections
import dataclasses
import os
import pathlib
import sys
import unittest

import torch

sys.path.insert(0, str(pathlib.Path(os.environ["DDP_DOCTOR"]).resolve().parent.parent / "libexec" / "ddp-doctor" / "python"))

from ddp_doctor_parity import Impossible, draws, nested, owners, samples, tensors  # noqa: E402

Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    tokens: int


class CustomBatch:
    def __init__(self, x, names):
        self.x, self.names = x, names


def numbers(first, rows, *shape):
    """Rows that are all different."""
    count = rows
    for size in shape:
        count *= size
    return torch.arange(first, first + count, dtype=torch.float32).reshape(rows, *shape)


def scene(first, boxes):
    return {"boxes": numbers(first, boxes, 4), "labels": torch.arange(boxes)}


class Join(unittest.TestCase):
    def join(self, *parts, size=None):
        layout = samples.Layout()
        for part in parts:
            layout.see(part, size)
        return samples.join(torch, list(parts), layout, size)

    def assert_same(self, a, b):
        if isinstance(b, torch.Tensor):
            self.assertTrue(torch.equal(a, b), f"{a} is not {b}")
        elif isinstance(b, dict):
            self.assertEqual(set(a), set(b))
            for key in b:
                self.assert_same(a[key], b[key])
        elif isinstance(b, (list, tuple)):
            self.assertIs(type(a), type(b))
            self.assertEqual(len(a), len(b))
            for x, y in zip(a, b):
                self.assert_same(x, y)
        else:
            self.assertEqual(a, b)

    def test_labels_that_ignore_a_prompt_are_filled_up_where_the_tokens_are(self):
        def batch(*rows):
            longest = max(prompt + answer for prompt, answer in rows)
            tokens = [list(range(1, prompt + answer + 1)) + [0] * (longest - prompt - answer) for prompt, answer in rows]
            labels = [[-100] * prompt + [7 + i for i in range(answer)] + [-100] * (longest - prompt - answer) for prompt, answer in rows]
            return {"tokens": torch.tensor(tokens), "labels": torch.tensor(labels)}

        joined = self.join(batch((3, 4), (2, 2)), batch((4, 1), (2, 1)))
        self.assertEqual(joined["tokens"][2:].tolist(), [[1, 2, 3, 4, 5, 0, 0], [1, 2, 3, 0, 0, 0, 0]])
        self.assertEqual(joined["labels"][2:].tolist(), [[-100] * 4 + [7, -100, -100], [-100] * 2 + [7] + [-100] * 4])

    def test_flattened_targets_have_rows(self):
        tokens = {"args": {"0": torch.arange(12).view(3, 4)}}
        rows = lambda target, inputs=tokens: tuple(samples.by_rows({"0": target}, inputs)["0"].shape)
        self.assertEqual(rows(torch.zeros(12)), (3, 4))
        self.assertEqual(rows(torch.zeros(9)), (3, 3))  # each token predicts the next
        self.assertEqual(rows(torch.zeros(3)), (3,))  # of samples
        self.assertEqual(rows(torch.zeros(7)), (7,))
        self.assertEqual(rows(torch.zeros(12), {"x": torch.zeros(3, 4)}), (12,))  # of no tokens
        self.assertEqual(rows(torch.zeros(12), {"x": torch.zeros(3, 4, 8)}), (3, 4))  # of frames

    def test_inputs_and_labels(self):
        a, b = [numbers(0, 4, 3), torch.arange(4)], [numbers(50, 4, 3), torch.arange(4, 8)]
        for size in (4, None):
            self.assert_same(self.join(a, b, size=size), [torch.cat([a[0], b[0]]), torch.arange(8)])

    def test_two_samples_of_each_rank_are_not_two_fields(self):
        a, b = [numbers(0, 5, 2), numbers(10, 3, 2)], [numbers(20, 4, 2), numbers(30, 6, 2)]
        self.assert_same(self.join(a, b, size=2), a + b)

    def test_two_fields_of_two_samples(self):
        a, b = [numbers(0, 2, 3), torch.arange(2)], [numbers(50, 2, 3), torch.arange(2, 4)]
        self.assert_same(self.join(a, b, size=2), [torch.cat([a[0], b[0]]), torch.arange(4)])

    def test_mappings_and_named_tuples(self):
        a, b = numbers(0, 2, 3), numbers(10, 2, 3)
        self.assert_same(self.join({"x": a, "name": "text"}, {"x": b, "name": "text"}), {"x": torch.cat([a, b]), "name": "text"})

    def test_classes_of_the_program(self):
        a, b = numbers(0, 2, 3), numbers(10, 2, 3)
        together = torch.cat([a, b])
        for first, second in (
            (Pair(a, a), Pair(b, b)), (Batch(a, 6), Batch(b, 6)), (CustomBatch(a, ["p", "q"]), CustomBatch(b, ["r", "s"])),
        ):
            joined = self.join(*(nested.mapped(part, lambda tensor, path: tensor.clone()) for part in (first, second)))
            self.assertTrue(nested.is_the_programs([joined]))
            made = nested.merged(joined, first)
            self.assertIs(type(made), type(first))
            self.assertTrue(torch.equal(made.x, together) and torch.equal(first.x, a))
        self.assertEqual(made.names, ["p", "q", "r", "s"])
        hidden = nested.mapped({"x": a, "other": unittest.TestCase}, lambda tensor, path: tensor)
        self.assertIs(hidden["other"], unittest.TestCase)
        hidden = nested.mapped({"x": a, "other": Join}, lambda tensor, path: tensor)
        with self.assertRaisesRegex(Impossible, "holds type in other"):
            self.join(hidden, hidden)

    def test_numbers_beside_the_tensors(self):
        def sentences(*lengths):
            rows = torch.nn.utils.rnn.pad_sequence([torch.arange(2, 2 + n) for n in lengths], batch_first=True, padding_value=1)
            return {
                "rows": rows, "count": len(lengths), "tokens": sum(lengths), "longest": max(lengths), "scale": 0.5, "epoch": torch.tensor(7),
                "total": torch.tensor(float(sum(lengths))), "pair": (rows, sum(lengths)),
            }

        joined = self.join(sentences(4, 2, 3), sentences(5, 1, 6))
        self.assertEqual({key: joined[key] for key in ("count", "tokens", "longest", "scale")}, {"count": 6, "tokens": 21, "longest": 6, "scale": 0.5})
        self.assertEqual((int(joined["epoch"]), float(joined["total"]), joined["pair"][1]), (7, 21.0, 21))
        with self.assertRaisesRegex(Impossible, "int in seed"):
            self.join({"x": numbers(0, 4, 3), "seed": 5}, {"x": numbers(50, 4, 3), "seed": 9})
        with self.assertRaisesRegex(Impossible, "single number in n"):  # the samples, or the width
            self.join({"x": numbers(0, 3, 3), "n": torch.tensor(3)}, {"x": numbers(50, 3, 3), "n": torch.tensor(3)})

    def test_images_and_a_list_of_what_is_in_each(self):
        a = (numbers(0, 3, 2), (scene(0, 1), scene(10, 4), scene(30, 2)))
        b = (numbers(90, 3, 2), (scene(50, 2), scene(60, 1), scene(70, 5)))
        for size in (3, None):
            self.assert_same(self.join(a, b, size=size), (torch.cat([a[0], b[0]]), a[1] + b[1]))

    def test_as_many_in_each_of_these(self):
        a = (numbers(0, 3, 2), (scene(0, 2), scene(10, 2), scene(30, 2)))
        b = (numbers(90, 3, 2), (scene(50, 2), scene(60, 2), scene(70, 2)))
        for size in (3, None):
            self.assert_same(self.join(a, b, size=size), (torch.cat([a[0], b[0]]), a[1] + b[1]))

    def test_images_of_different_sizes(self):
        a, b = ([numbers(0, 1, 3, 2), numbers(10, 1, 5, 2)], [scene(0, 1), scene(10, 2)]), ([numbers(20, 1, 4, 2)] * 2, [scene(20, 2), scene(30, 3)])
        self.assert_same(self.join(a, b, size=2), (a[0] + b[0], a[1] + b[1]))

    def test_crops_are_fields(self):
        a, b = [numbers(100 * i, 4, 2) for i in range(3)], [numbers(100 * i + 50, 4, 2) for i in range(3)]
        self.assert_same(self.join(a, b, size=4), [torch.cat(pair) for pair in zip(a, b)])

    def test_a_last_batch_that_is_shorter(self):
        a, b = [numbers(0, 3, 2), torch.arange(3)], [numbers(50, 1, 2), torch.arange(1)]
        for size in (8, 2):
            self.assert_same(self.join(a, b, size=size), [torch.cat([a[0], b[0]]), torch.tensor([0, 1, 2, 0])])

    def test_samples_with_names(self):
        a, b = [{"x": numbers(0, 2, 1), "name": "a"}], [{"x": numbers(9, 3, 1), "name": "b"}]
        self.assert_same(self.join(a, b, size=1), a + b)

    def test_what_cannot_be_joined(self):
        for a, b, why in (
            ({"x": numbers(0, 2, 1)}, {"y": numbers(0, 2, 1)}, "different keys"),
            ({"x": numbers(0, 2, 1), "n": 1}, {"x": numbers(0, 2, 1), "n": 2}, "int in n"),
            (torch.tensor(1.0), torch.tensor(2.0), "single number"),
            (numbers(0, 2, 3), numbers(0, 2, 3, 1), "different dimensions"),
        ):
            with self.assertRaisesRegex(Impossible, why):
                self.join(a, b)
        self.assert_same(self.join(torch.tensor(1.0), torch.tensor(1.0)), torch.tensor(1.0))

    def test_padding_as_the_batches_show_it(self):
        ids = torch.tensor([[5, 6, 7, 8], [5, 0, 0, 0]])
        labels = torch.tensor([[5, 6, 7, 8], [5, -100, -100, -100]])
        short = {"ids": torch.tensor([[1, 2]]), "labels": torch.tensor([[1, 2]])}
        joined = self.join({"ids": ids, "labels": labels}, short)
        self.assert_same(joined["ids"][2], torch.tensor([1, 2, 0, 0]))
        self.assert_same(joined["labels"][2], torch.tensor([1, 2, -100, -100]))
        turned = self.join({"ids": ids.flip(1), "labels": labels.flip(1)}, short)
        self.assert_same(turned["ids"][2], torch.tensor([0, 0, 1, 2]))
        self.assert_same(turned["labels"][2], torch.tensor([-100, -100, 1, 2]))

    def test_padding_of_which_nothing_is_known(self):
        self.assert_same(self.join(numbers(1, 1, 3), numbers(9, 1, 1)), torch.tensor([[1.0, 2, 3], [9, 0, 0]]))


class Rows(unittest.TestCase):
    def test_another_order_has_the_same_samples(self):
        x, targets = numbers(0, 4, 2), [scene(10 * i, 1 + i) for i in range(4)]
        turned = samples.reversed_rows(torch, (x, targets), samples.Layout(), 4)
        self.assertTrue(torch.equal(turned[0], x.flip(0)))
        self.assertEqual([len(each["labels"]) for each in turned[1]], [4, 3, 2, 1])
        turned = samples.reversed_rows(torch, {"x": x, "scale": torch.tensor(3.0)}, samples.Layout())
        self.assertTrue(torch.equal(turned["x"], x.flip(0)) and turned["scale"] == 3)

    def test_one_rank_padded_as_among_all(self):
        part, other = {"x": torch.ones(1, 2)}, {"x": torch.ones(1, 4)}
        self.assertTrue(samples.needs_padding([part, other], samples.Layout()))
        self.assertFalse(samples.needs_padding([part, {"x": torch.ones(3, 2)}], samples.Layout()))
        wide = samples.widened(torch, part, [part, other], samples.Layout())
        self.assertEqual(wide["x"].tolist(), [[1, 1, 0, 0]])

    def test_samples_in_a_list_are_not_padded(self):
        parts = [{"x": numbers(0, 2, 3)}, {"x": numbers(0, 2, 1)}], [{"x": numbers(0, 1, 5)}, {"x": numbers(0, 4, 1)}]
        self.assertFalse(samples.needs_padding(parts, samples.Layout(), 2))
        self.assertEqual(samples.widened(torch, parts[0], parts, samples.Layout(), 2)[1]["x"].shape, (2, 1))

    def test_whether_one_process_takes_the_samples_of_all(self):
        parts = [{"x": numbers(0, 2, 3), "n": 7}, {"x": numbers(50, 2, 4), "n": 7}]
        whole = {"x": torch.cat([numbers(50, 2, 4), torch.nn.functional.pad(numbers(0, 2, 3), (0, 1))]), "n": 7}
        same = lambda own, of: samples.dealt_along(torch, own, of, samples.Layout()) == 0
        self.assertTrue(same(whole, parts))
        for other in ({"x": whole["x"][:3], "n": 7}, {"x": whole["x"] + 1, "n": 7}, {"x": whole["x"], "n": 8}, {"x": whole["x"]}, {"x": 3, "n": 7}):
            self.assertFalse(same(other, parts))
        self.assertTrue(same([whole["x"]], [[nested.Derived()], [nested.Derived()]]))
        lists = [[numbers(0, 2, 3), numbers(50, 3, 3)], [numbers(90, 1, 3), numbers(95, 4, 3)]]
        self.assertTrue(same([lists[1][1], *lists[0], lists[1][0]], lists))
        self.assertFalse(same(lists[0], lists))
        self.assertFalse(same([*lists[0], *lists[0]], lists))

    def test_samples_along_the_second_dimension(self):
        a, b = (numbers(0, 5, 4, 2), torch.arange(20).reshape(5, 4) + 1), (numbers(90, 3, 4, 2), torch.arange(12).reshape(3, 4) + 50)
        layout = samples.Layout()
        for part in (a, b):
            layout.see(part, 4)
        joined = samples.join(torch, [a, b], layout, 4)
        self.assertEqual([tuple(tensor.shape) for tensor in joined], [(5, 8, 2), (5, 8)])
        self.assertTrue(torch.equal(joined[1][:, :4], a[1]) and torch.equal(joined[1][:3, 4:], b[1]) and int(joined[1][3:, 4:].abs().sum()) == 0)
        self.assertTrue(samples.needs_padding([a, b], layout, 4))
        self.assertEqual(samples.widened(torch, b, [a, b], layout, 4)[1].shape, (5, 4))
        self.assertTrue(torch.equal(samples.reversed_rows(torch, a, layout, 4)[1], a[1].flip(1)))
        # But not points with as many coordinates as there are samples.
        points = [numbers(0, 7, 4)], [numbers(50, 6, 4)]
        self.assertEqual(samples.join(torch, list(points), samples.Layout(), 4)[0].shape, (13, 4))

    def test_counts(self):
        batch = {"input_ids": torch.tensor([[3, 4, 0], [5, 0, 0]]), "labels": torch.tensor([[3, 4, -100], [-100, -100, -100]])}
        counts = samples.counts_of(batch)
        self.assertEqual(counts["samples"], 2)
        self.assertEqual(counts["input_ids that are not 0"], 3)
        self.assertEqual(counts["labels that are not -100"], 2)
        self.assertEqual(counts["labels but the first that are not -100"], 1)
        self.assertEqual(samples.counts_of([numbers(0, 2, 3), batch["labels"]])["targets[1] that are not -100"], 2)
        self.assertEqual(samples.counts_of((numbers(0, 2, 3), [scene(0, 3), scene(0, 4)]))["boxes"], 7)
        self.assertEqual(samples.counts_of({"x": numbers(0, 2, 3) + 0.5, "mask": torch.tensor([[1.0, 0, 0], [1, 1, 0]])}), {"samples": 2, "mask that are not 0": 3})

    def test_what_the_program_computes_itself(self):
        given = nested.mapped(nested.arguments([numbers(0, 2, 1), nested.Derived()], {}), lambda tensor, path: tensor)
        mine = torch.zeros(2)
        merged = nested.merged(given, nested.arguments([torch.ones(2, 1), mine], {}))
        self.assertIs(merged["args"][1], mine)
        self.assertIs(merged["args"][0], given["args"][0])

    def test_arguments_are_joined_each_by_itself(self):
        a, b = (nested.arguments([numbers(first, 2, 3), numbers(first, 5, 1)], {"scale": 2}) for first in (0, 50))
        joined = samples.join(torch, [a, b], samples.Layout())
        self.assertEqual([tuple(tensor.shape) for tensor in joined["args"].values()], [(4, 3), (10, 1)])
        self.assertEqual(joined["kwargs"], {"scale": 2})


class Draws(unittest.TestCase):
    def given(self, name, shape, *parts, samples=0):
        own = torch.full(shape, -1.0)
        return own if draws.give(torch, name, own, list(parts), samples) else None

    def test_have_the_rows_of_all_ranks(self):
        a, b = numbers(0, 2, 3), numbers(50, 4, 3)
        self.assertTrue(torch.equal(self.given("randn", (6, 3), a, b), torch.cat([a, b])))
        self.assertTrue(torch.equal(self.given("randn", (6, 3), a, b, samples=6), torch.cat([a, b]).flip(0)))
        views_first = self.given("rand", (3, 6), a.t(), b.t())
        self.assertTrue(torch.equal(views_first, torch.cat([a, b]).t()))

    def test_of_several_rows_for_each_sample(self):
        a, b = numbers(0, 4, 1), numbers(50, 2, 1)  # 2 and 1 samples
        self.assertEqual(self.given("rand", (6, 1), a, b, samples=3).flatten().tolist(), [50, 51, 2, 3, 0, 1])
        self.assertIsNone(self.given("rand", (6, 1), a, b, samples=4))

    def test_leave_what_is_padding(self):
        self.assertEqual(self.given("rand", (2, 3), numbers(0, 1, 3), numbers(50, 1, 2)).tolist(), [[0, 1, 2], [50, 51, -1]])

    def test_an_order_is_that_of_each_rank(self):
        a, b = torch.tensor([1.0, 0]), torch.tensor([2.0, 0, 1])
        self.assertEqual(self.given("randperm", (5,), a, b).tolist(), [1, 0, 4, 2, 3])
        self.assertEqual(self.given("randperm", (5,), a, b, samples=5).tolist(), [1, 2, 0, 4, 3])

    def test_that_have_no_rows_must_be_the_same_on_all_ranks(self):
        self.assertEqual(self.given("rand", (1,), torch.ones(1), torch.ones(1)).tolist(), [1])
        self.assertIsNone(self.given("rand", (1,), torch.ones(1), torch.zeros(1)))


class Marks(unittest.TestCase):
    def test_tell_gradients_of_ranks_apart(self):
        a, b = torch.randn(20, 30), torch.randn(20, 30)
        mark = lambda *gradients: [tensors.mark(gradient) for gradient in gradients]
        self.assertTrue(tensors.marks_differ([mark(a, b), mark(a, a)]))
        self.assertTrue(tensors.marks_differ([mark(a / a.norm()), mark(b / b.norm())]), "clipped to one norm")
        self.assertFalse(tensors.marks_differ([mark(a, b), mark(a * (1 + 1e-6), b)]))
        self.assertFalse(tensors.marks_differ([[None, *mark(a)], [None, *mark(a)]]))


class Parts(unittest.TestCase):
    def test_add_up_along_one_dimension(self):
        whole = lambda shape, *parts: tensors.whole(torch, list(parts), shape)
        a, b = numbers(0, 3, 4), numbers(50, 2, 4)
        self.assertTrue(torch.equal(whole((5, 4), a, b), torch.cat([a, b])))
        self.assertTrue(torch.equal(whole((4, 5), a.T, b.T), torch.cat([a.T, b.T], dim=1)))
        self.assertTrue(torch.equal(whole((3, 4), a, a), a), "replicas")
        self.assertIsNone(whole((6, 4), a, b))
        self.assertIsNone(whole((5, 4), a, None))
        self.assertTrue(tensors.is_dealt_out(a, (5, 4)))
        self.assertFalse(tensors.is_dealt_out(a, (3, 4)))

    def test_modules_of_a_list_have_owners(self):
        names = ["stem.0.w", "layers.0.experts.0.w", "layers.0.experts.1.w", "layers.1.w", "head"]
        one = ["stem.0.w", *(f"layers.0.experts.{i}.w" for i in range(4)), "layers.1.w", "head"]
        self.assertEqual(owners.owners(names, one, 2), [(None, 0), (0, 1), (0, 2), (1, 1), (1, 2), (None, 3), (None, 4)])
        self.assertIsNone(owners.owners(names, one, 4))
        self.assertIsNone(owners.owners(names, one[:-1], 2), "a parameter that one process does not have")
        self.assertIsNone(owners.owners(names, [*one, "tail"], 2))
        self.assertIsNone(owners.owners(names, [*one[:-1], ""], 2), "a parameter of no module")


if __name__ == "__main__":
    unittest.main(verbosity=2)
