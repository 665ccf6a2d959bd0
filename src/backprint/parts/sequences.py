"""Find sequences of operators in a forward: those that take each other's results, and those that repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backprint.graph.nouns import Graph, Step
from backprint.graph.steps import used
from backprint.parts.forwards import FOLLOWS

LONGEST = 24
"""The longest sequence of operators that counts as typical."""


def operator(step: Step) -> str:
    """Return an operator's name without namespace, overload and leading underscores: `softmax` for
    `aten._softmax.default`."""
    parts = step.target.removeprefix("torch.ops.").split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).lstrip("_")


def matches(name: str, asked: str) -> bool:
    """Whether an operator has this name, or is a variant of it (`native_batch_norm_legit_functional`)."""
    return name == asked or name.startswith(asked + "_")


def occurrences(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the places of a sequence, from the left and without overlap."""
    found, at = [], 0
    while at + len(wanted) <= len(names):
        if tuple(names[at : at + len(wanted)]) == tuple(wanted):
            found.append(at)
            at += len(wanted)
        else:
            at += 1
    return found


def chains(graph: Graph, steps: Sequence[int], wanted: Sequence[str]) -> list[tuple[int, int]]:
    """Return where operators take each other's results: a place among `steps`, and how many steps it spans."""
    behind: dict[str, str] = {}
    for step in graph.steps:
        names = used(step)
        behind[step.name] = behind.get(names[0], names[0]) if step.target in FOLLOWS and names else step.name
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(steps):
        end = chain(graph, steps, at, wanted, behind)
        if end is not None and wanted:
            found.append((at, end + 1 - at))
            at = end
        at += 1
    return found


def chain(graph: Graph, steps: Sequence[int], at: int, wanted: Sequence[str], behind: Mapping[str, str]) -> int | None:
    """Return where the chain that starts at a place ends; None if no chain starts there, or most of it is other
    steps."""
    if not wanted or not matches(operator(graph.steps[steps[at]]), wanted[0]):
        return None
    place = at
    for asked in wanted[1:]:
        name = graph.steps[steps[place]].name
        ahead_ = range(place + 1, min(len(steps), at + 3 * len(wanted)))
        takers = (
            later
            for later in ahead_
            if matches(operator(graph.steps[steps[later]]), asked)
            and name in {behind.get(used_, used_) for used_ in used(graph.steps[steps[later]])}
        )
        following = next(takers, None)
        if following is None:
            return None
        place = following
    return place


def typical(names: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the sequences that repeat, by start: start, length and label of each place."""
    left = list(names)
    found: list[tuple[int, int, str]] = []
    while (sequence := covering(left)) is not None:
        for spot in occurrences(left, sequence):
            found.append((spot, len(sequence), ",".join(sequence)))
            left[spot : spot + len(sequence)] = [""] * len(sequence)  # no operator has this name
    return sorted(found)


def covering(names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the repeated sequence of two operators or more whose places, without overlap, cover the most operators;
    the shortest of equals, so that a sequence is not a multiple of itself."""
    best: tuple[int, int, tuple[str, ...]] | None = None
    for length in range(2, min(LONGEST, len(names) // 2) + 1):
        ends: dict[tuple[str, ...], tuple[int, int]] = {}
        for at in range(len(names) - length + 1):
            window = tuple(names[at : at + length])
            if "" in window:
                continue
            count, end = ends.get(window, (0, 0))
            if at >= end:
                ends[window] = (count + 1, at + length)
        for window, (count, _) in ends.items():
            score = (count * length, -length, window)
            if count > 1 and (best is None or score[:2] > best[:2]):
                best = score
    return None if best is None else best[2]
