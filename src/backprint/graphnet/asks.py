"""Which inputs of a GraphNet sample ask for gradients, and why: by roles, names, values and uses.

A Parameter asks. Buffers, masks, indices, positions never do. Of the other floats, those that a larger model's other
part computed ask, so that gradients flow on into it; and where a graph has no Parameter, all of them do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from backprint.graphnet.meta import Meta, Use
from backprint.graphnet.names import Named, meaning

FLOATING = re.compile(r"(?:float|bfloat|complex)\d+(?!_e)")
_STACK = re.compile(r"(?:^|_)stack\d+(?:_|$)")
"""Dynamo's name for what stood on Python's stack at a graph break: a part of the model before this one computed it."""

_SUBGRAPH = re.compile(r"subgraph_(\d+)")

Row = tuple[str, str]


def asking(
    inputs: Sequence[Named], metas: Mapping[str, Meta], uses: Mapping[str, Use], place: Path
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """(name, why) of each input that asks for a gradient, and of each that does not."""
    whole = any(named.role == "parameter" and able(metas, named) for named in inputs)
    later = is_later_part(place)
    asks: list[Row] = []
    rests: list[Row] = []
    for named in inputs:
        if named.raw not in metas:
            rests.append((named.name, "a number"))
            continue
        why = refusal(named, metas[named.raw], uses.get(named.raw, Use()))
        if why:
            rests.append((named.name, why))
        elif named.role == "parameter":
            asks.append((named.name, named.why))
        elif not whole:
            asks.append((named.name, "a float of a graph that has no Parameter"))
        elif later or _STACK.search(named.raw) or is_inner(named.raw, place):
            asks.append((named.name, "computed by the part of the model before this graph"))
        else:
            rests.append((named.name, "an input of the whole model, which has Parameters"))
    return tuple(asks), tuple(rests)


def able(metas: Mapping[str, Meta], named: Named) -> bool:
    """Whether an input can have a gradient at all."""
    return named.raw in metas and FLOATING.fullmatch(metas[named.raw].dtype) is not None


def refusal(named: Named, meta: Meta, use: Use) -> str:
    """Why an input does not ask whatever the graph is; '' where nothing speaks against it."""
    if FLOATING.fullmatch(meta.dtype) is None:
        return f"{meta.dtype} has no gradient"
    if named.role == "parameter":
        return ""
    if named.role == "buffer":
        return named.why
    for kind, words in (("mask", "a mask by its use"), ("additive", "a mask by its use"), ("read", "read as a number")):
        if kind in use.kinds:
            return words
    said = meaning(named.name)
    if said:
        return f"{'an' if said == 'index' else 'a'} {said} by its name"
    if meta.data is not None and len(meta.data) > 1 and is_mask(meta.data):
        return "a mask by its values"
    return ""


def is_mask(data: Sequence[float]) -> bool:
    """Whether values are those of a mask: nothing but 0 and 1, or 0 and something far below it."""
    values = set(data)
    return values <= {0.0, 1.0} or (len(values) == 2 and max(values) == 0.0 and min(values) <= -1e4)


def is_later_part(place: Path) -> bool:
    """Whether a folder is a part of a model that is not its first: `subgraph_3`."""
    found = _SUBGRAPH.fullmatch(place.name)
    return found is not None and int(found[1]) > 0


def is_inner(raw: str, place: Path) -> bool:
    """Whether a name in a part of a model is that of a value of the whole, `mul_3`, and not of an argument."""
    return place.name.startswith("subgraph_") and raw[:2] not in ("L_", "l_")
