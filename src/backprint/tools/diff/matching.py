"""Match the values and ports of two graphs: which step of one is which step of the other.

Names of values do not count, and neither does the order of independent steps. `match_steps` is the algorithm. It works
on graphs as numbers (`Wired`): a value is its place, and its operator and type are a label. Matches that are certain
come first, because each one tells more values apart:

1. Steps that are the only ones with their label and their neighbors' (`_match_unique_steps`); from these, matches
   spread along the arguments and users of matched steps (`_spread_matches`).
2. Steps that make the same call of matched values (`_match_equal_calls`), or are the only gradient of the same step of
   the forward (`_match_by_echo`).
3. The rest in the order of steps, layer by layer (`_match_in_layers`): a longest common subsequence, first of steps
   whose neighbors are alike too, then of steps alone.
4. Steps that stand in the place of another (`_match_replaced`): `gelu` for `relu` between the same two layers.

Modules are kept apart as long as both graphs have them. Only at the end are steps matched across modules.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
from backprint.tools.diff.nouns import PortChange

# ---- The longest common subsequence of two sequences of numbers (Myers' O(ND) algorithm, in linear space)
# Sequences that have little in common would take time with the square of their lengths. Where that begins, the search
# continues from the furthest place it has reached, as GNU diff does: the result is a common subsequence,
# but maybe not the longest.

MOST_EDITS = 128
"""After so many edits without an end, the search continues from the furthest place."""


def common_places(left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the places of a common subsequence, in no order."""
    shared = set(left) & set(right)
    at_left = [place for place, number in enumerate(left) if number in shared]
    at_right = [place for place, number in enumerate(right) if number in shared]
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
            x, y = _divided_at(a[low:high], b[start:stop])
            waiting += [(low, low + x, start, start + y), (low + x, high, start + y, stop)]


def _divided_at(a: Sequence[int], b: Sequence[int]) -> tuple[int, int]:
    """Return a place in each of two sequences, through which a shortest edit of one into the other passes.

    The sequences begin and end with different numbers, so the place is not at an end of both. The search runs from both
    ends, by diagonals `k = x - y`; where the two meet is such a place.
    """
    n, m = len(a), len(b)
    delta = n - m
    ahead, back = {1: 0}, {1: 0}
    for edits in range((n + m + 1) // 2 + 1):
        for k in range(-edits, edits + 1, 2):
            x = _furthest_on_diagonal(ahead, k, edits, a, b, 1)
            if delta % 2 and abs(delta - k) < edits and x + back.get(delta - k, -1) >= n and 0 <= x - k <= m:
                return x, x - k
        for k in range(-edits, edits + 1, 2):
            x = _furthest_on_diagonal(back, k, edits, a, b, -1)
            if not delta % 2 and abs(delta - k) <= edits and x + ahead.get(delta - k, -1) >= n and 0 <= x - k <= m:
                return n - x, m - (x - k)
        if edits >= MOST_EDITS:
            break
    x, y = max(((x, x - k) for k, x in ahead.items() if x <= n and 0 <= x - k <= m), key=sum)
    return x, y


def _furthest_on_diagonal(
    reached: dict[int, int], k: int, edits: int, a: Sequence[int], b: Sequence[int], way: int
) -> int:
    """Return how far a way of so many edits comes on a diagonal, and remember it; `way` -1 walks from the ends."""
    n, m = len(a), len(b)
    down = k == -edits or (k != edits and reached.get(k - 1, -1) < reached.get(k + 1, -1))
    x = reached.get(k + 1, 0) if down else reached.get(k - 1, -1) + 1
    y = x - k
    while 0 <= y < m and x < n and (a[x] == b[y] if way > 0 else a[n - 1 - x] == b[m - 1 - y]):
        x, y = x + 1, y + 1
    reached[k] = x
    return x


# ---- Layers: the modules up to the last number in their paths


def _paired_blocks(a: Wired, b: Wired, of_forward: Mapping[str, str]) -> dict[str, str]:
    """Return the layers of the first graph with those of the second.

    The layers of a backward are paired as those of its forward are. Of the others, those with one name and equal steps
    are paired first. If a layer was put in front of the others, all names move by
    one: so layers with equal steps are paired next, in their order, whatever their names. Then come layers of one name,
    whose steps changed; and of the rest, in their order, those that call mostly the same operators.
    """
    numbers: dict[tuple[int, ...], int] = {}
    lefts, rights = _steps_of_blocks(a, numbers), _steps_of_blocks(b, numbers)
    pairs = {left: right for left, right in of_forward.items() if left in lefts and right in rights}
    open_a, open_b = _unpaired_names(lefts, rights, pairs)
    pairs |= {name: name for name in open_a if name in open_b and lefts[name] == rights[name]}
    open_a, open_b = _unpaired_names(lefts, rights, pairs)
    places = common_places([lefts[name] for name in open_a], [rights[name] for name in open_b])
    pairs |= {open_a[left]: open_b[right] for left, right in places}
    open_a, open_b = _unpaired_names(lefts, rights, pairs)
    pairs |= {name: name for name in open_a if name in open_b}
    open_a, open_b = _unpaired_names(lefts, rights, pairs)
    kinds_a, kinds_b = _operators_of_blocks(a), _operators_of_blocks(b)
    for left in open_a:
        right = next((name for name in open_b if _mostly_alike(kinds_a[left], kinds_b[name])), None)
        if right is not None:
            pairs[left] = right
            open_b = open_b[open_b.index(right) + 1 :]
    return pairs


def _steps_of_blocks(graph: Wired, numbers: dict[tuple[int, ...], int]) -> dict[str, int]:
    """Return the layers in the order of their first steps, each with a number for what its steps are."""
    rows: dict[str, list[int]] = defaultdict(list)
    for value in range(graph.first, len(graph.takes)):
        rows[graph.block(value)].append(graph.strict[value])
    return {name: numbers.setdefault(tuple(row), len(numbers)) for name, row in rows.items()}


def _operators_of_blocks(graph: Wired) -> dict[str, frozenset[int]]:
    """Return the operators that each layer calls."""
    rows: dict[str, set[int]] = defaultdict(set)
    for value in range(graph.first, len(graph.takes)):
        rows[graph.block(value)].add(graph.loose[value])
    return {name: frozenset(row) for name, row in rows.items()}


def _mostly_alike(left: frozenset[int], right: frozenset[int]) -> bool:
    """Whether two layers share at least half of the operators that they call."""
    return 2 * len(left & right) >= len(left | right)


def _unpaired_names(
    lefts: Mapping[str, int], rights: Mapping[str, int], pairs: Mapping[str, str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the layers of both sides that are not paired."""
    paired_names = set(pairs.values())
    return [name for name in lefts if name not in pairs], [name for name in rights if name not in paired_names]


# ---- A graph as numbers

OUT = -1
"""In place of a step that takes a value: the graph returns it."""

Numbers = dict[Any, int]
"""Labels by what they stand for. Both graphs share one table, so equal numbers mean the same."""


@dataclass(frozen=True, slots=True)
class Wired:
    """The values of a graph, its inputs first, then its steps. A value is its number in this order."""

    graph: Graph
    places: Mapping[str, int]
    takes: Sequence[tuple[int, ...]]
    users: Sequence[Sequence[tuple[int, int]]]
    """The users of each value: the user's number and the place among its arguments, or OUT and the number of a port."""
    strict: Sequence[int]
    """A label for each value: operator, constants and type of a step, role and type of an input."""
    loose: Sequence[int]
    """A label for each value without constants and types: the operator of a step, the role of an input."""
    nameless: _NamelessForms

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
        arguments = tuple(places[name] for name in used(step))
        takes.append(arguments)
        for count, value in enumerate(arguments):
            users[value].append((place, count))
    for port, result in zip(graph.outputs, graph.results, strict=True):
        end = number_of((port.role, port.name if port.role != "saved" else ""), numbers)
        for name in refs(result):
            users[places[name]].append((OUT, end))
    nameless = _NamelessForms(graph)
    strict = [number_of((port.role, nameless.spec(port.spec)), numbers) for port in graph.inputs]
    strict += [number_of(nameless.step_without_names(step, place), numbers) for place, step in enumerate(graph.steps)]
    loose = [number_of((port.role,), numbers) for port in graph.inputs]
    loose += [number_of((step.target,), numbers) for step in graph.steps]
    return Wired(graph, places, takes, users, strict, loose, nameless)


def number_of(what: Any, numbers: Numbers) -> int:
    """Return the label of something, a new one if the table does not have it."""
    return numbers.setdefault(what, len(numbers))


def _labels_with_neighbors(graph: Wired, labels: Sequence[int], numbers: Numbers) -> list[int]:
    """Return a label for each value that includes the labels of its arguments and users."""
    widened = []
    for value, label in enumerate(labels):
        users = sorted((labels[user] if user != OUT else OUT, place) for user, place in graph.users[value])
        widened.append(
            number_of((label, tuple(labels[argument] for argument in graph.takes[value]), tuple(users)), numbers)
        )
    return widened


# ---- What stands in a step, without names


class _NamelessForms:
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

    def renamed(self, match: re.Match[str]) -> str:
        if self.symbols.get(match[0]) == "":
            self.symbols[match[0]] = f"${self.used}"
            self.used += 1
        return self.symbols.get(match[0], match[0])


def symbolic(spec: TensorSpec) -> bool:
    """Whether a type has sizes that are not numbers."""
    return any(isinstance(size, str) for size in (*spec.shape, *(spec.stride or ()), spec.offset))


def subgraphs_of(step: Step) -> list[str]:
    """Return the subgraphs that a step calls, in the order of its arguments."""
    values = (*step.args, *(value for _, value in step.kwargs))
    return [leaf.name for value in values for leaf in leaves(value) if isinstance(leaf, Sub)]


# ---- Steps

Labels: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""A label for each value of both graphs."""

Echoes: TypeAlias = Mapping[str, int]
"""Names of the forward's steps, with a number that both sides' matched steps share."""

Items: TypeAlias = Mapping[str, tuple[str, int]]
"""Steps that take one result of several, by name: the step that has these, and the number of the result."""

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
        """The module of each value; those of the first graph have the names that they have in the second."""
        self.shared: frozenset[str] | None = None
        """Modules that both graphs have: none of their steps is matched with a step of another module."""

        self.echoed: tuple[Mapping[int, Echoed], Mapping[int, Echoed]] = ({}, {})
        """The echoes of the steps of a backward that are known: the kind, and the steps of the forward."""

    def keep_echoes(self, echoes: tuple[Echoes, Echoes]) -> None:
        """From now on, match no steps that compute gradients of different steps of the forward.

        In the backward of `x.sin() + x.cos()`, both gradients are a `mul` with the tangent. Without their echoes, the
        order in which a program calls the two functions would decide which is which.
        """
        self.echoed = _echoed_steps(self.a, echoes[0]), _echoed_steps(self.b, echoes[1])

    def keep_modules(self, forward: Forward) -> None:
        """From now on, match only steps of one module, or of modules that only one graph has.

        The modules of a backward are paired as those of its forward are: a wrapper around a layer puts a name into the
        paths of all modules inside.
        """
        self.blocks = _paired_blocks(self.a, self.b, forward.blocks)
        modules_a = [
            forward.modules.get(self.a.module(value)) or self.module_in_b(value) for value in range(len(self.a.takes))
        ]
        modules_b = [self.b.module(value) for value in range(len(self.b.takes))]
        self.modules = modules_a, modules_b
        self.shared = frozenset(modules_a[self.a.first :]) & frozenset(modules_b[self.b.first :])

    def module_in_b(self, a: int) -> str:
        """Return the module of a value of the first graph, in the layer of the second that is paired with its own."""
        block, module = self.a.block(a), self.a.module(a)
        return self.blocks.get(block, block) + module[len(block) :]

    def group(self, side: int, value: int) -> str:
        """Return the module of a value if both graphs have it, else an empty text: steps of two groups are kept
        apart."""
        module = self.modules[side][value]
        return module if self.shared is not None and module in self.shared else ""

    def may_match(self, a: int, b: int) -> bool:
        """Whether two values may be matched, as far as their modules and their echoes go."""
        if self.shared is None or a < self.a.first or b < self.b.first:
            return True
        echo_a, echo_b = self.echoed[0].get(a), self.echoed[1].get(b)
        if echo_a is not None and echo_b is not None and echo_a[0] == echo_b[0] and echo_a[1].isdisjoint(echo_b[1]):
            return False
        return self.group(0, a) == self.group(1, b)

    def join(self, a: int, b: int) -> None:
        """Match two values."""
        self.to_b[a], self.to_a[b] = b, a

    def open_both(self, a: int, b: int) -> bool:
        """Whether two values may be matched, and neither of them is."""
        return a not in self.to_b and b not in self.to_a and self.may_match(a, b)

    def unmatched(self) -> tuple[list[int], list[int]]:
        """Return the steps of both graphs that are not matched."""
        return (
            [value for value in range(self.a.first, len(self.a.takes)) if value not in self.to_b],
            [value for value in range(self.b.first, len(self.b.takes)) if value not in self.to_a],
        )

    def arguments_in_b(self, a: int) -> tuple[int, ...] | None:
        """Return what a step takes, as values of the second graph; None if some of it is not matched."""
        arguments = tuple(self.to_b.get(value, -1) for value in self.a.takes[a])
        return None if -1 in arguments else arguments


def _echoed_steps(graph: Wired, echoes: Echoes) -> dict[int, Echoed]:
    """Return the echoes of a graph's steps, those that name only steps which both forwards have."""
    echoed = {}
    for place, step in enumerate(graph.graph.steps, graph.first):
        if step.echo is not None and all(name in echoes for name in step.echo.names):
            echoed[place] = step.echo.kind, frozenset(echoes[name] for name in step.echo.names)
    return echoed


def match_steps(matching: Matching, forward: Forward) -> None:
    """Match the steps of two graphs, some inputs of which are matched already; `forward` has what is known of the
    forwards of two backwards.

    `strict` labels have the operator, constants and type of a step, `loose` ones the operator alone.
    """
    strict: Labels = matching.a.strict, matching.b.strict
    loose: Labels = matching.a.loose, matching.b.loose
    matching.keep_modules(forward)
    matching.keep_echoes(forward.echoes)
    for _ in range(ROUNDS):  # a neighbor that is matched is known by its match, so each round tells more steps apart
        count = len(matching.to_b)
        _match_unique_steps(matching, strict)
        _spread_matches(matching, strict, list(matching.to_b))
        if len(matching.to_b) == count:
            break
    _match_equal_calls(matching, strict)
    _match_by_echo(matching, strict, forward.echoes)
    _spread_matches(matching, strict, list(matching.to_b))
    for labels in (strict, loose):
        # Two of twelve equal layers may differ in one step. Labels that include two rings of neighbors match the steps
        # around it with their own counterparts before the step itself is matched by its bare label.
        widened = [labels]
        for _ in range(2):
            widened.append(_with_neighbors(matching, widened[-1]))
        for labels_to_try in reversed(widened):
            _match_in_layers(matching, labels_to_try)
            _match_equal_calls(matching, labels)
            _spread_matches(matching, labels, list(matching.to_b))
    _drop_unsupported(matching)
    _match_replaced(matching)
    # From here on across modules: a module that was renamed in part, or a step that moved to another.
    matching.shared = None
    _match_equal_calls(matching, strict)
    _match_in_order(matching, _with_neighbors(matching, _with_neighbors(matching, strict)), *matching.unmatched())
    _spread_matches(matching, strict, list(matching.to_b))
    _drop_unsupported(matching)
    _match_replaced(matching)


def _with_neighbors(matching: Matching, labels: Labels) -> Labels:
    """Return labels of both graphs that include the neighbors' labels."""
    return _labels_with_neighbors(matching.a, labels[0], matching.numbers), _labels_with_neighbors(
        matching.b, labels[1], matching.numbers
    )


# ---- The same call of the same values


def _match_equal_calls(matching: Matching, labels: Labels) -> None:
    """Match steps that make the same call of matched values.

    If several do, as `t(weight)` of a shared weight, those in one module with the same users are matched, in their
    order; FEW of them are compared.
    """
    index: dict[tuple[int, tuple[int, ...], str], list[int]] = defaultdict(list)
    lefts, rights = matching.unmatched()
    for b in reversed(rights):
        index[labels[1][b], matching.b.takes[b], matching.group(1, b)].append(b)
    for a in lefts:
        arguments = matching.arguments_in_b(a)
        equal_calls = index.get((labels[0][a], arguments, matching.group(0, a)), []) if arguments is not None else []
        if equal_calls:
            b = min(equal_calls[-FEW:], key=lambda b: _unlikeness(matching, a, b))
            equal_calls.remove(b)
            matching.join(a, b)


def _unlikeness(matching: Matching, a: int, b: int) -> tuple[bool, int, int]:
    """Return how much modules, arguments and users of two equal calls differ; the least is the best match."""
    takes, _, users, _ = _agreement(matching, a, b, matched_only=True)
    return matching.modules[0][a] != matching.modules[1][b], -takes - users, b


def _match_unique_steps(matching: Matching, labels: Labels) -> None:
    """Match steps that are the only ones in their module with their label and their neighbors.

    A neighbor that is matched is identified by its match, any other by its label.
    """
    keys = [_neighbor_keys(matching, side, labels[side], values) for side, values in enumerate(matching.unmatched())]
    for key, lefts in keys[0].items():
        rights = keys[1].get(key, ())
        if len(lefts) == len(rights) == 1 and matching.open_both(lefts[0], rights[0]):
            matching.join(lefts[0], rights[0])


def _neighbor_keys(
    matching: Matching, side: int, labels: Sequence[int], values: Sequence[int]
) -> dict[tuple[object, ...], list[int]]:
    """Return steps by what they are and by their neighbors."""
    graph = (matching.a, matching.b)[side]

    def known(value: int) -> int:
        other = value if side and value in matching.to_a else matching.to_b.get(value, -1) if not side else -1
        return -2 - other if other >= 0 else labels[value]

    table: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for value in values:
        arguments = tuple(map(known, graph.takes[value]))
        users = tuple(sorted((known(user) if user != OUT else OUT, place) for user, place in graph.users[value]))
        table[labels[value], arguments, users, matching.group(side, value)].append(value)
    return table


def _match_by_echo(matching: Matching, labels: Labels, echoes: tuple[Echoes, Echoes]) -> None:
    """Match steps that are the only ones of their kind that compute the gradient of the same step, in one module."""
    keys: list[dict[tuple[object, ...], list[int]]] = []
    for graph, modules, labels_of_side, numbers_of_names, values in zip(
        (matching.a, matching.b), matching.modules, labels, echoes, matching.unmatched(), strict=True
    ):
        table: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for value in values:
            echo = graph.step_of(value).echo
            if echo is not None:
                names = tuple(numbers_of_names.get(name, -1) for name in echo.names)
                table[labels_of_side[value], echo.kind, names, modules[value]].append(value)
        keys.append(table)
    for key, lefts in keys[0].items():
        rights = keys[1].get(key, [])
        if len(lefts) == len(rights) == 1:
            matching.join(lefts[0], rights[0])


# ---- The order of steps


def _match_in_layers(matching: Matching, labels: Labels) -> None:
    """Match steps in their order, layer by layer. Equal layers are compared once."""
    rows: list[dict[str, list[int]]] = [defaultdict(list), defaultdict(list)]
    for graph, row, values in zip((matching.a, matching.b), rows, matching.unmatched(), strict=True):
        for value in values:
            row[graph.block(value)].append(value)
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, int]]] = {}
    for block, lefts in rows[0].items():
        other = matching.blocks.get(block)
        rights = rows[1].get(other, []) if other is not None else []
        labels_a, labels_b = (
            _labels_of_layer(matching, 0, labels, lefts, block if other is None else other),
            _labels_of_layer(matching, 1, labels, rights, other or ""),
        )
        places = known.get((labels_a, labels_b))
        if places is None:
            places = known[labels_a, labels_b] = list(common_places(labels_a, labels_b))
        for left, right in places:
            matching.join(lefts[left], rights[right])


def _labels_of_layer(
    matching: Matching, side: int, labels: Labels, values: Sequence[int], block: str
) -> tuple[int, ...]:
    """Return what the steps of a layer are, and in which of its modules; `block` is its name in the second graph."""
    modules = matching.modules[side]
    return tuple(
        number_of((labels[side][value], modules[value].removeprefix(block)), matching.numbers) for value in values
    )


def _match_in_order(matching: Matching, labels: Labels, lefts: Sequence[int], rights: Sequence[int]) -> None:
    """Match steps in their order, in whatever modules they are."""
    labels_a, labels_b = [labels[0][value] for value in lefts], [labels[1][value] for value in rights]
    for left, right in common_places(labels_a, labels_b):
        matching.join(lefts[left], rights[right])


# ---- Neighbors of what is matched


def _spread_matches(matching: Matching, labels: Labels, waiting: list[int]) -> None:
    """Match what matched steps take, and what takes them, as far as it is alike."""
    while waiting:
        a = waiting.pop()
        b = matching.to_b[a]
        for left, right in zip(matching.a.takes[a], matching.b.takes[b], strict=False):
            if labels[0][left] == labels[1][right] and matching.open_both(left, right):
                matching.join(left, right)
                waiting.append(left)
        for left, right in _matching_users(matching, labels, a, b):
            if matching.open_both(left, right):
                matching.join(left, right)
                waiting.append(left)


def _matching_users(matching: Matching, labels: Labels, a: int, b: int) -> Iterable[tuple[int, int]]:
    """Yield open users of two matched values that are the only ones of their kind."""
    lefts, rights = (
        _open_users(matching.a, labels[0], a, matching.to_b),
        _open_users(matching.b, labels[1], b, matching.to_a),
    )
    for kind in lefts.keys() & rights.keys() if lefts and rights else ():
        if len(lefts[kind]) == len(rights[kind]) == 1:
            yield lefts[kind][0], rights[kind][0]


def _open_users(
    graph: Wired, labels: Sequence[int], value: int, done: Mapping[int, int]
) -> dict[tuple[int, int], list[int]]:
    """Return the users of a value that are not matched, by what they are and where they take it."""
    kinds: dict[tuple[int, int], list[int]] = defaultdict(list)
    for user, place in graph.users[value]:
        if user != OUT and user not in done:
            kinds[labels[user], place].append(user)
    return kinds


# ---- What stands in the place of another


def _agreement(matching: Matching, a: int, b: int, matched_only: bool = False) -> tuple[int, int, int, int]:
    """Return how many arguments of two steps are matched with each other, of how many; then the two numbers for users.

    Without `matched_only`, two values of which neither is matched agree too, if they may be matched.
    """
    lefts, rights = matching.a.takes[a], matching.b.takes[b]
    takes = sum(agree(matching, left, right, matched_only) for left, right in zip(lefts, rights, strict=False))
    users_a = [(matching.to_b.get(user, -2) if user != OUT else OUT, place) for user, place in matching.a.users[a]]
    users_b = [(user if user == OUT or user in matching.to_a else -2, place) for user, place in matching.b.users[b]]
    if matched_only:
        users_a, users_b = (
            [user_and_place for user_and_place in users_a if user_and_place[0] != -2],
            [user_and_place for user_and_place in users_b if user_and_place[0] != -2],
        )
    users = (
        sum(min(users_a.count(user_and_place), users_b.count(user_and_place)) for user_and_place in set(users_a))
        if len(users_a) + len(users_b) <= MOST_USERS
        else 0
    )
    return takes, max(len(lefts), len(rights)), users, max(len(matching.a.users[a]), len(matching.b.users[b]))


def agree(matching: Matching, left: int, right: int, matched_only: bool) -> bool:
    """Whether two arguments are matched with each other."""
    return matching.to_b.get(left) == right or (not matched_only and matching.open_both(left, right))


def _drop_unsupported(matching: Matching) -> None:
    """Undo matches of steps that have matched neighbors, none of which is matched with a neighbor of the other step.

    The order of steps alone may match the `add` of one residual with that of another. If all that surrounds them says
    otherwise, both were added or removed.
    """
    wrong_pairs = []
    for a, b in matching.to_b.items():
        if a >= matching.a.first:
            takes, _, users, _ = _agreement(matching, a, b, matched_only=True)
            if not takes + users and (
                _has_matched_neighbor(matching.a, a, matching.to_b)
                or _has_matched_neighbor(matching.b, b, matching.to_a)
            ):
                wrong_pairs.append((a, b))
    for a, b in wrong_pairs:
        del matching.to_b[a], matching.to_a[b]


def _has_matched_neighbor(graph: Wired, value: int, done: Mapping[int, int]) -> bool:
    """Whether a neighbor of a step is matched."""
    return any(argument in done for argument in graph.takes[value]) or any(
        user in done for user, _ in graph.users[value]
    )


def _match_replaced(matching: Matching) -> None:
    """Match a step with the one that stands in its place: both have the same arguments and the same users, or both call
    the same operator and share a matched neighbor."""
    strict: Labels = matching.a.strict, matching.b.strict
    for _ in range(ROUNDS):
        count = len(matching.to_b)
        lefts, rights = matching.unmatched()
        offered = set(rights)
        for a in lefts:  # in their order, so that what takes a replaced step is seen after it
            pairs = [rated for b in candidates(matching, a, offered) if (rated := _rating(matching, a, b)) is not None]
            if pairs:
                b = max(pairs)[-1]
                matching.join(a, b)
                offered.discard(b)
                _spread_matches(matching, strict, [a])
        if len(matching.to_b) == count:
            break


def _rating(matching: Matching, a: int, b: int) -> tuple[bool, int, int, int, int] | None:
    """Return how sure it is that a step stands in the place of another; None if it does not."""
    if not matching.open_both(a, b):
        return None
    takes, of_takes, users, of_users = _agreement(matching, a, b)
    sure = _agreement(matching, a, b, matched_only=True)
    alike = matching.a.loose[a] == matching.b.loose[b]
    if (sure[0] == of_takes and users == of_users) or (alike and sure[0] + sure[2]):
        return alike, sure[0] + sure[2], takes + users, -abs(a - b), b
    return None


def candidates(matching: Matching, a: int, offered: set[int]) -> set[int]:
    """Return open steps of the second graph that take what a step takes, or are taken where it is."""
    near: set[int] = set()
    for argument in matching.a.takes[a]:
        users = matching.b.users[matching.to_b[argument]] if argument in matching.to_b else ()
        near.update(user for user, _ in (users if len(users) <= MOST_USERS else ()) if user in offered)
    for user, place in matching.a.users[a][:MOST_USERS]:
        if user in matching.to_b and place < len(matching.b.takes[matching.to_b[user]]):
            near.add(matching.b.takes[matching.to_b[user]][place])
    return near & offered


# ---- Ports: inputs are matched before and after the steps, outputs after them


class Forward:
    """The matches of two forwards, for matching their backwards: saved values, inputs and steps by their names, and the
    modules and layers of the first that are those of the second under other names."""

    def __init__(self, matching: Matching | None = None) -> None:
        self.saved: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
        self.echoes: tuple[Echoes, Echoes] = ({}, {})
        self.items: tuple[Items, Items] = ({}, {})
        self.modules: dict[str, str] = {}
        self.blocks: dict[str, str] = {}
        if matching is None:
            return
        self.items = items_of(matching.a.graph), items_of(matching.b.graph)
        steps = [(a, b) for a, b in matching.to_b.items() if a >= matching.a.first and b >= matching.b.first]
        self.modules = _most_often((matching.a.module(a), matching.b.module(b)) for a, b in steps)
        self.blocks = _most_often((matching.a.block(a), matching.b.block(b)) for a, b in steps)
        names_a, names_b = saved_values(matching.a), saved_values(matching.b)
        for value, names in names_a.items():
            self.saved |= dict(zip(names, names_b.get(matching.to_b.get(value, -1), ()), strict=False))
        for a, b in matching.to_b.items():
            if a < matching.a.first:
                self.renamed[matching.a.graph.inputs[a].name] = matching.b.graph.inputs[b].name
        self.echoes = (
            {name: matching.to_b[value] for name, value in matching.a.places.items() if value in matching.to_b},
            dict(matching.b.places),
        )


def items_of(graph: Graph) -> Items:
    """Return for each step that takes a result of several: which step has these, and the number of the result."""
    return {step.name: item for step in graph.steps if (item := item_of(step)) is not None}


def item_of(step: Step) -> tuple[str, int] | None:
    """Return of which step, and which of its results, a step takes; None if it does something else."""
    match step.target, step.args:
        case "operator.getitem", (Ref(name), int(number)):
            return name, number
    return None


def _most_often(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return for each name of the first graph the name of the second that it is paired with most often; each name
    once."""
    pairs: dict[str, str] = {}
    taken: set[str] = set()
    for (left, right), _ in Counter(row for row in rows if all(row)).most_common():
        if left not in pairs and right not in taken:
            pairs[left] = right
            taken.add(right)
    return pairs


def saved_values(graph: Wired) -> dict[int, list[str]]:
    """Return the names under which each value of a forward is saved."""
    names_of_values: dict[int, list[str]] = defaultdict(list)
    for port, result in zip(graph.graph.outputs, graph.graph.results, strict=True):
        if port.role == "saved":
            for name in refs(result):
                names_of_values[graph.places[name]].append(port.name)
    return names_of_values


def match_inputs(matching: Matching, forward: Forward, strictly: bool) -> None:
    """Match inputs of one role and name; `strictly`: of one type, too."""
    places = {port.key: place for place, port in enumerate(matching.b.graph.inputs)}
    for a, port in enumerate(matching.a.graph.inputs):
        names = forward.saved if port.role == "saved" else forward.renamed
        own_name = names.get(port.name, port.name if port.role != "saved" else "")
        for name in (own_name, port.name) if port.role != "saved" else (own_name,):
            b = places.get(port.key._replace(name=name))
            if (
                b is not None
                and matching.open_both(a, b)
                and (not strictly or matching.a.strict[a] == matching.b.strict[b])
            ):
                matching.join(a, b)


def input_changes(matching: Matching) -> Iterator[PortChange]:
    """Yield the inputs that are not the same in both graphs."""
    before, after = matching.a.graph.inputs, matching.b.graph.inputs
    for a, port in enumerate(before):
        b = matching.to_b.get(a)
        if b is None:
            yield PortChange(True, a, None)
        elif parts := _port_parts(port, after[b], matching.a.strict[a] == matching.b.strict[b]):
            yield PortChange(True, a, b, parts)
    yield from (PortChange(True, None, b) for b in range(len(after)) if b not in matching.to_a)


def _port_parts(before: Port, after: Port, alike: bool, value: bool = True) -> tuple[str, ...]:
    """Return what differs between two ports. Saved values are named by their steps, so their names do not count."""
    named = before.name != after.name and "saved" not in (before.role, after.role)
    differences = (named, "name"), (before.role != after.role, "role"), (not alike, "type"), (not value, "value")
    return tuple(part for differs, part in differences if differs)


def matched_outputs(matching: Matching, forward: Forward) -> dict[int, int]:
    """Return the outputs that both graphs have, by number: of one role and name, else of one role and value."""
    before, after = matching.a.graph, matching.b.graph
    places: dict[PortKey, int] = {}
    for b, port in enumerate(after.outputs):
        if port.role != "saved":
            places.setdefault(port.key, b)
    matched: dict[int, int] = {}
    for a, port in enumerate(before.outputs):
        for name in (forward.renamed.get(port.name, port.name), port.name):
            key = port.key._replace(name=name)
            if key in places and a not in matched:
                matched[a] = places.pop(key)
    used_outputs = set(matched.values())
    values: dict[Any, list[int]] = defaultdict(list)
    for b, port in enumerate(after.outputs):
        if b not in used_outputs:
            values[port.role, places_in(after, b, matching.b)].append(b)
    for a, port in enumerate(before.outputs):
        offered = values.get((port.role, _mapped_places(matching, a)), ()) if a not in matched else ()
        if offered:
            matched[a] = offered.pop(0)
    return matched


def places_in(graph: Graph, output: int, values: Wired) -> tuple[int, ...]:
    """Return the values that an output gives."""
    return tuple(values.places[name] for name in refs(graph.results[output]))


def _mapped_places(matching: Matching, output: int) -> tuple[int, ...]:
    """Return the values of the second graph that are those of an output of the first; -2 where there is none."""
    return tuple(matching.to_b.get(value, -2) for value in places_in(matching.a.graph, output, matching.a))


def output_changes(matching: Matching, outputs: Mapping[int, int]) -> Iterator[PortChange]:
    """Yield the outputs that are not the same in both graphs."""
    before, after = matching.a.graph, matching.b.graph
    for a, port in enumerate(before.outputs):
        b = outputs.get(a)
        if b is None:
            yield PortChange(False, a, None)
            continue
        other = after.outputs[b]
        alike = matching.a.nameless.spec(port.spec) == matching.b.nameless.spec(other.spec)
        value = _mapped_places(matching, a) == places_in(after, b, matching.b)
        value = value and matching.a.nameless.value(before.results[a]) == matching.b.nameless.value(after.results[b])
        if parts := _port_parts(port, other, alike, value):
            yield PortChange(False, a, b, parts)
    used_outputs = set(outputs.values())
    yield from (PortChange(False, None, b) for b in range(len(after.outputs)) if b not in used_outputs)
