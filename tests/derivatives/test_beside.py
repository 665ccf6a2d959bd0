"""The second word of a verdict: when it is there, that it costs nothing of the first, who keeps and who shows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

import backprint as bp
from face import (
    CANNOT_TELL,
    DERIVATIVE,
    NOT_THE_DERIVATIVE,
    Derivative,
    Pair,
    beside,
    derivative_json,
    main,
    page_facts,
    report,
    worst_derivative,
)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 3


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    return bp.capture(lambda x: Scaled.apply(x).sin(), leaf(3, 4)).save(tmp_path / "samples" / "wrong")


@pytest.fixture
def right(tmp_path: Path) -> Path:
    return bp.capture(torch.sin, leaf(3, 4)).save(tmp_path / "samples" / "right")


def test_a_small_capture_has_it_and_a_large_one_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    cap = bp.capture(torch.sin, leaf(3, 4))
    monkeypatch.setattr(beside, "LARGE", 25)  # input and result have 24 elements
    assert str(cap.verify()[0].derivative) == str(bp.derivative(cap)[0])
    assert cap.verify(derivative=False)[0].derivative is None
    monkeypatch.setattr(beside, "LARGE", 24)
    assert cap.verify()[0].derivative is None
    assert cap.verify(derivative=True)[0].derivative.word == "derivative"


def test_forwards_alone_and_captures_without_values_have_none() -> None:
    assert bp.capture(torch.sin, torch.ones(3), requires_grad=False).verify()[0].derivative is None
    assert bp.capture(torch.sin, leaf(3), fake=True).verify()[0].derivative is None


def test_an_error_costs_the_second_word_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> list[Derivative]:
        raise IndexError("list index out of range")

    cap = bp.capture(torch.sin, leaf(3))
    monkeypatch.setattr(beside, "derivatives_of", broken)
    (verdict,) = cap.verify()
    assert (verdict.verdict, verdict.derivative.word) == ("bitwise", CANNOT_TELL)
    assert verdict.derivative.detail == "IndexError: list index out of range"
    with pytest.raises(IndexError):
        cap.verify(derivative=True)


def test_the_whole_has_the_worst_of_its_pairs() -> None:
    def program(x: Tensor) -> Tensor:
        y = Scaled.apply(x)
        torch._dynamo.graph_break()
        return y.exp()

    words = [verdict.derivative.word for verdict in bp.capture(program, leaf(3), engine="dynamo").verify()]
    assert words == [NOT_THE_DERIVATIVE, DERIVATIVE, NOT_THE_DERIVATIVE]
    of_word = [Derivative(word, "x") for word in (DERIVATIVE, "derivative but for F", CANNOT_TELL, NOT_THE_DERIVATIVE)]
    for count in range(1, 5):
        assert worst_derivative(of_word[:count]) == of_word[count - 1]


def test_a_sample_keeps_it_and_shows_where(wrong: Path) -> None:
    loaded = bp.load(wrong)
    kept = loaded.verdict["derivative"]
    assert kept == json.loads(json.dumps(derivative_json(loaded.verify()[0].derivative)))
    assert "Scaled at" in kept["wrong"][0]
    assert "not the derivative" in repr(loaded)
    facts = dict(page_facts(loaded))
    assert facts["verdict"] == "bitwise, not the derivative"
    assert facts["derivative"].startswith(f"{kept['detail']}; Scaled at")
    shown = " ".join(CliRunner().invoke(main, ["show", str(wrong), "--summary"]).stdout.split())
    assert "verdict bitwise, not the derivative" in shown
    assert "Scaled at" in shown


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"word": "surely the derivative"}, "'surely the derivative' is no word of a derivative"),
        ({"word": "derivative but for \x1b[2J"}, "expected printable text"),
        ({"gap": "small"}, "expected a number"),
        ({"wrong": [3]}, "expected str"),
    ],
)
def test_a_strangers_word_is_checked(wrong: Path, change: dict[str, Any], problem: str) -> None:
    place = wrong / "capture.json"
    content = json.loads(place.read_text())
    content["verdict"]["derivative"] |= change
    place.write_text(json.dumps(content))
    with pytest.raises(bp.errors.SampleError, match=problem):
        bp.load(wrong)


def test_a_backward_that_is_not_the_derivative_ends_with_1(wrong: Path) -> None:
    def verify(*options: str) -> tuple[int, Any]:
        result = CliRunner().invoke(main, ["verify", "--json", *options, str(wrong)])
        return result.exit_code, json.loads(result.stdout)["derivative"]

    code, derivative = verify()
    assert (code, derivative["word"]) == (1, NOT_THE_DERIVATIVE)
    code, derivative = verify("--derivative")
    assert (code, derivative["word"]) == (1, NOT_THE_DERIVATIVE)
    assert verify("--no-derivative") == (0, None)


def test_a_corpus_has_a_column_and_its_reports_name_the_wrong_ones(right: Path, wrong: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert bp.corpus.run("verify", str(right.parent), str(out), jobs=1).verdicts == {"bitwise": 2}
    whole = report(out)
    place = list(whole.rows.columns).index("derivative")
    assert {row[0]: row[place] for row in whole.rows.rows} == {"right": DERIVATIVE, "wrong": NOT_THE_DERIVATIVE}
    [(sample, word, *_, reason)] = whole.tables[1].rows
    assert (sample, word) == ("wrong", f"bitwise, {NOT_THE_DERIVATIVE}")
    assert "Scaled at" in reason
    status = CliRunner().invoke(main, ["corpus", "status", str(out)]).stdout
    assert "backwards: 1 derivative, 1 not the derivative" in status


def test_a_wrong_graph_keeps_its_first_word() -> None:
    cap = bp.capture(torch.sin, leaf(3))
    [pair] = cap.pairs
    assert pair.backward is not None
    steps = tuple(replace(step, target=step.target.replace("aten.cos", "aten.sin")) for step in pair.backward.steps)
    wrong = Pair(pair.name, pair.forward, replace(pair.backward, steps=steps))
    [verdict] = replace(cap, pairs=(wrong,)).verify()
    assert (verdict.verdict, verdict.derivative.word) == ("wrong", NOT_THE_DERIVATIVE)
