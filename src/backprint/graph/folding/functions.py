"""Find what recurs among the steps of one module, and make functions of it: the backward of every linear layer.

Two places have one function if they call the same operators on each other's results in the same way. Sizes may differ,
and become arguments; so do the numbers in names. A function never goes across two modules.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from backprint.graph.folding.names import FoldedNames, Leaf
from backprint.graph.folding.patterns import number_expression
from backprint.graph.folding.places import places_of, skeleton
from backprint.graph.folding.series import Growth, Series, series_of
from backprint.graph.nouns import (
    Atom,
    Device,
    List,
    Slice,
    Spec,
    TensorSpec,
    Value,
)
from backprint.graph.text import show

LEAST_STEPS, MOST_STEPS = 3, 40
"""How many steps a function has."""

LEAST_LINES = 4
"""How many lines a function must save."""

MOST_GIVEN = 8
"""How many values, sizes, or results a function has at most."""

MOST_MARKS = 12
"""How many numbers of names a call gives at most."""

MOST_REFUSED = 1000
"""How many candidates may be given too much before the search ends: the best come first."""

Column: TypeAlias = tuple[str, ...]
"""What each call has in one place."""


@dataclass(frozen=True, slots=True)
class Trait:
    """What a step has in common with those that may stand in its place in another call."""

    token: int
    module: str | None
    """None: the program has no line for the step."""
    where: int
    """Which line of the program, apart from the module."""
    uses: tuple[int, ...]
    """Of each value that it takes, the leaf that computes it in the same iteration, or -1."""


@dataclass(slots=True)
class Function:
    """Steps that recur, and the leaves where each call begins."""

    calls: tuple[int, ...]
    length: int
    has_lines: bool
    """Whether the function says its lines of the program; otherwise each call says the one of all its steps."""
    values: dict[tuple[int, str], int] = field(default_factory=dict)
    """Step and place -> the value that stands there."""
    sizes: dict[tuple[int, str], int] = field(default_factory=dict)
    """Step and place -> the number that stands there."""
    marks: dict[tuple[int, str, int], tuple[int, int]] = field(default_factory=dict)
    """Step, what, and which number of it -> the number of the call that stands there, and what is added."""
    given_values: list[tuple[int, str]] = field(default_factory=list)
    """Where each value is taken first."""
    value_columns: list[Column] = field(default_factory=list)
    """What each value is in each call: equal texts are equal values."""
    given_sizes: list[Column] = field(default_factory=list)
    given_marks: list[tuple[tuple[Growth, ...], str]] = field(default_factory=list)
    """The numbers, and the text before them."""
    results: tuple[int, ...] = ()


class Finder:
    """Finds the functions of a folded graph."""

    def __init__(self, names: FoldedNames) -> None:
        self.names = names
        self.tokens: dict[Any, int] = {}
        self.wheres: dict[Any, int] = {}
        self.identities: dict[tuple[int, str], str] = {}
        self.known_names: dict[int, Series] = {}
        self.known_echoes: dict[int, Series] = {}
        self.traits = [self.trait(leaf) for leaf in names.leaves]
        self.used: set[int] = set()

    # ---- steps as tokens

    def trait(self, leaf: Leaf) -> Trait | None:
        """Return what a step has in common with others; None if it cannot stand in a function."""
        step = leaf.step.step
        numbers = [series for place, series in leaf.step.series if place.startswith(("args", "kwargs", "spec"))]
        if step.is_guard or not all(map(is_plain, (*step.args, *(value for _, value in step.kwargs)))):
            return None
        name, echo, source = self.name(leaf), self.echo(leaf), line_of_program(leaf)
        sizes = erased(step.spec)
        irregular = any(series.odd and not series.is_text for series in numbers) or name.odd or source is None
        if irregular or sizes is None or (echo is not None and echo.odd):
            return None
        kinds = tuple(map(skeleton, step.args)), tuple((key, skeleton(value)) for key, value in step.kwargs)
        token = step.target, kinds, sizes, name.parts, echo and echo.parts, source == ()
        module = source[0] if source else None
        where = self.wheres.setdefault(source[1:], len(self.wheres)) if source else -1
        uses = tuple(self.uses(leaf))
        return Trait(self.tokens.setdefault(token, len(self.tokens)), module, where, uses)

    def name(self, leaf: Leaf) -> Series:
        """Return the name of a step."""
        if leaf.number not in self.known_names:
            texts = {index: self.names.numbered(name) for index, name in leaf.names().items()}
            self.known_names[leaf.number] = series_of(texts, leaf.counts)
        return self.known_names[leaf.number]

    def echo(self, leaf: Leaf) -> Series | None:
        """Return the echo of a step."""
        echo = leaf.step.step.echo
        if echo is None:
            return None
        if leaf.number not in self.known_echoes:
            series = dict(leaf.step.series)
            kinds = series.get("echo.kind")
            parts = [series.get(f"echo.names.{count}", name) for count, name in enumerate(echo.names)]
            texts = {}
            for index in leaf.indexes():
                names = [
                    self.names.numbered(str(part.at(index)) if isinstance(part, Series) else part) for part in parts
                ]
                texts[index] = f"{kinds.at(index) if kinds else echo.kind} {', '.join(names)}"
            self.known_echoes[leaf.number] = series_of(texts, leaf.counts)
        return self.known_echoes[leaf.number]

    def uses(self, leaf: Leaf) -> Iterator[int]:
        """Yield, for each value that a step takes, the leaf that computes it in the same iteration, or -1."""
        for place, value in places_of(leaf.step.step):
            if place.startswith(("args.", "kwargs.")) and isinstance(value, str):
                yield self.computed_by(leaf, place, value)

    def computed_by(self, leaf: Leaf, place: str, value: str) -> int:
        """Return the leaf that computes what a step takes in the same iteration, or -1."""
        if (leaf.number, place) in self.names.own:
            return self.names.own[leaf.number, place]
        if leaf.counts or place in dict(leaf.step.series) or value not in self.names.owner:
            return -1
        number = self.names.owner[value][0]
        return -1 if self.names.leaves[number].counts else number

    # ---- candidates

    def functions(self) -> list[Function]:
        """Return the functions that save most, in the order of their first calls.

        Candidates overlap: part of a function is a candidate too. They are taken greedily from a heap, the one that
        saves most lines first. What a candidate saves falls when another function takes some of its places, so each is
        counted again when it comes up, and goes back into the heap if it now saves less.
        """
        places = self.candidates()
        heap = [(-saved_lines(key[0], len(starts)), key) for key, starts in places.items()]
        heapq.heapify(heap)
        functions: list[Function] = []
        refused = 0
        while heap and refused < MOST_REFUSED:
            saved, key = heapq.heappop(heap)
            starts = self.free(places[key], key[0])
            now_saved = saved_lines(key[0], len(starts))
            if now_saved < LEAST_LINES:
                continue
            if now_saved != -saved:
                heapq.heappush(heap, (-now_saved, key))
                continue
            function = self.function(starts, key[0], has_lines=key[2] != -1)
            refused += function is None
            if function is not None:
                functions.append(function)
                self.used.update(start + place for start in function.calls for place in range(function.length))
        return sorted(functions, key=lambda function: function.calls)

    def candidates(self) -> dict[tuple[int, int, int], list[int]]:
        """Return where steps begin that may be a call: length, hash of the tokens, and of the lines -> leaves."""
        candidates: dict[tuple[int, int, int], list[int]] = {}
        for start, trait in enumerate(self.traits):
            if trait is not None and trait.module is not None:
                for key in self.candidates_at(start, trait.module):
                    candidates.setdefault(key, []).append(start)
        return {
            key: starts
            for key, starts in candidates.items()
            if len(starts) > 1 and saved_lines(key[0], len(starts)) >= LEAST_LINES
        }

    def candidates_at(self, start: int, module: str) -> Iterator[tuple[int, int, int]]:
        """Yield the keys of the candidates that begin at a leaf."""
        leaves, tokens, lines = self.names.leaves, 0, 0
        wheres: set[int] = set()
        for place in range(min(MOST_STEPS, len(leaves) - start)):
            trait = self.traits[start + place]
            if trait is None or trait.module not in (None, module) or leaves[start + place].run != leaves[start].run:
                return
            tokens = hash((tokens, trait.token, *(used - start if used >= start else -1 for used in trait.uses)))
            lines = hash((lines, trait.where))
            wheres.add(trait.where)
            if place + 1 >= LEAST_STEPS and trait.module is not None:
                yield place + 1, tokens, (-1 if len(wheres - {-1}) == 1 else lines)

    def free(self, starts: Sequence[int], length: int) -> list[int]:
        """Return the places that do not overlap with one another or with another function."""
        free: list[int] = []
        for start in starts:
            if (not free or start >= free[-1] + length) and self.used.isdisjoint(range(start, start + length)):
                free.append(start)
        return free

    # ---- one function

    def function(self, starts: Sequence[int], length: int, has_lines: bool) -> Function | None:
        """Return the function of some calls; None if it would be given too much, or computes too much or nothing."""
        results = tuple(
            place for place in range(length) if any(self.is_result(start, place, length) for start in starts)
        )
        if not 0 < len(results) <= MOST_GIVEN:
            return None
        if self.given(starts[:2], length, has_lines) is None:  # more calls are not given less
            return None
        function = self.given(starts, length, has_lines)
        if function is not None:
            function.results = results
        return function

    def is_result(self, start: int, place: int, length: int) -> bool:
        """Whether what a step of a call computes is taken elsewhere."""
        users = self.names.users.get(start + place, ())
        return start + place in self.names.shared or any(not start <= user < start + length for user in users)

    def given(self, starts: Sequence[int], length: int, has_lines: bool) -> Function | None:
        """Return a function without its results: what its calls give it; None if that is too much."""
        function = Function(tuple(starts), length, has_lines)
        for place in range(length):
            if len({self.shape(start, place) for start in starts}) > 1:
                return None  # only their hashes are equal
            leaves = [self.names.leaves[start + place] for start in starts]
            self.add_arguments(function, place, leaves)
            for what, texts in (("name", [self.name(leaf) for leaf in leaves]), ("echo", list(map(self.echo, leaves)))):
                self.add_marks(function, place, what, texts)
            most = max(len(function.given_values), len(function.given_sizes))
            if most > MOST_GIVEN or len(function.given_marks) > MOST_MARKS:
                return None
        return function

    def shape(self, start: int, place: int) -> tuple[int, ...]:
        """Return the token of a step of a call, and how it hangs together with those before it."""
        trait = self.traits[start + place]
        return (-1,) if trait is None else (trait.token, *(max(used - start, -1) for used in trait.uses))

    def add_arguments(self, function: Function, place: int, leaves: Sequence[Leaf]) -> None:
        """Add what the calls give to a step: values and sizes."""
        for name, value in places_of(leaves[0].step.step):
            if name.startswith(("args.", "kwargs.")) and isinstance(value, str):
                if self.computed_by(leaves[0], name, value) < function.calls[0]:
                    column = tuple(self.identity(leaf, name) for leaf in leaves)
                    self.add_value(function, (place, name), column)
            elif name.startswith(("args.", "kwargs.")):
                add_size(function, (place, name), tuple(number_text(leaf, name) for leaf in leaves))
        columns = [[*sizes_written(leaf)] for leaf in leaves]
        for number, column in enumerate(zip(*columns, strict=True)):
            add_size(function, (place, f"spec.{number}"), column)

    def identity(self, leaf: Leaf, name: str) -> str:
        """Return a text that is equal for places that take the same value in each iteration."""
        if (leaf.number, name) not in self.identities:
            series = dict(leaf.step.series)
            for place, value in places_of(leaf.step.step):
                own = self.names.own.get((leaf.number, place))
                here = f"value {value}" if place not in series else f"series {series[place]!r}"
                self.identities[leaf.number, place] = here if own is None else f"leaf {own}"
        return self.identities[leaf.number, name]

    def add_value(self, function: Function, at: tuple[int, str], column: Column) -> None:
        """Add a place at which a value stands that each call gives."""
        if column not in function.value_columns:
            function.value_columns.append(column)
            function.given_values.append(at)
        function.values[at] = function.value_columns.index(column)

    def add_marks(self, function: Function, place: int, what: str, texts: Sequence[Series | None]) -> None:
        """Add the numbers in the names of a step."""
        rules = [series for series in texts if series is not None]
        for number, column in enumerate(zip(*(series.numbers for series in rules), strict=True)):
            if all(not any(each.steps) and each.start == column[0].start for each in column):
                continue
            text = rules[0].parts[number]
            for mark, (other, before) in enumerate(function.given_marks):
                if same_growth(column, other) and (before == text or column[0] == other[0]):
                    function.marks[place, what, number] = mark, column[0].start - other[0].start
                    break
            else:
                function.marks[place, what, number] = len(function.given_marks), 0
                function.given_marks.append((column, text))


def same_growth(one: Sequence[Growth], other: Sequence[Growth]) -> bool:
    """Whether numbers differ by the same in each call and each iteration."""
    shapes = [[(each.start - column[0].start, each.steps) for each in column] for column in (one, other)]
    return shapes[0] == shapes[1]


def saved_lines(length: int, calls: int) -> int:
    """Return how many lines a function saves."""
    return length * calls - (length + 4 + calls)


def add_size(function: Function, at: tuple[int, str], column: Column) -> None:
    """Add a place at which a number stands, if calls have different ones."""
    if all(text == column[0] and is_one_number(text) for text in column):
        return
    if column not in function.given_sizes:
        function.given_sizes.append(column)
    function.sizes[at] = function.given_sizes.index(column)


def is_one_number(text: str) -> bool:
    """Whether a text is one number, in every iteration."""
    return not any(letter in text for letter in "ijklmnpq") or text in ("inf", "-inf", "nan")


# ------------------------------------------------------------------ what steps have in common


def line_of_program(leaf: Leaf) -> tuple[Any, ...] | None:
    """Return the module of a step, and its line; empty if it has none, None if they follow no rule."""
    source = leaf.step.step.source
    if source is None:
        return ()
    series = {place: one for place, one in leaf.step.series if place.startswith("source.")}
    if any(one.odd for one in series.values()) or set(series) - {"source.module"}:
        return None
    module = str(series["source.module"]) if series else source.module
    return module, source.file, source.line, source.function, source.code


def is_plain(value: Value) -> bool:
    """Whether a value can stand in a function, which knows nothing of the class around the graph."""
    match value:
        case tuple():
            return all(map(is_plain, value))
        case List(items):
            return all(map(is_plain, items))
        case Slice(start, stop, step):
            return is_plain(start) and is_plain(stop) and is_plain(step)
    return (
        value is None
        or type(value).__name__ in ("Ref", "int", "float", "bool", "str")
        or isinstance(value, Atom | Device)
    )


def erased(spec: Spec) -> Any:
    """Return a type without its sizes; None if it has symbolic ones."""
    match spec:
        case TensorSpec(dtype, shape, stride, offset, device, layout):
            whole = all(type(size) is int for size in (*shape, *(stride or ()), offset))
            return (dtype, len(shape), stride is None, device, layout) if whole else None
        case tuple():
            parts = tuple(map(erased, spec))
            return None if None in parts else parts
    return (repr(spec),)


def sizes_written(leaf: Leaf) -> Iterator[str]:
    """Yield the sizes in the type of a step, as expressions."""
    series = dict(leaf.step.series)

    def within(spec: Spec, place: str) -> Iterator[str]:
        match spec:
            case TensorSpec(_, shape, stride, offset):
                yield from map(str, (*shape, *(stride or ())))
                yield number_expression(series[f"{place}.offset"]) if f"{place}.offset" in series else str(offset)
            case tuple():
                for count, part in enumerate(spec):
                    yield from within(part, f"{place}.{count}")

    return within(leaf.step.step.spec, "spec")


def with_sizes(spec: Spec, sizes: Iterator[str | int]) -> Spec:
    """Return a type with other sizes, in the order of `sizes_written`."""
    match spec:
        case TensorSpec(_, shape, stride, _):
            shape = tuple(next(sizes) for _ in shape)
            stride = tuple(next(sizes) for _ in stride) if stride is not None else None
            return replace(spec, shape=shape, stride=stride, offset=next(sizes))
        case tuple():
            return tuple(with_sizes(part, sizes) for part in spec)
    return spec


def number_text(leaf: Leaf, place: str) -> str:
    """Return a number of a step's arguments as an expression."""
    series = dict(leaf.step.series).get(place)
    return number_expression(series) if series is not None else show(dict(places_of(leaf.step.step))[place])
