"""Choose where a forward is cut, and label each piece: by ranges, operators, modules, what repeats, or where the fewest
bytes cross."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from backprint.errors import UsageError
from backprint.graph.folding.stretches import Stretch, StretchGraphs, module_of_stretch, stretches_of
from backprint.graph.nouns import Graph, TensorSpec, refs
from backprint.graph.steps import used
from backprint.parts.forwards import FOLLOWS, ahead, views_of_inputs
from backprint.parts.sequences import chains, operator, typical


@dataclass(frozen=True, slots=True)
class Piece:
    """Forward steps from `start` to before `stop`, with a label. `wanted`: whether the caller requested this piece;
    `count`: as how many pieces of the forward it counts, equal ones that are not requested among them."""

    start: int
    stop: int
    label: str
    wanted: bool = True
    count: int = 1


def plan(graph: Graph, by: str) -> tuple[Piece, ...]:
    """Return the pieces that a forward is cut into, in order. `by` is `range:N`, `ranges:0-10,10-25`,
    `operators[:A,B]`, `module[:DEPTH]`, `fold` or `saved[:N]`."""
    kind, what = kind_of(by)
    if not graph.steps:
        raise UsageError("the forward has no steps to cut")
    return KINDS[kind](graph, what)


def kind_of(by: str) -> tuple[str, str]:
    """Return the kind of cut in `by`, and the text after its colon."""
    kind, _, what = by.partition(":") if isinstance(by, str) else ("", "", "")
    if kind not in KINDS:
        raise UsageError(f"by={by!r:.80}: {kind!r:.40} is not one of {', '.join(KINDS)}")
    return kind, what


def weighty(graph: Graph) -> list[int]:
    """Return the numbers of the steps that compute something for the forward: no items, aliases, guards or views of
    inputs."""
    views = views_of_inputs(graph)
    return [number for number in calls_of(graph) if graph.steps[number].name not in views]


def calls_of(graph: Graph) -> list[int]:
    """Return the numbers of the steps that the forward needs: no items, aliases or guards."""
    needed = {step.name for step in ahead(graph).steps if not step.is_guard and step.target not in FOLLOWS}
    return [number for number, step in enumerate(graph.steps) if step.name in needed]


def by_count(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`range:N`: N pieces of about as many operators each."""
    steps = weighty(graph) or [0]
    count = whole_number(what, "range", 1, len(steps))
    cuts = [steps[index * len(steps) // count] for index in range(1, count)]
    return pieces(graph, cuts)


def by_ranges(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`ranges:0-10,10-25`: these steps. The rest becomes pieces that are not wanted."""
    spans = []
    for text in what.split(","):
        found = re.fullmatch(r"\s*(\d+)-(\d+)\s*", text)
        if not found or int(found[1]) >= int(found[2]) or int(found[2]) > len(graph.steps):
            raise UsageError(
                f"by=ranges: {text!r:.40} is not a range of the {len(graph.steps)} forward steps, as 0-10 is"
            )
        spans.append((int(found[1]), int(found[2])))
    return with_gaps(graph, [(start, stop, f"steps {start}-{stop}") for start, stop in spans], "ranges")


def by_operators(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`operators:A,B`: each place where these operators take each other's results. Without names: the sequences that
    repeat. A step between them in the forward, such as a counter's update, is included."""
    steps = calls_of(graph)
    names = [operator(graph.steps[number]) for number in steps]
    if what:
        wanted = [part.strip() for part in what.split(",") if part.strip()]
        found = [(spot, length, ",".join(wanted)) for spot, length in chains(graph, steps, wanted)]
        if not found:
            raise UsageError(f"by=operators: the forward has no {', '.join(wanted)} that take each other's results")
    else:
        found = typical(names)
        if not found:
            raise UsageError("by=operators: no sequence of operators repeats in this forward; name one")
    ends = [*steps, len(graph.steps)]
    spans = [(steps[spot], ends[spot + length], label) for spot, length, label in found]
    return with_gaps(graph, spans, "operators")


def by_module(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`module:DEPTH`: a piece for each module that the steps come from, its path cut to DEPTH names. Steps of the model
    itself, between its modules, are pieces too. A step without a source line belongs to the module of the parameter
    that it takes, else to the piece before it."""
    depth = whole_number(what, "module", 1, 64) if what else 64
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
        raise UsageError("by=module: the steps of this forward come from one module; cut it by range or saved")
    starts = [0, *(start for start, _ in runs[1:])]
    stops = [*starts[1:], len(graph.steps)]
    return tuple(Piece(start, stop, label) for start, stop, (_, label) in zip(starts, stops, runs, strict=True))


ITSELF = "(itself)"
"""The label of a piece whose steps are in no module below the model."""


def by_fold(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`fold`: each different iteration of the loops that the forward folds to, once, and what stands between loops.

    Iterations are equal if their steps are, and what they save for the backward.
    """
    if what:
        raise UsageError(f"by=fold:{what:.40}: fold takes nothing after a colon")
    short = ahead(graph)
    places = {step.name: place for place, step in enumerate(graph.steps)}
    saved = {name for result in graph.results for name in refs(result)} & {step.name for step in short.steps}
    stretches, graphs = stretches_of(short), StretchGraphs(short, saved)
    if all(stretch.loop is None for stretch in stretches):
        raise UsageError("by=fold: no steps of this forward repeat as a loop; cut it by module, range or saved")
    first: dict[str, Stretch] = {}
    counts: Counter[Stretch] = Counter()
    for stretch in stretches:
        key = graphs.graph_of(stretch).hash() if stretch.loop is not None else str(stretch)
        counts[first.setdefault(key, stretch)] += 1
    starts = [0, *(places[short.steps[stretch.start].name] for stretch in stretches[1:]), len(graph.steps)]
    ends = dict(zip(stretches, pairwise(starts), strict=True))
    labels = {each: module_of_stretch(short, each) or (ITSELF if each.loop is None else "a loop") for each in counts}
    found = with_gaps(graph, [(*ends[each], labels[each]) for each in counts], "fold")
    times = {ends[each][0]: count for each, count in counts.items()}
    return tuple(replace(piece, count=times[piece.start]) if piece.wanted else piece for piece in found)


def by_saved(graph: Graph, what: str) -> tuple[Piece, ...]:
    """`saved:N`: N pieces (by default 4), cut where the fewest bytes cross. No piece is much smaller than its share."""
    steps = weighty(graph) or [0]
    count = whole_number(what, "saved", 1, len(steps)) if what else min(4, len(steps))
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
    """Return, for each place before a step, the bytes of the values made before it that are used from there on."""
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
    "fold": by_fold,
    "saved": by_saved,
}
"""The kinds of cut, by the first word of `by`."""


def pieces(graph: Graph, cuts: Sequence[int]) -> tuple[Piece, ...]:
    """Return the pieces between these cuts."""
    places = [0, *cuts, len(graph.steps)]
    return tuple(Piece(start, stop, f"steps {start}-{stop}") for start, stop in pairwise(places) if start < stop)


def with_gaps(graph: Graph, spans: Sequence[tuple[int, int, str]], kind: str) -> tuple[Piece, ...]:
    """Return these pieces, and the unwanted ones between them."""
    found: list[Piece] = []
    at = 0
    for start, stop, label in sorted(spans):
        if start < at:
            raise UsageError(f"by={kind}: steps {start}-{stop} overlap those before, which end at {at}")
        if start > at:
            found.append(Piece(at, start, f"steps {at}-{start}", wanted=False))
        found.append(Piece(start, stop, label))
        at = stop
    if at < len(graph.steps):
        found.append(Piece(at, len(graph.steps), f"steps {at}-{len(graph.steps)}", wanted=False))
    return tuple(found)


def whole_number(text: str, kind: str, low: int, high: int) -> int:
    """Return an integer from `low` to `high`."""
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise UsageError(f"by={kind}:{text}: expected a whole number from {low} to {high}")
    return int(text)
