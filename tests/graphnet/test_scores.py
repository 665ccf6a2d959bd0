"""S(t) and ES(t): the numbers of GraphNet's own code, both ways to them, groups, and what is left out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from face import (
    LEVELS,
    OutputForm,
    ScoredOutput,
    ScoredSample,
    ScoreTerms,
    UsageError,
    compared_outcome,
    read_log,
    score_curve,
    tolerance_at,
    within_tolerances,
    write_log,
)


def output(first: int, dtype: str = "float32") -> ScoredOutput:
    """An output that is within the tolerances of its dtype from a level on; other dtypes equal."""
    close = (tolerance_at(level, dtype) for level in LEVELS if level >= first)
    return ScoredOutput(OutputForm(dtype), True, frozenset(tolerance for tolerance in close if tolerance is not None))


def compared(name: str, speedup: float | None, *outputs: ScoredOutput) -> ScoredSample:
    return ScoredSample(name, compared_outcome(outputs), speedup, outputs)


ONE = (compared("a", 2.0, output(-10)), compared("b", 0.5, output(-5)), ScoredSample("c", "compile_fail"))
TWO = (
    compared("a", 3.0, output(-7), output(-10, "int64")),
    compared("b", 0.8, output(-2, "bfloat16")),
    compared("c", 0.25, output(-9, "float64")),
    compared("d", 9.0, output(2)),
)
THREE = (
    compared("a", 1.6, output(-10)),
    compared("b", 0.5, output(1)),
    ScoredSample("c", "type_mismatch", 4.0),
    ScoredSample("d", "shape_mismatch"),
    ScoredSample("e", "runtime_fail"),
    ScoredSample("f", "compile_fail"),
    ScoredSample("g", "eager_fail"),
)
CASES = {
    "one": (
        ONE,
        ScoreTerms(),
        {
            range(-10, -5): (0.27144176165949074, 0.27144176165949074),
            range(-5, 3): (0.4641588833612779, 0.4641588833612779),
            range(3, 5): (0.4641588833612779, 1.0),
        },
    ),
    "two": (
        TWO,
        ScoreTerms(1, 0.2),
        {
            range(-10, -9): (0.2, 0.2),
            range(-9, -7): (0.14953487812212207, 0.14953487812212207),
            range(-7, -2): (0.2942830956382712, 0.2942830956382712),
            range(-2, 1): (0.39359793425308615, 0.39359793425308615),
            range(1, 2): (0.39359793425308615, 0.5885661912765424),
            range(2, 5): (1.0194265469082737, 0.5885661912765424),
        },
    ),
    "three": (
        THREE,
        ScoreTerms(interpretation="extended"),
        {
            range(-10, 1): (0.1485994289136949, 0.1485994289136949),
            range(1, 2): (0.18701222535385975, 0.18701222535385975),
            range(2, 3): (0.18701222535385975, 0.36106407876409957),
            range(3, 4): (0.18701222535385975, 0.5016969106227039),
            range(4, 6): (0.18701222535385975, 0.6971055968511698),
        },
    ),
}
"""Samples, terms, and by levels what GraphNet's own code scores them (its graph_net_benching/analysis_util.py)."""


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_graphnet(name: str, tmp_path: Path) -> None:
    samples, terms, known = CASES[name]
    expected = {level: scores for levels, scores in known.items() for level in levels}
    write_log(samples, tmp_path / "run.log")
    curve = score_curve(read_log(tmp_path / "run.log"), terms)
    assert [point.level for point in curve] == list(expected)
    for point in curve:
        assert (point.s, point.es) == pytest.approx(expected[point.level], rel=1e-12), point.level


def test_no_level_forgives_a_failure_of_eager_in_the_extended_interpretation() -> None:
    failed = [ScoredSample("a", "eager_fail")]
    assert [point.es for point in score_curve(failed, ScoreTerms(interpretation="extended"))] == [
        pytest.approx(0.1)
    ] * 16
    assert score_curve(failed)[-1].es == 1.0


def test_a_value_mismatch_is_forgiven_with_the_other_mismatches() -> None:
    mismatched = [ScoredSample("a", "value_mismatch", 2.0)]
    for interpretation, first in (("default", 3), ("extended", 2)):
        terms = ScoreTerms(interpretation=interpretation)
        assert next(point.level for point in score_curve(mismatched, terms) if point.es == 1.0) == first


def test_unmeasured_samples_are_left_out_and_counted() -> None:
    odd = (
        ScoredSample("noisy", "unmeasured"),
        ScoredSample("uncompared", "correct", 5.0),
        compared("untimed", None, output(-3)),
        compared("never right", None, ScoredOutput(OutputForm("float32"))),
    )
    assert [sample.measured for sample in odd] == [False, False, False, True]
    assert not odd[1].right_at(4)
    assert score_curve([*ONE, *odd]) == score_curve([*ONE, odd[3]])
    with pytest.raises(UsageError, match="no score of 3 samples: none is measured"):
        score_curve(odd[:3])


def test_a_speedup_of_zero_makes_the_score_zero() -> None:
    [*curve] = score_curve([compared("a", 0.0, output(-10)), compared("b", 2.0, output(-10))])
    assert {point.s for point in curve} == {0.0}


@pytest.mark.parametrize(
    "arguments", [(-1.0,), (math.inf,), (0.0, 0.0), (0.0, 2.0), (0.0, 0.1, "mild"), (math.nan,), (0.0, math.nan)]
)
def test_terms_that_mean_nothing_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(UsageError):
        ScoreTerms(*arguments)  # type: ignore[arg-type]


def test_a_sparse_result_at_other_indices_is_within_no_tolerance() -> None:
    here, there = (torch.sparse_coo_tensor([[index]], [1.0], (3,)) for index in (0, 2))
    assert len(within_tolerances(here, here)) > 60
    assert within_tolerances(there, here) == ()
