"""Every report begins with its answer, and names no path of the machine that made it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from runs_made import cell, stopped, write_run
from subjects.ledgers import ledger

import backprint as bp
from face import (
    Report,
    Table,
    bench_report,
    history_of,
    history_report,
    read_run,
    report,
    report_of_logs,
    shared,
    without_paths,
    write_report,
)

LOG = """[Processing] {place}/net
[Config] model: {place}/net
[Result] status: failed
[Fail due to {place}/compiler.py: no operator]
"""


def corpus(place: Path) -> Report:
    rows = [
        {"id": "a"},
        {"id": "b", "verdict": "failed", "cause": "crashed", "detail": f"{place}/elsewhere/net.py:3: no"},
        {"id": "c", "verdict": "wrong", "detail": f"in {place}/run/samples/c", "notes": [f"see {place}/notes/c.txt"]},
    ]
    return report(ledger(place / "run", rows, source=str(place / "models")), base=place / "run")


def bench(place: Path) -> Report:
    cells = [cell("a"), stopped("crashed", f"{place}/compiler.py died", sample="b"), cell("c", outcome="wrong")]
    cells += [cell("a", compiler=f"{place}/own/mine.py:compile"), cell("a", compiler=f"{place}/other/mine.py:compile")]
    return bench_report(read_run(write_run(place / "run", cells, sources=[str(place / "models")])))


def history(place: Path) -> Report:
    runs = [
        read_run(write_run(place / "week" / name / "run", [cell("a"), cell("b", outcome=outcome)]))
        for name, outcome in (("monday", "faster"), ("tuesday", "wrong"))
    ]
    return history_report(history_of(runs))


def logs(place: Path) -> Report:
    (place / "run").mkdir(parents=True)
    log = place / "run" / "c0.log"
    log.write_text(LOG.format(place=place))
    return report_of_logs(log)


KINDS: dict[str, tuple[Callable[[Path], Report], str]] = {
    "corpus": (corpus, "1 of 3 samples are good. Not good: 1 crashed; 1 wrong."),
    "bench": (bench, "inductor: 1 of 3 right"),
    "history": (history, "regressed: 1 wrong now"),
    "logs": (logs, "0 of 1 samples of c0 are correct"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_begins_with_the_answer_and_names_no_place_of_this_machine(tmp_path: Path, kind: str) -> None:
    make, answer = KINDS[kind]
    place = tmp_path / "somebodys home"
    page = tmp_path / "run.html"
    write_report(make(place), "html", page)
    text = page.read_text()
    assert str(tmp_path) not in html.unescape(text)
    assert re.search(r"(?<![\w:/.~%<-])/(tmp|root|home)/", html.unescape(text)) is None
    body = text[text.index("<body>") :]
    first = re.search(r"<h1>[^<]*</h1>\s*<p class=\"answer\">([^<]*)</p>", body)
    assert first is not None
    assert html.unescape(first[1]).startswith(answer), first[1]


def test_a_row_for_programs_keeps_what_was_measured(tmp_path: Path) -> None:
    write_report(corpus(tmp_path), "json", tmp_path / "rows.jsonl")
    assert f"{tmp_path}/elsewhere/net.py:3: no" in (tmp_path / "rows.jsonl").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/me/run/samples/mlp: no", "samples/mlp: no"),
        ("/home/me/run", "run"),
        ("at /home/other/net.py:12, in f", "at net.py:12, in f"),
        ("('/a/b/c.py', 3)", "('c.py', 3)"),
        ("/home/other/my models/net.py:12", "net.py:12"),
        ("'/home/other/my models/net.py' is missing", "'net.py' is missing"),
        ("/home/me/run/my samples/mlp: no", "my samples/mlp: no"),
        ("in /home/other/net and nothing else", "in net and nothing else"),
        ("https://example.org/a/b and a/b/c and 1/2 and /x", "https://example.org/a/b and a/b/c and 1/2 and /x"),
    ],
)
def test_a_path_is_relative_to_the_report_or_the_last_name(text: str, expected: str) -> None:
    assert without_paths(text, Path("/home/me/run")) == expected


def test_a_path_with_a_blank_that_is_on_this_machine_is_known_in_the_middle_of_a_text(tmp_path: Path) -> None:
    place = tmp_path / "my old models"
    place.mkdir()
    text = f"captured from {place}/net.py and {place} in 3 s"
    assert without_paths(text, tmp_path / "run") == "captured from net.py and my old models in 3 s"
    assert without_paths(text, place) == "captured from net.py and my old models in 3 s"
    assert without_paths(f"see {place}/sub/net.py", place) == "see sub/net.py"


def test_files_of_one_name_in_different_folders_keep_different_names_and_curves(tmp_path: Path) -> None:
    places = [f"{tmp_path}/my {name}/mine.py:compile" for name in ("own", "other")]
    cells = [cell("a", compiler=place) for place in places]
    report = shared(bench_report(read_run(write_run(tmp_path / "run", cells))), tmp_path / "page")
    for picture in report.pictures:
        named = [*picture.series, *picture.names]
        assert sum("mine.py" in name for name in named) == len({name for name in named if "mine.py" in name})
    text = repr([list(report.rows.rows), [list(table.rows) for table in report.tables]])
    assert "my own/mine.py:compile" in text
    assert "my other/mine.py:compile" in text
    assert str(tmp_path) not in text


def test_names_have_as_much_of_the_end_of_a_path_as_tells_them_apart(tmp_path: Path) -> None:
    places = ["/a/x/c.py", "/b/x/c.py", "/b/y/c.py", "/b/d.py", f"{tmp_path}/e.py", "/b/e.py", "/b/x/c.py"]
    table = Table("", {"place": "text"}, [(f"in {place}: no",) for place in places])
    found = [row[0][3:-4] for row in shared(Report("", "", (), table), tmp_path).rows.rows]
    assert found == ["a/x/c.py", "b/x/c.py", "y/c.py", "d.py", "e.py", "b/e.py", "b/x/c.py"]


def test_a_page_of_a_sample_and_of_a_difference_names_no_place(tmp_path: Path) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    samples = [tmp_path / "sin", tmp_path / "cos"]
    for place, function in zip(samples, (torch.sin, torch.cos), strict=True):
        bp.capture(lambda x, function=function: function(x).sum(), x, name=place.name).save(place)
    before, after = map(bp.load, samples)
    before.view(tmp_path / "page.html")
    bp.diff.compare(before, after).view(tmp_path / "diff.html")
    for page in (tmp_path / "page.html", tmp_path / "diff.html"):
        assert str(tmp_path) not in page.read_text()
