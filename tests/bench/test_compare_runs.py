"""Two runs are compared cell by cell: a regression is certain, and nothing compared is never a pass."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from runs_made import cell, stopped, timing, varied_cells, write_run
from snapshots import Snapshots

from face import (
    BenchCell,
    BenchComparison,
    BenchHistory,
    Table,
    UsageError,
    compare_runs,
    history_of,
    history_report,
    main,
    page_of,
    read_run,
)

WRONG = cell(outcome="wrong", reason="output y: wrong")
REFUSED = stopped("refused", "no such operator")


def compared(
    place: Path, old: list[BenchCell], new: list[BenchCell], threshold: float = 0.05, **meta: object
) -> BenchComparison:
    before, after = write_run(place / "old", old), write_run(place / "new", new, **meta)
    return compare_runs(read_run(before), read_run(after), threshold=threshold)


def kinds(comparison: BenchComparison) -> dict[str, int]:
    return dict(Counter(change.kind for change in comparison.changes))


def history(place: Path, *runs: list[BenchCell], **meta: object) -> BenchHistory:
    """Runs from the oldest to the newest, which has the facts that are given."""
    folders = [write_run(place / f"run{number}", cells) for number, cells in enumerate(runs[:-1])]
    folders.append(write_run(place / f"run{len(runs) - 1}", runs[-1], **meta))
    return history_of([read_run(folder) for folder in folders])


def reported(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", "report", *map(str, arguments)])


def rows(made: Table) -> list[dict[str, Any]]:
    return [dict(zip(made.columns, row, strict=True)) for row in made.rows]


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
    assert history_report(history(tmp_path, [old], [new])).answer.startswith("regressed" if regressed else "no regr")


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
    assert kinds(comparison) == {"stopped now": 2}
    assert comparison.regressed


def test_graphs_of_a_process_that_once_ended_before_any_are_right_now(tmp_path: Path) -> None:
    row = {("inductor", "vision/a"): {"verdict": "failed", "cause": "killed by SIGSEGV"}}
    new = [cell(), replace(WRONG, graph="pair_0 backward")]
    runs = [read_run(write_run(tmp_path / "a", [], row)), read_run(write_run(tmp_path / "b", new))]
    assert kinds(compare_runs(*runs)) == {"right now": 1, "wrong now": 1}
    report = history_report(history_of(runs))
    assert report.answer == "regressed: 1 wrong now since a"
    named = [(row["sample"], row["old"], row["change"]) for row in rows(report.tables[1])]
    assert named == [
        ("vision/a pair_0 backward", "crashed", "wrong now"),
        ("vision/a pair_0 forward", "crashed", "right now"),
    ]
    fine = read_run(write_run(tmp_path / "c", [cell()]))
    assert history_report(history_of([runs[0], fine])).answer == "no regression: nothing became worse since a"


def test_cells_of_one_run_alone_are_listed_and_no_regression(tmp_path: Path) -> None:
    comparison = compared(tmp_path, [cell(), cell("b")], [cell(), cell("c")])
    assert (kinds(comparison), comparison.regressed) == ({"same": 1, "missing": 1, "new": 1}, False)
    made = history_report(history(tmp_path, [cell(), cell("b")], [cell(), cell("c")]))
    assert made.answer == "no regression: 1 missing since run0"
    assert [(row["sample"], row["change"]) for row in rows(made.tables[1])] == [("b pair_0 forward", "missing")]


def test_runs_without_a_common_cell_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no cell in common.* 1 cells of inductor, against 1 cells of xla"):
        compared(tmp_path, [cell()], [cell(compiler="xla")])
    with pytest.raises(UsageError, match="no cell in common"):
        compared(tmp_path / "empty", [], [])


def test_what_else_differs_is_said_first(tmp_path: Path) -> None:
    facts = history_report(history(tmp_path, [cell()], [cell()], torch="2.14.1", machine={"cpu": "another"})).facts
    assert next(iter(facts)) == "note"
    assert "torch 2.13.0, now 2.14.1" in facts["note"]
    assert "machine cpu 'a cpu', now 'another'" in facts["note"]
    assert "note" not in history_report(history(tmp_path / "same", [cell()], [cell()])).facts


def test_the_report_of_two_runs_as_people_and_programs_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshots: Snapshots
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    old = [cell("a"), cell("b", load=1.0), cell("c", outcome="wrong"), cell("d"), cell("e")]
    new = [
        WRONG,
        stopped("refused", "no such operator", sample="d"),
        cell("a", ratio=0.7),
        cell("b", load=2.0),
        cell("c"),
        cell("e", ratio=0.53),
    ]
    write_run(Path("monday"), [cell(), *old])
    write_run(Path("tuesday"), new)
    done = reported("monday", "tuesday")
    assert done.exit_code == 1
    snapshots.check("bench_history", done.stdout, {})
    assert reported("monday", "tuesday", "-o", "rows.csv").stdout == f"{done.stdout.splitlines()[1]}\n"
    snapshots.check("bench_history_csv", Path("rows.csv").read_text(), {})


def test_the_command_exits_with_one_on_a_regression(tmp_path: Path) -> None:
    old, new = write_run(tmp_path / "old", [cell()]), write_run(tmp_path / "new", [WRONG])
    assert (reported(old, new).exit_code, reported(new, old).exit_code, reported(new).exit_code) == (1, 0, 0)


def test_runs_that_have_no_cell_in_common_were_not_looked_at(tmp_path: Path) -> None:
    old, new = write_run(tmp_path / "old", [cell()]), write_run(tmp_path / "new", [cell(compiler="xla")])
    done = reported(old, new)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "no cell in common" in done.stderr
    assert reported(old, old, "--threshold", "0").exit_code == 2
    assert reported(old, tmp_path).exit_code == 2
    assert reported(old, new, "--logs", tmp_path / "logs").exit_code == 2


# ------------------------------------------------------------------ more than two runs


def test_the_newest_of_several_runs_decides(tmp_path: Path) -> None:
    steady = cell("b")
    runs = [write_run(tmp_path / f"run{n}", [own, steady]) for n, own in enumerate((cell(), WRONG, cell()))]
    assert reported(*runs).exit_code == 0, "the middle run was wrong, and the newest is right again"
    worse = reported(runs[0], runs[2], runs[1])
    assert worse.exit_code == 1
    assert worse.stdout.splitlines()[1] == "regressed: 1 wrong now since run2; 1 wrong now since run0"


def test_small_steps_add_up(tmp_path: Path) -> None:
    """No run is certainly slower than the one before it; the newest is slower than the oldest."""
    slower = [[replace(cell(), timing=timing(0.5 * 1.04**step, 0.005))] for step in range(4)]
    found = history(tmp_path, *slower)
    made = history_report(found)
    assert found.regressed
    assert made.answer == "regressed: nothing became worse since run2; 1 slower since run0"
    assert [row["run"] for row in rows(made.rows)] == ["run0", "run1", "run2", "run3"]
    assert "slower" not in [row["change"] for row in rows(made.rows)]


def test_speedups_of_runs_are_of_the_cells_that_all_have(tmp_path: Path) -> None:
    made = history_report(history(tmp_path, [cell(), cell("b", ratio=0.1)], [cell()], [cell(), cell("c", ratio=0.01)]))
    assert [row["speedup"] for row in rows(made.tables[0])] == pytest.approx([2.0, 2.0, 2.0])
    [picture] = made.pictures
    assert picture.names == ("run0", "run1", "run2")
    assert picture.series["inductor"] == pytest.approx([2.0, 2.0, 2.0])
    assert "Speedup by run" in "".join(page_of(made))


def test_one_run_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two runs or more"):
        history_of([read_run(write_run(tmp_path / "run", [cell()]))])
