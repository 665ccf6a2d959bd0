"""Match the values of two graphs: which step of one is which step of the other.

Names of values do not count. A step is matched if it is the only one of its kind with its neighbors, or the same call
of matched values; then, layer by layer, in the order of steps, those first whose neighbors are alike. Each match is
spread to what its step takes and to what takes it. Modules are kept apart, as long as both graphs have them; only then
steps are matched across modules. At last, a step in the place of another is that step, changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from backprint.differing.blocks import paired_blocks
from backprint.differing.common import common_places
from backprint.differing.wired import OUT, Numbers, Wired, number_of, widened_labels

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


# ------------------------------------------------------------------ the same call of the same values


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


# ------------------------------------------------------------------ the order of steps


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


# ------------------------------------------------------------------ neighbors of what is matched


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


# ------------------------------------------------------------------ what stands in the place of another


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
