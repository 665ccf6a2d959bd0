"""Pair the layers of two graphs: the modules up to the last number in their paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from backprint.differing.common import common_places
from backprint.differing.wired import Wired


def paired_blocks(a: Wired, b: Wired) -> dict[str, str]:
    """Return the layers of the first graph with those of the second.

    A layer of the same name and the same steps is the same. Of the others, those that have the same steps in the same
    order are, so that a layer may be put in front of others; then those of one name; then those that are left, in their
    order, if they call mostly the same operators.
    """
    numbers: dict[tuple[int, ...], int] = {}
    lefts, rights = steps_of_blocks(a, numbers), steps_of_blocks(b, numbers)
    found = {name: name for name, steps in lefts.items() if rights.get(name) == steps}
    one, two = open_names(lefts, rights, found)
    places = common_places([lefts[name] for name in one], [rights[name] for name in two])
    found |= {one[left]: two[right] for left, right in places}
    one, two = open_names(lefts, rights, found)
    found |= {name: name for name in one if name in two}
    one, two = open_names(lefts, rights, found)
    kinds_a, kinds_b = operators_of_blocks(a), operators_of_blocks(b)
    for left in one:
        right = next((name for name in two if mostly_alike(kinds_a[left], kinds_b[name])), None)
        if right is not None:
            found[left] = right
            two = two[two.index(right) + 1 :]
    return found


def steps_of_blocks(graph: Wired, numbers: dict[tuple[int, ...], int]) -> dict[str, int]:
    """Return the layers in the order of their first steps, each with a number for what its steps are."""
    rows: dict[str, list[int]] = defaultdict(list)
    for value in range(graph.first, len(graph.takes)):
        rows[graph.block(value)].append(graph.strict[value])
    return {name: numbers.setdefault(tuple(row), len(numbers)) for name, row in rows.items()}


def operators_of_blocks(graph: Wired) -> dict[str, frozenset[int]]:
    """Return the operators that each layer calls."""
    rows: dict[str, set[int]] = defaultdict(set)
    for value in range(graph.first, len(graph.takes)):
        rows[graph.block(value)].add(graph.loose[value])
    return {name: frozenset(row) for name, row in rows.items()}


def mostly_alike(left: frozenset[int], right: frozenset[int]) -> bool:
    """Whether two layers share at least half of the operators that they call."""
    return 2 * len(left & right) >= len(left | right)


def open_names(
    lefts: Mapping[str, int], rights: Mapping[str, int], found: Mapping[str, str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the layers of both sides that are not paired."""
    taken = set(found.values())
    return [name for name in lefts if name not in found], [name for name in rights if name not in taken]
