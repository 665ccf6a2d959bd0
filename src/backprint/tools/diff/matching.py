"""Match the values and ports of two graphs: which step of one is which step of the other.

Names of values do not count, and neither does the order of independent steps. The graphs are taken as numbers
(`Wired`). First the layers are paired, and the modules in them (`_pair_modules`); steps of modules that both graphs
have are kept apart (`Matching.keep_apart`), up to the last steps that are left. Then `match_steps` makes three passes:

1. The same call of the same values, from the inputs down, and the same value for the same users, from the outputs up
   (`_match_identical`). Where one step of a graph was edited, this matches all others.
2. The rows of steps of paired layers are aligned (`_match_layers`). A row is in the order of the canonical form, which
   independent steps cannot change.
3. Neighbors of matched steps, as far as there is one alike (`_match_neighbors`); and steps that stand in the place of
   another (`_match_replaced`): `gelu` for `relu` between the same two layers.

Passes 2 and 3 are repeated with labels that say less and less of a step: with what surrounds it, as it is, and by its
operator alone. At the end, steps of any two modules may be matched (`Matching.keep_together`), and pass 3 runs once
more on what is left.

- The two graphs are a, the one before the change, and b, the one after it; also left and right.
- The canonical form of a graph is its text without the names of values, in an order that does not depend on the order
  of independent steps.
- A layer is a module with a number at the end of its path, such as `blocks.3`.
- The echo of a backward's step names steps of the forward: `gradient of relu`.
- Labels are numbers that stand for what a value is: equal labels mean alike. A value that may still be matched is open.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, NamedTuple, TypeAlias

from backprint.graph.canonical import versions
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Graph, Leaf, Port, Ref, Spec, Step, Sub, Value, leaves, refs
from backprint.graph.steps import used, with_leaves
from backprint.graph.text import show, show_call, show_spec
from backprint.tools.diff.nouns import PortChange

# ---- A graph as numbers

OUT = -1
"""In place of a step that takes a value: the graph returns it."""

SAVED = -1
"""In place of the number of a port: the value is saved for the backward, under a name that does not count."""

Numbers: TypeAlias = dict[Any, int]
"""Labels by what they stand for. Both graphs share one table, so equal numbers mean the same."""


@dataclass(frozen=True, slots=True)
class Wired:
    """The values of a graph, its inputs first, then its steps. A value is its number in this order."""

    graph: Graph
    places: Mapping[str, int]
    """The number of each value, by its name."""
    takes: Sequence[tuple[int, ...]]
    """The arguments of each value's step; none of an input."""
    users: Sequence[Sequence[tuple[int, int]]]
    """The users of each value: the user's number and the place among its arguments, or OUT and the number of a port."""
    strict: Sequence[int]
    """A label for each value: operator, constants and type of a step, role and type of an input."""
    loose: Sequence[int]
    """A label for each value without constants and types: the operator of a step, the role of an input."""
    rank: Sequence[int]
    """The place of each value in the canonical form."""
    forms: _NamelessForms
    """Writes the steps and types of the graph without its names."""

    @property
    def first(self) -> int:
        """The value of the first step; those before it are inputs."""
        return len(self.graph.inputs)

    @property
    def steps(self) -> range:
        """The values of all steps."""
        return range(self.first, len(self.takes))

    def step_of(self, value: int) -> Step:
        """Return the step that makes a value."""
        return self.graph.steps[value - self.first]

    def module(self, value: int) -> str:
        """Return the module that a value was made in."""
        source = self.step_of(value).source if value >= self.first else None
        return source.module if source is not None else ""

    def layer(self, value: int) -> str:
        """Return its module up to the last number: the layer."""
        return layer_of(self.module(value))

    def spec(self, value: int) -> str:
        """Return the type of a value, without the names of symbols."""
        port_or_step = self.graph.inputs[value] if value < self.first else self.step_of(value)
        return self.forms.spec(port_or_step.spec)


def number_graph(graph: Graph, numbers: Numbers, canonical_order: Iterable[str]) -> Wired:
    """Return a graph as numbers; `canonical_order` has the names of its values in the order of the canonical form.
    Labels that `numbers` does not have are added to it."""
    input_count, forms = len(graph.inputs), _NamelessForms(graph)
    places = {port.local: place for place, port in enumerate(graph.inputs)}
    places |= {step.name: input_count + place for place, step in enumerate(graph.steps) if not step.is_guard}
    takes: list[tuple[int, ...]] = [()] * input_count
    takes += [tuple(places[name] for name in used(step)) for step in graph.steps]
    users: list[list[tuple[int, int]]] = [[] for _ in takes]
    for value, arguments in enumerate(takes):
        for place, argument in enumerate(arguments):
            users[argument].append((value, place))
    for port, result in zip(graph.outputs, graph.results, strict=True):
        output_number = number_of((port.role, port.name), numbers) if port.role != "saved" else SAVED
        for name in refs(result):
            users[places[name]].append((OUT, output_number))
    strict = [number_of((port.role, forms.spec(port.spec)), numbers) for port in graph.inputs]
    strict += [number_of(forms.step(step, place), numbers) for place, step in enumerate(graph.steps)]
    loose = [number_of((port.role,), numbers) for port in graph.inputs]
    loose += [number_of((step.target,), numbers) for step in graph.steps]
    ranks = {name: place for place, name in enumerate(canonical_order)}
    rank = [ranks[port.local] for port in graph.inputs] + [ranks.get(step.name, -1) for step in graph.steps]
    return Wired(graph, places, takes, users, strict, loose, rank, forms)


def layer_of(path: str) -> str:
    """Return a path up to its last number: `layers.3` for `layers.3.mlp`; or ''."""
    layer = re.match(r"(?:[^.]*\.)*\d+(?=\.|\Z)", path)
    return layer[0] if layer is not None else ""


def number_of(what: Any, numbers: Numbers) -> int:
    """Return the label of something; give it a new one if the table does not have it."""
    return numbers.setdefault(what, len(numbers))


class StepForm(NamedTuple):
    """A step without the names of one graph."""

    operator: str
    arguments: str
    """The call with blanks for names."""
    type: str
    changed: tuple[int, ...]
    """How often each value that it takes was changed in place before; empty if none was."""
    subgraphs: tuple[str, ...]
    """The hashes of the subgraphs that it calls."""


class _NamelessForms:
    """What steps and types are without the names of one graph: symbols are numbered as its inputs and steps use them
    (`symbols`). `hashes` are those of its subgraphs, and `versions` has how often a value had been changed in place
    when a step takes it, by the step's number and the value's name."""

    def __init__(self, graph: Graph) -> None:
        self.hashes = {name: sub.hash() for name, sub in graph.subgraphs}
        self.versions = versions(graph)
        self.symbols = dict.fromkeys((symbol.name for symbol in graph.symbols), "")

    def step(self, step: Step, place: int) -> StepForm:
        """Return the form of a step; `place` is its number."""
        args = [with_leaves(value, _blank) for value in step.args]
        arguments = show_call(args, tuple((key, with_leaves(value, _blank)) for key, value in step.kwargs))
        changed = tuple(self.versions.get((place, name), 0) for name in used(step)) if self.versions else ()
        subgraphs = tuple(self.hashes[name] for name in subgraphs_of(step))
        return StepForm(step.target, arguments, self.spec(step.spec), changed if any(changed) else (), subgraphs)

    def spec(self, spec: Spec) -> str:
        """Return a type without the names of symbols."""
        text = show_spec(spec)
        return re.sub(r"[A-Za-z_]\w*", self.renamed, text) if self.symbols else text

    def renamed(self, match: re.Match[str]) -> str:
        """Return the number of a symbol, `$0`, a new one if it has none ('' in `symbols`); another word as it is."""
        word = match[0]
        if self.symbols.get(word) == "":
            self.symbols[word] = f"${sum(map(bool, self.symbols.values()))}"
        return self.symbols.get(word, word)


def _blank(leaf: Leaf) -> Value:
    """Return a constant as it is, and a name without its letters."""
    return type(leaf)("_") if isinstance(leaf, Ref | Sub) else leaf


def subgraphs_of(step: Step) -> list[str]:
    """Return the subgraphs that a step calls, in the order of its arguments."""
    values = (*step.args, *(value for _, value in step.kwargs))
    return [leaf.name for value in values for leaf in leaves(value) if isinstance(leaf, Sub)]


# ---- What is matched so far

Labels: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""A label for each value of both graphs."""

Echoes: TypeAlias = Mapping[str, int]
"""Names of the forward's steps, with a number that both sides' matched steps share."""

Items: TypeAlias = Mapping[str, tuple[str, int]]
"""Steps that take one result of several, by name: the step that has these, and the number of the result."""

Echoed: TypeAlias = tuple[str, frozenset[int]]
"""The kind of an echo, and the steps of the second forward that it names."""


class Matching:
    """The values of two graphs that are matched so far, and which ones may be."""

    def __init__(self, a: Wired, b: Wired, numbers: Numbers) -> None:
        self.a, self.b, self.numbers = a, b, numbers
        self.to_b: dict[int, int] = {}
        """The matched values of a, with those of b."""
        self.to_a: dict[int, int] = {}
        self.layers: dict[str, str] = {}
        """The layers of a that are paired, with those of b."""
        self.groups: tuple[Sequence[str], Sequence[str]] = ([""] * len(a.takes), [""] * len(b.takes))
        """The module of each value, where both graphs have it: steps of two groups are kept apart. Those of the first
        graph have the names that they have in the second."""
        self.echoed: tuple[Mapping[int, Echoed], Mapping[int, Echoed]] = ({}, {})
        """The echoes of the steps of a backward, as far as both forwards have what they name. Steps that compute
        gradients of different steps are kept apart, too: in the backward of `x.sin() + x.cos()`, both gradients are a
        `mul` with the tangent."""

    def keep_apart(self, forward: Forward) -> None:
        """From now on, match only steps of one module and of one echo.

        The modules of a backward are paired as those of its forward are: a wrapper around a layer puts a name into the
        paths of all modules inside. For a forward, `forward` is empty.
        """
        a, b = self.a, self.b
        contents_a, contents_b = _contents_of_layers(a), _contents_of_layers(b)
        layers_a, layers_b = (
            {layer: sum(modules.values(), Counter()) for layer, modules in contents.items()}
            for contents in (contents_a, contents_b)
        )
        self.layers = _pair_modules(layers_a, layers_b, forward.layers)
        modules: dict[str, str] = {}
        for left, right in self.layers.items():
            modules |= _pair_modules(contents_a[left], contents_b[right], forward.modules)
        shared = set(modules.values())
        self.groups = (
            [modules.get(a.module(value), "") for value in range(len(a.takes))],
            [name if (name := b.module(value)) in shared else "" for value in range(len(b.takes))],
        )
        self.echoed = _echoed_steps(a, forward.echoes[0]), _echoed_steps(b, forward.echoes[1])

    def keep_together(self) -> None:
        """Undo `keep_apart`: from now on, match steps of any two modules, for one was renamed in part, or a step moved
        to another."""
        self.groups, self.echoed = ([""] * len(self.a.takes), [""] * len(self.b.takes)), ({}, {})

    def join(self, a: int, b: int) -> None:
        """Match two values."""
        self.to_b[a], self.to_a[b] = b, a

    def open_both(self, a: int, b: int) -> bool:
        """Whether two values may be matched, and neither of them is: they have one group, and if both have echoes of
        one kind, these name a step in common."""
        if a in self.to_b or b in self.to_a or self.groups[0][a] != self.groups[1][b]:
            return False
        left, right = self.echoed[0].get(a), self.echoed[1].get(b)
        if left is None or right is None:
            return True
        (kind_a, steps_a), (kind_b, steps_b) = left, right
        return kind_a != kind_b or not steps_a.isdisjoint(steps_b)

    def unmatched(self) -> tuple[list[int], list[int]]:
        """Return the steps of both graphs that are not matched."""
        return [a for a in self.a.steps if a not in self.to_b], [b for b in self.b.steps if b not in self.to_a]

    def takes_in_b(self, a: int) -> tuple[int, ...]:
        """Return what a step takes, as values of the second graph; OPEN for what is not matched."""
        return tuple(self.to_b.get(value, OPEN) for value in self.a.takes[a])

    def users_in_b(self, a: int) -> list[tuple[int, int]]:
        """Return what takes a value, as values of the second graph with the places among their arguments, in order;
        OPEN for what is not matched, OUT with the number of a port for what is returned."""
        users = ((user if user == OUT else self.to_b.get(user, OPEN), place) for user, place in self.a.users[a])
        return sorted(users)


OPEN = -2
"""In place of a value that is not matched."""


def _echoed_steps(graph: Wired, echoes: Echoes) -> dict[int, Echoed]:
    """Return the echoes of a graph's steps, those that name only steps which both forwards have."""
    echo_by_step = {}
    for value in graph.steps:
        echo = graph.step_of(value).echo
        if echo is not None and all(name in echoes for name in echo.names):
            echo_by_step[value] = echo.kind, frozenset(echoes[name] for name in echo.names)
    return echo_by_step


def match_steps(matching: Matching) -> None:
    """Match the steps of two graphs, some inputs of which are matched already, and whose modules are kept apart (how:
    the module's docstring)."""
    loose: Labels = matching.a.loose, matching.b.loose
    strict: Labels = matching.a.strict, matching.b.strict
    surrounded = _with_neighbors(matching, _with_neighbors(matching, strict))  # with two rings of neighbors
    _match_identical(matching, surrounded)
    # Steps outside of layers, such as the sums of gradients, look all alike: they wait for their neighbors, and are
    # aligned (`everywhere`) only when the layers have been.
    for labels, everywhere in ((surrounded, False), (strict, False), (surrounded, True), (strict, True), (loose, True)):
        _match_layers(matching, labels, everywhere)
        _match_identical(matching, strict)
        _match_neighbors(matching, labels)
    _match_replaced(matching)
    # What is still left has no counterpart in its own module: from here on, modules are not kept apart any more.
    matching.keep_together()
    _match_identical(matching, strict)
    _match_neighbors(matching, strict)
    _match_replaced(matching)


def _with_neighbors(matching: Matching, labels: Labels) -> Labels:
    """Return labels of both graphs that include the labels of arguments and users."""
    rows: list[list[int]] = []
    for graph, row in zip((matching.a, matching.b), labels, strict=True):
        rows.append([])
        for value, label in enumerate(row):
            users = sorted((row[user] if user != OUT else OUT, place) for user, place in graph.users[value])
            arguments = tuple(row[argument] for argument in graph.takes[value])
            rows[-1].append(number_of((label, arguments, tuple(users)), matching.numbers))
    return rows[0], rows[1]


# ---- The first pass: the same call of the same values


def _match_identical(matching: Matching, labels: Labels) -> None:
    """Match steps that make the same call of matched values, from the first on; then those whose value is taken by
    matched steps in the same places, from the last on. In these orders, what a match makes possible comes after it."""
    b = matching.b
    lefts, rights = matching.unmatched()

    def match(values: Iterable[int], key_in_b: Callable[[int], Any], offered: Mapping[Any, list[int]]) -> None:
        """Match each value of a with the first value of b that has its label and key, and is open."""
        for left in values:
            for right in offered.get((labels[0][left], key_in_b(left)), ()):
                if matching.open_both(left, right):
                    matching.join(left, right)
                    break

    # The open values of b, by their label and what they take, or what takes them.
    by_arguments: dict[Any, list[int]] = defaultdict(list)
    by_users: dict[Any, list[int]] = defaultdict(list)
    for right in sorted(rights, key=b.rank.__getitem__):
        by_arguments[labels[1][right], b.takes[right]].append(right)
        # A value that is only saved has no user by which to know it: all saved values have one number.
        if any(user != (OUT, SAVED) for user in b.users[right]):
            by_users[labels[1][right], tuple(sorted(b.users[right]))].append(right)
    match(lefts, matching.takes_in_b, by_arguments)
    match(reversed(lefts), lambda left: tuple(matching.users_in_b(left)), by_users)


# ---- The second pass: layer by layer


def _contents_of_layers(graph: Wired) -> dict[str, dict[str, Counter[int]]]:
    """Return the layers, and the modules of each, in the order of their first steps, with how often a module has a step
    of each label."""
    contents: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for value in graph.steps:
        contents[graph.layer(value)][graph.module(value)][graph.strict[value]] += 1
    return contents


def _pair_modules(
    before: Mapping[str, Counter[int]], after: Mapping[str, Counter[int]], known: Mapping[str, str]
) -> dict[str, str]:
    """Return the layers or modules of the first graph (`before`) with those of the second (`after`) that they are; each
    is given by how often it has a step of each label.

    Those of a backward are paired as those of its forward are (`known`). The others are paired by their names, as their
    steps align, or by their places, whichever pairs the most steps that are alike: a layer that was put in front of the
    others moves all names by one. Of other names, only those are paired of which half of the steps are alike.
    """
    pairs = {left: right for left, right in known.items() if left in before and right in after}
    lefts = [name for name in before if name not in pairs]
    taken = set(pairs.values())
    rights = [name for name in after if name not in taken]
    contents_a = [frozenset(before[name].items()) for name in lefts]
    contents_b = [frozenset(after[name].items()) for name in rights]
    blocks = SequenceMatcher(None, contents_a, contents_b, autojunk=False).get_matching_blocks()
    candidates: list[dict[str, str]] = [
        {name: name for name in lefts if name in after and name not in taken},
        {lefts[left + place]: rights[right + place] for left, right, size in blocks for place in range(size)},
        dict(zip(lefts, rights, strict=False)),  # those that one side has more at the end have no place in the other
    ]
    common_steps = {
        (left, right): (before[left] & after[right]).total()
        for candidate in candidates
        for left, right in candidate.items()
    }
    # The sort is stable: of equally good candidates, the first stays the first.
    candidates.sort(key=lambda candidate: -sum(common_steps[row] for row in candidate.items()))
    for candidate in candidates:  # what one leaves open, the next may pair
        for left, right in candidate.items():
            larger = max(before[left].total(), after[right].total())
            if left not in pairs and right not in taken and (left == right or 2 * common_steps[left, right] >= larger):
                pairs[left] = right
                taken.add(right)
    return pairs


def _match_layers(matching: Matching, labels: Labels, everywhere: bool) -> None:
    """Align the open steps of paired layers; `everywhere`: and those outside of layers, whose layer is ''. Steps are
    aligned by their labels and modules, in the order of the canonical form. Equal layers are aligned once."""
    values_by_layer: list[dict[str, list[int]]] = [defaultdict(list), defaultdict(list)]
    for graph, own, values in zip((matching.a, matching.b), values_by_layer, matching.unmatched(), strict=True):
        for value in sorted(values, key=graph.rank.__getitem__):
            if (layer := graph.layer(value)) or everywhere:
                own[layer].append(value)
    blocks_of_rows: dict[Any, Any] = {}
    for layer, lefts in values_by_layer[0].items():
        paired_layer = matching.layers.get(layer)
        rights = values_by_layer[1].get(paired_layer, []) if paired_layer is not None else []
        # A module's name behind that of its layer, so that rows of equal layers are equal. Groups have the names of b.
        row_a, row_b = (
            tuple(
                (labels[side][value], matching.groups[side][value].removeprefix(paired_layer or "")) for value in values
            )
            for side, values in enumerate((lefts, rights))
        )
        if (row_a, row_b) not in blocks_of_rows:
            blocks_of_rows[row_a, row_b] = SequenceMatcher(None, row_a, row_b).get_matching_blocks()
        for left, right, size in blocks_of_rows[row_a, row_b]:
            for a, b in zip(lefts[left : left + size], rights[right : right + size], strict=True):
                if matching.open_both(a, b):
                    matching.join(a, b)


# ---- The third pass: neighbors of what is matched


def _match_neighbors(matching: Matching, labels: Labels) -> None:
    """Match what matched steps take, place by place, and what takes them, if there is one open user with a label and
    place on each side; and so on from the values that this matches."""
    a, b = matching.a, matching.b
    waiting = list(matching.to_b)  # matched values of a whose neighbors have not been looked at
    while waiting:
        left = waiting.pop()
        right = matching.to_b[left]
        # Not strict: of two operators with another number of arguments, the first ones.
        pairs = list(zip(a.takes[left], b.takes[right], strict=False))
        kinds_a = _open_users(a, labels[0], left, matching.to_b)
        kinds_b = _open_users(b, labels[1], right, matching.to_a) if kinds_a else {}
        pairs += [
            (users[0], kinds_b[kind][0])
            for kind, users in kinds_a.items()
            if len(users) == len(kinds_b.get(kind, ())) == 1
        ]
        for value_a, value_b in pairs:
            if labels[0][value_a] == labels[1][value_b] and matching.open_both(value_a, value_b):
                matching.join(value_a, value_b)
                waiting.append(value_a)


def _open_users(
    graph: Wired, labels: Sequence[int], value: int, done: Mapping[int, int]
) -> dict[tuple[int, int], list[int]]:
    """Return the users of a value that are not matched (`done` has those that are), by their label and the place among
    their arguments at which they take it."""
    kinds: dict[tuple[int, int], list[int]] = defaultdict(list)
    for user, place in graph.users[value]:
        if user != OUT and user not in done:
            kinds[labels[user], place].append(user)
    return kinds


def _shared_neighbors(matching: Matching, a: int, b: int) -> tuple[int, bool]:
    """Return how many arguments and users of two steps are matched with each other; and whether the arguments all are,
    and the users are but for those that are open on both sides."""
    lefts, rights = matching.a.takes[a], matching.b.takes[b]
    # Not strict: with another number of arguments, they are not all matched.
    arguments = sum(matching.to_b.get(left) == right for left, right in zip(lefts, rights, strict=False))
    users_a = Counter(matching.users_in_b(a))
    users_b = Counter(
        (user if user == OUT or user in matching.to_a else OPEN, place) for user, place in matching.b.users[b]
    )
    users = sum(count for (user, _), count in (users_a & users_b).items() if user != OPEN)
    return arguments + users, arguments == len(lefts) == len(rights) and users_a == users_b


MOST_USERS = 256
"""A value that more steps take says little about any of them."""


def _match_replaced(matching: Matching) -> None:
    """Match a step with the one that stands in its place: both have the same arguments and the same users, or both call
    the same operator and share a matched neighbor. Only steps that share a neighbor are compared, because each with
    each would take too long."""
    a, b = matching.a, matching.b
    lefts, rights = matching.unmatched()
    unmatched_in_b = set(rights)
    for left in lefts:  # in their order, so that what takes a replaced step is seen after it
        candidates: set[int] = set()
        for argument in a.takes[left]:
            users = b.users[matching.to_b[argument]] if argument in matching.to_b else ()
            candidates.update(user for user, _ in users[:MOST_USERS])
        for user, place in matching.users_in_b(left)[:MOST_USERS]:
            candidates.update(b.takes[user][place : place + 1] if user >= 0 else ())  # below 0: OUT or OPEN
        ratings = []  # what counts first: the same operator, then shared neighbors, then a near place
        for right in candidates & unmatched_in_b:
            shared, in_its_place = _shared_neighbors(matching, left, right)
            same_operator = a.loose[left] == b.loose[right]
            if matching.open_both(left, right) and (in_its_place or (same_operator and shared)):
                ratings.append((same_operator, shared, -abs(a.rank[left] - b.rank[right]), right))
        if ratings:
            *_, best = max(ratings)
            matching.join(left, best)
            unmatched_in_b.discard(best)


# ---- Ports: inputs are matched before and after the steps, outputs after them


class Forward:
    """The matches of two forwards, for matching their backwards; without a Matching there are none. Dictionaries have
    the names in the first forward, with those in the second: of `saved` ports, of inputs (`renamed`), of `modules` and
    of `layers`. `echoes` and `items` are pairs, of the first forward and of the second."""

    def __init__(self, matching: Matching | None = None) -> None:
        self.saved: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
        self.echoes: tuple[Echoes, Echoes] = ({}, {})
        self.items: tuple[Items, Items] = ({}, {})
        self.modules: dict[str, str] = {}
        self.layers: dict[str, str] = {}
        if matching is None:
            return
        self.items = items_of(matching.a.graph), items_of(matching.b.graph)
        steps = [(a, b) for a, b in matching.to_b.items() if a >= matching.a.first and b >= matching.b.first]
        self.modules = _most_frequent_pairs((matching.a.module(a), matching.b.module(b)) for a, b in steps)
        self.layers = _most_frequent_pairs((matching.a.layer(a), matching.b.layer(b)) for a, b in steps)
        names_a, names_b = saved_values(matching.a), saved_values(matching.b)
        for value, names in names_a.items():
            # Not strict: one side may save a value under more names, or not at all. -1 is no value.
            self.saved |= dict(zip(names, names_b.get(matching.to_b.get(value, -1), ()), strict=False))
        for a, b in matching.to_b.items():
            if a < matching.a.first:
                self.renamed[matching.a.graph.inputs[a].name] = matching.b.graph.inputs[b].name
        # A value's number in the second graph is the number that both sides share.
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


def _most_frequent_pairs(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
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
    """Match inputs of one role and name; `strictly`: of one type, too. Names of saved values are those that the two
    forwards gave to one value, and a parameter of a layer that is paired with one of another name is looked for under
    that name, too."""
    places = {port.key: place for place, port in enumerate(matching.b.graph.inputs)}
    for a, port in enumerate(matching.a.graph.inputs):
        if port.role == "saved":
            names = [forward.saved.get(port.name, "")]
        else:
            layer = layer_of(port.name)
            moved = matching.layers.get(layer, layer) + port.name[len(layer) :]
            names = [forward.renamed.get(port.name, moved), moved]
        for name in names:
            b = places.get(port.key._replace(name=name))
            alike = b is not None and (not strictly or matching.a.strict[a] == matching.b.strict[b])
            if b is not None and alike and matching.open_both(a, b):
                matching.join(a, b)


def input_changes(matching: Matching) -> Iterator[PortChange]:
    """Yield the inputs that are not the same in both graphs. A place of an input is its value, too."""
    before, after = matching.a.graph.inputs, matching.b.graph.inputs
    for a, port in enumerate(before):
        b = matching.to_b.get(a)
        if b is None:
            yield PortChange(is_input=True, before=a, after=None)
        elif parts := _port_parts(port, after[b], same_type=matching.a.strict[a] == matching.b.strict[b]):
            yield PortChange(is_input=True, before=a, after=b, parts=parts)
    yield from (PortChange(is_input=True, before=None, after=b) for b in range(len(after)) if b not in matching.to_a)


def _port_parts(before: Port, after: Port, same_type: bool, same_value: bool = True) -> tuple[str, ...]:
    """Return what differs between two ports. Saved values are named by their steps, so their names do not count."""
    renamed = before.name != after.name and "saved" not in (before.role, after.role)
    differences = (
        (renamed, "name"),
        (before.role != after.role, "role"),
        (not same_type, "type"),
        (not same_value, "value"),
    )
    return tuple(part for differs, part in differences if differs)


def matched_outputs(matching: Matching, forward: Forward) -> dict[int, int]:
    """Return the outputs that both graphs have, the number in the first with that in the second: of one role and name
    (or the name of a renamed input, which a mutation or gradient has), else of one role and value. Saved values have
    names that do not count, so they are matched by value alone."""
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
    """Return the values of a graph that one of its outputs is made of: one, or none for a constant."""
    return tuple(values.places[name] for name in refs(graph.results[output]))


def _mapped_places(matching: Matching, output: int) -> tuple[int, ...]:
    """Return the values of the second graph that are those of an output of the first; OPEN where there is none."""
    return tuple(matching.to_b.get(value, OPEN) for value in places_in(matching.a.graph, output, matching.a))


def output_changes(matching: Matching, outputs: Mapping[int, int]) -> Iterator[PortChange]:
    """Yield the outputs that are not the same in both graphs; `outputs` are those that both have, as `matched_outputs`
    returns them."""
    before, after = matching.a.graph, matching.b.graph
    for a, port in enumerate(before.outputs):
        b = outputs.get(a)
        if b is None:
            yield PortChange(is_input=False, before=a, after=None)
            continue
        port_b = after.outputs[b]
        same_type = matching.a.forms.spec(port.spec) == matching.b.forms.spec(port_b.spec)
        # A result may be a constant: its text without names must be the same, and the values in it matched.
        text_a, text_b = (show(with_leaves(result, _blank)) for result in (before.results[a], after.results[b]))
        same_value = text_a == text_b and _mapped_places(matching, a) == places_in(after, b, matching.b)
        if parts := _port_parts(port, port_b, same_type, same_value):
            yield PortChange(is_input=False, before=a, after=b, parts=parts)
    used_outputs = set(outputs.values())
    yield from (
        PortChange(is_input=False, before=None, after=b) for b in range(len(after.outputs)) if b not in used_outputs
    )
