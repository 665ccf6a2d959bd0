"""The derivative of a saved sample: what only the running program shows is kept, or said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

import backprint as bp
from face import reasons_of_derivative, rows_of_sample

NOT_THE_DERIVATIVE = "not the derivative"


class ByStride(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return (2 if g.is_contiguous() else 1) * ctx.saved_tensors[0] * g


class Right(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * g


def saved(program: Any, path: Path, **options: Any) -> Path:
    return bp.save(bp.capture(program, torch.randn(4, 5, requires_grad=True), **options), path)


def changed(path: Path, **fields: Any) -> Path:
    """Change the stored derivative of a sample, as anyone can."""
    content = json.loads((path / "capture.json").read_text())
    content["verdict"]["derivative"] |= fields
    (path / "capture.json").write_text(json.dumps(content))
    return path


@pytest.fixture(scope="module")
def by_stride(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(ByStride.apply, tmp_path_factory.mktemp("kept") / "sample")


def test_what_the_running_program_showed_is_kept(by_stride: Path) -> None:
    (answer,) = bp.derivative(bp.load(by_stride))
    assert answer.word == NOT_THE_DERIVATIVE
    assert [place.function for place in answer.wrong] == ["ByStride"]
    assert "as the running program showed when the sample was saved" in answer.detail
    assert "in new memory" in answer.detail


def test_what_is_wrong_at_the_captured_values_stays_wrong(tmp_path: Path) -> None:
    """The inputs of the sample are drawn again, and none is 0."""
    x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
    cap = bp.capture(lambda x: torch.where(x > 0, x.sqrt(), 0.0), x)
    live = bp.derivative(cap, hostile=True)[0].word
    assert bp.derivative(cap)[0].word == bp.derivative(bp.load(bp.save(cap, tmp_path / "sample")))[0].word
    assert live == NOT_THE_DERIVATIVE


def test_a_word_that_is_meant_now_is_not_kept(by_stride: Path) -> None:
    (answer,) = bp.derivative(bp.load(by_stride), meant=("ByStride",))
    assert answer.good


def test_rows_of_verify(by_stride: Path, tmp_path: Path) -> None:
    (row,) = rows_of_sample(by_stride, (), derivative=True)
    assert row["derivative"]["word"] == NOT_THE_DERIVATIVE
    (row,) = rows_of_sample(saved(Right.apply, tmp_path / "right"), (), derivative=True)
    assert row["derivative"]["word"] == "derivative"
    assert "not tried from disk" in " ".join(reasons_of_derivative(row["derivative"]))  # what the command prints


def test_what_is_not_tried_from_disk_is_said(tmp_path: Path) -> None:
    path = saved(Right.apply, tmp_path / "sample")
    (answer,) = bp.derivative(bp.load(path))
    assert answer.word == "derivative"
    assert "not tried from disk: tangents in other memory" in answer.detail
    assert ("a second call", "not tried from disk") in answer.not_tried
    plain = saved(torch.sin, tmp_path / "plain")
    assert "not tried" not in bp.derivative(bp.load(plain))[0].detail  # it has no backward of its own


def test_a_better_word_in_a_file_is_no_evidence(tmp_path: Path) -> None:
    path = saved(ByStride.apply, tmp_path / "sample")
    changed(path, word="derivative", detail="", wrong=[], functions=[])
    (answer,) = bp.derivative(bp.load(path))
    assert answer.word == "derivative"
    assert "not tried from disk" in answer.detail


def test_a_word_about_other_graphs_is_not_relied_on(tmp_path: Path) -> None:
    path = saved(ByStride.apply, tmp_path / "sample")
    text = (path / "capture.json").read_text()
    (path / "capture.json").write_text(text.replace(bp.load(path).verdict["graphs"], "0" * 32))
    (answer,) = bp.derivative(bp.load(path))
    assert "about other graphs" in answer.detail
    assert "not tried from disk" in answer.detail
