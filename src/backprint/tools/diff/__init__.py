"""What changed between two Captures: their steps and ports matched to one another. Nothing here needs torch.

This module is the face: `compare`.

- `nouns`: a Diff. `matching`: which step of one is which step of the other. `differences`: the comparison of two
  Captures.
- `words`: a Diff as text and as JSON, changes by module. `markdown`: for reviews. `page`: a Diff as a page.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from backprint.errors import UsageError
from backprint.graph.nouns import Capture
from backprint.tools.diff.nouns import Diff

Compared: TypeAlias = "Capture | str | os.PathLike[str]"
"""A Capture, or the folder of a sample."""


def compare(before: Compared, after: Compared, allow: Sequence[str] = ()) -> Diff:
    """Return what changed between two Captures or samples: `print(bp.diff.compare(a, b))`.

    Steps are matched by what they compute, not by their names: steps that call the same operator with the same
    constants on the same values are the same. `.same` is True exactly if every graph of both has the same hash and the
    pairs are joined in the same way. `allow` names custom operators that samples may call.
    """
    from backprint.common.collector import collector_paused
    from backprint.tools.diff.differences import compare_captures

    with collector_paused():
        return compare_captures(
            *(_capture_of_side(side, name, allow) for side, name in ((before, "first"), (after, "second")))
        )


def _capture_of_side(side: Compared, name: str, allow: Sequence[str]) -> Capture:
    """Return a Capture, read if it is a sample; UsageError for anything else. `name` is which argument it is."""
    from backprint.api import load

    if isinstance(side, Capture):
        return side
    if isinstance(side, str | os.PathLike):
        return load(side, allow)
    raise UsageError(
        f"bp.diff.compare: the {name} argument is a {type(side).__name__}; it must be a Capture or the folder of a "
        "sample. bp.capture(model, x) makes a Capture."
    )
