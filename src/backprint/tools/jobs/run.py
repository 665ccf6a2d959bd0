"""A corpus run: find the samples, process them, put their results in place, and record everything.

If the run is killed at any moment, the same call continues it. A sample's complete folder, with its row
(`result.json`), is renamed into OUT, and only then the ledger says `done`. If the run is killed in between, a restart
adopts the folder. Work in progress is below OUT/.work, which no later run searches for samples.

- An `Executor` processes samples somewhere: a `Pool` of workers on this machine, or a cluster. A `Task` is a sample as
  it is submitted. What comes back are events: a `Stage` that a sample has reached, and at the end its `TaskOutcome`:
  its row, the folder that it wrote (`place`), its last output (`log`), and whether another try is fair (`again`).
- A row of a sample has a `verdict`, and of a failure its `cause`, a word that can be counted.
- The verb of a run is the function that works on a sample, from a table (`verbs`) or the user's own.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from backprint.child import processes
from backprint.child.limits import FREE, Limits
from backprint.common.files import read_json
from backprint.errors import NothingFoundError, SampleError, UsageError
from backprint.tools.jobs.find import Shard, families, find, patterns
from backprint.tools.jobs.ledger import (
    FORMAT,
    NAME,
    Ledger,
    check_row,
    open_run,
    place_of,
    source_of,
    without_infinities,
)
from backprint.tools.jobs.places import (
    RESULT,
    WORK,
    check_places,
    create_writable,
    lock_folder,
    place_folder,
    place_trees,
    write_log,
)
from backprint.tools.jobs.pool import Event, Executor, Pool, Stage, TaskOutcome, remove_folder
from backprint.tools.jobs.task import TREES, Task, failure
from backprint.tools.jobs.verbs import known_verb

# ------------------------------------------------------------------ Ctrl-C and SIGTERM


class Stopped(BaseException):
    """A signal has stopped the run."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


IMPATIENT = 3
"""The number of signals after which a run ends at once, even while Ray's C code runs."""


class _StopSignals:
    """The signals that the run has received.

    A signal raises at once, or with `waits` at the next `go_on`: Ray's own C code must not be interrupted, because it
    then ends in a SystemError of its own.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.waits = False

    def stop(self, number: int, _: object) -> None:
        """Handle a signal: note it, and raise Stopped, unless that waits for `go_on`."""
        self.numbers.append(number)
        if not self.waits or len(self.numbers) >= IMPATIENT:
            raise Stopped(number)

    def go_on(self) -> None:
        """Raise Stopped if a signal has come; other code may have swallowed the exception that `stop` raised."""
        if self.numbers:
            raise Stopped(self.numbers[0])


@contextlib.contextmanager
def signals() -> Iterator[_StopSignals]:
    """Handle Ctrl-C and SIGTERM by what is yielded, so that the run stops in order; the handlers from before come back
    with the end of the block."""
    stop_signals = _StopSignals()
    before = {}
    with contextlib.suppress(ValueError):  # only the main thread may
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, stop_signals.stop)
    try:
        yield stop_signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ------------------------------------------------------------------ plans and events

SHORT = ("out of memory", "too large")
"""Causes of failure for lack of memory, which may not occur with more."""

ITS_OWN = frozenset(
    {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL, errno.ELOOP}
)
"""Errors of writing a sample that are caused by its name; others are the disk's, and end the run."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of a run: a verb with its options, on the samples below the folder `source`, with results in `out`.

    Which samples: those listed in the file `names`, that match one of the patterns `only`, and whose rows in an earlier
    run, whose OUT is the source, meet the SQL conditions `where`; of these the first `limit`; of these those in the
    `shard`, `K/N`. With `keeps`, the folder of a failed sample is kept, as the table of verbs says for its own.
    """

    verb: str
    source: Path
    out: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    names: Path | None = None
    only: str | tuple[str, ...] | None = None
    limit: int | None = None
    keeps: bool = False
    where: tuple[str, ...] = ()
    shard: str | None = None

    def facts(self) -> dict[str, Any]:
        """Return the facts that a resumed run must share."""
        only_patterns = patterns(self.only)
        # One pattern is the same fact by itself and in a list.
        only = only_patterns[0] if len(only_patterns) == 1 else list(only_patterns) or None
        selection = {
            "list": os.fspath(self.names) if self.names else None,
            "only": only,
            "limit": self.limit,
            "where": list(self.where) or None,
            "shard": self.shard,
        }
        options = {**self.options, **{name: value for name, value in selection.items() if value is not None}}
        return {"format": FORMAT, "verb": self.verb, "source": os.fspath(self.source.resolve()), "options": options}


@dataclass(frozen=True, slots=True)
class Begun:
    """A run has started or resumed: how many samples it has, and how many of them were done before."""

    total: int
    done: int


@dataclass(frozen=True, slots=True)
class Written:
    """A sample is in the ledger."""

    row: dict[str, Any]


Watcher = Callable[["Begun | Written | Stage"], None]


def run_plan(
    plan: RunPlan,
    limits: Limits,
    jobs: int,
    *,
    restart: bool = False,
    retry: Collection[str] = (),
    watcher: Watcher = lambda event: None,
    executor: Callable[[Path, str], Executor] | None = None,
) -> dict[str, int]:
    """Execute a plan, or resume it; return how many samples have each verdict.

    `limits` are those of each sample, and `jobs` is how many workers this machine's pool has. With `restart`, a new
    ledger is begun. `retry` are verdicts and causes: finished samples with one of them are done again. `executor(work,
    run)` makes another Executor than this machine's pool: `work` is the folder it may write to, `run` the name of the
    run. Raise NothingFoundError if there is no sample, and Stopped at a signal.
    """
    processes.check_platform()
    check_places(plan.source, plan.out)
    with (
        create_writable(plan.out),
        lock_folder(plan.out),
        signals() as stop_signals,
        open_run(plan.out / NAME, plan.facts() | new_facts(), restart) as ledger,
    ):
        name = ledger.facts()["run"]
        clear(plan.out, name)
        for row in ledger.reset(retry):
            (place_of(plan.out, row) / RESULT).unlink(missing_ok=True)  # so that a restart does not adopt it
        search(plan, ledger)
        adopt(plan.out, ledger, name)
        total = sum(ledger.counts("state").values())
        if not total:
            raise NothingFoundError(f"{plan.source}: no samples here (a folder with model.py or capture.json is one)")
        done = ledger.counts("state").get("done", 0)
        watcher(Begun(total, done))
        work = plan.out / WORK / secrets.token_hex(4)
        with contextlib.ExitStack() as callbacks:  # all callbacks run, the last first, even if one fails
            callbacks.callback(reset_running, ledger)
            callbacks.callback(_remove_work, work)
            make = executor or partial(Pool, plan.verb, plan.options, limits, min(jobs, total - done))
            stop_signals.waits = executor is not None  # a cluster is Ray's (`_StopSignals`)
            at_work = make(work, name)
            callbacks.callback(at_work.close)  # first of all, so that nothing writes when the folder is removed
            _RunLoop(plan, ledger, name, at_work, watcher, work).run(stop_signals.go_on)
            ledger.write_facts(finished=time.time())
        return ledger.counts("verdict")


def _remove_work(work: Path) -> None:
    """Remove the folder of work in progress; the next run removes files that are still being written."""
    with contextlib.suppress(OSError):
        remove_folder(work)


def new_facts() -> dict[str, Any]:
    """Return the facts of a new run."""
    from backprint.version import __version__

    return {"run": secrets.token_hex(8), "started": time.time(), "backprint": __version__}


# ------------------------------------------------------------------ the beginning of a run


def clear(out: Path, mark: str) -> None:
    """End the processes of a killed run, which have its mark in their environment, and remove its incomplete files."""
    processes.end_marked(mark)
    for place in (out / WORK).iterdir():
        if place.name not in ("lock", "logs"):
            remove_folder(place)


def search(plan: RunPlan, ledger: Ledger) -> None:
    """Add every sample that the plan chooses and that is for the verb to the ledger; an unusable one, which has a
    `cause`, is finished with its failure."""
    broken = []
    verb = known_verb(plan.verb)
    kinds = () if verb is None else verb.kinds
    chosen = _ids_where(plan.source, plan.where) if plan.where else None
    shard = Shard.of_text(plan.shard) if plan.shard else None
    jobs = find(
        plan.source,
        names=plan.names,
        only=plan.only,
        limit=plan.limit,
        without=plan.out,
        among=chosen,
        shard=shard,
    )

    def jobs_of_verb() -> Iterator[Any]:
        """Yield the samples that are for this verb; note those that cannot be used, which get their failure below."""
        for job in jobs:
            if kinds and job.kind not in kinds and not job.cause:
                continue
            if job.cause:
                broken.append(job)
            yield job

    ledger.add(jobs_of_verb())
    ledger.write_families(families(ledger.families()))
    with ledger.transaction():
        for job in broken:
            ledger.finish(job.id, failure(job.cause, job.detail, "find") | {"finished": time.time()})


def _ids_where(source: Path, where: tuple[str, ...]) -> frozenset[str]:
    """Return the ids of the samples whose rows meet these conditions, in the ledger of the run that made the source;
    UsageError if it has none."""
    if not (source / NAME).is_file():
        raise UsageError(f"--where chooses by the ledger of an earlier run, and {source} has none: name the OUT of one")
    with Ledger.reading(source, where) as ledger:
        return frozenset(id for id, _ in ledger.families())


def adopt(out: Path, ledger: Ledger, name: str) -> None:
    """Mark samples as done whose folders are in place although the ledger does not say so: the run was killed. The
    folder must be of this run (its `name`) and of the sample as it is now; else the sample is done again."""
    for row in list(ledger.rows("state != 'done' and attempts > 0")):
        try:
            content = read_json(place_of(out, row) / RESULT)
        except SampleError:  # there is none, or it is no longer whole: the sample is done again
            continue
        if not isinstance(content, dict):
            continue
        if [content.pop(key, None) for key in ("run", "id", "source_hash")] == [name, row["id"], row["source_hash"]]:
            with contextlib.suppress(UsageError):  # the row was changed: the sample is done again
                ledger.finish(row["id"], check_row(content))


def reset_running(ledger: Ledger) -> None:
    """Reset running samples to `todo`."""
    with ledger.transaction():
        ledger.connection.execute("update samples set state = 'todo' where state = 'running'")


# ------------------------------------------------------------------ the loop


class _RunLoop:
    """A run in progress: the samples to do, those that the executor has, and those to try again."""

    def __init__(
        self, plan: RunPlan, ledger: Ledger, name: str, executor: Executor, watcher: Watcher, work: Path
    ) -> None:
        self.plan, self.ledger, self.name, self.work = plan, ledger, name, work
        self.executor, self.watcher = executor, watcher
        verb = known_verb(plan.verb)  # None: the user's own
        self.instead = verb.instead if verb else {}
        """By cause of a failure: the options for one more try."""
        self.keeps = verb.keeps if verb else plan.keeps
        """Whether the folder of a failed sample is kept."""
        self.todo = self.tasks()
        self.upcoming: Task | None = None
        """The next of `todo`, looked at by `has_more`."""
        self.active: dict[str, Mapping[str, Any]] = {}
        """The samples that the executor has, with their own options."""
        self.began: dict[str, float] = {}
        self.spent: dict[str, float] = {}
        """The seconds of earlier tries."""
        self.retries: deque[tuple[Task, Mapping[str, Any]]] = deque()
        """Samples to try again beside others, with their own options."""
        self.alone: deque[tuple[Task, Mapping[str, Any]]] = deque()
        """Samples to try again when nothing else runs, with their own options."""
        self.lost: set[str] = set()
        """Samples whose one fair try more is used."""
        self.grown: set[str] = set()
        """Samples that were tried with all memory."""
        self.first: dict[str, TaskOutcome] = {}
        """The first failures of samples that are tried with other options."""
        self.inode = (plan.out / NAME).stat().st_ino
        """By which it is seen whether the ledger's file is still the one that was opened."""

    def run(self, go_on: Callable[[], None]) -> None:
        """Process samples until every one is done. Those that need the machine alone come last. `go_on` raises Stopped
        if a signal has come."""
        while self.active or self.has_more():
            while self.has_more() and self.executor.free() and (picked := self.next_task()):
                self.submit(*picked)
            go_on()
            self.check_not_removed()
            for event in self.executor.events(0.5):
                self.handle(event)

    def check_not_removed(self) -> None:
        """Raise if the ledger or the work folder was removed: SQLite would go on writing to the removed file."""
        there = (self.plan.out / NAME).stat().st_ino == self.inode
        if not there or not self.work.is_dir():
            raise FileNotFoundError(errno.ENOENT, "removed while the run went on", os.fspath(self.work))

    def check_disk(self, event: TaskOutcome) -> None:
        """Raise if the disk is full without this sample's files, which are removed: then it is not the sample's
        fault, and would be that of every other one."""
        self.executor.done(event)
        room = os.statvfs(self.plan.out)
        free = room.f_bavail * room.f_frsize
        if free < FREE:
            reason = f"{free / 2**30:.2f} GiB are left on the disk, {FREE / 2**30:.2f} have to be"
            raise OSError(errno.ENOSPC, reason)

    def tasks(self) -> Iterator[Task]:
        """Yield the samples that are not done."""
        source = self.plan.source.resolve()
        for row in self.ledger.unfinished():
            folder = os.fspath(source_of(source, row))
            yield Task(row["id"], folder, row["family"], row["kind"], row["source_hash"])

    def has_more(self) -> bool:
        """Look for the next sample in the ledger, and return whether there is one to submit, now or after others."""
        self.upcoming = self.upcoming or next(self.todo, None)
        return bool(self.retries or self.upcoming or self.alone)

    def next_task(self) -> tuple[Task, Mapping[str, Any], bool] | None:
        """Return the next sample, its own options, and whether it runs alone; None if it must wait for the others."""
        if self.retries:
            return *self.retries.popleft(), False
        if self.upcoming:
            task, self.upcoming = self.upcoming, None
            return task, {}, False
        if self.alone and not self.active:
            return *self.alone.popleft(), True
        return None

    def submit(self, task: Task, options: Mapping[str, Any], alone: bool) -> None:
        """Submit a sample, with its own options beside the run's."""
        self.ledger.begin(task.id)
        self.active[task.id] = options
        self.began[task.id] = time.monotonic()
        worker = self.executor.submit(task, options, alone)
        self.watcher(Stage(task.id, worker, "read"))

    def handle(self, event: Event) -> None:
        """Handle one event of the executor: pass on a stage; of a sample that has ended, record the outcome, or queue
        the sample for another try."""
        if isinstance(event, Stage):
            self.watcher(event)
            return
        self.check_not_removed()
        task = event.task
        if event.row["cause"] == "disk full":
            self.check_disk(event)
        options = self.active.pop(task.id)
        event.row.setdefault("seconds", time.monotonic() - self.began.pop(task.id))
        event.row["seconds"] += self.spent.pop(task.id, 0.0)
        if event.again and task.id not in self.lost:
            # A lost worker says nothing about its sample, for the machine may have run out of memory: one fair try
            # more.
            self.lost.add(task.id)
            self.retry_later(event, options, self.alone if event.alone else self.retries)
        elif self.had_too_little_memory(event):
            self.grown.add(task.id)
            self.retry_later(event, options, self.alone)
        elif event.row["verdict"] == "failed" and not options and event.row["cause"] in self.instead:
            # A failure that the verb knows: one try with its other options. `options` are such options already.
            self.first[task.id] = event
            self.retry_later(event, self.instead[event.row["cause"]], self.retries)
        else:
            self.record(self.final_outcome(event))
        self.executor.done(event)

    def retry_later(
        self, event: TaskOutcome, options: Mapping[str, Any], queue: deque[tuple[Task, Mapping[str, Any]]]
    ) -> None:
        """Queue a sample for another try; the times of all tries are added up."""
        self.ledger.requeue(event.task.id)
        self.spent[event.task.id] = event.row["seconds"]
        queue.append((event.task, options))

    def had_too_little_memory(self, event: TaskOutcome) -> bool:
        """Whether a sample had too little memory, and would have more if it ran alone."""
        short = event.row["verdict"] == "failed" and event.row["cause"] in SHORT
        return short and self.executor.shares > 1 and event.task.id not in self.grown

    def final_outcome(self, event: TaskOutcome) -> TaskOutcome:
        """Return the outcome to record. Of two tries, the second, with other options, counts: if it failed too, the
        first failure is recorded, and if it is `unproven`, the cause of the first failure is."""
        first = self.first.pop(event.task.id, None)
        if first is None:
            return event
        if event.row["verdict"] == "failed":
            return replace(event, row=first.row | {"seconds": event.row["seconds"]}, log=first.log, place=None)
        if event.row["verdict"] == "unproven":
            return replace(event, row=event.row | {"cause": first.row["cause"], "detail": first.row["detail"]})
        return event

    def record(self, event: TaskOutcome) -> None:
        """Put a sample's folder in place, then write its row into the ledger. If its own name keeps it from being
        written, it has failed; other errors of the disk are raised."""
        task = event.task
        row = {**event.row, "worker": event.worker, "finished": time.time()}
        place = place_of(self.plan.out, {"id": task.id})
        is_kept = row["verdict"] != "failed" or self.keeps
        staged = event.place if is_kept and event.place and event.place.is_dir() else None
        try:
            if staged:
                content = {"run": self.name, "id": task.id, "source_hash": task.source_hash, **without_infinities(row)}
                (staged / RESULT).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
                place_trees(staged / TREES, self.plan.out, task.id, lambda id: self.ledger.row(id) is not None)
            place_folder(staged, place, self.plan.out)  # None: what an earlier run put there is removed
            if row["verdict"] == "failed" and event.log:
                write_log(self.plan.out, task.id, event.log)
        except OSError as error:
            if error.errno not in ITS_OWN:
                raise
            row = failure("not written", f"{place}: {error.strerror}", "save") | {"finished": time.time()}
        self.ledger.finish(task.id, row)
        self.watcher(Written(self.ledger.row(task.id) or row))
