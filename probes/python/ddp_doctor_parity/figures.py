# SPDX-License-Identifier: BSD-3-Clause
"""What gradients have in common: their inner products, in double precision, from which lengths, ratios, angles and weights follow."""


def inner_products(torch, vectors):
    """The upper triangle, row by row; a vector of None is a zero vector."""
    flat = [None if v is None else v.detach().double().reshape(-1) for v in vectors]
    result = []
    for i, a in enumerate(flat):
        for b in flat[i:]:
            result.append(0.0 if a is None or b is None else float(torch.dot(a, b)))
    return result
