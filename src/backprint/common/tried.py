"""The versions of torch that Backprint was tried with. Another one causes one warning, and works as far as it does.

Differences between versions are handled where they matter: `Function.apply` (a builtin from 2.14 on) in
`tools/regions/watch`, threads of autograd in builds with CUDA libraries in `tools/jobs/verbs`, Dynamo's caches in
`_torch/dynamo`, marks on sums of gradients (2.11) in `trace/aot/from_fx`.
"""

from __future__ import annotations

import re
import sys
import warnings

OLDEST, NEWEST = (2, 11), (2, 15)
"""The first two numbers of the versions that it was tried with, as far as README says; `make compat` runs the suite."""

TRIED = " to ".join(".".join(map(str, version)) for version in (OLDEST, NEWEST))

_warned: set[str] = set()
"""The versions for which this process has warned."""


def is_tried(version: str) -> bool:
    """Whether Backprint was tried with a version of torch; one that is not a version is not judged."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is None or OLDEST <= (int(numbers[1]), int(numbers[2])) <= NEWEST


def warn_if_untried(version: str) -> None:
    """Warn once if this torch is newer or older than those that were tried. It stays a warning where warnings are
    errors, because nothing has failed."""
    if is_tried(version) or version in _warned:
        return
    _warned.add(version)
    text = (
        f"Backprint was tried with torch {TRIED}, and this is {version}: what it relies on may have changed "
        "there. Each capture is still compared with the program itself; `backprint doctor` lists the engines that work"
    )
    try:
        warnings.warn(text, stacklevel=4)  # at the caller of `bp.capture`, which calls `warn_with_this_torch`
    except UserWarning:
        sys.stderr.write(f"{text}\n")


def warn_with_this_torch() -> None:
    """Warn once if Backprint was not tried with the installed torch."""
    import torch

    warn_if_untried(str(torch.__version__))
