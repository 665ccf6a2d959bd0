"""Operators in a corpus report: what the ledger counted, what is read where it counted nothing, links to samples."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
from subjects.ledgers import ledger, many
from test_report import called, table

import backprint as bp
from face import NAME, Report, RunView, UsageError, operator_calls, report

MM = {"forward aten.mm.default float32": 3, "backward aten.mm.default float32": 6, "forward aten.relu.default bool": 1}
HALF = {"forward aten.mm.default float16": 2, "forward aten._to_copy.default float32 -> float16": 1}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Two samples with counts, and one that failed."""
    rows = [
        {"id": "vision/a", "operators": MM},
        {"id": "vision/b", "operators": HALF},
        {"id": "text/c", "verdict": "failed", "forward_hash": "", "operators": None},
    ]
    return ledger(tmp_path / "out", rows)


def captured(folder: Path) -> bp.Capture:
    """Save a small sample."""
    layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    made = bp.capture(layer, torch.randn(2, 3))
    bp.save(made, folder)
    return made


def test_operators_have_calls_overloads_dtypes_and_samples(out: Path) -> None:
    made = report(RunView(out))
    first, *_ = table(made, "Operators")
    assert first == {
        "operator": "aten.mm",
        "overload": "default",
        "dtypes": "float32 (9); float16 (2)",
        "calls": 11,
        "forward": 5,
        "backward": 6,
        "in samples": 2,
        "share of samples": 1.0,
        "which": ("vision/a", "vision/b"),
    }
    dtypes = {row["dtype"]: (row["calls"], row["overloads"], row["in samples"]) for row in table(made, "Dtypes")}
    assert dtypes == {"float32": (10, 2, 2), "float16": (3, 2, 1), "bool": (1, 1, 1)}
    assert dict(made.facts)["operators"] == "3 in 3 overloads; 13 calls, 7 forward and 6 backward"
    assert "operators not counted" not in dict(made.facts)


def test_a_row_for_each_operator_names_every_sample_in_files(tmp_path: Path) -> None:
    rows = [{"id": f"s{number:02}", "operators": MM} for number in range(12)]
    out = ledger(tmp_path / "out", rows)
    [shown] = [line for line in called(out).splitlines() if line.startswith("| aten.mm ")]
    assert shown.endswith("| s00, s01, s02 and 9 more |")
    found = list(csv.DictReader(io.StringIO(called(out, "--format", "csv", "--rows", "operator"))))
    assert [row["operator"] for row in found] == ["aten.mm", "aten.relu"]
    assert json.loads(found[0]["samples"]) == [row["id"] for row in rows]
    assert json.loads(called(out, "--rows", "operator", "--json").splitlines()[0])["dtypes"] == {"float32": 108}


def test_parquet_has_operators_of_samples_and_samples_of_operators(out: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    called(out, "-o", tmp_path / "s.parquet")
    by = {row["id"]: row for row in parquet.read_table(tmp_path / "s.parquet").to_pylist()}
    assert {item["name"]: item["value"] for item in by["vision/a"]["operators"]} == MM
    called(out, "--rows", "operator", "-o", tmp_path / "o.parquet")
    [mm] = [row for row in parquet.read_table(tmp_path / "o.parquet").to_pylist() if row["operator"] == "aten.mm"]
    dtypes = {item["name"]: item["value"] for item in mm["dtypes"]}
    assert (mm["calls"], mm["samples"], dtypes) == (11, ["vision/a", "vision/b"], {"float32": 9, "float16": 2})


@pytest.mark.slow
def test_a_run_counts_what_its_samples_call(tmp_path: Path) -> None:
    made = captured(tmp_path / "src" / "one")
    run = bp.corpus.run("verify", tmp_path / "src", tmp_path / "out", jobs=1)
    [row] = run.rows()
    pair = made.pairs[0]
    assert pair.backward is not None
    for side, graph in (("forward", pair.forward), ("backward", pair.backward)):
        own = Counter(step.target for step in graph.steps if step.target != "operator.getitem" and not step.is_guard)
        counted: Counter[str] = Counter()
        for key, count in row["operators"].items():
            if key.startswith(side):
                counted[key.split(" ")[1]] += count
        assert counted == own


def test_dtypes_are_those_that_a_call_takes_and_returns() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, 0.0).half().sum()

    calls = operator_calls(bp.capture(program, torch.randn(4)).pairs[0].forward)
    assert calls["aten.gt.Scalar", "float32 -> bool"] == 1
    assert calls["aten._to_copy.default", "float32 -> float16"] == 1
    assert calls["aten.sum.default", "float16"] == 1


# ------------------------------------------------------------------ ledgers without counts


def test_samples_without_counts_are_said(tmp_path: Path) -> None:
    out = ledger(tmp_path / "out", [{"id": "a", "operators": None}])
    before = (out / NAME).read_bytes()
    said = dict(report(RunView(out)).facts)["operators not counted"]
    assert said.startswith("0 of 1 samples with graphs are counted; the others have no counts in this ledger")
    assert (out / NAME).read_bytes() == before


@pytest.mark.slow
def test_ten_thousand_samples_with_counts_are_reported_in_seconds(tmp_path: Path) -> None:
    counts = {f"forward aten.op{number}.default float32": number + 1 for number in range(80)}
    out = ledger(tmp_path / "out", [row | {"asks": [], "operators": counts} for row in many(10_000)])
    [first, *_] = table(report(RunView(out)), "Operators")
    assert first["calls"] == 80 * first["in samples"]


# ------------------------------------------------------------------ title, order, links


def test_what_is_asked_first_is_first_and_the_run_itself_last(out: Path) -> None:
    made = report(RunView(out))
    order = [each.title for each in made.tables]
    assert order.index("Verdicts") < order.index("Operators") < order.index("Times")
    assert order[-1] == "This run"
    assert {"verb", "source"} <= {row["fact"] for row in table(made, "This run")}
    assert called(out).startswith("# Corpus report: out\n")
    assert called(out, "--title", "Models of <May>").startswith("# Models of \\<May\\>\n")


class Anchors(HTMLParser):
    """The links of a page, with their texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.open: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open = dict(attrs).get("href") if tag == "a" else None

    def handle_data(self, data: str) -> None:
        if self.open is not None:
            self.found.append((data, self.open))
        self.open = None


ODD = "javascript:alert(1)\"'><b>/[x](y) #?%25&"


def with_files(out: Path, name: str) -> Path:
    """Give a sample a folder with code and a page."""
    for side in ("forward", "backward"):
        (out / name / "pair_0" / side).mkdir(parents=True)
        (out / name / "pair_0" / side / "model.py").write_text("")
    (out / name / "page.html").write_text("")
    return out / name


@pytest.mark.parametrize("name", ["vision/a", ODD])
def test_links_lead_from_the_report_to_code_and_page(tmp_path: Path, name: str) -> None:
    out = ledger(tmp_path / "out", [{"id": name, "operators": MM}])
    folder = with_files(out, name)
    place = tmp_path / "reports" / "deep" / "r.html"
    called(out, "-o", place)
    links = [(said, href) for said, href in Anchors(place.read_text()).found if not href.startswith("#")]
    assert {said for said, _ in links} >= {name, "backward", "page"}
    targets = {(place.parent / unquote(href)).resolve() for _, href in links}
    code = [folder / "pair_0" / side / "model.py" for side in ("forward", "backward")]
    assert targets == {path.resolve() for path in (*code, folder / "page.html")}
    assert all(href.startswith("../../out/") and not set(href) & set("\"'<>:()[]#?&") for _, href in links)


def test_markdown_has_links_in_a_file_and_none_on_a_terminal(tmp_path: Path) -> None:
    out = ledger(tmp_path / "out", [{"id": ODD, "operators": MM}])
    with_files(out, ODD)
    called(out, "-o", tmp_path / "r.md")
    text = (tmp_path / "r.md").read_text()
    assert r"\[x\](y)" in text
    assert "](out/javascript%3Aalert%281%29" in text
    assert "](out" not in called(out)


def test_a_page_beside_the_folder_is_found_too_and_columns_say_where(tmp_path: Path) -> None:
    out = ledger(tmp_path / "out", [{"id": "a"}, {"id": "b"}])
    with_files(out, "a").joinpath("page.html").rename(out / "a.html")
    called(out, "-o", tmp_path / "r.csv")
    a, b = csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text()))
    assert (a["code"], a["page"]) == ("out/a/pair_0/forward/model.py", "out/a.html")
    assert (b["code"], b["page"]) == ("", "")


@pytest.mark.parametrize("name", ["../outside", "/tmp", "a/../../outside", "x" * 5000, "nul\\x00"])
def test_a_strangers_ledger_links_to_nothing_outside_its_folders(tmp_path: Path, name: str) -> None:
    with_files(tmp_path, "outside")
    out = ledger(tmp_path / "out", [{"id": "a"}])
    connection = sqlite3.connect(out / NAME, isolation_level=None)
    connection.execute("update samples set id = ?, path = ?", (name, name))
    connection.close()
    made = report(RunView(out))
    assert made.links(name) == ()


def test_samples_that_a_run_did_not_write_are_linked_in_its_source(tmp_path: Path) -> None:
    with_files(tmp_path / "src", "a")
    made: Report = report(RunView(ledger(tmp_path / "out", [{"id": "a"}], source=str(tmp_path / "src"))))
    assert [each.word for each in made.links("a")] == ["forward", "backward", "page"]


def test_against_and_rows_of_operators_exclude_each_other(out: Path) -> None:
    with pytest.raises(UsageError, match="--against compares samples"):
        called(out, "--against", out, "--rows", "operator")
