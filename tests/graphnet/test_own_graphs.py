"""Samples for GraphNet's tools that Backprint itself wrote are GraphNet samples that Backprint reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import backprint as bp
from face import (
    RefusedError,
    SampleError,
    main,
    plan_of,
    read_graphnet,
    sample_identity,
)
from face import saving_write_layout as write_layout


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.inner(x)).t().relu() + torch.arange(2, device="cpu")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders that hold one direction of a Capture each."""
    root = tmp_path_factory.mktemp("own")
    torch.manual_seed(0)
    capture = bp.capture(Net(), torch.randn(2, 3), mode="train")
    write_layout(capture, root / "trees", "a/one", None)
    capture.save(root / "sample")
    for side in ("forward", "backward"):
        shutil.copytree(root / "sample" / "pair_0" / side, root / "copies" / side)
    return {
        "tree forward": root / "trees" / "train_forward" / "a" / "one",
        "tree backward": root / "trees" / "train_backward" / "a" / "one",
        "copied forward": root / "copies" / "forward",
        "copied backward": root / "copies" / "backward",
    }


@pytest.mark.parametrize("which", ["tree forward", "copied forward"])
def test_a_forward_is_captured_again_with_its_names_lines_and_operators(which: str, places: dict[str, Path]) -> None:
    capture = bp.capture(places[which])
    assert [verdict.verdict for verdict in capture.verify()] == ["bitwise"]
    ports = {port.name: port.role for port in capture.pairs[0].forward.inputs}
    assert ports == {
        "inner.weight": "parameter",
        "inner.bias": "parameter",
        "norm.weight": "parameter",
        "norm.bias": "parameter",
        "norm.running_mean": "buffer",
        "norm.running_var": "buffer",
        "norm.num_batches_tracked": "buffer",
        "x": "input",
    }
    steps = capture.pairs[0].forward.steps
    assert "aten._native_batch_norm_legit_functional.default" in {step.target for step in steps}
    assert {step.source.function for step in steps if step.source is not None} == {"forward"}
    backward = capture.pairs[0].backward
    assert backward is not None
    assert {port.name for port in backward.outputs} == {name for name, role in ports.items() if role == "parameter"}


@pytest.mark.parametrize("which", ["tree backward", "copied backward"])
def test_a_backward_is_a_sample_without_gradients(which: str, places: dict[str, Path]) -> None:
    plan = plan_of(read_graphnet(places[which]))
    assert plan.with_grad == ()
    assert ("tangent_output", "an input of a backward, which has no backward of its own") in {
        (named.raw, why) for named, (_, why) in zip(plan.inputs, plan.without_grad, strict=True)
    }
    capture = bp.capture(places[which])
    (verdict,) = capture.verify()
    assert verdict.verdict == "undifferentiable"
    assert "the forward is bitwise" in verdict.detail


def test_both_forms_of_one_forward_are_the_same_program(places: dict[str, Path]) -> None:
    keys = {which: sample_identity(place, exact=True)[0] for which, place in places.items()}
    assert keys["tree forward"] == keys["copied forward"]
    assert keys["tree backward"] == keys["copied backward"]
    assert keys["tree forward"] != keys["tree backward"]


def test_show_says_what_such_a_sample_calls(places: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["show", str(places["tree forward"]), "--json"])
    row = json.loads(capsys.readouterr().out)
    assert row["calls"]["aten.addmm.default"] == 1
    assert row["lines"] > sum(row["calls"].values()) - 1


ODD = {
    "another ending": (lambda text: text + "\nimport os\n", "the lines below the graph are not those"),
    "an operator of a library": (lambda text: text.replace("aten.relu.", "torch.ops.mine.relu."), "mine.relu.default"),
    "a call of something else": (lambda text: text.replace("aten.relu.default", "os.system"), "os.system"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_a_graph_of_ours_is_refused_by_its_line(odd: str, places: dict[str, Path], tmp_path: Path) -> None:
    change, said = ODD[odd]
    place = shutil.copytree(places["copied forward"], tmp_path / "copy")
    text = (place / "model.py").read_text()
    assert change(text) != text
    (place / "model.py").write_text(change(text))
    with pytest.raises(RefusedError, match=said):
        read_graphnet(place)


def test_an_input_without_metadata_is_named(places: dict[str, Path], tmp_path: Path) -> None:
    place = shutil.copytree(places["copied forward"], tmp_path / "copy")
    text = (place / "weight_meta.py").read_text()
    (place / "weight_meta.py").write_text(text[text.index("class Program_weight_tensor_meta_inner_bias") :])
    with pytest.raises(SampleError, match="no metadata says what inner_weight are"):
        read_graphnet(place)


def test_dtypes_that_metadata_lacks_are_those_of_the_graph(places: dict[str, Path], tmp_path: Path) -> None:
    place = shutil.copytree(places["copied forward"], tmp_path / "copy")
    (place / "weight_meta.py").unlink()
    sample = read_graphnet(place)
    assert sample.metas["norm_num_batches_tracked"].dtype == "int64"
    assert sample.notes == ()
