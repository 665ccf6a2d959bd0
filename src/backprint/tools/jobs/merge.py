"""The runs of shards as one run: their results in one folder, their rows in one ledger.

The ledger comes last, in one transaction. If a merge is ended at any moment, the same call continues. What is made is
the run that the same command without `--shard` would have made, and that command goes on with samples that no shard has
done.

A shard is the folder of a run with `--shard 1/3`, on a share of the samples. The facts of a run are in its ledger: its
verb, its source, and its options.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backprint.errors import UsageError
from backprint.tools.jobs.find import families
from backprint.tools.jobs.ledger import COLUMNS, NAME, Ledger, open_run
from backprint.tools.jobs.places import WORK, check_places, create_writable, lock_folder
from backprint.tools.jobs.run import new_facts
from backprint.tools.jobs.verbs import known_verb


@dataclass(frozen=True, slots=True)
class MergedRun:
    """The result of a merge: its folder, how many samples have each verdict, how many are not done, and the shards that
    were not among those merged."""

    out: Path
    verdicts: dict[str, int]
    unfinished: int
    missing: tuple[str, ...]


def merge_runs(out: Path, shards: Sequence[Path], copy: bool = False) -> MergedRun:
    """Move the results of shards to `out`, or copy them, and write one ledger. UsageError, and nothing is written, if a
    sample is in two shards, or if the shards are of different runs. What the verb does at the end of a run is done,
    too."""
    facts = _facts_of(shards)
    _check_apart(shards)
    check_places(Path(facts["source"]), out)
    if out.resolve() in (shard.resolve() for shard in shards):
        raise UsageError(f"{out} is one of the shards: choose another OUT")
    with contextlib.ExitStack() as stack:
        for shard in shards:
            stack.enter_context(lock_folder(shard))  # no run may go on there
        stack.enter_context(create_writable(out))
        stack.enter_context(lock_folder(out))
        ledger = stack.enter_context(open_run(out / NAME, new_facts() | facts))
        for shard in shards:
            for entry in sorted(shard.iterdir()):
                # Rows of ledgers follow (`_write_rows`); of WORK, which has the lock, only the logs are taken.
                if not entry.name.startswith("ledger.") and entry.name != WORK:
                    _take(entry, out / entry.name, copy)
            if (logs := shard / WORK / "logs").is_dir():
                _take(logs, out / WORK / "logs", copy)
        _write_rows(ledger, shards)
        states, verdicts = ledger.counts("state"), ledger.counts("verdict", "verdict is not null")
    verb = known_verb(facts["verb"])
    if verb is not None and verb.finish is not None:
        verb.finish(out, facts["options"])
    unfinished = sum(states.values()) - states.get("done", 0)
    return MergedRun(out, verdicts, unfinished, _missing(shards))


def _facts_of(shards: Sequence[Path]) -> dict[str, Any]:
    """Return the facts that all shards share, without the option `shard`; raise UsageError if they are not of one
    run."""
    first: dict[str, Any] = {}  # the facts of the first shard
    for shard in shards:
        with Ledger.reading(shard) as ledger:
            facts = ledger.facts()
        options = {name: value for name, value in facts["options"].items() if name != "shard"}
        own = {name: facts[name] for name in ("format", "verb", "source")} | {"options": options}
        first = first or own
        for name, value in first.items():
            if own[name] != value:
                raise UsageError(f"{shards[0]} is a run with {name} {value!r}, and {shard} with {own[name]!r}")
    return first


def _check_apart(shards: Sequence[Path]) -> None:
    """Raise if a sample is in two shards."""
    places: dict[str, Path] = {}
    for shard in shards:
        with Ledger.reading(shard) as ledger:
            for id, _ in ledger.families():
                if id in places:
                    raise UsageError(f"{id} is in {places[id]} and in {shard}: give each shard of one run once")
                places[id] = shard


def _missing(shards: Sequence[Path]) -> tuple[str, ...]:
    """Return the shards of the run that are not among these."""
    present, count = set(), 0
    for shard in shards:
        with Ledger.reading(shard) as ledger:
            number, _, of = str(ledger.facts()["options"].get("shard") or "").partition("/")  # `1/3`
        present.add(number)
        count = max(count, int(of or 0))
    return tuple(f"{number}/{count}" for number in range(1, count + 1) if str(number) not in present)


def _take(source: Path, target: Path, copy: bool) -> None:
    """Move or copy a file or folder; if the target is a folder that is there already, the content is put into it. A
    file appears whole, by a rename."""
    if not copy and not target.exists():
        try:
            os.rename(source, target)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:  # from one disk to another it is copied
                raise
    if source.is_dir() and not source.is_symlink():
        target.mkdir(exist_ok=True)
        for entry in sorted(source.iterdir()):
            _take(entry, target / entry.name, copy)
        if not copy:
            source.rmdir()
        return
    partial = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, partial, follow_symlinks=False)
    os.replace(partial, target)
    if not copy:
        source.unlink()


def _write_rows(ledger: Ledger, shards: Sequence[Path]) -> None:
    """Write the rows of all shards into a ledger; a sample that is done there already stays as it is, and one that was
    running is `todo`."""
    names = ", ".join(COLUMNS)
    values = ", ".join("?" * len(COLUMNS))
    new = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS)
    write = (
        f"insert into samples ({names}) values ({values}) on conflict (id) do update set {new} where state != 'done'"
    )
    with ledger.transaction():
        for shard in shards:
            with Ledger.reading(shard) as rows:
                ledger.connection.executemany(
                    write, map(tuple, rows.connection.execute(f"select {names} from samples"))
                )
        ledger.connection.execute("update samples set state = 'todo' where state = 'running'")
    ledger.write_families(families(ledger.families()))
