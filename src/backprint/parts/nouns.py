"""The parts of a Capture, as `bp.split` returns them. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backprint.graph.nouns import Capture

if TYPE_CHECKING:
    from backprint.graph.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One part of a Capture, proven against the whole.

    It is part `index` of Pair `pair`. `wanted` is False for a part between those that `by` requested. `count` is how
    many equal parts of the Capture it stands for, itself among them (`by="fold"`).
    """

    pair: int
    index: int
    label: str
    wanted: bool
    capture: Capture
    verdict: Verdict
    count: int = 1


@dataclass(frozen=True, slots=True)
class Split:
    """All parts of a Capture in order, and `joined`: the Capture of all parts, linked again."""

    parts: tuple[SplitPart, ...]
    joined: Capture
