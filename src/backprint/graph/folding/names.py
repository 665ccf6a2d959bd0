"""Which name each value of a folded graph has in its text: the plan by which the text is written."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from backprint.graph.folding.nouns import FoldedGraph, FoldedStep, Item, Loop, Only
from backprint.graph.folding.places import places_of
from backprint.graph.folding.series import INDEXES, Index
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
    own: dict[tuple[int, str], int] = field(default_factory=dict)
    """Leaf and place -> the leaf that computes what is taken there, in the same iteration."""
    before: dict[tuple[int, str], int] = field(default_factory=dict)
    """The same, in the iteration before."""


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
            plan_constant(names, value)
            continue
        taken = {index: str(series[place].at(index)) for index in leaf.indexes()}
        if (number := computed_here(names, leaf, taken)) is not None:
            names.own[leaf.number, place] = number
        elif (number := computed_before(names, leaf, taken)) is not None:
            names.before[leaf.number, place] = number
            names.carried.setdefault(leaf.loops[0], {})[number] = "", taken[0,]
            plan_constant(names, taken[0,])
        else:
            for name in taken.values():
                take_from_v(names, name)


def plan_constant(names: FoldedNames, name: str) -> None:
    """Decide how a value is taken that is the same in all iterations."""
    if name in names.owner and names.leaves[names.owner[name][0]].counts:
        take_from_v(names, name)  # of one iteration of a loop


def computed_here(names: FoldedNames, leaf: Leaf, taken: Mapping[Index, str]) -> int | None:
    """Return the leaf that computes what a step takes, if it is always that of its own iteration."""
    owners = {index: names.owner.get(name) for index, name in taken.items()}
    found = {owner[0] if owner else None for owner in owners.values()}
    number = found.pop()
    if found or number is None:
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
    first = names.carried.get(leaf.loops[0], {}).get(number, ("", taken[0,]))[1]
    regular = all(owner == (number, (place,)) for place, owner in enumerate(owners))
    return number if regular and first == taken[0,] else None


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
