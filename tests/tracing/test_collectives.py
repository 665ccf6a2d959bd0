"""Collectives of a process group: captured with their waits and kept, by engine `eager` alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import backprint as bp

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="this torch is built without torch.distributed"),
    pytest.mark.filterwarnings("ignore"),  # torch.distributed's own deprecations
]


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_functional_collective_is_captured_and_kept(group: None, tmp_path: Path) -> None:
    from torch.distributed._functional_collectives import all_reduce

    def f(x: Tensor) -> Tensor:
        return (all_reduce(x * 2, "sum", dist.group.WORLD) * x).sum()

    capture = bp.capture(f, torch.randn(3))
    targets = [step.target for step in capture.pairs[0].forward.steps]
    assert {f"torch.ops._c10d_functional.{name}.default" for name in ("all_reduce", "wait_tensor")} <= set(targets)
    assert capture.requires == ()
    assert capture.verify()[0].verdict == "bitwise"
    capture.save(tmp_path / "sample")
    assert bp.load(tmp_path / "sample").verify()[0].verdict == "bitwise"


def test_another_engine_is_refused_by_name(group: None) -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y.sum()

    with pytest.raises(bp.errors.UsageError, match=r"only engine 'eager' \(or 'aot'\) captures that"):
        bp.capture(f, torch.randn(3), engine="dynamo")


PROGRAM = """
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives

import backprint as bp

dist.init_process_group("gloo")
rank = dist.get_rank()


class Reduced(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return collectives.all_reduce(self.linear(x), "sum", dist.group.WORLD) * 2


torch.manual_seed(0)
model, x = Reduced(), torch.randn(1024, 256) + rank
capture = bp.capture(model, x, engine="eager")
(pair,) = capture.pairs
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump(
        {
            "forward": [step.target.removeprefix("torch.ops.") for step in pair.forward.steps],
            "backward": [step.target.removeprefix("torch.ops.") for step in pair.backward.steps],
            "echoes": [step.echo.names[0] for step in pair.backward.steps if step.echo],
            "same": torch.equal(bp.replay(capture, x, state=model.state_dict()).outputs, model(x)),
        },
        file,
    )
dist.barrier()
dist.destroy_process_group()
time.sleep(0.3)  # Gloo's threads release tensors, for which they need Python, a moment after the collective
"""


@pytest.mark.slow
def test_what_reads_the_result_of_a_collective_reads_it_after_the_wait(tmp_path: Path) -> None:
    """In two processes that reduce over gloo, on this machine alone."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    run = subprocess.run([*launch, str(script), str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-4000:]
    reduced = ["_c10d_functional.all_reduce.default", "_c10d_functional.wait_tensor.default"]
    for rank in range(2):
        seen = json.loads((tmp_path / f"{rank}.json").read_text())
        assert seen["forward"][-3:] == [*reduced, "aten.mul.Tensor"]
        assert [target for target in seen["backward"] if "c10d" in target] == reduced
        assert "wait_tensor" not in seen["echoes"]
        assert seen["same"]


def test_a_collective_in_place_is_an_opaque_edge_of_a_capture_without_values(group: None) -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return (y * y).sum()

    capture = bp.capture(f, torch.randn(3), fake=True)
    texts = [edge.text for edge in capture.opaque]
    assert any("copy_.default updates a tensor that requires grad, with gradients off" in text for text in texts)
