"""Groups of kernels that are the same program, and coarser ones that differ in sizes and constants only.

Kernels pass through as a stream: sources and members are in an index, in SQLite, and its groups are read one by one.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from backprint.errors import UsageError
from backprint.extracting.nouns import Kernel
from backprint.extracting.programs.index import USE, KernelIndex, KernelUse
from backprint.extracting.programs.read import Found

BY_HASH = {"program": "hash", "structure": "structure"}
"""The column that the members of a group share."""


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """Kernels that are one: the same program, or the same structure."""

    hash: str
    """Of the program or of the structure, whichever the group was made by."""
    representative: str
    """The hash of the program that stands for the group, the one with most uses."""
    language: str
    name: str
    """The name of the representative; other members may have others."""
    programs: int
    """Different programs: 1, unless the group is one of structure."""
    uses: int
    samples: int
    forward: int
    backward: int


@dataclass(frozen=True, slots=True)
class KernelTotals:
    """What a dedup found: how many kernels there were and how many programs they are."""

    uses: int
    programs: int
    structures: int
    samples: int
    names: int
    """Different names; a name may stand for several programs, and a program may have several names."""
    ambiguous_names: int
    """Names that stand for more than one program of one language."""
    forward: int
    """Programs that a forward uses."""
    backward: int
    both: int
    unread: int

    @property
    def ratio(self) -> float:
        """Return how many kernels there are for each program; 0 without kernels."""
        return self.uses / self.programs if self.programs else 0.0


class KernelGroups:
    """The groups of an index: kernels that are the same program, or `by` structure. Iterating yields the most used
    first."""

    def __init__(self, index: KernelIndex, by: str = "program") -> None:
        self.index = index
        self.by = by

    def __iter__(self) -> Iterator[KernelGroup]:
        return self.groups()

    def groups(self, by: str = "", limit: int = -1) -> Iterator[KernelGroup]:
        """Yield the groups, the most used first; `by` is `program` or `structure`, else that of all."""
        by = by or self.by
        if by not in BY_HASH:
            raise UsageError(f"{by!r} is no way to group kernels: {', '.join(BY_HASH)}")
        column = f"kernels.{BY_HASH[by]}"
        query = (
            f"select {column}, kernels.language, count(distinct uses.hash), count(*), count(distinct uses.sample), "
            "sum(uses.direction = 'forward'), sum(uses.direction = 'backward') "
            f"from uses join kernels on kernels.hash = uses.hash group by {column} order by 4 desc, 1 limit ?"
        )
        for key, language, programs, uses, samples, forward, backward in self.index.rows(query, (limit,)):
            found = key if by == "program" else self.most_used(key)
            name = next(self.index.rows("select name from kernels where hash = ?", (found,)))[0]
            yield KernelGroup(key, found, language, name, programs, uses, samples, forward, backward)

    def most_used(self, structure: str) -> str:
        """Return the hash of the program of a structure that has most uses."""
        query = (
            "select kernels.hash from kernels join uses on kernels.hash = uses.hash where structure = ? "
            "group by kernels.hash order by count(*) desc, 1 limit 1"
        )
        return str(next(self.index.rows(query, (structure,)))[0])

    def representative(self, group: KernelGroup) -> Kernel:
        """Return the kernel that stands for a group."""
        kernel = self.index.kernel(group.representative)
        if kernel is None:
            raise UsageError(f"{group.representative}: there is no such kernel in {self.index.path}")
        return kernel

    def members(self, group: KernelGroup, limit: int = -1) -> Iterator[KernelUse]:
        """Yield the uses of a group's kernels."""
        query = (
            f"select {USE} from uses where hash in "
            "(select hash from kernels where structure = ? or hash = ?) order by 1, 2, 3, 5 limit ?"
        )
        return (KernelUse(*row) for row in self.index.rows(query, (group.hash, group.hash, limit)))

    def totals(self) -> KernelTotals:
        """Return how many kernels, programs and structures there are, and how the directions share them."""
        number = self.index.number
        used = "select count(distinct hash) from uses where direction = ?"
        both = (
            "select count(*) from (select hash from uses where direction = 'forward' "
            "intersect select hash from uses where direction = 'backward')"
        )
        ambiguous = (
            "select count(*) from (select uses.name from uses join kernels on kernels.hash = uses.hash "
            "group by uses.name, language having count(distinct uses.hash) > 1)"
        )
        return KernelTotals(
            uses=number("select count(*) from uses"),
            programs=number("select count(*) from kernels"),
            structures=number("select count(distinct structure) from kernels"),
            samples=number("select count(*) from (select sample from uses union select sample from externs)"),
            names=number("select count(distinct name) from uses"),
            ambiguous_names=number(ambiguous),
            forward=number(used, ("forward",)),
            backward=number(used, ("backward",)),
            both=number(both),
            unread=number("select count(*) from unread"),
        )


def vanishing_groups(by: str = "program") -> KernelGroups:
    """Return groups without kernels yet, in an index that vanishes with them."""
    groups = KernelGroups(KernelIndex.writing(""), by)
    weakref.finalize(groups, groups.index.connection.close)
    return groups


def grouped_kernels(kernels: Iterable[Found], by: str = "program") -> KernelGroups:
    """Return the groups of a stream of kernels, which vanish with the value that is returned."""
    groups = vanishing_groups(by)
    groups.index.add_all(kernels)
    return groups
