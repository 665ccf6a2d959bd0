"""The report of a bench run: its figures are those of its cells, and it shows whatever they hold as text."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from runs_made import cell, output, stopped, timing, varied_cells, write_run

from face import REPORTS_FIELDS as FIELDS
from face import (
    BenchCell,
    Report,
    ScoreTerms,
    bench_report,
    formats,
    pictures,
    read_log,
    read_run,
    report_of_logs,
    score_curve,
    scored_samples,
    write_page,
    write_run_log,
)
from face import bench_report_command as command

EVIL = "<script>alert('x')</script> ]]> &amp; \"'"


def report_on(place: Path, cells: list[BenchCell], **given: Any) -> Report:
    return bench_report(read_run(write_run(place / "run", cells, **given)))


def table(made: Report, title: str) -> list[dict[str, Any]]:
    [found] = [each for each in (*made.tables, made.samples) if each.title == title]
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


def invoked(*arguments: object) -> str:
    done = CliRunner().invoke(command, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_outcomes_are_counted_and_shares_leave_out_what_was_not_judged(tmp_path: Path) -> None:
    cells = [
        *(cell(f"v/{n}", ratio=0.5) for n in range(4)),
        cell("v/4", ratio=2.0),
        cell("v/5", outcome="wrong"),
        stopped("refused", "no", sample="v/6"),
        stopped("nondeterministic", "eager", sample="v/7"),
        cell("v/8", outputs=(output(power=False),)),
    ]
    report = report_on(tmp_path, cells)
    answer = "5 of 7 right, 1.52× as fast as eager, 1 wrong, 1 refused, 1 not judged, 1 equal without power"
    assert report.answer.endswith(f": {answer}")
    [row] = table(report, "Outcomes")
    counts = (row["cells"], row["faster"], row["slower"], row["wrong"], row["refused"], row["nondeterministic"])
    assert counts == (9, 5, 1, 1, 1, 1)
    assert (row["right"], row["right and slower"], row["powerless"]) == (5 / 7, 1 / 7, 1)
    assert row["speedup"] == pytest.approx((2**4 / 2) ** 0.2)
    assert row["from"] < row["speedup"] < row["to"]


def test_cells_are_grouped_by_direction_family_and_size(tmp_path: Path) -> None:
    cells = [
        cell("text/a", "pair_0 backward", steps=1000),
        cell("text/a", steps=9),
        cell("vision/a", steps=10, outcome="wrong"),
        stopped("timeout", "600 s", sample="vision/b", steps=0),
    ]
    made = report_on(tmp_path, cells)
    found = {title: table(made, title) for title in ("By direction", "By family", "By size")}
    shares = {title: [(row["group"], row["judged"], row["right"]) for row in rows] for title, rows in found.items()}
    assert shares == {
        "By direction": [("forward", 3, 1 / 3), ("backward", 1, 1.0)],
        "By family": [("text", 2, 1.0), ("vision", 2, 0.0)],
        "By size": [("<10", 1, 1.0), ("10-99", 1, 0.0), ("1000+", 1, 1.0), ("unknown", 1, 0.0)],
    }


def test_costs_are_summed_up(tmp_path: Path) -> None:
    cells = [cell("a", cold=10.0, warm=1.0, peak_bytes=100), cell("b", cold=30.0, warm=None, peak_bytes=300)]
    made = report_on(tmp_path, cells)
    cold, warm = table(made, "Compile times")
    assert (cold["median"], cold["longest"], cold["which"], cold["together"]) == (20.0, 30.0, "b pair_0 forward", 40.0)
    assert (warm["count"], warm["together"]) == (1, 1.0)
    [memory] = table(made, "Peak memory")
    assert (memory["median"], memory["most"]) == (200, 300)


def test_failures_that_differ_in_names_are_one_with_the_smallest_that_shows_it(tmp_path: Path) -> None:
    cells = [
        stopped("refused", "operator 'aten.foo' at node 17", sample="a", steps=70),
        stopped("refused", "operator 'aten.bar' at node 3", sample="b", steps=7),
        stopped("refused", "no such dtype", sample="c", steps=2),
        stopped("crashed", "", sample="d", steps=0),
    ]
    rows = table(report_on(tmp_path, cells), "Failures by reason")
    assert [(row["outcome"], row["graphs"], row["smallest"], row["it said"]) for row in rows] == [
        ("refused", 2, "b pair_0 forward", "operator 'aten.bar' at node 3"),
        ("crashed", 1, "d pair_0 forward", ""),
        ("refused", 1, "c pair_0 forward", "no such dtype"),
    ]


def test_every_wrong_output_is_listed(tmp_path: Path) -> None:
    bad = (output("x"), output("y", word="wrong", detail="relative error 0.3"), output("z", word="wrong", detail="far"))
    cells = [cell(outcome="wrong", outputs=bad), cell("b", outcome="wrong", reason="mutated an input", outputs=())]
    rows = table(report_on(tmp_path, cells), "Wrong answers")
    assert [(row["output"], row["detail"]) for row in rows] == [
        ("cell ", "mutated an input"),
        ("output y", "relative error 0.3"),
        ("output z", "far"),
    ]


def test_what_was_not_judged_is_listed_once(tmp_path: Path) -> None:
    still = (output(power=False),)
    cells = [cell(outputs=still, compiler=name) for name in ("eager", "xla")]
    cells += [stopped("nondeterministic", "two runs", sample="b", compiler=name) for name in ("eager", "xla")]
    rows = table(report_on(tmp_path, cells), "Not judged")
    assert [(row["sample"], row["outcome"], row["compilers"]) for row in rows] == [
        ("b pair_0 forward", "nondeterministic", "eager, xla"),
        ("vision/a pair_0 forward", "powerless", "eager, xla"),
    ]


def test_noise_is_said(tmp_path: Path) -> None:
    cells = [cell(f"v/{n}", timing=timing(noise=1.2 if n == 0 else 1.0)) for n in range(4)]
    said = dict(report_on(tmp_path, cells).facts)["noise"]
    assert said == "eager against eager: 1 of 4 called a change (25.0%), median width of the interval 2.0%"
    assert dict(report_on(tmp_path / "b", [cell(timing=timing(noise=None))]).facts)["noise"].startswith("not measured")
    control = [cell("a", compiler="eager", timing=timing(0.5, noise=None)), cell("b", timing=timing(noise=None))]
    assert "1 of 1 called a change" in dict(report_on(tmp_path / "c", control).facts)["noise"]


@pytest.mark.parametrize(
    ("title", "interpretation", "score"),
    [("S(t)", "default", "s"), ("ES(t), default", "default", "es"), ("ES(t), extended", "extended", "es")],
)
def test_score_tables_are_the_score_curves(tmp_path: Path, title: str, interpretation: str, score: str) -> None:
    run = read_run(write_run(tmp_path / "run", varied_cells(["eager", "xla"])))
    rows = table(bench_report(run), f"{title} by level")
    for name in ("eager", "xla"):
        curve = score_curve(scored_samples(run, name), ScoreTerms(interpretation=interpretation))
        assert [(row["t"], row[name]) for row in rows] == [(point.level, getattr(point, score)) for point in curve]


def test_a_report_of_logs_has_the_scores_and_pictures_of_the_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", varied_cells(["eager", "xla"])))
    for name in ("eager", "xla"):
        write_run_log(run, name, tmp_path / f"{name}.log")
    made = bench_report(run)
    logged = report_of_logs({name: read_log(tmp_path / f"{name}.log") for name in ("eager", "xla")})
    assert table(logged, "S(t) by level") == table(made, "S(t) by level")
    assert [each.svg for each in logged.figures] == [
        each.svg for each in made.figures if each.title != "Outcomes by compiler"
    ]
    assert "Bench logs" in invoked(tmp_path)
    assert "Bench logs" in invoked(tmp_path / "xla.log")


# ------------------------------------------------------------------ pictures

COLORS = re.compile(r"style=|<style|href|onload|url\(")


def drawn(made: Report) -> dict[str, ElementTree.Element]:
    assert not any(COLORS.search(each.svg) for each in made.figures)
    return {each.title: ElementTree.fromstring(each.svg) for each in made.figures}


def texts(svg: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in svg.iter("text")]


def test_curves_and_violins_show_every_compiler(tmp_path: Path) -> None:
    names = [f"compiler_{n}" for n in range(11)]
    found = drawn(report_on(tmp_path, varied_cells(names, 8)))
    assert list(found) == [
        "Outcomes by compiler",
        "S(t)",
        "ES(t), default",
        "ES(t), extended",
        "Speedups",
        "Speedup by size",
    ]
    for svg in found.values():
        assert set(names) <= set(texts(svg))
    lines = [each for each in found["S(t)"].iter("polyline") if (each.get("points") or "").count(",") > 2]
    assert len(lines) == len(names)
    assert len(list(found["Speedups"].iter("polygon"))) == len(names)


def test_a_higher_score_is_drawn_higher(tmp_path: Path) -> None:
    cells = [cell("a", compiler="fast", ratio=0.25), cell("a", compiler="slow", ratio=4.0)]
    svg = drawn(report_on(tmp_path, cells))["S(t)"]
    lines = [each for each in svg.iter("polyline") if (each.get("points") or "").count(",") > 2]
    fast, slow = (float((each.get("points") or "").split()[-1].split(",")[1]) for each in lines)
    assert fast < slow


def test_all_is_drawn_inside_the_picture(tmp_path: Path) -> None:
    cells = [cell(f"s{n}", ratio=10.0**power, steps=1 + n) for n, power in enumerate((-6, -1, 0, 0, 0, 3, 5))]
    for svg in drawn(report_on(tmp_path, cells)).values():
        width, height = float(svg.get("width", 0)), float(svg.get("height", 0))
        places = [pair for each in svg.iter() for pair in (each.get("points") or "").split()]
        for x, y in (map(float, pair.split(",")) for pair in places):
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_few_or_equal_speedups_are_drawn(tmp_path: Path) -> None:
    few = drawn(report_on(tmp_path / "few", [cell("a"), cell("b")]))["Speedups"]
    assert not list(few.iter("polygon"))
    equal = drawn(report_on(tmp_path / "equal", [cell(f"s{n}") for n in range(9)]))["Speedups"]
    assert len(list(equal.iter("polygon"))) == 1
    assert "n = 9" in texts(equal)
    assert pictures({}) == ()


def test_a_speedup_of_nothing_in_a_log_is_drawn_at_the_edge(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", [cell(), cell("b")]))
    first, second = scored_samples(run, "inductor")
    for figure in pictures({"log": (replace(first, speedup=0.0), second)}):
        assert ElementTree.fromstring(figure.svg) is not None


def test_an_untimed_run_has_every_compiler_in_its_picture_and_no_scores(tmp_path: Path) -> None:
    """Scores of a run without times would be those of the wrong compilers alone."""
    cells = [cell("a", outcome="untimed", timing=None), cell("a", compiler="bad", outcome="wrong", timing=None)]
    made = report_on(tmp_path, cells)
    assert [each.title for each in made.figures] == ["Outcomes by compiler"]
    assert {"inductor", "bad", "right", "wrong"} <= set(texts(drawn(made)["Outcomes by compiler"]))
    assert not {"S(t) by level", "Counted in scores", "fast_p"} & {each.title for each in made.tables}
    assert "no cell was timed" in dict(made.facts)["noise"]


def test_names_in_pictures_end_as_they_are(tmp_path: Path) -> None:
    """Functions of one file differ at the end of their names, which a cut would leave out."""
    names = [f"/a/long/folder/of/someone/compilers.py:a_compiler_with_a_name_{n}" for n in range(2)]
    found = drawn(report_on(tmp_path, [cell(f"s{n}", compiler=name) for name in names for n in range(6)]))
    for title in ("Outcomes by compiler", "S(t)", "Speedup by size"):
        assert {f"compilers.py:a_compiler_with_a_name_{n}" for n in range(2)} <= set(texts(found[title]))
        width = float(found[title].get("width", 0))
        for each in found[title].iter("text"):
            if each.get("text-anchor") == "start":
                assert float(each.get("x", 0)) + 6.5 * len(each.text or "") <= width
    lines = "".join(texts(found["Speedups"]))
    assert "compilers.py:a_compiler_with_a_name_1" in lines


def test_the_matrix_has_a_row_for_each_graph(tmp_path: Path) -> None:
    cells = [
        cell("a", ratio=0.5),
        cell("a", compiler="x/y.py:f", outcome="wrong"),
        cell("b", outputs=(output(power=False),)),
    ]
    rows = table(report_on(tmp_path, cells), "Graphs by compilers")
    assert [(row["sample"], row["inductor"], row["y.py:f"]) for row in rows] == [
        ("a pair_0 forward", "faster · 2.00×", "wrong"),
        ("b pair_0 forward", "faster · 2.00×, powerless", ""),
    ]


def test_fast_p_is_the_share_that_is_right_and_so_much_faster(tmp_path: Path) -> None:
    cells = [cell("a", ratio=1 / 3), cell("b", ratio=1 / 1.2), cell("c", ratio=2.0), cell("d", outcome="wrong")]
    cells += [cell("e", outcome="untimed", timing=None), stopped("random", "draws", sample="f")]
    [row] = table(report_on(tmp_path, cells), "fast_p")
    shares = [row[f"fast_{p}"] for p in ("0", "0.5", "0.8", "1", "1.5", "2", "4")]
    assert shares == [3 / 4, 2 / 4, 2 / 4, 2 / 4, 1 / 4, 1 / 4, 0]
    assert (row["cells"], row["right but untimed"]) == (4, 1)


def test_what_was_not_judged_is_said_and_in_no_share(tmp_path: Path) -> None:
    cells = [cell("a", outputs=(output(), output("z", word="random"))), stopped("random", "draws", sample="b")]
    made = report_on(tmp_path, cells)
    [row] = table(made, "Outcomes")
    assert (row["right"], row["random"]) == (1.0, 1)
    [row] = table(made, "Outputs not judged")
    assert (row["outputs"], row["right"], row["random"]) == (2, 1, 1)
    assert dict(made.facts)["not judged"] == "1 of 2 outputs of right cells (1 random)"
    assert "Outputs not judged" not in [each.title for each in report_on(tmp_path / "all", [cell()]).tables]


@pytest.mark.parametrize(("load", "high"), [(0.9, False), (1.4, False), (3.0, True), (None, False)])
def test_a_busy_machine_is_said(tmp_path: Path, load: float | None, high: bool) -> None:
    said = dict(report_on(tmp_path, [cell(load=load)]).facts).get("load", "")
    assert ("HIGH: 1 of 1 cells over 1.5" in said) == high
    assert bool(said) == (load is not None)


# ------------------------------------------------------------------ whatever the run holds


class Page(HTMLParser):
    """The tags of a page, and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]


def test_strangers_words_stay_text(tmp_path: Path) -> None:
    bad = output(EVIL, word="wrong", detail=EVIL)
    cells = [
        cell(compiler=EVIL, family=EVIL, outcome="wrong", outputs=(bad,), notes=(EVIL,)),
        *(cell(f"s{n}", compiler=EVIL) for n in range(6)),
        stopped("refused", EVIL, sample="x\u202e\x1b[31m", graph=EVIL, compiler=EVIL),
    ]
    made = report_on(tmp_path, cells, machine={"cpu": EVIL}, sources=[EVIL])
    made = replace(made, figures=(*made.figures[:-1], replace(made.figures[-1], title=EVIL, note=EVIL)))
    text = "".join(formats.html_render(made))
    page = Page()
    page.feed(text)
    assert page.tags.count("script") == 1
    assert page.tags.count("svg") >= len(made.figures) == 6
    assert "\x1b" not in text
    assert "\u202e" not in text
    drawn(made)
    assert "<script" not in "".join(formats.markdown_render(made)).replace("\\<script", "")
    assert EVIL in texts(drawn(made)["S(t)"])[-1] or "…" in texts(drawn(made)["S(t)"])[-1]


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [stopped("eager failed", "no"), stopped("skipped", "no", sample="b")],
        [cell(outcome="wrong", timing=None, outputs=())],
    ],
    ids=["empty", "unjudged", "wrong"],
)
def test_every_run_has_a_report_in_every_format(tmp_path: Path, cells: list[BenchCell]) -> None:
    folder = write_run(tmp_path / "run", cells, compilers=["inductor"])
    assert "# Bench report" in invoked(folder)
    rows = list(csv.DictReader(io.StringIO(invoked(folder, "--format", "csv"))))
    assert sorted((row["sample"], row["outcome"]) for row in rows) == sorted((e.sample, e.outcome) for e in cells)
    assert len([json.loads(line) for line in invoked(folder, "--json").splitlines()]) == len(cells)
    invoked(folder, "-o", tmp_path / "r.html")
    assert "</html>" in (tmp_path / "r.html").read_text()


def test_a_time_that_is_no_number_costs_its_cell(tmp_path: Path) -> None:
    odd = [cell(timing=timing(float("nan"))), cell("b", timing=timing(float("inf"))), cell("c")]
    folder = write_run(tmp_path / "run", odd, compilers=["inductor"])
    rows = [json.loads(line) for line in invoked(folder, "--json").splitlines()]
    assert {row["sample"]: row["outcome"] for row in rows} == {"vision/a": "unjudged", "b": "unjudged", "c": "faster"}
    assert all("timing" in row["reason"] for row in rows if row["outcome"] == "unjudged")
    assert "# Bench report" in invoked(folder)
    assert len(list(csv.DictReader(io.StringIO(invoked(folder, "--format", "csv"))))) == 3
    invoked(folder, "-o", tmp_path / "r.html")
    assert "</html>" in (tmp_path / "r.html").read_text()


def test_parquet_has_every_column(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    folder = write_run(tmp_path / "run", varied_cells(["eager", "xla"]))
    invoked(folder, "-o", tmp_path / "r.parquet")
    found = parquet.read_table(tmp_path / "r.parquet")
    assert found.column_names == [name for name, _ in FIELDS]
    assert found.num_rows == 120


def test_the_command_writes_logs_and_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", varied_cells(["eager", EVIL]))
    assert invoked(folder, "--logs", tmp_path / "logs") == ""
    assert [each.name for each in sorted((tmp_path / "logs").iterdir())] == ["c0.log", "c1.log"]
    assert len(read_log(tmp_path / "logs" / "c1.log")) == 60
    assert "<figure" in write_page(read_run(folder)).read_text()
    assert (folder / "report.html").exists()


def test_the_command_refuses_what_is_no_run(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(tmp_path)])
    assert done.exit_code != 0
    assert "no bench.json here" in str(done.exception)
