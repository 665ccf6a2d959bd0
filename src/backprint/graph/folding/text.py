"""A folded graph as Python that runs, for people to read: loops as `for i in range(126)`, functions for what recurs.

`v` is a table of the ports, and of each value that another iteration or the rest of the graph takes, by its key. Other
values have short names. `params` and `saved` are the same table, by what is taken from it. `last_add` is what the
iteration before computed. `body` writes the steps, `function_text` the functions, and `unroll` the flat text again.

The text is never read to make a graph. `fold.text_for_people` unrolls it before it is shown. `sample/convert` compares
it with what samples of format 3 have on disk, to the letter: whoever changes what is written here keeps the old writer
there, or ends that command.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from backprint.errors import RefusedError
from backprint.graph.folding.body import BodyWriter
from backprint.graph.folding.find import Steps, best_repeat
from backprint.graph.folding.function_text import FunctionPlan, function_lines, planned_functions
from backprint.graph.folding.names import GIVEN, MEMBERS, PORT, TABLES, VALUES, FoldedNames, planned_names
from backprint.graph.folding.nouns import FoldedGraph
from backprint.graph.folding.patterns import text_expression
from backprint.graph.folding.places import without_offsets
from backprint.graph.folding.series import divided_text, series_of
from backprint.graph.nouns import Port, Ref, Value
from backprint.graph.text import FORWARD_WITH_LOOPS, HEADER, emit_class, quote, show, show_port, title_text

ZEROS = "zeros"
"""The attribute of a class that lists the keys of first values: `view_0` of `view`."""

FIRST = f'{PORT}.partition(":")[0]'
CLOSING = f"return tuple({VALUES}[{FIRST}] for {PORT} in self.outputs)"


def opening(tables: Sequence[str]) -> str:
    """Return the first line of the forward: the table of the ports, with its names."""
    ports = f"zip(({FIRST} for {PORT} in self.inputs), {GIVEN}, strict=True)"
    return f'{" = ".join((VALUES, *tables))} = {{"None": None, **dict({ports})}}'


def emit_folded(folded: FoldedGraph, title: str = "") -> str:
    """Return the text of a folded graph."""
    names = planned_names(folded)
    plan = planned_functions(names)
    functions = [line for each in plan.functions for line in ("", "", *function_lines(plan, each))]
    return "\n".join([*head_lines(folded, title), *functions, "", "", *class_lines(folded, names, plan), ""])


def head_lines(folded: FoldedGraph, title: str) -> Iterator[str]:
    """Yield the docstring and the imports."""
    title = title_text(title or folded.title)
    if title:
        yield f'"""{title}"""'
        yield ""
    yield from HEADER.rstrip().split("\n")


def class_lines(folded: FoldedGraph, names: FoldedNames, plan: FunctionPlan) -> Iterator[str]:
    """Yield the lines of the class."""
    yield "class GraphModule(torch.nn.Module):"
    for symbol in folded.symbols:
        yield f'    {symbol.name}: "{symbol.hint} in [{symbol.low}, {symbol.high}]"'
    for attribute, sub in folded.subgraphs:
        if attribute in MEMBERS:
            raise RefusedError(f"a subgraph is named {attribute!r}, which only the flat text of a graph has")
        yield from emit_class(sub, attribute, "    ")
        yield f"    {attribute} = {attribute}()"
        yield ""
    if names.zeros:
        listed = ", ".join(map(quote, names.zeros.values()))
        yield "    # the flat text leaves out the number 0 of these"
        yield f"    {ZEROS} = ["
        yield from textwrap.wrap(f"{listed},", 116, initial_indent="        ", subsequent_indent="        ")
        yield "    ]"
    yield from port_lines("inputs", [named_port(names, port.local, port) for port in folded.inputs])
    results = [
        named_port(names, show_result(value), port) for value, port in zip(folded.results, folded.outputs, strict=True)
    ]
    yield from port_lines("outputs", results)
    yield ""
    yield FORWARD_WITH_LOOPS
    yield f"        {opening([name for role, name in TABLES.items() if role in names.ports.values()])}"
    yield from BodyWriter(names, plan).lines(folded.items, "        ")
    yield f"        {CLOSING}"


def show_result(value: Value) -> str:
    """Return what an output is: a name, or None."""
    if value is None or type(value) is Ref:
        return show(value)
    raise RefusedError(f"an output is {show(value)[:80]}, which only the flat text of a graph has")


def named_port(names: FoldedNames, name: str, port: Port) -> tuple[str, Port]:
    """Return the key of a port, and the port; one with the name of its value has its key there as well."""
    key = names.key(name)
    return key, replace(port, name=key) if port.name == name and name in names.zeros else port


# ------------------------------------------------------------------ ports


def port_lines(title: str, ports: Sequence[tuple[str, Port]]) -> Iterator[str]:
    """Yield a list of ports, with those that repeat as a loop.

    In a layer that differs from the others, another value may be saved in the place of one of the same type.
    """
    texts = [f"{name}: {show_port(port)}" for name, port in ports]
    free = [port.role == "saved" and "." not in port.name for _, port in ports]
    rows: list[str] = []
    for is_free in (free, [False] * len(ports)):
        kinds = [
            (port.role, without_offsets(port.spec), () if each else (divided_text(name)[0], divided_text(port.name)[0]))
            for (name, port), each in zip(ports, is_free, strict=True)
        ]
        rows = list(port_rows(texts, steps_of_kinds(kinds), 0, len(texts)))
        if not any(row.lstrip().startswith("{") for row in rows):  # a table of names that follow no rule
            break
    yield f"    {title} = ["
    yield from rows
    yield "    ]"


def steps_of_kinds(kinds: Sequence[Any]) -> Steps:
    """Return ports as what repeats among them."""
    numbers: dict[Any, int] = {}
    tokens = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
    return Steps(tokens, [()] * len(kinds), [False] * len(kinds))


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
