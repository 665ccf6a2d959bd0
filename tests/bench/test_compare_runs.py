"""Two runs are compared cell by cell: a regression is certain, and nothing compared is never a pass."""

from __future__ import annotations

import csv
import io
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from runs_made import cell, stopped, timing, varied_cells, write_run

from face import (
    BenchCell,
    BenchComparison,
    Report,
    UsageError,
    compare_runs,
    comparison_report,
    formats,
    history_of,
    history_report,
    read_run,
)
from face import bench_compare_command as command

WRONG = cell(outcome="wrong", reason="output y: wrong")
REFUSED = stopped("refused", "no such operator")


def compared(
    place: Path, old: list[BenchCell], new: list[BenchCell], threshold: float = 0.05, **meta: object
) -> BenchComparison:
    before, after = write_run(place / "old", old), write_run(place / "new", new, **meta)
    return compare_runs(read_run(before), read_run(after), threshold=threshold)


def kinds(comparison: BenchComparison) -> dict[str, int]:
    return dict(Counter(change.kind for change in comparison.changes))


def titles(made: Report) -> list[str]:
    return [table.title for table in made.tables]


@pytest.mark.parametrize(
    ("old", "new", "kind", "regressed"),
    [
        (cell(), WRONG, "wrong now", True),
        (cell(), REFUSED, "stopped now", True),
        (cell(), stopped("crashed", "killed by SIGSEGV"), "stopped now", True),
        (REFUSED, WRONG, "wrong now", True),
        (WRONG, REFUSED, "other failure", False),
        (REFUSED, stopped("timeout", "600 s"), "other failure", False),
        (REFUSED, stopped("refused", "for another reason"), "same", False),
        (WRONG, WRONG, "same", False),
        (WRONG, cell(), "right now", False),
        (cell(), stopped("nondeterministic", "eager"), "not judged now", False),
        (stopped("skipped", "no"), REFUSED, "judged now", False),
        (cell(ratio=0.5), cell(ratio=0.7), "slower", True),
        (cell(ratio=0.7), cell(ratio=0.5), "faster", False),
        (cell(ratio=0.5), cell(ratio=0.505), "same", False),
        (cell(ratio=0.5), cell(ratio=0.53), "unsure", False),
        (cell(), cell(outcome="untimed", timing=None), "not timed", False),
        (cell(), replace(cell(), timing=timing(0.5, eager=5e-3)), "same", False),
    ],
)
def test_each_change_has_its_name(tmp_path: Path, old: BenchCell, new: BenchCell, kind: str, regressed: bool) -> None:
    comparison = compared(tmp_path, [old], [new])
    assert (kinds(comparison), comparison.regressed) == ({kind: 1}, regressed)
    assert comparison_report(comparison).answer.startswith("regressed" if regressed else "no regression")


def test_intervals_of_both_runs_count(tmp_path: Path) -> None:
    old, new = replace(cell(), timing=timing(0.5, 0.03)), replace(cell(), timing=timing(0.6, 0.04))
    [change] = compared(tmp_path, [old], [new]).changes
    wide = math.exp(math.hypot(math.log(1.03), math.log(1.04)))
    assert (change.ratio, change.low, change.high) == pytest.approx((1.2, 1.2 / wide, 1.2 * wide))


@pytest.mark.parametrize(("noise", "kind"), [(None, "slower"), (1.0, "slower"), (1.3, "unsure"), (1 / 1.3, "unsure")])
def test_a_change_within_the_noise_is_none(tmp_path: Path, noise: float | None, kind: str) -> None:
    new = replace(cell(), timing=timing(0.6, noise=noise))
    assert kinds(compared(tmp_path, [cell()], [new])) == {kind: 1}


def test_the_threshold_is_the_users(tmp_path: Path) -> None:
    assert not compared(tmp_path, [cell(ratio=0.5)], [cell(ratio=0.6)], threshold=0.3).regressed
    with pytest.raises(UsageError, match="must be a number above 0"):
        compared(tmp_path / "other", [cell()], [cell()], threshold=0)


def test_two_runs_of_the_same_are_no_regression(tmp_path: Path) -> None:
    draw = random.Random(1)
    old = varied_cells(["eager", "inductor"], 40)

    def measured_again(each: BenchCell) -> BenchCell:
        moved = math.exp(draw.gauss(0, 0.008))
        return each if each.timing is None else replace(each, timing=timing(each.timing.ratio * moved))

    comparison = compared(tmp_path, old, list(map(measured_again, old)))
    assert not comparison.regressed
    assert set(kinds(comparison)) <= {"same", "unsure"}


def test_a_process_that_ended_before_any_graph_stopped_them_all(tmp_path: Path) -> None:
    old = write_run(tmp_path / "old", [cell(), cell(graph="pair_0 backward")])
    row = {("inductor", "vision/a"): {"verdict": "failed", "cause": "killed by SIGSEGV"}}
    comparison = compare_runs(read_run(old), read_run(write_run(tmp_path / "new", [], row)))
    assert kinds(comparison) == {"stopped now": 2, "new": 1}
    assert comparison.regressed


def test_cells_of_one_run_alone_are_listed_and_no_regression(tmp_path: Path) -> None:
    comparison = compared(tmp_path, [cell(), cell("b")], [cell(), cell("c")])
    assert (kinds(comparison), comparison.regressed) == ({"same": 1, "missing": 1, "new": 1}, False)
    assert "Only in one run" in titles(comparison_report(comparison))


def test_runs_without_a_common_cell_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no cell in common.* 1 cells of inductor, against 1 cells of xla"):
        compared(tmp_path, [cell()], [cell(compiler="xla")])
    with pytest.raises(UsageError, match="no cell in common"):
        compared(tmp_path / "empty", [], [])


def test_compilations_that_take_longer_are_a_note(tmp_path: Path) -> None:
    old = [cell(cold=4.0, warm=0.1), cell("b", cold=10.0), cell("c", cold=9.0)]
    new = [cell(cold=8.0, warm=0.5), cell("b", cold=14.0), cell("c", cold=2.0)]
    comparison = compared(tmp_path, old, new)
    assert [(each.cell.sample, each.caches, each.new) for each in comparison.compilations] == [
        ("c", "cold", 2.0),
        ("vision/a", "cold", 8.0),
    ]
    assert not comparison.regressed
    assert "Compile times that changed" in titles(comparison_report(comparison))


def test_what_else_differs_is_said_first(tmp_path: Path) -> None:
    comparison = compared(tmp_path, [cell()], [cell()], torch="2.14.1", machine={"cpu": "another"})
    name, said = comparison_report(comparison).facts[0]
    assert name == "note"
    assert "torch 2.13.0, now 2.14.1" in said
    assert "machine cpu 'a cpu', now 'another'" in said
    assert "note" not in dict(comparison_report(compared(tmp_path / "same", [cell()], [cell()])).facts)


def test_the_command_exits_with_one_on_a_regression(tmp_path: Path) -> None:
    old, new = str(write_run(tmp_path / "old", [cell()])), str(write_run(tmp_path / "new", [WRONG]))
    worse, fine = CliRunner().invoke(command, [old, new]), CliRunner().invoke(command, [new, old])
    assert (worse.exit_code, fine.exit_code) == (1, 0)
    assert "regressed: 1 wrong now" in worse.stdout
    assert "output y: wrong" in worse.stdout
    done = CliRunner().invoke(command, [old, new, "-o", str(tmp_path / "c.csv")])
    assert done.exit_code == 1
    assert done.stdout == "regressed: 1 wrong now\n"
    [row] = csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text()))
    assert (row["change"], row["regression"], row["old_outcome"], row["new_outcome"]) == (
        "wrong now",
        "true",
        "faster",
        "wrong",
    )
    assert CliRunner().invoke(command, [old, old, "--threshold", "0"]).exit_code == 2


# ------------------------------------------------------------------ more than two runs


def history_runs(place: Path, *runs: list[BenchCell]) -> list[str]:
    return [str(write_run(place / f"run{number}", cells)) for number, cells in enumerate(runs)]


def test_more_runs_have_a_column_each_and_the_newest_decides(tmp_path: Path) -> None:
    steady = cell("b")
    runs = history_runs(tmp_path, [cell(), steady], [WRONG, steady], [cell(), steady])
    done = CliRunner().invoke(command, [*runs, "--format", "markdown"])
    assert done.exit_code == 0, "the middle run was wrong, and the newest is right again"
    changed = done.stdout.partition("## Cells that changed")[2]
    assert "| sample | compiler | run0 | run1 | run2 |" in changed
    assert "| vision/a pair_0 forward | inductor | faster · 2.00× | wrong | faster · 2.00× |" in changed
    assert "| b pair\\_0" not in changed
    assert "| run0 | run1 | 1 |" in done.stdout
    assert CliRunner().invoke(command, runs[:2]).exit_code == 1
    worse = CliRunner().invoke(command, [runs[0], runs[2], runs[1]])
    assert (worse.exit_code, "newest against the one before**: 1 wrong now" in worse.stdout) == (1, True)


def test_small_steps_add_up(tmp_path: Path) -> None:
    """No run is certainly slower than the one before it; the newest is slower than the oldest."""
    slower = [[replace(cell(), timing=timing(0.5 * 1.04**step, 0.005))] for step in range(4)]
    runs = history_runs(tmp_path, *slower)
    done = CliRunner().invoke(command, [*runs, "-o", str(tmp_path / "h.csv")])
    assert done.exit_code == 1
    rows = list(csv.DictReader(io.StringIO((tmp_path / "h.csv").read_text())))
    assert [row["run"] for row in rows] == ["run0", "run1", "run2", "run3"]
    assert "slower" not in [row["change"] for row in rows]


def test_speedups_of_runs_are_of_the_cells_that_all_have(tmp_path: Path) -> None:
    runs = history_runs(tmp_path, [cell(), cell("b", ratio=0.1)], [cell()], [cell(), cell("c", ratio=0.01)])
    history = history_of([read_run(run) for run in runs])
    made = history_report(history)
    [table] = [table for table in made.tables if table.title == "Runs"]
    place = [column.name for column in table.columns].index("speedup")
    assert [row[place] for row in table.rows] == pytest.approx([2.0, 2.0, 2.0])
    assert [figure.title for figure in made.figures] == ["Speedup by run"]
    assert "</html>" in "".join(formats.html_render(made))


def test_one_run_is_no_comparison(tmp_path: Path) -> None:
    [run] = history_runs(tmp_path, [cell()])
    done = CliRunner().invoke(command, [run])
    assert isinstance(done.exception, UsageError)
    assert "two runs or more" in str(done.exception)
