"""A table on a terminal, in a pipe, on a page and in files: the same values, and a stranger's text stays text."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from face import (
    Picture,
    PlaceError,
    Report,
    Table,
    UsageError,
    cell_text,
    csv_lines,
    format_of,
    json_lines,
    page_of,
    pictures,
    print_report,
    print_table,
    write_report,
)

EVIL = "<script>alert('x')</script>"

HOSTILE = f"\"'>{EVIL} ]]> &amp; \x1b[31m\u202e\n\t$x_$ @everyone"
"""A text of a stranger that would be more than text in a terminal, a page, a picture or a spreadsheet."""

COLUMNS = {"sample": "name", "verdict": "word", "steps": "count", "share": "share", "reason": "detail"}
ROWS = [("a", "bitwise", 1200, 0.9996, ""), ("b", "failed", 0, None, "300 s passed")]


def printed(table: Table, width: int | None, most: int | None = None) -> str:
    file = io.StringIO()
    print_table(table, file, width, most)
    return file.getvalue()


def report_of(rows: Iterable[tuple[Any, ...]] = ROWS, **given: Any) -> Report:
    table = Table("All", COLUMNS, list(rows))
    return Report("A title", "an answer", (Table("Some", COLUMNS, list(rows)),), table, **given)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("share", 0.9996, "99.9%"),
        ("share", 1.0, "100%"),
        ("share", 0.0, "0%"),
        ("seconds", 0.01234, "0.0123 s"),
        ("seconds", 61.0, "61 s"),
        ("seconds", 7325.0, "2 h 02 min"),
        ("bytes", 1023, "1023 B"),
        ("bytes", 1010 << 20, "1010 MiB"),
        ("bytes", 5 << 50, "5,120.0 TiB"),
        ("times", 0.4949, "0.49×"),
        ("number", None, ""),
        ("number", float("inf"), "inf"),
        ("pairs", [("w", "a parameter"), ("x", "an input")], "w: a parameter; x: an input"),
        ("counts", {"mm": 3}, "mm: 3"),
    ],
)
def test_values_are_spelled_for_people(kind: str, value: Any, said: str) -> None:
    assert cell_text(value, kind) == said


# ------------------------------------------------------------------ on a terminal, and in a pipe


def test_a_pipe_has_a_line_a_row_and_nothing_is_cut() -> None:
    long = "x" * 500
    lines = printed(Table("", COLUMNS, [*ROWS, (long, "wrong", 1, 0.5, "a\nb")]), None).splitlines()
    assert lines[0].split("\t") == list(COLUMNS)
    assert lines[2].split("\t") == ["b", "failed", "0", "", "300 s passed"]
    assert lines[3].split("\t") == [long, "wrong", "1", "50.0%", "a b"]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_tables_fit_the_terminal_and_no_number_is_cut(width: int) -> None:
    numbers = {f"n{place}": "count" for place in range(6)}
    table = Table("", {"sample": "name", **numbers, "of": "name"}, [("s" * 90, *[1234567] * 6, "eager")] * 3)
    text = printed(table, width)
    assert max(map(len, text.splitlines())) <= width
    assert set(re.findall(r"[\d,]+\d", text.replace("n0", "").partition("not shown")[0])) <= {
        "1,234,567",
        *map(str, range(6)),
    }
    assert text.count("s") > 270, "the name is folded"
    assert ("not shown, for want of width: " in text) == (width < 100)
    assert "eager" in text, "a name is left out last"


def test_a_report_on_a_terminal_begins_with_its_answer_and_says_what_it_leaves_out() -> None:
    rows = [(f"s{place:02}", "bitwise", 0, 1.0, "") for place in range(20)]
    file = io.StringIO()
    print_report(report_of(rows, facts={"run": "x"}), file, 60)
    lines = file.getvalue().splitlines()
    assert lines[:3] == ["A title", "an answer", "run: x"]
    assert lines[-2:] == ["0 in each row: steps", "and 8 more rows; -o FILE.html has all"]


# ------------------------------------------------------------------ a stranger's text


class Page(HTMLParser):
    """What a browser would make of a page: its tags, attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def hostile_report() -> Report:
    kinds = {"name": HOSTILE, "word": HOSTILE, "path": HOSTILE, "texts": [HOSTILE], "pairs": [(HOSTILE, HOSTILE)]}
    kinds |= {"counts": {HOSTILE: 1}, "detail": HOSTILE, "number": 1.0}
    table = Table(
        HOSTILE, {kind: kind for kind in kinds} | {HOSTILE: "text"}, [(*kinds.values(), HOSTILE)] * 2, HOSTILE
    )
    picture = Picture(HOSTILE, HOSTILE, "history", {HOSTILE: [1.0, 2.0], "_x": [2.0, 1.0]}, (HOSTILE, "_y"))
    return Report(HOSTILE, HOSTILE, (table,), table, {HOSTILE: HOSTILE}, (picture,))


def test_a_page_runs_nothing_of_a_stranger() -> None:
    text = "".join(page_of(hostile_report()))
    page = Page(text)
    assert page.tags.count("script") == 1
    names = [name for name, _ in page.attributes]
    assert not [name for name in names if name.startswith("on") or name == "style"]
    assert [
        value for name, value in page.attributes if name == "src" and not (value or "").startswith("data:image/")
    ] == []
    assert EVIL not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert sum(EVIL in said for said in page.texts) > 20
    links = [value or "" for name, value in page.attributes if name == "href"]
    assert {unquote(link) for link in links} == {HOSTILE}
    assert not set("".join(links)) & set("\"'<>:&#?")


def test_a_page_needs_no_network_and_allows_its_own_script_alone() -> None:
    text = "".join(page_of(report_of()))
    policy = text.partition('Content-Security-Policy" content="')[2].partition('">')[0]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for word in ("http://", "https://", "url(", "@import"):
        assert word not in text


@pytest.mark.parametrize("width", [60, None])
def test_a_terminal_obeys_no_stranger(width: int | None) -> None:
    file = io.StringIO()
    print_report(hostile_report(), file, width)
    assert not re.search("[\x1b\u202e]", file.getvalue())
    assert "[31m" in file.getvalue(), "the rest of the text is there"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\uff1d"])
def test_a_spreadsheet_computes_no_cell(start: str) -> None:
    table = Table("", {"a": "text", "b": "number", "c": "texts"}, [(f"{start}cmd|'/c calc'!A0", -0.5, [start])])
    [row] = csv.DictReader(io.StringIO("".join(csv_lines(table))))
    assert (row["a"][0], row["b"], row["c"][0]) == ("'", "-0.5", "[")


def test_a_picture_draws_a_strangers_name_as_text() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    [picture] = hostile_report().pictures
    drawn = pictures.svg_of(picture)
    assert drawn is not None
    svg = ElementTree.fromstring(drawn)
    texts = ["".join(each.itertext()) for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(EVIL in text and "$x_$" in text for text in texts) == 2, "in the legend, and below the axis"
    assert {"_x", "_y"} <= {text.strip() for text in texts}


# ------------------------------------------------------------------ pages and files


def test_all_rows_are_in_the_last_table_of_a_page() -> None:
    last = "".join(page_of(report_of([(f"s{n}", "close", n, 0.1, "") for n in range(300)]))).rpartition("<section")[2]
    assert last.count("<tr>") == 301
    assert 'type="search"' in last
    assert '<td class="n" data-v="299">299</td>' in last
    assert '<td class="w fair">close</td>' in last


def test_columns_that_people_are_not_shown_are_in_files() -> None:
    table = Table("", {"a": "name", "b": "count"}, [("x", 1)], shown=("a",))
    assert printed(table, None) == "a\nx\n"
    assert "".join(csv_lines(table)) == "a,b\nx,1\n"


def test_json_has_an_object_a_row() -> None:
    table = Table("", {"a": "number", "b": "counts"}, [(float("inf"), {"x": 1}), (None, {})])
    assert [json.loads(line) for line in json_lines(table)] == [{"a": "inf", "b": {"x": 1}}, {"a": None, "b": {}}]


def test_parquet_has_typed_columns(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    kinds = {"a": "name", "n": "bytes", "f": "flag", "t": "texts", "p": "pairs", "c": "counts", "w": "words"}
    rows = [("x", None, True, [], [("w", "why")], {"mm": 2}, {"torch": 2}), ("y", 3, None, ["z"], [], {}, {})]
    report = Report("", "", (), Table("", kinds, rows))
    write_report(report, "parquet", tmp_path / "r.parquet")
    first, second = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert first == {
        "a": "x",
        "n": None,
        "f": True,
        "t": [],
        "p": [{"name": "w", "why": "why"}],
        "c": [{"name": "mm", "value": 2}],
        "w": [{"name": "torch", "value": "2"}],
    }
    assert (second["n"], second["t"], second["p"]) == (3, ["z"], [])


@pytest.mark.parametrize(
    ("name", "format"), [("r.HTML", "html"), ("a/r.csv", "csv"), ("r.jsonl", "json"), ("r.pq", "parquet")]
)
def test_the_format_is_what_the_ending_says(name: str, format: str) -> None:
    assert format_of(Path(name)) == format


def test_an_ending_that_means_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"r\.xls: no format is known by '\.xls': end it in one of \.html"):
        format_of(Path("r.xls"))


def test_a_report_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    def broken() -> Iterable[tuple[Any, ...]]:
        yield ROWS[0]
        raise ValueError("the ledger is damaged")

    place = tmp_path / "r.csv"
    write_report(report_of(), "csv", place)
    before = place.read_bytes()
    with pytest.raises(ValueError, match="damaged"):
        write_report(Report("", "", (), Table("", COLUMNS, broken())), "csv", place)
    assert (place.read_bytes(), list(tmp_path.iterdir())) == (before, [place])
    with pytest.raises(PlaceError, match="could not be written"):
        write_report(report_of(), "csv", place / "below")


@pytest.mark.parametrize("package", ["matplotlib", "pyarrow"])
def test_an_extra_that_is_missing_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == "pyarrow":
        with pytest.raises(UsageError, match=r"pip install '\.\[parquet\]'"):
            write_report(report_of(), "parquet", tmp_path / "r.parquet")
        assert list(tmp_path.iterdir()) == []
    else:
        drawn = (Picture("Speedups", "", "speedups", {"a": [1.0]}), Picture("More", "", "speedups", {"a": [1.0]}))
        text = "".join(page_of(report_of(pictures=drawn)))
        assert (text.count("pip install &#x27;.[pictures]&#x27;"), "<img" in text) == (1, False)


@pytest.mark.parametrize("values", [[1.0], [0.0, float("inf"), 2.0, 0.5], []])
def test_speedups_are_drawn_whatever_they_are(values: list[float]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    drawn = pictures.svg_of(Picture("", "", "speedups", {"xla": values, "eager": [1.0, 1.1]}))
    assert drawn is not None
    assert drawn == pictures.svg_of(Picture("", "", "speedups", {"xla": values, "eager": [1.0, 1.1]}))
    ElementTree.fromstring(drawn)
