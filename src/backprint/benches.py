"""`backprint bench` for Python. Nothing here imports torch; worker processes do."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.bench.cells import DIRECTIONS
from backprint.bench.compilers.table import Compiler, check_installed, compiler_named, versions_of
from backprint.bench.runs import FORMAT, META, BenchRun, read_meta, read_run
from backprint.choices import check_choice, check_sequence
from backprint.corpora import ignore, workplace
from backprint.corpus.find import absent, escape
from backprint.corpus.limits import cores
from backprint.corpus.pool import Stage
from backprint.corpus.run import Begun, RunPlan, Written, run_plan
from backprint.errors import BackprintError, UsageError
from backprint.version import __version__

if TYPE_CHECKING:
    from backprint.corpus.run import Watcher

VERB = "backprint.bench.work:bench_sample"

CACHES = "caches"
"""The folder of a run for what compilers keep."""

TAKEN = (CACHES, "samples.txt", META)

GRAPHS = 1000
"""How many times the limit of a graph's time a sample may take in all: each of its processes is watched on its own."""

PROCESSES = 512
"""How many processes a compiler may start."""

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def bench(
    sources: Paths,
    compilers: str | Sequence[str],
    out: str | os.PathLike[str],
    *,
    directions: Sequence[str] = DIRECTIONS,
    timed: bool = True,
    threads: int = 1,
    device: str | None = None,
    jobs: int = 1,
    timeout: float = 600.0,
    memory: float | None = None,
    disk: float | None = None,
    executor: str = "pool",
    ray_address: str | None = None,
    only: Sequence[str] = (),
    limit: int | None = None,
    allow: Sequence[str] = (),
    restart: bool = False,
    retry: Sequence[str] = (),
    watch: Watcher | None = None,
) -> BenchRun:
    """Run compilers on the graphs of samples, judge their results and time them, as `backprint bench` does.

    `sources` are samples, or folders of samples; `compilers` names from the table (`backprint doctor` shows them), of
    backends of `torch.compile`, or functions of your own, `"file.py:function"`, that take an fx.GraphModule and its
    inputs and return a function. Each graph of each sample gets a BenchCell in the run's folder `out`. If the run is
    ended at any moment, the same call continues.

    `directions` are `"forward"`, `"backward"` and `"step"`, the two of a Pair as one. `threads` are for eager and
    compilers alike. With several `jobs`, timed parts take turns.
    """
    chosen = [compiler_named(name) for name in dict.fromkeys([compilers] if isinstance(compilers, str) else compilers)]
    check_bench(chosen, directions, executor, threads, (only, retry, allow))
    place = Path(out)
    options = {
        "directions": [direction for direction in DIRECTIONS if direction in directions], "timed": timed,
        "threads": threads, "device": device or "cpu", "timeout": timeout, "allow": list(allow),
    }  # fmt: skip
    source, ids = common_source(sources)
    begin_meta(place, chosen, {"sources": [os.fspath(source), *ids], "options": options}, restart)
    names = place / "samples.txt" if ids else None
    if names is not None:
        names.write_text("".join(f"{id}\n" for id in ids), encoding="utf-8")
    tell = across(watch or ignore, len(chosen))
    for compiler in chosen:
        own = {**options, "compiler": compiler.name, "caches": os.fspath((place / CACHES).resolve())}
        plan = RunPlan(VERB, source, place / folder_of(compiler.name), own, names, tuple(only), limit, keeps=True)
        count, limits, elsewhere = workplace(plan, executor, ray_address, jobs, (timeout * GRAPHS, memory, disk))
        limits = replace(limits, processes=PROCESSES)
        given: Any = dict(restart=restart, retry=retry, watcher=tell(compiler.name), executor=elsewhere)
        run_plan(plan, limits, count, **given)
    note_meta(place, {"finished": time.time()})
    return read_run(place)


def across(watch: Watcher, runs: int) -> Callable[[str], Watcher]:
    """Return, for each compiler, who tells `watch` of its run, as of a part of one run over all compilers."""
    begun = []

    def tell(compiler: str) -> Watcher:
        def take(event: Begun | Written | Stage) -> None:
            match event:
                case Begun(total, done):
                    begun.append(done)
                    if done or len(begun) == 1:
                        watch(Begun(total * runs, sum(begun)))
                case Written(row):
                    watch(Written({**row, "id": f"{row['id']} by {compiler}"}))
                case Stage(id, worker, stage):
                    watch(Stage(f"{id} by {compiler}", worker, stage))

        return take

    return tell


def check_bench(
    compilers: Sequence[Compiler],
    directions: Sequence[str],
    executor: str,
    threads: int,
    sequences: Sequence[Sequence[str]],
) -> None:
    """Raise for a call that cannot be right, or a compiler that is not installed."""
    check_choice("executor", executor)
    for name, value in zip(("only", "retry", "allow"), sequences, strict=True):
        check_sequence(name, value)
    check_sequence("directions", directions)
    if unknown := [direction for direction in directions if direction not in DIRECTIONS]:
        raise UsageError(f"directions={unknown[0]!r} is not one of {', '.join(map(repr, DIRECTIONS))}")
    if not compilers or not directions:
        raise UsageError("bench needs a compiler and a direction: write compilers=['inductor']")
    if threads < 1:
        raise UsageError(f"threads={threads!r} must be 1 or more")
    for compiler in compilers:
        check_installed(compiler)


# ------------------------------------------------------------------ what is run


def common_source(sources: Paths) -> tuple[Path, list[str]]:
    """Return the folder that all sources are below, and the ids of the sources there; of one source, no ids."""
    places = [Path(sources)] if isinstance(sources, (str, os.PathLike)) else [Path(each) for each in sources]
    if wrong := absent(places) if places else "bench needs a sample, or a folder of samples":
        raise UsageError(wrong)
    if len(places) == 1:
        return places[0].resolve(), []
    resolved = list(dict.fromkeys(place.resolve() for place in places))
    common = Path(os.path.commonpath([place.parent for place in resolved]))
    return common, [escape(place.relative_to(common).as_posix()) for place in resolved]


def folder_of(compiler: str) -> str:
    """Return the name of a compiler's folder in a run."""
    plain = re.sub(r"[^A-Za-z0-9_.+-]", "_", compiler.rpartition("/")[2])
    digest = hashlib.sha256(compiler.encode()).hexdigest()[:8]
    return plain if plain == compiler and plain not in TAKEN else f"{plain}.{digest}"


# ------------------------------------------------------------------ what is kept of the run as a whole


def begin_meta(place: Path, compilers: Sequence[Compiler], facts: Mapping[str, Any], restart: bool) -> None:
    """Write `bench.json`, or check that a resumed run's is of the same version, sources and options."""
    rows = [{"name": each.name, "folder": folder_of(each.name), "versions": versions_of(each)} for each in compilers]
    if not (place / META).exists():
        if place.is_dir() and any(place.iterdir()):
            raise UsageError(f"{place} exists, and is not the folder of a bench run: choose another")
        place.mkdir(parents=True, exist_ok=True)
    elif not restart:
        known = read_meta(place)
        for name in ("sources", "options"):
            if known[name] != facts[name]:
                both = f"{known[name]} there, {facts[name]} now"
                raise UsageError(f"{place} has other {name}: {both}; choose another folder, or pass --restart")
        rows = [*(row for row in known["compilers"] if row["name"] not in {new["name"] for new in rows}), *rows]
        note_meta(place, {"compilers": rows, "finished": None})
        return
    new = {"format": FORMAT, "backprint": __version__, "started": time.time(), "finished": None, "compilers": rows}
    peaks = measured_peaks(facts["options"]["threads"], facts["options"]["device"])
    put_meta(place, {**new, **facts, "torch": peaks.pop("torch"), "machine": machine(), "peaks": peaks})


def note_meta(place: Path, facts: Mapping[str, Any]) -> None:
    """Change facts of `bench.json`."""
    put_meta(place, {**read_meta(place), **facts})


def put_meta(place: Path, facts: Mapping[str, Any]) -> None:
    """Write `bench.json` completely or not at all."""
    partial = place / f".{META}.{os.getpid()}"
    partial.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, place / META)


def machine() -> dict[str, Any]:
    """Return what times depend on here."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": cores(), "python": platform.python_version(), "system": platform.platform()}


def measured_peaks(threads: int, device: str) -> dict[str, Any]:
    """Measure a matmul and a copy in a process of their own; return them with the version of torch."""
    command = [sys.executable, "-P", "-m", "backprint.bench.peaks", str(threads), device]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BackprintError(f"the machine's peaks could not be measured: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
