"""A folded graph as a listing for people: a repeated block stands there once, under a line that says how often it runs.

    for i in range(126):  # layers.125 … layers.0
        # [layers.{125-i}.mlp.down_proj] modeling_llama.py:164 in forward: ...
        view_{1519+19i}: "bf16[4096, 16384]" = aten.view.default(add_{9+i}, [4096, 16384])  # gradient of mm_{881-7i}

A step keeps the names of the flat text; braces have what differs between the iterations. `{1519+19i}` is a number that
grows by 19 in each iteration, `{i=0: mul, else add_{3i}}` a value that one iteration takes from elsewhere, and
`{0.1, 0.3, 0.2}` a list of what the iterations have where there is no rule. Long lists are shortened, for `Graph.code`
has every step. A listing is not Python, and nothing reads it: the fold that it shows was proved before, as data.

The items of a FoldedGraph are FoldedSteps, Loops, and Onlys: steps that one iteration of a loop alone has. A Series is
what one place of a step (`args.0`, `source.line`) has in each iteration: a rule, and the *odd* iterations that have
something else. Of a FoldedStep, `step` is the one of the first iteration, and `series` has pairs of a place and its
Series. An Index is an iteration of the loops around a step, and `counts` says how often these run, the outermost loop
first. `names` are the names of all values of the graph.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from backprint.errors import GraphError
from backprint.graph.folding.find import Steps, best_repeat
from backprint.graph.folding.fold import block_of, folded
from backprint.graph.folding.nouns import (
    INDEXES,
    FoldedGraph,
    FoldedStep,
    Index,
    Item,
    Loop,
    Only,
    Series,
    places_of,
    series_of,
    split_numbers_of_text,
    with_places,
    without_offsets,
)
from backprint.graph.nouns import Graph, Port, Ref, Spec
from backprint.graph.text import (
    LISTING,
    emit_class,
    quote,
    show,
    show_comment,
    show_port,
    show_spec,
    show_step,
    title_text,
)

MOST = 6
"""How many values a list has; of a longer one, the first three and the last are shown."""


def text_for_people(graph: Graph) -> str:
    """Return the text of a graph for people: a listing with loops if that saves more than a third of the lines."""
    flat = graph.code
    try:
        listing = listing_of(folded(graph))
    except GraphError:  # two NaN that are two objects are unequal, so a fold with them cannot be proved
        return flat
    return listing if 3 * listing.count("\n") < 2 * flat.count("\n") else flat


def listing_of(fold: FoldedGraph) -> str:
    """Return the listing of a folded graph."""
    names = {name for port in (*fold.inputs, *fold.outputs) for name in (port.local, port.name)}
    names |= {*names_of(fold.items, counts=())}
    inputs = [(port.local, port) for port in fold.inputs]
    outputs = [(show(value), port) for value, port in zip(fold.results, fold.outputs, strict=True)]
    lines = [LISTING, *([f"# {title_text(fold.title)}"] if fold.title else []), ""]
    lines += [f'{symbol.name}: "{symbol.hint} in [{symbol.low}, {symbol.high}]"' for symbol in fold.symbols]
    for attribute, subgraph in fold.subgraphs:
        lines += [*emit_class(subgraph, attribute, indent=""), ""]
    lines += ["forward(", *_indented(_port_lines(inputs, names)), ") -> ("]
    lines += [*_indented(_port_lines(outputs, names)), "):"]
    return "\n".join([*lines, *_indented(_item_lines(fold.items, counts=(), names=names)), ""])


def _indented(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines one level deeper."""
    return (f"    {line}" for line in lines)


def names_of(items: Sequence[Item], counts: tuple[int, ...]) -> Iterator[str]:
    """Yield the names of all values that items compute, in all iterations of the loops around them; `counts` has how
    often these loops run, the outermost first."""
    for item in items:
        match item:
            case FoldedStep():
                yield from map(item.name_at, _indexes_of(counts))
            case Only(_, inner):
                yield from names_of(inner, counts[:-1])  # in one iteration of the innermost loop
            case Loop(count, inner):
                yield from names_of(inner, (*counts, count))


def _indexes_of(counts: Sequence[int]) -> Iterator[Index]:
    """Yield the iterations of nested loops, in their order."""
    return itertools.product(*map(range, counts))


# ---- Steps and loops


def _item_lines(items: Sequence[Item], counts: tuple[int, ...], names: Collection[str]) -> Iterator[str]:
    """Yield the lines of items; `counts` has how often the loops around them run, and `names` all names of the
    graph."""
    above = NO_LINE  # the comment of the step before, which is not repeated
    for item in items:
        match item:
            case FoldedStep():
                comments = _source_lines(item, counts)
                if comments != above:
                    yield from comments
                    above = comments
                yield _step_line(item, names)
            case Only(iteration, inner):
                yield f"if {INDEXES[len(counts) - 1]} == {iteration}:"
                # Odd steps are in one iteration: the innermost loop does not count for them.
                yield from _indented(_item_lines(inner, counts[:-1], names))
                above = NO_LINE
            case Loop(count, inner):
                modules = "" if counts else _modules_of(count, inner)
                yield f"for {INDEXES[len(counts)]} in range({count}):{modules}"
                yield from _indented(_item_lines(inner, (*counts, count), names))
                above = NO_LINE


NO_LINE = ["# -"]
"""The comment above steps for which the program has no line."""


def _modules_of(count: int, items: Sequence[Item]) -> str:
    """Return the modules that the first and the last iteration of an outermost loop call most, as a comment; '' if one
    of them calls none, or both the same."""
    ends = []  # their paths up to the last number: `layers.3` for `layers.3.mlp` (`block_of`)
    for iteration in (0, count - 1):
        blocks = Counter(block_of(item.at((iteration,))) for item in items if isinstance(item, FoldedStep))
        ends += [block for block, _ in blocks.most_common(1)]
    return f"  # {ends[0]} … {ends[1]}" if all(ends) and len({*ends}) == 2 else ""


def _source_lines(item: FoldedStep, counts: Sequence[int]) -> list[str]:
    """Return the line of the program for a step, and below it the lines of iterations that have another. Its echo, for
    which `show_comment` gets None, stands behind the step itself."""
    if item.step.source is None:
        return NO_LINE
    if not any(place.startswith("source") for place, _ in item.series):
        return [show_comment(item.step.source, echo=None)]
    texts = {index: show_comment(item.source_at(index), echo=None) for index in _indexes_of(counts)}
    series = series_of(texts, counts)  # it has parts if there is a rule, which is the first line then
    odd = [f"# {numbers_of(index)}: {comment.removeprefix('# ')}" for index, comment in series.odd]
    # `…` stands for the lines that `shortened` leaves out.
    return [*([str(series)] if series.parts else []), *(line if line != "…" else "# …" for line in shortened(odd))]


def _step_line(item: FoldedStep, names: Collection[str]) -> str:
    """Return a step of a loop as one line, with what differs between iterations in braces:
    `mm_{3i}: "f32[4, 4]" = aten.mm.default(x_{i}, w)  # gradient of mm_{9-3i}`. `names` are all names of the graph: a
    `view_0` in a series may stand for `view` only if the graph has no `view_0` as well."""
    step = item.step
    # The names of an echo are in the other graph, so it is not known whether it has a `view_0`.
    braces = {place: in_braces(series, None if place.startswith("echo") else names) for place, series in item.series}
    arguments = {
        # A name is replaced by a text, and a number by a Ref, which is shown without quotation marks.
        place: braces[place] if isinstance(value, str) else Ref(braces[place])
        for place, value in places_of(step)
        if place in braces and place.startswith(("args.", "kwargs."))
    }
    # A Step refuses a name in braces. So the call is shown under `_` and without a type, and both are put before it.
    called = replace(with_places(step, arguments), spec=None)
    echo = ""
    if step.echo is not None:
        related = [braces.get(f"echo.names.{place}", name) for place, name in enumerate(step.echo.names)]
        echo = f"  # {braces.get('echo.kind', step.echo.kind)} {', '.join(related)}"
    if step.is_guard:
        return f"{show_step(called)}{echo}"
    annotation = f": {quote(_spec_text(item, braces))}" if step.spec is not None else ""
    call = show_step(replace(called, name="_")).removeprefix("_ = ")
    return f"{braces.get('name', step.name)}{annotation} = {call}{echo}"


def _spec_text(item: FoldedStep, braces: dict[str, str]) -> str:
    """Return the type of a step as text, with the `braces` by place: where a view begins in its memory may differ
    between iterations."""
    places = [place for place in braces if place.startswith("spec")]
    # A spec refuses braces, so a name stands for each offset until the spec is text.
    spec: Spec = with_places(item.step, {place: f"OFFSET_{count}_" for count, place in enumerate(places)}).spec
    text = show_spec(spec)
    for count, place in enumerate(places):
        text = text.replace(f"OFFSET_{count}_", braces[place])
    return text


# ---- Ports


def _port_lines(ports: Sequence[tuple[str, Port]], names: Collection[str]) -> Iterator[str]:
    """Yield a line for each port, with those that repeat in a loop. A saved value may have any name: in a layer that
    differs from the others, another operator computes it."""
    kinds: dict[object, int] = {}
    # Ports use no results of each other, so a port is its token alone: role, spec and the texts of its names.
    tokens = []
    for name, port in ports:
        is_free = port.role == "saved" and "." not in port.name  # a value: a module's parameter has a dot in its name
        texts = None if is_free else (split_numbers_of_text(name)[0], split_numbers_of_text(port.name)[0])
        tokens.append(kinds.setdefault((port.role, without_offsets(port.spec), texts), len(kinds)))
    rows = [(name, show_port(port).removesuffix(port.name), port.name) for name, port in ports]
    steps = Steps(tokens, uses=[()] * len(rows), borders=[False] * len(rows))
    yield from _row_lines(rows, steps, 0, len(rows), names)


def _row_lines(
    rows: Sequence[tuple[str, str, str]], steps: Steps, low: int, high: int, names: Collection[str]
) -> Iterator[str]:
    """Yield the lines of the ports from place `low` to before `high`. `rows` has a port's value, its type and role, and
    its name for each, and `steps` the same ports as the search for loops takes them."""
    # The loop that saves most may stand in the middle: the part before it is listed first, the part after it next.
    while (repeat := best_repeat(steps, low, high, ends=False)) is not None:
        yield from _row_lines(rows, steps, low, repeat.first, names)
        yield f"for i in range({len(repeat.rows)}):"
        for places in zip(*repeat.rows, strict=True):
            columns = zip(*(rows[place] for place in places), strict=True)
            value, kind, key = (_column_text(column, names) for column in columns)
            yield f"    {value}: {kind}{key}"
        low = repeat.end
    yield from (f"{value}: {kind}{key}" for value, kind, key in rows[low:high])


def _column_text(column: Sequence[str], names: Collection[str]) -> str:
    """Return the text that the iterations have in one column of their rows (value, type and role, or name); in braces
    if it differs between iterations."""
    if len({*column}) == 1:
        return column[0]
    # An Index of one number: there is one loop around a port.
    return in_braces(series_of({(place,): text for place, text in enumerate(column)}, (len(column),)), names)


# ---- What differs between iterations


def in_braces(series: Series, names: Collection[str] | None) -> str:
    """Return what the iterations have at one place: `view_{20+12i}`, `{i=0: mul, else add_{3i}}` or `{0.1, 0.3}`.

    `view_0` in a rule stands for a value that is named `view`, if none of all `names` is `view_0`. With None, the names
    are not known, and it never does.
    """
    odd = []  # the odd iterations, each with its value as text
    for index, value in series.odd:
        regular = series.regular(index) if series.parts else None
        if names is None or regular in names or regular != f"{value}_0":
            odd.append((index, value if isinstance(value, str) else show(value)))
    if series.parts:
        rule = str(series)
    else:
        # Without a rule the most frequent value may be the rule, if more than half of the iterations have it.
        [(rule, count)] = Counter(text for _, text in odd).most_common(1)
        if 2 * count <= len(odd):
            return f"{{{', '.join(shortened([text for _, text in odd]))}}}"
        odd = [(index, text) for index, text in odd if text != rule]
    exceptions = [f"{numbers_of(index)}: {text}" for index, text in odd]
    return f"{{{', '.join([*shortened(exceptions), f'else {rule}'])}}}" if exceptions else rule


def numbers_of(index: Index) -> str:
    """Return an iteration as text: `i=3 j=0`."""
    return " ".join(f"{name}={number}" for name, number in zip(INDEXES, index, strict=False))


def shortened(texts: Sequence[str]) -> list[str]:
    """Return the texts; if there are more than MOST, the first three, `…` and the last."""
    return [*texts] if len(texts) <= MOST else [*texts[:3], "…", texts[-1]]
