"""Workers on this machine: start them, give each one sample at a time, read their messages, replace lost ones.

This is one Executor, which is all that `run` needs. No torch here.

A Task is a sample to work on; a row is what a run keeps of it. A `Child` is a process that was started here, and the
line over which messages go to it and come from it (their form: `worker`).
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from backprint.child import processes
from backprint.child.child import Child, start_interpreter
from backprint.child.limits import Limits
from backprint.errors import BackprintError
from backprint.tools.jobs.task import Task, failure, on_cpu

SILENCE = 60.0
"""Seconds without a message after which a worker counts as lost."""

WORKER = "backprint.tools.jobs.worker"

STARTING = 300.0
"""Seconds that a worker has to load PyTorch."""

ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait by spinning take cores from other workers: samples with two threads took five times as long."""

FALSE_STARTS = 3
"""How many workers in a row may end before they are ready."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A worker has begun a stage of a sample."""

    id: str
    worker: str
    stage: str


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A sample has ended: its row, the folder it wrote (if any), its last output.

    `again` says whether another try is fair, and `alone` whether nothing else may run during it.
    """

    task: Task
    worker: str
    row: dict[str, Any]
    place: Path | None = None
    log: str = ""
    again: bool = False
    alone: bool = True


Event = Stage | TaskOutcome


class Executor(Protocol):
    """Where samples are processed. Each submitted sample comes back as one TaskOutcome, whatever happens.

    `shares` is how many times as much memory a sample may use that runs alone.
    """

    shares: int

    def free(self) -> int:
        """Return how many samples could be submitted now."""

    def submit(self, task: Task, options: Mapping[str, Any], alone: bool = False) -> str:
        """Start a sample, with these options besides the run's; return the worker's name.

        With `alone`, nothing else is running, and it may use the resources of all workers.
        """

    def events(self, seconds: float) -> list[Event]:
        """Return new events; wait for this long at most if there are none."""

    def done(self, outcome: TaskOutcome) -> None:
        """Remove the files of a recorded outcome."""

    def close(self) -> None:
        """End all work at once."""


@dataclass(slots=True)
class Worker:
    """A worker process, and its current sample."""

    name: str
    child: Child
    heard: float = field(default_factory=time.monotonic)
    ready: bool = False
    task: Task | None = None
    staging: Path | None = None


class Pool:
    """Workers on this machine, at most `jobs`; they write below `work`, and all their processes have the mark `run` in
    their environment, by which they are found and ended."""

    def __init__(
        self, verb: str, options: Mapping[str, Any], limits: Limits, jobs: int, work: Path, run: str = ""
    ) -> None:
        self.setup = {"verb": verb, "options": dict(options), "limits": asdict(limits)}
        self.on_cpu = on_cpu(options)
        self.jobs, self.work, self.run, self.shares = jobs, work.absolute(), run, limits.shares
        self.workers: list[Worker] = []
        self.versions: dict[str, str] = {}
        """Versions of packages, as the worker that was ready last has told them."""
        self.count = 0
        """How many samples were submitted: the name of the next staging folder."""
        self.started = 0
        """How many workers were started."""
        self.false_starts = 0
        """How many workers in a row ended before they were ready."""
        work.mkdir(parents=True, exist_ok=True)

    # -------------------------------------------------------------- the Executor

    def free(self) -> int:
        """Return the number of idle workers; start workers while there are too few."""
        while len(self.workers) < self.jobs:
            self.workers.append(self.start())
        return sum(worker.ready and worker.task is None for worker in self.workers)

    def submit(self, task: Task, options: Mapping[str, Any], alone: bool = False) -> str:
        """Give a sample to an idle worker."""
        worker = next(worker for worker in self.workers if worker.ready and worker.task is None)
        staging = self.work / str(self.count)
        self.count += 1
        staging.mkdir()
        worker.task, worker.staging, worker.heard = task, staging, time.monotonic()
        message = {"task": asdict(task), "options": dict(options), "staging": os.fspath(staging), "alone": alone}
        worker.child.send(message)
        return worker.name

    def events(self, seconds: float) -> list[Event]:
        """Read the workers' messages, and wait for so many seconds at most if there are none; a worker that has been
        silent for too long is ended."""
        new_events: list[Event] = []
        poller = select.poll()
        for descriptor in (descriptor for worker in self.workers for descriptor in worker.child.open):
            poller.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poller.poll(seconds * 1000)}  # poll takes milliseconds
        for worker in [worker for worker in self.workers if ready & worker.child.open]:  # a copy: one may be removed
            new_events += self.listen(worker)
        now = time.monotonic()
        for worker in list(self.workers):
            if (worker.task or not worker.ready) and now - worker.heard > (SILENCE if worker.ready else STARTING):
                new_events += self.replace_lost(worker, f"no sign of life for {now - worker.heard:.0f} s")
        return new_events

    def done(self, outcome: TaskOutcome) -> None:
        """Remove a sample's staging folder, in which `place` is `sample`."""
        if outcome.place is not None:
            remove_folder(outcome.place.parent)

    def close(self) -> None:
        """End every worker, and with it its sample."""
        for worker in self.workers:
            worker.child.close()
        self.workers.clear()
        processes.end_marked(self.run)

    # -------------------------------------------------------------- workers

    def start(self) -> Worker:
        """Start a worker process. Other processes of its samples are found by their mark."""
        environment = {**ENVIRONMENT, processes.MARK: self.run}
        if self.on_cpu:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        child = Child(start_interpreter(WORKER, environment=environment), captured=True)
        worker = Worker(f"worker {self.started}", child)
        self.started += 1
        worker.child.send(self.setup)
        return worker

    def listen(self, worker: Worker) -> list[Event]:
        """Read one worker's messages."""
        child = worker.child
        child.listen()
        events: list[Event] = []
        while child.lines:
            worker.heard = time.monotonic()
            events += self.events_of(worker, json.loads(child.lines.popleft()))
        return [*events, *self.replace_lost(worker, "its worker ended")] if child.gone else events

    def events_of(self, worker: Worker, message: Any) -> list[Event]:
        """Return the events of one worker's message (their form: `worker`); a row ends the worker's sample, and comes
        with the last that was printed (`log`), and whether another try is fair (`again`)."""
        task, staging = worker.task, worker.staging
        match message:
            case {"ready": dict(versions)}:
                worker.ready, self.versions, self.false_starts = True, versions, 0
            case {"stage": str(name)} if task:
                return [Stage(task.id, worker.name, name)]
            case {"row": dict(row), "again": bool(again), "log": str(log)} if task and staging:
                worker.task = worker.staging = None
                row["versions"] = self.versions
                return [TaskOutcome(task, worker.name, row, staging / "sample", log, again)]
        return []

    def replace_lost(self, worker: Worker, why: str) -> list[Event]:
        """End a worker that is gone, or has to go (`free` starts another); its sample may be tried again, because it
        may not be the cause. Raise BackprintError if several in a row ended before they were ready."""
        end = worker.child.close()
        self.workers.remove(worker)
        if not worker.ready:
            self.false_starts += 1
            if self.false_starts >= FALSE_STARTS:
                printed = end.printed.strip().splitlines()
                raise BackprintError(f"no worker can start: {printed[-1] if printed else why}")
        if worker.task is None or worker.staging is None:
            return []
        row = failure("worker lost", f"{why} ({end.cause})", stage="read")
        return [TaskOutcome(worker.task, worker.name, row, worker.staging / "sample", "", again=True)]


def remove_folder(folder: Path) -> None:
    """Remove a folder and its content, whatever its permissions are; a link or a file in its place is removed itself,
    and nothing is no error."""
    import shutil

    def make_writable_and_retry(function: Any, path: str, _: Any) -> None:
        """Call the function that failed on a path again, when the folders that it needs can be written to."""
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
        function(path)

    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, onerror=make_writable_and_retry)
    else:
        folder.unlink(missing_ok=True)
