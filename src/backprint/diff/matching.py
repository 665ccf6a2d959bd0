"""The longest common subsequence of two sequences of numbers (Myers' O(ND) algorithm, in linear space).

Sequences that have little in common would take time with the square of their lengths. Where that begins, the search
continues from the furthest place it has reached, as GNU diff does: the result is a common subsequence, but maybe not
the longest.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from backprint.diff.nouns import PortChange
from backprint.graph.canonical import versions
from backprint.graph.folding.fold import block_of
from backprint.graph.keys import PortKey
from backprint.graph.nouns import (
    Dict,
    Graph,
    List,
    Port,
    Ref,
    ScalarSpec,
    Size,
    Slice,
    Spec,
    Step,
    Sub,
    TensorSpec,
    Value,
    leaves,
    refs,
)
from backprint.graph.steps import used

MOST_EDITS = 128
"""After so many edits without an end, the furthest place is taken."""


def common_places(left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the places of a common subsequence, in no order."""
    shared = set(left) & set(right)
    at_left = [place for place, each in enumerate(left) if each in shared]
    at_right = [place for place, each in enumerate(right) if each in shared]
    a, b = [left[place] for place in at_left], [right[place] for place in at_right]
    waiting = [(0, len(a), 0, len(b))]
    while waiting:
        low, high, start, stop = waiting.pop()
        while low < high and start < stop and a[low] == b[start]:
            yield at_left[low], at_right[start]
            low, start = low + 1, start + 1
        while low < high and start < stop and a[high - 1] == b[stop - 1]:
            high, stop = high - 1, stop - 1
            yield at_left[high], at_right[stop]
        if low < high and start < stop:
            x, y = divided_at(a[low:high], b[start:stop])
            waiting += [(low, low + x, start, start + y), (low + x, high, start + y, stop)]


def divided_at(a: Sequence[int], b: Sequence[int]) -> tuple[int, int]:
    """Return a place in each of two sequences, through which a shortest way from one to the other goes.

    Neither begins nor ends with the same, so the place is not at an end of both.
    """
    n, m = len(a), len(b)
    delta = n - m
    ahead, back = {1: 0}, {1: 0}
    for edits in range((n + m + 1) // 2 + 1):
        for k in range(-edits, edits + 1, 2):
            x = furthest(ahead, k, edits, a, b, 1)
            if delta % 2 and abs(delta - k) < edits and x + back.get(delta - k, -1) >= n and 0 <= x - k <= m:
                return x, x - k
        for k in range(-edits, edits + 1, 2):
            x = furthest(back, k, edits, a, b, -1)
            if not delta % 2 and abs(delta - k) <= edits and x + ahead.get(delta - k, -1) >= n and 0 <= x - k <= m:
                return n - x, m - (x - k)
        if edits >= MOST_EDITS:
            break
    x, y = max(((x, x - k) for k, x in ahead.items() if x <= n and 0 <= x - k <= m), key=sum)
    return x, y


def furthest(reached: dict[int, int], k: int, edits: int, a: Sequence[int], b: Sequence[int], way: int) -> int:
    """Return how far a way of so many edits comes on a diagonal, and remember it; `way` -1 walks from the ends."""
    n, m = len(a), len(b)
    down = k == -edits or (k != edits and reached.get(k - 1, -1) < reached.get(k + 1, -1))
    x = reached.get(k + 1, 0) if down else reached.get(k - 1, -1) + 1
    y = x - k
    while 0 <= y < m and x < n and (a[x] == b[y] if way > 0 else a[n - 1 - x] == b[m - 1 - y]):
        x, y = x + 1, y + 1
    reached[k] = x
    return x


# ----------------------------------------------------------------------------
# Pair the layers of two graphs: the modules up to the last number in their paths.
# ----------------------------------------------------------------------------


def paired_blocks(a: Wired, b: Wired) -> dict[str, str]:
    """Return the layers of the first graph with those of the second.

    A layer of the same name and the same steps is the same. Of the others, those that have the same steps in the same
    order are, so that a layer may be put in front of others; then those of one name; then those that are left, in their
    order, if they call mostly the same operators.
    """
    numbers: dict[tuple[int, ...], int] = {}
    lefts, rights = steps_of_blocks(a, numbers), steps_of_blocks(b, numbers)
    found = {name: name for name, steps in lefts.items() if rights.get(name) == steps}
    one, two = open_names(lefts, rights, found)
    places = common_places([lefts[name] for name in one], [rights[name] for name in two])
    found |= {one[left]: two[right] for left, right in places}
    one, two = open_names(lefts, rights, found)
    found |= {name: name for name in one if name in two}
    one, two = open_names(lefts, rights, found)
    kinds_a, kinds_b = operators_of_blocks(a), operators_of_blocks(b)
    for left in one:
        right = next((name for name in two if mostly_alike(kinds_a[left], kinds_b[name])), None)
        if right is not None:
            found[left] = right
            two = two[two.index(right) + 1 :]
    return found


def steps_of_blocks(graph: Wired, numbers: dict[tuple[int, ...], int]) -> dict[str, int]:
    """Return the layers in the order of their first steps, each with a number for what its steps are."""
    rows: dict[str, list[int]] = defaultdict(list)
    for value in range(graph.first, len(graph.takes)):
        rows[graph.block(value)].append(graph.strict[value])
    return {name: numbers.setdefault(tuple(row), len(numbers)) for name, row in rows.items()}


def operators_of_blocks(graph: Wired) -> dict[str, frozenset[int]]:
    """Return the operators that each layer calls."""
    rows: dict[str, set[int]] = defaultdict(set)
    for value in range(graph.first, len(graph.takes)):
        rows[graph.block(value)].add(graph.loose[value])
    return {name: frozenset(row) for name, row in rows.items()}


def mostly_alike(left: frozenset[int], right: frozenset[int]) -> bool:
    """Whether two layers share at least half of the operators that they call."""
    return 2 * len(left & right) >= len(left | right)


def open_names(
    lefts: Mapping[str, int], rights: Mapping[str, int], found: Mapping[str, str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the layers of both sides that are not paired."""
    taken = set(found.values())
    return [name for name in lefts if name not in found], [name for name in rights if name not in taken]


# ----------------------------------------------------------------------------
# A graph as numbers: what each value is without names, what it takes, and what takes it.
# ----------------------------------------------------------------------------

OUT = -1
"""In place of a step that takes a value: the graph returns it."""

Numbers = dict[Any, int]
"""What was met, each with a number; shared by both graphs, so that equal numbers mean the same."""


@dataclass(frozen=True, slots=True)
class Wired:
    """The values of a graph, its inputs first, then its steps. A value is its number in this order."""

    graph: Graph
    places: Mapping[str, int]
    takes: Sequence[tuple[int, ...]]
    users: Sequence[Sequence[tuple[int, int]]]
    """Of each value what takes it, a value or OUT, and where among that one's arguments, or what port it is."""
    strict: Sequence[int]
    """What a value is: operator, constants and type of a step, role and type of an input."""
    loose: Sequence[int]
    """The same without constants and types."""
    said: Said

    @property
    def first(self) -> int:
        """The value of the first step; those before it are inputs."""
        return len(self.graph.inputs)

    def step_of(self, value: int) -> Step:
        """Return the step that makes a value."""
        return self.graph.steps[value - self.first]

    def module(self, value: int) -> str:
        """Return the module that a value was made in."""
        source = self.step_of(value).source if value >= self.first else None
        return source.module if source is not None else ""

    def block(self, value: int) -> str:
        """Return its module up to the last number: the layer."""
        return block_of(self.step_of(value)) if value >= self.first else ""


def wired(graph: Graph, numbers: Numbers) -> Wired:
    """Return a graph as numbers."""
    first = len(graph.inputs)
    places = {port.local: place for place, port in enumerate(graph.inputs)}
    places |= {step.name: first + place for place, step in enumerate(graph.steps) if not step.is_guard}
    takes: list[tuple[int, ...]] = [()] * first
    users: list[list[tuple[int, int]]] = [[] for _ in range(first + len(graph.steps))]
    for place, step in enumerate(graph.steps, first):
        taken = tuple(places[name] for name in used(step))
        takes.append(taken)
        for count, value in enumerate(taken):
            users[value].append((place, count))
    for port, result in zip(graph.outputs, graph.results, strict=True):
        end = number_of((port.role, port.name if port.role != "saved" else ""), numbers)
        for name in refs(result):
            users[places[name]].append((OUT, end))
    said = Said(graph)
    strict = [number_of((port.role, said.spec(port.spec)), numbers) for port in graph.inputs]
    strict += [number_of(said.step_without_names(step, place), numbers) for place, step in enumerate(graph.steps)]
    loose = [number_of((port.role,), numbers) for port in graph.inputs]
    loose += [number_of((step.target,), numbers) for step in graph.steps]
    return Wired(graph, places, takes, users, strict, loose, said)


def number_of(what: Any, numbers: Numbers) -> int:
    """Return the number of something, a new one if it was not met."""
    return numbers.setdefault(what, len(numbers))


def widened_labels(graph: Wired, labels: Sequence[int], numbers: Numbers) -> list[int]:
    """Return what each value is, together with what its neighbors are."""
    found = []
    for value, label in enumerate(labels):
        below = sorted((labels[user] if user != OUT else OUT, place) for user, place in graph.users[value])
        found.append(number_of((label, tuple(labels[each] for each in graph.takes[value]), tuple(below)), numbers))
    return found


# ---- What stands in a step, without names


class Said:
    """What steps and types are without the names of one graph: symbols are numbered as its inputs and steps use
    them."""

    def __init__(self, graph: Graph) -> None:
        self.hashes = {name: sub.hash() for name, sub in graph.subgraphs}
        self.versions = versions(graph)
        self.symbols = dict.fromkeys((symbol.name for symbol in graph.symbols), "")
        self.used = 0

    def step_without_names(self, step: Step, place: int) -> Any:
        """Return the operator of a step, its arguments without names, its type, how often the values that it takes were
        changed before, and its subgraphs."""
        changed = tuple(self.versions.get((place, name), 0) for name in used(step)) if self.versions else ()
        called = tuple(self.hashes[name] for name in subgraphs_of(step)) if self.hashes else ()
        return step.target, self.arguments(step), self.spec(step.spec), changed if any(changed) else (), called

    def arguments(self, step: Step) -> Any:
        """Return the constants of a step, each with its place."""
        return tuple(map(self.value, step.args)), tuple((key, self.value(value)) for key, value in step.kwargs)

    def value(self, value: Value) -> Any:
        """Return an argument without names. Texts tell True from 1, -0.0 from 0.0, and find nan equal to itself."""
        match value:
            case Ref():
                return "*"
            case Sub():
                return "sub"  # which one, `step_without_names` tells apart
            case tuple():
                return ("tuple", *map(self.value, value))
            case List(items):
                return ("list", *map(self.value, items))
            case Slice(start, stop, step):
                return ("slice", self.value(start), self.value(stop), self.value(step))
            case Dict(items):
                return ("dict", *((self.value(key), self.value(item)) for key, item in items))
        return type(value).__name__, repr(value)

    def spec(self, spec: Spec) -> Any:
        """Return a type without the names of symbols."""
        if not self.symbols:
            return spec
        match spec:
            case tuple():
                return tuple(map(self.spec, spec))
            case ScalarSpec(kind, expression) if expression:
                return kind, self.size(expression)
            case TensorSpec(dtype, shape, stride, offset, device, layout) if symbolic(spec):
                strides = None if stride is None else tuple(map(self.size, stride))
                return dtype, tuple(map(self.size, shape)), strides, self.size(offset), device, layout
        return spec

    def size(self, size: Size) -> Size:
        """Return a size with symbols by number."""
        return re.sub(r"[A-Za-z_]\w*", self.renamed, size) if isinstance(size, str) else size

    def renamed(self, found: re.Match[str]) -> str:
        if self.symbols.get(found[0]) == "":
            self.symbols[found[0]] = f"${self.used}"
            self.used += 1
        return self.symbols.get(found[0], found[0])


def symbolic(spec: TensorSpec) -> bool:
    """Whether a type has sizes that are not numbers."""
    return any(isinstance(size, str) for size in (*spec.shape, *(spec.stride or ()), spec.offset))


def subgraphs_of(step: Step) -> list[str]:
    """Return the subgraphs that a step calls, in the order of its arguments."""
    values = (*step.args, *(value for _, value in step.kwargs))
    return [leaf.name for value in values for leaf in leaves(value) if isinstance(leaf, Sub)]


# ----------------------------------------------------------------------------
# Match the values of two graphs: which step of one is which step of the other.
#
# Names of values do not count. A step is matched if it is the only one of its kind with its neighbors, or the same
#  call of matched values; then, layer by layer, in the order of steps, those first whose neighbors are alike. Each
#  match is spread to what its step takes and to what takes it. Modules are kept apart, as long as both graphs have
#  them; only then steps are matched across modules. At last, a step in the place of another is that step, changed.
# ----------------------------------------------------------------------------

Labels: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""What each value of both graphs is, as numbers."""

Echoes: TypeAlias = Mapping[str, int]
"""Names of the forward's steps, with a number that both sides' matched steps share."""

Echoed: TypeAlias = tuple[str, frozenset[int]]
"""The kind of an echo, and the steps of the second forward that it names."""

FEW = 8
"""How many equal calls of the same values are compared by their surroundings."""

ROUNDS = 8
"""How often values are told apart by what was matched before."""

MOST_USERS = 256
"""A value that more steps take says little about any of them."""


class Matching:
    """The values of two graphs that are matched so far."""

    def __init__(self, a: Wired, b: Wired, numbers: Numbers) -> None:
        self.a, self.b, self.numbers = a, b, numbers
        self.to_b: dict[int, int] = {}
        self.to_a: dict[int, int] = {}
        self.blocks: dict[str, str] = {}
        self.modules: tuple[Sequence[str], Sequence[str]] = ([], [])
        """The module of each value, in words of the second graph."""
        self.shared: frozenset[str] | None = None
        """Modules that both graphs have: none of their steps is matched with a step of another module."""

        self.echoed: tuple[Mapping[int, Echoed], Mapping[int, Echoed]] = ({}, {})
        """Of each step whose echo is known: what it computes, and of which steps."""

    def keep_echoes(self, echoes: tuple[Echoes, Echoes]) -> None:
        """Match no more steps that compute the gradients of different steps, from now on."""
        self.echoed = echoed_steps(self.a, echoes[0]), echoed_steps(self.b, echoes[1])

    def keep_modules(self) -> None:
        """Match only steps of modules that may be the same, from now on."""
        self.blocks = paired_blocks(self.a, self.b)
        one = [self.module_in_b(value) for value in range(len(self.a.takes))]
        two = [self.b.module(value) for value in range(len(self.b.takes))]
        self.modules = one, two
        self.shared = frozenset(one[self.a.first :]) & frozenset(two[self.b.first :])

    def module_in_b(self, a: int) -> str:
        """Return the module of a value of the first graph, in the layer of the second that is paired with its own."""
        block, module = self.a.block(a), self.a.module(a)
        return self.blocks.get(block, block) + module[len(block) :]

    def group(self, side: int, value: int) -> str:
        """Return the module of a value if both graphs have it, else an empty text: steps of two groups are kept
        apart."""
        module = self.modules[side][value]
        return module if self.shared is not None and module in self.shared else ""

    def akin(self, a: int, b: int) -> bool:
        """Whether two values may be matched, as far as their modules and their echoes go."""
        if self.shared is None or a < self.a.first or b < self.b.first:
            return True
        one, two = self.echoed[0].get(a), self.echoed[1].get(b)
        if one is not None and two is not None and one[0] == two[0] and one[1].isdisjoint(two[1]):
            return False
        return self.group(0, a) == self.group(1, b)

    def join(self, a: int, b: int) -> None:
        """Match two values."""
        self.to_b[a], self.to_a[b] = b, a

    def open_both(self, a: int, b: int) -> bool:
        """Whether two values may be matched, and neither of them is."""
        return a not in self.to_b and b not in self.to_a and self.akin(a, b)

    def left(self) -> tuple[list[int], list[int]]:
        """Return the steps of both graphs that are not matched."""
        return (
            [value for value in range(self.a.first, len(self.a.takes)) if value not in self.to_b],
            [value for value in range(self.b.first, len(self.b.takes)) if value not in self.to_a],
        )

    def taken_by(self, a: int) -> tuple[int, ...] | None:
        """Return what a step takes, as values of the second graph; None if some of it is not matched."""
        found = tuple(self.to_b.get(each, -1) for each in self.a.takes[a])
        return None if -1 in found else found


def echoed_steps(graph: Wired, echoes: Echoes) -> dict[int, Echoed]:
    """Return the echoes of a graph's steps, those that name only steps which both forwards have."""
    found = {}
    for place, step in enumerate(graph.graph.steps, graph.first):
        if step.echo is not None and all(name in echoes for name in step.echo.names):
            found[place] = step.echo.kind, frozenset(echoes[name] for name in step.echo.names)
    return found


def match_steps(found: Matching, echoes: tuple[Echoes, Echoes]) -> None:
    """Match the steps of two graphs, some inputs of which are matched already."""
    strict: Labels = found.a.strict, found.b.strict
    loose: Labels = found.a.loose, found.b.loose
    found.keep_modules()
    found.keep_echoes(echoes)
    for _ in range(ROUNDS):  # each match may tell more values apart
        count = len(found.to_b)
        by_neighbors(found, strict)
        spread_matches(found, strict, list(found.to_b))
        if len(found.to_b) == count:
            break
    downward(found, strict)
    by_echo(found, strict, echoes)
    spread_matches(found, strict, list(found.to_b))
    for labels in (strict, loose):
        wide = [labels]
        for _ in range(2):
            wide.append(wider(found, wide[-1]))
        for each in reversed(wide):
            in_blocks(found, each)
            downward(found, labels)
            spread_matches(found, labels, list(found.to_b))
    unsupported(found)
    replaced(found)
    found.shared = None
    downward(found, strict)
    in_row(found, wider(found, wider(found, strict)), *found.left())
    spread_matches(found, strict, list(found.to_b))
    unsupported(found)
    replaced(found)


def wider(found: Matching, labels: Labels) -> Labels:
    """Return what each value is together with its neighbors."""
    return widened_labels(found.a, labels[0], found.numbers), widened_labels(found.b, labels[1], found.numbers)


# ---- The same call of the same values


def downward(found: Matching, labels: Labels) -> None:
    """Match steps that make the same call of matched values. Of several, those in one module that have the same users,
    in their order."""
    index: dict[tuple[int, tuple[int, ...], str], list[int]] = defaultdict(list)
    lefts, rights = found.left()
    for b in reversed(rights):
        index[labels[1][b], found.b.takes[b], found.group(1, b)].append(b)
    for a in lefts:
        taken = found.taken_by(a)
        several = index.get((labels[0][a], taken, found.group(0, a)), []) if taken is not None else []
        if several:
            b = min(several[-FEW:], key=lambda b: unlikeness(found, a, b))
            several.remove(b)
            found.join(a, b)


def unlikeness(found: Matching, a: int, b: int) -> tuple[bool, int, int]:
    """Return how unlike two equal calls are in their surroundings."""
    takes, _, users, _ = agreement(found, a, b, surely=True)
    return found.modules[0][a] != found.modules[1][b], -takes - users, b


def by_neighbors(found: Matching, labels: Labels) -> None:
    """Match steps that are the only ones of their kind with these neighbors, in their module: a neighbor is known by
    what it is matched with, else by what it is."""
    keys = [neighbor_keys(found, side, labels[side], values) for side, values in enumerate(found.left())]
    for key, lefts in keys[0].items():
        rights = keys[1].get(key, ())
        if len(lefts) == len(rights) == 1 and found.open_both(lefts[0], rights[0]):
            found.join(lefts[0], rights[0])


def neighbor_keys(
    found: Matching, side: int, labels: Sequence[int], values: Sequence[int]
) -> dict[tuple[object, ...], list[int]]:
    """Return steps by what they are and by their neighbors."""
    graph = (found.a, found.b)[side]

    def known(value: int) -> int:
        other = value if side and value in found.to_a else found.to_b.get(value, -1) if not side else -1
        return -2 - other if other >= 0 else labels[value]

    table: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for value in values:
        takes = tuple(map(known, graph.takes[value]))
        below = tuple(sorted((known(user) if user != OUT else OUT, place) for user, place in graph.users[value]))
        table[labels[value], takes, below, found.group(side, value)].append(value)
    return table


def by_echo(found: Matching, labels: Labels, echoes: tuple[Echoes, Echoes]) -> None:
    """Match steps that are the only ones of their kind that compute the gradient of the same step, in one module."""
    keys: list[dict[tuple[object, ...], list[int]]] = []
    for graph, side, each, values in zip((found.a, found.b), labels, echoes, found.left(), strict=True):
        table: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for value in values:
            echo = graph.step_of(value).echo
            if echo is not None:
                names = tuple(each.get(name, -1) for name in echo.names)
                table[side[value], echo.kind, names, graph.module(value)].append(value)
        keys.append(table)
    for key, lefts in keys[0].items():
        rights = keys[1].get(key, [])
        if len(lefts) == len(rights) == 1:
            found.join(lefts[0], rights[0])


# ---- The order of steps


def in_blocks(found: Matching, labels: Labels) -> None:
    """Match steps in their order, layer by layer. Equal layers are compared once."""
    rows: list[dict[str, list[int]]] = [defaultdict(list), defaultdict(list)]
    for graph, row, values in zip((found.a, found.b), rows, found.left(), strict=True):
        for value in values:
            row[graph.block(value)].append(value)
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, int]]] = {}
    for block, lefts in rows[0].items():
        other = found.blocks.get(block)
        rights = rows[1].get(other, []) if other is not None else []
        one, two = sequence(found, 0, labels, lefts, block), sequence(found, 1, labels, rights, other or "")
        places = known.get((one, two))
        if places is None:
            places = known[one, two] = list(common_places(one, two))
        for left, right in places:
            found.join(lefts[left], rights[right])


def sequence(found: Matching, side: int, labels: Labels, values: Sequence[int], block: str) -> tuple[int, ...]:
    """Return what the steps of a layer are, and in which of its modules."""
    graph = (found.a, found.b)[side]
    return tuple(number_of((labels[side][each], graph.module(each)[len(block) :]), found.numbers) for each in values)


def in_row(found: Matching, labels: Labels, lefts: Sequence[int], rights: Sequence[int]) -> None:
    """Match steps in their order, in whatever modules they are."""
    one, two = [labels[0][each] for each in lefts], [labels[1][each] for each in rights]
    for left, right in common_places(one, two):
        found.join(lefts[left], rights[right])


# ---- Neighbors of what is matched


def spread_matches(found: Matching, labels: Labels, waiting: list[int]) -> None:
    """Match what matched steps take, and what takes them, as far as it is alike."""
    while waiting:
        a = waiting.pop()
        b = found.to_b[a]
        for left, right in zip(found.a.takes[a], found.b.takes[b], strict=False):
            if labels[0][left] == labels[1][right] and found.open_both(left, right):
                found.join(left, right)
                waiting.append(left)
        for left, right in matching_users(found, labels, a, b):
            if found.open_both(left, right):
                found.join(left, right)
                waiting.append(left)


def matching_users(found: Matching, labels: Labels, a: int, b: int) -> Iterable[tuple[int, int]]:
    """Yield open users of two matched values that are the only ones of their kind."""
    lefts, rights = open_users(found.a, labels[0], a, found.to_b), open_users(found.b, labels[1], b, found.to_a)
    for kind in lefts.keys() & rights.keys() if lefts and rights else ():
        if len(lefts[kind]) == len(rights[kind]) == 1:
            yield lefts[kind][0], rights[kind][0]


def open_users(
    graph: Wired, labels: Sequence[int], value: int, done: Mapping[int, int]
) -> dict[tuple[int, int], list[int]]:
    """Return the users of a value that are not matched, by what they are and where they take it."""
    kinds: dict[tuple[int, int], list[int]] = defaultdict(list)
    for user, place in graph.users[value]:
        if user != OUT and user not in done:
            kinds[labels[user], place].append(user)
    return kinds


# ---- What stands in the place of another


def agreement(found: Matching, a: int, b: int, surely: bool = False) -> tuple[int, int, int, int]:
    """Return how many arguments of two steps are matched with each other, of how many; and the same of their users.

    Values that neither has a match for may be each other's: without `surely` they agree.
    """
    lefts, rights = found.a.takes[a], found.b.takes[b]
    takes = sum(agree(found, left, right, surely) for left, right in zip(lefts, rights, strict=False))
    one = [(found.to_b.get(user, -2) if user != OUT else OUT, place) for user, place in found.a.users[a]]
    two = [(user if user == OUT or user in found.to_a else -2, place) for user, place in found.b.users[b]]
    if surely:
        one, two = [each for each in one if each[0] != -2], [each for each in two if each[0] != -2]
    users = sum(min(one.count(each), two.count(each)) for each in set(one)) if len(one) + len(two) <= MOST_USERS else 0
    return takes, max(len(lefts), len(rights)), users, max(len(found.a.users[a]), len(found.b.users[b]))


def agree(found: Matching, left: int, right: int, surely: bool) -> bool:
    """Whether two arguments are matched with each other."""
    return found.to_b.get(left) == right or (not surely and found.open_both(left, right))


def unsupported(found: Matching) -> None:
    """Take back matches of steps that have matched neighbors, none of which is matched with one of the other's."""
    alone = []
    for a, b in found.to_b.items():
        if a >= found.a.first:
            takes, _, users, _ = agreement(found, a, b, surely=True)
            if not takes + users and (any_done(found.a, a, found.to_b) or any_done(found.b, b, found.to_a)):
                alone.append((a, b))
    for a, b in alone:
        del found.to_b[a], found.to_a[b]


def any_done(graph: Wired, value: int, done: Mapping[int, int]) -> bool:
    """Whether a neighbor of a step is matched."""
    return any(each in done for each in graph.takes[value]) or any(user in done for user, _ in graph.users[value])


def replaced(found: Matching) -> None:
    """Match what is left where a step stands in the place of another: it takes exactly the same, and the same takes it;
    or it calls the same operator beside a step that both have."""
    strict: Labels = found.a.strict, found.b.strict
    for _ in range(ROUNDS):
        count = len(found.to_b)
        lefts, rights = found.left()
        offered = set(rights)
        for a in lefts:  # in their order, so that what takes a replaced step is seen after it
            pairs = [rated for b in candidates(found, a, offered) if (rated := rating(found, a, b)) is not None]
            if pairs:
                b = max(pairs)[-1]
                found.join(a, b)
                offered.discard(b)
                spread_matches(found, strict, [a])
        if len(found.to_b) == count:
            break


def rating(found: Matching, a: int, b: int) -> tuple[bool, int, int, int, int] | None:
    """Return how sure it is that a step stands in the place of another; None if it does not."""
    if not found.open_both(a, b):
        return None
    takes, of_takes, users, of_users = agreement(found, a, b)
    sure = agreement(found, a, b, surely=True)
    alike = found.a.loose[a] == found.b.loose[b]
    if (sure[0] == of_takes and users == of_users) or (alike and sure[0] + sure[2]):
        return alike, sure[0] + sure[2], takes + users, -abs(a - b), b
    return None


def candidates(found: Matching, a: int, offered: set[int]) -> set[int]:
    """Return open steps of the second graph that take what a step takes, or are taken where it is."""
    near: set[int] = set()
    for each in found.a.takes[a]:
        users = found.b.users[found.to_b[each]] if each in found.to_b else ()
        near.update(user for user, _ in (users if len(users) <= MOST_USERS else ()) if user in offered)
    for user, place in found.a.users[a][:MOST_USERS]:
        if user in found.to_b and place < len(found.b.takes[found.to_b[user]]):
            near.add(found.b.takes[found.to_b[user]][place])
    return near & offered


# ----------------------------------------------------------------------------
# Match the ports of two graphs: inputs before and after their steps, outputs after them.
# ----------------------------------------------------------------------------


class Forward:
    """What the forwards of a Pair say of its backwards: names that are one and the same, with other letters."""

    def __init__(self, found: Matching | None = None) -> None:
        self.saved: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
        self.echoes: tuple[Echoes, Echoes] = ({}, {})
        if found is None:
            return
        one, two = saved_values(found.a), saved_values(found.b)
        for value, names in one.items():
            self.saved |= dict(zip(names, two.get(found.to_b.get(value, -1), ()), strict=False))
        for a, b in found.to_b.items():
            if a < found.a.first:
                self.renamed[found.a.graph.inputs[a].name] = found.b.graph.inputs[b].name
        self.echoes = (
            {name: found.to_b[value] for name, value in found.a.places.items() if value in found.to_b},
            dict(found.b.places),
        )


def saved_values(graph: Wired) -> dict[int, list[str]]:
    """Return the names under which each value of a forward is saved."""
    found: dict[int, list[str]] = defaultdict(list)
    for port, result in zip(graph.graph.outputs, graph.graph.results, strict=True):
        if port.role == "saved":
            for name in refs(result):
                found[graph.places[name]].append(port.name)
    return found


def match_inputs(found: Matching, forward: Forward, strictly: bool) -> None:
    """Match inputs of one role and name; `strictly`: of one type, too."""
    places = {port.key: place for place, port in enumerate(found.b.graph.inputs)}
    for a, port in enumerate(found.a.graph.inputs):
        names = forward.saved if port.role == "saved" else forward.renamed
        said = names.get(port.name, port.name if port.role != "saved" else "")
        for name in (said, port.name) if port.role != "saved" else (said,):
            b = places.get(port.key._replace(name=name))
            if b is not None and found.open_both(a, b) and (not strictly or found.a.strict[a] == found.b.strict[b]):
                found.join(a, b)


def input_changes(found: Matching) -> Iterator[PortChange]:
    """Yield the inputs that are not the same in both graphs."""
    before, after = found.a.graph.inputs, found.b.graph.inputs
    for a, port in enumerate(before):
        b = found.to_b.get(a)
        if b is None:
            yield PortChange(True, a, None)
        elif parts := port_parts(port, after[b], found.a.strict[a] == found.b.strict[b]):
            yield PortChange(True, a, b, parts)
    yield from (PortChange(True, None, b) for b in range(len(after)) if b not in found.to_a)


def port_parts(before: Port, after: Port, alike: bool, value: bool = True) -> tuple[str, ...]:
    """Return what differs between two ports. Saved values are named by their steps, so their names do not count."""
    named = before.name != after.name and "saved" not in (before.role, after.role)
    said = (named, "name"), (before.role != after.role, "role"), (not alike, "type"), (not value, "value")
    return tuple(part for differs, part in said if differs)


def matched_outputs(found: Matching, forward: Forward) -> dict[int, int]:
    """Return the outputs that both graphs have, by number: of one role and name, else of one role and value."""
    before, after = found.a.graph, found.b.graph
    places: dict[PortKey, int] = {}
    for b, port in enumerate(after.outputs):
        if port.role != "saved":
            places.setdefault(port.key, b)
    made: dict[int, int] = {}
    for a, port in enumerate(before.outputs):
        for name in (forward.renamed.get(port.name, port.name), port.name):
            key = port.key._replace(name=name)
            if key in places and a not in made:
                made[a] = places.pop(key)
    taken = set(made.values())
    values: dict[Any, list[int]] = defaultdict(list)
    for b, port in enumerate(after.outputs):
        if b not in taken:
            values[port.role, places_in(after, b, found.b)].append(b)
    for a, port in enumerate(before.outputs):
        offered = values.get((port.role, mapped_places(found, a)), ()) if a not in made else ()
        if offered:
            made[a] = offered.pop(0)
    return made


def places_in(graph: Graph, output: int, values: Wired) -> tuple[int, ...]:
    """Return the values that an output gives."""
    return tuple(values.places[name] for name in refs(graph.results[output]))


def mapped_places(found: Matching, output: int) -> tuple[int, ...]:
    """Return the values of the second graph that are those of an output of the first; -2 where there is none."""
    return tuple(found.to_b.get(value, -2) for value in places_in(found.a.graph, output, found.a))


def output_changes(found: Matching, outputs: Mapping[int, int]) -> Iterator[PortChange]:
    """Yield the outputs that are not the same in both graphs."""
    before, after = found.a.graph, found.b.graph
    for a, port in enumerate(before.outputs):
        b = outputs.get(a)
        if b is None:
            yield PortChange(False, a, None)
            continue
        other = after.outputs[b]
        alike = found.a.said.spec(port.spec) == found.b.said.spec(other.spec)
        value = mapped_places(found, a) == places_in(after, b, found.b)
        value = value and found.a.said.value(before.results[a]) == found.b.said.value(after.results[b])
        if parts := port_parts(port, other, alike, value):
            yield PortChange(False, a, b, parts)
    taken = set(outputs.values())
    yield from (PortChange(False, None, b) for b in range(len(after.outputs)) if b not in taken)
