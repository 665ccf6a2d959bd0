"""Samples on a Ray cluster: a map of the same function over the same rows (an optional extra; tried with ray 2.60).

A Ray task is one sample. On its node a worker of the pool, which the process of the task keeps for the next one, forks,
limits and watches the sample's process, so limits, isolation and causes are those of one machine. The ledger stays with
the driver. All nodes see SRC and OUT at the same paths, and have the driver's version of Backprint. A sample whose node
is lost is tried once more. An error of a node itself ends the run: it would be that of every sample.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backprint.child.limits import Limits
from backprint.common.memory import GIB
from backprint.errors import BackprintError, UsageError
from backprint.tools.jobs.pool import Event, Pool, TaskOutcome, remove_folder
from backprint.tools.jobs.task import Task, failure
from backprint.version import __version__

# ------------------------------------------------------------------ the cluster


def cluster(
    address: str,
    verb: str,
    options: Mapping[str, Any],
    most: tuple[float, float | None, float | None],
    jobs: int | None = None,
) -> tuple[Limits, Callable[[Path, str], Cluster]]:
    """Return a cluster's limits for each sample (`most`: seconds, GiB of memory, GiB of disk), and its Executor for
    `run_plan`."""
    with _ends_at_once():
        ray = connect(address)
        limits = limits_on(ray, *most)
    return limits, lambda work, run: Cluster(ray, verb, options, limits, work, run, jobs)


def connect(address: str) -> Any:
    """Connect Ray to the cluster at HOST:PORT, to the nearest (`auto`), or to a new one here (`local`), and return it;
    UsageError if it is not installed or finds none. Our handlers of signals stay."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_TQDM_PATCH_PRINT", "0")  # `print` stays Python's own
    try:
        import ray
    except ImportError as error:
        problem = "--ray needs ray, which is not installed: pip install '.[ray]' in Backprint's folder"
        raise UsageError(problem) from error
    if ray.is_initialized():
        return ray
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    more = {"include_dashboard": False} if address == "local" else {}
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdigit() and "/" not in host:  # Ray itself takes minutes to give up
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address, log_to_driver=False, logging_level="ERROR", **more)
    except (OSError, RuntimeError, ValueError) as error:
        where = "near (and RAY_ADDRESS names none)" if address == "auto" else f"at {address}"
        hint = "start one with `ray start --head`, name it with --ray HOST:PORT, or use --ray local"
        raise UsageError(f"no Ray cluster {where}: {error}; {hint}") from error
    with contextlib.suppress(ValueError):  # only the main thread may
        for number, handler in handlers.items():
            signal.signal(number, handler)  # Ray has its own, which would end the run out of order
    return ray


@contextlib.contextmanager
def _ends_at_once() -> Iterator[None]:
    """Let a signal end the process immediately, while there is nothing to keep: what a handler raises while Ray
    connects can leave Ray's threads waiting for each other."""

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


def nodes(ray: Any) -> list[Mapping[str, float]]:
    """Return the resources of the living nodes that accept tasks; UsageError if there are none."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    if not resources:
        raise UsageError("the Ray cluster has no node with a CPU for tasks: start one with `ray start --num-cpus N`")
    return resources


def limits_on(ray: Any, timeout: float = 600.0, memory: float | None = None, disk: float | None = None) -> Limits:
    """Return the limits of each sample, from GiB; the default of memory is a core's part of 90% of the node with the
    least for each core, as `limits_of` takes 90% of this machine's. Refuse more than the largest node has. A node that
    does not say its memory counts as one of 4 GiB."""
    memory_per_core = [node.get("memory", 4 * GIB) / node["CPU"] for node in nodes(ray)]
    largest_node = max(node.get("memory", 4 * GIB) for node in nodes(ray))
    memory_limit = int(min(memory_per_core) * 0.9) if memory is None else int(memory * GIB)
    if memory_limit > largest_node:
        raise UsageError(f"--memory {memory:g}: the largest node of the Ray cluster has {largest_node / GIB:.1f} GiB")
    return Limits(timeout, memory_limit, 16 * GIB if disk is None else int(disk * GIB))


# ------------------------------------------------------------------ the driver's side


class Cluster:
    """An Executor: at most `jobs` samples are sent at once, by default a few more than the cluster has CPUs."""

    shares = 1
    """None runs alone, so none has more memory than its part."""

    def __init__(
        self,
        ray: Any,
        verb: str,
        options: Mapping[str, Any],
        limits: Limits,
        work: Path,
        run: str,
        jobs: int | None = None,
    ) -> None:
        self.ray, self.jobs = ray, jobs
        self.sent: dict[Any, Task] = {}
        """The samples that have been sent, by Ray's reference to their result."""
        work.mkdir(parents=True, exist_ok=True)
        setup = {"verb": verb, "options": dict(options), "limits": asdict(limits), "run": run, "version": __version__}
        self.setup = ray.put(setup | {"work": os.fspath(work.resolve())})
        # No retries by Ray: the run decides which samples are tried again.
        self.remote = ray.remote(_process_sample).options(
            num_cpus=1, memory=limits.memory, max_retries=0, scheduling_strategy="SPREAD"
        )

    def free(self) -> int:
        """Return how many more samples may be sent. Nodes come and go, so the cluster is queried."""
        cpus = sum(math.floor(node["CPU"]) for node in nodes(self.ray))
        return (self.jobs or cpus + min(cpus, 8)) - len(self.sent)

    def submit(self, task: Task, options: Mapping[str, Any], alone: bool = False) -> str:
        """Send a sample to the cluster. None runs alone: other work may be on its node."""
        self.sent[self.remote.remote(self.setup, asdict(task), dict(options))] = task
        return "ray"

    def events(self, seconds: float) -> list[Event]:
        """Return the samples that have ended."""
        ready, _ = self.ray.wait(list(self.sent), timeout=seconds) if self.sent else ([], [])
        return [self.outcome(self.sent.pop(reference), reference) for reference in ready]

    def outcome(self, task: Task, reference: Any) -> TaskOutcome:
        """Return the outcome of a sample that has ended; raise if its node cannot work."""
        try:
            worker, row, place, log, again = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:  # what `_process_sample` raised: no sample can run there
            reason = str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
            raise BackprintError(f"no node of the Ray cluster can work: {reason}") from error
        except self.ray.exceptions.RayError as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            row = failure("worker lost", f"its node, or its process there, was lost: {reason}", stage="read")
            return TaskOutcome(task, "ray", row, again=True, alone=False)
        return TaskOutcome(task, worker, row, Path(place), log, again)

    def done(self, outcome: TaskOutcome) -> None:
        """Remove a sample's staging folder."""
        if outcome.place is not None and outcome.place.parent.is_dir():
            remove_folder(outcome.place.parent)

    def close(self) -> None:
        """Leave the cluster. Work under way is left to the end of this process, with which Ray ends it: to shut down
        meanwhile races with Ray's own threads."""
        if not self.sent:
            self.ray.shutdown()


# ------------------------------------------------------------------ the node's side

_pools: dict[str, Pool] = {}
"""The worker that this process keeps between tasks, by the folder of its run."""


def _process_sample(setup: Mapping[str, Any], task: dict[str, Any], options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Process one sample on a node: return the worker, the row, the folder, the log, and whether another try is fair.
    Raise BackprintError if no sample can run here: another version, a folder that is not seen, no worker starts."""
    host, work = socket.gethostname(), Path(setup["work"])
    if setup["version"] != __version__:
        raise BackprintError(f"{host} has Backprint {__version__}, the driver {setup['version']}: install the same")
    if unseen := [place for place in (task["folder"], os.fspath(work)) if not os.path.isdir(place)]:
        raise BackprintError(
            f"{host} does not see {unseen[0]}: put SRC and OUT where all nodes see them, or run a --shard on each"
        )
    name = f"{host}-{os.getpid()}"
    pool = _pools.get(setup["work"])
    if pool is None:
        for old in _pools.values():  # of an earlier run
            old.close()
        _pools.clear()
        limits = Limits(**setup["limits"])
        pool = Pool(setup["verb"], setup["options"], limits, jobs=1, work=work / name, run=f"{setup['run']}.{name}")
        _pools[setup["work"]] = pool
    try:
        while not pool.free():
            pool.events(0.5)
        pool.submit(Task(**task), options)
        while True:
            for event in pool.events(0.5):
                if isinstance(event, TaskOutcome):
                    return f"ray {name}", event.row, os.fspath(event.place or ""), event.log, event.again
    except BackprintError:
        _pools.pop(setup["work"]).close()
        raise
