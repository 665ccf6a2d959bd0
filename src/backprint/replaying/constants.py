"""Inputs of a sample that have one value everywhere, and a second draw on which they have not.

At ones, a product and a quotient are equal; at zeros, a sum and a difference; and where all elements are equal, so is
any order of them. A check on such inputs alone does not see these faults. While the program lives, a proof runs on
other inputs too. For a sample, `save` keeps digests of the program's results on the second draw, and `verify` compares
with them. Where a sample has none, the ports that depend on such inputs have no power.

Integers are left out: they are indices and counts, and a program need not run on others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from backprint.graph.keys import is_tangent
from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture
from backprint.replaying.digests import Row, numbers_of
from backprint.sample.generator import digest
from backprint.sample.redraws import another, units

SECOND = "redrawn"
"""The name of the second draw, and how the rows of its results begin in a witness."""

SEED = 0x2ED

HELD = ("value", "shape", "pinned")
"""The kinds of guards whose inputs are not redrawn."""

GIVEN = f"{SECOND} inputs"
"""The row of a witness that has the second draw's inputs."""


def flat_inputs(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, tuple[str, ...]]:
    """Return the inputs with one value everywhere among `values` that could have others, each with its views."""
    recipes = capture.recipes.recipes
    roles = {port.name: port.role for port in free_ports(capture)}
    held = held_by_guards(capture)
    found = {}
    for name, names in units(recipes).items():
        given = all(is_tangent(each) or roles.get(each, "constant") != "constant" for each in names)
        if given and held.isdisjoint(names) and recipes[name].kind in ("constant", "exact"):
            found[name] = names
    return {name: names for name, names in found.items() if name in values and is_flat(values[name])}


def is_flat(value: Tensor) -> bool:
    """Whether all elements of a float or bool tensor are equal; of one number, whether it is 0, 1 or -1."""
    if not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool):
        return False
    if value.layout is not torch.strided or value.numel() == 0:
        return False
    first = value.flatten()[0]
    return bool((value == first).all()) if value.numel() > 1 else first.item() in (0, 1, -1)


def second_values(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return other values for the inputs and tangents that have one value everywhere; empty if there are none."""
    moved: dict[str, Tensor] = {}
    for names in flat_inputs(capture, values).values():
        moved |= another(names, capture.recipes.recipes, values, SEED) or {}
    return moved


def given_row(moved: Mapping[str, Tensor]) -> Row:
    """Return what a witness keeps of the values of a second draw."""
    digests = [digest(moved[name]) for name in sorted(moved)]
    return numbers_of(torch.tensor([int(each[:8], 16) for each in digests]))


def kept_values(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Return the values of the second draw whose results a sample keeps; None if it keeps none, or those of others."""
    row = (capture.witness or {}).get(GIVEN)
    if row is None or not (moved := second_values(capture, values)):
        return None
    return moved if given_row(moved)["digest"] == row["digest"] else None


def unchecked_inputs(capture: Capture, values: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the inputs that a proof does not see change: a sample has results for one value of them alone."""
    if capture.origin.alive or capture.witness is None or not (flat := flat_inputs(capture, values)):
        return frozenset()
    kept = kept_values(capture, values) or {}
    return frozenset(name for names in flat.values() for name in names if name not in kept)


def why_unchecked(names: Collection[str]) -> list[str]:
    """Say why a check proves nothing about ports that depend on these inputs."""
    if not names:
        return []
    shown = ", ".join(sorted(names)[:6]) + (", …" if len(names) > 6 else "")
    return [
        f"{shown} has one value everywhere, and the sample keeps no results on others: a check of what depends on it "
        "proves nothing. Capture the program again"
    ]


def held_by_guards(capture: Capture) -> frozenset[str]:
    """Return the inputs that guards depend on."""
    return frozenset(name for guard in capture.guards if guard.kind in HELD for name in guard.inputs)


def second_rows(witness: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of the results on the second draw, by port."""
    for text, row in witness.items():
        if text.startswith(f"{SECOND} ") and text != GIVEN:
            yield text.removeprefix(f"{SECOND} "), row
