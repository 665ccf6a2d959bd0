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
from backprint.graph.folding.series import divided_text
from backprint.graph.nouns import Graph, Port, Ref, Spec, Step, refs
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
            yield ChangeLine(kind, f"the whole module, {count} step{'s' * (count > 1)}", 1)


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
        if parts <= {"operator", "type"} and "operator" in parts:
            said = f"{short_target(one)} -> {short_target(two)}"
        elif parts & {"operator", "arguments"}:
            said = f"{self.call(one, 0, typed=False)} -> {self.call(two, 1, typed=False)}"
        elif "inputs" in parts:
            said = f"{short_target(two)} takes {self.taken(one, two)}"
        else:
            said = short_target(two)
        return f"{said}: {types_text(one.spec, two.spec)}" if "type" in parts else said

    def taken(self, one: Step, two: Step) -> str:
        """Return which values a step takes, and which it took."""
        pairs = [
            (self.makers[0].get(left, left), self.makers[1].get(right, right))
            for left, right in zip(used(one), used(two), strict=False)
        ]
        found = [f"{right}, not {left}" for left, right in pairs if left != right]
        if len(used(one)) != len(used(two)):
            found.append(f"{len(used(two))} values, not {len(used(one))}")
        return "; ".join(dict.fromkeys(found)) or "another value of the same kind"

    def call(self, step: Step, side: int, typed: bool = True) -> str:
        """Return a call whose arguments are named by the operators that make them."""
        made = mapped(step, lambda name: Ref(self.makers[side].get(name, name)))
        kind = f": {show_spec(step.spec)}" if typed and step.spec is not None else ""
        return f"{short_target(step)}({show_call(made.args, made.kwargs)}){kind}"

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
            "role": f"{one.role} -> {two.role}",
            "type": types_text(one.spec, two.spec),
        }
        if "value" in change.parts:
            said["value"] = f"comes from {self.maker(1, change.after)}, not {self.maker(0, change.before)}"
        return port.name, f"{port.role}, {'; '.join(said[part] for part in change.parts)}"

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
    """Return a type, or both if there are two that differ."""
    return " -> ".join(dict.fromkeys(map(show_spec, specs)))


def module_of_values(graph: Graph) -> dict[str, str]:
    """Return the module that each value was made in, if there is one."""
    return {step.name: step.source.module for step in graph.steps if step.source is not None}


def makers_of(graph: Graph) -> dict[str, str]:
    """Return what each value of a graph is called: the operator that makes it, or the last part of an input's name."""
    found = {port.local: port.name.rpartition(".")[2] if port.role != "saved" else "" for port in graph.inputs}
    found = {local: name or "a saved value" for local, name in found.items()}
    return found | {step.name: short_target(step) for step in graph.steps}


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
