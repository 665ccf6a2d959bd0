"""What a notebook shows of what functions return: a piece of HTML that can be parsed, with nothing from elsewhere."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import Report, Table, html_of

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\n<img src=x onerror=alert(1)>"


class Doubled(torch.autograd.Function):
    """Its backward forgets the 2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def doubled(x: Tensor) -> Tensor:
    return Doubled.apply(x)  # type: ignore[no-any-return, no-untyped-call]


def small() -> bp.Capture:
    return bp.capture(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), torch.randn(2, 3))


def table_of(value: Any) -> tuple[list[list[str]], str]:
    """The rows of what a notebook shows of a value, headings first, and all of its text."""
    shown = value._repr_html_()
    piece = ElementTree.fromstring(shown)
    tags = {part.tag for part in piece.iter()}
    assert tags <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "pre"}
    assert {name for part in piece.iter() for name in part.attrib} <= {"style"}, "no link, no script, no image"
    assert "url(" not in shown
    return [["".join(cell.itertext()) for cell in row] for row in piece.iter("tr")], "".join(piece.itertext())


def test_verdicts_show_their_ports() -> None:
    verdicts = small().verify()
    rows, text = table_of(verdicts)
    assert text.startswith("Sequential bitwise, derivative")
    assert rows[0] == ["port", "verdict", "power", "compared with"], "a column without a value is left out"
    assert ["output output", "bitwise"] in [row[:2] for row in rows]
    assert table_of(verdicts[0])[0] == rows


@pytest.mark.slow
def test_verdicts_of_several_pairs_are_rows() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    verdicts = bp.capture(program, torch.randn(3, requires_grad=True), engine="dynamo").verify()
    rows, _ = table_of(verdicts)
    assert [row[0] for row in rows] == ["name", "program pair_0", "program pair_1", "program"]
    assert {row[1] for row in rows[1:]} == {"bitwise, derivative"}


def test_a_wrong_backward_is_named() -> None:
    x = torch.randn(4, requires_grad=True)
    derivatives = bp.derivative(doubled, x)
    for value in (derivatives, derivatives[0]):
        rows, text = table_of(value)
        assert rows[1][:2] == ["doubled", "not the derivative"]
        assert "Doubled" in text
    rows, text = table_of(bp.check(doubled, x, raises=False))
    assert text.startswith("doubled wrong (")
    assert rows[0] == ["check", "dtype", "of", "error", "allowed", "verdict"]
    assert "wrong" in {row[-1] for row in rows}
    assert "First fault: " in text


def test_power_shows_its_ports_and_redraws() -> None:
    rows, text = table_of(bp.power(small()))
    assert text.startswith("Power 0 of ")
    assert rows[0][:2] == ["port", "tolerances"]
    assert "redraw" in {row[0] for row in rows}


def test_a_diff_shows_its_answer() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), torch.randn(2, 3)
    before, after = bp.capture(model, x), bp.capture(nn.Sequential(model[0], nn.Sigmoid()), x, name="after")
    _, text = table_of(bp.diff.compare(before, after))
    assert text.startswith("Sequential → after ")
    assert "tanh" in text
    assert "no differences" in table_of(bp.diff.compare(before, before))[1]


def test_parts_and_runs_show_their_verdicts(tmp_path: Path) -> None:
    capture = small()
    rows, text = table_of(bp.split(capture, "range:1"))
    assert rows[0] == ["pair", "part", "times", "verdict"]
    assert {row[3] for row in rows[1:]} == {"bitwise"}, text
    capture.save(tmp_path / "samples" / "small")
    run = bp.corpus.run("verify", tmp_path / "samples", tmp_path / "out", jobs=1)
    assert table_of(run)[0] == [["verdict", "samples"], ["bitwise", "1"]]


HOSTILE_VALUES: dict[str, Callable[[], Any]] = {
    "verdict": lambda: replace(small().verify()[0], name=HOSTILE, detail=HOSTILE, nonfinite=HOSTILE),
    "derivative": lambda: replace(bp.derivative(small())[0], name=HOSTILE, detail=HOSTILE),
    "check": lambda: replace(bp.check(torch.sin, torch.ones(2), raises=False), name=HOSTILE),
    "diff": lambda: bp.diff.compare(replace(small(), name=HOSTILE), replace(small(), notes=(HOSTILE,))),
}


@pytest.mark.parametrize("kind", HOSTILE_VALUES)
def test_every_text_is_escaped(kind: str) -> None:
    value = HOSTILE_VALUES[kind]()
    assert "alert" in table_of(value)[1]
    assert "<script" not in value._repr_html_()
    assert "\x1b" not in value._repr_html_()


def test_a_long_table_says_how_much_is_left_out() -> None:
    report = Report("long", "", (), Table("", {"number": "count"}, [(number,) for number in range(1000)]))
    piece = ElementTree.fromstring(html_of(report))
    assert len(list(piece.iter("tr"))) == 61
    assert "and 940 more rows" in "".join(piece.itertext())
