"""Changes as a person reads them: by module, and what is the same in many modules once, with how often.

A change is a line without names of values: a value is called by the operator that makes it, so that lines of two layers
can be equal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from backprint.differing.nouns import GraphDiff, PortChange, StepChange
from backprint.differing.wired import subgraphs_of
from backprint.graph.folding.series import divided_text
from backprint.graph.nouns import Graph, Port, Ref, Spec, Step, refs
from backprint.graph.shown import number_of
from backprint.graph.steps import mapped, used
from backprint.graph.text import show, show_call, show_spec

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
        made = [any(refs(graph.results[place or 0])) for graph, place in zip(
            self.graphs, (change.before, change.after), strict=True)]  # fmt: skip
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
