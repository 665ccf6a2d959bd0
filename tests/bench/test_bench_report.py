"""The report of a bench run: its figures are those of its cells, and it shows whatever they hold as text."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from runs_made import cell, output, stopped, timing, varied_cells, write_run
from snapshots import Snapshots

from face import BenchCell, Report, bench_report, main, page_of, read_log, read_run, write_page

EVIL = "<script>alert('x')</script> ]]> &amp; \"' \x1b[31m\u202e"


def report_on(place: Path, cells: list[BenchCell], **given: Any) -> Report:
    return bench_report(read_run(write_run(place / "run", cells, **given)))


def table(made: Report, title: str) -> list[dict[str, Any]]:
    [found] = [each for each in (*made.tables, made.rows) if each.title == title]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def invoked(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", "report", *map(str, arguments)])


def test_the_report_as_people_and_programs_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshots: Snapshots
) -> None:
    """Shares leave out what was not judged and what has no power; what is not right stands with the worst first, and of
    those the smallest."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    bad = (output("x"), output("y", word="wrong", detail="relative error 0.3"), output("z", word="wrong", detail="far"))
    cells = [
        *(cell(name, f"pair_0 {side}", ratio=0.5) for name in "abc" for side in ("forward", "backward")),
        cell("slower", ratio=2.0),
        cell("slower", "pair_0 backward", ratio=2.0, cold=30.0),
        cell("partly", outputs=(output(), output("z", word="random"))),
        cell("wrong", outcome="wrong", outputs=bad),
        cell("mutates", outcome="wrong", reason="mutated an input", outputs=()),
        stopped("refused", "no operator aten.foo", sample="large", graph="pair_0 backward", steps=70),
        stopped("refused", "no operator aten.bar", sample="small", steps=7),
        stopped("crashed", "", sample="crashes", steps=0),
        cell("still", outputs=(output(power=False),)),
        stopped("nondeterministic", "two eager runs differ", sample="unsteady"),
        stopped("random", "draws", sample="draws"),
        *(cell(name, compiler="eager", ratio=1.0) for name in "abc"),
    ]
    write_run(Path("run"), cells)
    snapshots.check("bench_report", invoked("run").stdout, {})
    assert invoked("run", "-o", "rows.csv").exit_code == 0
    snapshots.check("bench_report_csv", Path("rows.csv").read_text(), {})
    assert "not judged" not in report_on(tmp_path / "all", [cell()]).facts


def test_noise_is_said(tmp_path: Path) -> None:
    cells = [cell(f"v/{n}", timing=timing(noise=1.2 if n == 0 else 1.0)) for n in range(4)]
    said = report_on(tmp_path, cells).facts["noise"]
    assert said == "eager against eager: 1 of 4 called a change (25.0%), median width of the interval 2.0%"
    assert report_on(tmp_path / "b", [cell(timing=timing(noise=None))]).facts["noise"].startswith("not measured")
    control = [cell("a", compiler="eager", timing=timing(0.5, noise=None)), cell("b", timing=timing(noise=None))]
    assert "1 of 1 called a change" in report_on(tmp_path / "c", control).facts["noise"]


@pytest.mark.parametrize(("load", "high"), [(0.9, False), (1.4, False), (3.0, True), (None, False)])
def test_a_busy_machine_is_said(tmp_path: Path, load: float | None, high: bool) -> None:
    said = report_on(tmp_path, [cell(load=load)]).facts.get("load", "")
    assert ("HIGH: 1 of 1 cells over 1.5" in said) == high
    assert bool(said) == (load is not None)
    with_jobs = report_on(tmp_path / "jobs", [cell(load=load)], jobs=3).facts.get("load", "")
    assert "HIGH" not in with_jobs  # of three workers, all is the bench's own


def test_the_picture_has_the_speedups_of_what_is_right(tmp_path: Path) -> None:
    cells = [cell("a", ratio=0.5), cell("b", ratio=2.0), cell("c", outcome="wrong"), cell("a", compiler="/x/y.py:f")]
    [picture] = report_on(tmp_path, cells).pictures
    assert picture.series == {"inductor": [2.0, 0.5], "y.py:f": [2.0]}
    assert report_on(tmp_path / "untimed", [cell(outcome="untimed", timing=None)]).pictures == ()


# ------------------------------------------------------------------ whatever the run holds


def test_strangers_words_stay_text(tmp_path: Path) -> None:
    bad = output(EVIL, word="wrong", detail=EVIL)
    cells = [
        cell(compiler=EVIL, family=EVIL, outcome="wrong", outputs=(bad,), notes=(EVIL,)),
        *(cell(f"s{n}", compiler=EVIL) for n in range(6)),
        stopped("refused", EVIL, sample="x\u202e\x1b[31m", graph=EVIL, compiler=EVIL),
    ]
    made = report_on(tmp_path, cells, machine={"cpu": EVIL}, sources=[EVIL])
    text = "".join(page_of(made)) + invoked(tmp_path / "run").output
    assert text.count("<script>") - invoked(tmp_path / "run").output.count("<script>") == 1
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ([], 3),
        ([stopped("eager failed", "no"), stopped("skipped", "no", sample="b")], 0),
        ([cell(outcome="wrong", timing=None, outputs=())], 0),
    ],
    ids=["empty", "unjudged", "wrong"],
)
def test_every_run_has_a_report_in_every_format(tmp_path: Path, cells: list[BenchCell], code: int) -> None:
    folder = write_run(tmp_path / "run", cells, compilers=["inductor"])
    done = invoked(folder)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (code, "Bench report")
    invoked(folder, "-o", tmp_path / "r.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert sorted((row["sample"], row["outcome"]) for row in rows) == sorted((e.sample, e.outcome) for e in cells)
    assert len([json.loads(line) for line in invoked(folder, "--json").stdout.splitlines()]) == len(cells)
    invoked(folder, "-o", tmp_path / "r.html")
    assert "</html>" in (tmp_path / "r.html").read_text()


def test_a_time_that_is_no_number_costs_its_cell(tmp_path: Path) -> None:
    odd = [cell(timing=timing(float("nan"))), cell("b", timing=timing(float("inf"))), cell("c")]
    folder = write_run(tmp_path / "run", odd, compilers=["inductor"])
    rows = [json.loads(line) for line in invoked(folder, "--json").stdout.splitlines()]
    assert {row["sample"]: row["outcome"] for row in rows} == {"vision/a": "unjudged", "b": "unjudged", "c": "faster"}
    assert all("timing" in row["reason"] for row in rows if row["outcome"] == "unjudged")


def test_a_file_of_cells_answers_other_questions(tmp_path: Path) -> None:
    """fast_p of KernelBench, by the columns of a cell, as docs/compilers.md does it."""
    cells = [cell("a", ratio=1 / 3), cell("b", ratio=1 / 1.2), cell("c", ratio=2.0), cell("d", outcome="wrong")]
    rows = table(report_on(tmp_path, cells), "All cells")
    fast = [row["right"] and row["speedup"] > 1.5 for row in rows]
    assert sum(fast) / len(fast) == 1 / 4
    assert {row["sample"]: row["steps"] for row in rows} == dict.fromkeys("abcd", 20)


def test_parquet_has_every_column(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    folder = write_run(tmp_path / "run", varied_cells(["eager", "xla"]))
    assert invoked(folder, "-o", tmp_path / "r.parquet").exit_code == 0
    found = parquet.read_table(tmp_path / "r.parquet")
    assert (found.column_names, found.num_rows) == (list(bench_report(read_run(folder)).rows.columns), 120)


def test_the_command_writes_logs_and_a_log_has_a_report_with_the_scores(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", varied_cells(["eager", EVIL]))
    assert invoked(folder, "--logs", tmp_path / "logs").stdout == ""
    assert [each.name for each in sorted((tmp_path / "logs").iterdir())] == ["c0.log", "c1.log"]
    assert len(read_log(tmp_path / "logs" / "c1.log")) == 60
    for log in (tmp_path / "logs", tmp_path / "logs" / "c1.log"):
        told = invoked(log).stdout
        assert told.splitlines()[0] == "Bench logs"
        assert "GraphNet's scores" in told


def test_a_run_has_its_page(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", varied_cells(["eager"])))
    assert write_page(run, bench_report(run)) == tmp_path / "run" / "report.html"
    assert "Speedups over samples" in (tmp_path / "run" / "report.html").read_text()


def test_the_command_refuses_what_is_no_run(tmp_path: Path) -> None:
    done = invoked(tmp_path)
    assert (done.exit_code, "no bench.json here" in done.output) == (2, True)
