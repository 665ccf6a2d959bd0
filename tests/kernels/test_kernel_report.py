"""`backprint kernels report`: what an index of kernels comes to, as a page, as Markdown and as rows."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kernels.inductor_sources import SOURCES, TEMPLATE, inductor_kernels, kernels_of_text
from kernels.saved_layout import save_layout, save_text

from face import (
    KernelArgument,
    Report,
    argument_bytes,
    kernel_hash,
    main,
    report_of_folders,
    vanishing_groups,
)

EVIL = "</pre><script>alert('x')</script>"


def report(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["kernels", "report", *map(str, arguments)])


def made(*folders: Path) -> Report:
    return report_of_folders(vanishing_groups(), folders)


def table(found: Report, title: str) -> list[dict[str, Any]]:
    """One table's rows by heading."""
    [one] = [table for table in (*found.tables, found.samples) if table.title == title]
    return [dict(zip((column.name for column in one.columns), row, strict=True)) for row in one.rows]


# ------------------------------------------------------------------ tables


def test_totals_by_target_and_direction(tmp_path: Path) -> None:
    found = made(save_layout(tmp_path))
    triton, cpp = len(inductor_kernels("triton")) - 1, len(inductor_kernels("cpp"))
    facts = dict(found.facts)
    assert facts["kernels"] == f"{2 * triton + cpp} in 8 samples"
    assert facts["programs"].startswith(f"{triton + cpp}, ")
    assert facts["folders"] == str(tmp_path)
    assert found.answer.startswith(f"{2 * triton + cpp} kernels of 8 samples are {triton + cpp} programs; ")
    rows = {row["target"]: row for row in table(found, "By target")}
    assert set(rows) == {"cpu:avx2", "cuda:80", "cuda:90"}
    assert [rows[name]["kernels"] for name in rows] == [cpp, triton, triton]
    assert {row["uses a program"] for row in rows.values()} == {1.0}
    rows = {row["direction"]: row for row in table(found, "Forward against backward")}
    assert sum(row["kernels"] for row in rows.values()) == 2 * triton + cpp
    assert sum(row["programs"] for row in rows.values()) == triton + cpp
    assert {row["programs of both"] for row in rows.values()} == {0}


def test_what_forwards_and_backwards_share(tmp_path: Path) -> None:
    for direction in ("forward", "backward"):
        save_text(tmp_path / "s", SOURCES / "cuda_block_forward.txt", "cuda:90", direction)
    save_text(tmp_path / "t", SOURCES / "cuda_conv_backward.txt", "cuda:90", "backward")
    forward, backward = (
        {row["direction"]: row for row in table(made(tmp_path), "Forward against backward")}[name]
        for name in ("forward", "backward")
    )
    others = len(kernels_of_text(SOURCES / "cuda_conv_backward.txt"))
    assert (forward["programs of both"], forward["their share of kernels"]) == (2, 1.0)
    assert (backward["programs of both"], backward["their share of kernels"]) == (2, 2 / (2 + others))


def test_the_most_shared_have_their_code(tmp_path: Path) -> None:
    found = made(save_layout(tmp_path))
    rows = table(found, "The most shared programs")
    assert len(rows) == 20
    assert {row["uses"] for row in rows} == {2}
    assert len(found.listings) == 10
    sources = {kernel.source.strip() for kernel in inductor_kernels("triton")}
    assert all(listing.code.strip() in sources for listing in found.listings)
    assert {listing.language for listing in found.listings} == {"python"}
    assert all(f"hash {row['hash']}" in listing.note for row, listing in zip(rows, found.listings, strict=False))


def test_operators_that_are_never_fused(tmp_path: Path) -> None:
    folder = save_text(tmp_path / "s", SOURCES / "cuda_block_forward.txt", "cuda:90", "forward")
    facts = json.loads((folder / "graph.json").read_text())
    said = [
        ["aten.gelu.default", "aten.view.default", "aten.permute.default"],
        ["aten.mul.Tensor", "aten.sum.dim_IntList"],
    ]
    for kernel, names in zip(facts["kernels"], said, strict=True):
        kernel["operators"] = [dict(operator=name, step="", line="") for name in names]
    facts["externs"] = {"aten.addmm.out": 3, "aten.mul.out": 1, "aten.view.default": 9}
    (folder / "graph.json").write_text(json.dumps(facts))
    rows = {row["operator"]: row for row in table(made(tmp_path), "Operators never fused")}
    assert set(rows) == {"aten.gelu", "aten.addmm"}, "mul is fused once, and views compute nothing"
    assert (rows["aten.addmm"]["computed by"], rows["aten.addmm"]["calls beside kernels"]) == ("no kernel", 3)
    assert (rows["aten.gelu"]["computed by"], rows["aten.gelu"]["kernels alone"]) == ("kernels of their own", 1)


def with_real_calls(folder: Path) -> str:
    """Write the calls that a kernel which fills a table with zeros really has; return its name."""
    kernel = next(one for one in kernels_of_text(SOURCES / "cuda_emb_backward.txt") if "xnumel = 800" in one.source)
    facts = json.loads((folder / "graph.json").read_text())
    for each in facts["kernels"]:
        tensor = dict(dtype="float32", shape=[100, 8], stride=[8, 1], value=None)
        number = dict(dtype="int", shape=[], stride=[], value=800)
        each["calls"] = [dict(arguments=[tensor, number], grids=[[7, 1, 1]])] * 3 if each["name"] == kernel.name else []
    (folder / "graph.json").write_text(json.dumps(facts))
    return kernel.name


def test_bytes_are_those_of_the_tensors_of_all_calls(tmp_path: Path) -> None:
    folder = save_text(tmp_path / "s", SOURCES / "cuda_emb_backward.txt", "cuda:90", "backward")
    name = with_real_calls(folder)
    [row] = table(made(tmp_path), "Bytes")
    size = 3 * 100 * 8 * 4
    assert (row["kernel"], row["calls"], row["tensors of all calls"], row["share"]) == (name, 3, size, 1.0)


@pytest.mark.parametrize(
    ("argument", "count"),
    [
        (KernelArgument("float32", (4, 8), (8, 1)), 128),
        (KernelArgument("int64", (4, 8), (0, 1)), 64),
        (KernelArgument("bool", (4, 0), (0, 1)), 0),
        (KernelArgument("float8_e4m3fn", (4,), (1,)), 4),
        (KernelArgument("complex64", (), ()), 8),
        (KernelArgument("int", value=7), 0),
    ],
)
def test_the_bytes_of_an_argument(argument: KernelArgument, count: int) -> None:
    assert argument_bytes(argument) == count


def test_names_of_several_programs(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"s{number}").mkdir()
        (tmp_path / f"s{number}" / "k.py").write_text(TEMPLATE.replace("M = 512", f"M = {number}"))
    [row] = table(made(tmp_path), "Names of several programs")
    assert (row["kernel"], row["programs"], row["kernels"]) == ("triton_tem_fused_mm_0", 3, 3)
    [row] = table(made(tmp_path), "The most shared structures")
    assert (row["programs"], row["uses"]) == (3, 3)


def test_what_folders_of_others_do_not_say_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(TEMPLATE)
    found = made(tmp_path)
    assert {one.title for one in found.tables} == {"By target", "Forward against backward"}
    assert [row["target"] for row in table(found, "By target")] == ["(not known)"]
    assert [row["direction"] for row in table(found, "Forward against backward")] == ["(not known)"]
    assert found.figures == (), "there is nothing to draw of a program that is used once"


# ------------------------------------------------------------------ formats


@pytest.mark.slow
def test_markdown_html_and_rows(tmp_path: Path) -> None:
    place = save_layout(tmp_path / "in")
    done = report(place)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("# Kernels\n")
    assert done.stdout.count("\n```python\n") == 10
    answer = done.stdout.splitlines()[2]
    done = report(place, "-o", tmp_path / "report.html")
    assert (done.exit_code, done.stdout) == (0, f"{answer}\n")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<details>") == 10
    assert "<svg" in page
    rows = [json.loads(line) for line in report(place, "--json").stdout.splitlines()]
    hashes = {kernel_hash(one) for text in SOURCES.glob("*.txt") for one in kernels_of_text(text)}
    assert {row["hash"] for row in rows} == hashes
    assert {row["calls"] for row in rows} == {2, 4}
    csv = report(place, "--format", "csv").stdout.splitlines()
    assert len(csv) == 1 + len(rows)


class Page(HTMLParser):
    """A page's tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def hostile(tmp_path: Path) -> Path:
    """A folder whose names, sources and facts would be more than text."""
    place = tmp_path / "in"
    for sample in ("one", "<img src=x onerror=alert(1)>"):
        (place / sample).mkdir(parents=True)
        code = f"# {EVIL} \x1b[31m ```\n# ````` \u202e\n{TEMPLATE}"
        name = "evil`|<b>\x1b[2J" + EVIL.replace("'", "")
        (place / sample / "output_code.py").write_text(f"k = async_compile.triton('''{name}''', {code!r})\n")
    folder = save_text(place / "two", SOURCES / "cuda_block_forward.txt", "cuda:90", "forward")
    text = (
        (folder / "graph.json").read_text().replace("aten.gelu.default", "aten.gelu<b>").replace("aten.mm.out", "<b>|x")
    )
    (folder / "graph.json").write_text(text)
    (place / "<script>.py").write_text("@triton.jit(")
    return place


def test_a_page_runs_nothing_of_strangers(tmp_path: Path) -> None:
    done = report(hostile(tmp_path), "-o", tmp_path / "report.html")
    assert done.exit_code == 1, "a file was not read"
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert page.tags.count("script") == 1
    assert not {"img", "b"} & set(page.tags)
    assert not page.attributes & {"src", "style", "onerror"}
    assert EVIL not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert text.count("<pre>") == text.count("</pre>")


def test_markdown_keeps_the_code_of_strangers_in_its_fence(tmp_path: Path) -> None:
    done = report(hostile(tmp_path))
    assert done.exit_code == 1
    assert "not read: " in done.stderr
    assert "Not read" in done.stdout
    assert "\x1b" not in done.output
    lines = done.stdout.splitlines()
    [opened] = [number for number, line in enumerate(lines) if line == "``````python"]
    closed = lines.index("``````", opened)
    assert any("`````" in line for line in lines[opened + 1 : closed])
    assert "\\<b\\>" in done.stdout


def test_nothing_to_report_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = report(tmp_path / "empty", "-o", tmp_path / "r.html")
    assert done.exit_code == 1
    assert "there are no kernels here" in done.stderr
    assert "there are no kernels here" in (tmp_path / "r.html").read_text(), "the page says it too"
    assert report(tmp_path / "missing").exit_code == 2
    assert report(tmp_path / "empty", "--json", "-o", tmp_path / "r.json").exit_code == 2
