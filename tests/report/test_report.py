"""`corpus report`: what a ledger's rows come to, said in each format, whatever the rows hold."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from subjects.ledgers import ledger, many

from face import (
    Column,
    PlaceError,
    Report,
    ReportPlan,
    RunView,
    SampleError,
    UsageError,
    cell_text,
    on_terminal,
    report,
)
from face import corpus_report_command as command

EVIL = "<script>alert('x')</script>"


def called(*arguments: object) -> str:
    """What the command prints; its errors are raised."""
    done = CliRunner().invoke(command, [str(item) for item in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def table(made: Report, title: str) -> list[dict[str, Any]]:
    """One table's rows by heading."""
    [found] = [table for table in made.tables if table.title == title]
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


def titles(made: Report) -> list[str]:
    return [table.title for table in made.tables]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A small corpus with one of everything."""
    return ledger(
        tmp_path / "out",
        [
            {"id": "vision/a", "seconds": 1.0, "peak_bytes": 100 << 20, "asks": [("w", "a parameter")]},
            {"id": "vision/b", "seconds": 3.0, "verdict": "close", "asks": [("w", "a parameter"), ("x", "an input")]},
            {"id": "vision/c", "vacuous": ["output logits", "gradient w"], "power": 0.25},
            {"id": "text/d", "verdict": "undifferentiable", "detail": "no output requires grad"},
            {
                "id": "text/e",
                "verdict": "failed",
                "cause": "timeout",
                "stage": "capture",
                "detail": "300 s passed",
                "seconds": 300.0,
                "forward_hash": "",
            },
            {
                "id": "text/f",
                "verdict": "unproven",
                "cause": "too large",
                "detail": "40 GiB of inputs",
                "stage": "find",
            },
            {"id": "text/g", "verdict": "wrong", "detail": "gradient w: relative error 0.5, tolerance 0.0001"},
            {"id": "text/h", "state": "todo"},
        ],
        options={"mode": "train", "fake": False},
        started=1.7e9,
    )


def test_verdicts_are_counted_and_a_vacuous_one_apart(out: Path) -> None:
    rows = table(report(RunView(out)), "Verdicts")
    assert {row["verdict"]: row["samples"] for row in rows} == {
        "bitwise": 1,
        "bitwise, vacuous": 1,
        "undifferentiable": 1,
        "close": 1,
        "unproven": 1,
        "wrong": 1,
        "failed": 1,
        "not done": 1,
    }
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_a_vacuous_sample_is_no_proof(out: Path) -> None:
    made = report(RunView(out))
    [vision] = [row for row in table(made, "By family") if row["family"] == "vision"]
    assert (vision["samples"], vision["proved"], vision["vacuous"]) == (3, 2, 1)
    assert vision["proved share"] == pytest.approx(2 / 3)
    [row] = table(made, "Without power")
    assert (row["sample"], row["results"], row["which"]) == ("vision/c", 2, "output logits, gradient w")
    assert dict(made.facts)["proved"].startswith("2 of 6 ")


def test_what_cannot_be_differentiated_is_no_failure(out: Path) -> None:
    made = report(RunView(out))
    [text] = [row for row in table(made, "By family") if row["family"] == "text"]
    assert (text["undifferentiable"], text["not done"], text["proved share"]) == (1, 1, 0)
    assert table(made, "Undifferentiable") == [{"sample": "text/d", "why": "no output requires grad"}]
    assert "text/d" not in {row["sample"] for row in table(made, "Not good")}


def test_every_sample_that_is_not_good_has_a_line_and_a_reason(out: Path) -> None:
    rows = table(report(RunView(out)), "Not good")
    assert [(row["sample"], row["verdict"], row["cause"], row["what was said"]) for row in rows] == [
        ("text/e", "failed", "timeout", "300 s passed"),
        ("text/g", "wrong", "", "gradient w: relative error 0.5, tolerance 0.0001"),
        ("text/f", "unproven", "too large", "40 GiB of inputs"),
    ]


def test_a_sample_about_which_nothing_was_said_says_so(tmp_path: Path) -> None:
    out = ledger(
        tmp_path / "out",
        [
            {"id": "a", "verdict": "failed", "cause": "killed by SIGSEGV", "stage": "capture"},
            {"id": "b", "verdict": "unproven"},
        ],
    )
    said = {row["sample"]: row["what was said"] for row in table(report(RunView(out)), "Not good")}
    assert said == {"a": "killed by SIGSEGV at stage capture", "b": "nothing was said"}


def test_times_and_sizes_have_their_median_tail_and_largest(tmp_path: Path) -> None:
    out = ledger(tmp_path / "out", [{"id": f"s{n:02}", "seconds": float(n), "peak_bytes": n} for n in range(1, 21)])
    made = report(RunView(out))
    whole, *stages = table(made, "Times")
    assert (whole["median"], whole["nine tenths within"], whole["slowest"], whole["which"]) == (10.5, 18.0, 20.0, "s20")
    assert [row["what"] for row in stages] == ["stage capture", "stage verify"]
    assert table(made, "Sizes")[0]["largest"] == 20
    assert [row["sample"] for row in table(made, "Slowest")][:2] == ["s20", "s19"]


def test_which_inputs_ask_is_summed_up_by_reason(out: Path) -> None:
    rows = table(report(RunView(out)), "Which inputs require grad")
    assert [(row["because"], row["inputs"], row["samples"]) for row in rows] == [
        ("a parameter", 2, 2),
        ("an input", 1, 1),
    ]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("3 constants are printed as 0.000000 in 'L_x_'", "12 constants are printed as 0.000000 in 'L_w_'"),
        ("drawn with a small deviation: convs.0.bias, convs.1.bias, …", "drawn with a small deviation: encoder.bias"),
        ("mode train: 53 batch_norm changed", "mode train: 1 batch_norm changed"),
    ],
)
def test_notes_that_differ_in_numbers_and_names_are_one_line(tmp_path: Path, left: str, right: str) -> None:
    rows = [{"id": "a", "notes": [left, "batch_norm is in training"]}, {"id": "b", "notes": [right]}]
    found = table(report(RunView(ledger(tmp_path / "out", rows))), "Notes")
    assert [(row["samples"], row["for example"], row["which said"]) for row in found] == [
        (2, "a", left),
        (1, "a", "batch_norm is in training"),
    ]


def test_duplicates_are_told_and_count_once_by_their_worst(tmp_path: Path) -> None:
    same = {"forward_hash": "f", "backward_hash": "b"}
    rows = [
        {"id": "a", **same},
        {"id": "b", "verdict": "wrong", **same},
        {"id": "c"},
        {"id": "d", "backward_hash": "b"},
    ]
    rows += [{"id": f"e{n}", "verdict": "failed", "forward_hash": "", "source_hash": "text"} for n in range(2)]
    out = ledger(tmp_path / "out", rows)
    made = report(RunView(out))
    found = {row["first"]: (row["same"], row["samples"], row["the others"]) for row in table(made, "Duplicates")}
    assert found == {"a": ("graphs", 2, "b"), "e0": ("source", 2, "e1")}
    assert dict(made.facts)["distinct"] == "4 of the 6"
    once = report(RunView(out), ReportPlan(unique=True))
    assert {row["verdict"]: row["samples"] for row in table(once, "Verdicts")} == {
        "bitwise": 2,
        "wrong": 1,
        "failed": 1,
    }
    assert [row["id"] for row in once.rows()] == ["b", "c", "d", "e0"]
    assert [row["duplicate_of"] for row in made.rows()] == ["", "a", "", "", "", "e0"]


def test_an_empty_ledger_is_an_empty_report(tmp_path: Path) -> None:
    made = report(RunView(ledger(tmp_path / "out", [])))
    assert titles(made) == ["This run"]
    assert dict(made.facts)["samples"] == "0 of 0 done"
    for format in ("markdown", "html", "csv"):
        assert called(tmp_path / "out", "--format", format)


# ------------------------------------------------------------------ formats


def test_markdown_keeps_strangers_words_in_their_cells(tmp_path: Path) -> None:
    detail = "a | b\nc\x1b[31m `x` *y* <b> ![i](http://x) __z__ @everyone"
    out = ledger(tmp_path / "out", [{"id": "a|b\n<i>", "verdict": "failed", "cause": "c|d", "detail": detail}])
    text = called(out)
    [row] = [line for line in text.splitlines() if line.startswith("| a\\|b") and "c\\|d" in line]
    assert row.startswith(r"| a\|b\\n\<i\> | failed | c\|d | done | 2 s | ")
    assert row.endswith(r" | a \| b c [31m \`x\` \*y\* \<b\> \![i\](http://x) \_\_z\_\_ \@everyone |")
    assert "\x1b" not in text


def test_markdown_tables_have_as_many_cells_as_headings(out: Path) -> None:
    width = 0
    for line in called(out).splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = line.replace("\\|", "").count("|")
        assert width in (0, cells), line
        width = cells


class Page(HTMLParser):
    """What a browser would make of a page: its tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_runs_nothing_of_strangers(tmp_path: Path) -> None:
    rows = [
        {"id": f"{EVIL}/x", "verdict": "failed", "cause": f"<img src=x onerror=1>{EVIL}", "detail": f"\"'>{EVIL}</td>"},
        {"id": "b", "notes": [EVIL], "vacuous": [EVIL], "asks": [(EVIL, EVIL)], "stages": {EVIL: 1}, "engine": EVIL},
        {"id": "c", "forward_hash": "f:b", "backward_hash": "b:b", "verdict": "undifferentiable", "detail": EVIL},
    ]
    text = called(ledger(tmp_path / "out", rows, options={EVIL: EVIL}), "--format", "html")
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not page.attributes & {"src", "style"}
    assert not [name for name in page.attributes if name.startswith("on")]
    assert sum(EVIL in said for said in page.texts) >= 10
    assert EVIL not in text


def test_html_needs_no_network_and_allows_its_own_script_alone(out: Path) -> None:
    text = called(out, "--format", "html")
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text
    policy = text.partition('Content-Security-Policy" content="')[2].partition('">')[0]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    from face import SCRIPT, STYLE, policy_digest

    assert text.partition("<script>")[2].partition("</script>")[0] == SCRIPT
    assert policy_digest(SCRIPT) in policy
    assert text.partition("<style>")[2].partition("</style>")[0] == STYLE
    assert policy_digest(STYLE) in policy


def test_html_has_every_sample_once_in_its_last_table(tmp_path: Path) -> None:
    text = called(ledger(tmp_path / "out", many(300)), "--format", "html")
    last = text.rpartition("<section")[2]
    assert last.count("<tr>") == 301
    assert 'type="search"' in last
    assert all(f">family_{n % 7}/model_{n:06}<" in last for n in range(300))


def test_csv_has_every_column_and_reads_back(out: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(called(out, "--format", "csv"))))
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert len(rows) == 8
    by = {row["id"]: row for row in rows}
    assert json.loads(by["vision/b"]["asks"]) == [["w", "a parameter"], ["x", "an input"]]
    assert (by["vision/a"]["proved"], by["vision/c"]["proved"], by["text/h"]["state"]) == ("true", "false", "todo")


def test_json_is_one_object_a_sample(tmp_path: Path) -> None:
    out = ledger(tmp_path / "out", [{"id": "a", "power": float("inf")}, {"id": "b\n", "stages": {"capture": 1}}])
    first, second = map(json.loads, called(out, "--json").splitlines())
    assert (first["id"], first["power"], second["id"], second["stages"]) == ("a", "inf", "b\\n", {"capture": 1.0})


def test_parquet_has_typed_columns(out: Path, tmp_path: Path) -> None:
    from pyarrow import parquet

    called(out, "-o", tmp_path / "r.parquet")
    found = parquet.read_table(tmp_path / "r.parquet")
    by = {row["id"]: row for row in found.to_pylist()}
    assert len(by) == 8
    assert by["vision/b"]["asks"] == [{"name": "w", "why": "a parameter"}, {"name": "x", "why": "an input"}]
    assert by["vision/c"]["vacuous"] == ["output logits", "gradient w"]
    assert by["vision/a"]["stages"] == [{"name": "capture", "value": 1.5}, {"name": "verify", "value": 0.5}]
    assert by["vision/a"]["seconds"] == 1.0
    assert by["vision/a"]["proved"] is True


def test_parquet_without_pyarrow_says_what_to_install(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[parquet\]'"):
        called(out, "-o", tmp_path / "r.parquet")
    assert list(tmp_path.glob("*.part")) == list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize(("name", "begins"), [("r.md", b"# Corpus"), ("r.HTML", b"<!doctype"), ("r.csv", b"id,path")])
def test_the_format_is_what_the_ending_says(out: Path, tmp_path: Path, name: str, begins: bytes) -> None:
    assert called(out, "-o", tmp_path / "deep" / name) == ""
    assert (tmp_path / "deep" / name).read_bytes().startswith(begins)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == [name]


def test_an_ending_that_means_nothing_is_refused(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"r\.xls: no format is known by '\.xls': pass --format markdown\|html\|csv"):
        called(out, "-o", tmp_path / "r.xls")


def test_parquet_is_nothing_for_a_terminal(out: Path) -> None:
    with pytest.raises(UsageError, match="-o FILE"):
        called(out, "--format", "parquet")


def test_a_report_that_fails_leaves_the_old_one(out: Path, tmp_path: Path) -> None:
    place = tmp_path / "r.md"
    called(out, "-o", place)
    before = place.read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaceError, match="could not be written"):
        called(out, "-o", tmp_path / "file" / "r.md")
    with sqlite3.connect(out / "ledger.sqlite") as base:
        base.execute("update samples set notes = '{broken' where id = 'vision/a'")
    with pytest.raises(SampleError, match=r"column notes holds '\{broken'"):
        called(out, "-o", place)
    assert place.read_bytes() == before


# ------------------------------------------------------------------ what is no ledger


def test_a_folder_without_a_ledger_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no ledger here"):
        called(tmp_path)


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_text("nothing of the kind" * 100)
    with pytest.raises(SampleError, match=r"ledger\.sqlite"):
        called(tmp_path)


def test_a_report_changes_nothing_and_may_be_made_while_a_run_goes_on(out: Path) -> None:
    writer = sqlite3.connect(out / "ledger.sqlite", isolation_level=None)
    writer.execute("begin immediate")
    writer.execute("update samples set verdict = 'failed'")
    assert "| bitwise | 1 |" in called(out)
    writer.execute("rollback")
    writer.close()


# ------------------------------------------------------------------ against another run


def compared(tmp_path: Path, before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> Report:
    from face import report_against as against

    old, new = RunView(ledger(tmp_path / "old", before)), RunView(ledger(tmp_path / "new", after))
    return against(report(new), old, new)


def test_what_became_of_each_sample(tmp_path: Path) -> None:
    failed = {"verdict": "failed", "cause": "timeout", "detail": "slow"}
    before = [
        {"id": "a"},
        {"id": "b", **failed},
        {"id": "c"},
        {"id": "d"},
        {"id": "e"},
        {"id": "f", **failed},
        {"id": "h"},
    ]
    after = [
        {"id": "a", "seconds": 1.0},
        {"id": "b"},
        {"id": "c", "verdict": "wrong", "detail": "off by one"},
        {"id": "d", "vacuous": ["output y"]},
        {"id": "g"},
        {"id": "f", **failed, "cause": "out of memory"},
        {"id": "h", "forward_hash": "another"},
        {"id": "i", "state": "todo"},
    ]
    made = compared(tmp_path, before, after)
    assert {row["became"]: row["samples"] for row in table(made, "Before and after")} == {
        "worse": 2,
        "better": 1,
        "new": 1,
        "gone": 1,
        "other graphs": 1,
        "other cause": 1,
        "same": 1,
    }
    found = {row["sample"]: (row["became"], row["before"], row["after"]) for row in table(made, "Samples that changed")}
    assert found == {
        "b": ("better", "failed", "bitwise"),
        "c": ("worse", "bitwise", "wrong"),
        "d": ("worse", "bitwise", "bitwise, vacuous"),
        "e": ("gone", "bitwise", ""),
        "f": ("other cause", "failed", "failed"),
        "g": ("new", "", "bitwise"),
        "h": ("other graphs", "bitwise", "bitwise"),
    }
    [moved] = [row for row in table(made, "Moves") if row["after"] == "wrong"]
    assert (moved["before"], moved["samples"]) == ("bitwise", 1)
    sums = {row["verdict"]: (row["before"], row["after"], row["change"]) for row in table(made, "Verdicts of both")}
    assert sums["wrong"] == (0, 1, 1)
    assert sums["all"] == (7, 7, 0)
    rows = {row["id"]: (row["change"], row["before_verdict"]) for row in made.rows()}
    assert rows["c"] == ("worse", "bitwise")
    assert rows["e"] == ("gone", "bitwise")
    assert rows["i"] == ("not done", None)


def test_the_time_ratio_is_of_samples_that_are_in_both(tmp_path: Path) -> None:
    before = [{"id": "a", "seconds": 4.0}, {"id": "b", "seconds": 2.0}, {"id": "gone", "seconds": 100.0}]
    after = [{"id": "a", "seconds": 1.0}, {"id": "b", "seconds": 2.0}, {"id": "new", "seconds": 100.0}]
    time, *_ = table(compared(tmp_path, before, after), "Cost of both")
    assert (time["samples"], time["ratio of sums"], time["median ratio"]) == (2, 0.5, 0.625)


@pytest.mark.parametrize("format", ["html", "parquet"])
def test_every_format_has_the_comparison(tmp_path: Path, format: str) -> None:
    old, new = ledger(tmp_path / "old", many(50)), ledger(tmp_path / "new", many(40, seed=1))
    called(new, "--against", old, "--unique", "--format", format, "-o", tmp_path / "file")
    assert (tmp_path / "file").stat().st_size > 1000


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("share", 0.9996, "99.9%"),
        ("share", 1.0, "100%"),
        ("share", 0.0, "0%"),
        ("seconds", 0.01234, "0.0123 s"),
        ("seconds", 61.0, "61 s"),
        ("seconds", 7325.0, "2 h 02 min"),
        ("size", 1023, "1023 B"),
        ("size", 1010 << 20, "1010 MiB"),
        ("size", 5 << 50, "5,120.0 TiB"),
        ("change", -1500, "-1,500"),
        ("times", 0.4949, "0.49×"),
        ("number", None, ""),
        ("number", float("inf"), "inf"),
    ],
)
def test_values_are_spelled_for_people(kind: str, value: Any, said: str) -> None:
    assert cell_text(value, Column("", kind)) == said


def test_ten_thousand_samples_are_no_trouble(tmp_path: Path) -> None:
    """Without asking for a gradient in each: half of the time would go into writing those down."""
    rows = [row | {"asks": []} for row in many(10_000)]
    text = called(ledger(tmp_path / "out", rows), "--format", "html")
    assert text.count("<tr>") > 10_000


# ------------------------------------------------------------------ on a terminal


def shown(made: Report, width: int) -> list[str]:
    """The lines of a report on a terminal of a width."""
    console = Console(file=io.StringIO(), width=width)
    for item in on_terminal(made, width):
        console.print(item)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # the file is a StringIO


def test_the_answer_is_the_first_line_below_the_title(tmp_path: Path) -> None:
    with_answer = replace(report(RunView(ledger(tmp_path / "out", many(3)))), answer="all is well")
    assert shown(with_answer, 80)[:2] == ["Corpus report: out", "all is well"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_terminal_and_no_number_is_cut(tmp_path: Path, width: int) -> None:
    rows = list(many(40))
    made = report(RunView(ledger(tmp_path / "out", rows)))
    lines = shown(made, width)
    assert max(map(len, lines)) <= width
    [first, facts] = lines[:2]
    assert (first, facts) == ("Corpus report: out", "samples: 40 of 40 done")
    start = lines.index("By family")
    [family] = [line for line in lines[start:] if line.startswith("family_0")][:1]
    row = next(row for row in table(made, "By family") if row["family"] == "family_0")
    assert family.split()[:3] == ["family_0", str(row["samples"]), str(row["proved"])]
    assert not re.search(r"\d…", family)


def test_what_a_terminal_does_not_show_is_named(tmp_path: Path) -> None:
    made = report(RunView(ledger(tmp_path / "out", [{"id": f"f{n}/a", "verdict": "bitwise"} for n in range(20)])))
    lines = shown(made, 80)
    assert any(line.startswith("0 in each row: vacuous, undifferentiable, unproven") for line in lines)
    assert "and 9 more rows; -o FILE writes all" in lines
    narrow = shown(made, 40)
    assert any(line.startswith("not shown, for want of width: ") for line in narrow)
