"""A Diff as text for people and as JSON. All names are strangers' words: control characters are escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from backprint.amounts import amount, short
from backprint.differing.facts import graph_of
from backprint.differing.groups import MARKS, ChangeGroup, change_groups, names_together, port_groups
from backprint.differing.nouns import Costs, Diff, Fact, GraphDiff, PairDiff
from backprint.graph.folding.series import divided_text
from backprint.graph.nouns import Graph
from backprint.graph.shown import number_of
from backprint.plain import printable

MOST_GROUPS, MOST_LINES = 24, 16
"""How many groups of changes are shown of a graph, and how many lines of a group."""

LONGEST = 200
"""A line of a change has at most so many characters."""


def diff_text(diff: Diff) -> str:
    """Return a Diff as text, in which long lists are cut."""
    return "\n".join(map(printable, diff_lines(diff)))


def diff_lines(diff: Diff, everything: bool = False, places: tuple[str, str] = ("", "")) -> Iterator[str]:
    """Yield the lines of a Diff; `places` are the folders of its samples; with `everything` long lists are not cut."""
    for word, place, capture in zip(("before:", "after: "), places, (diff.before, diff.after), strict=True):
        yield " ".join(filter(None, (word, place, capture.name, f"({capture.engine})")))
    for pair in diff.pairs:
        yield from pair_lines(diff, pair, everything)
    if not diff.links:
        yield "the pairs are joined in another way"
    for fact in diff.facts:
        yield from fact_lines(fact, everything)
    if diff.same:
        yield "no differences between the graphs (equal hashes)"


def pair_lines(diff: Diff, pair: PairDiff, everything: bool) -> Iterator[str]:
    """Yield the lines of a Pair."""
    several = len(diff.pairs) > 1
    if pair.before is None or pair.after is None:
        only, number = ("before", pair.before) if pair.after is None else ("after", pair.after)
        steps = sum(len(graph.changes) for graph in pair.graphs)
        yield f"pair {number}: only {only}, {number_of(steps, 'step')}"
        return
    for graph in pair.graphs:
        where = f"pair {pair.before} -> {pair.after}, {graph.direction}" if several else graph.direction
        told = graph is not pair.graphs[0] and all(pair.graphs[0].hashes)  # by the forward: what is renamed
        before, after = graphs_of(diff, pair, graph.direction)
        lines = list(graph_lines(graph, before, after, pair.graphs[0] if told else None, everything))
        if lines or not graph.same:
            yield f"{where}: {headline(graph)}"
            yield from lines
    for name, cost in (("saved for backward", pair.saved_bytes), ("parameters and inputs kept", pair.kept_bytes)):
        if cost.before != cost.after:
            yield f"{name}: {amount(cost.before)} -> {amount(cost.after)} ({growth_text(cost)})"


def headline(graph: GraphDiff) -> str:
    """Return how many steps changed."""
    if not all(graph.hashes):
        return f"only {'before' if graph.hashes[0] else 'after'}, {number_of(len(graph.changes), 'step')}"
    if graph.same:
        return "the same (equal hashes)"
    counts = Counter(change.kind if not change.follows else "" for change in graph.changes)
    said = [f"{counts[kind]} {kind}" for kind in ("added", "removed", "changed") if counts[kind]]
    if counts[""]:
        takes = "it takes" if counts[""] == 1 else "they take"
        said.append(f"{counts['']} with other sizes or types, because what {takes} has")
    told = "only sizes differ: " if graph.only_sizes else ""
    same = number_of(len(graph.steps) - changed_count(graph), "step")
    return f"{told}{', '.join(said) or 'no step changed'}, {same} the same"


def changed_count(graph: GraphDiff) -> int:
    """Return how many of the steps that both have are not the same."""
    return sum(change.kind == "changed" for change in graph.changes)


def graph_lines(
    graph: GraphDiff, before: Graph | None, after: Graph | None, told: GraphDiff | None, everything: bool
) -> Iterator[str]:
    """Yield the lines of a graph that both sides have, and of its subgraphs; `told` has the names that were shown."""
    if before is None or after is None:
        return
    yield from group_lines(change_groups(graph, before, after), everything)
    ports = port_groups(graph, before, after)
    yield from port_lines([group for group in ports if told is None or group.lines[0].kind != "renamed"], everything)
    yield from (f"  ! {order}" for order in graph.orders)
    for left, right in renamed_together([row for row in graph.modules if told is None or row not in told.modules]):
        yield f"  ~ module {right}, before: {left}"
    for count, one, several in (
        (graph.moved, "stands in another order", "stand in another order"),
        (graph.lines, "comes from another line of the program", "come from other lines of the program"),
    ):
        if count and not graph.same:
            yield f"  ({number_of(count, 'step')} that both have {one if count == 1 else several})"
    if graph.flops.before != graph.flops.after:
        yield f"  FLOPs: {short(graph.flops.before)} -> {short(graph.flops.after)} ({growth_text(graph.flops)})"
    for sub in graph.subgraphs:
        left, right = sub.names
        yield f"  in {right}{f', before: {left}' if left != right else ''}: {headline(sub)}"
        for line in graph_lines(sub, dict(before.subgraphs)[left], dict(after.subgraphs)[right], None, everything):
            yield f"  {line}"


def graphs_of(diff: Diff, pair: PairDiff, direction: str) -> tuple[Graph | None, Graph | None]:
    """Return a direction of a Pair on both sides; None if a side does not have it."""
    return graph_of(diff.before, pair.before, direction), graph_of(diff.after, pair.after, direction)


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
            yield f"    … and {number_of(sum(line.count for line in group.lines[len(shown) :]), 'step')} more"
    if len(groups) > most:
        yield f"  … and {number_of(sum(len(group.modules) for group in groups[most:]), 'module')} more"


def port_lines(groups: Sequence[ChangeGroup], everything: bool) -> Iterator[str]:
    """Yield the lines of changed ports."""
    most = len(groups) if everything else MOST_GROUPS
    for group in groups[:most]:
        line = group.lines[0]
        name = f"{group.name}{often(len(group.modules))}: " if group.name else ""
        yield f"  {MARKS[line.kind]} {name}{shortened(line.text)}{'' if name else often(len(group.modules))}"
    if len(groups) > most:
        yield f"  … and {number_of(sum(len(group.modules) for group in groups[most:]), 'port')} more"


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
        **{graph.direction: graph_json(graph, *graphs_of(diff, pair, graph.direction)) for graph in pair.graphs},
    }


def graph_json(graph: GraphDiff, before: Graph | None, after: Graph | None) -> dict[str, Any]:
    """Return a graph as plain data: groups for people, steps and ports by number for programs."""
    steps: tuple[ChangeGroup, ...] = ()
    ports: tuple[ChangeGroup, ...] = ()
    if before is not None and after is not None:
        steps, ports = change_groups(graph, before, after), port_groups(graph, before, after)
    return {
        "same": graph.same,
        "only_sizes": graph.only_sizes,
        "hashes": {"before": graph.hashes[0] or None, "after": graph.hashes[1] or None},
        "steps": [len(side.steps) if side is not None else None for side in (before, after)],
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
        "subgraphs": list(subgraphs_json(graph, before, after)),
    }


def subgraphs_json(graph: GraphDiff, before: Graph | None, after: Graph | None) -> Iterator[dict[str, Any]]:
    """Yield the subgraphs that differ as plain data, with their names."""
    if before is not None and after is not None:
        lefts, rights = dict(before.subgraphs), dict(after.subgraphs)
        for sub in graph.subgraphs:
            left, right = sub.names
            yield {"names": {"before": left, "after": right}} | graph_json(sub, lefts[left], rights[right])


def group_json(group: ChangeGroup) -> dict[str, Any]:
    """Return a group of changes as plain data."""
    return asdict(group) | {"name": group.name}
