"""One verb on many samples: found, processed in worker processes or on a cluster, and recorded in one ledger.

This module is the face: `run_corpus`. The parent process does not load torch.

- `find`: the samples below a folder. `task`: what a worker is given. `verbs`: the table of verbs.
- `run`: one run, from samples to rows. `ledger`: the one record. `places`: results put in place by renames.
- `pool`: workers on this machine; `worker`: such a process, which forks one for each sample; `ray`: workers on a
  cluster. `apart`: a few samples without a run; `by_path`: one, asked for from Python.
- `progress`: progress and state of a run. `merge`: the runs of shards, as one.
- `split`, `parts`: samples cut into parts. `turns`: timed parts take turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.common.text import check_sequence
from backprint.graph.verdicts import GOOD
from backprint.tools.jobs.find import Shard
from backprint.tools.jobs.verbs import known_verb, resolve_verb

if TYPE_CHECKING:
    from backprint.child.limits import Limits
    from backprint.tools.jobs.pool import Executor
    from backprint.tools.jobs.run import RunPlan, Watcher


@dataclass(frozen=True, slots=True)
class CorpusRun:
    """The result of a corpus run: its folder, and how many samples have each verdict."""

    out: Path
    verdicts: Mapping[str, int]

    @property
    def good(self) -> bool:
        """Whether every sample is `bitwise`, `close` or `undifferentiable`."""
        return set(self.verdicts) <= GOOD

    def _repr_html_(self) -> str:
        from backprint.table.notebook import html_of
        from backprint.table.nouns import Report, Table

        table = Table("", {"verdict": "word", "samples": "count"}, list(self.verdicts.items()))
        return html_of(Report("", f"{sum(self.verdicts.values()):,} samples, in {self.out}", (), table))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each sample's row in the ledger: `id`, `verdict`, `cause`, `detail`, `seconds`, …."""
        from backprint.tools.jobs.ledger import NAME, Ledger

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
    ray: str | None = None,
    shard: str | None = None,
    list: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    limit: int | None = None,
    where: Sequence[str] = (),
    restart: bool = False,
    retry: Sequence[str] = (),
    watch: Watcher | None = None,
    **options: Any,
) -> CorpusRun:
    """Run a verb on every sample below `source`, each in a process of its own, as `backprint corpus run VERB` does.

    `verb` is `"backward"`, `"capture"`, `"forward"`, `"verify"`, `"power"`, `"split"`, or `"file.py:function"` of your
    own. The arguments are those of the command line, and `options` are the verb's: `run_corpus("backward", "samples",
    "out", trust=True, jobs=4)`. `ray` is `"auto"`, `"local"` or the HOST:PORT of a cluster; `shard="1/3"` takes a third
    of the samples. If it is ended at any moment, the same call continues. `watch` is called with each event of the run.
    """
    from backprint.tools.jobs.run import RunPlan, run_plan

    check_sequence("only", only)
    check_sequence("where", where)
    check_sequence("retry", retry)
    if shard is not None:
        Shard.of_text(shard)
    verb, chosen = resolve_verb(verb, options)
    known = known_verb(verb)
    if known is not None and known.check is not None:
        known.check(Path(source), chosen)
    names = Path(list) if list is not None else None
    plan = RunPlan(verb, Path(source), Path(out), chosen, names, tuple(only), limit, where=tuple(where), shard=shard)
    count, limits, elsewhere = workplace(plan, ray, jobs, (timeout, memory, disk))
    verdicts = run_plan(plan, limits, count, watcher=watch or ignore, executor=elsewhere, restart=restart, retry=retry)
    if known is not None and known.finish is not None:
        known.finish(plan.out, chosen)
    return CorpusRun(plan.out, verdicts)


def workplace(
    plan: RunPlan,
    ray: str | None,
    jobs: int | None,
    most: tuple[float, float | None, float | None],
) -> tuple[int, Limits, Callable[[Path, str], Executor] | None]:
    """Return where samples are processed: how many at a time, the limits of each (from `most`: seconds, GiB of memory,
    GiB of disk), and, for the address of a Ray cluster, the function that makes its Executor; None on this machine."""
    from backprint.child.limits import default_jobs, limits_of

    count = jobs or default_jobs()
    if ray is not None:
        from backprint.tools.jobs.ray import cluster

        limits, elsewhere = cluster(ray, plan.verb, plan.options, most, jobs)
        return count, limits, elsewhere
    return count, limits_of(count, plan.out, *most), None


def ignore(event: Any) -> None:
    """Show nothing of a run."""
