"""Embeddings and bags of them: indices are rows, offsets are positions among the indices."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from backprint.checks.looking import Bound, beyond, counted, first, rising, unlike


def embedded(given: Bound) -> str:
    """Check embedding's backward: each index is a row."""
    indices, rows = given["indices"], int(given["num_weights"])
    grad = given.get("grad_output", given.get("grad"))
    if rows < 0:
        return f"num_weights={rows} is not a number of rows"
    if not isinstance(grad, Tensor) or not isinstance(indices, Tensor) or grad.shape[:-1] != indices.shape:
        return "the gradient does not have the shape of the indices and one more"
    return beyond("indices", indices, 0, rows, (int(given["padding_idx"]),))


def bagged(given: Bound) -> str:
    """Check embedding_bag: indices are rows, offsets are positions among the indices, in order."""
    indices, offsets = given["indices"], given["offsets"]
    if not isinstance(indices, Tensor) or not isinstance(offsets, Tensor) or offsets.dim() != 1 or indices.dim() != 1:
        return "indices and offsets are not lists of numbers"
    rows = given["weight"].shape[0] if isinstance(given["weight"], Tensor) and given["weight"].dim() == 2 else 0
    weights = given.get("per_sample_weights")
    return first(
        (
            counted("per_sample_weights", weights, indices.numel()),
            beyond("indices", indices, 0, rows),
            beyond("offsets", offsets, 0, indices.numel() + 1),
            "" if rising(offsets) else "offsets go back",
        )
    )


def unbagged(given: Bound) -> str:
    """Check embedding_bag's backwards: there is a gradient for each bag, indices are rows, and each has its bag."""
    grad, indices, bags = given["grad"], given["indices"], given["offset2bag"]
    if not all(isinstance(each, Tensor) for each in (grad, indices, bags)) or grad.dim() != 2 or indices.dim() != 1:
        return "grad is not a table with a row for each bag, or indices is not a list"
    weight, count = given.get("weight"), indices.numel()
    if isinstance(weight, Tensor) and (weight.dim() != 2 or weight.shape[1] != grad.shape[1]):
        return f"weight has the shape {list(weight.shape)}, and grad {list(grad.shape)}"
    rows = weight.shape[0] if isinstance(weight, Tensor) else int(given["num_weights"])
    derived = bags.numel() == 0 and isinstance(given.get("offsets"), Tensor)  # from the offsets, by the operator itself
    largest = given.get("maximum_indices") if int(given["mode"]) == 2 else None
    return first(
        (
            f"num_weights={rows} is not a number of rows" if rows < 0 else "",
            beyond("indices", indices, 0, rows),
            offsets_in_order(given.get("offsets"), grad.shape[0], count),
            "" if derived else counted("offset2bag", bags, count) or beyond("offset2bag", bags, 0, grad.shape[0]),
            "" if "bag_size" not in given else counted("bag_size", given["bag_size"], grad.shape[0]),
            counted("per_sample_weights", given.get("per_sample_weights"), count),
            unlike("maximum_indices", largest, grad.shape) or beyond("maximum_indices", largest, -1, rows),
        )
    )


def offsets_in_order(offsets: Any, bags: int, count: int) -> str:
    """Return the complaint about offsets that are not positions among the indices, in order, one for each bag or one
    more."""
    if not isinstance(offsets, Tensor):
        return ""
    if offsets.dim() != 1 or offsets.numel() not in (bags, bags + 1):
        return f"offsets has the shape {list(offsets.shape)}, and there are {bags} bags"
    complaint = beyond("offsets", offsets, 0, count + 1) or ("" if rising(offsets) else "offsets go back")
    return complaint or beyond("the first offset", offsets[:1], 0, 1)
