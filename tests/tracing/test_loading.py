"""Dynamo is loaded where a program or an engine needs it, and by nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

ONCE = """
import sys
import torch
from torch import Tensor, nn
import backprint as bp
from backprint._torch.dynamo import DISABLED, is_loaded, not_loading

def missing() -> None:
    assert not is_loaded() and "torch._inductor" not in sys.modules

nets = [
    (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.5)), torch.randn(3, 4)),
    (nn.LSTM(2, 2), torch.randn(2, 1, 2)),
]
for number, (net, x) in enumerate(nets):
    capture = bp.capture(net, x, mode="train")
    assert [verdict.verdict for verdict in bp.verify(capture)] == ["bitwise"]
    sample = bp.load(bp.save(capture, f"{sys.argv[1]}/{number}"))
    assert [verdict.verdict for verdict in bp.verify(sample)] == ["bitwise"]
    bp.derivative(sample)
    bp.draw.draw(sample, f"{sys.argv[1]}/{number}.svg")
    bp.diff.compare(sample, capture)
    missing()

# What torch asks of Dynamo while it is not loaded leaves nothing behind: functions are disabled for it later.
asked = []
with not_loading():
    import torch._dynamo as stand_in
    torch.ops.aten.div.Tensor(torch.ones(2, device="meta"), 2.0)
    asked = stand_in.functions
assert asked and not any(hasattr(function, DISABLED) for function in asked)
missing()

def compiling(x: Tensor) -> Tensor:
    return torch.compile(lambda y: (y * 2).sin(), backend="eager")(x).sum()

capture = bp.capture(compiling, torch.ones(3, requires_grad=True))
assert is_loaded() and isinstance(torch._dynamo.config.cache_size_limit, int)
targets = [step.target for step in capture.pairs[0].forward.steps]
assert targets == ["aten.mul.Tensor", "aten.sin.default", "aten.sum.default"]
assert [verdict.verdict for verdict in bp.verify(capture)] == ["bitwise"]
"""

ANYTHING_ELSE = """
import torch
from backprint._torch.dynamo import Unloaded, is_loaded, not_loading

with not_loading():
    import torch._dynamo as stand_in
    assert isinstance(stand_in, Unloaded) and not is_loaded()
    from torch._dynamo import config
    assert is_loaded() and stand_in.config is config
assert is_loaded() and torch._dynamo.config is config
"""


@pytest.mark.slow
def test_capture_and_proof_load_no_dynamo_until_a_program_does(tmp_path: object) -> None:
    subprocess.run([sys.executable, "-c", ONCE, str(tmp_path)], check=True)


@pytest.mark.slow
def test_whatever_else_is_asked_of_what_stands_for_dynamo_loads_it() -> None:
    subprocess.run([sys.executable, "-c", ANYTHING_ELSE], check=True)


BRANCHING = """
import torch
import backprint as bp

class Branching(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.left(x), lambda x: self.right(x), (x,))

net, x = Branching(), torch.ones(2, 4)
capture = bp.capture(net, x)
assert capture.engine == "dynamo" and [verdict.verdict for verdict in bp.verify(capture)] == ["bitwise"]
assert torch.equal(net(x), net.left(x))
"""


@pytest.mark.slow
def test_a_program_that_loads_dynamo_by_its_control_flow_still_runs_after_a_capture() -> None:
    subprocess.run([sys.executable, "-c", BRANCHING], check=True)
