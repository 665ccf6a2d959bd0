"""The index of the kernels of a corpus: one SQLite file with each program once, and every use of it.

Kernels are added as a stream, a sample after the other, in transactions of whole samples: after a kill a sample is in
the index with all its kernels or not at all, and the next run adds what is missing. Each run has a number.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from backprint.errors import RefusedError, SampleError, UsageError
from backprint.extracting.normal import normal_form
from backprint.extracting.nouns import Kernel
from backprint.extracting.read import Found, UnreadKernels

FORMAT = 1

BATCH = 500
"""Kernels after which the samples that are whole are written for good."""

CACHE = 8 << 10
"""KiB of the file that SQLite may hold in memory."""

TABLES = {
    "facts": "key text primary key, value integer",
    "runs": "run integer primary key, started real, finished real",
    "samples": "sample text primary key, run integer not null",
    "kernels": (
        "hash text primary key, structure text not null, language text not null, name text not null, "
        "source text not null, declared text not null, compiler text not null, target text not null, "
        "sample text not null, direction text not null, place text not null, run integer not null"
    ),
    "uses": (
        "sample text not null, direction text not null, name text not null, target text not null, "
        "place text not null, hash text not null, run integer not null, "
        "primary key (sample, direction, name, target, place, hash)"
    ),
    "unread": "place text not null, reason text not null, run integer not null, primary key (place, reason)",
}

INDICES = {
    "uses_hash": "uses (hash, direction)",
    "kernels_structure": "kernels (structure)",
    "kernels_run": "kernels (run)",
    "kernels_sample": "kernels (sample)",
}


@dataclass(frozen=True, slots=True)
class KernelUse:
    """One kernel of one sample."""

    sample: str
    direction: str
    name: str
    target: str
    place: str
    hash: str


class KernelIndex:
    """An open index. The process that made it is its only writer; `KernelIndex.reading` opens one to read."""

    def __init__(self, path: Path | str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.run = 0
        connection.execute(f"pragma cache_size = -{CACHE}")

    @classmethod
    def writing(cls, path: Path | str) -> KernelIndex:
        """Return the index at a path, created if missing, with a run of its own; '' is one that vanishes."""
        with naming_index(path):
            connection = sqlite3.connect(path, isolation_level=None, timeout=30)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            connection.execute("begin immediate")
            for name, columns in TABLES.items():
                connection.execute(f"create table if not exists {name} ({columns})")
            for name, columns in INDICES.items():
                connection.execute(f"create index if not exists {name} on {columns}")
            connection.execute("insert or ignore into facts values ('format', ?)", (FORMAT,))
            connection.execute("commit")
            index = cls(path, connection)
            index.check_format()
            begun = connection.execute("insert into runs (started) values (?)", (time.time(),))
        index.run = begun.lastrowid or 0
        return index

    @classmethod
    def reading(cls, path: Path) -> KernelIndex:
        """Return the index at a path, read-only."""
        if not path.is_file():
            raise UsageError(f"{path}: no index of kernels here")
        with naming_index(path):
            connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=30
            )
            index = cls(path, connection)
            index.check_format()
        return index

    def check_format(self) -> None:
        """Raise SampleError if another version wrote the file."""
        known = {row[0] for row in self.connection.execute("select name from sqlite_master where type = 'table'")}
        if missing := set(TABLES) - known:
            raise SampleError(f"{self.path}: is not an index of kernels: it has no table {min(missing)!r}")
        found = self.number("select value from facts where key = 'format'")
        if found != FORMAT:
            raise SampleError(f"{self.path}: an index of format {found}; this version reads {FORMAT}")

    def __enter__(self) -> KernelIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    # -------------------------------------------------------------- writing

    def is_done(self, sample: str) -> bool:
        """Whether an earlier run has added a sample."""
        query = "select 1 from samples where sample = ? and run < ?"
        return self.connection.execute(query, (storable(sample), self.run)).fetchone() is not None

    def add_all(self, found: Iterable[Found], batch: int = BATCH) -> int:
        """Add a stream of kernels, in which a sample's kernels come together; return how many uses are new.

        Samples of earlier runs are left out. What cannot be read is noted, and the rest is added.
        """
        before = self.number("select count(*) from uses")
        waiting = 0
        with naming_index(self.path):
            self.connection.execute("begin immediate")
            try:
                for sample, members in groupby(found, key=sample_name):
                    waiting += self.add_sample(sample, members)
                    if waiting >= batch:
                        self.connection.execute("commit")
                        self.connection.execute("begin immediate")
                        waiting = 0
            except BaseException:
                self.connection.execute("rollback")
                raise
            self.connection.execute("update runs set finished = ? where run = ?", (time.time(), self.run))
            self.connection.execute("commit")
        return self.number("select count(*) from uses") - before

    def add_sample(self, sample: str | None, found: Iterable[Found]) -> int:
        """Add the kernels of one sample inside a transaction; return how many there were."""
        count = 0
        if sample is not None and self.is_done(sample):
            for _ in found:
                pass
            return 0
        for one in found:
            count += 1
            if isinstance(one, UnreadKernels):
                self.note_unread(one.place, one.reason)
            else:
                self.add_kernel(one)
        if sample is not None:
            self.connection.execute("insert or ignore into samples values (?, ?)", (storable(sample), self.run))
        return count

    def add_kernel(self, kernel: Kernel) -> None:
        """Add a kernel if its program is new, and its use."""
        try:
            form = normal_form(kernel)
        except RefusedError as error:
            self.note_unread(kernel.place or kernel.sample, str(error))
            return
        key = form.kernel_hash
        where = (kernel.sample, kernel.direction, kernel.place, self.run)
        said = (kernel.language, kernel.name, kernel.source, kernel.declared, kernel.compiler, kernel.target)
        query = "insert or ignore into kernels values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self.connection.execute(query, [storable(one) for one in (key, form.structure_hash, *said, *where)])
        use = (kernel.sample, kernel.direction, kernel.name, kernel.target, kernel.place, key, self.run)
        query = "insert or ignore into uses values (?, ?, ?, ?, ?, ?, ?)"
        self.connection.execute(query, [storable(one) for one in use])

    def note_unread(self, place: str, reason: str) -> None:
        """Note a file or a kernel that was not read."""
        row = (storable(place), storable(reason), self.run)
        self.connection.execute("insert or ignore into unread values (?, ?, ?)", row)

    def forget(self, sample: str) -> None:
        """Remove a sample, and the programs that nothing else uses, so that the next run adds it again."""
        sample = str(storable(sample))
        with naming_index(self.path):
            self.connection.execute("begin immediate")
            keys = [
                row[0] for row in self.connection.execute("select distinct hash from uses where sample = ?", (sample,))
            ]
            self.connection.execute("delete from uses where sample = ?", (sample,))
            self.connection.execute("delete from samples where sample = ?", (sample,))
            unused = "delete from kernels where hash = ?1 and not exists (select 1 from uses where hash = ?1)"
            self.connection.executemany(unused, [(key,) for key in keys])
            self.connection.execute("commit")

    # -------------------------------------------------------------- reading

    def samples_with(self, hash: str) -> list[str]:
        """Return the samples that use a kernel."""
        query = "select distinct sample from uses where hash = ? order by sample"
        return [row[0] for row in self.rows(query, (hash,))]

    def kernels_for(self, sample: str) -> list[KernelUse]:
        """Return the kernels that a sample needs."""
        query = f"select {USE} from uses where sample = ? order by direction, name, place, hash"
        return [KernelUse(*row) for row in self.rows(query, (sample,))]

    def uses_of(self, hash: str, limit: int = -1) -> Iterator[KernelUse]:
        """Yield the uses of a kernel."""
        query = f"select {USE} from uses where hash = ? order by sample, direction, name, place limit ?"
        return (KernelUse(*row) for row in self.rows(query, (hash, limit)))

    def new_since(self, run: int) -> Iterator[str]:
        """Yield the hashes of the kernels that came after a run."""
        return (row[0] for row in self.rows("select hash from kernels where run > ? order by run, hash", (run,)))

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

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query."""
        with naming_index(self.path):
            yield from self.connection.execute(query, values)

    def number(self, query: str, values: tuple[Any, ...] = ()) -> int:
        """Return the one number that a query asks for."""
        for row in self.rows(query, values):
            return int(row[0] or 0)
        return 0


USE = "sample, direction, name, target, place, hash"
"""The columns of a KernelUse."""


def sample_name(found: Found) -> str | None:
    """Return the sample of a kernel; None of what could not be read."""
    return found.sample if isinstance(found, Kernel) else None


def storable(value: str | int) -> str | int:
    """Return a text that SQLite can hold: what no encoding has is written as an escape."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


@contextlib.contextmanager
def naming_index(path: Path | str) -> Iterator[None]:
    """Add the file's name to SQLite's errors."""
    try:
        yield
    except sqlite3.Error as error:
        raise SampleError(f"{path or 'an index of kernels'}: {error}") from error
