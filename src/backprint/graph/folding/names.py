"""Which name each value of a folded graph has in its text: the plan by which the text is written.

A value has a *key* in the tables of the text. It is the value's name in the flat graph, with two exceptions. The first
`view` of a graph that has `view_1`, but no `view_0`, is `view_0`, so that rules hold from the first on. A value of a
loop whose names follow no rule gets a key that does.
"""

from __future__ import annotations

import builtins
import itertools
import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backprint.graph.folding.nouns import FoldedGraph, FoldedStep, Item, Loop, Only
from backprint.graph.folding.places import places_of
from backprint.graph.folding.series import INDEXES, Index, Series, series_of
from backprint.graph.nouns import Port, Step, refs

VALUES, GIVEN, PORT = "v", "given", "port"

TABLES = {
    "parameter": "params", "buffer": "buffers", "input": "inputs", "constant": "constants", "saved": "saved",
    "tangent": "tangents", "rng": "states",
}  # fmt: skip
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


# ------------------------------------------------------------------ keys


def keys_of_zeros(names: FoldedNames, ports: Iterable[Port]) -> dict[str, str]:
    """Return the names to which keys add a number 0: `view`, where there is a `view_1` and no `view_0`."""
    taken = {*names.owner, *names.ports}
    for leaf in names.leaves:
        echoes = [series for place, series in leaf.step.series if place.startswith("echo.names")]
        taken.update(str(value) for series in echoes for value in series.all(list(leaf.indexes())))
        taken.update(leaf.step.step.echo.names if leaf.step.step.echo is not None else ())
    taken.update(port.name for port in ports)
    bases = {base for name in taken for base, _, number in [name.rpartition("_")] if number in ("1", "2")}
    return {
        base: f"{base}_0" for base in sorted(bases & taken) if f"{base}_0" not in taken and not base[-1].isdecimal()
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


# ------------------------------------------------------------------ how a step takes its arguments


def plan_leaf(names: FoldedNames, leaf: Leaf) -> None:
    """Decide how a step takes its arguments."""
    series = dict(leaf.step.series)
    for place, value in places_of(leaf.step.step):
        if not place.startswith(("args.", "kwargs.")) or not isinstance(value, str):
            continue
        if place not in series:
            plan_constant(names, value, leaf.number)
            continue
        taken = {index: str(series[place].at(index)) for index in leaf.indexes()}
        if (number := computed_here(names, leaf, taken)) is not None:
            names.own[leaf.number, place] = number
            names.users.setdefault(number, set()).add(leaf.number)
        elif (number := computed_before(names, leaf, taken)) is not None:
            names.before[leaf.number, place] = number
            names.carried.setdefault(leaf.loops[0], {})[number] = "", taken[0,]
            plan_constant(names, taken[0,], -1)
        else:
            for name in taken.values():
                take_from_table(names, name)


def plan_constant(names: FoldedNames, name: str, user: int) -> None:
    """Decide how a value is taken that is the same in all iterations; the user -1 is a loop."""
    if name not in names.owner:
        return
    number = names.owner[name][0]
    if names.leaves[number].counts:
        take_from_table(names, name)  # of one iteration of a loop
    names.users.setdefault(number, set()).add(user)


def computed_here(names: FoldedNames, leaf: Leaf, taken: Mapping[Index, str]) -> int | None:
    """Return the leaf that computes what a step takes, if it is always that of its own iteration."""
    owners = {index: names.owner.get(name) for index, name in taken.items()}
    numbers = {owner[0] if owner else None for owner in owners.values()}
    number = numbers.pop()
    if numbers or number is None:
        return None
    around = names.leaves[number].loops
    same = all(owner and owner[1] == index[: len(around)] for index, owner in owners.items())
    return number if same and leaf.loops[: len(around)] == around else None


def computed_before(names: FoldedNames, leaf: Leaf, taken: Mapping[Index, str]) -> int | None:
    """Return the leaf that computes what a step takes, if it is always that of the iteration before."""
    if len(leaf.loops) != 1 or leaf.loops == (ONCE,):
        return None
    owners = [names.owner.get(taken[place,]) for place in range(1, leaf.counts[0])]
    number = owners[0][0] if owners[0] else None
    if number is None or names.leaves[number].loops != leaf.loops:
        return None
    start = names.owner.get(taken[0,])
    if start is not None and ONCE in names.leaves[start[0]].loops:  # the loop itself may compute it
        return None
    first = names.carried.get(leaf.loops[0], {}).get(number, ("", taken[0,]))[1]
    regular = all(owner == (number, (place,)) for place, owner in enumerate(owners))
    return number if regular and first == taken[0,] else None


# ------------------------------------------------------------------ short names


def name_leaves(names: FoldedNames, unnamed: set[int], taken: set[str]) -> None:
    """Choose the short names of what is not in the tables; `unnamed` leaves need none."""
    for leaf in names.leaves:
        if leaf.counts or leaf.number in unnamed:
            continue
        if leaf.step.step.name not in taken and leaf.number not in names.shared:
            names.local[leaf.number] = leaf.step.step.name
            taken.add(leaf.step.step.name)
        else:
            take_from_table(names, leaf.step.step.name)
    used: dict[str, int] = {}
    for leaf in names.leaves:
        if leaf.counts and leaf.number not in {*names.shared, *unnamed} and not leaf.step.step.is_guard:
            names.local[leaf.number] = new_name(base_of(leaf.step.step), taken, used)
    for carried in names.carried.values():
        for number, (_, first) in carried.items():
            base = f"last_{base_of(names.leaves[number].step.step)}"
            carried[number] = new_name(base, taken, used), first


def base_of(step: Step) -> str:
    """Return a step's name without the numbers at its end."""
    base = step.name.rstrip("0123456789_")
    return base if base.isidentifier() and len(base) < 40 else step.target.split(".")[1].strip("_")


def new_name(base: str, taken: set[str], used: dict[str, int]) -> str:
    """Return a name that is not taken yet, and take it."""
    name = base
    while name in taken:
        used[base] = used.get(base, 0) + 1
        name = f"{base}_{used[base]}"
    taken.add(name)
    return name
