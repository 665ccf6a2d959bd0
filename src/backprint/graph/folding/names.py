"""Which name each value of a folded graph has in its text: the plan by which the text is written."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from backprint.graph.folding.nouns import FoldedGraph, FoldedStep, Item, Loop, Only
from backprint.graph.folding.places import places_of
from backprint.graph.folding.series import INDEXES, Index, Series
from backprint.graph.nouns import Step, refs

VALUES, GIVEN, PORT = "v", "given", "port"

RESERVED = frozenset(
    {*keyword.kwlist, *INDEXES, VALUES, GIVEN, PORT, "self", "aten", "prims", "torch", "math", "operator", "inf", "nan",
     "range", "slice", "complex", "getattr", "dict", "zip", "tuple", "inputs", "outputs"}
)  # fmt: skip
"""FoldedNames that a value of a folded text does not have."""


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

    @property
    def is_inside(self) -> bool:
        """Whether it stands in a loop."""
        return bool(self.loops)

    def indexes(self) -> Iterator[Index]:
        """Yield its iterations."""
        return indexes_of(self.counts)


def indexes_of(counts: Sequence[int]) -> Iterator[Index]:
    """Yield the iterations of nested loops, in their order."""
    if not counts:
        yield ()
        return
    for index in indexes_of(counts[:-1]):
        yield from ((*index, place) for place in range(counts[-1]))


@dataclass(slots=True)
class FoldedNames:
    """Who has which name: the plan by which a folded graph is written."""

    leaves: list[Leaf] = field(default_factory=list)
    owner: dict[str, tuple[int, Index]] = field(default_factory=dict)
    """Name in the flat graph -> the leaf and the iteration that compute it."""
    ports: frozenset[str] = frozenset()
    shared: set[int] = field(default_factory=set)
    """Leaves whose values are in `v`."""
    local: dict[int, str] = field(default_factory=dict)
    carried: dict[int, dict[int, tuple[str, str]]] = field(default_factory=dict)
    """Loop -> leaf -> the name for what the iteration before computed, and the value that the first one takes."""


def planned_names(folded: FoldedGraph) -> FoldedNames:
    """Return the plan of a folded graph's names."""
    names = FoldedNames(ports=frozenset(port.local for port in folded.inputs))
    add_leaves(names, folded.items, (), (), [0])
    for leaf in names.leaves:
        for index in leaf.indexes():
            names.owner[leaf.step.name_at(index)] = leaf.number, index
    for leaf in names.leaves:
        plan_leaf(names, leaf)
    for name in (name for result in folded.results for name in refs(result)):
        take_from_v(names, name)
    name_leaves(names)
    return names


def add_leaves(
    names: FoldedNames, items: Sequence[Item], counts: tuple[int, ...], around: tuple[int, ...], loops: list[int]
) -> None:
    """Number the steps of items, in the order in which they stand."""
    for item in items:
        match item:
            case FoldedStep():
                names.leaves.append(Leaf(len(names.leaves), item, counts, around))
            case Only(_, inner):
                add_leaves(names, inner, counts[:-1], (*around[:-1], ONCE), loops)
            case Loop(count, inner):
                number = loops[0]
                loops[0] += 1
                add_leaves(names, inner, (*counts, count), (*around, number), loops)


def take_from_v(names: FoldedNames, name: str) -> None:
    """Note that a value is taken from `v`."""
    if name not in names.ports and name in names.owner:
        names.shared.add(names.owner[name][0])


def plan_leaf(names: FoldedNames, leaf: Leaf) -> None:
    """Decide how a step takes its arguments."""
    series = dict(leaf.step.series)
    for place, value in places_of(leaf.step.step):
        if not place.startswith(("args.", "kwargs.")) or not isinstance(value, str):
            continue
        if place not in series:
            plan_constant(names, leaf, value)
        elif not is_local(names, leaf, series[place]) and not is_carried(names, leaf, series[place]):
            for index in leaf.indexes():
                take_from_v(names, series[place].at(index))


def plan_constant(names: FoldedNames, leaf: Leaf, name: str) -> None:
    """Decide how a step takes a value that is the same in all its iterations."""
    if name in names.owner and names.leaves[names.owner[name][0]].counts:
        take_from_v(names, name)  # of one iteration of a loop


def is_local(names: FoldedNames, leaf: Leaf, series: Series) -> bool:
    """Whether a step always takes what the same step of its own iteration computed."""
    found = {names.owner.get(series.at(index), (-1, ()))[0] for index in leaf.indexes()}
    if len(found) != 1 or -1 in found:
        return False
    (number,) = found
    around = names.leaves[number].loops
    depth = len(around)
    return leaf.loops[:depth] == around and all(
        names.owner[series.at(index)][1] == index[:depth] for index in leaf.indexes()
    )


def is_carried(names: FoldedNames, leaf: Leaf, series: Series) -> bool:
    """Whether a step always takes what a step of the iteration before computed; if so, note the name for that."""
    if len(leaf.loops) != 1 or leaf.loops == (ONCE,):
        return False
    owners = [names.owner.get(series.at((place,)), (-1, ())) for place in range(1, leaf.counts[0])]
    number = owners[0][0]
    if number < 0 or names.leaves[number].loops != leaf.loops:
        return False
    if any(owner != (number, (place,)) for place, owner in enumerate(owners)):
        return False
    first = str(series.at((0,)))
    known = names.carried.setdefault(leaf.loops[0], {}).setdefault(number, ("", first))
    if known[1] != first:
        return False
    plan_constant(names, leaf, first)
    return True


def name_leaves(names: FoldedNames) -> None:
    """Choose the short names of what is not in `v`."""
    taken = set(RESERVED)
    for leaf in names.leaves:
        if not leaf.counts and leaf.step.step.name not in taken and leaf.number not in names.shared:
            names.local[leaf.number] = leaf.step.step.name
            taken.add(leaf.step.step.name)
        elif not leaf.counts:
            names.shared.add(leaf.number)
    used: dict[str, int] = {}
    for leaf in names.leaves:
        if leaf.counts and leaf.number not in names.shared and not leaf.step.step.is_guard:
            names.local[leaf.number] = new_name(base_of(leaf.step.step), taken, used)
    for carried in names.carried.values():
        for number, (_, first) in carried.items():
            base = f"last_{base_of(names.leaves[number].step.step)}"
            carried[number] = new_name(base, taken, used), first


def base_of(step: Step) -> str:
    """Return a step's name without the numbers at its end."""
    base = step.name.rstrip("0123456789_")
    return base if base.isidentifier() and len(base) < 40 else step.target.split(".")[1]


def new_name(base: str, taken: set[str], used: dict[str, int]) -> str:
    """Return a name that is not taken yet, and take it."""
    name = base
    while name in taken:
        used[base] = used.get(base, 0) + 1
        name = f"{base}_{used[base]}"
    taken.add(name)
    return name
