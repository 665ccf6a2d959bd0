"""Operators whose kernels on a GPU assert what they are given, and end the process's use of the GPU where it fails.

On the CPU the same kernels raise, so nobody needs to look before. Indices may be out of range, and probabilities no
probabilities, where inputs are drawn anew to find out whether a result depends on them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.checks.looking import Bound, Check, beyond, first, readable, reading_values
from backprint.checks.schema import bound_by_schema


def would_assert(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Why a GPU's kernel of this operator would assert, in words; '' where it would not, or runs elsewhere."""
    check = check_on_gpu(function)
    if check is None or not any(isinstance(value, Tensor) and value.is_cuda for value in (*args, *kwargs.values())):
        return ""
    given, complaint = bound_by_schema(function, args, kwargs)
    try:
        return complaint or check(given)
    except (TypeError, ValueError, AttributeError, LookupError):  # arguments that the operator itself refuses
        return ""


@functools.cache
def check_on_gpu(function: Any) -> Check | None:
    """The check of an operator's arguments where it runs on a GPU, by its name or that of all its overloads."""
    name = str(function)
    return ASSERTING.get(name) or ASSERTING.get(name.rpartition(".")[0])


def along(given: Bound) -> str:
    """Indices along one dimension."""
    size = length_along(given["self"], int(given["dim"]))
    return beyond("index", given["index"], 0, size)


def along_from_either_end(given: Bound) -> str:
    """Indices along one dimension, which may count from its end."""
    size = length_along(given["self"], int(given["dim"]))
    return beyond("index", given["index"], -size, size)


def length_along(tensor: Tensor, dim: int) -> int:
    """The size of a dimension; a number has one element."""
    return int(tensor.shape[dim]) if tensor.dim() else 1


def anywhere(given: Bound) -> str:
    """Indices into a tensor as if it were flat."""
    count = given["self"].numel()
    return beyond("index", given["index"], -count, count)


def indexed(given: Bound) -> str:
    """A list of indices, one for each dimension; a mask stands for as many as it has."""
    sizes, at, complaints = given["self"].shape, 0, []
    for number, index in enumerate(given["indices"]):
        if index is None:
            at += 1
        elif index.dtype in (torch.bool, torch.uint8):
            at += index.dim()
        else:
            complaints.append(beyond(f"indices[{number}]", index, -sizes[at], sizes[at]))
            at += 1
    return first(complaints)


def rows(given: Bound) -> str:
    """Indices of rows."""
    return beyond("indices", given["indices"], 0, int(given["weight"].shape[0]))


def classes(given: Bound) -> str:
    """Targets that are classes, or the one that is ignored."""
    scores = given["self"]
    count = int(scores.shape[1 if scores.dim() > 1 else 0])
    ignored = (int(given["ignore_index"]),) if "ignore_index" in given else ()
    return beyond("target", given["target"], -1 if "ignore_index" not in given else 0, count, ignored)


def probabilities(given: Bound) -> str:
    """Numbers from 0 to 1, `p` where the operator has it."""
    return outside("p", given["p"], 0, 1) if "p" in given else outside("self", given["self"], 0, 1)


def predicted(given: Bound) -> str:
    """A prediction from 0 to 1."""
    return outside("self", given["self"], 0, 1)


def weights(given: Bound) -> str:
    """Numbers from 0 on, none of them infinite."""
    return outside("self", given["self"], 0, torch.finfo(torch.float64).max)


def rates(given: Bound) -> str:
    """Numbers from 0 on."""
    return first(outside(name, given[name], 0, float("inf")) for name in ("self", "count") if name in given)


def asserted(given: Bound) -> str:
    """A number that is not 0."""
    value = given["self"]
    if not readable(value):
        return ""
    with reading_values():
        return "" if bool(value.bool().all()) else "self is 0"


def outside(name: str, value: Any, low: float, high: float) -> str:
    """What is said of a tensor that holds a number outside of [low, high], or NaN."""
    if not readable(value) or value.numel() == 0 or value.is_complex():
        return ""
    with reading_values():
        odd = ~((value >= low) & (value <= high))
        if not bool(odd.any()):
            return ""
        found = value[odd].flatten()[0].item()
    return f"{name} holds {found}, which is not in [{low}, {high}]"


def every(check: Check, names: str) -> dict[str, Check]:
    """Rows for operators that have one check."""
    return {f"aten.{name}": check for name in names.split()}


ASSERTING: Mapping[str, Check] = {
    **every(along, "index_select index_add index_add_ index_copy index_copy_ index_reduce index_reduce_ gather"),
    **every(along, "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"),
    **every(along_from_either_end, "index_fill index_fill_"),
    **every(anywhere, "take put put_"),
    **every(indexed, "index _unsafe_index index_put index_put_ _index_put_impl_ _unsafe_index_put"),
    **every(rows, "embedding"),
    **every(classes, "nll_loss_forward nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward"),
    **every(probabilities, "bernoulli.default bernoulli.Tensor bernoulli_.Tensor"),
    **every(predicted, "binary_cross_entropy"),
    **every(weights, "multinomial"),
    **every(rates, "poisson binomial"),
    **every(asserted, "_assert_async"),
}
"""By operator: what is wrong with its arguments."""
