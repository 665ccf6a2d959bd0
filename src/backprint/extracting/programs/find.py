"""Questions to an index of kernels: who uses this kernel, which kernels does this sample need, what is new."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from backprint.errors import UsageError
from backprint.extracting.programs.index import USE, KernelIndex, KernelUse, storable

HASH = re.compile(r"[0-9a-f]+")

NAMED = 5
"""How many samples or hashes an error names."""


@dataclass(frozen=True, slots=True)
class IndexedUse:
    """A use of a kernel, and the run that first had its program."""

    use: KernelUse
    language: str
    program_run: int


@dataclass(frozen=True, slots=True)
class IndexRun:
    """A run that added kernels to an index, and what it was the first to have."""

    run: int
    started: float
    finished: float | None
    samples: int
    programs: int
    uses: int


def find_uses(
    index: KernelIndex, sample: str | None = None, kernel: str | None = None, since: int | None = None, limit: int = -1
) -> Iterator[IndexedUse]:
    """Yield the uses of a sample, of the kernels whose hash has a beginning, and that came after a run: each that is
    given must hold. A sample, a hash or a run that is not there raises UsageError."""
    conditions: dict[str, object] = {}
    if sample is not None:
        conditions["uses.sample = ?"] = known_sample(index, sample)
    if kernel is not None:
        column, key = known_hash(index, kernel)
        conditions[f"kernels.{column} = ?"] = key
    if since is not None:
        conditions["uses.run > ?"] = known_run(index, since)
    query = (
        f"select language, kernels.run, {USE} from uses join kernels on kernels.hash = uses.hash "
        f"where {' and '.join(conditions) or '1'} "
        "order by uses.sample, uses.direction, uses.target, uses.name, uses.place limit ?"
    )
    for language, first, *use in index.rows(query, (*conditions.values(), limit)):
        yield IndexedUse(KernelUse(*use), language, first)


def known_sample(index: KernelIndex, name: str) -> str:
    """Return a sample's name as the index has it; one that is not there raises UsageError with near names."""
    key = str(storable(name))
    if index.number("select count(*) from samples where sample = ?", (key,)):
        return key
    within = index.rows(
        "select distinct sample from samples where instr(lower(sample), lower(?)) limit ?", (key, NAMED)
    )
    near = [row[0] for row in within]
    if not near:
        names = [row[0] for row in index.rows("select distinct sample from samples")]
        near = difflib.get_close_matches(key, names, NAMED, 0.5)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    count = index.number("select count(distinct sample) from samples")
    raise UsageError(f"{index.path}: no sample is called {name!r}, of {count:,}{hint}")


def known_hash(index: KernelIndex, prefix: str) -> tuple[str, str]:
    """Return the column and the hash of the program, or else of the structure, whose hash begins so."""
    if not HASH.fullmatch(prefix):
        raise UsageError(
            f"{prefix!r} is not the beginning of a hash, which has 0-9 and a-f; a name may stand for several kernels: "
            "kernels dedup prints hashes"
        )
    for column in ("hash", "structure"):
        query = f"select distinct {column} from kernels where {column} >= ? and {column} < ? order by 1 limit ?"
        found = [row[0] for row in index.rows(query, (prefix, f"{prefix}g", NAMED + 1))]
        if len(found) == 1:
            return column, found[0]
        if found:
            several = ", ".join(each[: len(prefix) + 6] for each in found[:NAMED])
            more = ", …" if len(found) > NAMED else ""
            raise UsageError(f"{index.path}: several hashes begin with {prefix}: {several}{more}: write more of it")
    raise UsageError(f"{index.path}: no kernel has a hash that begins with {prefix}")


def known_run(index: KernelIndex, run: int) -> int:
    """Return the number of a run that the index has, or 0, which is before them all."""
    last = index.number("select max(run) from runs")
    if not 0 <= run <= last:
        raise UsageError(f"{index.path}: there is no run {run}: the last one is {last}")
    return run


def index_runs(index: KernelIndex) -> Iterator[IndexRun]:
    """Yield the runs of an index, the first one first."""
    counts = (
        f"(select count(*) from {table} where {table}.run = runs.run)" for table in ("samples", "kernels", "uses")
    )
    query = f"select run, started, finished, {', '.join(counts)} from runs order by run"
    return (IndexRun(*row) for row in index.rows(query))
