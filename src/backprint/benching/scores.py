"""GraphNet's scores S(t) and ES(t).

S(t) is the geometric mean over all samples of: the speedup where every output is within level t, raised to 1 + p where
it is below 1 (p punishes slowdowns); else b. ES(t) is S(t) up to t = 0. From t = 1 on it keeps the samples that are
right at level 1, and forgives the others by kind of error, as an interpretation says: a forgiven one counts 1, not b.

The numbers equal those of GraphNet's own code, whose aggregated formulas have the same values
(S = α^λ · β^(ληp) · b^(1-λ), ES = α^λ · β^(ληp) · γ^(1-λ)), except:
- Its aggregated S(t) keeps the samples of level 1 at all higher levels. Here it takes those of level t, as the S(t) of
  its samples does.
- In the extended interpretation no level forgives a failure of eager, but GraphNet's aggregated ES(t) forgives it at
  t = 3, and a check of one against the other raises. Here neither forgives it.
- GraphNet counts a sample whose timing fluctuated as a failed execution, and a sample without a compared output as
  right. Here both are left out and counted: see `ScoredSample.measured`.
- GraphNet raises TypeError at a right sample without a speedup. Here it is left out too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backprint.benching.means import geometric_mean
from backprint.benching.scored import COMPARED, MISMATCHES, ScoredSample
from backprint.errors import UsageError

NEVER = math.inf

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
        return range(-10, int(max(level for level in forgiving if level < NEVER)) + 2)

    def forgives(self, outcome: str, level: int) -> bool:
        return level >= INTERPRETATIONS[self.interpretation][outcome]


DEFAULT = ScoreTerms()


@dataclass(frozen=True, slots=True)
class ScorePoint:
    """Both scores at a level."""

    level: int
    s: float
    es: float


def score_curve(samples: Iterable[ScoredSample], terms: ScoreTerms = DEFAULT) -> tuple[ScorePoint, ...]:
    """S(t) and ES(t) at every level, of the samples that are measured."""
    scored = measured_samples(samples)
    return tuple(score_point(scored, level, terms) for level in terms.levels)


def measured_samples(samples: Iterable[ScoredSample]) -> tuple[ScoredSample, ...]:
    given = tuple(samples)
    scored = tuple(sample for sample in given if sample.measured)
    if not scored:
        raise UsageError(f"no score of {len(given)} samples: none is measured")
    return scored


def score_point(samples: Sequence[ScoredSample], level: int, terms: ScoreTerms) -> ScorePoint:
    return ScorePoint(
        level=level,
        s=geometric_mean([strict_value(sample, level, terms) for sample in samples]),
        es=geometric_mean([forgiving_value(sample, level, terms) for sample in samples]),
    )


def strict_value(sample: ScoredSample, level: int, terms: ScoreTerms) -> float:
    """The value of a sample in S(t)."""
    if not sample.right_at(level):
        return terms.failure_value
    speedup = speedup_of(sample)
    return speedup ** (1 + terms.slowdown_penalty) if speedup < 1 else speedup


def forgiving_value(sample: ScoredSample, level: int, terms: ScoreTerms) -> float:
    """The value of a sample in ES(t)."""
    decisive = min(level, FROZEN)
    if level < FROZEN or sample.right_at(decisive) or not terms.forgives(error_at(sample, decisive), level):
        return strict_value(sample, decisive, terms)
    return 1.0


def error_at(sample: ScoredSample, level: int) -> str:
    """The outcome of a sample at a level: `accuracy` where it was compared, and is not right."""
    if sample.outcome not in COMPARED:
        return sample.outcome
    return "correct" if sample.right_at(level) else "accuracy"


def speedup_of(sample: ScoredSample) -> float:
    if sample.speedup is None:
        raise UsageError(f"sample {sample.name!r} is right and has no speedup; score `measured` samples only")
    return sample.speedup
