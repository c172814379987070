# SPDX-License-Identifier: BSD-3-Clause
"""Which parameters the output of a forward depends on, read from autograd's graph. Nothing is computed and nothing is kept."""
import dataclasses


def is_edge(root):
    """Whether it is a GradientEdge, which stands for a tensor (torch.distributed.pipelining)."""
    return hasattr(root, "node") and hasattr(root, "output_nr") and not hasattr(root, "grad_fn")


def as_list(roots, torch):
    """The roots of a backward pass, or the inputs of torch.autograd.grad, as torch takes them: one, or several."""
    return [roots] if isinstance(roots, torch.Tensor) or is_edge(roots) else roots if isinstance(roots, (list, tuple)) else list(roots)


def tensors_in(output, torch, depth=4):
    """The tensors in an output of forward: nested tuples, lists, dicts, dataclasses."""
    if isinstance(output, torch.Tensor):
        return [output]
    if depth == 0:
        return []
    if isinstance(output, dict):
        children = output.values()
    elif isinstance(output, (list, tuple)):
        children = output
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        children = (getattr(output, field.name, None) for field in dataclasses.fields(output))
    else:
        return []
    return [tensor for child in children for tensor in tensors_in(child, torch, depth - 1)]


def nodes(roots):
    """All nodes of the graph of `roots`: tensors, or edges of the graph. Keep them: a new node could reuse the id of a freed one."""
    seen = {}
    todo = [root.node if is_edge(root) else root.grad_fn for root in roots]
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node
        todo.extend(following for following, _ in node.next_functions)
    return list(seen.values())


def leaves(roots):
    """id -> leaf tensor (parameter) from which `roots` were computed."""
    found = {id(root): root for root in roots if not is_edge(root) and root.grad_fn is None and root.requires_grad}
    for node in nodes(roots):
        variable = getattr(node, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
    return found


def users_of(sources, roots):
    """The nodes between `sources` and `roots`: what was computed from the outputs of these nodes."""
    users, everything = {}, nodes(roots)
    for node in everything:
        for following, _ in node.next_functions:
            users.setdefault(id(following), []).append(node)
    found, todo = {}, [user for source in sources for user in users.get(id(source), ())]
    while todo:
        node = todo.pop()
        if id(node) not in found:
            found[id(node)] = node
            todo.extend(users.get(id(node), ()))
    return list(found.values())


def saved_by(node, torch):
    """The tensors that an operation keeps for its backward. Under a checkpoint this computes them again."""
    try:
        kept = [getattr(node, name) for name in dir(type(node)) if name.startswith("_saved_")] + list(getattr(node, "saved_tensors", ()))
    except RuntimeError:  # freed by an earlier backward
        return []
    return tensors_in(kept, torch)


MAX_TERMS = 64  # of a sum of losses that are looked at


class Scale:
    """`factor`: the number by which the loss was scaled last, as in (loss / world_size) or (scale * loss); 1.0 if it was not, None if that number
    is on another device, where reading it would wait, or if the loss adds up sums that are scaled by different numbers. Consecutive scalings are
    multiplied. `is_sum`: whether what was scaled is a sum, as of reduction="sum", or of sums. `is_mixed`: whether sums and something else were added."""

    def __init__(self, loss):
        self.numbers = []  # each by itself, as the graph holds it
        self.left = MAX_TERMS
        self.is_mixed = False
        self.factor, self.is_sum = self._of(loss.grad_fn)

    def divides_by_all(self, reduced, world_size):
        """Whether the loss was divided by one of these numbers, which all ranks have reduced together, such as the tokens of all of them."""
        for total in map(float, reduced):
            if total > world_size:  # smaller ones may be votes
                for number in self.numbers:
                    if any(abs(total - each * times) <= 1e-6 * total for each in (number, 1.0 / number) for times in (1, world_size)):
                        return True
        return False

    def _of(self, node):
        product = 1.0
        for _ in range(8):
            name = node.name() if node is not None else ""
            if name not in ("MulBackward0", "DivBackward0"):
                break
            number = node._saved_other if node.next_functions[1][0] is None else None
            if number is None or number.numel() != 1:
                break
            if number.device.type != "cpu":
                product = None
            else:
                value = float(number)
                if value:
                    self.numbers.append(value)
                if name == "DivBackward0":
                    value = 1.0 / value if value else 0.0
                product = None if product is None else product * value
            node = node.next_functions[0][0]
        if node is not None and node.name() == "AddBackward0":
            inner = self._of_terms(node)
            if inner is not None:
                return None if product is None or inner == (None,) else product * inner[0], True
        is_sum = node is not None and (node.name().startswith("SumBackward") or getattr(node, "_saved_reduction", None) == 2)
        return product, is_sum

    def _of_terms(self, node):
        """(what all terms of an addition are scaled by, if these are sums,): None in it if they are not scaled alike; None if one is not a sum."""
        factors, others, todo = set(), False, [node]
        while todo:
            node = todo.pop()
            self.left -= 1
            if self.left < 0:
                return None
            if node is not None and node.name() == "AddBackward0":
                todo.extend(following for following, _ in node.next_functions if following is not None)
                continue
            product, is_sum = self._of(node)
            if is_sum:
                factors.add(product)
            else:
                others = True
        if others:
            self.is_mixed = self.is_mixed or bool(factors)
            return None
        return (factors.pop(),) if len(factors) == 1 else (None,)
