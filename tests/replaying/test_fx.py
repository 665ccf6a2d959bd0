"""Graphs as torch.fx modules: they run, guards and all, are traced again, and carry what passes look for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.shape_prop import ShapeProp

import backprint as bp

X, N = torch.tensor([1.0, -2.0, 3.0, 4.0]), torch.tensor(2)


def guarded(x: Tensor, n: Tensor) -> Tensor:
    k = int(n.item())
    return (x[x > 0] * k).sum() + x[:k].sum()


def module() -> fx.GraphModule:
    return bp.capture(guarded, X, N, specialize=True, engine="aot").pairs[0].forward.to_fx()


def examples(graph: fx.GraphModule) -> list[Any]:
    return [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]


@pytest.mark.slow
def test_guards_hold_where_the_module_runs() -> None:
    assert torch.equal(module()(X, N)[0], guarded(X, N))
    with pytest.raises(
        bp.errors.GuardError, match=r"test_fx\.py:\d+: 'k = int\(n\.item\(\)\)': the capture took 2.*give 3"
    ):
        module()(X, torch.tensor(3))
    with pytest.raises(bp.errors.GuardError, match=r"shape == \(3,\)` does not hold"):
        module()(-X, N)


@pytest.mark.slow
def test_a_guard_on_what_is_no_number() -> None:
    def f(x: Tensor, n: Tensor) -> Tensor:
        return x * (1 if n.item() != n.item() else 2)

    capture = bp.capture(f, X, torch.tensor(float("nan")), specialize=True, engine="aot")
    made = capture.pairs[0].forward.to_fx()
    assert torch.equal(made(X, torch.tensor(float("nan")))[0], X)
    with pytest.raises(bp.errors.GuardError, match="took nan"):
        made(X, torch.tensor(1.0))


@pytest.mark.slow
def test_a_guarded_module_is_traced_again_with_its_guards() -> None:
    again = make_fx(module())(X, N)
    assert torch.equal(again(X, N)[0], guarded(X, N))
    with pytest.raises(RuntimeError, match=r"guard `assert item == 2` does not hold"):
        again(X, torch.tensor(3))


@pytest.mark.slow
def test_a_guarded_module_is_compiled() -> None:
    compiled = torch.compile(module(), backend="aot_eager")
    assert torch.equal(compiled(X, N)[0], guarded(X, N))


@pytest.mark.slow
def test_passes_over_a_guarded_module() -> None:
    made = module()
    mode = examples(made)[0].fake_mode
    assert FakeTensorProp(made, mode).propagate(*examples(made))[0].shape == ()
    assert torch.equal(ShapeProp(module()).propagate(X, N)[0], guarded(X, N))


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_every_node_has_what_passes_look_for(dynamic: bool) -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)), torch.randn(3, 4)
    pair = bp.capture(model, x, dynamic=dynamic).pairs[0]
    assert pair.backward is not None
    for graph in (pair.forward, pair.backward):
        made = graph.to_fx()
        nodes = [node for node in made.graph.nodes if node.op in ("placeholder", "call_function")]
        values = [node.meta["val"] for node in nodes]
        assert all(isinstance(value, FakeTensor) for value in values)
        assert len({id(value.fake_mode) for value in values}) == 1
        assert all(tuple(node.meta["tensor_meta"].shape) == tuple(node.meta["val"].shape) for node in nodes)
    calls = [node for node in pair.forward.to_fx().graph.nodes if node.op == "call_function"]
    assert all("torch/nn/modules" in node.meta["stack_trace"] for node in calls)
    made = pair.forward.to_fx()
    found = FakeTensorProp(made, examples(made)[0].fake_mode).propagate(*examples(made))[0]
    assert isinstance(found.shape[0], torch.SymInt) == dynamic
    inputs = [dict(model.state_dict(), input=x)[port.name] for port in pair.forward.inputs]
    assert torch.equal(made(*inputs)[0], model(x))


def test_a_device_that_is_not_here_has_values_all_the_same() -> None:
    with bp.fake():
        model = nn.Linear(4, 2, device="cuda")
        x = torch.empty(3, 4, device="cuda")
    made = bp.capture(model, x, fake=True).pairs[0].forward.to_fx()
    assert {str(value.device) for value in examples(made)} <= {"cuda:0", "cpu"}
