"""A graph on another device says so everywhere, and chooses its kernels there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp
from face import RefusedError, in_general_form, new_devices, on_device, parse, without_saved


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3) + torch.arange(4, device="cpu")


def forward() -> bp.types.Graph:
    return bp.capture(Attention(), torch.randn(2, 5, 8)).pairs[0].forward


def test_there_and_back() -> None:
    graph = forward()
    there = on_device(graph, new_devices(graph, "cuda:0"))
    assert there.code.count("@cuda:0") > 5
    assert "device('cuda:0')" in there.code
    assert "device('cpu')" not in there.code
    assert (
        "aten.scaled_dot_product_attention.default(unbind_0, unbind_1, unbind_2, None, 0.0, True, scale=0.3)"
        in there.code
    )
    assert "flash_attention_for_cpu.default" not in there.code
    assert parse(there.code) == there
    back = on_device(there, new_devices(there, "cpu"))
    assert back == in_general_form(without_saved(graph))


def test_tensors_on_the_cpu_stay_where_others_are_on_a_gpu() -> None:
    graph = parse(forward().code.replace('"f32[24, 8] parameter', '"f32[24, 8] @cuda:0 parameter'))
    moved = on_device(graph, new_devices(graph, "cuda:1"))
    assert [port.spec.device for port in moved.inputs] == ["cuda:1", "cpu", "cpu"]
    assert new_devices(graph, "cuda:0") == {}


def test_what_one_kernel_alone_gives_cannot_move() -> None:
    with pytest.raises(RefusedError, match="what only a kernel of one device gives"):
        in_general_form(forward())  # with what it saves of attention for its backward


@pytest.mark.slow
def test_a_sample_is_captured_again_on_a_device(tmp_path: Path) -> None:
    bp.capture(Attention(), torch.randn(2, 5, 8)).save(tmp_path / "sample")
    again = bp.capture(tmp_path / "sample", device="cpu")
    assert {verdict.verdict for verdict in again.verify()} == {"bitwise"}
