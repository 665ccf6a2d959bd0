"""The index of the kernels of a corpus: one SQLite file with each program once and every use of it, and queries of it.

Kernels are added as a stream, sample by sample, in transactions of whole samples: after a kill, a sample is in the
index with all its kernels or not at all, and the next run adds what is missing. Each run has a number. A folder is read
again if one of its files was written since, or could not be read.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from backprint.errors import PlaceError, RefusedError, SampleError, UsageError
from backprint.tools.kernels.alone_file import kernel_bytes
from backprint.tools.kernels.normal import normal_form
from backprint.tools.kernels.nouns import Kernel
from backprint.tools.kernels.read import (
    ExternCalls,
    KernelItem,
    KernelSample,
    UnreadKernels,
    kernels_of_sample,
    no_kernels_in,
    samples_below,
)

HASH = re.compile(r"[0-9a-f]+")

NAMED = 5
"""How many samples or hashes an error names."""


# ------------------------------------------------------------------ queries of the index


@dataclass(frozen=True, slots=True)
class IndexedUse:
    """A use of a kernel, and the run that first had its program."""

    use: KernelUse
    language: str
    program_run: int


@dataclass(frozen=True, slots=True)
class IndexRun:
    """A run that added kernels to an index, and how many samples, programs and uses it was the first to have."""

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
        conditions["uses.sample = ?"] = _known_sample(index, sample)
    if kernel is not None:
        column, key = _known_hash(index, kernel)
        conditions[f"kernels.{column} = ?"] = key
    if since is not None:
        conditions["uses.run > ?"] = _known_run(index, since)
    query = (
        f"select language, kernels.run, {USE} from uses join kernels on kernels.hash = uses.hash "
        f"where {' and '.join(conditions) or '1'} "
        "order by uses.sample, uses.direction, uses.target, uses.name, uses.place limit ?"
    )
    for language, first, *use in index.rows(query, (*conditions.values(), limit)):
        yield IndexedUse(KernelUse(*use), language, first)


def _known_sample(index: KernelIndex, name: str) -> str:
    """Return a sample's name as the index has it; one that is not there raises UsageError with near names."""
    key = str(_storable(name))
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


def _known_hash(index: KernelIndex, prefix: str) -> tuple[str, str]:
    """Return the column and the hash of the program, or else of the structure, whose hash begins so."""
    if not HASH.fullmatch(prefix):
        raise UsageError(
            f"{prefix!r} is not the beginning of a hash, which has 0-9 and a-f; a name may stand for several kernels: "
            "kernels dedup prints hashes"
        )
    for column in ("hash", "structure"):
        query = f"select distinct {column} from kernels where {column} >= ? and {column} < ? order by 1 limit ?"
        hashes = [row[0] for row in index.rows(query, (prefix, f"{prefix}g", NAMED + 1))]
        if len(hashes) == 1:
            return column, hashes[0]
        if hashes:
            several = ", ".join(key_found[: len(prefix) + 6] for key_found in hashes[:NAMED])
            more = ", …" if len(hashes) > NAMED else ""
            raise UsageError(f"{index.path}: several hashes begin with {prefix}: {several}{more}: write more of it")
    raise UsageError(f"{index.path}: no kernel has a hash that begins with {prefix}")


def _known_run(index: KernelIndex, run: int) -> int:
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


# ------------------------------------------------------------------ the file

FORMAT = 2

BATCH = 500
"""Kernels after which the samples that are whole are written for good."""

CACHE = 8 << 10
"""KiB of the file that SQLite may hold in memory."""

LARGEST = (1 << 63) - 1
"""The largest number that SQLite holds."""

TABLES = {
    "facts": "key text primary key, value integer",
    "runs": "run integer primary key, started real, finished real",
    "samples": (
        "source integer primary key, sample text not null, folder text not null, state text not null, "
        "run integer not null, unique (sample, folder)"
    ),
    "kernels": (
        "hash text primary key, structure text not null, language text not null, name text not null, "
        "source text not null, declared text not null, compiler text not null, target text not null, "
        "sample text not null, direction text not null, place text not null, run integer not null"
    ),
    "uses": (
        "source integer not null, sample text not null, direction text not null, name text not null, "
        "target text not null, place text not null, hash text not null, operators text not null, "
        "calls integer not null, bytes integer, run integer not null, seen integer not null, "
        "primary key (source, direction, name, target, place, hash)"
    ),
    "externs": (
        "source integer not null, sample text not null, direction text not null, target text not null, "
        "place text not null, operator text not null, calls integer not null, primary key (source, place, operator)"
    ),
    "unread": (
        "source integer not null, place text not null, reason text not null, run integer not null, "
        "primary key (source, place, reason)"
    ),
}
"""`run` is the first run that had a row, `seen` the last one that read it. A stream has samples without a folder."""

INDICES = {
    "uses_hash": "uses (hash, direction)",
    "uses_sample": "uses (sample)",
    "uses_run": "uses (run)",
    "kernels_structure": "kernels (structure)",
    "kernels_run": "kernels (run)",
    "kernels_sample": "kernels (sample)",
}


def schema() -> list[str]:
    """Return the statements that make an index."""
    tables = [f"create table if not exists {name} ({columns})" for name, columns in TABLES.items()]
    return [*tables, *(f"create index if not exists {name} on {columns}" for name, columns in INDICES.items())]


@dataclass(frozen=True, slots=True)
class KernelUse:
    """One kernel of one sample."""

    sample: str
    direction: str
    name: str
    target: str
    place: str
    hash: str
    calls: int
    """How often the sample calls it; 0 where that is not known."""
    run: int
    """The run that added it."""


class KernelIndex:
    """An open index. One process writes it (`KernelIndex.writing`); any may read it (`KernelIndex.reading`)."""

    def __init__(self, path: Path | str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.run = 0
        connection.execute(f"pragma cache_size = -{CACHE}")

    @classmethod
    def writing(cls, path: Path | str) -> KernelIndex:
        """Return the index at a path, created if missing, with a run of its own; '' is one that vanishes."""
        with _naming_index(path, SQLITE_FULL if Path(path).exists() else SQLITE_UNWRITABLE):
            # The one user of a vanishing index may give it up in another thread than that which made it.
            connection = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
            index = cls(path, connection)
            try:
                index.begin_run()
            except BaseException:
                connection.close()
                raise
        return index

    def begin_run(self) -> None:
        """Make the tables that are missing, and a row of this run."""
        connection = self.connection
        if self.table_names():
            self.check_format()  # before anything is written to a file of something else
        write_ahead(connection)
        connection.execute("pragma synchronous = normal")
        connection.execute("begin immediate")
        for statement in schema():
            connection.execute(statement)
        connection.execute("insert or ignore into facts values ('format', ?)", (FORMAT,))
        begun = connection.execute("insert into runs (started) values (?)", (time.time(),))
        connection.execute("commit")
        self.run = begun.lastrowid or 0

    @classmethod
    def reading(cls, path: Path) -> KernelIndex:
        """Return the index at a path, read-only."""
        if not path.is_file():
            raise UsageError(f"{path}: no index of kernels here: make one with kernels dedup DIR --index {path}")
        with _naming_index(path):
            connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=30
            )
            try:
                index = cls(path, connection)
                index.check_format()
            except BaseException:
                connection.close()
                raise
        return index

    def check_format(self) -> None:
        """Raise SampleError if another program or another version wrote the file."""
        if missing := set(TABLES) - self.table_names():
            raise SampleError(f"{self.path}: is not an index of kernels: it has no table {min(missing)!r}")
        version = self.number("select value from facts where key = 'format'")
        if version != FORMAT:
            raise SampleError(f"{self.path}: an index of format {version}; this version reads {FORMAT}")

    def table_names(self) -> set[str]:
        """Return the names of the tables that the file has."""
        return {row[0] for row in self.connection.execute("select name from sqlite_master where type = 'table'")}

    def __enter__(self) -> KernelIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    # -------------------------------------------------------------- writing

    def is_done(self, sample: str) -> bool:
        """Whether an earlier run has added a sample of a stream."""
        query = "select 1 from samples where sample = ? and folder = '' and run < ?"
        return self.connection.execute(query, (_storable(sample), self.run)).fetchone() is not None

    def add_all(self, items: Iterable[KernelItem], batch: int = BATCH) -> int:
        """Add a stream of kernels, in which a sample's kernels come together; return how many uses are new.

        Samples of earlier runs are left out. What cannot be read is noted, and the rest is added.
        """

        def add(group: tuple[str | None, Iterator[KernelItem]]) -> int:
            sample, members = group
            if sample is not None and self.is_done(sample):
                for _ in members:
                    pass
                return 0
            return self.add_members(0 if sample is None else self.source_of(sample, "", ""), members)

        return self.add_in_batches(groupby(items, key=sample_name), add, batch)

    def add_folder(self, path: Path, watch: Callable[[str], object] = str, batch: int = BATCH) -> int:
        """Add the samples in a folder that are new or were changed; return how many uses are new.

        `watch` is called with the name of each sample that is read. A folder without kernels is noted.
        """
        there = 0

        def add(sample: KernelSample) -> int:
            nonlocal there
            count = 0
            if not self.is_current(sample):
                watch(sample.name)
                count = self.add_sample(sample)
            there += self.has_content(sample)
            return count

        added = self.add_in_batches(samples_below(path), add, batch)
        with _naming_index(self.path):
            self.connection.execute("delete from unread where source = 0 and place = ?", (_storable(str(path)),))
            if not there:
                self.note_unread(0, no_kernels_in(path))
        return added

    def add_in_batches(self, parts: Iterable[Any], add: Callable[[Any], int], batch: int) -> int:
        """Add parts of whole samples, in transactions of at least so many kernels; return how many uses are new."""
        before = self.number("select count(*) from uses where run = ?", (self.run,))
        waiting = 0
        with _naming_index(self.path):
            self.connection.execute("begin immediate")
            try:
                for part in parts:
                    waiting += add(part)
                    if waiting >= batch:
                        self.connection.execute("commit")
                        self.connection.execute("begin immediate")
                        waiting = 0
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("rollback")
                raise
            self.connection.execute("update runs set finished = ? where run = ?", (time.time(), self.run))
            self.connection.execute("commit")
        return self.number("select count(*) from uses where run = ?", (self.run,)) - before

    def is_current(self, sample: KernelSample) -> bool:
        """Whether the index has a folder as it is now, and all of it could be read."""
        query = (
            "select 1 from samples where sample = ? and folder = ? and state = ? "
            "and not exists (select 1 from unread where unread.source = samples.source and unread.run < ?)"
        )
        key = (*map(_storable, (sample.name, sample.folder, sample.state)), self.run)
        return self.connection.execute(query, key).fetchone() is not None

    def has_content(self, sample: KernelSample) -> bool:
        """Whether kernels of a folder, its extern calls, or what could not be read are in the index."""
        parts = " union ".join(f"select 1 from {table} join here using (source)" for table in CONTENT)
        query = f"with here as (select source from samples where sample = ? and folder = ?) {parts}"
        return self.connection.execute(query, (_storable(sample.name), _storable(sample.folder))).fetchone() is not None

    def add_sample(self, sample: KernelSample) -> int:
        """Add a folder inside a transaction, and remove uses that it no longer has; return how many kernels there
        are."""
        source = self.source_of(sample.name, sample.folder, sample.state)
        for table in ("unread", "externs"):
            self.connection.execute(f"delete from {table} where source = ?", (source,))
        count = self.add_members(source, kernels_of_sample(sample))
        gone = self.connection.execute("select hash from uses where source = ? and seen < ?", (source, self.run))
        keys = [row[0] for row in gone]
        self.connection.execute("delete from uses where source = ? and seen < ?", (source, self.run))
        self.remove_unused(keys)
        return count

    def source_of(self, sample: str, folder: str, state: str) -> int:
        """Return the number of a sample's row; that of a folder which was moved is taken over."""
        key, place = _storable(sample), _storable(folder)
        rows = dict(self.connection.execute("select folder, source from samples where sample = ?", (key,)))
        # A corpus that was moved to another path keeps its rows, and so the runs that first had its kernels.
        moved = (source for known, source in rows.items() if known and folder and not os.path.exists(known))
        source: int | None = rows[place] if place in rows else next(moved, None)
        if source is None:
            query = "insert into samples (sample, folder, state, run) values (?, ?, ?, ?)"
            return self.connection.execute(query, (key, place, state, self.run)).lastrowid or 0
        self.connection.execute("update samples set folder = ?, state = ? where source = ?", (place, state, source))
        return source

    def add_members(self, source: int, found: Iterable[KernelItem]) -> int:
        """Add the kernels of one sample inside a transaction; return how many there were."""
        count = 0
        for item in found:
            count += 1
            match item:
                case UnreadKernels():
                    self.note_unread(source, item)
                case ExternCalls():
                    self.add_externs(source, item)
                case _:
                    self.add_kernel(source, item)
        return count

    def add_kernel(self, source: int, kernel: Kernel) -> None:
        """Add a kernel if its program is new, and its use."""
        try:
            form = normal_form(kernel)
        except RefusedError as error:
            self.note_unread(source, UnreadKernels(kernel.place or kernel.sample, str(error)))
            return
        key = form.kernel_hash
        where = (kernel.sample, kernel.direction, kernel.place, self.run)
        facts_of_source = (kernel.language, kernel.name, kernel.source, kernel.declared, kernel.compiler, kernel.target)
        query = "insert or ignore into kernels values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self.connection.execute(
            query, [_storable(value) for value in (key, form.structure_hash, *facts_of_source, *where)]
        )
        moved = kernel_bytes(kernel)
        facts = (
            json.dumps([operator.operator for operator in kernel.operators]),
            len(kernel.calls),
            moved,
            self.run,
            self.run,
        )
        use = (source, kernel.sample, kernel.direction, kernel.name, kernel.target, kernel.place, key, *facts)
        query = (
            "insert into uses values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do update "
            "set operators = excluded.operators, calls = excluded.calls, bytes = excluded.bytes, seen = excluded.seen"
        )
        self.connection.execute(query, [_storable(value) for value in use])

    def add_externs(self, source: int, externs: ExternCalls) -> None:
        """Add the operators that a graph calls beside its kernels."""
        where = (source, externs.sample, externs.direction, externs.target, externs.place)
        rows = [[_storable(value) for value in (*where, name, count)] for name, count in externs.operators.items()]
        self.connection.executemany("insert or replace into externs values (?, ?, ?, ?, ?, ?, ?)", rows)

    def note_unread(self, source: int, unread: UnreadKernels) -> None:
        """Note a file or a kernel that was not read."""
        row = (source, _storable(unread.place), _storable(unread.reason), self.run)
        self.connection.execute("insert or replace into unread values (?, ?, ?, ?)", row)

    def forget(self, sample: str) -> None:
        """Remove a sample, and the programs that nothing else uses, so that the next run adds it again."""
        key = (_storable(sample),)
        with _naming_index(self.path):
            self.connection.execute("begin immediate")
            keys = [row[0] for row in self.connection.execute("select distinct hash from uses where sample = ?", key)]
            sources = "source in (select source from samples where sample = ?)"
            for table in (*CONTENT, "samples"):
                self.connection.execute(f"delete from {table} where {sources}", key)
            self.remove_unused(keys)
            self.connection.execute("commit")

    def remove_unused(self, keys: Iterable[str]) -> None:
        """Remove programs without a use, and update the place of those whose recorded use is gone."""
        unused = "delete from kernels where hash = ?1 and not exists (select 1 from uses where hash = ?1)"
        elsewhere = (
            "update kernels set (sample, direction, place, target) = "
            "(select sample, direction, place, target from uses where hash = ?1 order by run, sample, place limit 1) "
            "where hash = ?1 and not exists "
            "(select 1 from uses where hash = ?1 and uses.sample = kernels.sample and uses.place = kernels.place)"
        )
        for key in keys:
            self.connection.execute(unused, (key,))
            self.connection.execute(elsewhere, (key,))

    # -------------------------------------------------------------- reading

    def kernel(self, hash: str) -> Kernel | None:
        """Return the representative of a hash, the first kernel that was added with it."""
        query = (
            "select language, name, source, target, declared, compiler, sample, direction, place "
            "from kernels where hash = ?"
        )
        for language, name, source, target, declared, compiler, sample, direction, place in self.rows(query, (hash,)):
            return Kernel(
                language,
                name,
                source,
                target=target,
                declared=declared,
                compiler=compiler,
                sample=sample,
                direction=direction,
                place=place,
            )
        return None

    def unread(self) -> Iterator[UnreadKernels]:
        """Yield what could not be read, and why."""
        return (UnreadKernels(*row) for row in self.rows("select place, reason from unread order by place, reason"))

    def unread_now(self) -> Iterator[UnreadKernels]:
        """Yield what this run could not read."""
        query = "select place, reason from unread where run = ? order by place, reason"
        return (UnreadKernels(*row) for row in self.rows(query, (self.run,)))

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query."""
        with _naming_index(self.path):
            yield from self.connection.execute(query, values)

    def number(self, query: str, values: tuple[Any, ...] = ()) -> int:
        """Return the one number that a query asks for."""
        for row in self.rows(query, values):
            if not isinstance(row[0], (int, type(None))):
                raise SampleError(f"{self.path}: a number is wanted, and it has {str(row[0])[:40]!r}")
            return int(row[0] or 0)
        return 0


USE = "uses.sample, uses.direction, uses.name, uses.target, uses.place, uses.hash, calls, uses.run"
"""The columns of a KernelUse."""

CONTENT = ("unread", "externs", "uses")
"""The tables with rows of a sample."""


def sample_name(item: KernelItem) -> str | None:
    """Return the sample of a kernel; None of what could not be read."""
    return None if isinstance(item, UnreadKernels) else item.sample


def _storable(value: str | int | None) -> str | int | None:
    """Return a value that SQLite can hold: what no encoding has is written as an escape, and numbers end somewhere."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case int():
            return max(-LARGEST, min(value, LARGEST))
        case None:
            return None


def write_ahead(connection: sqlite3.Connection, seconds: float = 30.0) -> None:
    """Turn the write-ahead log on. SQLite may refuse that at once, and not wait, while another process does it."""
    until = time.monotonic() + seconds
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.01)


SQLITE_FULL = ("SQLITE_FULL", "SQLITE_READONLY")
SQLITE_UNWRITABLE = (*SQLITE_FULL, "SQLITE_CANTOPEN")
"""SQLite's names of errors of a place; a file that cannot be opened is one where it is to be made."""


@contextlib.contextmanager
def _naming_index(path: Path | str, of_place: Collection[str] = SQLITE_FULL) -> Iterator[None]:
    """Add the file's name to SQLite's errors."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        is_of_place = getattr(error, "sqlite_errorname", "") in of_place
        raise (PlaceError if is_of_place else SampleError)(f"{path or 'an index of kernels'}: {error}") from error
