"""A bench run is read as it lies: finished, in progress, with processes that were ended; and its cells are scored."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runs_made import cell, output, stopped, timing, varied_cells, write_run

from face import (
    BenchCell,
    SampleError,
    ScoreTerms,
    UsageError,
    read_log,
    read_run,
    score_curve,
    scored_cell,
    scored_samples,
    size_class,
    write_run_log,
)

A = ("inductor", "vision/a")

INF = "relative error inf"


def ended(place: Path, lines: list[str], cells: tuple[BenchCell, ...] = (), **row: object) -> tuple[BenchCell, ...]:
    """The cells of a sample whose process was ended."""
    given = {"verdict": "failed", "cause": "killed by SIGSEGV", "detail": "", "stage": "bench", **row}
    return read_run(write_run(place, cells, {A: given}, {A: lines})).cells


def test_a_run_has_the_cells_that_were_written(tmp_path: Path) -> None:
    cells = [cell(), cell(graph="pair_0 backward"), cell(compiler="eager"), cell("text/ü x")]
    run = read_run(write_run(tmp_path / "run", cells))
    assert set(map(repr, run.cells)) == set(map(repr, cells))
    assert (run.torch, run.machine["cores"], run.unfinished) == ("2.13.0", 2, 0)
    assert [(each.name, each.versions) for each in run.compilers] == [
        ("inductor", (("torch", "2.13.0"),)),
        ("eager", (("torch", "2.13.0"),)),
    ]
    assert len(run.of("eager")) == 1
    with pytest.raises(UsageError, match=r"'xla' is not in this run, which has inductor, eager"):
        run.of("xla")


@pytest.mark.parametrize(
    ("cause", "outcome"),
    [
        ("timeout", "timeout"),
        ("out of memory", "out of memory"),
        ("killed by SIGSEGV", "crashed"),
        ("exit 134", "crashed"),
        ("ImportError", "skipped"),
    ],
)
def test_the_graph_at_work_is_named_where_a_process_was_ended(tmp_path: Path, cause: str, outcome: str) -> None:
    begun = json.dumps({"begun": "pair_0 backward", "stage": "running"})
    first, last = ended(tmp_path / "run", [begun], (cell(),), cause=cause, detail="why")
    assert first == cell()
    assert (last.graph, last.direction, last.outcome) == ("pair_0 backward", "backward", outcome)
    assert last.reason == f"running: {cause}: why"


def test_a_graph_that_was_finished_is_not_blamed_for_the_end(tmp_path: Path) -> None:
    begun = [json.dumps({"begun": "pair_0 forward"}), json.dumps(cell().to_json())]
    first, last = ended(tmp_path / "run", begun)
    assert first == cell()
    assert (last.graph, last.outcome, last.reason) == ("", "skipped", "after the last cell: killed by SIGSEGV")


def test_a_process_that_ended_before_any_graph_is_no_failure_in_scores(tmp_path: Path) -> None:
    [only] = ended(tmp_path / "run", [])
    assert (only.graph, only.outcome) == ("", "crashed")
    assert only.reason == "no graph had begun: killed by SIGSEGV"
    assert not scored_cell(only).measured


def test_a_sample_whose_graph_stopped_has_that_cell_alone(tmp_path: Path) -> None:
    slow = stopped("timeout", "still at work after 600 s")
    assert ended(tmp_path / "run", [], (slow, cell(graph="pair_0 backward")), cause="timeout") == (
        slow,
        cell(graph="pair_0 backward"),
    )


def test_the_ledger_names_the_sample_and_other_compilers_the_size(tmp_path: Path) -> None:
    unnamed = stopped("crashed", "killed by SIGSEGV", sample="", family="", steps=0)
    lines = {("xla", "vision/a"): [json.dumps(unnamed.to_json())]}
    run = read_run(write_run(tmp_path / "run", [cell()], {}, lines))
    assert [(each.sample, each.family, each.steps) for each in run.cells] == [("vision/a", "vision", 20)] * 2


def test_a_cut_off_last_line_is_left_out_and_a_damaged_one_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [], {A: {"verdict": "failed", "cause": "timeout"}}, {A: [""]})
    file = folder / "c0" / "vision" / "a" / "cells.jsonl"
    file.write_text(json.dumps({"begun": "pair_0 forward"}) + '\n{"sample": "vis')
    assert [each.outcome for each in read_run(folder).cells] == ["timeout"]
    file.write_text('{"sample"\n' + json.dumps({"begun": "pair_0 forward"}) + "\n")
    damaged = next(each for each in read_run(folder).cells if each.outcome == "unjudged")
    assert "cells.jsonl:1: is not a cell" in damaged.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"outcome": "splendid"}, "'splendid' is not one of"),
        ({"steps": "many"}, "steps is of type str, and must be int"),
    ],
)
def test_a_damaged_cell_costs_that_cell_and_not_the_run(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    forged = json.dumps({**cell().to_json(), **change})
    folder = write_run(tmp_path / "run", [cell()], {}, {("inductor", "z"): [forged]})
    first, last = read_run(folder).cells
    assert first == cell()
    assert (last.sample, last.outcome) == ("z", "unjudged")
    assert reason in last.reason


def test_the_later_of_two_cells_of_a_graph_counts(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", [stopped("timeout", "slow"), cell()]))
    assert run.cells == (cell(),)


def test_a_run_in_progress_says_how_much_is_left(tmp_path: Path) -> None:
    rows = {("inductor", "b"): {"state": "todo"}}
    run = read_run(write_run(tmp_path / "run", [cell()], rows, compilers=["inductor", "later"], finished=None))
    assert (run.cells, run.unfinished, run.finished) == ((cell(),), 1, None)
    (tmp_path / "run" / "c1" / "ledger.sqlite").unlink()
    assert read_run(tmp_path / "run").of("later") == ()


def test_what_is_no_run_or_of_another_format_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no bench\.json here; name the RUN"):
        read_run(tmp_path)
    folder = write_run(tmp_path / "run", [cell()], format=3)
    with pytest.raises(UsageError, match=r"format 3, and this Backprint reads format 2; .*bench again"):
        read_run(folder)
    (folder / "bench.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        read_run(folder)
    (folder / "bench.json").write_text('{"format": 2, "compilers": [{"name": "x"}]}')
    with pytest.raises(SampleError, match="is damaged: KeyError: 'folder'"):
        read_run(folder)
    (folder / "bench.json").write_text('{"format": 2, "compilers": [{"name": "x", "folder": "../y"}]}')
    with pytest.raises(UsageError, match="which is not one in the run"):
        read_run(folder)


# ------------------------------------------------------------------ cells as scored samples


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (cell(), "correct"),
        (cell(ratio=2.0), "correct"),
        (cell(outputs=(output(level=3),)), "accuracy"),
        (cell(outcome="wrong", outputs=(output(level=2, word="wrong"),)), "accuracy"),
        (cell(outcome="wrong", outputs=(output(word="wrong", level=9, compiled_dtype="float64"),)), "type_mismatch"),
        (cell(outcome="wrong", outputs=(output(word="wrong", level=9, compiled_shape=(16,)),)), "shape_mismatch"),
        (
            cell(outcome="wrong", outputs=(output(word="wrong", level=9, detail="relative error inf"),)),
            "value_mismatch",
        ),
        (stopped("wrong", "2 results where eager gives 3"), "shape_mismatch"),
        (stopped("refused", "no such operator"), "compile_fail"),
        (stopped("failed", "RuntimeError: no"), "runtime_fail"),
        (stopped("crashed", "killed by SIGSEGV"), "compile_fail"),
        (stopped("crashed", "compile: killed by SIGSEGV"), "compile_fail"),
        (stopped("crashed", "running: killed by SIGSEGV"), "runtime_fail"),
        (stopped("timeout", "timing: 600 s passed"), "runtime_fail"),
        (stopped("timeout", "timeout: 600 s passed"), "compile_fail"),
        (stopped("out of memory", "while judging: 4 GiB"), "runtime_fail"),
        (stopped("eager failed", "no"), "eager_fail"),
        (stopped("nondeterministic", "no"), "unmeasured"),
        (stopped("skipped", "no"), "unmeasured"),
        (cell(outcome="untimed", timing=None, reason="too short"), "unmeasured"),
        (cell(outputs=(output(word="random"),)), "unmeasured"),
        (cell(timing=timing(float("inf"))), "unmeasured"),
    ],
)
def test_every_outcome_is_one_of_graphnets(made: BenchCell, outcome: str) -> None:
    scored = scored_cell(made)
    assert (scored.outcome, scored.measured) == (outcome, outcome != "unmeasured")
    assert scored.speedup == (1 / made.timing.ratio if outcome in ("correct", "accuracy") and made.timing else None)


def test_what_is_wrong_and_untimed_is_right_at_no_level() -> None:
    scored = scored_cell(cell(outcome="wrong", timing=None, outputs=(output(), output(level=1, word="wrong"))))
    assert scored.measured
    assert not any(scored.right_at(level) for level in range(-10, 6))


def test_a_graph_without_power_is_left_out_of_the_scores_of_all_compilers(tmp_path: Path) -> None:
    still = cell(outputs=(output(power=False),))
    refused = stopped("refused", "no", compiler="xla")
    run = read_run(write_run(tmp_path / "run", [still, refused, cell("vision/b"), cell("vision/b", compiler="xla")]))
    assert [each.name for name in ("inductor", "xla") for each in scored_samples(run, name)] == [
        "vision/b pair_0 forward"
    ] * 2


@pytest.mark.parametrize(
    ("steps", "name"), [(0, "unknown"), (9, "<10"), (10, "10-99"), (999, "100-999"), (1000, "1000+")]
)
def test_sizes_are_classes(steps: int, name: str) -> None:
    assert size_class(cell(steps=steps)) == name


@pytest.mark.parametrize("interpretation", ["default", "extended"])
def test_a_log_of_a_run_has_the_scores_of_the_run(tmp_path: Path, interpretation: str) -> None:
    odd = [
        cell("a b/[Processing] ü", outcome="wrong", outputs=(output(word="wrong", level=9, compiled_dtype="float64"),)),
        cell("text/inf", outcome="wrong", outputs=(output(word="wrong", level=9, detail="relative error inf"),)),
        cell("text/shape", outcome="wrong", outputs=(output(word="wrong", level=9, compiled_shape=(2,)),)),
        cell("text/int", outputs=(output(dtype="int64", level=-11), output(dtype="NoneType", level=-11, shape=()))),
        cell("text/untimed", outcome="wrong", timing=None, outputs=(output(level=0, word="wrong"),)),
        stopped("wrong", "2 results where eager gives 3", sample="text/count"),
        stopped("eager failed", "Error: [Speedup][e2e]: 9", sample="text/eager"),
    ]
    run = read_run(write_run(tmp_path / "run", [*varied_cells(["inductor"], 30), *odd]))
    samples = scored_samples(run, "inductor")
    write_run_log(run, "inductor", tmp_path / "run.log")
    terms = ScoreTerms(interpretation=interpretation)
    direct, logged = score_curve(samples, terms), score_curve(read_log(tmp_path / "run.log"), terms)
    assert len({round(point.s, 6) for point in direct}) > 5
    for point, other in zip(direct, logged, strict=True):
        assert (other.s, other.es) == pytest.approx((point.s, point.es), rel=1e-12)
    known = {each.name: each.outcome for each in samples}
    assert {each.name: each.outcome for each in read_log(tmp_path / "run.log")} == known
    assert {"value_mismatch", "type_mismatch", "shape_mismatch", "unmeasured"} < set(known.values())


def test_reading_and_reporting_load_no_torch(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", varied_cells(["eager", "inductor"]))
    text = (
        "import sys; from backprint.tools.bench.reports import bench_report;"
        "from backprint.tools.bench.runs import read_run; from backprint.tools.bench.compare import compare_runs;"
        "run = read_run(sys.argv[1]); bench_report(run);"
        "compare_runs(run, run); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_ratio_of_an_unjudged_cell_counts_in_no_score() -> None:
    assert scored_cell(replace(cell(), outcome="nondeterministic")).speedup is None
