"""Compilers on graphs: correctness, speed, and scores.

This module is the face: `run`, `minify` and `minify_derivative`. A compiler may be wrong, and is no cheat.

- `launch`: a run, or the rest of one. `runs`, `cells`: its folder and its plain results.
- `trial`: one compiler on one sample, in a process of their own. `calls`: what was compiled, called on contents.
- `solved`: a solution, which is a forward and a backward of the user's own; the judge of tasks judges it.
- `widened`: whether a compiled backward is the derivative of the compiled forward, in float64; `compiled`: its
  gradients, in the place of the captured ones. `differentiated`: whether a compiler that differentiates a forward by
  itself does so as autograd. `gradients`: a forward and its gradients, as both processes compute them.
- `judge`: eager's results, and which results are right. `resized`: other sizes. `timing`: time in turns with eager.
- `compilers/`: the table of compilers.
- `scored`: cells as GraphNet scores them. `reports`, `compare`: one run, and several.
- `cuts`, `shrinking`, `minify_sample`: a graph that a compiler fails on, made as small as possible. `wrong_backward`:
  the call whose backward is not the derivative.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backprint.common.words import BENCH_DIRECTIONS, BenchDirectionWord

if TYPE_CHECKING:
    from backprint.tools.bench.minify_sample import MinifiedSample
    from backprint.tools.bench.runs import BenchRun
    from backprint.tools.jobs.run import Watcher

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def run(
    sources: Paths,
    compilers: str | Sequence[str],
    out: str | os.PathLike[str],
    *,
    directions: Sequence[BenchDirectionWord] = BENCH_DIRECTIONS,
    timed: bool = True,
    derivative: bool = False,
    threads: int = 1,
    device: str | None = None,
    jobs: int = 1,
    timeout: float = 600.0,
    memory: float | None = None,
    disk: float | None = None,
    ray: str | None = None,
    only: Sequence[str] = (),
    limit: int | None = None,
    allow: Sequence[str] = (),
    restart: bool = False,
    retry: Sequence[str] = (),
    watch: Watcher | None = None,
) -> BenchRun:
    """Run compilers on the graphs of samples, judge their results and time them, as `backprint bench run` does.

    `sources` are samples, or folders of samples; `compilers` names from the table (the docs list them), of
    backends of `torch.compile`, or functions of your own, `"file.py:function"`, that take an fx.GraphModule and its
    inputs and return a function. Each graph of each sample gets a BenchCell in the run's folder `out`. If the run is
    ended at any moment, the same call continues.

    `directions` are `"forward"`, `"backward"` and `"step"`, the two of a Pair as one. With `derivative`, the cell of
    each step says whether the compiled backward is the derivative of the compiled forward, both in float64. `threads`
    are for eager and compilers alike. With several `jobs`, timed parts take turns. With a `device`, samples are
    captured anew there. A graph has `timeout` seconds, and a sample `memory` and `disk` in GiB; `ray` is the address of
    a Ray cluster to work on.

    Of the samples, those whose id matches a pattern of `only` are taken, of these the first `limit`; `allow` names
    custom operators that they may call. `restart` begins anew, and `retry` has verdicts and causes of finished samples
    that are done again. `watch` is called with the events of the run (`launch`).
    """
    from backprint.tools.bench.launch import BenchPlan, Workplace, launch
    from backprint.tools.jobs import ignore

    names = (compilers,) if isinstance(compilers, str) else tuple(compilers)
    places = (sources,) if isinstance(sources, (str, os.PathLike)) else tuple(sources)
    plan = BenchPlan(
        tuple(map(Path, places)),
        names,
        Path(out),
        directions,
        timed,
        threads,
        device,
        timeout,
        only,
        limit,
        allow,
        derivative,
    )
    place = Workplace(ray, jobs, (memory, disk))
    return launch(plan, place, restart=restart, retry=retry, watch=watch or ignore)


def minify_derivative(
    sample: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    graph: str | None = None,
    timeout: float = 3600.0,
    memory: float | None = None,
    allow: Sequence[str] = (),
    overwrite: bool = False,
) -> MinifiedSample:
    """Shrink the first Pair of a sample whose backward is not the derivative of its forward, and write it as a sample
    and as one Python file.

    The result is the smallest part whose backward still is not, with the source lines and the autograd.Function that
    it has in the whole Pair.
    `out` is the sample's folder, and the file is beside it: `out.py`. `graph` names another backward,
    `"pair_1 backward"`. The sample's graphs run in a process of their own, for `timeout` seconds at most.
    """
    from backprint.common.text import check_sequence
    from backprint.tools.bench.minify_sample import minify_sample

    check_sequence("allow", allow)
    return minify_sample(
        sample,
        compiler=None,
        out=out,
        graph=graph,
        timeout=timeout,
        memory=memory,
        allow=tuple(allow),
        overwrite=overwrite,
    )


def minify(
    sample: str | os.PathLike[str],
    compiler: str,
    out: str | os.PathLike[str],
    *,
    graph: str | None = None,
    tests: int = 100,
    limit: float = 60.0,
    timeout: float = 3600.0,
    memory: float | None = None,
    allow: Sequence[str] = (),
    overwrite: bool = False,
) -> MinifiedSample:
    """Shrink the first graph of a sample on which a compiler fails, and write it as a sample and as one Python file.

    `out` is the sample's folder, and the file is beside it: `out.py`. `graph` names another graph, `"pair_0 backward"`;
    `tests` is how many smaller graphs are tried at most. `limit` are the seconds of a test until one has failed, whose
    own time then sets the limit; `timeout` are those of the search. Each test runs in a process of its own.
    """
    from backprint.common.text import check_sequence
    from backprint.tools.bench.minify_sample import minify_sample

    check_sequence("allow", allow)
    return minify_sample(
        sample,
        compiler,
        out,
        graph=graph,
        tests=tests,
        limit=limit,
        timeout=timeout,
        memory=memory,
        allow=tuple(allow),
        overwrite=overwrite,
    )
