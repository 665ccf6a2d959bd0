"""A Diff as text for people and as JSON.

All names come from samples, which may be a stranger's: control characters are escaped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, TypeAlias

from backprint.common.text import amount, printable, short
from backprint.diff.matching import subgraphs_of
from backprint.diff.nouns import Costs, Diff, Fact, GraphDiff, PairDiff, PortChange, StepChange
from backprint.graph.folding.nouns import divided_text
from backprint.graph.keys import number_of
from backprint.graph.nouns import Capture, Graph, Port, Ref, Spec, Step, refs
from backprint.graph.steps import mapped, used
from backprint.graph.text import show, show_call, show_spec

# ---- Differences beside the graphs: engine, versions, guards, notes


def capture_facts(before: Capture, after: Capture) -> Iterator[Fact]:
    """Yield the facts that differ."""
    left, right = capture_texts(before), capture_texts(after)
    for name in dict.fromkeys((*left, *right)):
        one, two = left.get(name, ()), right.get(name, ())
        if one != two:
            left_only, right_only = set(one).difference(two), set(two).difference(one)
            only = tuple(filter(left_only.__contains__, one)), tuple(filter(right_only.__contains__, two))
            yield Fact(name, *(only if any(only) else (one, two)))


def capture_texts(capture: Capture) -> dict[str, tuple[str, ...]]:
    """Return the facts of a Capture, as texts."""
    symbols = {
        f"{symbol.name} was {symbol.hint} in [{symbol.low}, {symbol.high}]": None
        for pair in capture.pairs
        for graph in (pair.forward, pair.backward)
        if graph is not None
        for symbol in graph.symbols
    }
    return {
        "engine": (capture.engine,),
        "fake": ("yes" if capture.fake else "no",),
        **{name: (value,) for name, value in capture.environment},
        "loss": (capture.signature.loss,) if capture.signature.loss else (),
        "constants of the call": tuple(f"{name} = {value}" for name, value in capture.signature.leaves),
        "constants of the result": tuple(result_constants(capture.signature.output)),
        "symbolic sizes": tuple(symbols),
        "guards": tuple(f"{guard.kind}: {guard.text}" for guard in capture.guards),
        "opaque edges": tuple(f"{edge.kind}: {edge.text}" for edge in capture.opaque),
        "graph breaks": capture.breaks,
        "pinned inputs": tuple(f"{name}: {why}" for name, why in capture.pins),
        "custom operators": capture.requires,
        "notes": (*capture.why, *capture.notes),
    }


def result_constants(tree: Any) -> Iterator[str]:
    """Yield what a program returns beside tensors, in order."""
    match tree:
        case {"value": value}:
            yield str(value)
        case {"dict": dict(rows)}:
            for item in rows.values():
                yield from result_constants(item)
        case {"items": [*pairs]}:
            for pair in pairs:
                yield from result_constants({"list": pair[1:]})
        case {"list": [*items]} | {"tuple": [*items]}:
            for item in items:
                yield from result_constants(item)


def graph_of(capture: Capture, pair: int | None, direction: str) -> Graph | None:
    """Return a direction of a Pair; None if the Capture does not have it."""
    if pair is None:
        return None
    return capture.pairs[pair].forward if direction == "forward" else capture.pairs[pair].backward


def linked_places(capture: Capture) -> list[tuple[object, ...]]:
    """Return the links of a Capture without names: from which port of which Pair to which."""
    found: list[tuple[object, ...]] = []
    for link in capture.links:
        source, target = link.source, link.target
        left = port_place(capture, source, link.port.role, link.port.name)
        right = port_place(capture, target, "", link.name) if target is not None else None
        found.append((source, link.port.role, left, target, right))
    return found


def port_place(capture: Capture, pair: int | None, role: str, name: str) -> int | None:
    """Return which port of a Pair has this name; of any role on the way in if `role` is empty."""
    if pair is None:
        return None
    graphs = [graph for graph in (capture.pairs[pair].forward, capture.pairs[pair].backward) if graph is not None]
    ports = [port for graph in graphs for port in ((*graph.outputs, *graph.inputs) if role else graph.inputs)]
    return next((place for place, port in enumerate(ports) if port.name == name and role in ("", port.role)), None)


# ---- Changes grouped by module; the same change of several modules is one group with their number
# A change is a line without names of values: a value is called by the operator that makes it, so that lines of two
# layers can be equal.

MARKS = {"added": "+", "removed": "-", "changed": "~", "renamed": "~"}
"""How a line begins."""


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """Changes of one form."""

    kind: str
    text: str
    count: int
    """In each of the modules."""


Lines: TypeAlias = tuple[ChangeLine, ...]


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """What changed alike in several modules, or in one."""

    modules: tuple[str, ...]
    lines: tuple[ChangeLine, ...]

    @property
    def name(self) -> str:
        """All of its modules as one name: `model.layers.{0..125}.mlp`."""
        return names_together(self.modules)


def change_groups(diff: GraphDiff, before: Graph, after: Graph) -> tuple[ChangeGroup, ...]:
    """Return the changes of a graph's steps, apart from those that only follow from others."""
    shown = Shown(diff, before, after)
    modules: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    wholes = [new_modules(graph, other) for graph, other in ((before, after), (after, before))]
    for change in shown.in_order(diff.changes):
        if not change.follows:
            name = shown.module(change)
            whole = wholes[change.before is None].get(name) if change.kind != "changed" else None
            modules[whole or name][change.kind, shown.text(change) if whole is None else ""] += 1
    rows = [(name, tuple(lines_of(lines))) for name, lines in modules.items()]
    return tuple(ChangeGroup(names, lines) for names, lines in alike_rows(rows))


def lines_of(counts: Counter[tuple[str, str]]) -> Iterator[ChangeLine]:
    """Yield lines with their counts; the steps of a module that only one side has are one line."""
    for (kind, text), count in counts.items():
        if text:
            yield ChangeLine(kind, text, count)
        else:
            yield ChangeLine(kind, f"the whole module, {number_of(count, 'step')}", 1)


def new_modules(graph: Graph, other: Graph) -> dict[str, str]:
    """Return, for each module that the other graph does not have, the outermost module around it that it does not have
    either."""
    known = {prefix for name in modules_of(other) for prefix in prefixes(name)}
    found = {}
    for name in modules_of(graph):
        outer = next((prefix for prefix in prefixes(name) if prefix not in known), None)
        if outer is not None:
            found[name] = outer
    return found


def modules_of(graph: Graph) -> set[str]:
    """Return the modules that a graph's steps were called in."""
    return {step.source.module for step in graph.steps if step.source is not None}


def prefixes(name: str) -> list[str]:
    """Return a module and the modules around it, the outermost first: `a`, `a.b`, `a.b.c`."""
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))] if name else []


def port_groups(diff: GraphDiff, before: Graph, after: Graph) -> tuple[ChangeGroup, ...]:
    """Return the changes of a graph's ports. Values that are saved for the backward stand at the forward, each by the
    operator and the module that makes it."""
    shown = Shown(diff, before, after)
    rows = []
    for change in diff.ports:
        if (made := shown.port(change)) is not None:
            name, text = made
            rows.append((name, (ChangeLine(change.kind, text, 1),)))
    return tuple(ChangeGroup(names, lines) for names, lines in alike_rows(rows))


def alike_rows(rows: Iterable[tuple[str, Lines]]) -> Iterator[tuple[tuple[str, ...], Lines]]:
    """Yield equal lines with all of their names, which differ in nothing but numbers."""
    found: dict[tuple[tuple[str, ...], Lines], list[str]] = defaultdict(list)
    for name, lines in rows:
        found[divided_text(name)[0], lines].append(name)
    for (_, lines), names in found.items():
        yield tuple(names), lines


class Shown:
    """Writes steps and ports of both sides of a GraphDiff."""

    def __init__(self, diff: GraphDiff, before: Graph, after: Graph) -> None:
        self.graphs = before, after
        self.makers = makers_of(before), makers_of(after)
        self.modules = module_of_values(before), module_of_values(after)
        self.ends = dict(diff.steps)
        self.same = same_values(diff, before, after)

    def in_order(self, changes: Sequence[StepChange]) -> list[StepChange]:
        """Return changes in the order of the first graph; an added step stands after the one before it that both
        have."""
        back = {b: a for a, b in self.ends.items()}
        place, places = -1, []
        for b in range(len(self.graphs[1].steps)):
            place = back.get(b, place)
            places.append(place)

        def key(change: StepChange) -> tuple[int, int, int]:
            if change.before is not None:
                return change.before, 0, 0
            return places[change.after or 0], 1, change.after or 0

        return sorted(changes, key=key)

    def sides(self, change: StepChange) -> tuple[Step | None, Step | None]:
        """Return the step of a change on both sides."""
        one = self.graphs[0].steps[change.before] if change.before is not None else None
        two = self.graphs[1].steps[change.after] if change.after is not None else None
        return one, two

    def module(self, change: StepChange) -> str:
        """Return the module of a change, after it if there is one."""
        one, two = self.sides(change)
        step = two or one
        return step.source.module if step is not None and step.source is not None else ""

    def text(self, change: StepChange) -> str:
        """Return a change in a line."""
        match self.sides(change):
            case (Step() as step, None):
                return self.call(step, 0)
            case (None, Step() as step):
                return self.call(step, 1)
            case (Step() as one, Step() as two):
                return self.changed(one, two, set(change.parts))
        raise AssertionError("a change has a step on one side")

    def changed(self, one: Step, two: Step, parts: set[str]) -> str:
        """Return what differs between two steps."""
        left, right = operator_names(one, two)
        said: list[str] = []
        if parts <= {"operator", "type"} and "operator" in parts:
            said = [f"{left} -> {right}"]
        elif parts & {"operator", "arguments"}:
            said = [f"{left}{self.arguments(one, 0)} -> {right}{self.arguments(two, 1)}"]
        elif "inputs" in parts:
            said = [f"{right} takes {self.taken(one, two)}"]
        if "subgraphs" in parts:
            said += [f"{right} calls another {name}" for name in self.called(one, two)]
        text = "; ".join(said) or right
        return f"{text}: {types_text(one.spec, two.spec)}" if "type" in parts else text

    def taken(self, one: Step, two: Step) -> str:
        """Return which values a step takes, and which it took."""
        lefts, rights = used(one), used(two)
        same = [self.same.get(name) for name in lefts]
        if None not in same and same != [*rights] and Counter(same) == Counter(rights):
            return "the same values in another order"
        found = []
        for left, known, right in zip(lefts, same, rights, strict=False):
            before, after = self.makers[0].get(left, left), self.makers[1].get(right, right)
            if before != after or known not in (None, right):
                found.append(instead(before, after))
        if len(lefts) != len(rights):
            found.append(f"{number_of(len(rights), 'value')}, not {len(lefts)}")
        unsure = "another value of the same kind" if None in same else "a value that other steps changed in place"
        return "; ".join(dict.fromkeys(found)) or unsure

    def called(self, one: Step, two: Step) -> Iterator[str]:
        """Yield the subgraphs that two steps call, and that are not the same."""
        graphs = [dict(graph.subgraphs) for graph in self.graphs]
        for left, right in zip(subgraphs_of(one), subgraphs_of(two), strict=False):
            if graphs[0][left].hash() != graphs[1][right].hash():
                yield right

    def call(self, step: Step, side: int) -> str:
        """Return a call and the type of its result."""
        kind = f": {show_spec(step.spec)}" if step.spec is not None else ""
        return f"{short_target(step)}{self.arguments(step, side)}{kind}"

    def arguments(self, step: Step, side: int) -> str:
        """Return the arguments of a call, named by the operators that make them."""
        made = mapped(step, lambda name: Ref(self.makers[side].get(name, name)))
        return f"({show_call(made.args, made.kwargs)})"

    def port(self, change: PortChange) -> tuple[str, str] | None:
        """Return the name of a changed port and what changed; None of a value that a backward takes as it is saved."""
        before, after = ((graph.inputs if change.is_input else graph.outputs) for graph in self.graphs)
        one = before[change.before] if change.before is not None else None
        two = after[change.after] if change.after is not None else None
        port = two or one
        if port is None or (change.is_input and port.role == "saved"):
            return None
        if port.role == "saved":
            return self.saved(change, one, two)
        if one is None or two is None:
            return port.name, f"{port.role} {show_spec(port.spec)}"
        if change.kind == "renamed":
            return port.name, f"{port.role}, before: {difference_of_names(one.name, two.name)}"
        said = {
            "name": f"before: {one.name}",
            "role": f"before: {one.role}",
            "type": types_text(one.spec, two.spec),
        }
        if "value" in change.parts:
            said |= self.other_value(change, one, two)
        return port.name, f"{port.role}, {'; '.join(said[part] for part in change.parts if said[part])}"

    def other_value(self, change: PortChange, one: Port, two: Port) -> dict[str, str]:
        """Return that an output is made by another step; or that it is made by none, and its type."""
        left, right = self.maker(0, change.before), self.maker(1, change.after)
        made = [
            any(refs(graph.results[place or 0]))
            for graph, place in zip(self.graphs, (change.before, change.after), strict=True)
        ]
        if all(made):
            return {"value": f"comes from {instead(left, right)}"}
        before, after = (
            f"{show_spec(port.spec)} from {name}" if each else name
            for each, port, name in zip(made, (one, two), (left, right), strict=True)
        )
        return {"type": "", "value": f"is {after}, before: {before}"}

    def saved(self, change: PortChange, one: Port | None, two: Port | None) -> tuple[str, str]:
        """Return the module and the operator of a saved value, and its type."""
        side, place = (1, change.after) if two is not None else (0, change.before)
        result = self.graphs[side].results[place or 0]
        name = next(refs(result), "")
        kind = types_text(*(port.spec for port in (one, two) if port is not None))
        return self.modules[side].get(name, ""), f"saves {self.maker(side, place)} {kind}"

    def maker(self, side: int, place: int | None) -> str:
        """Return what makes an output."""
        result = self.graphs[side].results[place or 0]
        return ", ".join(self.makers[side].get(name, name) for name in refs(result)) or show(result)


def types_text(*specs: Spec) -> str:
    """Return a type, or both if there are two that differ; a type that is not known is called so."""
    return " -> ".join(dict.fromkeys(show_spec(spec) if spec is not None else "unknown type" for spec in specs))


def same_values(diff: GraphDiff, before: Graph, after: Graph) -> dict[str, str]:
    """Return the names of values that both graphs have, with their names in the second: steps, and inputs that are
    found by name."""
    found = {before.steps[a].name: after.steps[b].name for a, b in diff.steps}
    locals_of = {port.key: port.local for port in after.inputs if port.role != "saved"}
    found |= {port.local: locals_of[port.key] for port in before.inputs if port.key in locals_of}
    for port in diff.ports:
        if port.is_input and port.before is not None:
            found.pop(before.inputs[port.before].local, None)
            if port.after is not None:
                found[before.inputs[port.before].local] = after.inputs[port.after].local
    return found


def instead(before: str, after: str) -> str:
    """Return a value that stands in the place of another."""
    return f"{after}, not {before}" if before != after else f"another {after.removeprefix('a ')}"


def operator_names(one: Step, two: Step) -> tuple[str, str]:
    """Return the operators of two steps; with their overloads if only these differ."""
    left, right = short_target(one), short_target(two)
    if left == right and one.target != two.target:
        return one.target.removeprefix("aten."), two.target.removeprefix("aten.")
    return left, right


def module_of_values(graph: Graph) -> dict[str, str]:
    """Return the module that each value was made in, if there is one."""
    return {step.name: step.source.module for step in graph.steps if step.source is not None}


def makers_of(graph: Graph) -> dict[str, str]:
    """Return what each value of a graph is called: the operator that makes it, or the last part of an input's name."""
    found = {port.local: input_name(port) for port in graph.inputs}
    return found | {step.name: short_target(step) for step in graph.steps}


def input_name(port: Port) -> str:
    """Return what an input is called: the last part of its name; a saved value has none, its name is a step's."""
    if port.role == "saved":
        return "a saved value"
    name = port.name.rpartition(".")[2]
    return f"tangent of {name}" if port.role == "tangent" else name


def short_target(step: Step) -> str:
    """Return an operator without `aten.` and without its overload."""
    name = step.target.removeprefix("torch.ops.").removeprefix("aten.")
    return name.partition(".")[0] if step.target.startswith("aten.") else name


def difference_of_names(before: str, after: str) -> str:
    """Return the parts of a name that are no longer in it, with what stands around them left out: `attn`."""
    one, two = before.split("."), after.split(".")
    while one and two and one[0] == two[0]:
        one, two = one[1:], two[1:]
    while len(one) > 1 and two and one[-1] == two[-1]:
        one, two = one[:-1], two[:-1]
    return ".".join(one) or before


def names_together(names: Sequence[str]) -> str:
    """Return names that differ in numbers as one: `layers.{0..3}.mlp`, `layers.{0,2}.mlp`."""
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return names[0]
    texts, _ = divided_text(names[0])
    columns = [tuple(dict.fromkeys(column)) for column in zip(*(divided_text(name)[1] for name in names), strict=True)]
    if prod(map(len, columns)) != len(names):
        return f"{names[0]}, … {names[-1]}"
    pieces = [texts[0]]
    for numbers, text in zip(columns, texts[1:], strict=True):
        pieces += (numbers_together(numbers), text)
    return "".join(pieces)


def numbers_together(numbers: Sequence[int]) -> str:
    """Return numbers as `{0..3}` or `{0,2}`."""
    if len(numbers) == 1:
        return str(numbers[0])
    inside = sorted(numbers)
    if inside[-1] - inside[0] == len(inside) - 1:
        return f"{{{inside[0]}..{inside[-1]}}}"
    return f"{{{','.join(map(str, inside[:6]))}{',…' if len(inside) > 6 else ''}}}"


# ---- Text and JSON

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


# ---- JSON


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
