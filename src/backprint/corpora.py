"""`backprint corpus` for Python. Nothing here imports torch; worker processes do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from backprint.choices import check_choice, check_sequence
from backprint.errors import UsageError
from backprint.graph.verdicts import GOOD

if TYPE_CHECKING:
    from backprint.corpus.dedup import Dedup
    from backprint.corpus.limits import Limits
    from backprint.corpus.pool import Executor
    from backprint.corpus.run import RunPlan, Watcher
    from backprint.corpus.shared import SharedParts
    from backprint.extracting.nouns import Kernel
    from backprint.extracting.programs.dedup import KernelGroups


COMPARED = ("graph", "part")
"""What `dedup` compares."""


@dataclass(frozen=True, slots=True)
class CorpusRun:
    """The result of a corpus run: its folder, and how many samples have each verdict."""

    out: Path
    verdicts: Mapping[str, int]

    @property
    def good(self) -> bool:
        """Whether every sample is `bitwise`, `close` or `undifferentiable`."""
        return set(self.verdicts) <= GOOD

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each sample's row in the ledger: `id`, `verdict`, `cause`, `detail`, `seconds`, …."""
        from backprint.corpus.ledger import NAME, Ledger

        with Ledger.reading(self.out / NAME) as ledger:
            yield from ledger.rows(order="id")


def run_corpus(
    verb: str,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    timeout: float = 600.0,
    memory: float | None = None,
    disk: float | None = None,
    executor: str = "pool",
    ray_address: str | None = None,
    list: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    limit: int | None = None,
    restart: bool = False,
    retry: Sequence[str] = (),
    watch: Watcher | None = None,
    **options: Any,
) -> CorpusRun:
    """Run a verb on every sample below `source`, each in a process of its own, as `backprint corpus VERB` does.

    `verb` is `"backward"`, `"capture"`, `"forward"`, `"verify"`, `"power"`, `"split"`, or `"file.py:function"` of your
    own. The arguments are those of the command line, and `options` are the verb's: `run_corpus("backward", "samples",
    "out", trust=True, jobs=4)`. If it is ended at any moment, the same call continues. `watch` is called with each
    event of the run.
    """
    from backprint.corpus.run import RunPlan, run_plan
    from backprint.corpus.verbs import VERBS, kept_options

    check_choice("executor", executor)
    check_sequence("only", only)
    check_sequence("retry", retry)
    verb, chosen = kept_options(verb, options)
    known = VERBS.get(verb)
    if known is not None and known.check is not None:
        known.check(Path(source), chosen)
    plan = RunPlan(verb, Path(source), Path(out), chosen, Path(list) if list is not None else None, tuple(only), limit)
    count, limits, elsewhere = workplace(plan, executor, ray_address, jobs, (timeout, memory, disk))
    going_on = partial(run_plan, plan, limits, count, watcher=watch or ignore, executor=elsewhere)
    verdicts = going_on(restart=restart, retry=retry)
    if known is not None and known.finish is not None and known.finish(plan.out, chosen):
        verdicts = going_on()
        known.finish(plan.out, chosen)
    return CorpusRun(plan.out, verdicts)


def workplace(
    plan: RunPlan,
    executor: str,
    ray_address: str | None,
    jobs: int | None,
    most: tuple[float, float | None, float | None],
) -> tuple[int, Limits, Callable[[Path, str], Executor] | None]:
    """Return where samples are processed: how many at a time, the limits of each (from `most`), and the cluster if
    there is one."""
    from backprint.corpus.limits import default_jobs, limits_of

    count = jobs or default_jobs()
    if executor == "ray":
        from backprint.corpus.ray import cluster

        limits, elsewhere = cluster(ray_address, plan.verb, plan.options, most, jobs)
        return count, limits, elsewhere
    if ray_address:
        raise UsageError("--ray-address is for --executor ray: pass both")
    return count, limits_of(count, plan.out, *most), None


def ignore(event: Any) -> None:
    """Show nothing of a run."""


@overload
def dedup(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    by: Literal["graph"] = "graph",
    ignore_sizes: bool = False,
    files: str = "link",
) -> Dedup: ...


@overload
def dedup(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    by: Literal["part"],
    ignore_sizes: bool = False,
    **run: Any,
) -> SharedParts: ...


@overload
def dedup(source: Iterable[Kernel], *, ignore_sizes: bool = False) -> KernelGroups: ...


def dedup(
    source: str | os.PathLike[str] | Iterable[Kernel],
    out: str | os.PathLike[str] | None = None,
    *,
    by: str = "graph",
    ignore_sizes: bool = False,
    files: str = "link",
    **run: Any,
) -> Dedup | SharedParts | KernelGroups:
    """Keep one of each group of samples that are the same program, and list the others, as `backprint corpus dedup`
    does; or group kernels, as `backprint kernels dedup` does.

    `source` is the folder of a corpus run, or any folder of samples. With `ignore_sizes`, graphs that differ only in
    sizes are the same. `files` says how the kept samples are written to `out`: as hard links (`"link"`), copies
    (`"copy"`), or not (`"none"`). `kept.txt` and `duplicates.json` are always written.

    With `by="part"` nothing is kept: SharedParts has each different layer, and what stands between layers, once, with
    its hash, and how often and in which samples it is there. It is a run, with the options of `run_corpus`, such as
    `jobs`; `out/parts.json` is always written.

    Or `source` is an iterable of Kernels, such as `bp.kernels(capture)` or several of them in a list, without `out` and
    `files`: `bp.dedup(kernels)` returns KernelGroups. Iterating over them yields a group for each program; with
    `ignore_sizes`, programs that differ in sizes and constants alone are one. `.representative(group)` and
    `.members(group)` return its kernels, `.totals()` counts.
    """
    check_compared(by)
    if not isinstance(source, str | os.PathLike):
        if out is not None or files != "link" or by != "graph":
            raise UsageError("dedup of kernels returns groups and writes nothing: out and files are for samples")
        return dedup_of_kernels(source, "structure" if ignore_sizes else "program")
    from backprint.corpus.dedup import dedup as thinned_out

    if out is None:
        raise UsageError(f"dedup of the samples in {os.fspath(source)!r} needs out=, a new folder for what is kept")
    check_choice("files", files)
    if by == "part":
        if files != "link":
            raise UsageError(f"files={files!r} is for by='graph': with by='part' no samples are kept")
        return parts_of_corpus(Path(source), Path(out), ignore_sizes, run)
    if run:
        raise UsageError(f"{min(run)}= is for by='part': samples are compared one after the other, in this process")
    return thinned_out(Path(source), Path(out), "shape" if ignore_sizes else "exact", files)


def check_compared(by: object) -> None:
    """Raise for a word that is none of those that `dedup` compares by."""
    if by not in COMPARED:
        raise UsageError(f"by={by!r} is not one of {', '.join(map(repr, COMPARED))}")


def parts_of_corpus(source: Path, out: Path, ignore_sizes: bool, run: Mapping[str, Any]) -> SharedParts:
    """Note the parts of every sample in a run, and return them together."""
    from backprint.corpus.shared import all_shared_parts

    run_corpus("parts", source, out, sizes=not ignore_sizes, **run)
    return all_shared_parts(source, out, "shape" if ignore_sizes else "exact")


def dedup_of_kernels(kernels: Iterable[Kernel], by: str) -> KernelGroups:
    """Return the groups of kernels, which may be in several iterables."""
    from backprint.extracting.nouns import Kernel
    from backprint.extracting.programs.dedup import grouped_kernels

    if isinstance(kernels, Kernel) or not isinstance(kernels, Iterable):
        raise UsageError(f"dedup of {type(kernels).__name__}: pass the path of a folder, or a list of Kernels")

    return grouped_kernels(with_places(kernels_in(kernels)), by)


def kernels_in(found: Iterable[object]) -> Iterator[Kernel]:
    """Yield the kernels in iterables of them, one in another."""
    from backprint.extracting.nouns import Kernel

    for one in found:
        if isinstance(one, Kernel):
            yield one
        elif isinstance(one, Iterable) and not isinstance(one, str | bytes):
            yield from kernels_in(one)
        else:
            raise UsageError(f"dedup of kernels: found {type(one).__name__} {str(one)[:40]!r}, which is no Kernel")


def with_places(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Give each kernel that is of no file its number for a place: two of them are two uses."""
    return (each if each.place else replace(each, place=f"[{number}]") for number, each in enumerate(kernels))
