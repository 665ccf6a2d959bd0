"""ScoredSample, which scores are computed from: a sample that one compiler ran, its outcome, speedup and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from backprint.benching.tolerances import LEVELS, Tolerance, tolerance_at
from backprint.errors import UsageError

COMPARED = ("correct", "accuracy")
"""Outcomes of samples whose outputs were compared; at each level the outputs say whether the sample is right."""

MISMATCHES = ("type_mismatch", "shape_mismatch", "value_mismatch")
"""Other dtypes, other shapes, or NaN or Inf where eager has numbers."""

FAILURES = ("runtime_fail", "compile_fail", "eager_fail")

UNMEASURED = "unmeasured"
"""Neither right nor wrong: the timing fluctuated too much, or nothing was compared or timed. Scores leave it out."""

OUTCOMES = (*COMPARED, *MISMATCHES, *FAILURES, UNMEASURED)


@dataclass(frozen=True, slots=True)
class OutputForm:
    """An output without its values. `values` is `nan` or `inf` where these set it apart from eager's output."""

    dtype: str
    shape: tuple[int, ...] | None = None
    values: str = ""


@dataclass(frozen=True, slots=True)
class ScoredOutput:
    """One output of eager, and how close the compiler's came: bit for bit equal, and within which tolerances."""

    form: OutputForm
    equal: bool = False
    close: frozenset[Tolerance] = frozenset()

    def within(self, level: int) -> bool:
        """Whether the compiler's output is within the tolerance of its dtype at a level."""
        tolerance = tolerance_at(level, self.form.dtype)
        return self.equal if tolerance is None else tolerance in self.close


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """A sample that one compiler ran. `speedup` is eager's time over the compiler's.

    `compiled` is the form of the compiler's outputs where it is not that of eager's. `config` has words to group by;
    `performance` and `speedups` (of other clocks than the wall's) go through to the log and count in no score.
    """

    name: str
    outcome: str
    speedup: float | None = None
    outputs: tuple[ScoredOutput, ...] = ()
    compiled: tuple[OutputForm, ...] | None = None
    reason: str = ""
    config: tuple[tuple[str, str], ...] = ()
    performance: tuple[tuple[str, str], ...] = ()
    speedups: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise UsageError(f"sample {self.name!r}: outcome {self.outcome!r} is not one of {', '.join(OUTCOMES)}")
        if self.speedup is not None and not 0 <= self.speedup < float("inf"):
            raise UsageError(f"sample {self.name!r}: speedup {self.speedup!r} is not a finite number from 0 on")

    def setting(self, key: str) -> str:
        """A word of its configuration; empty where it has none by that key."""
        return dict(self.config).get(key, "")

    def right_at(self, level: int) -> bool:
        """Whether every output is within the level's tolerance. No output compared is not right."""
        return self.outcome in COMPARED and bool(self.outputs) and all(output.within(level) for output in self.outputs)

    @property
    def measured(self) -> bool:
        """Whether scores can count it: it failed, or it was compared, and timed if it is right at any level."""
        if self.outcome not in COMPARED:
            return self.outcome != UNMEASURED
        return bool(self.outputs) and (self.speedup is not None or not any(map(self.right_at, LEVELS)))


def compared_outcome(outputs: Iterable[ScoredOutput]) -> str:
    """`correct` if all outputs are within level 1, where GraphNet begins to forgive errors, else `accuracy`."""
    return "correct" if all(output.within(1) for output in outputs) else "accuracy"
