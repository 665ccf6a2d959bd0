"""`corpus report`: what a ledger's rows come to."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from snapshots import Snapshots
from subjects.ledgers import ledger, many

from face import Report, UsageError, main, report


def called(*arguments: object) -> str:
    """What the command prints."""
    done = CliRunner().invoke(main, ["corpus", "report", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def table(made: Report, title: str) -> list[dict[str, Any]]:
    """One table's rows by heading."""
    [found] = [table for table in (*made.tables, made.rows) if table.title == title]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A small corpus with one of everything."""
    failed = {"verdict": "failed", "cause": "timeout", "stage": "capture", "detail": "300 s passed", "seconds": 300.0}
    return ledger(
        tmp_path / "out",
        [
            {"id": "vision/a", "seconds": 1.0, "peak_bytes": 100 << 20, "asks": [("w", "a parameter")]},
            {"id": "vision/b", "seconds": 3.0, "verdict": "close", "forward_hash": "f:vision/a"},
            {"id": "vision/c", "vacuous": ["output logits", "gradient w"], "power": 0.25},
            {"id": "text/d", "verdict": "undifferentiable", "detail": "no output requires grad"},
            {"id": "text/e", **failed, "forward_hash": ""},
            {"id": "text/f", "verdict": "unproven", "cause": "too large", "detail": "40 GiB of inputs"},
            {"id": "text/g", "verdict": "wrong", "detail": "gradient w: relative error 0.5, tolerance 0.0001"},
            {"id": "text/h", "state": "todo"},
            {
                "id": "text/i",
                "derivative": "not the derivative",
                "notes": ["not the derivative: model.py:3", "another note"],
            },
            {"id": "text/j", "power": None},
        ],
        options={"mode": "train", "fake": False},
        started=1.7e9,
    )


def test_the_report_as_people_and_programs_read_it(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshots: Snapshots
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    snapshots.check("corpus_report", called(out), {})
    called(out, "-o", tmp_path / "rows.csv")
    snapshots.check("corpus_report_csv", (tmp_path / "rows.csv").read_text(), {})


def test_a_sample_about_which_nothing_was_said_says_so(tmp_path: Path) -> None:
    rows = [{"id": "a", "verdict": "failed", "cause": "killed by SIGSEGV"}, {"id": "b", "verdict": "unproven"}]
    made = table(report(ledger(tmp_path / "out", rows)), "Not good")
    assert {row["sample"]: row["reason"] for row in made} == {"a": "killed by SIGSEGV", "b": "nothing was said"}


def test_duplicates_have_the_same_graphs_or_without_graphs_the_same_source(tmp_path: Path) -> None:
    same = {"forward_hash": "f", "backward_hash": "b"}
    none = {"forward_hash": "", "backward_hash": "", "source_hash": "text", "verdict": "failed"}
    rows = [{"id": "a", **same}, {"id": "b", **same, "verdict": "wrong"}, {"id": "c"}]
    made = report(ledger(tmp_path / "out", [*rows, {"id": "e0", **none}, {"id": "e1", **none}]))
    found = {row["id"]: row["duplicate_of"] for row in table(made, "All samples")}
    assert found == {"a": "", "b": "a", "c": "", "e0": "", "e1": "e0"}
    assert "3 of the 5 that are done are distinct." in made.answer


def test_parquet_has_lists_of_names_and_values(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    counts = {"forward aten.mm.default float32": 3}
    out = ledger(tmp_path / "out", [{"id": "a", "operators": counts, "vacuous": ["output y"]}, {"id": "b"}])
    called(out, "-o", tmp_path / "r.parquet")
    first, _ = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert first["operators"] == [{"name": "forward aten.mm.default float32", "value": 3}]
    assert first["stages"] == [{"name": "capture", "value": 1.5}, {"name": "verify", "value": 0.5}]
    assert (first["vacuous"], first["seconds"], first["proved"]) == (["output y"], 2.0, False)


def test_conditions_choose_samples(out: Path) -> None:
    made = report(out, ("verdict = 'bitwise'", "seconds < 2"))
    assert [row["id"] for row in table(made, "All samples")] == ["vision/a"]
    assert made.facts["where"] == "verdict = 'bitwise' and seconds < 2"


def test_a_run_without_samples_has_a_report_too(tmp_path: Path) -> None:
    out = ledger(tmp_path / "out", [])
    for ending in ("html", "csv", "jsonl"):
        done = CliRunner().invoke(main, ["corpus", "report", str(out), "-o", str(tmp_path / f"r.{ending}")])
        assert (done.exit_code, (tmp_path / f"r.{ending}").exists()) == (3, True)
        assert done.stdout == "0 of 0 samples are good.\n"


ODD = "javascript:alert(1)\"'><b>/[x](y) #?%25&"


@pytest.mark.parametrize("name", ["vision/a", ODD])
def test_a_page_has_links_to_the_code_and_the_page_of_a_sample(tmp_path: Path, name: str) -> None:
    out = ledger(tmp_path / "out", [{"id": name}, {"id": "gone"}])
    (out / name / "pair_0" / "forward").mkdir(parents=True)
    (out / name / "pair_0" / "forward" / "model.py").write_text("")
    (out / name / "page.html").write_text("")
    called(out, "-o", tmp_path / "reports" / "deep" / "r.html")
    text = (tmp_path / "reports" / "deep" / "r.html").read_text()
    for file in ("pair_0/forward/model.py", "page.html"):
        assert f'<a href="../../out/{quote(name)}/{file}">' in text
    assert text.count("<a ") == 2


def test_samples_that_a_run_did_not_write_are_linked_in_its_source(tmp_path: Path) -> None:
    (tmp_path / "src" / "a" / "pair_0" / "forward").mkdir(parents=True)
    code = tmp_path / "src" / "a" / "pair_0" / "forward" / "model.py"
    code.write_text("")
    out = ledger(tmp_path / "out", [{"id": "a"}], source=str(tmp_path / "src"))
    [row] = table(report(out, base=tmp_path), "All samples")
    assert (row["code"], row["page"]) == ("src/a/pair_0/forward/model.py", "")


def test_a_report_changes_nothing_and_may_be_made_while_a_run_goes_on(out: Path) -> None:
    before = (out / "ledger.sqlite").read_bytes()
    writer = sqlite3.connect(out / "ledger.sqlite", isolation_level=None)
    writer.execute("begin immediate")
    writer.execute("update samples set verdict = 'failed'")
    assert "1 wrong" in called(out)
    writer.execute("rollback")
    writer.close()
    assert (out / "ledger.sqlite").read_bytes() == before


def test_what_is_no_ledger_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no ledger here"):
        report(tmp_path)
    (tmp_path / "ledger.sqlite").write_text("nothing of the kind" * 100)
    done = CliRunner().invoke(main, ["corpus", "report", str(tmp_path)])
    assert done.exit_code != 0
    assert "ledger.sqlite" in done.output


@pytest.mark.slow
def test_ten_thousand_samples_are_reported_in_seconds(tmp_path: Path) -> None:
    rows = [
        row | {"asks": [], "operators": {f"forward aten.op{n}.default float32": n for n in range(80)}}
        for row in many(10_000)
    ]
    called(ledger(tmp_path / "out", rows), "-o", tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().count("<tr>") > 10_000
