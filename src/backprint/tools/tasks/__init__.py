"""Parts of Captures set as tasks, and the judge of solutions.

This module is the face: `make`, `check` and `make_set`.

- `nouns`: Task, TaskReport, TaskSet. `program`: a captured Pair as one function of its inputs, in any dtype.
- `writing`: a task written as a folder. `text`: the texts in it. `folder`: a folder read, which runs nothing of it.
- `solver`: the process in which a solution works. `relied_on`: what it must not replace there. `solving`: that process
  as a function, seen from the judge.
- `judge`: every comparison of a solution. `usage`: calls as a model makes them.
  `edges`, `sizes`: edge values, other sizes. `timing`: its time.
- `sets`: a task for each different part of a corpus.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.common.text import check_sequence
from backprint.errors import UsageError
from backprint.graph.nouns import Capture

if TYPE_CHECKING:
    from backprint.tools.tasks.nouns import Task, TaskReport, TaskSet

__all__ = ["check", "make", "make_set"]


def make(
    target: Capture | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    part: str | None = None,
    name: str | None = None,
    allow: Sequence[str] = (),
    overwrite: bool = False,
    measure: bool = False,
    **options: Any,
) -> Task:
    """Set a part of a program as a task, and write its folder `out`, as `backprint task make` does.

    `target` is a Capture, the folder of a sample, or a TARGET such as `"model.py:make"`, which is captured with these
    `options` of `bp.capture`; with `dynamic=True` a solution must be right at other sizes too. `part` is a module's
    path, `"blocks.0.mlp"`, or a cut of `bp.split` and the number of a part, `"fold@0"`; without it the task is the
    whole. With `measure`, eager and Inductor are measured. A sample's folder is run in a process of its own.
    """
    from backprint.tools.tasks.sets import make_apart, make_here

    check_sequence("allow", allow)
    how: dict[str, Any] = {"part": part, "name": name, "overwrite": overwrite, "measure": measure}
    if isinstance(target, Capture) or not Path(target).is_dir():
        return make_here(target, Path(out), tuple(allow), options, **how)
    return make_apart(Path(target), Path(out), tuple(allow), options, how)


def check(
    folder: str | os.PathLike[str],
    solution: str | os.PathLike[str],
    *,
    timed: bool = True,
    times: float = 2.0,
    timeout: float = 60.0,
    warm_up: float = 300.0,
    memory: float | None = None,
    first: bool = False,
) -> TaskReport:
    """Judge the solution in a file: whether it is right, why not, and how fast, as `backprint task check` does.

    The file has a `Solution`: a torch.autograd.Function, or a function of the inputs. It works in a process of its own,
    which has no results of the reference; contents are drawn after it was loaded and called once, every call is
    compared, and times are those of this process's clock. Results may be off by `times` as much as eager is.

    `timeout` is the seconds of an answer, `warm_up` those of loading and the first call, `memory` the GiB that it may
    take. With `first`, the judge stops at the first fault. The process has the rights of the one who calls: judge a
    stranger's file in a container.
    """
    from backprint.tools.tasks.folder import read_task
    from backprint.tools.tasks.judge import judge
    from backprint.tools.tasks.solver import solution_of_file

    place = Path(solution)
    if not place.is_file():
        raise UsageError(f"{place}: no such file")
    load = solution_of_file(place.resolve())
    memory_bytes = 0 if memory is None else int(memory * (1 << 30))  # 0: `judge` takes a part of what is free
    limits: dict[str, Any] = dict(limit=timeout, warm_up=warm_up, memory=memory_bytes)
    return judge(read_task(folder), load, place.name, timed=timed, times=times, first=first, **limits)


def make_set(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    by: str = "module",
    held_out: float = 0.2,
    most: int | None = None,
    least: int = 2,
    allow: Sequence[str] = (),
    watch: Any = None,
) -> TaskSet:
    """Make a task of each different part of the samples below `source`, as `backprint corpus run tasks` does.

    `by` says how samples are cut, as for `bp.split`; parts are the same if both of their graphs are equal but for
    names. Parts with fewer than `least` operators are left out, and the set ends at `most` tasks. `set.json` has a row
    for each task: how often it occurs, and whether it is in the split that is held out, a share `held_out` of them. If
    it is ended at any moment, the same call continues. Each sample is run in a process of its own; one that ends it is
    left out, with the cause. `watch` is called with a line of text after each sample.
    """
    from backprint.tools.tasks.sets import write_set

    check_sequence("allow", allow)
    return write_set(Path(source), Path(out), by, held_out, most, least, tuple(allow), watch)
