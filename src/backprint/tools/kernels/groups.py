"""Groups of kernels that are the same program, and coarser ones that differ in sizes and constants only.

Kernels pass through as a stream: sources and members are in an index, in SQLite, and its groups are read one by one.
"""

from __future__ import annotations

import os
import re
import shutil
import weakref
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backprint.errors import PlaceError, RefusedError, UsageError
from backprint.tools.kernels.index import USE, KernelIndex, KernelUse
from backprint.tools.kernels.nouns import Kernel
from backprint.tools.kernels.read import (
    BUILT_FOLDER,
    CPP_FOLDER,
    GRAPH_FILE,
    GRAPH_FOLDER,
    PTX_FOLDER,
    TRITON_FOLDER,
    WRAPPER_LARGEST,
    KernelItem,
    graph_folder,
    read_saved_graph,
    read_text,
)

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
class _KernelTotals:
    """The totals of a dedup: how many kernels there are, and how many programs they are."""

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
            program = key if by == "program" else self.most_used(key)
            name = next(self.index.rows("select name from kernels where hash = ?", (program,)))[0]
            yield KernelGroup(key, program, language, name, programs, uses, samples, forward, backward)

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

    def totals(self) -> _KernelTotals:
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
        return _KernelTotals(
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


def grouped_kernels(kernels: Iterable[KernelItem], by: str = "program") -> KernelGroups:
    """Return the groups of a stream of kernels, which vanish with the value that is returned."""
    groups = vanishing_groups(by)
    groups.index.add_all(kernels)
    return groups


# ------------------------------------------------------------------ GraphNet's layout
#
# SAMPLE/original_graph/model.py    the sample's graph, where it was found beside its kernels
#     SAMPLE/triton_kernel/NAME.py      SAMPLE/cpp_kernel/NAME.cpp
#     SAMPLE/ptx/NAME.ptx               where it was found beside them; of several configurations, the first
#
# A folder for each sample has the kernels of which the sample is the representative. Names are those of the compiler,
# with eight letters of the hash if the sample has several programs of one name.

FOLDERS = {"triton": (TRITON_FOLDER, ".py"), "cpp": (CPP_FOLDER, ".cpp")}
"""The folder and the suffix of each language."""

UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def write_layout(groups: KernelGroups, out: Path, by: str = "program") -> int:
    """Write the representative of each program, or of each structure, below a folder; return how many were written. A
    sample that is there stays."""
    chosen = {group.representative for group in groups.groups(by)} if by != "program" else None
    count = 0
    try:
        out.mkdir(parents=True, exist_ok=True)
        for (sample,) in groups.index.rows("select distinct sample from kernels order by sample"):
            place = out / safe_path(sample)
            if place.exists():
                continue
            unfinished = place.with_name(f"{place.name}.tmp")
            shutil.rmtree(unfinished, ignore_errors=True)
            if written := write_sample(groups, sample, unfinished, chosen):
                os.replace(unfinished, place)
                count += written
    except OSError as error:
        raise PlaceError(f"{out}: {error}") from error
    return count


def safe_path(sample: str) -> Path:
    """Return a sample's folder, which is below the output whatever the sample's name is."""
    parts = [UNSAFE.sub("_", part) for part in sample.split("/") if part.strip(".")]
    return Path("__".join(parts) or "sample")


def write_sample(groups: KernelGroups, sample: str, place: Path, chosen: Container[str] | None) -> int:
    """Write the representatives that one sample has, all or those that are chosen; return how many."""
    names_used: set[tuple[str, str]] = set()
    count = 0
    for key, kernel in _representatives(groups, sample):
        if chosen is not None and key not in chosen:
            continue
        folder, suffix = FOLDERS[kernel.language]
        name = UNSAFE.sub("_", kernel.name)[:180].lstrip(".") or "kernel"
        if (folder, name.lower()) in names_used:
            name = f"{name}_{key[:8]}"
        names_used.add((folder, name.lower()))
        (place / folder).mkdir(parents=True, exist_ok=True)
        (place / folder / f"{name}{suffix}").write_text(kernel.source.strip("\n") + "\n", encoding="utf-8")
        _copy_beside(kernel, place, name)
        count += 1
    return count


def _representatives(groups: KernelGroups, sample: str) -> Iterator[tuple[str, Kernel]]:
    """Yield the programs that a sample was the first to have, with their hashes."""
    for (key,) in groups.index.rows(
        "select hash from kernels where sample = ? order by direction, name, hash", (sample,)
    ):
        kernel = groups.index.kernel(key)
        if kernel is not None:
            yield key, kernel


def _copy_beside(kernel: Kernel, place: Path, name: str) -> None:
    """Copy the graph and the PTX that lie beside a kernel in GraphNet's layout or in ours."""
    copies = dict.fromkeys(_built_ptx(kernel), place / PTX_FOLDER / f"{name}.ptx")
    file = Path(kernel.place)
    if file.parent.name == TRITON_FOLDER:
        sample = file.parent.parent
        copies[sample / GRAPH_FOLDER / "model.py"] = place / GRAPH_FOLDER / "model.py"
        copies[sample / PTX_FOLDER / f"{file.stem}.ptx"] = place / PTX_FOLDER / f"{name}.ptx"
    for source, target in copies.items():
        if source.is_symlink() or not source.is_file():
            continue  # a link may lead out of the folder
        if source.stat().st_size <= WRAPPER_LARGEST and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _built_ptx(kernel: Kernel) -> Iterator[Path]:
    """Yield the PTX of a kernel's first configuration, where `kernels --build` has written it."""
    folder = graph_folder(Path(kernel.place)) if kernel.place else None
    if folder is None or UNSAFE.search(kernel.name) or not (folder / BUILT_FOLDER / kernel.name).is_dir():
        return
    try:
        known = read_saved_graph(read_text(folder / GRAPH_FILE), str(folder / GRAPH_FILE)).kernels.get(kernel.name)
    except RefusedError:
        return  # it was whole when the kernel was read, and has changed since
    if known is not None and known.configurations:
        configuration = UNSAFE.sub("_", known.configurations[0].name)
        yield folder / BUILT_FOLDER / kernel.name / f"{configuration}.ptx"
