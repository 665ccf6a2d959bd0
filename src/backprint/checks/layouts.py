"""Sparse tensors, segments and aliases: indices are within the sizes, sizes and strides within the storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from backprint._torch.tensors import check_compressed_parts, check_coo_parts
from backprint.checks.looking import (
    MOST_ELEMENTS,
    Bound,
    Check,
    beyond,
    first,
    readable,
    reading_values,
    rising,
    unlike,
)


def rows_to_places(given: Bound) -> str:
    """Check `_convert_indices_from_coo_to_csr`: each index is a row."""
    if int(given["size"]) < 0 or int(given["size"]) > MOST_ELEMENTS:
        return f"size={int(given['size'])} is not a number of rows"
    return beyond("self", given["self"], 0, int(given["size"]))


def places_to_rows(given: Bound) -> str:
    """Check `_convert_indices_from_csr_to_coo`: each pointer is a position among the columns, in order."""
    places, columns = given["crow_indices"], given["col_indices"]
    if (
        not isinstance(places, Tensor)
        or not isinstance(columns, Tensor)
        or places.dim() != columns.dim()
        or not places.dim()
    ):
        return "crow_indices and col_indices do not belong together"
    if places.shape[:-1] != columns.shape[:-1] or places.dtype != columns.dtype:
        return "crow_indices and col_indices do not belong together"
    complaint = beyond("crow_indices", places, 0, columns.shape[-1] + 1)
    return complaint or ("" if rising(places) else "crow_indices go back")


def segmented(given: Bound) -> str:
    """Check segment_reduce and its backward: lengths add up to no more than the data's, offsets are positions in it."""
    data, axis = given["data"], int(given["axis"])
    if not isinstance(data, Tensor) or not 0 <= axis < data.dim():
        return f"axis={axis} is not one of the data's"
    lengths, offsets, size = given["lengths"], given["offsets"], data.shape[axis]
    if given.get("indices") is not None:
        return "indices are not supported by segment_reduce"
    parts = lengths if isinstance(lengths, Tensor) else offsets
    if not isinstance(parts, Tensor) or parts.dim() != axis + 1 or parts.shape[:-1] != data.shape[:axis]:
        return f"lengths or offsets do not have the shape of the data's first {axis} dimensions and one more"
    if not readable(parts):
        return ""
    complaint = beyond("lengths" if lengths is parts else "offsets", parts, 0, size + 1)
    with reading_values():
        if not complaint and lengths is parts and bool((parts.sum(-1) > size).any()):
            complaint = f"lengths add up to more than {size}"
        if not complaint and offsets is parts and not rising(parts):
            complaint = "offsets go back"
    return complaint or back_segmented(given, data, axis, parts.shape[-1] - (offsets is parts))


def back_segmented(given: Bound, data: Tensor, axis: int, count: int) -> str:
    """Check segment_reduce's backward: the gradient has as many segments."""
    if "grad" not in given:
        return ""
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    return first((unlike("grad", given["grad"], shape), unlike("output", given["output"], shape)))


def spanned(given: Bound) -> str:
    """Check an alias with other sizes and strides: it stays in the storage."""
    x, sizes, strides = given["self"], *([int(n) for n in given[name]] for name in ("size", "stride"))
    if not isinstance(x, Tensor) or x.layout is not torch.strided or len(sizes) != len(strides):
        return "sizes and strides do not belong together"
    if min((*sizes, *strides), default=0) < 0:
        return "a size or a stride is negative"
    last = x.storage_offset() + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if 0 not in sizes and last >= x.untyped_storage().nbytes() // x.element_size():
        return f"sizes {sizes} and strides {strides} lead out of the tensor's storage"
    return ""


def coo(given: Bound) -> str:
    """Check a sparse tensor: indices are within its sizes."""
    return refusal(
        lambda: check_coo_parts(given["indices"], given["values"], given["size"], given.get("is_coalesced")),
        given,
    )


def compressed(layout: torch.layout | None, outer: str, inner: str) -> Check:
    """Return a check of a compressed sparse tensor: indices are within its sizes."""

    def check(given: Bound) -> str:
        kind = layout or given["layout"]
        if kind is None:
            return "layout is not said"
        return refusal(
            lambda: check_compressed_parts(
                given[outer], given[inner], given["values"], [int(n) for n in given["size"]], kind
            ),
            given,
        )

    return check


def refusal(validate: Callable[[], Any], given: Bound) -> str:
    """Return the error of torch's own validation, if there are values."""
    if not all(readable(each) for each in given.values() if isinstance(each, Tensor)):
        return ""
    try:
        with reading_values():
            validate()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return str(error).splitlines()[0]
    return ""
