"""One worker: a process that keeps PyTorch loaded, and forks a process for each sample.

It is a child of `pool`, and each sample's process is a child of it. The worker itself runs no code of a sample: it
forks, watches, ends remaining processes, and answers with a row. Whatever a sample does to its process (settings,
hooks, descriptors, a crash) ends with it, and a worker is hardly ever lost. Forking is safe because a worker has one
thread: PyTorch starts its own in the forked process.

    in    {"verb", "options", "limits"} once, then {"task", "options", "staging", "alone"} for each sample
    out   {"ready": versions} once, then {"stage": name}, {"beat": seconds}, and at last {"row", "again", "log"}

A `Line` carries such messages between a process and its parent, as JSON. A beat says that the worker lives; `again`
says that another try is fair, and `log` is the last that the sample's process printed. `staging` is the folder that the
sample's process may write to, and a sample that runs `alone` may use the memory of all workers.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from backprint.child import processes
from backprint.child.child import Child, Line, line_of, start_by_fork
from backprint.child.ends import ChildEnd, last_words
from backprint.child.limits import Limits
from backprint.common import at_work, memory
from backprint.common.memory import GIB
from backprint.tools.jobs.ledger import row_or_failure
from backprint.tools.jobs.task import Task, begin_clock, failure, failure_of, one_line
from backprint.tools.jobs.verbs import Verb, verb_of

BEAT = 2.0
"""Seconds between two messages while a sample runs."""


def main(arguments: list[str]) -> None:
    """Work until the parent closes the line."""
    line, _ = line_of(arguments)
    processes.adopt_orphans()  # so that what a sample's process leaves behind is found, and ended
    setup = next(iter(line))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # these are for the parent, which closes the line
    verb = verb_of(setup["verb"])
    send(line, {"ready": warm_up(verb, setup["options"])})
    limits = Limits(**setup["limits"])
    for request in line:
        sample_limits = limits.undivided() if request["alone"] else limits
        task = replace(Task(**request["task"]), memory=sample_limits.memory, most=limits.undivided().memory)
        watch = _SampleWatch(task, Path(request["staging"]), sample_limits, line)
        send(line, watch.work(verb, setup["options"] | request["options"]))


def send(line: Line, message: Mapping[str, Any]) -> None:
    """Send a message to the parent; end if the parent is gone."""
    try:
        line.send(message)
    except OSError:
        processes.end_descendants()
        os._exit(1)


def warm_up(verb: Verb, options: Mapping[str, Any]) -> dict[str, str]:
    """Load and try everything that samples need, once; return the versions of loaded packages."""
    versions = verb.warm(options)
    gc.collect()
    gc.freeze()  # collecting in a forked process would write to objects from before, and so copy their pages
    return versions


@dataclass(slots=True)
class _SampleWatch:
    """The watch over one sample's process: its messages, and its row."""

    task: Task
    staging: Path
    limits: Limits
    line: Line
    started: float = field(default_factory=time.monotonic)
    stage: str = "read"
    stage_started: float = field(default_factory=time.monotonic)
    stages: dict[str, float] = field(default_factory=dict)
    row: dict[str, Any] | None = None

    def work(self, verb: Verb, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fork the sample's process, watch it, end its descendants; return the answer for the parent."""
        (self.staging / "tmp").mkdir()
        start = start_by_fork(partial(_run_isolated, verb, self.task, options, self.staging, self.limits))
        child = Child(start, self.limits, captured=True, orphans=True, folder=self.staging)
        next_beat = time.monotonic() + BEAT
        try:
            # A message, or None at the time of the next beat, or for good when the process has ended.
            while (text := child.receive(next_beat - time.monotonic())) is not None or child.end is None:
                if text is not None:
                    self.read_message(text)
                if time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + BEAT
                    send(self.line, {"beat": time.monotonic() - self.started})
        finally:
            end = child.close()
        return self.answer(child, end)

    def read_message(self, text: bytes) -> None:
        """Read a message of the sample's process."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return  # a sample wrote to this descriptor: ignore it
        match message:
            case {"stage": str(name)}:
                self.end_stage()
                self.stage = name
                send(self.line, {"stage": name})
            case {"row": dict(row)}:
                self.row = row_or_failure(row)

    def end_stage(self) -> None:
        """Add the time of the current stage."""
        now = time.monotonic()
        self.stages[self.stage] = self.stages.get(self.stage, 0.0) + now - self.stage_started
        self.stage_started = now

    def answer(self, child: Child, end: ChildEnd) -> dict[str, Any]:
        """Return the answer for the parent about a sample that has ended: the row that its process sent, or that of a
        failure if it sent none or was ended at a limit; and whether another try is fair."""
        row, again = self.row, False
        if row is None or end.at_limit:
            detail = end.detail
            if not end.at_limit:  # what it ran, and what it printed last, may say why it ended
                called = at_work.last(self.staging)
                where = f"while running {one_line(called)}" if called else ""
                detail = "; ".join(filter(None, (detail, where, last_words(end.printed))))
            self.end_stage()
            row, again = failure(end.cause, detail, self.stage, stages=self.stages), end.again
        elif child.left:  # processes that it had started
            row["notes"] = [*(row.get("notes") or []), f"left {child.left} processes behind, which were ended"]
        row["seconds"] = time.monotonic() - self.started
        row["peak_bytes"] = max(child.use.peak, row.get("peak_bytes") or 0)
        return {"row": row, "again": again, "log": end.printed}


# ------------------------------------------------------------------ in the sample's own process


def _run_isolated(
    verb: Verb, task: Task, options: Mapping[str, Any], staging: Path, limits: Limits, line: Line
) -> None:
    """Limit the sample's own process, run the verb in a folder of its own, and send its row."""
    # A huge allocation fails at once instead of taking the machine's memory. Reserved memory counts too, such as the
    # stacks of threads, so this is above the limit that is measured.
    data = processes.status("VmData") + limits.memory + limits.memory // 4 + GIB + limits.threads * (64 << 20)
    for kind, most in ((resource.RLIMIT_FSIZE, limits.disk), (resource.RLIMIT_DATA, data)):
        resource.setrlimit(kind, (most, most))
    os.chdir(staging / "tmp")
    os.environ |= {"TMPDIR": os.getcwd(), "OMP_NUM_THREADS": str(limits.threads)}
    at_work.begin(staging)
    memory.limit_memory(limits.memory)
    line.send({"row": run_verb(verb, task, options, staging / "sample", limits.threads, line)})


def run_verb(
    verb: Verb, task: Task, options: Mapping[str, Any], place: Path, threads: int, line: Line
) -> dict[str, Any]:
    """Return the verb's row for a sample, which it may write to `place`, or the row of its failure, whatever it raised;
    with the seconds of its stages, its peak of memory and its bytes on disk. Stages are sent over the line."""
    import faulthandler
    import traceback

    faulthandler.enable(file=2)  # a crash prints where it was, into the output that the worker keeps
    watch = begin_clock(lambda name: line.send({"stage": name}))
    processes.reset_peak()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    try:
        row = {"stage": "done", **verb.run(task, options, place)}
        row["stages"] = {**watch.seconds, **(row.get("stages") or {})}
        json.dumps(row)  # raises for what is no plain data; the worker, which reads it, checks the columns
    except BaseException as error:  # also what calls sys.exit
        traceback.print_exc()
        row = failure_of(error, watch.stage) | {"stages": watch.seconds}
    row["peak_bytes"] = processes.status("VmHWM")
    if place.is_dir():
        row["disk_bytes"] = processes.size_of(place)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    return row


if __name__ == "__main__":
    main(sys.argv[1:])
