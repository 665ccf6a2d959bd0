"""The steps of a folded graph as lines of Python: calls and loops, with comments that say what the flat text says.

    # [layers.{i}.mlp] model.py:12 in forward: return self.down(gelu(self.up(x)))
    mm: "f32[2, 64]" = aten.mm.default(v[f"view_{8+12*i}"], saved[f"t_{i}"])  # as mm_{3+7*i}: gradient of mm_{i}

The comment above holds for the steps below it, up to the next one. The one behind a step has its name in the flat
graph, its echo, and `;` if the program has no line for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backprint.errors import RefusedError
from backprint.graph.folding.function_text import FunctionCall, FunctionPlan, show_behind
from backprint.graph.folding.names import MARKS, TABLES, VALUES, FoldedNames, Leaf
from backprint.graph.folding.nouns import FoldedStep, Item, Loop, Only
from backprint.graph.folding.patterns import (
    braced,
    number_expression,
    numbers_of,
    pattern,
    pattern_with_odd,
    text_expression,
)
from backprint.graph.folding.places import places_of, with_places
from backprint.graph.folding.series import INDEXES, Series, series_of
from backprint.graph.nouns import Ref, Step
from backprint.graph.text import quote, show_comment, show_spec, show_step


@dataclass(slots=True)
class BodyWriter:
    """Writes items in their order."""

    names: FoldedNames
    plan: FunctionPlan
    leaf: int = 0
    loop: int = 0
    above: tuple[str, ...] = ()
    """The comment lines that hold now: they are not written again above the next step."""

    def lines(self, items: Sequence[Item], indent: str) -> Iterator[str]:
        """Yield the lines of items."""
        for item in items:
            match item:
                case FoldedStep():
                    leaf = self.names.leaves[self.leaf]
                    self.leaf += 1
                    if leaf.number in self.plan.calls:
                        yield from self.call_lines(leaf, self.plan.calls[leaf.number], indent)
                    elif leaf.number not in self.plan.inside:
                        yield from self.step_lines(leaf, indent)
                case Only(iteration, inner):
                    depth = len(indent) // 4 - 3
                    yield f"{indent}if {INDEXES[depth]} == {iteration}:"
                    self.above = ()
                    yield from self.lines(inner, indent + "    ")
                    self.above = ()
                case Loop(count, inner):
                    yield from self.loop_lines(count, inner, indent)

    def loop_lines(self, count: int, items: Sequence[Item], indent: str) -> Iterator[str]:
        """Yield the lines of a loop."""
        carried = self.names.carried.get(self.loop, {})
        self.loop += 1
        for name, first in carried.values():
            yield f"{indent}{name} = {self.constant(first)}"
        depth = len(indent) // 4 - 2
        yield f"{indent}for {INDEXES[depth]} in range({count}):"
        self.above = ()
        yield from self.lines(items, indent + "    ")
        for number, (name, _) in carried.items():
            yield f"{indent}    {name} = {self.value_of(number)}"
        self.above = ()

    # ---- steps

    def step_lines(self, leaf: Leaf, indent: str) -> Iterator[str]:
        """Yield the lines of a step: its line of the program, if that is another than the last, and the call."""
        yield from self.lines_above(line_comments(leaf), indent)
        yield from (indent + line for line in type_lines(leaf))
        step, behind = self.with_expressions(leaf), self.behind(leaf)
        if step.is_guard:
            yield f"{indent}{show_step(step)}{behind}"
            return
        call = show_step(replace(step, name="_", spec=None)).removeprefix("_ = ")
        annotation = f": {quote(spec_pattern(leaf))}" if step.spec is not None else ""
        yield f"{indent}{self.value_of(leaf.number)}{annotation} = {call}{behind}"

    def call_lines(self, leaf: Leaf, called: FunctionCall, indent: str) -> Iterator[str]:
        """Yield the lines of a call of a function."""
        named, function = called.named, called.named.function
        whole = line_comments(leaf)
        yield from self.lines_above(modules_of(whole) if function.has_lines else whole, indent)
        if function.has_lines:
            self.above = ()
        targets = ", ".join(self.value_of(leaf.number + place) for place in function.results)
        values = [self.argument(self.names.leaves[leaf.number + step], place) for step, place in function.given_values]
        sizes = [column[called.number] for column in function.given_sizes]
        marks = [f"{MARKS[count]}={column[called.number]}" for count, (column, _) in enumerate(function.given_marks)]
        behind = show_behind(", ".join(marks), "", unseen=False)
        yield f"{indent}{targets} = {named.name}({', '.join([*values, *sizes])}){behind}"

    def lines_above(self, comments: tuple[str, ...], indent: str) -> Iterator[str]:
        """Yield the lines above a step that are not those above the last one."""
        if comments and comments != self.above:
            yield from (indent + line for line in comments)
            self.above = comments

    def behind(self, leaf: Leaf) -> str:
        """Return the comment behind a step."""
        step = leaf.step.step
        series, echo = self.plan.finder.name(leaf), self.plan.finder.echo(leaf)
        renamed = ""
        if not step.is_guard and leaf.counts and series != self.names.shared.get(leaf.number):
            renamed = f"as {pattern_with_odd(series)}"
        elif not step.is_guard and not leaf.counts and leaf.number not in self.names.local:
            renamed = "" if self.names.shared[leaf.number] == self.names.numbered(step.name) else f"as {step.name}"
        related = "" if echo is None else pattern_with_odd(echo) if leaf.is_inside else braced(str(echo))
        return show_behind(renamed, related, step.source is None)

    def with_expressions(self, leaf: Leaf) -> Step:
        """Return a step with the expressions of the text in place of its arguments."""
        series = dict(leaf.step.series)
        given: dict[str, Any] = {}
        for place, value in places_of(leaf.step.step):
            if not place.startswith(("args.", "kwargs.")):
                continue
            if isinstance(value, str):
                given[place] = self.argument(leaf, place)
            elif place in series:
                given[place] = Ref(number_expression(series[place]))
        return with_places(leaf.step.step, given)

    # ---- values

    def argument(self, leaf: Leaf, place: str) -> str:
        """Return the expression for a value that a step takes."""
        series = dict(leaf.step.series).get(place)
        if series is None:
            return self.constant(str(dict(places_of(leaf.step.step))[place]))
        if (leaf.number, place) in self.names.own:
            return self.value_of(self.names.own[leaf.number, place])
        if (leaf.number, place) in self.names.before:
            return self.names.carried[leaf.loops[0]][self.names.before[leaf.number, place]][0]
        flat = {index: str(series.at(index)) for index in leaf.indexes()}
        keys = series_of({index: self.names.key(name) for index, name in flat.items()}, leaf.counts)
        tables = {self.table(name) for name in flat.values()}
        return f"{tables.pop() if len(tables) == 1 else VALUES}[{text_expression(keys)}]"

    def constant(self, name: str) -> str:
        """Return the expression for one value."""
        if name in self.names.owner:
            number, _ = self.names.owner[name]
            if number not in self.names.shared:
                return self.names.local[number]
        return f"{self.table(name)}[{quote(self.names.key(name))}]"

    def table(self, name: str) -> str:
        """Return the name of the table that has a value."""
        return TABLES.get(self.names.ports.get(name, ""), VALUES)

    def value_of(self, number: int) -> str:
        """Return the expression for a step's own value in its iteration."""
        if number not in self.names.shared:
            return self.names.local[number]
        key = self.names.shared[number]
        return f"{VALUES}[{quote(key) if isinstance(key, str) else text_expression(key)}]"


# ------------------------------------------------------------------ annotations and comments


def spec_pattern(leaf: Leaf) -> str:
    """Return the type of a step, as a pattern where it begins elsewhere in memory in each iteration."""
    if not leaf.counts:
        return show_spec(leaf.step.step.spec)
    offsets = [(place, series) for place, series in leaf.step.series if place.startswith("spec") and series.numbers]
    marked = with_places(leaf.step.step, {place: f"OFFSET_{count}_" for count, (place, _) in enumerate(offsets)})
    text = braced(show_spec(marked.spec))
    for count, (_, series) in enumerate(offsets):
        text = text.replace(f"offset=OFFSET_{count}_", f"offset={{{series.numbers[0]}}}")
    return text


def type_lines(leaf: Leaf) -> Iterator[str]:
    """Yield a comment for each iteration whose type does not follow the pattern."""
    own = [series for place, series in leaf.step.series if place.startswith("spec")]
    everywhere = any(not series.numbers for series in own)
    odd = sorted({index for series in own for index, _ in series.odd})
    for index in leaf.indexes() if everywhere else odd:
        yield f"# type at {numbers_of(index)}: {show_spec(leaf.step.at(index).spec)}"


def line_comments(leaf: Leaf) -> tuple[str, ...]:
    """Return the line of the program for a step: the rule, and the iterations that have another. Empty: it has none."""
    step = leaf.step
    if step.step.source is None:
        return ()
    if not leaf.is_inside:
        return (show_comment(step.step.source, None),)
    series = Series((show_comment(step.step.source, None),), (), True)
    if any(place.startswith("source") for place, _ in step.series):
        texts = {index: show_comment(step.source_at(index), None) for index in leaf.indexes()}
        series = series_of(texts, leaf.counts)
    rule = [pattern(series)] if series.parts else []
    if rule and rule[0].startswith(("# at ", "# type at ")):
        raise RefusedError(
            f"{step.step.name}: its source begins as a rule does, which only the flat text of a graph has"
        )
    return (*rule, *(f"# at {numbers_of(index)}: {comment.removeprefix('# ')}" for index, comment in series.odd))


def modules_of(comments: Sequence[str]) -> tuple[str, ...]:
    """Return the module in the comment of a line of the program; empty if there is none."""
    return tuple(line[: line.index("]") + 1] for line in comments if line.startswith("# ["))
