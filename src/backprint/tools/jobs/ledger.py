"""The record of a corpus run: one SQLite file with every sample in it exactly once, written by one process only.

The columns of a row are a table, and so are the facts that a resumed run must share. A row is checked once: where the
process of its sample hands it over (`row_or_failure`), because a stranger's code ran there. An invalid row becomes a
failure that says why. From there on the ledger is ours, and is trusted: a file that is no ledger, or one of another
version, fails with one line. Readers open it read-only, during a run or after it.

A verb is the function of a run that works on one sample and returns its row; a Job is a sample that was found. The
`state` of a sample is `todo`, `running` or `done`; its `id` is the path below the corpus, by which its folder in OUT,
the run's folder, is named too.
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
import os
import reprlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backprint.errors import SampleError, UsageError
from backprint.graph.verdicts import VERDICTS, Proofs, proofs
from backprint.tools.jobs.find import Job
from backprint.tools.jobs.task import failure

# ------------------------------------------------------------------ the columns of a row

COLUMNS: Mapping[str, str] = {
    "id": "text primary key",
    "path": "text",
    "family": "text",
    "kind": "text",
    "source_hash": "text",
    "state": "text",
    "attempts": "integer",
    "verdict": "text",
    "judge": "integer",
    "cause": "text",
    "detail": "text",
    "stage": "text",
    "seconds": "real",
    "stages": "json",
    "peak_bytes": "integer",
    "engine": "text",
    "mode": "text",
    "forward_hash": "text",
    "backward_hash": "text",
    "forward_shape": "text",
    "backward_shape": "text",
    "forward_steps": "integer",
    "backward_steps": "integer",
    "saved_bytes": "integer",
    "inputs": "integer",
    "gradients": "integer",
    "outputs": "integer",
    "input_bytes": "integer",
    "disk_bytes": "integer",
    "power": "real",
    "vacuous": "json",
    "asks": "json",
    "notes": "json",
    "guards": "integer",
    "worker": "text",
    "started": "real",
    "finished": "real",
    "versions": "json",
    "operators": "json",
    "derivative": "text",
    "flops": "integer",
    "moved_bytes": "integer",
    "source_bytes": "integer",
    "tensor_bytes": "integer",
}
"""The columns of a row: `judge` is the version of the judge that gave the verdict (`judge.VERSION`). `stages` (stage
-> seconds), `versions` and `operators` (`forward aten.mm.default float32` -> calls) are JSON objects, `vacuous`,
`asks` and `notes` lists. `derivative` says whether the backward is the derivative of the forward; it is empty if
that was not checked. `flops` (of products) and `moved_bytes` are those of all graphs, each step as a kernel of its
own. `source_bytes` and `tensor_bytes` are the sizes of the sample's code and of the tensors that its metadata lists,
known before the sample is processed."""

GIVEN = ("id", "path", "family", "kind", "source_hash", "state", "attempts")
"""Columns that the ledger sets, and that are never empty."""

KNOWN_BEFORE = ("source_bytes", "tensor_bytes")
"""Columns that the search for samples sets."""

SET_BY_LEDGER = frozenset((*GIVEN, *KNOWN_BEFORE))
"""Columns that the ledger sets; a verb sets the others."""

NO_ROW = "no row"
"""The cause of a sample with an invalid row."""

LONGEST = 1 << 16
"""The most characters of a text."""

LARGEST = 1 << 22
"""The most characters of a list or an object, as JSON."""


def row_or_failure(row: Any) -> dict[str, Any]:
    """Return a verb's row with each value in its column's form, or the row of a failure that says why it is invalid."""
    try:
        return check_row(row)
    except UsageError as error:
        return failure(NO_ROW, str(error), stage="done")


def check_row(row: Any) -> dict[str, Any]:
    """Return a verb's row with each value in its column's form; raise UsageError with the name of an invalid column."""
    if not isinstance(row, Mapping):
        raise UsageError(f"the verb returned {type(row).__name__}, and a verb returns a dict")
    for key in row:
        if type(key) is not str or key not in COLUMNS or key in SET_BY_LEDGER:
            known = ", ".join(name for name in COLUMNS if name not in SET_BY_LEDGER)
            raise UsageError(f"a verb's row has {_short_text(key)}, which is not one of {known}")
    verdict = row.get("verdict")
    if type(verdict) is not str or verdict not in VERDICTS:
        raise UsageError(f"a verb's row has verdict {_short_text(verdict)}, which is not one of {', '.join(VERDICTS)}")
    values = {key: None if value is None else column(key, value) for key, value in row.items()}
    return {**values, "cause": values.get("cause") or ""}


def column(key: str, value: Any) -> Any:
    """Return a value in its column's form; UsageError for one that the column cannot have."""
    form, keep = KEEPERS.get(key) or KINDS[COLUMNS[key].split()[0]]  # by the first word: `text primary key`
    try:
        return keep(value)
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError) as error:
        why = f": {error}" if type(error) is _UnstorableValue else ""
        raise UsageError(f"a verb's row has {key} {_short_text(value)}, and {key} is {form}{why}") from None


class _UnstorableValue(ValueError):
    """A value of the right type that its column cannot store; the message says why."""


def _short_text(value: Any) -> str:
    """Return a short text for a value that is not trusted."""
    try:
        return reprlib.repr(value)[:80]
    except Exception:  # a user's repr may raise; so does an int with too many digits
        return f"a {type(value).__name__}"


# -------------------------------------------------------------- the values of a column
#
# Each function returns a value in its form. It raises TypeError or OverflowError for another kind of value, of which
# `column` says what is wanted, and _UnstorableValue where more is to be said.


def _encodable_text(value: Any) -> str:
    """Return a text with lone surrogates escaped, which UTF-8 cannot encode."""
    if not isinstance(value, str):
        raise TypeError
    if len(value) > LONGEST:
        raise _UnstorableValue(f"{len(value):,} characters, at most {LONGEST:,} are kept")
    return value.encode("utf-8", "backslashreplace").decode()


def whole_number(value: Any) -> int:
    """Return an integer of 64 bits, as SQLite stores it; a float without a fraction counts too."""
    number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


def _finite_number(value: Any) -> float:
    """Return a finite number."""
    if isinstance(value, (str, bytes)):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise _UnstorableValue("it is not finite")
    return number


def _number_or_infinity(value: Any) -> float:
    """Return a finite number, or infinity, which `without_infinities` writes as `inf`."""
    return math.inf if value in ("inf", math.inf) else _finite_number(value)


def texts(value: Any) -> list[str]:
    """Return a list of texts."""
    return check_size([_encodable_text(item) for item in _list_of(value)])


def pairs(value: Any) -> list[list[str]]:
    """Return a list of pairs of texts."""
    return check_size(
        [[_encodable_text(left), _encodable_text(right)] for left, right in map(_list_of, _list_of(value))]
    )


def numbers_by_name(value: Any) -> dict[str, float]:
    """Return name -> finite number."""
    return check_size({_encodable_text(key): _finite_number(item) for key, item in value.items()})


def _counts_by_name(value: Any) -> dict[str, int]:
    """Return name -> whole number."""
    return check_size({_encodable_text(key): whole_number(item) for key, item in value.items()})


def _texts_or_numbers(value: Any) -> dict[str, Any]:
    """Return name -> text or number."""
    return check_size(
        {
            _encodable_text(key): _encodable_text(item) if isinstance(item, str) else _finite_number(item)
            for key, item in value.items()
        }
    )


def _list_of(value: Any) -> Any:
    """Return a list or a tuple."""
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return value


def check_size(value: Any) -> Any:
    """Return a value as it is; raise _UnstorableValue if it is too long as JSON."""
    if (size := len(json.dumps(value))) > LARGEST:
        raise _UnstorableValue(f"{size:,} characters of JSON, at most {LARGEST:,} are kept")
    return value


Keeper = tuple[str, Callable[[Any], Any]]
"""What a column takes, in words, and the function that returns a value in its form, or raises."""

KINDS: Mapping[str, Keeper] = {
    "text": ("a text", _encodable_text),
    "integer": ("a whole number of 64 bits", whole_number),
    "real": ("a finite number", _finite_number),
}

# Of columns that their type alone does not describe.
KEEPERS: Mapping[str, Keeper] = {
    "power": ("a number, or infinity", _number_or_infinity),
    "vacuous": ("a list of texts", texts),
    "notes": ("a list of texts", texts),
    "asks": ("a list of pairs of texts", pairs),
    "stages": ("an object of numbers", numbers_by_name),
    "versions": ("an object of texts and numbers", _texts_or_numbers),
    "operators": ("an object of whole numbers of 64 bits", _counts_by_name),
}


# ------------------------------------------------------------------ the file

NAME = "ledger.sqlite"
FORMAT = 1

SAME = ("format", "verb", "source", "options")
"""Facts of a run that a resumed run must share."""


class Ledger:
    """An open ledger. One process writes it (`Ledger.writing`); any may read it (`Ledger.reading`)."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        connection.row_factory = sqlite3.Row

    @classmethod
    def writing(cls, path: Path) -> Ledger:
        """Open the ledger at a path for writing, created if missing; SampleError if it is of another version."""
        with naming_ledger(path):
            connection = sqlite3.connect(path, isolation_level=None, timeout=30)  # None: transactions are ours
            connection.execute("pragma journal_mode = wal")  # readers and the writer do not wait for each other
            connection.execute("pragma synchronous = normal")
            connection.execute("begin immediate")  # a reader sees all of it or nothing
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute("commit")
        _check_version(connection, path)
        return cls(path, connection)

    @classmethod
    def reading(cls, path: Path, where: Sequence[str] = ()) -> Ledger:
        """Open the ledger at a path, or in a run's folder, read-only; with `where`, only the rows for which all these
        SQL conditions hold. Raise UsageError if there is none, or for an invalid condition."""
        path = path / NAME if path.is_dir() else path
        if not path.is_file():
            raise UsageError(f"{path}: no ledger here; name the OUT of a corpus run")
        with naming_ledger(path):
            place = f"{path.resolve().as_uri()}?mode=ro"
            connection = sqlite3.connect(place, uri=True, isolation_level=None, timeout=30)
        _check_version(connection, path)
        with naming_ledger(path):
            _choose(connection, where)
        return cls(path, connection)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    # -------------------------------------------------------------- the run

    def facts(self) -> dict[str, Any]:
        """Return the facts of the run as a whole."""
        with naming_ledger(self.path):
            rows = self.connection.execute("select key, value from run").fetchall()
        return {key: json.loads(value) for key, value in rows}

    def write_facts(self, **facts: Any) -> None:
        """Write facts of the run."""
        rows = [(key, json.dumps(value, sort_keys=True)) for key, value in facts.items()]
        with self.transaction():
            self.connection.executemany("insert or replace into run values (?, ?)", rows)

    # -------------------------------------------------------------- the samples

    def add(self, jobs: Iterable[Job]) -> int:
        """Add new samples as `todo`, and reset those whose source has changed. Return how many samples these are."""
        before = self.connection.total_changes
        names = ", ".join((*GIVEN, *KNOWN_BEFORE))
        # The state is `todo`, and there were 0 attempts.
        fresh = f"insert into samples ({names}) values (?, ?, ?, ?, ?, 'todo', 0, ?, ?)"
        # What a verb has written stays until the sample is done again.
        again = (
            "on conflict (id) do update set state = 'todo', attempts = 0, kind = excluded.kind, "
            "source_bytes = excluded.source_bytes, tensor_bytes = excluded.tensor_bytes, "
            "source_hash = excluded.source_hash where source_hash != excluded.source_hash"
        )
        with self.transaction():
            for job in jobs:
                row = (job.id, job.path or ".", job.family, job.kind, job.source_hash)
                self.connection.execute(f"{fresh} {again}", (*row, job.source_bytes, job.tensor_bytes))
        return self.connection.total_changes - before

    def families(self) -> list[tuple[str, str]]:
        """Return the id and the family of every sample."""
        with naming_ledger(self.path):
            return [(id, family) for id, family in self.connection.execute("select id, family from samples")]

    def write_families(self, families: Mapping[str, str]) -> None:
        """Write the families of samples, by id."""
        query = "update samples set family = ? where id = ? and family != ?"
        with self.transaction():
            self.connection.executemany(query, [(family, id, family) for id, family in families.items()])

    def unfinished(self, page: int = 1000) -> Iterator[dict[str, Any]]:
        """Yield the rows that are not done, in the order they were added, read `page` at a time. Rows may be finished
        meanwhile: each page begins behind the last row of the one before."""
        last = -1
        while True:
            query = "select rowid as place, * from samples where state != 'done' and rowid > ? order by rowid limit ?"
            rows = self.connection.execute(query, (last, page)).fetchall()
            if not rows:
                return
            for row in rows:
                yield _decode_row(row)
            last = rows[-1]["place"]

    def begin(self, id: str) -> None:
        """Note that a worker has started a sample."""
        query = "update samples set state = 'running', attempts = attempts + 1, started = ? where id = ?"
        self.connection.execute(query, (time.time(), id))

    def requeue(self, id: str) -> None:
        """Reset a running sample to `todo`, for another try."""
        self.connection.execute("update samples set state = 'todo' where id = ?", (id,))

    def reset(self, words: Collection[str]) -> list[dict[str, Any]]:
        """Reset finished samples with one of these verdicts or causes to `todo`; return their old rows. What their verb
        wrote into the rows is removed."""
        condition = f"state = 'done' and ({' or '.join(['verdict = ?', 'cause = ?'] * len(words))})"
        values = tuple(word for word in words for _ in range(2))  # each as a verdict and as a cause
        old_rows = list(self.rows(condition, values)) if words else []
        null_columns = ", ".join(f"{name} = null" for name in COLUMNS if name not in SET_BY_LEDGER)
        with self.transaction():
            for row in old_rows:
                query = f"update samples set state = 'todo', attempts = 0, {null_columns} where id = ?"
                self.connection.execute(query, (row["id"],))
        return old_rows

    def finish(self, id: str, row: Mapping[str, Any]) -> None:
        """Write the row of a finished sample, which `check_row` has returned; SampleError if there is no such
        sample."""
        content = {"state": "done", **{key: encode_value(key, value) for key, value in row.items()}}
        sets = ", ".join(f"{key} = ?" for key in content)
        done = self.connection.execute(f"update samples set {sets} where id = ?", (*content.values(), id))
        if done.rowcount != 1:
            raise SampleError(f"{self.path}: there is no sample {id!r} in this ledger")

    def row(self, id: str) -> dict[str, Any] | None:
        """Return the row of a sample; None if it is not in the ledger."""
        stored = self.connection.execute("select * from samples where id = ?", (id,)).fetchone()
        return _decode_row(stored) if stored else None

    def rows(
        self, where: str = "1", values: tuple[Any, ...] = (), order: str = "rowid", limit: int = -1
    ) -> Iterator[dict[str, Any]]:
        """Yield the samples' rows for which an SQL condition holds, in the order they were added or another."""
        query = f"select * from samples where {where} order by {order} limit {limit:d}"
        with naming_ledger(self.path):
            for row in self.connection.execute(query, values):
                yield _decode_row(row)

    def proofs(self) -> Proofs:
        """Return how many finished samples have a proof, and which ports of the others have no power."""
        query = "select id, verdict, power, vacuous from samples where state = 'done' order by id"
        with naming_ledger(self.path):
            rows = self.connection.execute(query).fetchall()
        return proofs((id, verdict, power, json.loads(still or "[]")) for id, verdict, power, still in rows)

    def counts(self, column: str, where: str = "1") -> dict[str, int]:
        """Count the samples that have each value of a column, the most frequent first; '' stands for none. `where` is
        an SQL condition on the samples that count."""
        if column not in COLUMNS:
            raise UsageError(f"{column!r} is not a column of a ledger: {', '.join(COLUMNS)}")
        query = f"select coalesce({column}, ''), count(*) from samples where {where} group by 1 order by 2 desc, 1"
        with naming_ledger(self.path):
            return dict(map(tuple, self.connection.execute(query)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block in one transaction."""
        with naming_ledger(self.path):
            self.connection.execute("begin immediate")
            try:
                yield
            except BaseException:
                self.connection.execute("rollback")
                raise
            self.connection.execute("commit")


SCHEMA = (
    "create table if not exists run (key text primary key, value)",
    "create table if not exists samples ("
    f"{', '.join(f'{name} {kind}'.replace('json', 'text') for name, kind in COLUMNS.items())})",
    "create index if not exists states on samples (state)",
)
"""The SQL statements that create a ledger."""


READ_ONLY = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
"""All that a condition of `--where` may do."""


def _choose(connection: sqlite3.Connection, where: Sequence[str]) -> None:
    """Let a connection see only the samples for which all conditions hold: a view of them takes the table's name. A
    condition comes from the command line, and may only read; UsageError for one that SQLite refuses."""
    if not where:
        return
    # SQLite asks this function about each action of a statement.
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READ_ONLY else sqlite3.SQLITE_DENY)
    chosen: set[int] | None = None
    for text in where:
        try:
            # The line break ends a comment (`--`) in the condition.
            rows = {row for (row,) in connection.execute(f"select rowid from samples where ({text}\n)")}
        except (sqlite3.Error, sqlite3.Warning) as error:
            columns = f"; the columns: {', '.join(COLUMNS)}" if "no such column" in str(error) else ""
            example = "\"seconds < 10 and verdict in ('bitwise', 'close')\""
            raise UsageError(
                f"--where {text!r}: {error}; write SQL, texts in single quotes: {example}{columns}"
            ) from None
        chosen = rows if chosen is None else chosen & rows
    connection.set_authorizer(None)
    connection.execute("create temp table chosen (place integer primary key)")
    connection.executemany("insert into temp.chosen values (?)", [(row,) for row in chosen or ()])
    connection.execute(
        "create temp view samples as "
        "select rowid as rowid, * from main.samples where rowid in (select place from temp.chosen)"
    )


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise SampleError, and close the file, if it lacks a column that this version writes."""
    try:
        with naming_ledger(path):
            # Rows of this pragma: number, name, type, …
            columns = {row[1] for row in connection.execute("pragma main.table_info(samples)")}
        if missing := [name for name in COLUMNS if name not in columns]:
            reason = f"it has no column {missing[0]!r}" if columns else "nothing is in it yet"
            raise SampleError(
                f"{path}: is not a ledger of this version: {reason}: run the corpus again, in another OUT"
            )
    except SampleError:
        connection.close()
        raise


def source_of(source: Path, row: Mapping[str, Any]) -> Path:
    """Return the folder of a row's sample in the corpus it was found in."""
    return place_below(source, row["path"])


def place_of(out: Path, row: Mapping[str, Any]) -> Path:
    """Return the folder of a row's sample in the run's OUT."""
    return place_below(out, row["id"])


def place_below(folder: Path, name: str) -> Path:
    """Return a path that a ledger names, below a folder; one that leads out of it raises SampleError."""
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise SampleError(f"{name[:100]!r} is no sample's name: it leads out of {folder}")
    return folder / name


@contextlib.contextmanager
def naming_ledger(path: Path) -> Iterator[None]:
    """Add the file's name, and the next step, to SQLite's errors."""
    try:
        yield
    except sqlite3.Error as error:
        damaged = not isinstance(error, sqlite3.OperationalError)  # which is of a disk, a lock or a query
        step = ": it is no ledger, or is damaged; run the corpus again, in another OUT" if damaged else ""
        raise SampleError(f"{path}: {error}{step}") from error


# ------------------------------------------------------------------ rows in SQLite's form


def encode_value(key: str, value: Any) -> Any:
    """Return a value of a checked row in SQLite's form."""
    return json.dumps(value) if COLUMNS[key] == "json" and value is not None else value


def without_infinities(value: Any) -> Any:
    """Return plain data in which infinities and NaN, which JSON cannot represent, are texts (`inf`); sets and tuples
    become lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): without_infinities(item) for key, item in value.items()}
    return [without_infinities(item) for item in value] if isinstance(value, (list, tuple, set, frozenset)) else value


def _decode_row(row: sqlite3.Row) -> dict[str, Any]:
    """Return a row as plain data, its JSON parsed."""
    return {
        key: json.loads(row[key]) if kind == "json" and row[key] is not None else row[key]
        for key, kind in COLUMNS.items()
    }


# ------------------------------------------------------------------ opening the ledger of a run


def open_run(path: Path, facts: Mapping[str, Any], restart: bool = False) -> Ledger:
    """Open the ledger of a run with these facts: a new one, or the existing one, which must be of the same run (SAME),
    or UsageError says what differs.

    `restart` starts a new one, and keeps the old ledger under another name. A resumed run keeps its name (`run`) and
    when it was `started`.
    """
    if restart and path.exists():
        _rename_old(path)
    ledger = Ledger.writing(path)
    try:
        before = ledger.facts() if ledger.counts("state") else {}  # of one without samples, nothing has begun
        for key in SAME:
            if key in before and before[key] != json.loads(json.dumps(facts[key])):  # as JSON: tuples are lists there
                raise UsageError(f"{path}: {_difference_text(key, before[key], facts[key])}; {NEXT}")
        kept = ("run", "started") if before else ()
        ledger.write_facts(**{key: value for key, value in facts.items() if key not in kept})
    except BaseException:
        ledger.connection.close()
        raise
    return ledger


NEXT = "finish it as it was begun, choose another OUT, or begin anew with --restart (the old ledger is kept)"


def _difference_text(key: str, then: Any, now: Any) -> str:
    """Return a text with both values of a fact that differs from the run that was begun."""
    if isinstance(then, dict) and isinstance(now, Mapping):
        names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
        differences = ", ".join(f"{name} {then.get(name)!r}, now {now.get(name)!r}" for name in names)
        return f"this run was begun with other {key}: {differences}"
    return f"this run was begun with {key} {then!r}, now {now!r}"


def _rename_old(path: Path) -> Path:
    """Rename a ledger to `ledger.1.sqlite`, or the next free number, with SQLite's files beside it; return its new
    path. A file that is no ledger is renamed as well."""
    with contextlib.suppress(SampleError), naming_ledger(path), contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")  # so that the one file is complete
    number = 1
    while (place := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    os.rename(path, place)
    for rest in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{rest}", f"{place}{rest}")
    return place
