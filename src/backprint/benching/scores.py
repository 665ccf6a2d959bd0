"""GraphNet's scores S(t) and ES(t), sample by sample and aggregated, for all samples or group by group.

S(t) is the geometric mean over all samples of: the speedup where every output is within level t, raised to 1 + p where
it is below 1 (p punishes slowdowns); else b. ES(t) is S(t) up to t = 0. From t = 1 on it keeps the samples that are
right at level 1, and forgives the others by kind of error, as an interpretation says: a forgiven one counts 1, not b.

The aggregated formulas have the same values, in GraphNet's letters:
S = α^λ · β^(ληp) · b^(1-λ) and ES = α^λ · β^(ληp) · γ^(1-λ), with γ = b^(the share of errors that are not forgiven).

The numbers equal those of GraphNet's own code, except:
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
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
class Aggregate:
    """The samples at one level, summed up; in GraphNet's letters α, β, λ, η, and π by outcome."""

    speedup: float
    slowdown: float
    right: float
    slower: float
    errors: tuple[tuple[str, float], ...]

    def unforgiven(self, level: int, terms: ScoreTerms) -> float:
        """The share of the errors that still count as such; all of them below level 1."""
        if level < FROZEN:
            return 1.0
        return math.fsum(share for outcome, share in self.errors if not terms.forgives(outcome, level))

    def score(self, error_value: float, terms: ScoreTerms) -> float:
        """The score in which each error counts the same value: b for S(t), γ for ES(t)."""
        penalty = self.slowdown ** (self.right * self.slower * terms.slowdown_penalty)
        return self.speedup**self.right * penalty * error_value ** (1 - self.right)


@dataclass(frozen=True, slots=True)
class ScorePoint:
    """Both scores at a level, and the aggregate that ES(t) is made of."""

    level: int
    s: float
    es: float
    aggregate: Aggregate
    error_value: float
    """γ: the value of an error on average."""


@dataclass(frozen=True, slots=True)
class GroupScores:
    """A group's curve; no point where no sample is measured."""

    count: int
    left_out: int
    curve: tuple[ScorePoint, ...]


def score_curve(samples: Iterable[ScoredSample], terms: ScoreTerms = DEFAULT) -> tuple[ScorePoint, ...]:
    """S(t) and ES(t) at every level, of the samples that are measured."""
    scored = measured_samples(samples)
    return tuple(score_point(scored, level, terms) for level in terms.levels)


def score_groups(
    samples: Iterable[ScoredSample], key: Callable[[ScoredSample], Hashable], terms: ScoreTerms = DEFAULT
) -> dict[Hashable, GroupScores]:
    """The scores of each group of samples with one key, in the order in which the groups first come."""
    groups: dict[Hashable, list[ScoredSample]] = defaultdict(list)
    for sample in samples:
        groups[key(sample)].append(sample)
    return {name: group_scores(group, terms) for name, group in groups.items()}


def group_scores(group: Sequence[ScoredSample], terms: ScoreTerms) -> GroupScores:
    count = sum(sample.measured for sample in group)
    return GroupScores(count, len(group) - count, score_curve(group, terms) if count else ())


def measured_samples(samples: Iterable[ScoredSample]) -> tuple[ScoredSample, ...]:
    given = tuple(samples)
    scored = tuple(sample for sample in given if sample.measured)
    if not scored:
        raise UsageError(f"no score of {len(given)} samples: none is measured")
    return scored


def score_point(samples: Sequence[ScoredSample], level: int, terms: ScoreTerms) -> ScorePoint:
    aggregate = aggregate_at(samples, min(level, FROZEN))
    return ScorePoint(
        level=level,
        s=geometric_mean([strict_value(sample, level, terms) for sample in samples]),
        es=geometric_mean([forgiving_value(sample, level, terms) for sample in samples]),
        aggregate=aggregate,
        error_value=terms.failure_value ** aggregate.unforgiven(level, terms),
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


def aggregate_at(samples: Sequence[ScoredSample], level: int) -> Aggregate:
    """α, β, λ, η and π of the samples at a level; means of nothing are 1."""
    right = [sample for sample in samples if sample.right_at(level)]
    speedups = [speedup_of(sample) for sample in right]
    slowdowns = [speedup for speedup in speedups if speedup < 1]
    outcomes = Counter(error_at(sample, level) for sample in samples)
    wrong = len(samples) - len(right)
    return Aggregate(
        speedup=geometric_mean(speedups) if speedups else 1.0,
        slowdown=geometric_mean(slowdowns) if slowdowns else 1.0,
        right=len(right) / len(samples),
        slower=len(slowdowns) / len(right) if right else 0.0,
        errors=tuple((outcome, count / wrong) for outcome, count in outcomes.items() if outcome != "correct"),
    )


def speedup_of(sample: ScoredSample) -> float:
    if sample.speedup is None:
        raise UsageError(f"sample {sample.name!r} is right and has no speedup; score `measured` samples only")
    return sample.speedup


def aggregated_scores(samples: Iterable[ScoredSample], level: int, terms: ScoreTerms = DEFAULT) -> tuple[float, float]:
    """S(t) and ES(t) by the aggregated formulas: a second way to the numbers of `score_curve`."""
    scored = measured_samples(samples)
    frozen = aggregate_at(scored, min(level, FROZEN))
    error_value = terms.failure_value ** frozen.unforgiven(level, terms)
    return aggregate_at(scored, level).score(terms.failure_value, terms), frozen.score(error_value, terms)
