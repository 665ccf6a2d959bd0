"""The nouns of a fold: a Series of names or numbers, the places of a step, and a FoldedGraph of steps and loops.

The names `view_20`, `view_32`, `view_44` of one step in three iterations are the Series `view_{20+12i}`: a text whose
numbers grow by the same amount in each iteration.

A *place* of a step is where a name, a number or a text stands in it: `name`, `args.0.2`, `kwargs.dim`,
`source.module`. An *odd* iteration has something else at a place than the rule of its Series says, and an *odd step* is
one that a single iteration of a loop has (Only). An Index says in which iteration of each loop around it something is.

The rule of a Series is `numbers` (_Growth: a start, and a step for each loop) with the texts `parts` around them, and
`odd` has pairs of an Index and what stands there. `split_numbers` takes a text apart so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from backprint.graph.keys import number_of
from backprint.graph.nouns import (
    Dict,
    Graph,
    List,
    Port,
    Ref,
    Slice,
    Source,
    Spec,
    Step,
    Symbol,
    TensorSpec,
    Value,
    graph_in_words,
)

# ---- Series: what one place of a step has in each iteration of the loops around it


Index: TypeAlias = tuple[int, ...]
"""The numbers of the iterations of the loops around a step, the outermost first."""

_NUMBER = re.compile(r"(0|[1-9][0-9]*)")
"""A number as Python writes it. `007` is 0, 0 and 7: so a rule of `x_007` and `x_008` keeps the zeros."""

MAX_START = 2**62
"""The numbers of a rule are smaller, so that its results have 64 bits: a graph has no longer integers."""

INDEXES = "ijklmnpq"
"""The names of the indexes of nested loops."""


@dataclass(frozen=True, slots=True)
class _Growth:
    """A number that grows by the same in each iteration of a loop: `20+12i`."""

    start: int
    steps: tuple[int, ...]
    """By how much, for each loop from the outermost."""

    def at(self, index: Index) -> int:
        """Return the number that an iteration has."""
        return self.start + sum(step * place for step, place in zip(self.steps, index, strict=True))

    def __str__(self) -> str:
        # Pairs of a number and the index that it is multiplied with, '' for the start.
        terms = [(self.start, "")] if self.start or not any(self.steps) else []
        terms += [(step, name) for step, name in zip(self.steps, INDEXES, strict=False) if step]  # INDEXES has more
        (first, _), (last, _) = terms[0], terms[-1]
        if first < 0 < last:  # `i-1`, and not `-1+i`
            terms.reverse()
        pieces = []
        for number, name in terms:
            signed = f"{number:+}"
            # Of `+1i` and `-1i` the sign alone: `+i`, `-i`.
            pieces.append(f"{signed[0] if name and abs(number) == 1 else signed}{name}")
        return "".join(pieces).removeprefix("+")


@dataclass(frozen=True, slots=True)
class Series:
    """What one place of a step has in each iteration: texts with growing numbers, or numbers (`is_text` tells which).

    The rule is `parts` with `numbers` between them; iterations that do not follow it are in `odd`.
    """

    parts: tuple[str, ...]
    """The texts before, between and after the numbers; of a number, two empty texts. Empty if every iteration is
    listed."""
    numbers: tuple[_Growth, ...]
    is_text: bool
    odd: tuple[tuple[Index, Any], ...] = ()
    """The iterations that have something else, and what."""

    def at(self, index: Index) -> Any:
        """Return the text or the number of an iteration."""
        for odd_index, value in self.odd:
            if odd_index == index:
                return value
        return self.regular(index)

    def regular(self, index: Index) -> Any:
        """Return what the rule says for an iteration, which may be an odd one."""
        if not self.is_text:
            return self.numbers[0].at(index)
        pieces = [self.parts[0]]
        for number, part in zip(self.numbers, self.parts[1:], strict=True):
            pieces += (str(number.at(index)), part)
        return "".join(pieces)

    def __str__(self) -> str:
        pieces = list(self.parts[:1])
        for number, part in zip(self.numbers, self.parts[1:], strict=True):
            pieces += (f"{{{number}}}" if any(number.steps) else str(number), part)
        return "".join(pieces)


def series_of(values: Mapping[Index, Any], shape: Sequence[int]) -> Series:
    """Return the Series of these values, by iteration, with as few odd ones as a few starting points allow. `shape` has
    the number of iterations of each loop.

    Two neighbours make a rule. If one of them is odd, so is the rule, and nearly every iteration would be listed. So
    the rule is made at several places, and the one with the fewest odd iterations is kept. Where more than half of the
    iterations are odd, no rule is better than a rule: all are listed.
    """
    best: Series | None = None  # the one with the fewest odd iterations so far
    for base in bases(shape):
        series = _series_from(values, shape, base)
        if series is not None and (best is None or len(series.odd) < len(best.odd)):
            best = series
        if best is not None and not best.odd:
            return best
    if best is None or 2 * len(best.odd) > len(values):
        return Series(parts=(), numbers=(), is_text=True, odd=tuple(values.items()))
    return best


def bases(shape: Sequence[int]) -> Iterator[Index]:
    """Yield iterations whose neighbours may make the rule.

    The second comes first: the first iteration is the odd one most often, as its name has no number (`view`, `view_1`,
    `view_2`). The middle is for loops whose first layers differ from the others.
    """
    second = tuple(min(1, max(size - 2, 0)) for size in shape)
    first = tuple(0 for _ in shape)
    middle = tuple(max((size - 1) // 2, 0) for size in shape)
    yield from dict.fromkeys((second, first, middle))


def _series_from(values: Mapping[Index, Any], shape: Sequence[int], base: Index) -> Series | None:
    """Return the Series that the iteration `base` and its neighbours make; None if they have no rule, or too few
    iterations follow it.

    For each loop, the neighbour is the next iteration of that loop: it says by how much each number grows there.
    `values` and `shape` are those of `series_of`.
    """
    value = values[base]
    if type(value) not in (str, int):
        return None
    texts, numbers = split_numbers(value)
    steps: list[list[int]] = [[] for _ in numbers]
    for axis, size in enumerate(shape):
        # A loop that runs once has no next iteration: nothing grows there.
        neighbour = values[(*base[:axis], base[axis] + 1, *base[axis + 1 :])] if size > 1 else value
        if type(neighbour) is not type(value):
            return None
        other_texts, other_numbers = split_numbers(neighbour)
        if other_texts != texts:
            return None
        for step, here, there in zip(steps, numbers, other_numbers, strict=True):
            step.append(there - here)
    growths = [
        # The rule was read at `base`, and its start is the number at iteration 0: less what grows up to `base`.
        _Growth(number - sum(map(int.__mul__, step, base)), tuple(step))
        for number, step in zip(numbers, steps, strict=True)
    ]
    if any(abs(number) >= MAX_START for growth in growths for number in (growth.start, *growth.steps)):
        return None
    rule = Series(texts, tuple(growths), is_text=type(value) is str)
    odd = []
    for index, own in values.items():
        regular = rule.regular(index)
        if regular != own or type(regular) is not type(own):  # 1 equals 1.0 and True, which are other values
            odd.append((index, own))
            # Given up here, because `series_of` would list all iterations anyway.
            if 2 * len(odd) > len(values):
                return None
    return Series(rule.parts, rule.numbers, rule.is_text, tuple(odd))


def split_numbers(value: str | int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the texts around the numbers of a value, and the numbers; a number is one between two empty texts."""
    if isinstance(value, int):
        return ("", ""), (value,)
    return split_numbers_of_text(value)


@lru_cache(maxsize=1 << 16)
def split_numbers_of_text(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the texts around the numbers of a text, and the numbers; one of more than 18 digits stays text."""
    pieces = _NUMBER.split(text)
    texts, numbers = [pieces[0]], []
    for number, part in zip(pieces[1::2], pieces[2::2], strict=True):
        # 18 digits are less than MAX_START, so a rule over them has 64 bits.
        if len(number) > 18:
            texts[-1] += number + part
        else:
            numbers.append(int(number))
            texts.append(part)
    return tuple(texts), tuple(numbers)


# ---- Places of a step at which the iterations of a loop differ: `name`, `args.0.2`, `kwargs.dim`, `source.module`

NUMBERS = (int, float)
"""The types of the numbers that may differ in the arguments of two iterations. They are compared with `type(value)`: a
bool is an int for `isinstance`, and would grow from False to 1."""

SOURCE = ("file", "line", "function", "code", "module")
"""The fields of a Source."""


def places_of(step: Step) -> Iterator[tuple[str, Any]]:
    """Yield the places of a step, each with the name, the number or the text that stands there."""
    yield "name", step.name
    for count, value in enumerate(step.args):
        yield from places_of_value(value, f"args.{count}")
    for key, value in step.kwargs:
        yield from places_of_value(value, f"kwargs.{key}")
    yield from _places_of_spec(step.spec, "spec")
    if step.source is not None:
        for part in SOURCE:
            yield f"source.{part}", getattr(step.source, part)
    if step.echo is not None:
        yield "echo.kind", step.echo.kind
        for count, name in enumerate(step.echo.names):
            yield f"echo.names.{count}", name


def _places_of_spec(spec: Spec, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the places of a type that may differ: where in its memory a tensor begins."""
    match spec:
        case TensorSpec():
            yield f"{place}.offset", spec.offset
        case tuple():
            for count, part in enumerate(spec):
                yield from _places_of_spec(part, f"{place}.{count}")


def places_of_value(value: Value, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the places of an argument that may differ: names and numbers."""
    if type(value) is Ref:
        yield place, value.name
    elif type(value) in NUMBERS:
        yield place, value
    else:
        for key, part in _parts_within(value):
            yield from places_of_value(part, f"{place}.{key}")


def _parts_within(value: Value) -> Iterator[tuple[str, Value]]:
    """Yield the parts of a list, a tuple, a slice or a mapping, each with its key in the name of a place; of any other
    value nothing."""
    match value:
        case tuple():
            yield from ((str(count), part) for count, part in enumerate(value))
        case List(items):
            yield from ((str(count), part) for count, part in enumerate(items))
        case Slice(start, stop, step):
            yield from (("start", start), ("stop", stop), ("step", step))
        case Dict(items):
            for count, (key, part) in enumerate(items):
                yield f"key{count}", key
                yield f"value{count}", part


def with_places(step: Step, replacements: Mapping[str, Any]) -> Step:
    """Return a step with the names, numbers and texts of `replacements`, by their places (`args.0`, `source.line`)."""
    if not replacements:
        return step
    tops = {place.partition(".")[0] for place in replacements}  # the fields of the step that change
    changes: dict[str, Any] = {}
    if "name" in tops:
        changes["name"] = replacements["name"]
    if "args" in tops:
        changes["args"] = tuple(
            with_value(value, f"args.{count}", replacements) for count, value in enumerate(step.args)
        )
    if "kwargs" in tops:
        changes["kwargs"] = tuple((key, with_value(value, f"kwargs.{key}", replacements)) for key, value in step.kwargs)
    if "spec" in tops:
        changes["spec"] = _with_spec(step.spec, "spec", replacements)
    if "source" in tops and step.source is not None:
        parts = {part: replacements[f"source.{part}"] for part in SOURCE if f"source.{part}" in replacements}
        changes["source"] = replace(step.source, **parts)
    if "echo" in tops and step.echo is not None:
        names = tuple(replacements.get(f"echo.names.{count}", name) for count, name in enumerate(step.echo.names))
        changes["echo"] = replace(step.echo, kind=replacements.get("echo.kind", step.echo.kind), names=names)
    return replace(step, **changes)


def _with_spec(spec: Spec, place: str, replacements: Mapping[str, Any]) -> Spec:
    """Return a type with the offsets of `replacements`, by their places; `place` is that of the type."""
    match spec:
        case TensorSpec() if f"{place}.offset" in replacements:
            return replace(spec, offset=replacements[f"{place}.offset"])
        case tuple():
            return tuple(_with_spec(part, f"{place}.{count}", replacements) for count, part in enumerate(spec))
    return spec


def without_offsets(spec: Spec) -> Spec:
    """Return a type without where in its memory a tensor begins."""
    match spec:
        case TensorSpec(offset=offset) if offset != 0:
            return replace(spec, offset=0)
        case tuple():
            return tuple(map(without_offsets, spec))
    return spec


def with_value(value: Value, place: str, replacements: Mapping[str, Any]) -> Value:
    """Return an argument with the names and numbers of `replacements`, by their places; `place` is that of the
    argument. Texts and constants in it stay."""
    if type(value) is Ref:
        return Ref(replacements[place]) if place in replacements else value
    if type(value) in NUMBERS:
        return replacements.get(place, value)
    match value:
        case tuple():
            return tuple(with_value(part, f"{place}.{key}", replacements) for key, part in _parts_within(value))
        case List():
            return List(tuple(with_value(part, f"{place}.{key}", replacements) for key, part in _parts_within(value)))
        case Slice():
            return Slice(*(with_value(part, f"{place}.{key}", replacements) for key, part in _parts_within(value)))
        case Dict():
            # `_parts_within` yields a key and its item in turns.
            parts = [with_value(part, f"{place}.{key}", replacements) for key, part in _parts_within(value)]
            return Dict(tuple(zip(parts[::2], parts[1::2], strict=True)))
    return value


def skeleton(value: Value) -> Any:
    """Return a value without its names and numbers, which may differ between iterations. It can be hashed."""
    if type(value) is Ref:
        return "*"
    if type(value) in NUMBERS:
        return type(value)
    match value:
        case tuple():
            return (tuple, *map(skeleton, value))
        case List(items):
            return (List, *map(skeleton, items))
        case Slice(start, stop, step):
            return (Slice, skeleton(start), skeleton(stop), skeleton(step))
        case Dict(items):
            return (Dict, *((skeleton(key), skeleton(part)) for key, part in items))
    return type(value), repr(value)


# ---- Folded graphs

Item: TypeAlias = "FoldedStep | Loop | Only"
"""What a folded graph, or the body of a loop, has in a row."""


@dataclass(frozen=True, slots=True)
class FoldedStep:
    """A step of every iteration: the step of the first iteration, and the values of all iterations in its places."""

    step: Step
    series: tuple[tuple[str, Series], ...] = ()
    """Place in the step (`name`, `args.0`, `source.module`) -> what each iteration has there."""

    def at(self, index: Index) -> Step:
        """Return the step as an iteration has it."""
        return with_places(self.step, {place: series.at(index) for place, series in self.series})

    def source_at(self, index: Index) -> Source | None:
        """Return the line of the program that an iteration has."""
        places = {place: series.at(index) for place, series in self.series if place.startswith("source.")}
        return with_places(self.step, places).source

    def name_at(self, index: Index) -> str:
        """Return the name of the result in an iteration."""
        names = dict(self.series).get("name")
        return self.step.name if names is None else str(names.at(index))


@dataclass(frozen=True, slots=True)
class Only:
    """Steps that one iteration of the loop around them has and the other iterations do not have."""

    iteration: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of `count` iterations: its items, once for each, but an Only in one of them alone."""

    count: int
    items: tuple[Item, ...]

    def __repr__(self) -> str:
        return f"Loop({self.count} × {number_of(len(self.items), 'item')})"


@dataclass(frozen=True, slots=True)
class FoldedGraph:
    """A Graph whose repeated steps are loops."""

    items: tuple[Item, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    results: tuple[Value, ...]
    subgraphs: tuple[tuple[str, Graph], ...] = ()
    symbols: tuple[Symbol, ...] = ()
    title: str = ""

    def __str__(self) -> str:
        """Return a listing for people; `unfold().code` is the graph as Python."""
        from backprint.graph.folding.listing import listing_of

        return listing_of(self)

    def __repr__(self) -> str:
        loops = sum(isinstance(item, Loop) for item in self.items)
        steps = _steps_in(self.items)
        return f"FoldedGraph({graph_in_words(self, steps)}, {number_of(loops, 'loop')})"

    def unfold(self) -> Graph:
        """Return the Graph that was folded."""
        return Graph(
            self.inputs,
            tuple(_unfolded(self.items)),
            self.outputs,
            self.results,
            self.subgraphs,
            self.symbols,
            title=self.title,
        )


def _steps_in(items: Sequence[Item]) -> int:
    """Return the number of steps of items, with the steps of each iteration counted."""
    total = 0
    for item in items:
        match item:
            case FoldedStep():
                total += 1
            case Only(_, inside):
                total += _steps_in(inside)
            case Loop(count, body):
                # Odd steps stand in the body of the loop and run in one iteration.
                odd = _steps_in([member for member in body if isinstance(member, Only)])
                total += count * (_steps_in(body) - odd) + odd
    return total


def _unfolded(items: Sequence[Item], index: Index = ()) -> Iterator[Step]:
    """Yield the steps of items one after the other; `index` is the iteration of the loops around the items. An Only is
    in no list of items but a loop's body, so there is no case for it here (`unfolded_once`)."""
    for item in items:
        match item:
            case FoldedStep():
                yield item.at(index) if index else item.step
            case Loop(count, body):
                for iteration in range(count):
                    yield from unfolded_once(body, index, iteration)


def unfolded_once(body: Sequence[Item], index: Index, iteration: int) -> Iterator[Step]:
    """Yield the steps of one iteration of a loop, in the iteration `index` of the loops around the loop."""
    for item in body:
        if not isinstance(item, Only):
            yield from _unfolded([item], (*index, iteration))
        elif item.iteration == iteration:
            # The index of the loops around alone: odd steps are in one iteration of this loop, so nothing counts it.
            yield from _unfolded(item.items, index)
