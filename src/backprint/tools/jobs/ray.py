"""Process samples on a Ray cluster (an optional extra; tried with ray 2.60).

A Ray task is one sample. On its node the same guarded worker processes it as on one machine (`pool`); the process that
runs the task keeps the worker for the next task, so limits, isolation and causes are the same. The ledger stays with
the driver. If a node can see OUT, it writes below OUT/.work, and the folder is renamed into place; if not, folders are
sent as bytes, the sample's to the node and the result's back. If a node is lost, its samples are tried once more.

Every node must have the same version of Backprint as the driver.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backprint.errors import BackprintError, SampleError, UsageError
from backprint.tools.jobs import processes
from backprint.tools.jobs.find import MAIN, source_hash
from backprint.tools.jobs.places import all_files, own_files, read_files, write_files
from backprint.tools.jobs.pool import FALSE_STARTS, Event, Pool, TaskOutcome, remove_folder
from backprint.tools.jobs.processes import GIB, Limits
from backprint.tools.jobs.task import Task, failure
from backprint.version import __version__

TOKEN = "token"

TRAVELS = 256 << 20
"""The most bytes of a sample that are sent between machines."""

GONE = ("NodeDiedError", "WorkerCrashedError", "LocalRayletDiedError", "ObjectLostError", "OutOfMemoryError")
"""Ray's errors for a task whose node or process is gone."""

MISSING = "missing"
"""The answer of a node that cannot see a sample."""


# ------------------------------------------------------------------ the cluster


def connected(address: str | None) -> Any:
    """Return Ray, connected to a cluster: at an address, `local` for this machine alone, else an existing one."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_TQDM_PATCH_PRINT", "0")  # `print` stays Python's own
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "--executor ray needs ray, which is not installed: pip install '.[ray]' in Backprint's folder"
        ) from error
    if ray.is_initialized():
        return ray
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    more = {"include_dashboard": False} if address == "local" else {}
    try:
        reachable(address)
        ray.init(address or "auto", log_to_driver=False, logging_level="ERROR", **more)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"at {address}" if address else "near (and RAY_ADDRESS names none)"
        hint = "start one with `ray start --head`, name it with --ray-address, or use --ray-address local"
        raise UsageError(f"no Ray cluster {where}: {error}; {hint}") from error
    with contextlib.suppress(ValueError):  # only the main thread may
        for number, handler in handlers.items():
            signal.signal(number, handler)  # Ray has its own, which would end the run out of order
    return ray


@contextlib.contextmanager
def ends_at_once() -> Iterator[None]:
    """Let a signal end the process immediately, while there is nothing to keep.

    An exception from a handler while Ray connects can deadlock Ray's own threads (ray 2.60).
    """

    def end(number: int, _: object) -> None:
        os.write(2, f"stopped by {signal.Signals(number).name}; nothing was changed\n".encode())
        os._exit(128 + number)

    before = {}
    with contextlib.suppress(ValueError):  # only the main thread may
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def reachable(address: str | None) -> None:
    """Raise unless HOST:PORT accepts connections: Ray itself takes minutes to give up."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def cluster(
    address: str | None,
    verb: str,
    options: Mapping[str, Any],
    most: tuple[float, float | None, float | None],
    jobs: int | None = None,
) -> tuple[Limits, Callable[[Path, str], Cluster]]:
    """Return a cluster's limits for each sample (`most`: seconds, GiB of memory, GiB of disk), and its Executor for
    `run`."""
    with ends_at_once():
        ray = connected(address)
        limits = limits_on(ray, *most)
    return limits, lambda work, run: Cluster(ray, verb, options, limits, work, run, jobs)


def nodes(ray: Any) -> list[Mapping[str, float]]:
    """Return the resources of the living nodes that accept tasks."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    if not resources:
        raise UsageError("the Ray cluster has no node with a CPU for tasks: start one with `ray start --num-cpus N`")
    return resources


def limits_on(ray: Any, timeout: float = 600.0, memory: float | None = None, disk: float | None = None) -> Limits:
    """Return limits for each sample, in GiB; defaults are a fair share of the smallest node."""
    shares = [node.get("memory", 4 * GIB) / node["CPU"] for node in nodes(ray)]
    most = max(node.get("memory", 4 * GIB) for node in nodes(ray))
    share = int(min(shares) * 0.9) if memory is None else int(memory * GIB)
    if share > most:
        raise UsageError(f"--memory {memory:g}: the largest node of the Ray cluster has {most / GIB:.1f} GiB")
    return Limits(timeout, share, 16 * GIB if disk is None else int(disk * GIB))


# ------------------------------------------------------------------ the driver's side


@dataclass(slots=True)
class _SentTask:
    """A sample that the cluster has."""

    task: Task
    options: Mapping[str, Any]
    worker: str
    content: Any = None


class Cluster:
    """An Executor: at most `jobs` samples are sent at once, by default a few more than the cluster has CPUs."""

    def __init__(
        self,
        ray: Any,
        verb: str,
        options: Mapping[str, Any],
        limits: Limits,
        work: Path,
        run: str,
        jobs: int | None = None,
        most_sent: int = TRAVELS,
    ) -> None:
        self.ray, self.work, self.jobs, self.most_sent = ray, work.resolve(), jobs, most_sent
        self.shares = limits.shares
        self.sent: dict[Any, _SentTask] = {}
        self.names: list[str] = []
        self.slots = 0
        self.sends_files = False
        self.apart = self.abandoned = False
        self.run = run
        self.count = 0
        self.false_starts = 0
        work.mkdir(parents=True, exist_ok=True)
        token = secrets.token_hex(8)
        (work / TOKEN).write_text(token)
        setup = {"verb": verb, "options": dict(options), "limits": asdict(limits), "run": run, "version": __version__}
        self.setup = ray.put(setup | {"work": os.fspath(self.work), "token": token, "most_sent": most_sent})
        self.remote = ray.remote(_on_node).options(
            num_cpus=1, memory=limits.memory, max_retries=0, scheduling_strategy="SPREAD"
        )

    def free(self) -> int:
        """Return how many more samples may be sent. Nodes come and go, so the cluster is queried."""
        cpus = sum(math.floor(node["CPU"]) for node in nodes(self.ray))
        return (self.jobs or cpus + min(cpus, 8)) - len(self.sent)

    def submit(self, task: Task, options: Mapping[str, Any], alone: bool = False) -> str:
        if not self.names:
            self.names.append(f"ray {self.slots}")
            self.slots += 1
        name = self.names.pop()
        self.send(_SentTask(task, options, name))
        return name

    def send(self, sent: _SentTask) -> None:
        """Send a sample, with its files if nodes cannot see them."""
        if self.sends_files and sent.content is None:
            sent.content = self.ray.put(self.content(sent.task))
        self.count += 1
        # A reference in a list is fetched by the node only if it needs it.
        reference = self.remote.remote([self.setup], self.described(sent.task), dict(sent.options), [sent.content])
        self.sent[reference] = sent

    def described(self, task: Task) -> dict[str, Any]:
        """Return a Task as it is sent to a node."""
        return asdict(task)

    def content(self, task: Task) -> dict[str, bytes]:
        """Return a sample's files."""
        return read_files(task.path, own_files(task.path), self.most_sent)

    def events(self, seconds: float) -> list[Event]:
        """Return the samples that have ended."""
        if not self.sent:
            return []
        ready, _ = self.ray.wait(list(self.sent), num_returns=1, timeout=seconds)
        new_events = []
        for reference in ready:
            new_events += self.ended(self.sent.pop(reference), reference)
        return new_events

    def ended(self, sent: _SentTask, reference: Any) -> list[Event]:
        """Return the outcome of a sample; nothing if it must be sent again with its files."""
        try:
            answer = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            return [self.retry_lost(sent, error)]
        if answer == MISSING and sent.content is None:
            self.sends_files = True
            try:
                self.send(sent)
            except (SampleError, OSError) as error:
                return [self.outcome(sent, failure("not sent", str(error), "read"))]
            return []
        self.false_starts = 0
        self.apart = self.apart or "place" not in answer
        return [self.outcome(sent, **answer)]

    def retry_lost(self, sent: _SentTask, error: Any) -> TaskOutcome:
        """Try a sample that ended without an answer once more; if no sample ever succeeds, end the run."""
        gone = isinstance(error, tuple(getattr(self.ray.exceptions, name) for name in GONE))
        lines = str(getattr(error, "cause", None) or error).strip().splitlines() or [type(error).__name__]
        message = lines[0] if gone else lines[-1]
        self.false_starts += not gone
        if self.false_starts >= FALSE_STARTS * len(nodes(self.ray)):
            raise BackprintError(f"no node of the Ray cluster can work: {message}") from error
        what = "its node, or its process there, was lost" if gone else "its node cannot work"
        return self.outcome(sent, failure("worker lost", f"{what}: {message}", "read"), again=True, alone=False)

    def outcome(
        self,
        sent: _SentTask,
        row: dict[str, Any],
        place: str = "",
        content: dict[str, bytes] | None = None,
        log: str = "",
        again: bool = False,
        alone: bool = True,
    ) -> TaskOutcome:
        """Return a node's answer with its folder where `run` can rename it."""
        self.names.append(sent.worker)
        folder = Path(place) if place else None
        if content is not None:
            self.count += 1
            folder = write_files(content, self.work / f"travelled_{self.count}" / "sample")
        return TaskOutcome(sent.task, sent.worker, row, folder, log, again, alone)

    def done(self, outcome: TaskOutcome) -> None:
        """Remove a sample's staging folder."""
        if outcome.place is not None and outcome.place.parent.is_dir():
            remove_folder(outcome.place.parent)

    def abandon(self) -> None:
        """Let Ray end running work when this process ends, as after `kill -9`.

        To cancel tasks, or to shut down while they end, races with Ray's own threads, one of whose checks then aborts
        the process (ray 2.60: "Tried to complete task that was not pending").
        """
        self.abandoned = True

    def close(self) -> None:
        """Leave the cluster, which ends the processes of running work, with their workers and samples."""
        if self.abandoned:
            return
        self.sent.clear()
        if self.apart:
            self.sweep()
        self.ray.shutdown()

    def sweep(self) -> None:
        """Remove the run's files from nodes with their own disks; a node that does not answer keeps them."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node_ids = [node["NodeID"] for node in self.ray.nodes() if node["Alive"]]
        on = (NodeAffinitySchedulingStrategy(node, soft=False) for node in node_ids)
        tasks = [self.ray.remote(_remove_run_files).options(num_cpus=0, scheduling_strategy=place) for place in on]
        self.ray.wait([task.remote(self.run) for task in tasks], num_returns=len(tasks), timeout=20)


# ------------------------------------------------------------------ the node's side


@dataclass(slots=True)
class _NodeWorker:
    """The worker that a Ray process keeps between tasks: a Pool of one worker, and the folder it writes to."""

    run: str
    pool: Pool
    shared: bool


_place: _NodeWorker | None = None


def _on_node(setup: list[Any], task: dict[str, Any], options: dict[str, Any], content: list[Any]) -> Any:
    """Process one sample on a node: return the row and the folder, or that the sample cannot be seen here."""
    import ray

    run_setup: dict[str, Any] = ray.get(setup[0])
    if run_setup["version"] != __version__:
        raise BackprintError(
            f"{socket.gethostname()} has Backprint {__version__}, the driver {run_setup['version']}: install the same"
        )
    place = _own_worker(run_setup)
    job, arrived = Task(**task), None
    try:
        if not has_sample(job):
            if content[0] is None:
                return MISSING
            arrived = Path(tempfile.mkdtemp(dir=place.pool.work)) / job.path.name
            write_files(ray.get(content[0]), arrived)
            job = Task(**task | {"folder": os.fspath(arrived)})
        return _answer_to_send(place, _process_sample(place, job, options), run_setup["most_sent"])
    finally:
        if arrived:
            remove_folder(arrived.parent)


def has_sample(task: Task) -> bool:
    """Whether a sample is at the driver's path, and is the one that the driver means."""
    for name in MAIN:
        main = task.path / name
        with contextlib.suppress(OSError):
            if main.is_file():
                return not task.source_hash or source_hash(task.path) == task.source_hash
    return False


def _own_worker(setup: Mapping[str, Any]) -> _NodeWorker:
    """Return this process's worker, started with its first task of a run."""
    global _place
    name = setup["run"] + setup["token"]
    if _place is None or _place.run != name:
        _end_worker()
        work, shared = _place_to_work(setup)
        pool = Pool(
            setup["verb"], setup["options"], Limits(**setup["limits"]), 1, work, mark(setup["run"], os.getpid())
        )
        _place = _NodeWorker(name, pool, shared)
    return _place


def _end_worker() -> None:
    """End this process's worker."""
    global _place
    if _place is not None:
        _place.pool.close()
        _place = None


def mark(run: str, pid: int) -> str:
    """Return the mark of the processes below a Ray process."""
    return f"{run}.{pid}"


def _place_to_work(setup: Mapping[str, Any]) -> tuple[Path, bool]:
    """Return a folder below OUT if it can be seen here, else one of this machine's; and which it is."""
    base, shared = Path(setup["work"]), False
    with contextlib.suppress(OSError):
        shared = (base / TOKEN).read_text() == setup["token"]
    if not shared:
        base = _own_disk(setup["run"])
        base.mkdir(mode=0o700, exist_ok=True)
    here = f"{socket.gethostname()}-"
    for place in [place for place in base.iterdir() if place.name.startswith(here)]:
        pid = int(place.name.removeprefix(here))
        if not Path("/proc", str(pid)).exists():  # it was killed, and its processes may still run
            processes.end_marked(mark(setup["run"], pid))
            if not shared:
                remove_folder(place)
    return base / f"{here}{os.getpid()}", shared


def _own_disk(run: str) -> Path:
    """Return the folder of a run on a machine that cannot see OUT."""
    return Path(tempfile.gettempdir()) / f"backprint-{run}"


def _remove_run_files(run: str) -> None:
    """Remove a run's files from this machine's own disk."""
    base = _own_disk(run)
    for place in base.iterdir() if base.is_dir() else ():
        processes.end_marked(mark(run, int(place.name.rpartition("-")[2])))
    if base.is_dir():
        remove_folder(base)


def _process_sample(place: _NodeWorker, task: Task, options: Mapping[str, Any]) -> TaskOutcome:
    """Have the worker process a sample."""
    try:
        while not place.pool.free():
            place.pool.events(0.5)
        place.pool.submit(task, options)
        while True:
            for event in place.pool.events(0.5):
                if isinstance(event, TaskOutcome):
                    return event
    except BackprintError:
        _end_worker()
        raise


def _answer_to_send(place: _NodeWorker, outcome: TaskOutcome, most_sent: int) -> dict[str, Any]:
    """Return a TaskOutcome in the form that is sent."""
    row = outcome.row
    row["versions"] = {**(row.get("versions") or {}), "node": socket.gethostname()}
    answer: dict[str, Any] = {"row": row, "log": outcome.log, "again": outcome.again}
    folder = outcome.place
    if folder is None:
        return answer
    if place.shared:
        return answer | {"place": os.fspath(folder)}
    try:
        if folder.is_dir() and row["verdict"] != "failed":
            answer["content"] = read_files(folder, all_files(folder), most_sent)
    except SampleError as error:
        answer["row"] = failure("too large to send", str(error), "save", row.get("stages"))
    place.pool.done(outcome)
    return answer
