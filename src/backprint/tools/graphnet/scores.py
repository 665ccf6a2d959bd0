"""GraphNet's scores: tolerance levels, samples as they are scored, mean speedups, and S(t) and ES(t).

A tolerance level t gives atol and rtol for a dtype. Level 0 is atol = rtol = 1 for every dtype, and each level below is
stricter. Positive levels loosen the tolerance further; the scores also read them as kinds of errors that are forgiven.
A dtype without a row is compared exactly at every level.

A *correctness line* is one of GraphNet's log, which names a tolerance and says which outputs are within it. The
*outcome* of a sample says how it ended (OUTCOMES). S(t) and ES(t) are explained below, above their code.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from backprint.errors import UsageError

LEVELS = range(-10, 6)
"""The levels for which GraphNet's log has correctness lines."""

EXPONENTS: dict[str, tuple[float, float]] = {
    "float16": (1, 3 / 5),
    "bfloat16": (1, 1.796 / 5),
    "float32": (1, 5.886 / 5),
    "float64": (7 / 5, 7 / 5),
}
"""dtype -> the increments of the base-ten logarithms of atol and rtol for one level."""

EQUAL = "equal"
"""The name of the correctness line that says which outputs are equal, bit for bit."""

NAMED = re.compile(r"all_close_atol_(\S+?)_rtol_(\S+)")
"""A `Tolerance.line_name`: its atol and its rtol."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The arguments `atol` and `rtol` of `torch.allclose`."""

    atol: float
    rtol: float

    @property
    def line_name(self) -> str:
        """How GraphNet names the correctness line for it."""
        return f"all_close_atol_{self.atol:.2E}_rtol_{self.rtol:.2E}"


@cache
def tolerance_at(level: int, dtype: str) -> Tolerance | None:
    """Return the tolerance of a dtype at a level, to three digits as GraphNet compares; None where outputs must be
    equal."""
    if dtype not in EXPONENTS:
        return None
    atol, rtol = (float(f"{10 ** (level * exponent):.3g}") for exponent in EXPONENTS[dtype])
    return Tolerance(atol, rtol)


TOLERANCES = tuple(
    tolerance for level in LEVELS for dtype in EXPONENTS if (tolerance := tolerance_at(level, dtype)) is not None
)
"""The tolerances in the order of GraphNet's correctness lines. At level 0 all dtypes have the same one."""


def tolerance_named(name: str) -> Tolerance | None:
    """Return the tolerance in the name of a correctness line; None if the name has none."""
    match = NAMED.fullmatch(name)
    return Tolerance(float(match[1]), float(match[2])) if match else None


# ------------------------------------------------------------------ samples as they are scored

COMPARED = ("correct", "accuracy")
"""Outcomes of samples whose outputs were compared; at each level the outputs say whether the sample is right."""

MISMATCHES = ("type_mismatch", "shape_mismatch", "value_mismatch")
"""Other dtypes, other shapes, or NaN or Inf where eager has numbers."""

FAILURES = ("runtime_fail", "compile_fail", "eager_fail")
"""The compiled model raised, it could not be compiled, or eager raised."""

UNMEASURED = "unmeasured"
"""Neither right nor wrong: the timing fluctuated too much, or nothing was compared or timed. Scores leave it out."""

OUTCOMES = (*COMPARED, *MISMATCHES, *FAILURES, UNMEASURED)
"""All outcomes of samples."""


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
    """A sample that one compiler ran. `speedup` is eager's time over the compiler's; None if it was not timed.

    `compiled` are the forms of the compiler's outputs if they differ from eager's. `config` has words to group by, by
    key; `performance` and `speedups` (of other clocks than the wall's, by name) go through to the log and count in no
    score. An outcome or a speedup that cannot be is refused.
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
        """Return a word of its configuration; '' where it has none by that key."""
        return dict(self.config).get(key, "")

    def right_at(self, level: int) -> bool:
        """Whether every output is within the level's tolerance. No output compared is not right."""
        return self.outcome in COMPARED and bool(self.outputs) and all(output.within(level) for output in self.outputs)

    @property
    def measured(self) -> bool:
        """Whether scores can count it: it failed, or it was compared, and timed if it is right at any level. (A sample
        that is never right has the value of a failure, and needs no speedup.)"""
        if self.outcome not in COMPARED:
            return self.outcome != UNMEASURED
        return bool(self.outputs) and (self.speedup is not None or not any(map(self.right_at, LEVELS)))


def compared_outcome(outputs: Iterable[ScoredOutput]) -> str:
    """Return `correct` if all outputs are within level 1, where GraphNet begins to forgive errors, else `accuracy`."""
    return "correct" if all(output.within(1) for output in outputs) else "accuracy"


# ------------------------------------------------------------------ geometric means of speedups

FEWEST = 5
"""Fewer values have no interval."""

MeanSpeedup = tuple[float | None, float | None, float | None]
"""A geometric mean, and the two ends of its interval; None where it is not known."""


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of numbers from 0 on; 0 if one of them is. Refuse no numbers, and numbers below 0."""
    if not values:
        raise UsageError("no geometric mean of no values")
    if min(values) <= 0:
        if min(values) < 0:
            raise UsageError(f"no geometric mean: {min(values)!r} is below 0")
        return 0.0
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def mean_speedup(speedups: Sequence[float]) -> MeanSpeedup:
    """Return the geometric mean of speedups above 0, with its 95% interval by Student's t on their logarithms.

    Fewer than `FEWEST` speedups have no interval, and no speedups have no mean."""
    if any(not 0 < speedup < math.inf for speedup in speedups):
        raise UsageError("no mean speedup: each value must be above 0 and finite")
    if len(speedups) < FEWEST:
        return (geometric_mean(speedups) if speedups else None, None, None)
    logs = [math.log(speedup) for speedup in speedups]
    # 0.975: 2.5% are left out at each end of a 95% interval.
    half_width = _student_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean), math.exp(mean - half_width), math.exp(mean + half_width)


def _student_quantile(share: float, degrees: int) -> float:
    """Return the quantile of Student's t below which this share lies, by Cornish and Fisher's expansion about that of
    the normal distribution (z), within 2% from 4 degrees of freedom on."""
    z = statistics.NormalDist().inv_cdf(share)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


# ------------------------------------------------------------------ scores S(t) and ES(t)
#
# S(t) is the geometric mean over all samples of: the speedup where every output is within level t, raised to 1 + p
# where it is below 1 (p punishes slowdowns); else b. ES(t) is S(t) up to t = 0. From t = 1 on it keeps the samples that
# are right at level 1, and forgives the others by kind of error, as an interpretation says: a forgiven one counts 1,
# not b.
#
# The numbers equal those of GraphNet's own code, whose aggregated formulas have the same values
# (S = α^λ · β^(ληp) · b^(1-λ), ES = α^λ · β^(ληp) · γ^(1-λ)), except:
#
# - Its aggregated S(t) keeps the samples of level 1 at all higher levels. Here it takes those of level t, as the S(t)
#   of its samples does.
# - In the extended interpretation no level forgives a failure of eager, but GraphNet's aggregated ES(t) forgives it
#   at t = 3, and a check of one against the other raises. Here neither forgives it.
# - GraphNet counts a sample whose timing fluctuated as a failed execution, and a sample without a compared output as
#   right. Here both are left out and counted: see `ScoredSample.measured`.
# - GraphNet raises TypeError at a right sample without a speedup. Here it is left out too.

NEVER = math.inf
"""The level from which an outcome is forgiven that no level forgives."""

INTERPRETATIONS: Mapping[str, Mapping[str, float]] = {
    "default": {
        "accuracy": 1,
        **dict.fromkeys(MISMATCHES, 3),
        "runtime_fail": 3,
        "compile_fail": 3,
        "eager_fail": 3,
    },
    "extended": {
        "accuracy": 1,
        **dict.fromkeys(MISMATCHES, 2),
        "runtime_fail": 3,
        "compile_fail": 4,
        "eager_fail": NEVER,
    },
}
"""By interpretation: the level from which ES(t) forgives an outcome. GraphNet calls `extended` mismatch_extended."""

FROZEN = 1
"""The level at which ES(t) fixes which samples are right."""


@dataclass(frozen=True, slots=True)
class ScoreTerms:
    """The penalty p of slowdowns, the value b of a failure, and the interpretation of positive levels."""

    slowdown_penalty: float = 0.0
    failure_value: float = 0.1
    interpretation: str = "default"

    def __post_init__(self) -> None:
        """Refuse terms out of their range."""
        if self.interpretation not in INTERPRETATIONS:
            known = ", ".join(map(repr, INTERPRETATIONS))
            raise UsageError(f"interpretation={self.interpretation!r} is not one of {known}")
        if not (0 <= self.slowdown_penalty < math.inf and 0 < self.failure_value <= 1):
            raise UsageError(
                f"slowdown_penalty={self.slowdown_penalty!r} must be a number from 0 on, and "
                f"failure_value={self.failure_value!r} above 0 and at most 1"
            )

    @property
    def levels(self) -> range:
        """The levels t from GraphNet's first to one past the last that forgives an error."""
        forgiving = INTERPRETATIONS[self.interpretation].values()
        last = int(max(level for level in forgiving if level < NEVER))
        return range(LEVELS[0], last + 2)  # to `last + 1`, as a range leaves its end out

    def forgives(self, outcome: str, level: int) -> bool:
        """Whether ES(t) counts an outcome that is an error as 1 at a level."""
        return level >= INTERPRETATIONS[self.interpretation][outcome]


DEFAULT = ScoreTerms()
"""The terms where none are given."""


@dataclass(frozen=True, slots=True)
class ScorePoint:
    """Both scores at a level t: S(t) and ES(t)."""

    level: int
    s: float
    es: float


def score_curve(samples: Iterable[ScoredSample], terms: ScoreTerms = DEFAULT) -> tuple[ScorePoint, ...]:
    """Return S(t) and ES(t) at every level, of the samples that are measured; refuse samples of which none is."""
    scored = _measured_samples(samples)
    return tuple(_score_point(scored, level, terms) for level in terms.levels)


def _measured_samples(samples: Iterable[ScoredSample]) -> tuple[ScoredSample, ...]:
    """Return the samples that scores can count; refuse if there is none."""
    all_samples = tuple(samples)
    scored = tuple(sample for sample in all_samples if sample.measured)
    if not scored:
        raise UsageError(f"no score of {len(all_samples)} samples: none is measured")
    return scored


def _score_point(samples: Sequence[ScoredSample], level: int, terms: ScoreTerms) -> ScorePoint:
    """Return both scores of measured samples at a level."""
    return ScorePoint(
        level=level,
        s=geometric_mean([_strict_value(sample, level, terms) for sample in samples]),
        es=geometric_mean([_forgiving_value(sample, level, terms) for sample in samples]),
    )


def _strict_value(sample: ScoredSample, level: int, terms: ScoreTerms) -> float:
    """Return the value of a sample in S(t): its speedup if it is right at the level, below 1 with the penalty of
    slowdowns; else the value of a failure."""
    if not sample.right_at(level):
        return terms.failure_value
    speedup = _speedup_of(sample)
    return speedup ** (1 + terms.slowdown_penalty) if speedup < 1 else speedup


def _forgiving_value(sample: ScoredSample, level: int, terms: ScoreTerms) -> float:
    """Return the value of a sample in ES(t): 1 if its error is forgiven at the level; else its value in S(t), of level
    FROZEN if the level is above that."""
    decisive = min(level, FROZEN)
    if level < FROZEN or sample.right_at(decisive) or not terms.forgives(_error_at(sample, decisive), level):
        return _strict_value(sample, decisive, terms)
    return 1.0


def _error_at(sample: ScoredSample, level: int) -> str:
    """Return the outcome of a sample at a level: `accuracy` where it was compared, and is not right."""
    if sample.outcome not in COMPARED:
        return sample.outcome
    return "correct" if sample.right_at(level) else "accuracy"


def _speedup_of(sample: ScoredSample) -> float:
    """Return the speedup of a sample that is right; refuse one that was not timed."""
    if sample.speedup is None:
        raise UsageError(f"sample {sample.name!r} is right and has no speedup; score `measured` samples only")
    return sample.speedup
