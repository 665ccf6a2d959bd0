"""A Diff as text for people and as JSON. All names are strangers' words: control characters are escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from backprint.amounts import amount, short
from backprint.differing.groups import MARKS, ChangeGroup, change_groups, names_together, port_groups
from backprint.differing.nouns import Costs, Diff, Fact, GraphDiff, PairDiff
from backprint.graph.folding.series import divided_text
from backprint.graph.nouns import Capture, Graph
from backprint.plain import printable

MOST_GROUPS, MOST_LINES = 24, 16
"""How many groups of changes are shown of a graph, and how many lines of a group."""

LONGEST = 200
"""A line of a change has at most so many characters."""


def diff_text(diff: Diff, everything: bool = False) -> str:
    """Return a Diff as text; `everything`: without leaving out lines of long lists."""
    return "\n".join(printable(line) for line in diff_lines(diff, everything))


def diff_lines(diff: Diff, everything: bool = False, places: tuple[str, str] = ("", "")) -> Iterator[str]:
    """Yield the lines of a Diff; `places` are the folders of its samples."""
    for word, place, capture in zip(("before:", "after: "), places, (diff.before, diff.after), strict=True):
        yield " ".join(filter(None, (word, place, capture.name, f"({capture.engine})")))
    for pair in diff.pairs:
        yield from pair_lines(diff, pair, everything)
    if not diff.links:
        yield "the pairs are joined in another way"
    for fact in diff.facts:
        yield from fact_lines(fact, everything)
    if diff.same:
        yield "no differences: every graph computes the same (equal hashes)"


def pair_lines(diff: Diff, pair: PairDiff, everything: bool) -> Iterator[str]:
    """Yield the lines of a Pair."""
    several = len(diff.pairs) > 1
    if pair.before is None or pair.after is None:
        only, number = ("before", pair.before) if pair.after is None else ("after", pair.after)
        steps = sum(len(graph.changes) for graph in pair.graphs)
        yield f"pair {number}: only {only}, {steps} steps"
        return
    for graph in pair.graphs:
        where = f"pair {pair.before} -> {pair.after}, {graph.direction}" if several else graph.direction
        lines = list(graph_lines(diff, pair, graph, everything))
        if lines or not graph.same:
            yield f"{where}: {headline(graph)}"
            yield from lines
    for name, cost in (("saved for backward", pair.saved_bytes), ("parameters and inputs kept", pair.kept_bytes)):
        if cost.before != cost.after:
            yield f"{name}: {amount(cost.before)} -> {amount(cost.after)} ({growth_text(cost)})"


def headline(graph: GraphDiff) -> str:
    """Return how many steps changed."""
    if not all(graph.hashes):
        return f"only {'before' if graph.hashes[0] else 'after'}, {len(graph.changes)} steps"
    if graph.same:
        return "the same (equal hashes)"
    counts = Counter(change.kind if not change.follows else "" for change in graph.changes)
    said = [f"{counts[kind]} {kind}" for kind in ("added", "removed", "changed") if counts[kind]]
    if counts[""]:
        said.append(f"{counts['']} with other sizes or types, because what they take has")
    told = "only sizes differ: " if graph.only_sizes else ""
    return f"{told}{', '.join(said) or 'no step changed'}, {len(graph.steps) - changed_count(graph)} steps the same"


def changed_count(graph: GraphDiff) -> int:
    """Return how many of the steps that both have are not the same."""
    return sum(change.kind == "changed" for change in graph.changes)


def graph_lines(diff: Diff, pair: PairDiff, graph: GraphDiff, everything: bool) -> Iterator[str]:
    """Yield the lines of a direction that both sides have."""
    before, after = graphs_of(diff, pair, graph.direction)
    if before is None or after is None:
        return
    yield from group_lines(change_groups(graph, before, after), everything)
    told = graph is not pair.graphs[0] and all(pair.graphs[0].hashes)  # by the forward: what is renamed
    ports = port_groups(graph, before, after)
    yield from port_lines([group for group in ports if not (told and group.lines[0].kind == "renamed")], everything)
    yield from (f"  ! {order}" for order in graph.orders)
    for left, right in renamed_together([row for row in graph.modules if not (told and row in pair.graphs[0].modules)]):
        yield f"  ~ module {right}, before: {left}"
    for count, said in ((graph.moved, "stand in another order"), (graph.lines, "come from other lines of the program")):
        if count and not graph.same:
            yield f"  ({count} steps that both have {said})"
    if graph.flops.before != graph.flops.after:
        yield f"  FLOPs: {short(graph.flops.before)} -> {short(graph.flops.after)} ({growth_text(graph.flops)})"


def graphs_of(diff: Diff, pair: PairDiff, direction: str) -> tuple[Graph | None, Graph | None]:
    """Return a direction of a Pair on both sides; None if a side does not have it."""

    def side(capture: Capture, number: int | None) -> Graph | None:
        if number is None:
            return None
        found = capture.pairs[number]
        return found.forward if direction == "forward" else found.backward

    return side(diff.before, pair.before), side(diff.after, pair.after)


def group_lines(groups: Sequence[ChangeGroup], everything: bool) -> Iterator[str]:
    """Yield the lines of changed steps, below their modules."""
    most = len(groups) if everything else MOST_GROUPS
    for group in groups[:most]:
        where = f"in {group.name}{often(len(group.modules))}" if group.name else "outside of modules"
        yield f"  {where}:"
        shown = group.lines if everything else group.lines[:MOST_LINES]
        for line in shown:
            yield f"    {MARKS[line.kind]} {shortened(line.text)}{often(line.count)}"
        if len(shown) < len(group.lines):
            yield f"    … and {sum(line.count for line in group.lines[len(shown) :])} steps more"
    if len(groups) > most:
        yield f"  … and {sum(len(group.modules) for group in groups[most:])} modules more"


def port_lines(groups: Sequence[ChangeGroup], everything: bool) -> Iterator[str]:
    """Yield the lines of changed ports."""
    most = len(groups) if everything else MOST_GROUPS
    for group in groups[:most]:
        line = group.lines[0]
        name = f" {group.name}" if group.name else ""
        yield f"  {MARKS[line.kind]}{name}{often(len(group.modules))}: {shortened(line.text)}"
    if len(groups) > most:
        yield f"  … and {sum(len(group.modules) for group in groups[most:])} ports more"


def often(count: int) -> str:
    """Return how often something is there, if it is more than once."""
    return f" (× {count})" if count > 1 else ""


def shortened(text: str) -> str:
    """Return a text in one line of limited length."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def renamed_together(modules: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield renamed modules, those that differ in numbers alone as one."""
    found: dict[tuple[Any, Any], list[tuple[str, str]]] = {}
    for left, right in modules:
        found.setdefault((divided_text(left)[0], divided_text(right)[0]), []).append((left, right))
    for rows in found.values():
        yield names_together([left for left, _ in rows]), names_together([right for _, right in rows])


def fact_lines(fact: Fact, everything: bool) -> Iterator[str]:
    """Yield the lines of a fact."""
    if len(fact.before) <= 1 and len(fact.after) <= 1:
        left, right = ((*side, "none")[0] for side in (fact.before, fact.after))
        yield f"{fact.name}: {shortened(left)} -> {shortened(right)}"
        return
    yield f"{fact.name}:"
    rows = [*(f"  - {each}" for each in fact.before), *(f"  + {each}" for each in fact.after)]
    shown = rows if everything else rows[:MOST_LINES]
    yield from map(shortened, shown)
    if len(shown) < len(rows):
        yield f"  … and {len(rows) - len(shown)} more"


def growth_text(costs: Costs) -> str:
    """Return by how much something grew or shrank."""
    if not costs.before:
        return "new"
    return f"{100 * (costs.after - costs.before) / costs.before:+.1f} %"


# ------------------------------------------------------------------ JSON


def diff_json(diff: Diff) -> dict[str, Any]:
    """Return a Diff as plain data."""
    return {
        "same": diff.same,
        "before": {"name": diff.before.name, "engine": diff.before.engine},
        "after": {"name": diff.after.name, "engine": diff.after.engine},
        "same_links": diff.links,
        "facts": [asdict(fact) for fact in diff.facts],
        "pairs": [pair_json(diff, pair) for pair in diff.pairs],
    }


def pair_json(diff: Diff, pair: PairDiff) -> dict[str, Any]:
    """Return a Pair as plain data."""
    return {
        "same": pair.same,
        "before": pair.before,
        "after": pair.after,
        "saved_bytes": asdict(pair.saved_bytes),
        "kept_bytes": asdict(pair.kept_bytes),
        **{graph.direction: graph_json(diff, pair, graph) for graph in pair.graphs},
    }


def graph_json(diff: Diff, pair: PairDiff, graph: GraphDiff) -> dict[str, Any]:
    """Return a direction as plain data: groups for people, steps and ports by number for programs."""
    sides = before, after = graphs_of(diff, pair, graph.direction)
    steps: tuple[ChangeGroup, ...] = ()
    ports: tuple[ChangeGroup, ...] = ()
    if before is not None and after is not None:
        steps, ports = change_groups(graph, before, after), port_groups(graph, before, after)
    return {
        "same": graph.same,
        "only_sizes": graph.only_sizes,
        "hashes": {"before": graph.hashes[0] or None, "after": graph.hashes[1] or None},
        "steps": [len(side.steps) if side is not None else None for side in sides],
        "matched": graph.steps,
        "changes": [asdict(change) | {"kind": change.kind} for change in graph.changes],
        "ports": [asdict(change) | {"kind": change.kind} for change in graph.ports],
        "groups": list(map(group_json, steps)),
        "port_groups": list(map(group_json, ports)),
        "orders": graph.orders,
        "renamed_modules": graph.modules,
        "moved": graph.moved,
        "lines": graph.lines,
        "flops": asdict(graph.flops),
    }


def group_json(group: ChangeGroup) -> dict[str, Any]:
    """Return a group of changes as plain data."""
    return asdict(group) | {"name": group.name}
