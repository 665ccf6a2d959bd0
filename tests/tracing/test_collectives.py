"""Collectives: the functional ones are captured and kept only when allowed by name; the rest are refused by name."""

from __future__ import annotations

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


def test_a_functional_collective_is_captured_and_kept_by_name_alone(group: None, tmp_path: Path) -> None:
    from torch.distributed._functional_collectives import all_reduce

    def f(x: Tensor) -> Tensor:
        return (all_reduce(x * 2, "sum", dist.group.WORLD) * x).sum()

    capture = bp.capture(f, torch.randn(3))
    assert "torch.ops._c10d_functional.all_reduce.default" in capture.requires
    assert capture.verify()[0].verdict in ("bitwise", "close")
    with pytest.raises(bp.errors.RefusedError, match="_c10d_functional"):
        capture.save(tmp_path / "sample")


def test_a_collective_in_place_is_refused_by_name(group: None) -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y.sum()

    with pytest.raises(bp.errors.CaptureError, match="collective"):
        bp.capture(f, torch.randn(3), engine="aot")
