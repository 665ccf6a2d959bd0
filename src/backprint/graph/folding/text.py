"""A folded graph as Python that runs: loops as `for i in range(126)`, what crosses them in a dictionary of values.

    v[f"view_{20+12*i}"]: "f32[2, 64]" = aten.view.default(mm, [2, 64])
    mm: "f32[2, 64] as mm_{3+7*i}" = aten.mm.default(v[f"view_{8+12*i}"], v[f"layers_{i}_weight"])

`v` has the ports, and each value that another iteration or the rest of the graph takes, by its name in the flat graph.
Other values of a loop have short names; `as` says the name in the flat graph. `last_add` is what the iteration before
computed. A comment says of each iteration what the flat graph says. `expand` writes the flat text again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backprint.errors import RefusedError
from backprint.graph.folding.find import Steps, best_repeat
from backprint.graph.folding.names import GIVEN, PORT, VALUES, FoldedNames, Leaf, planned_names
from backprint.graph.folding.nouns import FoldedGraph, FoldedStep, Item, Loop, Only
from backprint.graph.folding.places import places_of, with_places
from backprint.graph.folding.series import INDEXES, Index, Series, divided_text, series_of
from backprint.graph.nouns import Port, Ref, Step, Value
from backprint.graph.text import (
    HEADER,
    emit_class,
    quote,
    show,
    show_comment,
    show_port,
    show_spec,
    show_step,
    title_text,
)


def emit_folded(folded: FoldedGraph, title: str = "") -> str:
    """Return the text of a folded graph."""
    return "\n".join([*head_lines(folded, title), *class_lines(folded), ""])


def head_lines(folded: FoldedGraph, title: str) -> Iterator[str]:
    """Yield the docstring and the imports."""
    title = title_text(title or folded.title)
    if title:
        yield f'"""{title}"""'
        yield ""
    yield from HEADER.split("\n")
    yield ""


def class_lines(folded: FoldedGraph) -> Iterator[str]:
    """Yield the lines of the class."""
    names = planned_names(folded)
    yield "class GraphModule(torch.nn.Module):"
    for symbol in folded.symbols:
        yield f'    {symbol.name}: "{symbol.hint} in [{symbol.low}, {symbol.high}]"'
    for attribute, sub in folded.subgraphs:
        yield from emit_class(sub, attribute, "    ")
        yield f"    {attribute} = {attribute}()"
        yield ""
    yield from port_lines("inputs", [(port.local, port) for port in folded.inputs])
    yield from port_lines("outputs", list(zip(map(show_result, folded.results), folded.outputs, strict=True)))
    yield ""
    yield f"    def forward(self, *{GIVEN}):"
    first = f'{PORT}.partition(":")[0]'
    yield f'        {VALUES} = {{"None": None, **dict(zip(({first} for {PORT} in self.inputs), {GIVEN}))}}'
    yield from BodyWriter(names).lines(folded.items, "        ")
    yield f"        return tuple({VALUES}[{first}] for {PORT} in self.outputs)"


def show_result(value: Value) -> str:
    """Return what an output is: a name, or None."""
    if value is None or type(value) is Ref:
        return show(value)
    raise RefusedError(f"an output is {show(value)[:80]}, which only the flat text of a graph has")


# ------------------------------------------------------------------ ports


def port_lines(title: str, ports: Sequence[tuple[str, Port]]) -> Iterator[str]:
    """Yield a list of ports, with those that repeat as a loop."""
    texts = [f"{name}: {show_port(port)}" for name, port in ports]
    tokens: dict[Any, int] = {}
    kinds = [
        tokens.setdefault(
            (divided_text(name)[0], port.role, show_spec(port.spec), divided_text(port.name)[0]), len(tokens)
        )
        for name, port in ports
    ]
    yield f"    {title} = ["
    yield from port_rows(texts, Steps(kinds, [()] * len(kinds), [False] * len(kinds)), 0, len(texts))
    yield "    ]"


def port_rows(texts: Sequence[str], kinds: Steps, low: int, high: int) -> Iterator[str]:
    """Yield the rows of some ports."""
    repeat = best_repeat(kinds, low, high, ends=False)
    if repeat is None:
        yield from (f"        {quote(text)}," for text in texts[low:high])
        return
    yield from port_rows(texts, kinds, low, repeat.first)
    count = len(repeat.rows)
    yield "        *("
    yield f"            {PORT}"
    yield f"            for i in range({count})"
    yield f"            for {PORT} in ("
    for column in zip(*repeat.rows, strict=True):
        series = series_of({(place,): texts[at] for place, at in enumerate(column)}, (count,))
        yield f"                {text_expression(series)},"
    yield "            )"
    yield "        ),"
    yield from port_rows(texts, kinds, repeat.end, high)


# ------------------------------------------------------------------ expressions


def braced(text: str) -> str:
    """Return a text as it stands in a pattern."""
    return text.replace("{", "{{").replace("}", "}}")


def pattern(series: Series) -> str:
    """Return a Series as a pattern: `view_{20+12*i}`."""
    pieces = [braced(series.parts[0])]
    for number, part in zip(series.numbers, series.parts[1:], strict=True):
        pieces += (f"{{{number}}}" if any(number.steps) else str(number), braced(part))
    return "".join(pieces)


def text_expression(series: Series) -> str:
    """Return a Series of texts as an expression."""
    regular = f"f{quote(pattern(series))}" if series.parts else None
    return chosen(series, regular, quote)


def number_expression(series: Series) -> str:
    """Return a Series of numbers as an expression."""
    return chosen(series, str(series.numbers[0]) if series.numbers else None, show)


def chosen(series: Series, regular: str | None, shown: Any) -> str:
    """Return an expression that is the regular one but for the iterations that are odd."""
    if regular is not None and not series.odd:
        return regular
    axes = len(series.odd[0][0])
    here = ", ".join(INDEXES[:axes])
    if regular is not None and len(series.odd) == 1:
        ((index, value),) = series.odd
        return f"{shown(value)} if {key_of(here, axes)} == {index_text(index)} else {regular}"
    rows = ", ".join(f"{index_text(index)}: {shown(value)}" for index, value in series.odd)
    return f"{{{rows}}}.get({key_of(here, axes)}, {regular})" if regular is not None else f"{{{rows}}}[{here}]"


def key_of(here: str, axes: int) -> str:
    return here if axes == 1 else f"({here})"


def index_text(index: Index) -> str:
    return str(index[0]) if len(index) == 1 else str(index)


# ------------------------------------------------------------------ steps


@dataclass(slots=True)
class BodyWriter:
    """Writes items in their order."""

    names: FoldedNames
    leaf: int = 0
    loop: int = 0
    said: tuple[str, ...] = ("# -",)

    def lines(self, items: Sequence[Item], indent: str) -> Iterator[str]:
        """Yield the lines of items."""
        for item in items:
            match item:
                case FoldedStep():
                    yield from self.step_lines(self.names.leaves[self.leaf], indent)
                    self.leaf += 1
                case Only(iteration, inner):
                    depth = len(indent) // 4 - 3
                    yield f"{indent}if {INDEXES[depth]} == {iteration}:"
                    yield from self.lines(inner, indent + "    ")
                    self.said = ()
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
        self.said = ()
        yield from self.lines(items, indent + "    ")
        for number, (name, _) in carried.items():
            yield f"{indent}    {name} = {self.value_of(number)}"
        self.said = ()

    def step_lines(self, leaf: Leaf, indent: str) -> Iterator[str]:
        """Yield the lines of a step: its comment, if that is another than the last, and the call."""
        comments = tuple(comment_lines(leaf))
        if comments != self.said:
            yield from (indent + line for line in comments)
            self.said = comments
        yield from (indent + line for line in type_lines(leaf))
        step = self.written(leaf)
        if step.is_guard:
            yield indent + show_step(step)
            return
        call = show_step(replace(step, name="_", spec=None)).removeprefix("_ = ")
        spec = spec_pattern(leaf)
        if leaf.number in self.names.shared:
            annotation = f": {quote(spec)}" if step.spec is not None else ""
            yield f"{indent}{self.value_of(leaf.number)}{annotation} = {call}"
            return
        name = self.names.local[leaf.number]
        known = f" as {name_pattern(leaf)}" if leaf.counts else ""
        annotation = f": {quote(spec + known)}" if step.spec is not None or known else ""
        yield f"{indent}{name}{annotation} = {call}"

    def written(self, leaf: Leaf) -> Step:
        """Return a step whose arguments are what is written in their places."""
        series = dict(leaf.step.series)
        given: dict[str, Any] = {}
        for place, value in places_of(leaf.step.step):
            if not place.startswith(("args.", "kwargs.")):
                continue
            if place in series:
                one = series[place]
                given[place] = self.taken(leaf, place, one) if isinstance(value, str) else Ref(number_expression(one))
            elif isinstance(value, str):
                given[place] = self.constant(value)
        return with_places(leaf.step.step, given)

    def constant(self, name: str) -> str:
        """Return the expression for one value."""
        if name in self.names.owner:
            number, _ = self.names.owner[name]
            if number not in self.names.shared:
                return self.names.local[number]
        return f"{VALUES}[{quote(name)}]"

    def taken(self, leaf: Leaf, place: str, series: Series) -> str:
        """Return the expression for a value that differs between iterations."""
        if (leaf.number, place) in self.names.own:
            return self.value_of(self.names.own[leaf.number, place])
        if (leaf.number, place) in self.names.before:
            return self.names.carried[leaf.loops[0]][self.names.before[leaf.number, place]][0]
        return f"{VALUES}[{text_expression(series)}]"

    def value_of(self, number: int) -> str:
        """Return the expression for a step's own value in its iteration."""
        leaf = self.names.leaves[number]
        if number not in self.names.shared:
            return self.names.local[number]
        series = dict(leaf.step.series).get("name")
        return f"{VALUES}[{text_expression(series) if series else quote(leaf.step.step.name)}]"


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
        yield f"# type at {', '.join(map(str, index))}: {show_spec(leaf.step.at(index).spec)}"


def name_pattern(leaf: Leaf) -> str:
    """Return the name of a step in the flat graph: `view_{20+12*i}, view at 0`."""
    series = dict(leaf.step.series).get("name")
    if series is None:
        return leaf.step.step.name
    odd = [f"{value} at {', '.join(map(str, index))}" for index, value in series.odd]
    regular = [pattern(series)] if series.parts else []
    return "; ".join([*regular, *odd])


def comment_lines(leaf: Leaf) -> Iterator[str]:
    """Yield the comments of a step: one for the rule, and one for each iteration that has another."""
    step = leaf.step
    if not leaf.is_inside:
        yield show_comment(step.step.source, step.step.echo)
        return
    if not any(place.startswith(("source", "echo")) for place, _ in step.series):
        yield braced(show_comment(step.step.source, step.step.echo))
        return
    every = ((index, step.at(index)) for index in leaf.indexes())
    series = series_of({index: show_comment(each.source, each.echo) for index, each in every}, leaf.counts)
    if series.parts:
        if pattern(series).startswith(("# at ", "# type at ")):
            raise RefusedError(
                f"{step.step.name}: its source begins as a rule does, which only the flat text of a graph has"
            )
        yield pattern(series)
    for index, comment in series.odd:
        yield f"# at {', '.join(map(str, index))}: {comment.removeprefix('# ')}"


def lines_of(items: Iterable[Item]) -> int:
    """Return how many steps are written, loops once."""
    return sum(1 if isinstance(item, FoldedStep) else 1 + lines_of(item.items) for item in items)
