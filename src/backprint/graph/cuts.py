"""Where to cut a forward, and what each piece is called: by ranges, operators, modules, or where the least crosses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from backprint.errors import UsageError
from backprint.graph.nouns import Graph, Step, TensorSpec
from backprint.graph.split import FOLLOWS, ahead
from backprint.graph.steps import used

LONGEST = 24
"""The longest sequence of operators that counts as typical."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Forward steps from `start` to before `stop`: what they are called, and whether they were asked for."""

    start: int
    stop: int
    label: str
    wanted: bool = True


def plan(graph: Graph, by: str) -> tuple[Piece, ...]:
    """The pieces of a forward, all of it, in order. `by` is `range:N`, `ranges:0-10,10-25`, `operators[:A,B]`,
    `module[:DEPTH]` or `saved[:N]`."""
    kind, _, what = by.partition(":")
    if kind not in KINDS:
        raise UsageError(f"--by {by!r:.80}: {kind!r:.40} is none of {', '.join(KINDS)}")
    if not graph.steps:
        raise UsageError("the forward has no steps to cut")
    return KINDS[kind](graph, what)


def weighty(graph: Graph) -> list[int]:
    """The numbers of the steps that compute something: no items, no other names, no guards, nothing that is made for
    the backward alone."""
    needed = {step.name for step in ahead(graph).steps if not step.is_guard and step.target not in FOLLOWS}
    return [number for number, step in enumerate(graph.steps) if step.name in needed]


def by_count(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`range:N`: N pieces of about as many operators each."""
    steps = weighty(graph) or [0]
    count = number(what, "range", 1, len(steps))
    cuts = [steps[index * len(steps) // count] for index in range(1, count)]
    return pieces(graph, cuts)


def by_ranges(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`ranges:0-10,10-25`: these steps; the rest is cut off and not asked for."""
    spans = []
    for text in what.split(","):
        found = re.fullmatch(r"\s*(\d+)-(\d+)\s*", text)
        if not found or int(found[1]) >= int(found[2]) or int(found[2]) > len(graph.steps):
            raise UsageError(
                f"--by ranges: {text!r:.40} is no range of the {len(graph.steps)} forward steps, as 0-10 is"
            )
        spans.append((int(found[1]), int(found[2])))
    return spanned(graph, [(start, stop, f"steps {start}-{stop}") for start, stop in spans], "ranges")


def by_operators(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`operators:A,B`: each place where these operators take each other's results; without a sequence, those that
    repeat. What stands between them in the forward, such as a counter's update, comes along."""
    steps = weighty(graph)
    names = [operator(graph.steps[number]) for number in steps]
    if what:
        wanted = [part.strip() for part in what.split(",") if part.strip()]
        found = [(spot, length, ",".join(wanted)) for spot, length in chains(graph, steps, wanted)]
        if not found:
            raise UsageError(f"--by operators: nowhere in the forward {', '.join(wanted)} take each other's results")
    else:
        found = typical(names)
        if not found:
            raise UsageError("--by operators: no sequence of operators repeats in this forward; name one")
    ends = [*steps, len(graph.steps)]
    spans = [(steps[spot], ends[spot + length], label) for spot, length, label in found]
    return spanned(graph, spans, "operators")


def by_module(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`module:DEPTH`: a piece for each module that the steps come from, its path cut to so many parts; what the model
    does itself between its modules are pieces too. A step of no known line is where the
    parameter that it takes is, else with the one before."""
    depth = number(what, "module", 1, 64) if what else 64
    needed = {step.name for step in ahead(graph).steps}
    owners = {
        port.local: port.name.rpartition(".")[0] for port in (*graph.by_role("parameter"), *graph.by_role("buffer"))
    }
    runs: list[tuple[int, str]] = []
    for index, step in enumerate(graph.steps):
        owner = next((owners[name] for name in used(step) if name in owners), None)
        path = step.source.module if step.source is not None else owner
        if step.name in needed and path is not None:
            path = ".".join(path.split(".")[:depth]) or ITSELF
            if not runs or runs[-1][1] != path:
                runs.append((index, path))
    if len(runs) < 2:
        raise UsageError("--by module: the steps of this forward come from one module; cut it by range or saved")
    starts = [0, *(start for start, _ in runs[1:])]
    stops = [*starts[1:], len(graph.steps)]
    return tuple(Piece(start, stop, label) for start, stop, (_, label) in zip(starts, stops, runs, strict=True))


ITSELF = "(itself)"
"""What a piece is called whose steps are in no module below the model."""


def by_saved(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`saved:N`: N pieces (4), cut where the fewest bytes cross; no piece is much smaller than its share."""
    steps = weighty(graph) or [0]
    count = number(what, "saved", 1, len(steps)) if what else min(4, len(steps))
    least = max(1, len(steps) // (2 * count))
    cost = crossing(graph)
    best: list[list[float]] = [[0.0 if index >= least else float("inf") for index in range(len(steps) + 1)]]
    come: list[list[int]] = [[0] * (len(steps) + 1)]
    for _ in range(count - 1):
        row, back, low, where = [], [], float("inf"), 0
        for index in range(len(steps) + 1):
            cut = index - least
            if cut > 0 and best[-1][cut] + cost[steps[cut]] < low:
                low, where = best[-1][cut] + cost[steps[cut]], cut
            row.append(low)
            back.append(where)
        best.append(row)
        come.append(back)
    cuts, at = [], len(steps)
    for back in reversed(come[1:]):
        at = back[at]
        cuts.append(steps[at])
    return pieces(graph, sorted(cut for cut in cuts if cut))


def crossing(graph: Graph) -> list[int]:
    """For each place before a step, the bytes of the values made before it that are used from there on."""
    made: dict[str, int] = {}
    last: dict[str, int] = {}
    for number_, step in enumerate(graph.steps):
        for name in used(step):
            last[name] = number_
        if not step.is_guard:
            made[step.name] = number_
    change = [0] * (len(graph.steps) + 2)
    for step in graph.steps:
        if not step.is_guard and step.name in last and isinstance(step.spec, TensorSpec):
            change[made[step.name] + 1] += step.spec.nbytes
            change[last[step.name] + 1] -= step.spec.nbytes
    found, total = [], 0
    for index in range(len(graph.steps) + 1):
        total += change[index]
        found.append(total)
    return found


KINDS: Mapping[str, Callable[[Graph, str], tuple[Piece, ...]]] = {
    "range": by_count,
    "ranges": by_ranges,
    "operators": by_operators,
    "module": by_module,
    "saved": by_saved,
}
"""How a forward may be cut."""


# ------------------------------------------------------------------ pieces


def pieces(graph: Graph, cuts: Sequence[int]) -> tuple[Piece, ...]:
    """The pieces between cuts."""
    places = [0, *cuts, len(graph.steps)]
    return tuple(Piece(start, stop, f"steps {start}-{stop}") for start, stop in pairwise(places) if start < stop)


def spanned(graph: Graph, spans: Sequence[tuple[int, int, str]], kind: str) -> tuple[Piece, ...]:
    """These pieces, and between them what was not asked for."""
    found: list[Piece] = []
    at = 0
    for start, stop, label in sorted(spans):
        if start < at:
            raise UsageError(f"--by {kind}: steps {start}-{stop} overlap those before, which end at {at}")
        if start > at:
            found.append(Piece(at, start, f"steps {at}-{start}", wanted=False))
        found.append(Piece(start, stop, label))
        at = stop
    if at < len(graph.steps):
        found.append(Piece(at, len(graph.steps), f"steps {at}-{len(graph.steps)}", wanted=False))
    return tuple(found)


def number(text: str, kind: str, low: int, high: int) -> int:
    """A whole number in a range."""
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise UsageError(f"--by {kind}:{text}: expected a whole number from {low} to {high}")
    return int(text)


# ------------------------------------------------------------------ sequences of operators


def operator(step: Step) -> str:
    """An operator's name without library, overload and leading underscores: `softmax` of `aten._softmax.default`."""
    parts = step.target.removeprefix("torch.ops.").split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).lstrip("_")


def matches(name: str, asked: str) -> bool:
    """Whether an operator is one asked for: of that name, or a variant of it (`native_batch_norm_legit_functional`)."""
    return name == asked or name.startswith(asked + "_")


def occurrences(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where a sequence stands, from the left and without overlap."""
    found, at = [], 0
    while at + len(wanted) <= len(names):
        if tuple(names[at : at + len(wanted)]) == tuple(wanted):
            found.append(at)
            at += len(wanted)
        else:
            at += 1
    return found


def chains(graph: Graph, steps: Sequence[int], wanted: Sequence[str]) -> list[tuple[int, int]]:
    """Where operators take each other's results, as places among `steps` and how many of these each spans."""
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
    """Where the chain that starts at a place ends; None where none does, or where it is mostly other steps."""
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
    """The sequences that repeat: start, length and label of each place; those that cover the most first."""
    left = list(names)
    found: list[tuple[int, int, str]] = []
    while (sequence := covering(left)) is not None:
        for spot in occurrences(left, sequence):
            found.append((spot, len(sequence), ",".join(sequence)))
            left[spot : spot + len(sequence)] = [""] * len(sequence)  # no operator has this name
    return sorted(found)


def covering(names: Sequence[str]) -> tuple[str, ...] | None:
    """The sequence of two operators or more, without overlap of its places, that covers the most of what it repeats;
    of these the shortest, so that a sequence is not a multiple of itself."""
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
