"""Operators whose kernels on a GPU assert on their arguments, after which the process cannot use the GPU.

On the CPU the same kernels raise an error, so nothing needs to be checked before. Indices may be out of range, and
probabilities invalid, when inputs are redrawn to find out whether a result depends on them.

A *complaint* is what is wrong with a call, as text; '' if nothing is. A Check returns the complaint about a call, whose
arguments it has by the names of the operator's schema: `self`, `index`, `dim`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from backprint._torch.functorch import is_functorch_tensor
from backprint._torch.modes import without_modes
from backprint.graph.fx.schema import bound_by_schema

Arguments: TypeAlias = Mapping[str, Any]
"""A call's arguments by the schema's names, defaults included."""

Check: TypeAlias = Callable[[Arguments], str]
"""Returns the complaint about a call, '' if there is none."""


def gpu_assert_complaint(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why the GPU kernel of an operator would assert; '' if it would not, or if the call runs elsewhere."""
    check = check_on_gpu(function)
    if check is None or not any(isinstance(value, Tensor) and value.is_cuda for value in (*args, *kwargs.values())):
        return ""
    arguments, complaint = bound_by_schema(function, args, kwargs)
    try:
        return complaint or check(arguments)
    except (TypeError, ValueError, AttributeError, LookupError):  # the operator itself refuses these arguments
        return ""


@functools.cache
def check_on_gpu(function: Any) -> Check | None:
    """Return the check of an operator's arguments on a GPU, by the name of the overload or of the operator."""
    name = str(function)
    return ASSERTING.get(name) or ASSERTING.get(name.rpartition(".")[0])


def _check_index_along_dim(arguments: Arguments) -> str:
    """Check that indices along `dim` are in its range."""
    size = _length_along(arguments["self"], int(arguments["dim"]))
    return _index_complaint("index", arguments["index"], 0, size)


def _check_signed_index_along_dim(arguments: Arguments) -> str:
    """Check that indices along `dim` are in its range; negative ones count from its end."""
    size = _length_along(arguments["self"], int(arguments["dim"]))
    return _index_complaint("index", arguments["index"], -size, size)


def _length_along(tensor: Tensor, dim: int) -> int:
    """Return the size of a dimension; a number has one element."""
    return int(tensor.shape[dim]) if tensor.dim() else 1


def _check_flat_index(arguments: Arguments) -> str:
    """Check indices into the flattened tensor, which may count from its end."""
    count = arguments["self"].numel()
    return _index_complaint("index", arguments["index"], -count, count)


def _check_index_list(arguments: Arguments) -> str:
    """Check a list of indices, one for each dimension, which may count from its end; a mask counts for as many
    dimensions as it has."""
    sizes, dim, complaints = arguments["self"].shape, 0, []
    for number, index in enumerate(arguments["indices"]):
        if index is None:  # `:` in that dimension
            dim += 1
        # A mask has one dimension for each that it covers, and its values are no positions.
        elif index.dtype in (torch.bool, torch.uint8):
            dim += index.dim()
        else:
            complaints.append(_index_complaint(f"indices[{number}]", index, -sizes[dim], sizes[dim]))
            dim += 1
    return _first_complaint(complaints)


def _check_rows(arguments: Arguments) -> str:
    """Check the indices of an embedding, which are rows of its weight."""
    return _index_complaint("indices", arguments["indices"], 0, int(arguments["weight"].shape[0]))


def _check_classes(arguments: Arguments, lowest: int = 0) -> str:
    """Check that targets of a loss are classes, from `lowest` up to their number, or `ignore_index`."""
    scores = arguments["self"]
    count = int(scores.shape[1 if scores.dim() > 1 else 0])  # after the dimension of the batch, where there is one
    ignored = (int(arguments["ignore_index"]),) if "ignore_index" in arguments else ()
    return _index_complaint("target", arguments["target"], lowest, count, also=ignored)


def _check_lists_of_classes(arguments: Arguments) -> str:
    """Check that targets are lists of classes, which -1 may end."""
    return _check_classes(arguments, lowest=-1)


def _check_probabilities(arguments: Arguments) -> str:
    """Check that probabilities are between 0 and 1: `p`, or `self` where the operator has no `p`."""
    name = "p" if "p" in arguments else "self"
    return _range_complaint(name, arguments[name], 0, 1)


def _check_weights(arguments: Arguments) -> str:
    """Check that the weights of a draw are non-negative and finite."""
    return _range_complaint("self", arguments["self"], 0, torch.finfo(torch.float64).max)


def _check_rates(arguments: Arguments) -> str:
    """Check that the parameters of a draw are non-negative."""
    return _first_complaint(
        _range_complaint(name, arguments[name], 0, float("inf")) for name in ("self", "count") if name in arguments
    )


def _check_nonzero(arguments: Arguments) -> str:
    """Check what the program asserts: a number that is not 0."""
    value = arguments["self"]
    if not _readable(value):
        return ""
    with torch.no_grad(), without_modes():
        return "" if bool(value.bool().all()) else "self is 0"


def _readable(value: Any) -> bool:
    """Whether a tensor's values can be read: one without values (fake, meta) reaches no kernel."""
    return (
        type(value) in (Tensor, nn.Parameter)
        and not value.is_meta
        and value.layout is torch.strided
        and not is_functorch_tensor(value)
    )


def _index_complaint(name: str, value: Any, low: int, high: int, also: Iterable[int] = ()) -> str:
    """Return the complaint about a tensor with a number outside [low, high) that is none of `also`."""

    def outside(numbers: Tensor) -> Tensor:
        is_outside = (numbers < low) | (numbers >= high)
        for allowed in also:
            is_outside &= numbers != allowed
        return is_outside

    return _complaint(name, value, outside, f"[{low}, {high})")


def _range_complaint(name: str, value: Any, low: float, high: float) -> str:
    """Return the complaint about a tensor with a number outside [low, high], or NaN."""
    # Negated, because every comparison with NaN is false.
    return _complaint(name, value, lambda numbers: ~((numbers >= low) & (numbers <= high)), f"[{low}, {high}]")


def _complaint(name: str, value: Any, outside: Callable[[Tensor], Tensor], allowed: str) -> str:
    """Return the complaint about the first number of a tensor for which `outside` is True; '' if there is none, or if
    the values cannot be read. `allowed` is the range as text."""
    if not _readable(value) or value.numel() == 0 or value.is_complex():
        return ""
    with torch.no_grad(), without_modes():
        is_outside = outside(value)
        if not bool(is_outside.any()):
            return ""
        number = value[is_outside].flatten()[0].item()
    return f"{name} holds {number}, which is not in {allowed}"


def _first_complaint(complaints: Iterable[str]) -> str:
    """Return the first complaint that is not ''; '' if none is."""
    return next((complaint for complaint in complaints if complaint), "")


# Each check with the operators, or the overloads, whose arguments it checks.
FAMILIES: Sequence[tuple[Check, str]] = (
    (
        _check_index_along_dim,
        "index_select index_add index_add_ index_copy index_copy_ index_reduce index_reduce_ gather",
    ),
    (_check_index_along_dim, "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"),
    (_check_signed_index_along_dim, "index_fill index_fill_"),
    (_check_flat_index, "take put put_"),
    (_check_index_list, "index _unsafe_index index_put index_put_ _index_put_impl_ _unsafe_index_put"),
    (_check_rows, "embedding"),
    (_check_classes, "nll_loss_forward nll_loss2d_forward multi_margin_loss"),
    (_check_lists_of_classes, "multilabel_margin_loss_forward"),
    (_check_probabilities, "bernoulli.default bernoulli.Tensor bernoulli_.Tensor binary_cross_entropy"),
    (_check_weights, "multinomial"),
    (_check_rates, "poisson binomial"),
    (_check_nonzero, "_assert_async"),
)
ASSERTING: Mapping[str, Check] = {f"aten.{name}": check for check, names in FAMILIES for name in names.split()}
"""By operator: the check of its arguments."""
