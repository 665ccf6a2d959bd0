"""A folded graph as Python that runs, for people to read: loops as `for i in range(126)`, functions for what recurs.

`v` is a table of the ports, and of each value that another iteration or the rest of the graph takes, by its key. Other
values have short names. `params` and `saved` are the same table under other names, for values that are taken from
parameters or saved ports. `last_add` is the value `add` of the iteration before.

The writer works in this order: `planned_names` decides how each value is taken, `Finder` finds the functions,
`function_lines` and `BodyWriter` write the lines, and `emit_folded` the whole text. The text is never read to make a
graph. `fold.text_for_people` unrolls it before it is shown. `sample/convert` compares it with what samples of format 3
have on disk, to the letter: whoever changes what is written here keeps the old writer there, or ends that command.
"""

from __future__ import annotations

import builtins
import heapq
import itertools
import keyword
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from backprint.errors import RefusedError
from backprint.graph.folding.find import Steps, best_repeat
from backprint.graph.folding.nouns import (
    INDEXES,
    FoldedGraph,
    FoldedStep,
    Growth,
    Index,
    Item,
    Loop,
    Only,
    Series,
    divided_text,
    places_of,
    series_of,
    skeleton,
    with_places,
    without_offsets,
)
from backprint.graph.nouns import Atom, Device, List, Port, Ref, Slice, Source, Spec, Step, TensorSpec, Value, refs
from backprint.graph.text import (
    FORWARD_WITH_LOOPS,
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

# ---- Series as Python expressions, and as patterns in comments: `view_{20+12*i} (at 3 last_view)`


def braced(text: str) -> str:
    """Return a text as it stands in a pattern."""
    return text.replace("{", "{{").replace("}", "}}")


def pattern(series: Series) -> str:
    """Return a Series as a pattern: `view_{20+12*i}`."""
    pieces = [braced(series.parts[0])]
    for number, part in zip(series.numbers, series.parts[1:], strict=True):
        pieces += (f"{{{number}}}" if any(number.steps) else str(number), braced(part))
    return "".join(pieces)


def pattern_with_odd(series: Series) -> str:
    """Return a Series as a pattern, with the iterations that have something else: `view_{2*i} (at 0 view; at 7 x)`."""
    odd = "; ".join(f"at {numbers_of(index)} {value}" for index, value in series.odd)
    return " ".join(([pattern(series)] if series.parts else []) + ([f"({odd})"] if odd else []))


def numbers_of(index: Index) -> str:
    """Return the numbers of an iteration as comments have them: `3, 0`."""
    return ", ".join(map(str, index))


def text_expression(series: Series) -> str:
    """Return a Series of texts as an expression."""
    return chosen(series, f"f{quote(pattern(series))}" if series.parts else None, quote)


def number_expression(series: Series) -> str:
    """Return a Series of numbers as an expression."""
    return chosen(series, str(series.numbers[0]) if series.numbers else None, show)


def chosen(series: Series, regular: str | None, shown: Callable[[Any], str]) -> str:
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


# ---- Names: the plan of how each value is taken
# A value has a *key* in the table `v`. It is the value's name in the flat graph, with two exceptions. The first `view`
# of a graph that has `view_1`, but no `view_0`, is `view_0`, so that rules hold from the first on. A value of a loop
# whose names follow no rule gets a key that does.

VALUES, GIVEN, PORT = "v", "given", "port"

TABLES = {
    "parameter": "params",
    "buffer": "buffers",
    "input": "inputs",
    "constant": "constants",
    "saved": "saved",
    "tangent": "tangents",
    "rng": "states",
}
"""Role of a port -> the name that the table of all values has for such ports."""

HEADED = ("self", "aten", "prims", "torch", "math", "operator", "inf", "nan", "inputs", "outputs", "GraphModule")
CALLED = ("range", "slice", "complex", "getattr", "dict", "zip", "tuple", "module")

MEMBERS = ("inputs", "outputs", "zeros", "range")
"""Names that the class of a folded text uses itself: none of its subgraphs has one of them."""

RESERVED = frozenset({*keyword.kwlist, *INDEXES, VALUES, GIVEN, PORT, *TABLES.values(), *HEADED, *CALLED})
"""Names that neither a value nor a function of a folded text has."""

BUILTINS = frozenset(dir(builtins))
"""Names that a function does not have either: it would replace Python's for whatever stands in the same file."""

MARKS = "abcdefghrsuw"
"""The names of the numbers that a call gives for the names of its steps; a function has no value of such a name."""


ONCE = -1
"""Stands for the loop of whose iterations only one has a step."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A step of a folded graph: where it stands, and the iterations that have it."""

    number: int
    step: FoldedStep
    counts: tuple[int, ...]
    """How many iterations the loops around it have."""
    loops: tuple[int, ...]
    """The loops around it; ONCE in the place of one whose iterations do not all have it."""
    run: int
    """Equal for steps that stand in a row, with no loop between them."""

    @property
    def is_inside(self) -> bool:
        """Whether it stands in a loop."""
        return bool(self.loops)

    def indexes(self) -> Iterator[Index]:
        """Yield its iterations."""
        return indexes_of(self.counts)

    def names(self) -> dict[Index, str]:
        """Return its name in the flat graph, for each iteration."""
        return {index: self.step.name_at(index) for index in self.indexes()}


def indexes_of(counts: Sequence[int]) -> Iterator[Index]:
    """Yield the iterations of nested loops, in their order."""
    return itertools.product(*map(range, counts))


@dataclass(slots=True)
class FoldedNames:
    """Who has which name: the plan by which a folded graph is written."""

    leaves: list[Leaf] = field(default_factory=list)
    owner: dict[str, tuple[int, Index]] = field(default_factory=dict)
    """Name in the flat graph -> the leaf and the iteration that compute it."""
    ports: dict[str, str] = field(default_factory=dict)
    """Name of a port in the flat graph -> its role."""
    zeros: dict[str, str] = field(default_factory=dict)
    """Name in the flat graph without a number -> the same with the number 0, its key."""
    keys: dict[str, str] = field(default_factory=dict)
    """Name in the flat graph that follows no rule -> its key."""
    shared: dict[int, Series | str] = field(default_factory=dict)
    """Leaves whose values are in the tables, and their keys."""
    local: dict[int, str] = field(default_factory=dict)
    carried: dict[int, dict[int, tuple[str, str]]] = field(default_factory=dict)
    """Loop -> leaf -> the name for what the iteration before computed, and the value that the first one takes."""
    own: dict[tuple[int, str], int] = field(default_factory=dict)
    """Leaf and place -> the leaf that computes what is taken there, in the same iteration."""
    before: dict[tuple[int, str], int] = field(default_factory=dict)
    """The same, in the iteration before."""
    users: dict[int, set[int]] = field(default_factory=dict)
    """Leaf -> those that take its value by its short name."""
    known: set[str] = field(default_factory=set)
    """All keys."""

    def numbered(self, name: str) -> str:
        """Return a name, with the number 0 that the flat graph does not write."""
        return self.zeros.get(name, name)

    def key(self, name: str) -> str:
        """Return the key of a value."""
        return self.keys.get(name) or self.numbered(name)


def planned_names(folded: FoldedGraph) -> FoldedNames:
    """Return the plan of a folded graph's names."""
    names = FoldedNames(ports={port.local: port.role for port in folded.inputs})
    add_leaves(names, folded.items, (), (), itertools.count(), itertools.count(1))
    for leaf in names.leaves:
        for index, name in leaf.names().items():
            names.owner[name] = leaf.number, index
    names.zeros = keys_of_zeros(names, (*folded.inputs, *folded.outputs))
    names.known = {names.key(name) for name in (*names.ports, *names.owner)}
    for leaf in names.leaves:
        plan_leaf(names, leaf)
    for name in (name for result in folded.results for name in refs(result)):
        take_from_table(names, name)
    return names


def add_leaves(
    names: FoldedNames,
    items: Sequence[Item],
    counts: tuple[int, ...],
    around: tuple[int, ...],
    loops: Iterator[int],
    runs: Iterator[int],
) -> None:
    """Number the steps of items, in the order in which they stand."""
    run = next(runs)
    for item in items:
        match item:
            case FoldedStep():
                names.leaves.append(Leaf(len(names.leaves), item, counts, around, run))
            case Only(_, inner):
                add_leaves(names, inner, counts[:-1], (*around[:-1], ONCE), loops, runs)
                run = next(runs)
            case Loop(count, inner):
                add_leaves(names, inner, (*counts, count), (*around, next(loops)), loops, runs)
                run = next(runs)


# ---- Keys


def keys_of_zeros(names: FoldedNames, ports: Iterable[Port]) -> dict[str, str]:
    """Return the names to which keys add a number 0: `view`, where there is a `view_1` and no `view_0`."""
    used_keys = {*names.owner, *names.ports}
    for leaf in names.leaves:
        echoes = [series for place, series in leaf.step.series if place.startswith("echo.names")]
        used_keys.update(str(value) for series in echoes for value in series.all(list(leaf.indexes())))
        used_keys.update(leaf.step.step.echo.names if leaf.step.step.echo is not None else ())
    used_keys.update(port.name for port in ports)
    bases = {base for name in used_keys for base, _, number in [name.rpartition("_")] if number in ("1", "2")}
    return {
        base: f"{base}_0"
        for base in sorted(bases & used_keys)
        if f"{base}_0" not in used_keys and not base[-1].isdecimal()
    }


def take_from_table(names: FoldedNames, name: str) -> None:
    """Note that a value is taken from a table; choose its leaf's key."""
    if name in names.ports or name not in names.owner:
        return
    leaf = names.leaves[names.owner[name][0]]
    if leaf.number not in names.shared:
        names.shared[leaf.number] = shared_key(names, leaf)


def shared_key(names: FoldedNames, leaf: Leaf) -> Series | str:
    """Return the key of a leaf, and note it for each of its values."""
    if not leaf.counts:
        return names.key(leaf.step.step.name)
    flat = leaf.names()
    series = series_of({index: names.key(name) for index, name in flat.items()}, leaf.counts)
    if not series.odd:
        return series
    odd = {index: series.regular(index) for index, _ in series.odd} if series.parts else {}
    unused = names.known.isdisjoint(odd.values()) and len({*odd.values()}) == len(odd)
    if odd and unused and all(map(str.isidentifier, odd.values())):
        return noted(names, replace(series, odd=()), odd, flat)
    base, keys = base_of(leaf.step.step), dict(flat)
    while not names.known.isdisjoint(keys.values()):
        base += "_at"
        keys = {index: "_".join([base, *map(str, index)]) for index in flat}
    return noted(names, series_of(keys, leaf.counts), keys, flat)


def noted(names: FoldedNames, series: Series, keys: Mapping[Index, str], flat: Mapping[Index, str]) -> Series:
    """Note keys that are not the names in the flat graph; return their Series."""
    names.keys.update({flat[index]: key for index, key in keys.items()})
    names.known.update(keys.values())
    return series


# ---- How a step takes its arguments


def plan_leaf(names: FoldedNames, leaf: Leaf) -> None:
    """Decide how a step takes its arguments."""
    series = dict(leaf.step.series)
    for place, value in places_of(leaf.step.step):
        if not place.startswith(("args.", "kwargs.")) or not isinstance(value, str):
            continue
        if place not in series:
            plan_constant(names, value, leaf.number)
            continue
        argument_names = {index: str(series[place].at(index)) for index in leaf.indexes()}
        if (number := computed_here(names, leaf, argument_names)) is not None:
            names.own[leaf.number, place] = number
            names.users.setdefault(number, set()).add(leaf.number)
        elif (number := computed_before(names, leaf, argument_names)) is not None:
            names.before[leaf.number, place] = number
            names.carried.setdefault(leaf.loops[0], {})[number] = "", argument_names[0,]
            plan_constant(names, argument_names[0,], -1)
        else:
            for name in argument_names.values():
                take_from_table(names, name)


def plan_constant(names: FoldedNames, name: str, user: int) -> None:
    """Decide how a value is taken that is the same in all iterations; the user -1 is a loop."""
    if name not in names.owner:
        return
    number = names.owner[name][0]
    if names.leaves[number].counts:
        take_from_table(names, name)  # of one iteration of a loop
    names.users.setdefault(number, set()).add(user)


def computed_here(names: FoldedNames, leaf: Leaf, argument_names: Mapping[Index, str]) -> int | None:
    """Return the leaf that computes what a step takes, if it is always that of its own iteration."""
    owners = {index: names.owner.get(name) for index, name in argument_names.items()}
    numbers = {owner[0] if owner else None for owner in owners.values()}
    number = numbers.pop()
    if numbers or number is None:
        return None
    around = names.leaves[number].loops
    same = all(owner and owner[1] == index[: len(around)] for index, owner in owners.items())
    return number if same and leaf.loops[: len(around)] == around else None


def computed_before(names: FoldedNames, leaf: Leaf, argument_names: Mapping[Index, str]) -> int | None:
    """Return the leaf that computes what a step takes, if it is always that of the iteration before."""
    if len(leaf.loops) != 1 or leaf.loops == (ONCE,):
        return None
    owners = [names.owner.get(argument_names[place,]) for place in range(1, leaf.counts[0])]
    number = owners[0][0] if owners[0] else None
    if number is None or names.leaves[number].loops != leaf.loops:
        return None
    start = names.owner.get(argument_names[0,])
    if start is not None and ONCE in names.leaves[start[0]].loops:  # the loop itself may compute it
        return None
    first = names.carried.get(leaf.loops[0], {}).get(number, ("", argument_names[0,]))[1]
    regular = all(owner == (number, (place,)) for place, owner in enumerate(owners))
    return number if regular and first == argument_names[0,] else None


# ---- Short names


def name_leaves(names: FoldedNames, unnamed: set[int], used_names: set[str]) -> None:
    """Choose the short names of what is not in the tables; `unnamed` leaves need none."""
    for leaf in names.leaves:
        if leaf.counts or leaf.number in unnamed:
            continue
        if leaf.step.step.name not in used_names and leaf.number not in names.shared:
            names.local[leaf.number] = leaf.step.step.name
            used_names.add(leaf.step.step.name)
        else:
            take_from_table(names, leaf.step.step.name)
    used: dict[str, int] = {}
    for leaf in names.leaves:
        if leaf.counts and leaf.number not in {*names.shared, *unnamed} and not leaf.step.step.is_guard:
            names.local[leaf.number] = new_name(base_of(leaf.step.step), used_names, used)
    for carried in names.carried.values():
        for number, (_, first) in carried.items():
            base = f"last_{base_of(names.leaves[number].step.step)}"
            carried[number] = new_name(base, used_names, used), first


def base_of(step: Step) -> str:
    """Return a step's name without the numbers at its end."""
    base = step.name.rstrip("0123456789_")
    return base if base.isidentifier() and len(base) < 40 else step.target.split(".")[1].strip("_")


def new_name(base: str, used_names: set[str], used: dict[str, int]) -> str:
    """Return a name that is not taken yet, and take it."""
    name = base
    while name in used_names:
        used[base] = used.get(base, 0) + 1
        name = f"{base}_{used[base]}"
    used_names.add(name)
    return name


# ---- Functions: what recurs among the steps of one module, such as the backward of every linear layer
# Two stretches have one function if they call the same operators on each other's results in the same way. Sizes may
# differ, and become arguments; so do the numbers in names. A function never extends across two modules.

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
            if all(not any(growth.steps) and growth.start == column[0].start for growth in column):
                continue
            text = rules[0].parts[number]
            for mark, (other, before) in enumerate(function.given_marks):
                if same_growth(column, other) and (before == text or column[0] == other[0]):
                    function.marks[place, what, number] = mark, column[0].start - other[0].start
                    break
            else:
                function.marks[place, what, number] = len(function.given_marks), 0
                function.given_marks.append((column, text))


def same_growth(left: Sequence[Growth], right: Sequence[Growth]) -> bool:
    """Whether numbers differ by the same in each call and each iteration."""
    shapes = [[(growth.start - column[0].start, growth.steps) for growth in column] for column in (left, right)]
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


# ---- What steps have in common


def line_of_program(leaf: Leaf) -> tuple[Any, ...] | None:
    """Return the module of a step, and its line; empty if it has none, None if they follow no rule."""
    source = leaf.step.step.source
    if source is None:
        return ()
    series = {place: part for place, part in leaf.step.series if place.startswith("source.")}
    if any(part.odd for part in series.values()) or set(series) - {"source.module"}:
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


# ---- Lines of functions
#     def linear_backward(x, view, t, size, size_1):
#         view_1: "bf16[4096, {size}]" = aten.view.default(x, [4096, size])  # as view_{a}: gradient of unsafe_view_{b}
#         ...
#         return view_2, t_1
# Sizes are arguments. `a` and `b` are numbers in names: each call has them in a comment.

MODULE = "{module}"
"""Stands for the module of the call in the lines of a function."""

NAMED_AFTER = ("mm", "convolution", "attention", "norm", "softmax", "embedding", "einsum", "rnn", "loss")
"""What an operator's name has in it that names a function; the first counts most."""


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """A function, and the names in its text."""

    function: Function
    name: str
    values: tuple[str, ...]
    sizes: tuple[str, ...]
    locals: tuple[str, ...]
    """Of each step."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One call of a function."""

    named: NamedFunction
    number: int


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """The functions of a folded graph, and their calls."""

    functions: tuple[NamedFunction, ...]
    calls: dict[int, FunctionCall]
    """Leaf at which a call begins -> the call."""
    inside: frozenset[int]
    """The leaves of all calls."""
    finder: Finder


def planned_functions(names: FoldedNames) -> FunctionPlan:
    """Return the functions of a folded graph; choose all short names."""
    finder = Finder(names)
    called = {*RESERVED, *BUILTINS}
    named = [(function, new_name(function_name(function, names), called, {})) for function in finder.functions()]
    used_names = {*RESERVED, *(name for _, name in named)}
    functions = [with_own_names(function, name, names, used_names) for function, name in named]
    calls = {
        start: FunctionCall(function, count)
        for function in functions
        for count, start in enumerate(function.function.calls)
    }
    inside = {start + place for start, call in calls.items() for place in range(call.named.function.length)}
    results = {start + place for start, call in calls.items() for place in call.named.function.results}
    name_leaves(names, inside - results, used_names)
    return FunctionPlan(tuple(functions), calls, frozenset(inside), finder)


def with_own_names(function: Function, name: str, names: FoldedNames, used_names: Iterable[str]) -> NamedFunction:
    """Choose the names in a function."""
    own, used = {*used_names, *MARKS}, dict[str, int]()
    values = tuple(new_name(value_base(function, names, at), own, used) for at in function.given_values)
    sizes = tuple(new_name("size", own, used) for _ in function.given_sizes)
    steps = steps_of_call(function, names, 0)
    return NamedFunction(function, name, values, sizes, tuple(new_name(local_base(step), own, used) for step in steps))


def local_base(step: Step) -> str:
    """Return a short name for a step of a function: a gradient is that of no one layer there."""
    base = base_of(step)
    if not any(letter.isdecimal() for letter in base):
        return base
    return f"grad_{base.rpartition('_')[2]}" if base.startswith("grad_") else step.target.split(".")[1].strip("_")


def steps_of_call(function: Function, names: FoldedNames, number: int) -> list[Step]:
    """Return the steps of a call, each of its first iteration."""
    start = function.calls[number]
    return [leaf.step.step for leaf in names.leaves[start : start + function.length]]


def function_name(function: Function, names: FoldedNames) -> str:
    """Return a name for a function: of its module, if all calls agree, or of its operator."""
    steps = steps_of_call(function, names, 0)
    sources = [names.leaves[start].step.step.source for start in function.calls]
    modules = [re.sub(r"\.\d+(?=\.|$)", "", source.module if source else "") for source in sources]
    base = common_end([module.rpartition(".")[2] for module in modules])
    if not base:
        operators = [step.target.split(".")[1].strip("_") for step in steps if step.target.count(".") > 1]
        base = next((name for part in NAMED_AFTER for name in operators if part in name), [*operators, "part"][0])
    backwards = [step.echo is not None and "gradient" in step.echo.kind for step in steps]
    if 2 * sum(backwards) >= len(steps) and not base.endswith("_backward"):
        base += "_backward"
    return base if base.isidentifier() and base.isascii() else "part"


def value_base(function: Function, names: FoldedNames, at: tuple[int, str]) -> str:
    """Return a name for what the calls give at one place."""
    step, place = at
    values = [dict(places_of(names.leaves[start + step].step.step))[place] for start in function.calls]
    words = {str(name).rstrip("0123456789_").rpartition("_")[2] for name in values}
    base = words.pop()
    return base if not words and base.isidentifier() else "x"


def common_end(texts: Sequence[str]) -> str:
    """Return what all names end with, if that is one of them or has four letters: `norm`."""
    columns = itertools.takewhile(lambda column: len({*column}) == 1, zip(*map(reversed, texts), strict=False))
    end = "".join(column[0] for column in columns)[::-1].lstrip("_0123456789")
    return end if len(end) >= 4 or end in texts else ""


# ---- Lines


def function_lines(plan: FunctionPlan, function: NamedFunction) -> Iterator[str]:
    """Yield the lines of a function."""
    yield f"def {function.name}({', '.join((*function.values, *function.sizes))}):"
    last_line = ""
    for place in range(function.function.length):
        leaf = plan.finder.names.leaves[function.function.calls[0] + place]
        if function.function.has_lines and leaf.step.step.source is not None:
            line = line_pattern(leaf.step.step.source)
            if line != last_line:
                yield f"    {line}"
                last_line = line
        yield f"    {step_line(plan, function, place, leaf)}"
    yield f"    return {', '.join(function.locals[place] for place in function.function.results)}"


def line_pattern(source: Source) -> str:
    """Return the comment of a line of the program; its module is that of the call."""
    line = braced(show_comment(replace(source, module=""), None))
    return f"# [{MODULE}] {line.removeprefix('# ')}" if source.module else line


def step_line(plan: FunctionPlan, named: NamedFunction, place: int, leaf: Leaf) -> str:
    """Return a step of a function as a line."""
    function, start = named.function, named.function.calls[0]
    replacements: dict[str, Any] = {}
    for name, value in places_of(leaf.step.step):
        if (place, name) in function.values:
            replacements[name] = named.values[function.values[place, name]]
        elif (place, name) in function.sizes:
            replacements[name] = Ref(named.sizes[function.sizes[place, name]])
        elif name.startswith(("args.", "kwargs.")) and isinstance(value, str):
            replacements[name] = named.locals[plan.finder.computed_by(leaf, name, value) - start]
    step = with_places(leaf.step.step, replacements)
    call = show_step(replace(step, name="_", spec=None)).removeprefix("_ = ")
    known = f"as {marked(named, place, 'name', plan.finder.name(leaf))}"
    echo = plan.finder.echo(leaf)
    behind = show_behind(known, marked(named, place, "echo", echo) if echo else "", step.source is None)
    spec = spec_of_function(named, place, leaf)
    return f"{named.locals[place]}{f': {quote(spec)}' if spec else ''} = {call}{behind}"


def show_behind(known: str, echo: str, unseen: bool) -> str:
    """Return the comment behind a step: its name, its echo, and whether the program has no line for it."""
    text = ": ".join(part for part in (known, echo) if part) + (";" if unseen else "")
    return f"  # {text}" if text else ""


def marked(function: NamedFunction, place: int, what: str, series: Series) -> str:
    """Return a name or an echo as a pattern of the numbers that calls give."""
    pieces = [braced(series.parts[0])]
    for number, (growth, part) in enumerate(zip(series.numbers, series.parts[1:], strict=True)):
        if (place, what, number) in function.function.marks:
            mark, more = function.function.marks[place, what, number]
            pieces.append(f"{{{MARKS[mark]}{f'{more:+}' if more else ''}}}")
        else:
            pieces.append(str(growth.start))
        pieces.append(braced(part))
    return "".join(pieces)


def spec_of_function(function: NamedFunction, place: int, leaf: Leaf) -> str:
    """Return the type of a step, with its sizes as the calls give them."""
    sizes = function.function.sizes
    spec = leaf.step.step.spec
    if spec is None:
        return ""
    size_texts = [
        f"SIZE_{sizes[place, f'spec.{count}']}_" if (place, f"spec.{count}") in sizes else int(text)
        for count, text in enumerate(sizes_written(leaf))
    ]
    text = braced(show_spec(with_sizes(spec, iter(size_texts))))
    return re.sub(r"SIZE_(\d+)_", lambda size: f"{{{function.sizes[int(size[1])]}}}", text)


# ---- Lines of the body: calls and loops, with comments that say what the flat text says
#     # [layers.{i}.mlp] model.py:12 in forward: return self.down(gelu(self.up(x)))
#     mm: "f32[2, 64]" = aten.mm.default(v[f"view_{8+12*i}"], saved[f"t_{i}"])  # as mm_{3+7*i}: gradient of mm_{i}
# The comment above a step holds for those below it, up to the next one. The comment behind a step has its name in the
# flat graph, its echo, and `;` if the program has no line for it.


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
        expressions: dict[str, Any] = {}
        for place, value in places_of(leaf.step.step):
            if not place.startswith(("args.", "kwargs.")):
                continue
            if isinstance(value, str):
                expressions[place] = self.argument(leaf, place)
            elif place in series:
                expressions[place] = Ref(number_expression(series[place]))
        return with_places(leaf.step.step, expressions)

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


# ---- Annotations and comments


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


# ---- The whole text

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
    functions = [line for function in plan.functions for line in ("", "", *function_lines(plan, function))]
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


# ---- Ports


def port_lines(title: str, ports: Sequence[tuple[str, Port]]) -> Iterator[str]:
    """Yield a list of ports, with those that repeat as a loop.

    In a layer that differs from the others, another value may be saved in the place of one of the same type.
    """
    texts = [f"{name}: {show_port(port)}" for name, port in ports]
    free = [port.role == "saved" and "." not in port.name for _, port in ports]
    rows: list[str] = []
    for is_free in (free, [False] * len(ports)):
        kinds = [
            (
                port.role,
                without_offsets(port.spec),
                () if unused else (divided_text(name)[0], divided_text(port.name)[0]),
            )
            for (name, port), unused in zip(ports, is_free, strict=True)
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
