"""Corpora for tests, and runs on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from backprint.child import processes
from backprint.child.limits import Limits
from backprint.common.memory import GIB
from backprint.errors import SampleError, UsageError
from backprint.tools.jobs.ledger import NAME, Ledger
from backprint.tools.jobs.places import RESULT, WORK
from backprint.tools.jobs.run import RunPlan, run_plan

VERBS = Path(__file__).with_name("hostile.py")
SMALL = Limits(timeout=3.0, memory=GIB // 4, disk=GIB // 8)


def corpus(folder: Path, names: Iterable[str]) -> Path:
    """Return a folder with a sample for each name: a model.py, which is all that a search looks at."""
    for name in names:
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "model.py").write_text(f"# {name!r}\n")
    return folder


def plan(source: Path, out: Path, verb: str = "act", **options: Any) -> RunPlan:
    """Return a RunPlan with one of this folder's verbs."""
    return RunPlan(f"{VERBS}:{verb}", source, out, options)


def worked(source: Path, out: Path, verb: str = "act", limits: Limits = SMALL, jobs: int = 2, **options: Any) -> Any:
    """Execute a plan in this process; return the rows by id."""
    run_plan(plan(source, out, verb, **options), limits, jobs)
    return rows(out)


def rows(out: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a run, by id."""
    with Ledger.reading(out / NAME) as ledger:
        return {row["id"]: row for row in ledger.rows()}


TIMES = ("seconds", "stages", "started", "finished", "worker", "attempts", "peak_bytes")
"""Columns in which two runs of the same samples differ."""


def compared(out: Path, without: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the rows of a run without the columns that differ between equal runs."""
    left_out = {*TIMES, *without}
    return {id: {key: row[key] for key in row if key not in left_out} for id, row in rows(out).items()}


def files(out: Path, without: Iterable[str] = ()) -> dict[str, bytes]:
    """Return every file of the samples; `result.json` without times."""
    left_out = {*TIMES, "run", *without}
    found = {}
    for place in out.rglob("*"):
        name = str(place.relative_to(out))
        if place.is_file() and not name.startswith((WORK, "ledger")):
            content = place.read_bytes()
            if place.name == RESULT:
                said = json.loads(content)
                content = json.dumps({key: said[key] for key in said if key not in left_out}).encode()
            found[name] = content
    return found


def at_work(out: Path) -> set[str]:
    """Return the samples in progress; none if the run has not begun."""
    try:
        return {id for id, row in rows(out).items() if row["state"] == "running"}
    except (UsageError, SampleError):
        return set()


def left_behind(out: Path) -> list[int]:
    """Return the processes of a run that still exist."""
    with Ledger.reading(out / NAME) as ledger:
        return processes.processes_of_run(ledger.facts()["run"])


def command(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start `backprint corpus ...` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "backprint", "corpus", *map(str, arguments)],
        **dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "120"}),
        **options,
    )


def until(condition: Any, seconds: float = 30.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)
