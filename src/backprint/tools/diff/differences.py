"""Compare two Captures: the values of their constants, their Pairs, and the steps and ports of each graph.

Hashes decide whether two graphs are the same. If they are, the numbers of the canonical form match their values; else
values are matched (`matching`), and every matched step is compared. Graphs with different hashes always have a
difference that is named.

- Left, a, is the side before the change; right, b, the one after it. Names of what is of both begin or end so.
- The canonical form of a graph is its text with numbers for the names of values, in an order that does not depend on
  the order of independent steps; the hash is of that text.
- `Wired` is a graph whose values are numbers: its inputs first, then its steps, from `first` on.
- `Matching` has the matched values of two graphs: `to_b` from those of a to those of b, and `to_a` back.
- `Forward` has the matches of two forwards, by name, for the comparison of their backwards; what it has of each of the
  two graphs is a pair, of a and of b.
- `Numbers` has the labels of values: equal labels mean alike. All graphs of two Pairs share one.
- A recipe says how an input is made again: `kind`, geometry, and `facts`; one of kind `exact` has its data as bytes.
"""

from __future__ import annotations

import hashlib
import json
import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from backprint.graph.canonical import SIZED, canonical, effects, numbered_walk
from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture, Graph, Pair, Port, Step
from backprint.tools.cost.costs import step_costs, summarize, total_cost
from backprint.tools.diff.matching import (
    Echoes,
    Forward,
    Items,
    Matching,
    Numbers,
    Wired,
    input_changes,
    item_of,
    match_inputs,
    match_steps,
    matched_outputs,
    number_graph,
    output_changes,
    subgraphs_of,
)
from backprint.tools.diff.nouns import Costs, Diff, Fact, GraphDiff, PairDiff, StepChange
from backprint.tools.diff.words import capture_facts, graph_of, linked_places

# ---- Tensors with other values, as far as recipes tell
# Hashes leave values out, so graphs with other constants are the same. No tensor is made: recipes are compared as JSON,
# and exact data as bytes. A tensor that one Capture keeps as bytes and the other as numbers is not compared.


KEPT = ("constant", "values", "arange", "tril", "exact")
"""Kinds of recipes that say every value."""

GEOMETRY = ("kind", "dtype", "shape", "stride", "extent", "offset")
"""What of two recipes must be equal, so that other facts or data are other values."""

LETTERS = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "int64": "q",
    "int32": "i",
    "int16": "h",
    "int8": "b",
    "uint8": "B",
    "bool": "?",
}
"""How `struct` calls the dtypes that it knows."""

FEW = 64
"""Data of at most so many bytes is shown as numbers."""


def _value_facts(before: Capture, after: Capture, pairs: Sequence[PairDiff]) -> Iterator[Fact]:
    """Yield one fact if tensors that both Captures take have other values: of these tensors, or of the only one."""
    names = _renamed_inputs(before, after, pairs)
    roles = {port.name: port.role for port in free_ports(before)}
    rows = []  # what a tensor is called, its values before, and after
    for name in with_parts(before, roles):
        role = roles.get(name, "part")  # a part of a sparse tensor is no port
        if values := differing_values(before, after, name, names.get(name, name)):
            rows.append((f"{role} {names.get(name, name)}", *values))
    if len(rows) == 1:
        [(label, values_before, values_after)] = rows
        yield Fact(f"values of {label}", (values_before,), (values_after,))
    elif rows:
        lines_before = tuple(f"{label}: {values}" for label, values, _ in rows)
        lines_after = tuple(f"{label}: {values}" for label, _, values in rows)
        yield Fact("values of tensors", lines_before, lines_after)


def _renamed_inputs(before: Capture, after: Capture, pairs: Sequence[PairDiff]) -> dict[str, str]:
    """Return the inputs that changed and that both Captures have, with their names in the second Capture."""
    names = {}
    for pair in pairs:
        for diff in pair.graphs:
            graph_a = graph_of(before, pair.before, diff.direction)
            graph_b = graph_of(after, pair.after, diff.direction)
            for port in diff.ports:
                if graph_a and graph_b and port.is_input and port.before is not None and port.after is not None:
                    names[graph_a.inputs[port.before].name] = graph_b.inputs[port.after].name
    return names


def with_parts(capture: Capture, names: Mapping[str, str]) -> Iterator[str]:
    """Yield names of inputs; of a sparse one, those of its parts as well."""
    for name in names:
        yield name
        match capture.recipes.rows.get(name):
            case {"kind": "sparse", "facts": {"of": [*parts]}}:
                yield from (part for part in parts if isinstance(part, str))


def differing_values(before: Capture, after: Capture, left: str, right: str) -> tuple[str, str] | None:
    """Return the values of a tensor on both sides as texts, if they are known to differ; else None. It is `left` in the
    first Capture and `right` in the second. Numbers are written if they are few, else digests."""
    recipe_a, recipe_b = before.recipes.rows.get(left), after.recipes.rows.get(right)
    if not isinstance(recipe_a, dict) or not isinstance(recipe_b, dict) or recipe_a.get("kind") not in KEPT:
        return None
    if any(recipe_a.get(key) != recipe_b.get(key) for key in GEOMETRY):
        return None
    if recipe_a["kind"] != "exact":
        texts = _facts_text(recipe_a.get("facts")), _facts_text(recipe_b.get("facts"))
        return texts if texts[0] != texts[1] else None
    data_of_both = before.recipes.data(left), after.recipes.data(right)
    if None in data_of_both or data_of_both[0] == data_of_both[1]:
        return None
    text_a, text_b = (_data_text(data or b"", recipe_a.get("dtype")) for data in data_of_both)
    if text_a != text_b:
        return text_a, text_b
    # Other bytes may be written as equal numbers: two kinds of NaN.
    return _digest_text(data_of_both[0]), _digest_text(data_of_both[1])


def _facts_text(facts: Any) -> str:
    """Return the facts of a recipe, with all of its values."""
    match facts:
        case {"value": value, **rest} if not rest:
            return f"{value} everywhere"
        case {"values": [*values]}:
            return json.dumps(values)
        case dict():
            return ", ".join(f"{name} {value}" for name, value in sorted(facts.items()))
    return json.dumps(facts)


def _data_text(data: bytes, dtype: Any) -> str:
    """Return data as numbers if it is short, else its digest."""
    letter = LETTERS.get(dtype) if isinstance(dtype, str) else None
    if letter is None or len(data) > FEW or len(data) % struct.calcsize(letter):  # or no whole number of elements
        return _digest_text(data)
    return str([number for (number,) in struct.iter_unpack(f"<{letter}", data)])  # <: little-endian


def _digest_text(data: bytes | None) -> str:
    """Return data in words, by its digest."""
    return f"data with digest {hashlib.sha256(data or b'').hexdigest()[:16]}"


# ---- Pairs, graphs and steps

DIRECTIONS = ("forward", "backward")


def compare_captures(before: Capture, after: Capture) -> Diff:
    """Return what changed between two Captures."""
    pairs = tuple(
        _compare_pairs(left, right, before, after) for left, right in _pair_numbers(before.pairs, after.pairs)
    )
    links = linked_places(before) == linked_places(after)
    facts = (*capture_facts(before, after), *_value_facts(before, after, pairs))
    return Diff(before, after, pairs, links, facts)


def _pair_numbers(before: Sequence[Pair], after: Sequence[Pair]) -> Iterator[tuple[int | None, int | None]]:
    """Yield which Pair is which, by number. If one side has more, those with equal hashes are the same, and between
    them those in the same order, as far as both sides have one. Hashes A B C and A X Y C: (0, 0), (1, 1), (None, 2),
    (2, 3)."""
    equal_pairs: list[tuple[int, int]] = []
    if len(before) != len(after):
        hashes_a, hashes_b = ([hashes_of(pair) for pair in pairs] for pairs in (before, after))
        blocks = SequenceMatcher(None, hashes_a, hashes_b, autojunk=False).get_matching_blocks()
        equal_pairs = [(left + place, right + place) for left, right, size in blocks for place in range(size)]
    start_a, start_b = 0, 0
    for stop_a, stop_b in (*equal_pairs, (len(before), len(after))):
        yield from zip_longest(range(start_a, stop_a), range(start_b, stop_b))
        if stop_a < len(before) and stop_b < len(after):
            yield stop_a, stop_b
        start_a, start_b = stop_a + 1, stop_b + 1


def hashes_of(pair: Pair) -> tuple[str, str]:
    """Return the hashes of a Pair's directions; '' if it has no backward."""
    return pair.forward.hash(), pair.backward.hash() if pair.backward is not None else ""


def _compare_pairs(left: int | None, right: int | None, before: Capture, after: Capture) -> PairDiff:
    """Compare two Pairs, each by its number; None is in the place of one that a side does not have. The matches of the
    forwards help to match the backwards."""
    pairs = before.pairs[left] if left is not None else None, after.pairs[right] if right is not None else None
    sides = [(pair.forward, pair.backward) if pair is not None else (None, None) for pair in pairs]
    numbers: Numbers = {}
    graph_diffs, forward = [], Forward()
    for name, graph_a, graph_b in zip(DIRECTIONS, *sides, strict=True):
        if graph_a is None and graph_b is None:
            continue
        diff, matched_forward = _compare_graphs(name, graph_a or NOTHING, graph_b or NOTHING, forward, numbers)
        if graph_a is None or graph_b is None:
            # A side without the direction has no hash, no sizes and no order; the matches of forwards stay.
            hashes = diff.hashes[0] if graph_a else "", diff.hashes[1] if graph_b else ""
            diff, matched_forward = replace(diff, hashes=hashes, only_sizes=False, orders=()), forward
        graph_diffs.append(diff)
        forward = matched_forward
    summaries = [summarize(pair) if pair is not None else None for pair in pairs]
    saved = Costs(*(summary.saved_bytes if summary is not None else 0 for summary in summaries))
    kept = Costs(*(summary.kept_bytes if summary is not None else 0 for summary in summaries))
    return PairDiff(left, right, tuple(graph_diffs), saved, kept)


NOTHING = Graph((), (), (), ())
"""In the place of a direction that one side does not have."""


def _compare_graphs(
    direction: str, before: Graph, after: Graph, forward: Forward, numbers: Numbers
) -> tuple[GraphDiff, Forward]:
    """Compare two graphs; return their GraphDiff, and which of their values are matched, for the backward's graphs.
    `forward` has the matches of their own forwards, if these are backwards, and `numbers` the labels that all graphs of
    a Pair share. If hashes differ, they are compared once more with hashes that leave sizes out."""
    # A walk returns the hash, and the number of each value in the canonical form by its name.
    (left, numbers_a), (right, numbers_b) = numbered_walk(before), numbered_walk(after)
    matching = Matching(number_graph(before, numbers, numbers_a), number_graph(after, numbers, numbers_b), numbers)
    same, only_sizes = left == right, False
    if not same:
        left_without_sizes, numbers_a = numbered_walk(before, sizes=False)
        right_without_sizes, numbers_b = numbered_walk(after, sizes=False)
        only_sizes = left_without_sizes == right_without_sizes
    if same or only_sizes:
        _match_by_number(matching, numbers_a, numbers_b)
        outputs = {at: at for at in range(len(before.outputs))}  # equal canonical forms have equal orders of outputs
    else:
        matching.keep_apart(forward)
        match_inputs(matching, forward, strictly=True)
        match_steps(matching)
        match_inputs(matching, forward, strictly=False)
        outputs = matched_outputs(matching, forward)
    changes = () if same else tuple(_step_changes(matching, forward))
    ports = (*input_changes(matching), *output_changes(matching, outputs))
    orders = () if same else tuple(_other_orders(matching, outputs, differs=bool(changes or ports)))
    steps = steps_of_both(matching)
    diff = GraphDiff(
        direction,
        hashes=(left, right),
        only_sizes=only_sizes,
        steps=steps,
        changes=changes,
        ports=ports,
        orders=orders,
        modules=renamed_modules(matching, steps),
        moved=len(steps) - _longest_rise([b for _, b in steps]),
        lines=sum(program_line(before.steps[a]) != program_line(after.steps[b]) for a, b in steps),
        flops=Costs(flops(before), flops(after)),
        subgraphs=() if same else _subgraph_diffs(direction, matching, steps),
    )
    return diff, Forward(matching)


def _subgraph_diffs(direction: str, matching: Matching, steps: Sequence[tuple[int, int]]) -> tuple[GraphDiff, ...]:
    """Compare the subgraphs that matched steps call, each with the one in its place; return those that differ, each
    pair once."""
    before, after = dict(matching.a.graph.subgraphs), dict(matching.b.graph.subgraphs)
    called = [(subgraphs_of(matching.a.graph.steps[a]), subgraphs_of(matching.b.graph.steps[b])) for a, b in steps]
    # Not strict: two steps may call another number of subgraphs, and then differ by themselves.
    names = dict.fromkeys(row for left, right in called for row in zip(left, right, strict=False))
    diffs = []
    for left, right in names:
        diff, _ = _compare_graphs(direction, before[left], after[right], Forward(), matching.numbers)
        if not diff.same:
            diffs.append(replace(diff, names=(left, right)))
    return tuple(diffs)


def _match_by_number(matching: Matching, numbers_a: Mapping[str, str], numbers_b: Mapping[str, str]) -> None:
    """Match values that have one number in the canonical form (number of a value by its name, for each graph), and
    guards in their order."""
    values_by_number: dict[str, list[int]] = defaultdict(list)
    # The last value first, so that `pop` gives the first of those with one number.
    for name, value in sorted(matching.b.places.items(), key=lambda row: -row[1]):
        values_by_number[numbers_b[name]].append(value)
    for name, value in matching.a.places.items():
        if values_by_number[numbers_a[name]]:
            matching.join(value, values_by_number[numbers_a[name]].pop())
    for left, right in zip(guards_of(matching.a), guards_of(matching.b), strict=True):
        matching.join(left, right)


def guards_of(graph: Wired) -> list[int]:
    """Return the guards of a graph, as values."""
    return [graph.first + place for place, step in enumerate(graph.graph.steps) if step.is_guard]


def flops(graph: Graph) -> int:
    """Return the FLOPs of the products in a graph, at the sizes of the capture."""
    return total_cost(step_costs(graph)).flops


# ---- What differs


def _step_changes(matching: Matching, forward: Forward) -> Iterator[StepChange]:
    """Yield the steps that are not the same: those of the first graph, then those that only the second has."""
    a, b = matching.a, matching.b
    for value in a.steps:
        other = matching.to_b.get(value)
        if other is None:
            yield StepChange(value - a.first, None, recomputed=recomputes(a, value) is not None)
        elif parts := tuple(_different_parts(matching, value, other)):
            yield StepChange(
                value - a.first,
                other - b.first,
                parts,
                follows=follows(matching, value, parts),
                recomputed=parts == ("inputs",) and _takes_recomputed(matching, forward, value, other),
            )
    for value in b.steps:
        if value not in matching.to_a:
            yield StepChange(None, value - b.first, recomputed=recomputes(b, value) is not None)


def recomputes(graph: Wired, value: int) -> str | None:
    """Return the step of the forward whose value a step of a backward computes again; None if it does not."""
    echo = graph.step_of(value).echo if value >= graph.first else None
    return echo.names[0] if echo is not None and echo.kind == "recomputes" else None


def _takes_recomputed(matching: Matching, forward: Forward, a: int, b: int) -> bool:
    """Whether two steps, whose inputs differ, do so only because one takes saved values that the other graph computes
    again: each pair of arguments that are not matched is one value of the forward, an input of one backward and a step
    of the other."""
    lefts, rights = matching.a.takes[a], matching.b.takes[b]
    if len(lefts) != len(rights):
        return False
    unmatched = [(left, right) for left, right in zip(lefts, rights, strict=True) if matching.to_b.get(left) != right]
    if not unmatched:
        return False
    for left, right in unmatched:
        before = _value_of_forward(matching.a, forward.echoes[0], forward.items[0], left)
        after = _value_of_forward(matching.b, forward.echoes[1], forward.items[1], right)
        is_input_of_one = (left < matching.a.first) != (right < matching.b.first)
        if before is None or before != after or not is_input_of_one:
            return False
    return True


def _value_of_forward(graph: Wired, echoes: Echoes, items: Items, value: int) -> tuple[int, int | None] | None:
    """Return which value of the forward a value of a backward is, saved or computed again: a number that both sides
    share for its step, and which of several results of the step it is; None if it is another value. `echoes` has the
    number of each of the forward's steps by its name, and `items` of each step that takes one result of several: the
    step that has these, and the number of the result."""
    number: int | None
    if value < graph.first:
        port = graph.graph.inputs[value]
        # A saved value has the name of the forward's step that made it.
        name, number = items.get(port.name, (port.name, None)) if port.role == "saved" else ("", None)
    else:
        item = item_of(graph.step_of(value))
        if item is None:
            name, number = recomputes(graph, value) or "", None
        else:
            source, number = item
            name = recomputes(graph, graph.places[source]) or ""
    return (echoes[name], number) if name in echoes else None


def _different_parts(matching: Matching, a: int, b: int) -> Iterator[str]:
    """Yield what differs between two matched steps: words of `PARTS`."""
    takes_others = matching.takes_in_b(a) != matching.b.takes[b]
    if not takes_others and matching.a.strict[a] == matching.b.strict[b]:
        return  # equal labels: the same call
    form_a, form_b = (
        graph.forms.step(graph.step_of(value), value - graph.first)
        for graph, value in ((matching.a, a), (matching.b, b))
    )
    if form_a.operator != form_b.operator:
        yield "operator"
    if form_a.arguments != form_b.arguments:
        yield "arguments"
    if takes_others or form_a.changed != form_b.changed:  # a value that was changed in place is another one
        yield "inputs"
    if form_a.type != form_b.type:
        yield "type"
    if form_a.subgraphs != form_b.subgraphs:
        yield "subgraphs"


def follows(matching: Matching, a: int, parts: tuple[str, ...]) -> bool:
    """Whether a step, of which `parts` differ, has another type, or other sizes in its arguments, because what it takes
    has another type. SIZED are the operators that have sizes among their arguments, such as `view`."""
    name = matching.a.step_of(a).target.split(".")[1:2]  # of `aten.view.default`: `view`
    expected = {"type", "arguments"} if name and name[0] in SIZED else {"type"}
    return expected.issuperset(parts) and any(_type_differs(matching, argument) for argument in matching.a.takes[a])


def _type_differs(matching: Matching, a: int) -> bool:
    """Whether a value has another type than the one it is matched with."""
    return matching.a.spec(a) != matching.b.spec(matching.to_b[a])


def _other_orders(matching: Matching, outputs: Mapping[int, int], differs: bool) -> Iterator[str]:
    """Yield what stands in another order; else, if nothing else differs (`differs`), where the canonical forms do, so
    that graphs with different hashes always have a difference that is named. `outputs` are those that both have."""
    a, b = matching.a, matching.b
    # The steps of a that do more than compute their result, as values of b; and the order of those of b.
    with_effects = [matching.to_b.get(a.first + place) for place in effects(a.graph)]
    order_in_b = {b.first + place: number for number, place in enumerate(effects(b.graph))}
    inputs_order = _free_order(a.graph.inputs, matching.to_b, differs)
    outputs_order = _free_order(a.graph.outputs, outputs, differs)
    for text, order in (
        (
            "the steps with effects run in another order",
            [order_in_b[value] for value in with_effects if value in order_in_b],
        ),
        ("the inputs stand in another order", inputs_order),
        ("the outputs stand in another order", outputs_order),
    ):
        if order != sorted(order):
            differs = True
            yield text
    if not differs:
        lines = zip_longest(canonical(a.graph).lines, canonical(b.graph).lines, fillvalue="(nothing)")
        left, right = next(row for row in lines if row[0] != row[1])
        yield f"the canonical forms differ first at `{left}` and `{right}`"


def _free_order(ports: Sequence[Port], places: Mapping[int, int], differs: bool) -> list[int]:
    """Return where matched ports stand in the second graph (`places`: by the number in the first); saved ones, whose
    order nobody chose, only if nothing else differs."""
    return [places[at] for at, port in enumerate(ports) if at in places and not (differs and port.role == "saved")]


# ---- What does not count


def steps_of_both(matching: Matching) -> tuple[tuple[int, int], ...]:
    """Return the steps that are matched, by number."""
    first, start = matching.a.first, matching.b.first
    return tuple(sorted((a - first, b - start) for a, b in matching.to_b.items() if a >= first))


def program_line(step: Step) -> tuple[str, int, str]:
    """Return the line of the program that a step comes from."""
    source = step.source
    return (source.file, source.line, source.code) if source is not None else ("", 0, "")


def renamed_modules(matching: Matching, steps: Sequence[tuple[int, int]]) -> tuple[tuple[str, str], ...]:
    """Return modules that only one graph has under their name, and the other under another name: (name before, name
    after) of each that has a step in `steps`, the steps that both graphs have."""
    modules_a = [matching.a.module(matching.a.first + a) for a, _ in steps]
    modules_b = [matching.b.module(matching.b.first + b) for _, b in steps]
    lefts, rights = set(modules_a), set(modules_b)
    names = zip(modules_a, modules_b, strict=True)
    rows = dict.fromkeys((left, right) for left, right in names if left not in rights and right not in lefts)
    return tuple(row for row in rows if all(row))


def _longest_rise(numbers: Sequence[int]) -> int:
    """Return the length of the longest part of numbers, not always next to each other, that rises: 3 of 2 0 1 3."""
    ends: list[int] = []  # the least number that a rising part of each length ends with
    for number in numbers:
        place = bisect_left(ends, number)
        ends[place : place + 1] = [number]
    return len(ends)
