# SPDX-License-Identifier: BSD-3-Clause
"""Which parameters the output of a forward depends on, read from autograd's graph. Nothing is computed and nothing is kept."""
import dataclasses


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


def leaves(tensors):
    """id -> leaf tensor (parameter) from which `tensors` were computed."""
    found = {}
    seen = {}  # keeps the nodes alive: a new node could reuse the id of a freed one
    todo = []
    for tensor in tensors:
        if tensor.grad_fn is not None:
            todo.append(tensor.grad_fn)
        elif tensor.requires_grad:
            found[id(tensor)] = tensor
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        variable = getattr(node, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        todo.extend(following for following, _ in node.next_functions if following is not None)
    return found


def factor(loss):
    """The number by which the loss was scaled last, as in (loss / world_size) or (scale * loss); 1.0 if it was not. Consecutive scalings are
    multiplied."""
    product = 1.0
    node = loss.grad_fn
    for _ in range(8):
        name = node.name() if node is not None else ""
        if name not in ("MulBackward0", "DivBackward0"):
            break
        number = node._saved_other if node.next_functions[1][0] is None else None
        if number is None or number.numel() != 1 or number.device.type != "cpu":
            break
        value = float(number)
        if name == "DivBackward0":
            value = 1.0 / value if value else 0.0
        product *= value
        node = node.next_functions[0][0]
    return product
