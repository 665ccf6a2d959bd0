"""Samples with inputs of one value: a fault that such values hide is seen on a second draw, or there is no proof.

Each step of a stored sample is replaced by another, often one with the same result at ones or at zeros.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import backprint as bp

SWAPS = {
    r"aten\.mul\.Tensor\((\w+), (\w+)\)": r"aten.div.Tensor(\1, \2)",
    r"aten\.mul\.Scalar\((\w+), ([-\d.]+)\)": r"aten.div.Scalar(\1, \2)",
    r"aten\.add\.Tensor\((\w+), (\w+)\)": r"aten.sub.Tensor(\1, \2)",
    r"aten\.sub\.Tensor\((\w+), (\w+)\)": r"aten.add.Tensor(\1, \2)",
    r"aten\.tanh_backward\.default\((\w+), (\w+)\)": r"aten.sigmoid_backward.default(\1, \2)",
    r"aten\.tanh\.default\((\w+)\)": r"aten.sin.default(\1)",
    r"aten\.cos\.default\((\w+)\)": r"aten.sin.default(\1)",
    r"aten\.sin\.default\((\w+)\)": r"aten.cos.default(\1)",
    r"aten\.neg\.default\((\w+)\)": r"aten.positive.default(\1)",
    r"aten\.where\.self\((\w+), (\w+), (\w+)\)": r"aten.where.self(\1, \2, \2)",
}
"""A call, and another in its place."""


def faults(sample: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield a name, a file and its text with one step replaced, for every step that SWAPS knows."""
    for path in sorted(sample.glob("pair_0/*/model.py")):
        text = path.read_text()
        head, mark, tail = text.partition("\n\n\n# --- Below")
        for pattern, other in SWAPS.items():
            for found in re.finditer(pattern, head):
                call = found.expand(other)
                changed = head[: found.start()] + call + head[found.end() :]
                yield f"{path.parent.name}: {found[0]} -> {call}", path, changed + mark + tail


def caught(sample: Path) -> dict[str, bool]:
    """Say of each fault whether `verify` sees it, or says that it proves nothing."""
    outcomes = {}
    for name, path, text in faults(sample):
        before = path.read_text()
        path.write_text(text)
        try:
            verdict = bp.load(sample).verify()[-1]
            outcomes[name] = verdict.verdict in ("wrong", "failed") or not verdict.proof
        except bp.errors.SampleError:
            outcomes[name] = True
        finally:
            path.write_text(before)
    return outcomes


def scaled(x: Tensor, scale: Tensor, shift: Tensor, mask: Tensor) -> Tensor:
    y = (x * scale + shift).tanh() * scale
    return torch.where(mask, y.sin(), (y * x).cos())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.first(x))


FLAT = (torch.ones(3), torch.zeros(3), torch.ones(2, 3, dtype=torch.bool))


@pytest.fixture(scope="module", params=["first order", "exact", "second order"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("flat") / "sample"
    if request.param == "second order":
        return bp.capture(Net(), torch.randn(2, 3), order=2).save(path, power="none")
    capture = bp.capture(scaled, torch.randn(2, 3), *FLAT)
    return capture.save(path, data="exact" if request.param == "exact" else "seed", power="none")


@pytest.mark.slow
def test_a_sample_is_proven(sample: Path) -> None:
    verdict = bp.load(sample).verify()[-1]
    assert verdict.verdict == "bitwise"
    assert verdict.proof


@pytest.mark.slow
def test_every_step_that_is_another_is_seen(sample: Path) -> None:
    outcomes = caught(sample)
    assert len(outcomes) >= 5
    assert [name for name, seen in outcomes.items() if not seen] == []


def without_second(sample: Path, path: Path) -> bp.Capture:
    """The sample without results on a second draw."""
    content = json.loads((sample / "capture.json").read_text())
    content["witness"] = {key: row for key, row in content["witness"].items() if not key.startswith("redrawn ")}
    for file in sample.rglob("*"):
        if file.is_file():
            target = path / file.relative_to(sample)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    (path / "capture.json").write_text(json.dumps(content))
    return bp.load(path)


@pytest.mark.slow
def test_a_sample_without_a_second_draw_has_no_proof(tmp_path: Path) -> None:
    made = bp.capture(scaled, torch.randn(2, 3), *FLAT).save(tmp_path / "made", power="none")
    old = without_second(made, tmp_path / "old")
    [verdict] = old.verify()
    assert not verdict.proof
    assert "output output" in verdict.vacuous
    assert "mask, scale, shift has one value everywhere, and the sample keeps no results on others" in verdict.detail
    assert "output output" in bp.power(old).vacuous


@pytest.mark.slow
def test_a_second_draw_of_other_inputs_is_not_compared(tmp_path: Path) -> None:
    made = bp.capture(scaled, torch.randn(2, 3), *FLAT).save(tmp_path / "made", power="none")
    content = json.loads((made / "capture.json").read_text())
    content["witness"]["redrawn inputs"]["digest"] = "0" * 16
    (made / "capture.json").write_text(json.dumps(content))
    [verdict] = bp.load(made).verify()
    assert verdict.verdict == "bitwise"
    assert not verdict.proof


def test_an_input_that_a_guard_holds_needs_no_other_value(tmp_path: Path) -> None:
    def guarded(x: Tensor, flag: Tensor) -> Tensor:
        return x.sin() * 2 if flag.item() == 1 else x

    made = bp.capture(guarded, torch.randn(3), torch.ones(())).save(tmp_path / "made", power="none")
    assert bp.load(made).verify()[-1].proof
