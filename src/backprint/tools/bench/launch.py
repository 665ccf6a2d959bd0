"""Begin a bench run, or go on with one: a corpus run for each compiler, and `bench.json` for all of them.

A corpus run (`tools/jobs`) calls a verb, here `trial.bench_sample`, on each sample below a folder in worker processes,
and keeps a row for each in a ledger. A Watcher is a function that is called with its events: `Begun` (how many samples
there are, and how many were done before), `Written` (a sample's row), `Stage` (what a worker is at).

Nothing here imports torch, but the list of torch.compile's backends for a name that no row has; worker processes do.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.child.limits import cores
from backprint.common.text import check_sequence
from backprint.common.words import BENCH_DIRECTIONS
from backprint.errors import UsageError
from backprint.tools.bench.compilers.table import (
    Compiler,
    absolute_compiler,
    check_installed,
    compiler_named,
    versions_of,
)
from backprint.tools.bench.runs import FORMAT, META, BenchRun, read_meta, read_run
from backprint.tools.jobs import workplace
from backprint.tools.jobs.find import LISTED, common_source
from backprint.tools.jobs.places import create_writable
from backprint.tools.jobs.pool import Stage
from backprint.tools.jobs.run import Begun, RunPlan, Written, run_plan
from backprint.tools.jobs.verbs import gpu_option
from backprint.version import __version__

if TYPE_CHECKING:
    from backprint.tools.jobs.run import Watcher

VERB = "backprint.tools.bench.trial:bench_sample"

CACHES = "caches"
"""The folder of a run for what compilers keep."""

TAKEN = (CACHES, LISTED, META)
"""Names in a run's folder that no compiler's folder may have."""

GRAPHS = 1000
"""How many times the limit of a graph's time a sample may take in all: each of its processes is watched on its own."""

PROCESSES = 512
"""How many processes a compiler may start."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The plan of a run: compilers, directions and samples. Of the samples below `sources`, those that match a pattern
    of `only` are taken, of these the first `limit`; `allow` names custom operators that they may call. `timeout` are
    the seconds of one graph."""

    sources: tuple[Path, ...]
    compilers: Sequence[str]
    out: Path
    directions: Sequence[str]
    timed: bool
    threads: int
    device: str | None
    timeout: float
    only: Sequence[str]
    limit: int | None
    allow: Sequence[str]
    derivative: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The options that a resumed run must share."""
        return {
            "directions": [direction for direction in BENCH_DIRECTIONS if direction in self.directions],
            "timed": self.timed,
            "threads": self.threads,
            "device": self.device,
            "timeout": self.timeout,
            "allow": list(self.allow),
            "derivative": self.derivative,
        }


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a run is worked on: by how many workers, here or on a cluster, with how much memory and disk each."""

    ray: str | None
    jobs: int
    most: tuple[float | None, float | None]


def launch(plan: BenchPlan, place: Workplace, *, restart: bool, retry: Sequence[str], watch: Watcher) -> BenchRun:
    """Do a plan, one compiler after the other, or go on with it; return all that the run knows then. With `restart`,
    what is there is done again; `retry` are verdicts and causes of finished samples that are done again. Raise
    UsageError for a plan that cannot be right, or a folder with another run."""
    compilers = [compiler_named(name) for name in dict.fromkeys(plan.compilers)]
    _check_bench(plan, compilers, retry)
    source, ids = common_source(plan.sources, "bench")
    names = plan.out / LISTED if ids else None
    with create_writable(plan.out):
        _begin_meta(plan, compilers, [os.fspath(source), *ids], restart, place.jobs)
        if names is not None:
            names.write_text("".join(f"{id}\n" for id in ids), encoding="utf-8")
    watcher_of, gpus = across(watch, len(compilers)), gpu_option()
    for compiler in compilers:
        options = {
            **plan.options,
            "compiler": compiler.name,
            "asked": absolute_compiler(compiler.name),  # the name by which workers look it up
            **gpus,
            "caches": os.fspath((plan.out / CACHES).resolve()),
        }
        folder = plan.out / folder_of(compiler.name)
        # `keeps`: the cells of a sample stay where its last graph ended the process.
        run = RunPlan(VERB, source, folder, options, names, tuple(plan.only), plan.limit, keeps=True)
        limits_of_sample = (plan.timeout * GRAPHS, *place.most)  # seconds, GiB of memory, GiB of disk
        count, limits, elsewhere = workplace(run, place.ray, place.jobs, limits_of_sample)
        run_plan(
            run,
            replace(limits, processes=PROCESSES),
            count,
            restart=restart,
            retry=retry,
            watcher=watcher_of(compiler.name),
            executor=elsewhere,  # None: worker processes on this machine
        )
    _note_meta(plan.out, {"finished": time.time()})
    return read_run(plan.out)


def across(watch: Watcher, runs: int) -> Callable[[str], Watcher]:
    """Return a function from the name of a compiler to the Watcher of its corpus run. It passes events on to `watch` as
    those of one run over all compilers, with `runs` times as many samples, whose ids are `SAMPLE by COMPILER`."""
    done_counts = []  # of each corpus run that has begun, how many samples were done before

    def watcher_of(compiler: str) -> Watcher:
        """Return the Watcher of the corpus run of one compiler."""

        def take(event: Begun | Written | Stage) -> None:
            match event:
                case Begun(total, done):
                    done_counts.append(done)
                    if done or len(done_counts) == 1:  # a later one with nothing done changes no number
                        watch(Begun(total * runs, sum(done_counts)))
                case Written(row):
                    watch(Written({**row, "id": f"{row['id']} by {compiler}"}))
                case Stage(id, worker, stage):
                    watch(Stage(f"{id} by {compiler}", worker, stage))

        return take

    return watcher_of


def _check_bench(plan: BenchPlan, compilers: Sequence[Compiler], retry: Sequence[str]) -> None:
    """Raise for a call that cannot be right, or a compiler that is not installed."""
    sequences = {"only": plan.only, "retry": retry, "allow": plan.allow, "directions": plan.directions}
    for name, value in sequences.items():
        check_sequence(name, value)
    if unknown := [direction for direction in plan.directions if direction not in BENCH_DIRECTIONS]:
        raise UsageError(f"directions={unknown[0]!r} is not one of {', '.join(map(repr, BENCH_DIRECTIONS))}")
    if not compilers or not plan.directions:
        raise UsageError("bench needs a compiler and a direction: write compilers=['inductor']")
    *_, step = BENCH_DIRECTIONS
    if plan.derivative and step not in plan.directions:
        raise UsageError(
            "derivative=True (--derivative) is about a forward and its backward: directions must have "
            f"{step!r} (--direction both)"
        )
    if plan.threads < 1:
        raise UsageError(f"threads={plan.threads!r} must be 1 or more")
    for compiler in compilers:
        check_installed(compiler)


# ------------------------------------------------------------------ what is run


def folder_of(compiler: str) -> str:
    """Return the name of a compiler's folder in a run: its name, or, where that has other characters, a path, or is
    TAKEN, its plain part with a digest of the whole."""
    plain = re.sub(r"[^A-Za-z0-9_.+-]", "_", compiler.rpartition("/")[2])
    digest = hashlib.sha256(compiler.encode()).hexdigest()[:8]
    return plain if plain == compiler and plain not in TAKEN else f"{plain}.{digest}"


# ------------------------------------------------------------------ what is kept of the run as a whole


def _begin_meta(plan: BenchPlan, compilers: Sequence[Compiler], sources: list[str], restart: bool, jobs: int) -> None:
    """Write `bench.json`; for a resumed run, add its compilers to those of the file that is there, and keep the larger
    number of jobs, which is no option: it may be another one. Raise UsageError if that file has other sources, options
    or versions of a compiler, or if the folder has other content."""
    place, facts = plan.out, {"sources": sources, "options": plan.options}
    rows = [
        {"name": compiler.name, "folder": folder_of(compiler.name), "versions": versions_of(compiler)}
        for compiler in compilers
    ]
    if (place / META).exists() and not restart:
        known = read_meta(place)
        for name in facts:
            if known[name] != facts[name]:
                both = f"{known[name]} there, {facts[name]} now"
                raise UsageError(f"{place} has other {name}: {both}; choose another folder, or pass --restart")
        for row in rows:
            _refuse_other_versions(place, row, known["compilers"])
        old = [row for row in known["compilers"] if row["name"] not in {new["name"] for new in rows}]
        most_jobs = max(jobs, known.get("jobs", 1))
        _note_meta(place, {"compilers": [*old, *rows], "jobs": most_jobs, "finished": None})
        return
    if not (place / META).exists() and place.is_dir() and any(place.iterdir()):
        raise UsageError(f"{place} exists, and is not the folder of a bench run: choose another")
    place.mkdir(parents=True, exist_ok=True)
    new = {"format": FORMAT, "backprint": __version__, "started": time.time(), "finished": None, "compilers": rows}
    _put_meta(place, {**new, "jobs": jobs, **facts, "torch": importlib.metadata.version("torch"), "machine": machine()})


def _refuse_other_versions(place: Path, row: Mapping[str, Any], earlier_rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to go on with a compiler that is another one now: an edited file, or another version of a package."""
    for earlier in earlier_rows:
        versions_then = earlier.get("versions") or {}
        # A version that was not kept then is taken for the same.
        changed = [name for name, version in row["versions"].items() if versions_then.get(name, version) != version]
        if earlier["name"] == row["name"] and changed:
            text = ", ".join(f"{name} {versions_then[name]} there, {row['versions'][name]} now" for name in changed)
            raise UsageError(
                f"{place} has results of another {row['name']}: {text}; choose another folder, or --restart"
            )


def _note_meta(place: Path, facts: Mapping[str, Any]) -> None:
    """Change facts of `bench.json`."""
    _put_meta(place, {**read_meta(place), **facts})


def _put_meta(place: Path, facts: Mapping[str, Any]) -> None:
    """Write `bench.json` completely or not at all."""
    partial = place / f".{META}.{os.getpid()}"
    partial.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, place / META)


def machine() -> dict[str, Any]:
    """Return what times depend on here: the processor's model, its cores, Python and the system."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": cores(), "python": platform.python_version(), "system": platform.platform()}
