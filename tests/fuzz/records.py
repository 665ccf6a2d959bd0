"""A fuzz of the records that runs leave: indexes of kernels, ledgers, and the files of a bench run.

    python tests/fuzz/records.py --count 5000 --seed 1

Each record is a good one with a few changes: bytes, a row's values, objects of the schema. It goes through what
Backprint does with it: reading, questions, reports. A finding is an error that is not Backprint's, or takes
more than SECONDS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benching"))

from runs_made import cell, stopped, write_run  # the paths are set above
from subjects.ledgers import ledger, many

from backprint.benching.reports import bench_report, cell_rows
from backprint.benching.runs import read_run
from backprint.corpus import status
from backprint.corpus.ledger import NAME, Ledger
from backprint.errors import BackprintError
from backprint.extracting.nouns import Kernel
from backprint.extracting.programs.dedup import KernelGroups
from backprint.extracting.programs.find import find_uses, index_runs
from backprint.extracting.programs.index import KernelIndex
from backprint.report.html import render

SECONDS = 5.0

VALUES: tuple[Any, ...] = (
    None, 0, -1, 2**63 - 1, 1.5, -1e300, float("inf"), "", "x", "\x1b[31m", "{}", "[]", "[1, {}]", '{"a": "b"}',
    b"\xff\x00", "nan", "[" * 5000, "1" * 5000, "done", "todo", "a" * 100_000,
)  # fmt: skip

STATEMENTS = (
    "create trigger t{n} after insert on {table} begin delete from {table}; end",
    "create view v{n} as with recursive r(n) as (select 1 union all select n+1 from r) select n from r",
    "create index i{n} on {table} ({column})",
    "alter table {table} add column c{n} integer check (c{n} < 3)",
    "alter table {table} rename column {column} to c{n}",
    "drop table {table}",
    "create table if not exists {table} (x)",
    "delete from {table}",
)

SOURCE = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(a):\n    tl.store(a, {n})\n"


def good_index(folder: Path) -> Path:
    """Write an index of three kernels."""
    path = folder / "kernels.sqlite"
    with KernelIndex.writing(path) as index:
        index.add_all(Kernel("triton", "k", SOURCE.format(n=n), sample=f"s{n % 2}", place=f"{n}") for n in range(3))
    return path


def good_ledger(folder: Path) -> Path:
    """Write a ledger of a few samples."""
    ledger(folder, many(6))
    return folder / NAME


def good_run(folder: Path) -> Path:
    """Write a bench run of two cells."""
    return write_run(folder / "run", [cell(), stopped("timeout", "slow", sample="vision/b")])


def use_index(path: Path, draw: random.Random) -> None:
    with KernelIndex.writing(path) as index:
        groups = KernelGroups(index)
        for group in groups.groups("program", -1):
            groups.representative(group)
            list(groups.members(group))
        groups.totals()
    with KernelIndex.reading(path) as index:
        list(index_runs(index))
        list(find_uses(index, since=0))


def use_ledger(path: Path, draw: random.Random) -> None:
    status.state(path.parent)
    with Ledger.reading(path) as opened:
        list(opened.rows())
        opened.proofs()
    with Ledger.writing(path) as opened:
        opened.again(["wrong"])


def use_run(path: Path, draw: random.Random) -> None:
    run = read_run(path)
    report = bench_report(run)
    "".join(render(report))
    list(cell_rows(run))


def change_bytes(path: Path, draw: random.Random) -> None:
    """Change, cut or double a few bytes."""
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 3, 30))):
        content[draw.randrange(len(content))] = draw.randrange(256)
    if draw.random() < 0.2:
        del content[draw.randrange(len(content)) :]
    path.write_bytes(content)


def change_database(path: Path, draw: random.Random) -> None:
    """Change values of rows, or objects of the schema."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        for n in range(draw.choice((1, 2, 4))):
            table = draw.choice(tables)
            columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
            with contextlib.suppress(sqlite3.Error):  # a change that SQLite refuses is no change
                if columns and draw.random() < 0.75:
                    values = (draw.choice(VALUES),)
                    connection.execute(f"update {table} set {draw.choice(columns)} = ?", values)
                elif columns:
                    statement = draw.choice(STATEMENTS)
                    connection.execute(statement.format(table=table, column=draw.choice(columns), n=n))
        connection.commit()


def change_json(path: Path, draw: random.Random) -> None:
    """Change a value somewhere in a line of JSON."""
    lines = path.read_text("utf-8").split("\n") if path.suffix == ".jsonl" else [path.read_text("utf-8")]
    number = draw.randrange(len(lines))
    if not lines[number].strip():
        return
    content = json.loads(lines[number])
    place: Any = content
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = draw.choice(keys)
        inner = place[key]
        if isinstance(inner, (dict, list)) and inner and draw.random() < 0.6:
            place = inner
            continue
        if draw.random() < 0.2:
            del place[key]
        else:
            values = [value for value in VALUES if not isinstance(value, bytes)]
            place[key] = draw.choice([*values, 10**400, [], {}, True])
        break
    lines[number] = json.dumps(content)
    path.write_text("\n".join(lines), "utf-8")


def change_run(path: Path, draw: random.Random) -> None:
    """Change one of a run's files."""
    file = draw.choice([each for each in sorted(path.rglob("*")) if each.is_file()])
    if file.suffix == ".sqlite":
        draw.choice((change_bytes, change_database))(file, draw)
    elif draw.random() < 0.8:
        change_json(file, draw)
    else:
        change_bytes(file, draw)


def change_file(path: Path, draw: random.Random) -> None:
    draw.choice((change_bytes, change_database, change_database))(path, draw)


KINDS: dict[str, tuple[Callable[[Path], Path], Callable[..., None], Callable[..., None]]] = {
    "index": (good_index, change_file, use_index),
    "ledger": (good_ledger, change_file, use_ledger),
    "run": (good_run, change_run, use_run),
}


def settle(folder: Path) -> None:
    """Let SQLite put all content into the main file."""
    for file in folder.rglob("*.sqlite"):
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")
            connection.execute("pragma journal_mode = delete")


def fuzz(count: int, seed: int, folder: Path, said: Callable[[str], None] = print) -> Counter[str]:
    """Try so many records; return how they ended, findings under `FINDING`."""
    ends: Counter[str] = Counter()
    for kind, (make, _, _) in KINDS.items():
        (folder / kind).mkdir()
        make(folder / kind)
        settle(folder / kind)
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        kind = draw.choice(tuple(KINDS))
        make, change, use = KINDS[kind]
        place = folder / "tried"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder / kind, place)
        path = place / make_name(kind)
        change(path, draw)
        begun = time.process_time()
        try:
            use(path, draw)
            end = "read"
        except BackprintError as error:
            end = type(error).__name__
        except Exception:
            end = "FINDING"
            said(f"{seed} {number} {kind}: {traceback.format_exc()[-600:]}")
        if time.process_time() - begun > SECONDS:
            end = "FINDING"
            said(f"{seed} {number} {kind}: {time.process_time() - begun:.1f} s")
        ends[f"{kind} {end}"] += 1
        ends["FINDING"] += end == "FINDING"
    return ends


def make_name(kind: str) -> str:
    return {"index": "kernels.sqlite", "ledger": NAME, "run": "run"}[kind]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ends = fuzz(options.count, options.seed, Path(folder))
    for end, number in sorted(ends.items()):
        print(f"{number:8,} {end}")
    return 1 if ends["FINDING"] else 0


if __name__ == "__main__":
    sys.exit(main())
