"""Process a few samples for a verb that is not a run, each in a process of its own.

A sample may come from a stranger, and an operator that torch accepts can crash its process. So such verbs replay
samples as a run does: in forked processes, under limits, one after the other, and a crash costs only its own sample.

A Pool is workers on this machine, here one; it processes a Task, a sample, by a function `package.module:name`, and its
TaskOutcome has the row that the function returned and the folder that it wrote to (`place`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from backprint import errors
from backprint.child.child import Child, line_of, start_interpreter
from backprint.child.limits import cores, limited, limits_of
from backprint.common.files import from_plain, read_json
from backprint.errors import BackprintError, SampleError, SeveralError
from backprint.tools.jobs.ledger import row_or_failure
from backprint.tools.jobs.pool import Pool, TaskOutcome
from backprint.tools.jobs.task import Task, failure, failure_of

ANSWER = "answer.json"
"""The file with the answer, in a sample's staging folder."""

ERRORS: Mapping[str, type[BackprintError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, BackprintError) and kind is not SeveralError
}
"""The errors that an answer may name, which are made of a message alone."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for one sample, or how its process ended without one."""

    place: Path
    content: Any = None
    ended: str = ""
    folder: Path | None = None
    """The folder that the function has written, until the next answer is requested."""


def run_apart(
    function: str,
    places: Sequence[Path],
    options: Mapping[str, Any],
    limits_of_each: tuple[float, float | None],
    on_sample: Callable[[Path], None],
    on_stage: Callable[[str], None] = lambda stage: None,
    keep_beside: Path | None = None,
) -> Iterator[Answer]:
    """Yield, for each sample in turn, the answer that `function(task, options, staging)` wrote with `write_answer`.

    `limits_of_each` limits each to so many seconds and GiB (None: the usual part of the machine's). `on_sample` is
    called with each sample before it begins, `on_stage` with its stages. Written folders are kept in a folder in
    `keep_beside`, else in one for temporary files, until the next answer.
    """
    if not places:
        return
    if sys.platform != "linux":
        yield from _in_own_interpreters(function, places, options, limits_of_each[0], on_sample)
        return
    with tempfile.TemporaryDirectory(prefix=".backprint_" if keep_beside else "backprint_", dir=keep_beside) as work:
        seconds, memory = limits_of_each
        limits = replace(limits_of(1, Path(work), seconds, memory), threads=cores())
        pool = Pool(function, options, limits, jobs=1, work=Path(work), run=f"apart {os.getpid()} {work}")
        try:
            for index, place in enumerate(places):
                on_sample(place)
                outcome = outcome_of(pool, Task(str(index), os.fspath(place.absolute())), on_stage)
                yield answer_of(place, outcome.row, outcome.place)
                pool.done(outcome)
        finally:
            pool.close()


def outcome_of(pool: Pool, task: Task, on_stage: Callable[[str], None]) -> TaskOutcome:
    """Process one sample by the pool, which is idle, and return its outcome; it is tried once more if its worker was
    lost. `on_stage` is called with its stages."""
    tries = 0
    while True:
        while not pool.free():
            pool.events(0.5)  # the worker is starting, or being replaced
        pool.submit(task, options={})  # none besides the pool's
        tries += 1
        outcome: TaskOutcome | None = None
        while outcome is None:
            for event in pool.events(0.5):
                if isinstance(event, TaskOutcome):
                    outcome = event
                else:
                    on_stage(event.stage)
        if outcome.row.get("cause") != "worker lost" or tries == 2:
            return outcome
        pool.done(outcome)
        time.sleep(0.1)


def answer_of(place: Path, row: Mapping[str, Any], folder: Path | None) -> Answer:
    """Return the answer that the sample's process wrote into a folder, or why there is none: by its row, or because the
    file, which the sample's own code could write, cannot be read."""
    file = folder / ANSWER if folder is not None else None
    if row.get("cause") or file is None or not file.is_file():
        return Answer(place, ended=": ".join(filter(None, (row.get("cause") or "no answer", row.get("detail")))))
    try:
        return Answer(place, read_json(file), folder=folder)
    except SampleError as error:
        return Answer(place, ended=f"its answer cannot be read: {error}")


def write_answer(staging: Path, content: Any) -> dict[str, Any]:
    """Write an answer, as the last thing that a function does; return its row."""
    staging.mkdir(exist_ok=True)
    (staging / ANSWER).write_text(json.dumps(content), "utf-8")
    return {"verdict": "unproven"}  # a row must have one; `run_apart` reads the answer instead


def ask(function: str, place: Path, options: Mapping[str, Any], timeout: float, kind: Any) -> Answer:
    """Run a function that ends with `write_result` on one sample, and return its answer, whose content is a value of
    the type `kind` (`result_of`); raise what it raised."""
    [answer] = run_apart(function, [place], options, (timeout, None), on_sample=lambda place: None)
    return result_of(answer, kind)


def result_of(answer: Answer, kind: Any) -> Answer:
    """Return an answer with what `write_result` wrote as a value of the type `kind`, as `from_plain` makes it; raise
    the error that it wrote. Any other content, which the sample's own code could write, is no answer: it says so."""
    match answer.content:
        case _ if answer.ended:
            return answer
        case {"error": str(name), "said": str(said)} if name in ERRORS:
            raise ERRORS[name](said)
        case {"result": result}:
            try:
                return replace(answer, content=from_plain(kind, result, "the result"))
            except ValueError as error:
                return Answer(answer.place, ended=f"{NO_ANSWER}: {error}")
    return Answer(answer.place, ended=f"{NO_ANSWER}: it has neither a result nor an error of Backprint with its text")


NO_ANSWER = "its process wrote what is no answer"


def write_result(staging: Path, make: Callable[[], Any]) -> dict[str, Any]:
    """Call a function, and write what it returns as the answer, or the BackprintError that it raises, by the name of
    the nearest class in ERRORS, which `result_of` raises; return the row."""
    try:
        content = {"result": make()}
    except BackprintError as error:
        name = next(kind.__name__ for kind in type(error).__mro__ if ERRORS.get(kind.__name__) is kind)
        content = {"error": name, "said": str(error)}
    return write_answer(staging, content)


# ------------------------------------------------------------------ platforms without Linux's /proc and fork


def _in_own_interpreters(
    function: str, places: Sequence[Path], options: Mapping[str, Any], timeout: float, on_sample: Callable[[Path], None]
) -> Iterator[Answer]:
    """Yield the answers of `run_apart`, each from a new interpreter: its time is limited, its memory is not watched.

    Starting PyTorch anew takes seconds, so on Linux processes are forked instead.
    """
    for index, place in enumerate(places):
        on_sample(place)
        with tempfile.TemporaryDirectory(prefix="backprint_") as folder:
            task = Task(str(index), os.fspath(place.absolute()))
            row = _row_of_interpreter(function, task, options, Path(folder), timeout)
            yield answer_of(place, row, Path(folder) / STAGED)


STAGED = "sample"
"""The folder that a function writes to, below the one of its process."""


def _row_of_interpreter(
    function: str, task: Task, options: Mapping[str, Any], folder: Path, timeout: float
) -> Mapping[str, Any]:
    """Call the function in a new interpreter; return its row, or that of how the interpreter ended."""
    child = Child(start_interpreter("backprint.tools.jobs.apart"), limited(timeout))
    try:
        child.send({"function": function, "task": asdict(task), "options": dict(options), "folder": os.fspath(folder)})
        row = child.receive()
    finally:
        end = child.close()
    return failure(end.cause, end.detail, "work") if row is None else row_or_failure(json.loads(row))


def _work_alone() -> None:
    """Run the function that is asked for, and send its row: the process of one sample."""
    from backprint.tools.jobs.verbs import verb_of

    line, _ = line_of(sys.argv[1:])
    message = next(iter(line))
    try:
        verb = verb_of(message["function"])
        row = verb.run(Task(**message["task"]), message["options"], Path(message["folder"]) / STAGED)
    except Exception as error:
        traceback.print_exc()
        row = failure_of(error, "work")
    line.send(row)


if __name__ == "__main__":
    _work_alone()
