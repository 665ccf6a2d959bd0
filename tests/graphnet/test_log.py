"""GraphNet's log: what is written is read back, its own tools' lines are understood, a name cannot pose as a line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from face import (
    EXPONENTS,
    LEVELS,
    TOLERANCES,
    OutputForm,
    ScoredOutput,
    ScoredSample,
    Tolerance,
    UsageError,
    compared_outcome,
    log_text,
    parse_log,
    read_log,
    tolerance_at,
    tolerance_named,
    write_log,
)

FLOAT = OutputForm("float32", (2, 3))
INT = OutputForm("int64", ())


def within_from(first: int, form: OutputForm = FLOAT, equal: bool = False) -> ScoredOutput:
    """An output that is within every dtype's tolerance from a level on."""
    close = (tolerance_at(level, dtype) for level in LEVELS if level >= first for dtype in EXPONENTS)
    return ScoredOutput(form, equal, frozenset(tolerance for tolerance in close if tolerance is not None))


SAMPLES = (
    ScoredSample("timed badly", "unmeasured", reason="too much noise"),
    ScoredSample(
        "right",
        "correct",
        1.25,
        (within_from(-5), within_from(-10, INT, True)),
        config=(("model", "a model"), ("direction", "backward")),
        performance=(("eager", '{"e2e": {"median": 2.5}}'),),
        speedups=(("gpu", 3.5),),
    ),
    ScoredSample("off", "accuracy", 9e-7, (within_from(2),)),
    ScoredSample("types", "type_mismatch", None, (ScoredOutput(FLOAT),), (OutputForm("float64", (2, 3)),)),
    ScoredSample("compared", "type_mismatch", 4.0, (within_from(-3),), (OutputForm("float64", (2, 3)),)),
    ScoredSample("shapes", "shape_mismatch", None, (ScoredOutput(FLOAT),), (OutputForm("float32", (3,)),)),
    ScoredSample("values", "value_mismatch", 2.0, (ScoredOutput(FLOAT),), (OutputForm("float32", (2, 3), "nan"),)),
    ScoredSample("runs not", "runtime_fail", None, (ScoredOutput(FLOAT),), reason="ValueError: boom"),
    ScoredSample("compiles not", "compile_fail", reason="no kernel for aten.foo"),
    ScoredSample("eager fails", "eager_fail", reason="out of memory"),
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_log(SAMPLES, tmp_path / "run.log")
    assert read_log(tmp_path / "run.log") == SAMPLES


def test_unmeasured_samples_come_first() -> None:
    assert [sample.name for sample in parse_log(log_text(reversed(SAMPLES)))][:2] == ["timed badly", "eager fails"]


def test_a_log_has_the_lines_of_graphnet() -> None:
    lines = [line.removeprefix("graph-net-test-compiler-log ") for line in log_text(SAMPLES[1:2]).splitlines()]
    assert lines[:7] == [
        "[Processing] right",
        "[Config] model: a model",
        "[Config] direction: backward",
        "[Datatype][eager]: float32 int64",
        "[Datatype][compiled]: float32 int64",
        "[DataType] eager:['float32', 'int64'] compiled:['float32', 'int64'] match:True",
        "[Shape] eager:[[2, 3], []] compiled:[[2, 3], []] match:True",
    ]
    assert lines[7:10] == [
        "[Correctness][equal]: 0 1",
        "[Correctness][all_close_atol_1.00E-10_rtol_1.00E-06]: 0 1",
        "[Correctness][all_close_atol_1.00E-10_rtol_2.56E-04]: 0 1",
    ]
    assert len([line for line in lines if "all_close" in line]) == 64
    assert lines[-4:] == [
        "[Result] status: success",
        '[Performance][eager]: {"e2e": {"median": 2.5}}',
        "[Speedup][e2e]: 1.25",
        "[Speedup][gpu]: 3.5",
    ]


POSING = "[Processing] x\n[Datatype][eager]: all_close Error: Exception: match:True %5B 100% \tend"


@pytest.mark.parametrize("outcome", ["eager_fail", "compile_fail", "runtime_fail", "unmeasured"])
def test_a_name_or_a_reason_cannot_pose_as_a_line(outcome: str) -> None:
    first = ScoredSample("fine", "correct", 2.0, (within_from(-10),))
    named = ScoredSample(f"a {POSING}", outcome, reason=POSING, config=(("model", POSING),) * (outcome != "unmeasured"))
    text = log_text((first, named))
    assert set(parse_log(text)) == {first, named}
    [*words] = re.findall(r"\[Processing\]|all_close(?!_atol)|Exception:|(?<!an )Error:", text)
    assert words == ["[Processing]"] * (1 + (outcome != "unmeasured"))


def logged(*lines: str) -> ScoredSample:
    """The one sample of a log with these lines in it."""
    [sample] = parse_log("noise\n" + "\n".join(("prompt [Processing] /s/a", *lines, "")))
    return sample


TYPED = (
    "p [Datatype][eager]: float32",
    "p [Datatype][compiled]: float32",
    "p [DataType] eager:[] compiled:[] match:True",
)
SHAPED = (*TYPED, "p [Shape] eager:[] compiled:[] match:True")
CLOSE = tuple(f"p [Correctness][{tolerance.line_name}]: 1" for tolerance in TOLERANCES)
EQUAL = "p [Correctness][equal]: 0"
SPEEDUP = "p [Speedup][e2e]: 2.00000"


@pytest.mark.parametrize(
    ("lines", "outcome", "reason"),
    [
        ((*SHAPED, EQUAL, *CLOSE, SPEEDUP), "correct", ""),
        ((*TYPED, EQUAL, *CLOSE, SPEEDUP), "correct", ""),
        ((*SHAPED, EQUAL, *CLOSE[:-4], SPEEDUP), "correct", ""),
        ((*SHAPED, EQUAL, *CLOSE[:40], SPEEDUP), "accuracy", ""),
        ((*SHAPED, EQUAL, *CLOSE), "unmeasured", "not timed"),
        ((*SHAPED, SPEEDUP), "unmeasured", "no output was compared"),
        ((*SHAPED, EQUAL, *CLOSE, SPEEDUP, "RuntimeError: boom"), "runtime_fail", "RuntimeError: boom"),
        (TYPED, "shape_mismatch", ""),
        ((*TYPED[:2], "p [DataType] eager:['float32'] compiled:['int64'] match:False"), "type_mismatch", ""),
        (TYPED[:1], "compile_fail", ""),
        ((), "eager_fail", ""),
        (("Eager model execution failed: no memory",), "eager_fail", "no memory"),
        (
            ("Compiled model execution failed: bad", "p [Fail due to compiled model execution error.]"),
            "compile_fail",
            "bad",
        ),
        (
            ("Eager model execution failed: Environment fluctuation detected.", "p [Result] status: failed"),
            "unmeasured",
            "Environment fluctuation detected.",
        ),
    ],
)
def test_the_lines_of_graphnet_say_how_it_ended(lines: tuple[str, ...], outcome: str, reason: str) -> None:
    sample = logged(*lines)
    assert (sample.name, sample.outcome, sample.reason) == ("/s/a", outcome, reason)


def test_a_line_with_too_few_outputs_says_nothing_good_of_the_rest() -> None:
    sample = logged("p [Datatype][eager]: float32 float32", *SHAPED[1:], EQUAL, *CLOSE, SPEEDUP)
    assert [output.within(0) for output in sample.outputs] == [True, False]
    assert sample.outcome == "accuracy"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("p [Speedup][e2e]: fast",), r"run\.log:3: '\[Speedup\]\[e2e\]: fast' cannot be read"),
        (("p [Speedup][e2e]: nan",), r"run\.log:3: .* finite number"),
        (("p [Correctness][equal]: 1 x",), r"run\.log:3: .*could not convert"),
        ((*SHAPED, "p [Correctness][equal]: 1 0", SPEEDUP), r"run\.log:2: .* has 2 outputs, .* 1 dtypes"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    (tmp_path / "run.log").write_text("noise\n" + "\n".join(("p [Processing] /s/a", *lines)))
    with pytest.raises(UsageError, match=message):
        read_log(tmp_path / "run.log")


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.log: cannot read the log: No such file"):
        read_log(tmp_path / "no.log")


@pytest.mark.parametrize(
    ("level", "dtype", "name"),
    [
        (-10, "float16", "all_close_atol_1.00E-10_rtol_1.00E-06"),
        (-5, "float32", "all_close_atol_1.00E-05_rtol_1.30E-06"),
        (-1, "bfloat16", "all_close_atol_1.00E-01_rtol_4.37E-01"),
        (5, "float64", "all_close_atol_1.00E+07_rtol_1.00E+07"),
    ],
)
def test_a_level_of_a_dtype_is_a_tolerance(level: int, dtype: str, name: str) -> None:
    tolerance = tolerance_at(level, dtype)
    assert tolerance is not None
    assert tolerance.line_name == name
    assert tolerance_named(name) == tolerance


def test_a_dtype_without_levels_must_be_equal() -> None:
    assert tolerance_at(5, "int64") is None
    close = within_from(-10, INT)
    assert not close.within(5)
    assert ScoredOutput(INT, equal=True).within(-10)
    assert tolerance_named("max_diff") is None


def test_the_outcome_of_what_was_compared_is_that_of_level_one() -> None:
    assert compared_outcome([within_from(1), within_from(-10)]) == "correct"
    assert compared_outcome([within_from(2), within_from(-10)]) == "accuracy"


def test_all_tolerances_at_level_zero_are_one() -> None:
    assert [tolerance_at(0, dtype) for dtype in EXPONENTS] == [Tolerance(1.0, 1.0)] * 4


@pytest.mark.parametrize(("outcome", "speedup"), [("fine", 1.0), ("correct", -1.0), ("correct", float("nan"))])
def test_an_impossible_sample_is_not_made(outcome: str, speedup: float) -> None:
    with pytest.raises(UsageError, match="sample 'a'"):
        ScoredSample("a", outcome, speedup)
