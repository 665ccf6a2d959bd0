"""Process a few samples for a verb that is not a run, each in a process of its own.

A sample may come from a stranger, and an operator that torch accepts can crash its process. So such verbs replay
samples as a run does: in forked processes, under limits, one after the other, and a crash costs only its own sample.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backprint.corpus.limits import limits_of
from backprint.corpus.pool import Pool, TaskOutcome
from backprint.corpus.task import Task

ANSWER = "answer.json"
"""The file with the answer, in a sample's staging folder."""

MOST = 64 << 20
"""The largest answer that is read, in bytes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for one sample, or how its process ended without one."""

    place: Path
    content: Any = None
    ended: str = ""
    folder: Path | None = None
    """The folder that the function has written, until the next answer is requested."""


def apart(
    function: str,
    places: Sequence[Path],
    options: Mapping[str, Any],
    allowed: tuple[float, float | None],
    at: Callable[[Path], None],
    entered: Callable[[str], None] = lambda stage: None,
    near: Path | None = None,
) -> Iterator[Answer]:
    """Yield, for each sample in turn, the answer that `function(task, options, staging)` wrote with `write_answer`.

    `allowed` limits each to so many seconds and GiB. `at` is called with each sample before it begins, `entered` with
    its stages. Written folders are kept in a folder beside `near` until the next answer.
    """
    if not places:
        return
    if sys.platform != "linux":
        yield from here(function, places, options, at)
        return
    with tempfile.TemporaryDirectory(prefix=".backprint_" if near else "backprint_", dir=near) as work:
        limits = limits_of(1, Path(work), *allowed)
        pool = Pool(function, options, limits, 1, Path(work), f"apart {os.getpid()} {work}")
        try:
            for index, place in enumerate(places):
                at(place)
                outcome = outcome_of(pool, Task(str(index), os.fspath(place.absolute())), entered)
                yield answer_of(place, outcome)
                pool.done(outcome)
        finally:
            pool.close()


def outcome_of(pool: Pool, task: Task, entered: Callable[[str], None]) -> TaskOutcome:
    """Return the outcome of one sample; if its worker was lost, try once more."""
    tries = 0
    while True:
        while not pool.free():
            pool.events(0.5)
        pool.submit(task, {})
        tries += 1
        found: TaskOutcome | None = None
        while found is None:
            for event in pool.events(0.5):
                if isinstance(event, TaskOutcome):
                    found = event
                else:
                    entered(event.stage)
        if found.row.get("cause") != "worker lost" or tries == 2:
            return found
        time.sleep(0.1)


def answer_of(place: Path, outcome: TaskOutcome) -> Answer:
    """Return the answer that the sample's process wrote, or why it wrote none."""
    file = outcome.place / ANSWER if outcome.place is not None else None
    if outcome.row.get("cause") or file is None or not file.is_file():
        row = outcome.row
        return Answer(place, ended=": ".join(filter(None, (row.get("cause") or "no answer", row.get("detail")))))
    if file.stat().st_size > MOST:
        return Answer(place, ended=f"its answer has {file.stat().st_size:,} bytes; at most {MOST:,} are read")
    return Answer(place, json.loads(file.read_text("utf-8")), folder=outcome.place)


def write_answer(staging: Path, content: Any) -> dict[str, Any]:
    """Write an answer, as the last thing that a function does; return its row."""
    staging.mkdir(exist_ok=True)
    (staging / ANSWER).write_text(json.dumps(content), "utf-8")
    return {"verdict": "unproven"}


def here(
    function: str, places: Sequence[Path], options: Mapping[str, Any], at: Callable[[Path], None]
) -> Iterator[Answer]:
    """Do the same in this process, on platforms where processes cannot be forked."""
    from backprint.corpus.verbs import verb_of

    verb = verb_of(function)
    for index, place in enumerate(places):
        at(place)
        with tempfile.TemporaryDirectory(prefix="backprint_") as folder:
            verb.run(Task(str(index), os.fspath(place.absolute())), options, Path(folder))
            yield Answer(place, json.loads((Path(folder) / ANSWER).read_text("utf-8")), folder=Path(folder))
