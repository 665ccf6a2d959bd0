"""What a region says flowed is what autograd gives, to the bit, taken independently in another run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects.blocks import PROGRAMS, Twice
from torch import Tensor, nn

import backprint as bp


def same(left: Tensor, right: Tensor) -> bool:
    """The same bits; of sparse tensors, the same values in the same places."""
    if left.layout is not torch.strided:
        left, right = left.coalesce(), right.coalesce()
        return torch.equal(left.indices(), right.indices()) and torch.equal(left.values(), right.values())
    return left.dtype == right.dtype and torch.equal(left, right)


def ran(name: str, **options: Any) -> tuple[Any, dict[str, Tensor]]:
    """A program's region after its backward, and what the same program gives without one."""
    torch.manual_seed(3)
    region = bp.region(**options)
    loss, _ = PROGRAMS[name](region)
    loss.backward()
    torch.manual_seed(3)
    loss, tensors = PROGRAMS[name](contextlib.nullcontext())
    loss.backward()
    return region, {key: tensor.grad for key, tensor in tensors.items() if tensor.grad is not None}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_nodes_got_is_what_autograd_accumulates(name: str) -> None:
    region, wanted = ran(name, gradients="values")
    assert region.errors == []
    (found,) = region.passes
    got = {each.tensor: each.gradient for each in found.inputs}
    assert wanted
    assert set(wanted) <= set(got), (set(wanted) - set(got), set(got))
    different = [key for key in wanted if not same(got[key], wanted[key])]
    assert different == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_edges_are_what_is_added_up(name: str) -> None:
    region, _ = ran(name, gradients="values")
    (found,) = region.passes
    assert len({edge.name for edge in found.edges}) == len(found.edges)
    assert len({node.name for node in found.nodes}) == len(found.nodes)
    for each in found.inputs:
        edges = [edge for edge in found.edges if (edge.target, edge.place) == (each.node, each.place)]
        node = found.node(each.node)
        if len(edges) == 1 and node.inside and name not in ("tensor_hooks",):
            assert same(edges[0].gradient, each.gradient), each.name
        if edges and node.inside and name != "tensor_hooks":
            total = sum(edge.gradient.to_dense() for edge in edges if edge.gradient is not None)
            assert torch.allclose(total.to(each.gradient.dtype), each.gradient.to_dense(), rtol=1e-2), each.name
    for edge in found.edges:
        if edge.flows:
            assert (edge.shape, edge.dtype) == (tuple(edge.gradient.shape), str(edge.gradient.dtype)[6:])


def test_the_seed_program_has_six_edges_with_the_users_names() -> None:
    region, wanted = ran("seed", gradients="values")
    (found,) = region.passes
    assert sorted(edge.tensor for edge in found.edges) == ["z1", "z2", "z2", "z3", "z4", "z5"]
    assert [(n.name, n.kind) for n in found.nodes if n.inside] == [
        ("mean", "MeanBackward0"),
        ("sum", "SumBackward0"),
        ("mul", "MulBackward0"),
    ]
    total = sum(edge.gradient for edge in found.edges if edge.tensor == "z2")
    assert torch.equal(total, wanted["z2"])
    (accumulated,) = (each for each in found.inputs if each.tensor == "z2")
    assert torch.equal(accumulated.gradient, wanted["z2"])
    assert torch.equal(found.root.gradient, torch.ones(()))
    assert region.unreached == []
    view = found.backward
    assert [node.kind for node in view.boundary] == ["AddBackward0", "AddBackward0", "SubBackward0"]
    assert set(view.gradients) == {edge.name for edge in found.edges}
    assert all("blocks.py" in stack[-1].file for stack in view.stacks.values())
    assert view.stacks["mul"][-1].code == "z3 = z1 * z2"


def test_what_runs_in_opaque_nodes_is_shown() -> None:
    custom, _ = ran("custom_function")
    checked, _ = ran("checkpoint_reentrant")
    listed, _ = ran("foreach")
    assert custom.passes[0].node("Twice").ops == ("aten.exp.default", "aten.sin.default", "aten.mul.Tensor")
    assert checked.passes[0].node("CheckpointFunction").ops == (
        "aten.t.default",
        "aten.addmm.default",
        "aten.sin.default",
    )
    assert listed.passes[0].node("_foreach_mul").ops == ("aten._foreach_mul.Scalar",)
    assert [each.unreached for each in (custom, checked, listed)] == [[], [], []]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_stays_opaque_says_so() -> None:
    @torch.jit.script
    def scripted(x: Tensor) -> Tensor:
        return (x * 2).sin() * x.exp()

    x = torch.randn(4, requires_grad=True)
    for _ in range(3):  # until TorchScript has optimised it
        with bp.region() as region:
            y = scripted(x)
        y.sum().backward()
    assert any("TorchScript" in node.opaque for node in region.passes[0].nodes if node.inside)

    compiled = torch.compile(lambda x: (x * 2).sin(), backend="aot_eager")
    with bp.region(gradients="values") as region:
        y = compiled(x)
    y.sum().backward()
    (found,) = region.passes  # and none of what the compiler traced
    (node,) = (node for node in found.nodes if node.inside)
    assert "compiled by torch.compile" in node.opaque
    assert node.ops == ("aten.mul.Tensor", "aten.sin.default")
    assert region.errors == []


def test_several_losses_and_retained_graphs_are_a_pass_each() -> None:
    x = torch.randn(4, requires_grad=True)
    with bp.region(gradients="values") as region:
        y = x.exp()
        a, b = y.sum(), y.square().sum()
    a.backward(retain_graph=True)
    b.backward(retain_graph=True)
    (a * 2).backward()
    assert [sorted(node.name for node in each.nodes if node.inside) for each in region.passes] == [
        ["exp", "sum"],
        ["exp", "pow", "sum_1"],
        ["exp", "sum"],
    ]
    gradients = [next(i.gradient for i in each.inputs if i.tensor == "x") for each in region.passes]
    assert torch.equal(gradients[0] * 2, gradients[2])
    assert region.unreached == []


def test_grad_create_graph_and_second_order() -> None:
    x = torch.randn(4, requires_grad=True)
    with bp.region(gradients="values") as region:
        z = x.pow(3).sum()
    (first,) = torch.autograd.grad(z, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert len(region.passes) == 2
    for found, wanted in zip(region.passes, (first, second), strict=True):
        assert next(edge.gradient for edge in found.edges if edge.tensor == "x").equal(wanted)
    assert all(node.ops == ("aten.pow.Tensor_Scalar",) for node in region.passes[1].nodes if node.inside)


def test_a_backward_of_something_else_is_no_pass() -> None:
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    with bp.region() as region:
        y = x.sin()
    (w * 2).sum().backward()
    torch.autograd.grad((x * w).sum(), [x, w])
    assert region.passes == []
    (y * w).sum().backward(inputs=[w])  # reaches the node, and does not run it
    assert region.passes == []
    assert [op.name for op in region.unreached] == ["aten.sin.default"]
    assert region.unreached[0].line.code == "y = x.sin()"


def test_an_exception_inside_the_block_leaves_what_ran() -> None:
    x = torch.randn(4, requires_grad=True)
    with pytest.raises(ZeroDivisionError), bp.region(gradients="values") as region:  # noqa: PT012, a block has lines
        y = x * 2
        _ = 1 / 0
    y.sum().backward()
    assert [node.name for node in region.passes[0].nodes if node.inside] == ["mul"]
    assert not torch.is_anomaly_enabled()


def test_an_exception_in_the_backward_is_the_users_and_what_flowed_stays() -> None:
    def refuse(gradient: Tensor) -> None:
        raise ValueError("no further")

    x = torch.randn(4, requires_grad=True)
    with bp.region(gradients="values") as region:
        y = x * 2
        z = y.sin()
        y.register_hook(refuse)
    with pytest.raises(ValueError, match="no further"):
        z.sum().backward()
    (found,) = region.passes
    assert found.error == "ValueError: no further"
    assert [node.name for node in found.nodes if node.inside] == ["sin"]
    assert [op.name for op in region.unreached] == ["aten.mul.Tensor"]
    assert x._backward_hooks is None
    torch.sin(x).sum().backward()
    assert len(region.passes) == 1


def test_the_first_nan_is_named_with_its_line() -> None:
    x = torch.tensor([1.0, 0.0], requires_grad=True)
    with bp.region(gradients="stats") as region:
        a = x * 3
        b = a.sqrt()
        c = b * 0
    c.sum().backward()
    bad = region.passes[0].first_bad
    assert bad is not None
    assert (bad.tensor, bad.stats.nan, bad.gradient) == ("a", 1, None)
    assert region.passes[0].where(bad).code == "b = a.sqrt()"


@pytest.mark.parametrize(
    "values",
    [[1.0, -2.0, 0.0, 5.0], [float("nan"), float("inf"), 0.0, 2.0], [float("-inf")] * 3, [], [7.0]],
)
def test_stats_are_what_they_say(values: list[float]) -> None:
    from face import stats_of

    tensor = torch.tensor(values)
    found = stats_of(tensor)
    good = tensor[torch.isfinite(tensor)]
    assert (found.count, found.nan, found.inf) == (len(values), int(tensor.isnan().sum()), int(tensor.isinf().sum()))
    assert found.zeros == int((tensor == 0).sum())
    if good.numel():
        assert (found.min, found.max) == (float(good.min()), float(good.max()))
        assert found.mean == pytest.approx(float(good.mean()))
        assert found.std == pytest.approx(float(good.std(correction=0)))
    else:
        assert found.min is None
    spread, full = stats_of(torch.tensor(3.0).expand(5, 2)), stats_of(torch.full((5, 2), 3.0))
    assert (spread.min, spread.mean, spread.zeros) == (full.min, full.mean, full.zeros)
    assert spread.norm == pytest.approx(full.norm)
    assert stats_of(torch.tensor([1 + 2j])).max == 2.0
    assert stats_of(torch.ones(4, dtype=torch.bfloat16)).norm == 2.0


def test_a_module_in_a_function_gives_its_parameters_paths() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))

        def step(self) -> Any:
            x = torch.randn(2, 3)
            with bp.region() as region:
                loss = self.net(x).sum()
            loss.backward()
            return region

    found = Trainer().step().passes[0]
    assert {node.name for node in found.nodes if node.leaf} == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert found.root.name == "loss"


def test_names_are_the_same_in_each_step_of_a_loop_and_in_each_run() -> None:
    def once() -> list[list[str]]:
        x = torch.randn(3, requires_grad=True)
        with bp.region() as region:
            for _ in range(3):
                ((x * 2) * x).sum().backward()
        return [[edge.name for edge in each.edges] for each in region.passes]

    names = once()
    assert names[0] == names[1] == names[2]
    assert names == once()
    assert Twice.__name__ == "Twice"


def test_tensors_without_values_leave_their_shapes(tmp_path: Path) -> None:
    from torch._subclasses import FakeTensorMode

    def step(x: Tensor, place: Path) -> Any:
        with bp.region(place, gradients="values") as region:
            y = x.sin()
        y.sum().backward()
        return region

    meta = step(torch.randn(4, requires_grad=True, device="meta"), tmp_path / "meta")
    with FakeTensorMode():
        fake = step(torch.randn(4, requires_grad=True), tmp_path / "fake")
    for region in (meta, fake):
        (found,) = region.passes
        assert [(edge.shape, edge.stats, edge.gradient) for edge in found.edges] == [((4,), None, None)] * 2
        assert (region.errors, [op.name for op in region.unreached]) == ([], [])


def test_ragged_tensors_leave_their_edges(tmp_path: Path) -> None:
    pieces = [torch.randn(2, 3), torch.randn(4, 3)]
    ragged = torch.nested.nested_tensor(pieces, layout=torch.jagged, requires_grad=True)
    with bp.region(tmp_path, gradients="values") as region:
        doubled = ragged * 2
    torch.nested.to_padded_tensor(doubled, 0.0).sum().backward()
    (found,) = region.passes
    assert [edge.shape for edge in found.edges if edge.tensor == "ragged"] == [(2, -1, 3)]
    assert region.errors == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float16, torch.bfloat16])
def test_every_dtype_keeps_its_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.randn(4, dtype=dtype, requires_grad=True)
    with bp.region(tmp_path, gradients="values") as region:
        y = x * x
    y.abs().sum().backward()
    (accumulated,) = (each for each in region.passes[0].inputs if each.tensor == "x")
    assert accumulated.dtype == str(dtype)[6:]
    assert torch.equal(accumulated.gradient, x.grad)


def test_what_is_kept_is_not_what_the_program_goes_on_with() -> None:
    x = torch.randn(4, requires_grad=True)
    with bp.region(gradients="values") as region:
        y = x.sin().sum()
    (gradient,) = torch.autograd.grad(y, x)
    wanted = gradient.clone()
    gradient.zero_()
    assert torch.equal(region.passes[0].edges[-1].gradient, wanted)


def test_transforms_and_jacobians_go_through_a_region() -> None:
    x = torch.randn(4, requires_grad=True)
    with bp.region(gradients="values") as region:
        slope = torch.func.grad(lambda a: a.sin().sum())(x)
        y = torch.vmap(lambda row: row * 2)(slope * x)
    y.sum().backward()
    wanted = 2 * (x.detach().cos() - x.detach() * x.detach().sin())
    assert torch.allclose(x.grad, wanted)
    assert region.errors == []
    assert torch.equal([each.gradient for each in region.passes[-1].inputs if each.tensor == "x"][-1], x.grad)
