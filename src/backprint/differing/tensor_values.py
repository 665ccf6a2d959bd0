"""Which tensors that two Captures take have other values, as far as recipes tell: those that are kept, not drawn.

Hashes leave values out, so graphs with other constants are the same. Nothing is made: recipes are compared as JSON, and
exact data as bytes. What one side keeps as bytes and the other as numbers is not compared.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backprint.differing.facts import graph_of
from backprint.differing.nouns import Fact, PairDiff
from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture

KEPT = ("constant", "values", "arange", "tril", "exact")
"""Kinds of recipes that say every value."""

GEOMETRY = ("kind", "dtype", "shape", "stride", "extent", "offset")
"""What of two recipes must be equal, so that other facts or data are other values."""

LETTERS = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b",
    "uint8": "B", "bool": "?",
}  # fmt: skip
"""How `struct` calls the dtypes that it knows."""

FEW = 64
"""Data of at most so many bytes is shown as numbers."""


def value_facts(before: Capture, after: Capture, pairs: Sequence[PairDiff]) -> Iterator[Fact]:
    """Yield a fact if tensors that both Captures take have other values."""
    names = renamed_inputs(before, after, pairs)
    roles = {port.name: port.role for port in free_ports(before)}
    rows = []
    for name in with_parts(before, roles):
        role = roles.get(name, "part")
        if found := other_values(before, after, name, names.get(name, name)):
            rows.append((f"{role} {names.get(name, name)}", *found))
    if len(rows) == 1:
        yield Fact(f"values of {rows[0][0]}", rows[0][1:2], rows[0][2:])
    elif rows:
        yield Fact("values of tensors", *(tuple(f"{row[0]}: {row[side]}" for row in rows) for side in (1, 2)))


def renamed_inputs(before: Capture, after: Capture, pairs: Sequence[PairDiff]) -> dict[str, str]:
    """Return the inputs that have another name in the second Capture."""
    found = {}
    for pair in pairs:
        for diff in pair.graphs:
            one, two = (graph_of(*side, diff.direction) for side in ((before, pair.before), (after, pair.after)))
            for port in diff.ports:
                if one and two and port.is_input and port.before is not None and port.after is not None:
                    found[one.inputs[port.before].name] = two.inputs[port.after].name
    return found


def with_parts(capture: Capture, names: Mapping[str, str]) -> Iterator[str]:
    """Yield names of inputs; of a sparse one, those of its parts as well."""
    for name in names:
        yield name
        match capture.recipes.rows.get(name):
            case {"kind": "sparse", "facts": {"of": [*parts]}}:
                yield from (part for part in parts if isinstance(part, str))


def other_values(before: Capture, after: Capture, left: str, right: str) -> tuple[str, str] | None:
    """Return the values of a tensor on both sides as texts, if they are known to differ."""
    one, two = before.recipes.rows.get(left), after.recipes.rows.get(right)
    if not isinstance(one, dict) or not isinstance(two, dict) or one.get("kind") not in KEPT:
        return None
    if any(one.get(key) != two.get(key) for key in GEOMETRY):
        return None
    if one["kind"] != "exact":
        texts = facts_text(one.get("facts")), facts_text(two.get("facts"))
        return texts if texts[0] != texts[1] else None
    datas = before.recipes.data(left), after.recipes.data(right)
    if None in datas or datas[0] == datas[1]:
        return None
    shown = tuple(data_text(data or b"", one.get("dtype")) for data in datas)
    return (shown[0], shown[1]) if shown[0] != shown[1] else (digest_text(datas[0]), digest_text(datas[1]))


def facts_text(facts: Any) -> str:
    """Return the facts of a recipe, with all of its values."""
    match facts:
        case {"value": value, **rest} if not rest:
            return f"{value} everywhere"
        case {"values": [*values]}:
            return json.dumps(values)
        case dict():
            return ", ".join(f"{name} {value}" for name, value in sorted(facts.items()))
    return json.dumps(facts)


def data_text(data: bytes, dtype: Any) -> str:
    """Return data as numbers if it is short, else its digest."""
    letter = LETTERS.get(dtype) if isinstance(dtype, str) else None
    if letter is None or len(data) > FEW or len(data) % struct.calcsize(letter):
        return digest_text(data)
    return str([number for (number,) in struct.iter_unpack(f"<{letter}", data)])


def digest_text(data: bytes | None) -> str:
    return f"data with digest {hashlib.sha256(data or b'').hexdigest()[:16]}"
