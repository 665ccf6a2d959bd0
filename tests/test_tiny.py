"""The whole flow in seconds: capture, read, save, load, replay, verify. Read this first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import backprint as bp


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.fc(x))


def test_the_whole_flow(tmp_path: Path) -> None:
    model, x = Tiny(), torch.randn(4, 3)
    capture = bp.capture(model, x)

    backward = capture.pairs[0].backward
    assert backward is not None
    assert 'grad_fc_weight: "f32[2, 3]"' in backward.code
    assert [port.name for port in backward.outputs] == ["fc.weight", "fc.bias"]

    out = bp.replay(capture, x)
    model(x).backward(torch.ones(4, 2))
    assert torch.equal(out.outputs, model(x))
    assert torch.equal(out.gradients["fc.weight"], model.fc.weight.grad)

    capture.save(tmp_path / "tiny")
    loaded = bp.load(tmp_path / "tiny")
    assert loaded.pairs == capture.pairs
    assert loaded.verify()[0].verdict == "bitwise"

    alone = [sys.executable, "-I", str(tmp_path / "tiny/pair_0/backward/model.py")]
    printed = subprocess.run(alone, capture_output=True, text=True, check=True).stdout
    assert printed.startswith("gradient fc.weight float32[2, 3] ")
