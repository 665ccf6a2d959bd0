"""Operators whose kernels on a GPU assert on their arguments, after which the process cannot use the GPU.

On the CPU the same kernels raise an error, so nothing needs to be checked before. Indices may be out of range, and
probabilities invalid, when inputs are redrawn to find out whether a result depends on them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.checks.arguments import Bound, Check, beyond, first, readable, reading_values
from backprint.checks.schema import bound_by_schema


def would_assert(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Say why a GPU's kernel of this operator would assert; '' if it would not, or runs elsewhere."""
    check = check_on_gpu(function)
    if check is None or not any(isinstance(value, Tensor) and value.is_cuda for value in (*args, *kwargs.values())):
        return ""
    given, complaint = bound_by_schema(function, args, kwargs)
    try:
        return complaint or check(given)
    except (TypeError, ValueError, AttributeError, LookupError):  # the operator itself refuses these arguments
        return ""


@functools.cache
def check_on_gpu(function: Any) -> Check | None:
    """Return the check of an operator's arguments on a GPU, by its name or that of all its overloads."""
    name = str(function)
    return ASSERTING.get(name) or ASSERTING.get(name.rpartition(".")[0])


def along(given: Bound) -> str:
    """Check indices along one dimension."""
    size = length_along(given["self"], int(given["dim"]))
    return beyond("index", given["index"], 0, size)


def along_from_either_end(given: Bound) -> str:
    """Check indices along one dimension, which may count from its end."""
    size = length_along(given["self"], int(given["dim"]))
    return beyond("index", given["index"], -size, size)


def length_along(tensor: Tensor, dim: int) -> int:
    """Return the size of a dimension; a number has one element."""
    return int(tensor.shape[dim]) if tensor.dim() else 1


def anywhere(given: Bound) -> str:
    """Check indices into a flattened tensor."""
    count = given["self"].numel()
    return beyond("index", given["index"], -count, count)


def indexed(given: Bound) -> str:
    """Check a list of indices, one for each dimension; a mask counts for as many as it has."""
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
    """Check indices of rows."""
    return beyond("indices", given["indices"], 0, int(given["weight"].shape[0]))


def classes(given: Bound) -> str:
    """Check that targets are classes, or the ignored one."""
    scores = given["self"]
    count = int(scores.shape[1 if scores.dim() > 1 else 0])
    ignored = (int(given["ignore_index"]),) if "ignore_index" in given else ()
    return beyond("target", given["target"], -1 if "ignore_index" not in given else 0, count, ignored)


def probabilities(given: Bound) -> str:
    """Check that numbers are between 0 and 1, and `p` if the operator has it."""
    return outside("p", given["p"], 0, 1) if "p" in given else outside("self", given["self"], 0, 1)


def predicted(given: Bound) -> str:
    """Check that a prediction is between 0 and 1."""
    return outside("self", given["self"], 0, 1)


def weights(given: Bound) -> str:
    """Check that numbers are non-negative and finite."""
    return outside("self", given["self"], 0, torch.finfo(torch.float64).max)


def rates(given: Bound) -> str:
    """Check that numbers are non-negative."""
    return first(outside(name, given[name], 0, float("inf")) for name in ("self", "count") if name in given)


def asserted(given: Bound) -> str:
    """Check that a number is not 0."""
    value = given["self"]
    if not readable(value):
        return ""
    with reading_values():
        return "" if bool(value.bool().all()) else "self is 0"


def outside(name: str, value: Any, low: float, high: float) -> str:
    """Return the complaint about a tensor with a number outside [low, high], or NaN."""
    if not readable(value) or value.numel() == 0 or value.is_complex():
        return ""
    with reading_values():
        odd = ~((value >= low) & (value <= high))
        if not bool(odd.any()):
            return ""
        found = value[odd].flatten()[0].item()
    return f"{name} holds {found}, which is not in [{low}, {high}]"


FAMILIES: Sequence[tuple[Check, str]] = (
    (along, "index_select index_add index_add_ index_copy index_copy_ index_reduce index_reduce_ gather"),
    (along, "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"),
    (along_from_either_end, "index_fill index_fill_"),
    (anywhere, "take put put_"),
    (indexed, "index _unsafe_index index_put index_put_ _index_put_impl_ _unsafe_index_put"),
    (rows, "embedding"),
    (classes, "nll_loss_forward nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward"),
    (probabilities, "bernoulli.default bernoulli.Tensor bernoulli_.Tensor"),
    (predicted, "binary_cross_entropy"),
    (weights, "multinomial"),
    (rates, "poisson binomial"),
    (asserted, "_assert_async"),
)
ASSERTING: Mapping[str, Check] = {f"aten.{name}": check for check, names in FAMILIES for name in names.split()}
"""By operator: the check of its arguments."""
