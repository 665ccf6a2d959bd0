"""The versions of torch that Backprint was tried with. Another one causes one warning, and works as far as it does.

Differences between versions are handled where they matter: `Function.apply` (a builtin from 2.14 on) in
`regions/watch`, threads of autograd in builds with CUDA libraries in `corpus/verbs`, texts of autograd's errors in
`tracing/derivatives`, Dynamo's caches in `tracing/dynamo/frontend`, marks on sums of gradients (2.11) in
`tracing/aot/from_fx`.
"""

from __future__ import annotations

import functools
import re
import warnings

OLDEST, NEWEST = (2, 11), (2, 14)
"""The first two numbers of the versions that it was tried with, as far as README says; `make compat` runs the suite."""


@functools.cache
def warn_if_untried(version: str) -> None:
    """Warn once if this torch is newer or older than those that were tried."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
        return
    first, last = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
    warnings.warn(
        f"Backprint was tried with torch {first} to {last}, and this is {version}: what it relies on may have changed "
        "there. Each capture is still compared with the program itself; if something fails, try one of those",
        stacklevel=3,
    )


def warn_with_this_torch() -> None:
    """Warn once if Backprint was not tried with the installed torch."""
    import torch

    warn_if_untried(str(torch.__version__))
