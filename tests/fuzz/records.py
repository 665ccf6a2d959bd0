"""A fuzz of the records that runs leave: indexes of kernels, ledgers, and the files of a bench run.

    python tests/fuzz/records.py --count 5000 --seed 1

Each record is a good one with a few changes: bytes, a row's values, objects of the schema, fields of JSON. It goes
through what Backprint does with it: reading, questions, reports. A finding is an error that is not Backprint's, or
takes more than SECONDS, or GROWTH of memory. An index is also written by two processes, of which one or both are
killed: it has to be whole, and to have everything once another process has gone on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from runs_made import cell, stopped, write_run  # the paths are set above
from subjects.ledgers import ledger, many

from backprint.errors import BackprintError
from backprint.tools.bench.reports import bench_report, cell_rows
from backprint.tools.bench.runs import read_run
from backprint.tools.corpus.duplicates import NOTES, SharedPart, all_shared_parts
from backprint.tools.jobs import progress
from backprint.tools.jobs.ledger import NAME, Ledger
from backprint.tools.jobs.parts import PARTS, PartRow, all_parts, unify
from backprint.tools.kernels.groups import KernelGroups
from backprint.tools.kernels.index import KernelIndex, find_uses, index_runs
from backprint.tools.kernels.nouns import Kernel
from backprint.tools.report.formats import html_render

SECONDS = 5.0
GROWTH = 1 << 30

VALUES: tuple[Any, ...] = (
    None,
    0,
    -1,
    2**63 - 1,
    1.5,
    -1e300,
    float("inf"),
    "",
    "x",
    "\x1b[31m",
    "{}",
    "[]",
    "[1, {}]",
    '{"a": "b"}',
    b"\xff\x00",
    "nan",
    "[" * 5000,
    "1" * 5000,
    "done",
    "todo",
    "a" * 100_000,
)

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


def good_parts(folder: Path) -> Path:
    """Write a run of `corpus split`, of two samples with parts."""
    ledger(folder / "parts", [row | {"id": name} for name, row in zip(("a", "b"), many(2), strict=True)])
    for sample in ("a", "b"):
        place = folder / "parts" / sample
        (place / "part_0").mkdir(parents=True)
        parts = [
            PartRow(sample, "part_0", "layer", "bitwise", "", 3, 4, "sliced", key="k"),
            PartRow(sample, "", "head", "failed", "why", 1, 0, "none"),
        ]
        (place / PARTS).write_text(json.dumps([asdict(part) for part in parts]))
        (place / NOTES).write_text(json.dumps([asdict(SharedPart("h", "forward", "m", True, 3, 9, 2, (sample,)))]))
    (folder / "parts" / "kept").mkdir()
    return folder / "parts"


def good_sources(folder: Path) -> Path:
    """Write kernels in folders, for an index that is made of them."""
    for n in range(12):
        (folder / f"s{n}").mkdir()
        (folder / f"s{n}" / "k.py").write_text(SOURCE.format(n=n))
    return folder


def use_parts(path: Path, draw: random.Random) -> None:
    outside = sorted(each.name for each in path.parent.iterdir())
    try:
        list(all_parts(path))
        all_shared_parts(path, path, "module")
    finally:
        with contextlib.suppress(BackprintError):
            unify(path)
        if sorted(each.name for each in path.parent.iterdir()) != outside or not (path / "kept").exists():
            raise AssertionError("something outside of the samples was removed")


def use_sources(path: Path, draw: random.Random) -> None:
    """Have two processes write an index, and end them at some moment."""
    index = path / "kernels.sqlite"
    writers = [forked(lambda: write_index(index, path)) for _ in range(2)]
    time.sleep(draw.uniform(0, 0.06))
    for writer in writers[: draw.choice((1, 2))]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(writer, signal.SIGKILL)
    for writer in writers:
        progress = os.waitpid(writer, 0)[1]
        if progress not in (0, signal.SIGKILL):
            raise AssertionError(f"a writer ended with {progress}")
    if index.exists() and index.stat().st_size:
        with contextlib.closing(sqlite3.connect(index)) as connection:
            if connection.execute("pragma integrity_check").fetchone() != ("ok",):
                raise AssertionError("the index is damaged")
    write_index(index, path)
    with KernelIndex.reading(index) as opened:
        if opened.number("select count(*) from uses") != 12:
            raise AssertionError("the index does not have everything")


def write_index(index: Path, folder: Path) -> None:
    with KernelIndex.writing(index) as opened:
        opened.add_folder(folder, batch=2)


def forked(does: Callable[[], None]) -> int:
    """Do something in a process of its own; return its number."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            does()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


def leave(path: Path, draw: random.Random) -> None:
    """Change nothing."""


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
    progress.state(path.parent)
    with Ledger.reading(path) as opened:
        list(opened.rows())
        opened.proofs()
    with Ledger.writing(path) as opened:
        opened.reset(["wrong"])


def use_run(path: Path, draw: random.Random) -> None:
    run = read_run(path)
    report = bench_report(run)
    "".join(html_render(report))
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
    "parts": (good_parts, change_run, use_parts),
    "sources": (good_sources, leave, use_sources),
}

OFTEN = {"sources": 1}
"""How often a kind is drawn, where it is not 8 times."""


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
        kind = draw.choices(tuple(KINDS), [OFTEN.get(kind, 8) for kind in KINDS])[0]
        make, change, use = KINDS[kind]
        place = folder / "tried"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder / kind, place)
        path = place / make_name(kind)
        change(path, draw)
        begun, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak > GROWTH >> 10:
            end = "FINDING"
            said(f"{seed} {number} {kind}: more than {GROWTH:,} bytes")
        ends[f"{kind} {end}"] += 1
        ends["FINDING"] += end == "FINDING"
    return ends


def make_name(kind: str) -> str:
    return {"index": "kernels.sqlite", "ledger": NAME, "run": "run", "parts": "parts", "sources": "."}[kind]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # SQLite waits for a disk
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        ends = fuzz(options.count, options.seed, Path(folder))
    for end, number in sorted(ends.items()):
        print(f"{number:8,} {end}")
    return 1 if ends["FINDING"] else 0


if __name__ == "__main__":
    sys.exit(main())
