"""Regions: the backward of one block of an eager program, while the program runs untouched.

This module is the face: `region` and `compare`.

- `nouns`: a pass, its nodes and its edges. `watch`: the nodes and operators that are made inside open blocks;
  `records`: what is kept of them; `names`: what they are called; `origins`: where their NaN and Inf come from.
- `follow`: one backward call, followed over the nodes of a region. `build`: a pass of it. `context`: the context
  manager.
- `dumps`: passes on disk. `comparing`: two dumps. `pictures`: a pass as a picture and a page.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from backprint.common.tried import warn_with_this_torch

if TYPE_CHECKING:
    from backprint.common.words import GradientsWord
    from backprint.tools.regions.comparing import DumpComparison
    from backprint.tools.regions.context import Region


def region(
    path: str | os.PathLike[str] | None = None,
    *,
    gradients: GradientsWord = "none",
    stacks: bool = True,
    name: str | None = None,
    every: int = 1,
    limit: int | None = None,
    only_bad: bool = False,
    derivative: bool = False,
) -> Region:
    """Record the backward of exactly one block of an eager program, which runs as without it: `with` or `@`.

    Every backward call that reaches a node made in the block is a pass in `region.passes`: its nodes and edges, the
    boundary around them, the Python stacks of the forward, and with `gradients="stats"` or `"values"` the gradients on
    each edge, and where NaN and Inf come from. With a `path` each pass is written there as a folder when it ends, never
    partially; without it passes stay in memory. `every=10` keeps one pass of ten, `only_bad=True` those with NaN, Inf
    or an error, and `limit=5` at most five. Of a decorated function, `derivative=True` says too whether its backward is
    the derivative of its forward: in `region.derivatives`, from the first call, which is captured before it runs.
    """
    from backprint.tools.regions.context import Region, bounds_of

    warn_with_this_torch()  # once, if Backprint was not tried with it
    frame = sys._getframe(1)  # the caller's
    site = f"{frame.f_code.co_filename}:{frame.f_lineno}"  # regions on one line count their passes together
    bounds = bounds_of(every, limit, only_bad, gradients)
    return Region(path, gradients, stacks, name, bounds, site, derivative)


def compare(
    left: str | os.PathLike[str],
    right: str | os.PathLike[str],
    *,
    run_a: str = "latest",
    run_b: str = "latest",
) -> DumpComparison:
    """Compare two dumps of a region edge by edge, as `backprint diff A B` does.

    `run_a` and `run_b` choose a run of a script where several wrote into one dump: `"latest"`, `"all"` or a run's name.
    """
    from backprint.tools.regions.comparing import compare_dumps

    return compare_dumps(left, right, run_a, run_b)
