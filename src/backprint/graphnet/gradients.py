"""Which inputs of a GraphNet sample require grad, and why: by roles, names, values and uses.

Parameters do. Buffers, masks, indices and positions never do. Of the other floating-point inputs, those that an earlier
part of a larger model computed do, so that gradients flow on into that part; in a graph without Parameters, all do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from backprint.graphnet.meta import Meta, Use
from backprint.graphnet.names import NamedInput, name_meaning

FLOATING = re.compile(r"(?:float|bfloat|complex)\d+(?!_e)")
_STACK = re.compile(r"(?:^|_)stack\d+(?:_|$)")
"""Dynamo's name for a value on Python's stack at a graph break: an earlier part of the model computed it."""

_SUBGRAPH = re.compile(r"subgraph_(\d+)")

InputReason = tuple[str, str]


def split_by_grad(
    inputs: Sequence[NamedInput], metas: Mapping[str, Meta], uses: Mapping[str, Use], place: Path
) -> tuple[tuple[InputReason, ...], tuple[InputReason, ...]]:
    """Split the inputs into those that require grad and those that do not, as (name, why)."""
    whole = any(named.role == "parameter" and can_require_grad(metas, named) for named in inputs)
    later = is_later_part(place)
    with_grad: list[InputReason] = []
    without_grad: list[InputReason] = []
    for named in inputs:
        if named.raw not in metas:
            without_grad.append((named.name, "a number"))
            continue
        why = why_no_grad(named, metas[named.raw], uses.get(named.raw, Use()))
        if why:
            without_grad.append((named.name, why))
        elif named.role == "parameter":
            with_grad.append((named.name, named.why))
        elif not whole:
            with_grad.append((named.name, "a float of a graph that has no Parameter"))
        elif later or _STACK.search(named.raw) or is_inner(named.raw, place):
            with_grad.append((named.name, "computed by the part of the model before this graph"))
        else:
            without_grad.append((named.name, "an input of the whole model, which has Parameters"))
    return tuple(with_grad), tuple(without_grad)


def can_require_grad(metas: Mapping[str, Meta], named: NamedInput) -> bool:
    """Whether an input's dtype can require grad."""
    return named.raw in metas and FLOATING.fullmatch(metas[named.raw].dtype) is not None


def why_no_grad(named: NamedInput, meta: Meta, use: Use) -> str:
    """Why an input does not require grad in any graph; '' where it may."""
    if FLOATING.fullmatch(meta.dtype) is None:
        return f"{meta.dtype} has no gradient"
    if named.role == "parameter":
        return ""
    if named.why:
        return named.why
    for kind, words in (("mask", "a mask by its use"), ("additive", "a mask by its use"), ("read", "read as a number")):
        if kind in use.kinds:
            return words
    meaning = name_meaning(named.name)
    if meaning:
        return f"{'an' if meaning == 'index' else 'a'} {meaning} by its name"
    if meta.data is not None and len(meta.data) > 1 and has_mask_values(meta.data):
        return "a mask by its values"
    return ""


def has_mask_values(data: Sequence[float]) -> bool:
    """Whether values are those of a mask: only 0 and 1, or only 0 and one large negative number."""
    values = set(data)
    return values <= {0.0, 1.0} or (len(values) == 2 and max(values) == 0.0 and min(values) <= -1e4)


def is_later_part(place: Path) -> bool:
    """Whether a folder holds a part of a model other than the first: `subgraph_3`."""
    found = _SUBGRAPH.fullmatch(place.name)
    return found is not None and int(found[1]) > 0


def is_inner(raw: str, place: Path) -> bool:
    """Whether an input of a part of a model is a value that the whole model computes, `mul_3`, and not its argument."""
    return place.name.startswith("subgraph_") and raw[:2] not in ("L_", "l_")
