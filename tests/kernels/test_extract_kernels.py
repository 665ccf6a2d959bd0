"""Kernels of captured graphs: lowered for a processor and for GPUs that are not there."""

from __future__ import annotations

import dataclasses
import importlib.util
import random
from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp
from face import (
    ExtractedGraph,
    Graph,
    RefusedError,
    RefusedGraph,
    UsageError,
    extract_graphs,
    in_canonical_order,
    known_targets,
    refs,
    target_named,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, of Inductor's import

HAS_TRITON = importlib.util.find_spec("triton") is not None

needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="Inductor's Triton kernels need triton: pip install triton")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(self.out(y.transpose(1, 2).flatten(2)))


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y * 2 if x.sum().item() > 0 else y


def captured(model: nn.Module, *inputs: Tensor) -> Any:
    torch.manual_seed(0)
    return bp.capture(model, *inputs, mode="train").pairs[0]


def made(pair: Any, target: str) -> tuple[ExtractedGraph, ...]:
    """Return the kernels of a Pair; raise if a graph is refused."""
    graphs = []
    for graph in extract_graphs(pair, target_named(target)):
        if isinstance(graph, RefusedGraph):
            raise RefusedError(graph.reason)
        graphs.append(graph)
    return tuple(graphs)


def test_a_processor_need_not_have_the_instructions_of_a_target() -> None:
    pair = captured(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), torch.randn(5, 8))
    forward, backward = made(pair, "cpu:avx2")
    assert [found.direction for found in (forward, backward)] == ["forward", "backward"]
    assert {kernel.language for kernel in (*forward.kernels, *backward.kernels)} == {"cpp"}
    (gelu,) = forward.kernels
    assert [operator.operator for operator in gelu.operators] == ["aten.gelu.default"]
    assert "functional" in gelu.operators[0].line or "activation" in gelu.operators[0].line
    assert gelu.declared == "['const float*', 'float*']"
    (call,) = gelu.calls
    assert [(argument.dtype, argument.shape) for argument in call.arguments] == [("float32", (5, 16))] * 2
    assert 'extern "C"' in gelu.source
    assert forward.externs == {"aten.addmm.out": 2}
    assert (gelu.threads, gelu.isa, gelu.direction) == (1, "avx2", "forward")


def test_the_instructions_of_a_target_are_in_the_code() -> None:
    pair = captured(nn.LayerNorm(300), torch.randn(6, 300))
    eight, sixteen = (made(pair, f"cpu:{isa}")[0].kernels[0].source for isa in ("avx2", "avx512"))
    assert eight != sixteen
    assert "static_cast<int64_t>(8)" in eight
    assert "static_cast<int64_t>(16)" in sixteen


def test_guards_are_a_precondition() -> None:
    forward, _ = made(captured(Branch(), torch.rand(3, 4)), "cpu:avx2")
    assert len(forward.guards) == 1
    assert forward.notes == ("1 guards are left out: check them before these kernels are called",)


def test_a_name_that_is_no_target_is_refused_with_those_that_are() -> None:
    for text in ("cuda", "cuda:91", "cpu:sse", "rocm"):
        with pytest.raises(UsageError, match="no target is called") as error:
            target_named(text)
        assert "cuda:90" in str(error.value)
    assert all(target_named(name).name == name for name in known_targets())


def test_a_graph_with_symbols_has_the_kernels_of_its_sizes() -> None:
    model, x = nn.Sequential(nn.Linear(8, 4), nn.Tanh()), torch.randn(5, 8)
    sized, named = (
        bp.capture(model, x, mode="train", engine="aot", dynamic=dynamic).pairs[0]
        for dynamic in (False, {"input": {0: "batch"}})
    )
    found = made(named, "cpu:avx2")
    assert [graph.guards for graph in found] == [("batch == 5",), ("batch == 5",)]
    assert hashes(found) == hashes(made(sized, "cpu:avx2")) != []


def hashes(graphs: Iterable[ExtractedGraph]) -> list[str]:
    return [kernel.hash for graph in graphs for kernel in graph.kernels]


def shuffled(graph: Graph, seed: int) -> Graph:
    """The graph with its steps in another order that still computes it."""
    draw, left, found = random.Random(seed), [step for step in graph.steps if not step.is_guard], []
    known = {port.local for port in graph.inputs}
    while left:
        ready = [
            step
            for step in left
            if all(name in known for value in (*step.args, *(each for _, each in step.kwargs)) for name in refs(value))
        ]
        step = draw.choice(ready)
        left.remove(step)
        found.append(step)
        known.add(step.name)
    return dataclasses.replace(graph, steps=tuple(found))


def test_the_order_of_independent_steps_does_not_count() -> None:
    graph = captured(Block(), torch.randn(2, 8, 32)).backward
    wanted = in_canonical_order(graph)
    assert {step.name for step in wanted.steps} <= {step.name for step in graph.steps}
    for seed in range(5):
        other = shuffled(graph, seed)
        assert other.steps != graph.steps
        assert in_canonical_order(other).steps == wanted.steps


def test_writes_keep_their_order() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        return y.sin() + x

    graph = captured(nn.Linear(3, 3), torch.randn(2, 3)).forward
    assert in_canonical_order(graph).results == graph.results
    kept = bp.capture(program, torch.randn(3, requires_grad=True)).pairs[0].forward
    ordered = [step.name for step in in_canonical_order(kept).steps]
    assert ordered == sorted(ordered, key=[step.name for step in kept.steps].index)


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("target", ["cuda:80", "cuda:90"])
def test_a_gpu_need_not_be_there(target: str) -> None:
    forward, backward = made(captured(Block(), torch.randn(2, 8, 32)), target)
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default is written with other operators" in forward.notes
    for found in (forward, backward):
        assert found.kernels
        assert {kernel.language for kernel in found.kernels} == {"triton"}
        assert all(kernel.calls and "@triton.jit" in kernel.source for kernel in found.kernels)
        assert set(found.order) == {kernel.name for kernel in found.kernels}


@needs_triton
def test_what_only_a_cpu_has_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backprint.tools.kernels.extraction.FORMS_OF_CPU_OPERATORS", {})
    with pytest.raises(RefusedError, match=r"aten\.mkldnn_rnn_layer\.default runs on a CPU only"):
        made(captured(nn.LSTM(4, 8), torch.randn(5, 2, 4)), "cuda:90")
