"""The record of a corpus run: one SQLite file, every sample in it exactly once, written by one process alone.

A row's columns are a table, and so are the facts of the run that a resume has to share with it. Readers open the file
read-only, while a run goes on or after it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from backprint.corpus.find import Job, unescape
from backprint.corpus.rows import COLUMNS as COLUMNS
from backprint.corpus.rows import GIVEN, checked_row
from backprint.errors import SampleError, UsageError
from backprint.graph.verdicts import GOOD as GOOD
from backprint.graph.verdicts import Proofs, proofs

NAME = "ledger.sqlite"
FORMAT = 1

STATES = ("todo", "running", "done")

SAME = ("format", "verb", "source", "options")
"""Facts of a run that a resume has to share."""


class Ledger:
    """An open ledger. The process that made it is its only writer; `Ledger.reading` opens one to read."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        connection.row_factory = sqlite3.Row

    @classmethod
    def writing(cls, path: Path) -> Ledger:
        """The ledger at a path, made where there is none."""
        with naming_ledger(path):
            connection = sqlite3.connect(path, isolation_level=None, timeout=30)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            columns = ", ".join(f"{name} {kind.replace('json', 'text')}" for name, kind in COLUMNS.items())
            connection.execute("begin immediate")  # a reader sees all of it or nothing
            connection.execute("create table if not exists run (key text primary key, value)")
            connection.execute(f"create table if not exists samples ({columns})")
            connection.execute("create index if not exists states on samples (state)")
            connection.execute("commit")
        return cls(path, connection)

    @classmethod
    def reading(cls, path: Path) -> Ledger:
        """The ledger at a path (or in a run's folder), to be read alone."""
        path = path / NAME if path.is_dir() else path
        if not path.is_file():
            raise UsageError(f"{path}: no ledger here; name the OUT of a corpus run")
        with naming_ledger(path):
            place = f"{path.resolve().as_uri()}?mode=ro"
            connection = sqlite3.connect(place, uri=True, isolation_level=None, timeout=30)
            columns = {row[1] for row in connection.execute("pragma table_info(samples)")}
        if missing := set(COLUMNS) - columns:
            connection.close()
            said = f"it has no column {min(missing)!r}" if columns else "nothing is in it yet"
            raise SampleError(f"{path}: is not a ledger of this version: {said}")
        return cls(path, connection)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    # -------------------------------------------------------------- the run

    def facts(self) -> dict[str, Any]:
        """What is known of the run as a whole."""
        with naming_ledger(self.path):
            return {key: json.loads(value) for key, value in self.connection.execute("select key, value from run")}

    def note(self, **facts: Any) -> None:
        """Write facts of the run down."""
        rows = [(key, json.dumps(value, sort_keys=True)) for key, value in facts.items()]
        with self.transaction():
            self.connection.executemany("insert or replace into run values (?, ?)", rows)

    # -------------------------------------------------------------- the samples

    def add(self, jobs: Iterable[Job]) -> int:
        """Write new samples down as `todo`; one whose source has changed is `todo` again. Gives how many these are."""
        before = self.connection.total_changes
        fresh = f"insert into samples ({', '.join(GIVEN)}) values (?, ?, ?, ?, ?, 'todo', 0)"
        again = (
            "on conflict (id) do update set state = 'todo', attempts = 0, kind = excluded.kind, "
            "source_hash = excluded.source_hash where source_hash != excluded.source_hash"
        )
        with self.transaction():
            for job in jobs:
                row = (job.id, escape_path(job), job.family, job.kind, job.source_hash)
                self.connection.execute(f"{fresh} {again}", row)
        return self.connection.total_changes - before

    def unfinished(self, page: int = 1000) -> Iterator[dict[str, Any]]:
        """The rows that are not done, in the order they were added. Rows may be finished in between."""
        last = -1
        while True:
            query = "select rowid as place, * from samples where state != 'done' and rowid > ? order by rowid limit ?"
            rows = self.connection.execute(query, (last, page)).fetchall()
            if not rows:
                return
            for row in rows:
                yield decoded(row)
            last = rows[-1]["place"]

    def begin(self, id: str) -> None:
        """A worker has taken a sample."""
        query = "update samples set state = 'running', attempts = attempts + 1, started = ? where id = ?"
        self.connection.execute(query, (time.time(), id))

    def put_off(self, id: str) -> None:
        """A sample that a worker has had waits for another try."""
        self.connection.execute("update samples set state = 'todo' where id = ?", (id,))

    def again(self, words: Collection[str]) -> list[dict[str, Any]]:
        """Samples that are done, and have one of these verdicts or causes, are to do again; gives their old rows."""
        chosen = f"state = 'done' and ({' or '.join(['verdict = ?', 'cause = ?'] * len(words))})"
        values = tuple(word for word in words for _ in range(2))
        old = list(self.rows(chosen, values)) if words else []
        cleared = ", ".join(f"{name} = null" for name in COLUMNS if name not in GIVEN)
        with self.transaction():
            for row in old:
                query = f"update samples set state = 'todo', attempts = 0, {cleared} where id = ?"
                self.connection.execute(query, (row["id"],))
        return old

    def finish(self, id: str, row: Mapping[str, Any]) -> None:
        """A sample is done, and this is what came of it."""
        content = {"state": "done", **{key: encoded(key, value) for key, value in checked_row(row).items()}}
        sets = ", ".join(f"{key} = ?" for key in content)
        done = self.connection.execute(f"update samples set {sets} where id = ?", (*content.values(), id))
        if done.rowcount != 1:
            raise SampleError(f"{self.path}: there is no sample {id!r} in this ledger")

    def row(self, id: str) -> dict[str, Any] | None:
        """One sample's row."""
        found = self.connection.execute("select * from samples where id = ?", (id,)).fetchone()
        return decoded(found) if found else None

    def rows(
        self, where: str = "1", values: tuple[Any, ...] = (), order: str = "rowid", limit: int = -1
    ) -> Iterator[dict[str, Any]]:
        """The samples' rows for which an SQL condition holds, in the order they were added or another."""
        query = f"select * from samples where {where} order by {order} limit {limit:d}"
        with naming_ledger(self.path):
            for row in self.connection.execute(query, values):
                yield decoded(row)

    def proofs(self) -> Proofs:
        """How many of the samples that are done have a proof, and which ports of the others are without power."""
        query = "select id, verdict, power, vacuous from samples where state = 'done' order by id"
        with naming_ledger(self.path):
            rows = self.connection.execute(query).fetchall()
        return proofs((id, verdict, power, json.loads(still or "[]")) for id, verdict, power, still in rows)

    def counts(self, column: str, where: str = "1") -> dict[str, int]:
        """How many samples have each value of a column, the most frequent first."""
        if column not in COLUMNS:
            raise UsageError(f"{column!r} is not a column of a ledger: {', '.join(COLUMNS)}")
        query = f"select coalesce({column}, ''), count(*) from samples where {where} group by 1 order by 2 desc, 1"
        with naming_ledger(self.path):
            return dict(map(tuple, self.connection.execute(query)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing."""
        with naming_ledger(self.path):
            self.connection.execute("begin immediate")
            try:
                yield
            except BaseException:
                self.connection.execute("rollback")
                raise
            self.connection.execute("commit")


def escape_path(job: Job) -> str:
    """A Job's path as the ledger keeps it: as its id is written, `.` for the corpus itself."""
    return job.id if job.path else "."


def source_of(source: Path, row: Mapping[str, Any]) -> Path:
    """Where a row's sample lies in the corpus it was found in."""
    return source / unescape(row["path"])


def place_of(out: Path, row: Mapping[str, Any]) -> Path:
    """Where a row's sample lies in the run's own folder, once it is done."""
    return out / unescape(row["id"])


@contextlib.contextmanager
def naming_ledger(path: Path) -> Iterator[None]:
    """What SQLite says, with the file it says it of."""
    try:
        yield
    except sqlite3.Error as error:
        raise SampleError(f"{path}: {error}") from error


# ------------------------------------------------------------------ rows


def encoded(key: str, value: Any) -> Any:
    """A value of a checked row as SQLite keeps it."""
    return json.dumps(value) if COLUMNS[key] == "json" and value is not None else value


def without_infinities(value: Any) -> Any:
    """Plain data without infinities, which JSON has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): without_infinities(item) for key, item in value.items()}
    return [without_infinities(item) for item in value] if isinstance(value, (list, tuple, set, frozenset)) else value


def decoded(row: sqlite3.Row) -> dict[str, Any]:
    """A row as plain data, its JSON read."""
    return {
        key: json.loads(row[key]) if kind == "json" and row[key] is not None else row[key]
        for key, kind in COLUMNS.items()
    }


# ------------------------------------------------------------------ taking up a run


def take_up(path: Path, facts: Mapping[str, Any], restart: bool = False) -> Ledger:
    """The ledger of a run with these facts: a new one, or the one that is there, if it is of the same run.

    `restart` begins a new one, and the old ledger stays under another name.
    """
    if restart and path.exists():
        set_aside(path)
    ledger = Ledger.writing(path)
    try:
        before = ledger.facts()
        for key in SAME:
            if key in before and before[key] != json.loads(json.dumps(facts[key])):
                raise UsageError(f"{path}: {difference(key, before[key], facts[key])}; {NEXT}")
        ledger.note(**(facts if not before else {key: facts[key] for key in facts if key not in ("run", "started")}))
    except BaseException:
        ledger.connection.close()
        raise
    return ledger


NEXT = "finish it as it was begun, choose another OUT, or begin anew with --restart (the old ledger is kept)"


def difference(key: str, then: Any, now: Any) -> str:
    """How a run is another than the one that was begun, both sides."""
    if isinstance(then, dict) and isinstance(now, Mapping):
        names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
        said = ", ".join(f"{name} {then.get(name)!r}, now {now.get(name)!r}" for name in names)
        return f"this run was begun with other {key}: {said}"
    return f"this run was begun with {key} {then!r}, now {now!r}"


def set_aside(path: Path) -> Path:
    """Give a ledger another name: `ledger.1.sqlite`, or the next that is free."""
    with contextlib.suppress(SampleError), naming_ledger(path), contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")  # so that the one file is the whole of it
    number = 1
    while (place := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    os.rename(path, place)
    for rest in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{rest}", f"{place}{rest}")
    return place
