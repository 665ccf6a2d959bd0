"""Engine eager: what one real step ran is the graph, and nothing of the caller's has moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # it wraps torch.manual_seed when it is first imported
from subjects.disturbed import picture
from subjects.programs import PROGRAMS
from subjects.steps import STEPS
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import backprint as bp
from face import Graph, Ref, parse, refs

QUIET = pytest.mark.filterwarnings(
    "ignore:.*jit.*:DeprecationWarning",
    "ignore:.*nested tensors.*:UserWarning",
    "ignore:None of the inputs have requires_grad:UserWarning",
)


def graphs(capture: bp.Capture) -> list[Graph]:
    return [graph for pair in capture.pairs for graph in (pair.forward, pair.backward) if graph is not None]


def proved(capture: bp.Capture) -> str:
    """The verdict; of one without a backward, its forward's ports all bitwise."""
    (verdict,) = capture.verify()
    if verdict.verdict == "undifferentiable":
        assert "the forward is bitwise" in verdict.detail
    else:
        assert verdict.verdict == "bitwise", verdict.detail
    return verdict.verdict


# ------------------------------------------------------------------ hard programs


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("name", STEPS)
def test_step_is_captured_right(name: str, tmp_path: Path) -> None:
    target, args, kept = STEPS[name]()
    before = picture(*kept, *args)
    capture = bp.capture(target, args=args, engine="eager")
    assert picture(*kept, *args) == before
    for graph in graphs(capture):
        assert parse(graph.code) == graph
        assert parse(graph.code).hash() == graph.hash()
    verdict = proved(capture)
    assert picture(*kept, *args) == before
    if capture.pairs[0].backward is not None:
        assert_saved_are_read(capture.pairs[0].forward, capture.pairs[0].backward)
    capture.save(tmp_path / "sample")
    assert picture(*kept, *args) == before
    assert proved(bp.load(tmp_path / "sample")) == verdict
    assert (capture.pairs[0].backward is None) == (verdict == "undifferentiable")


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("name", STEPS)
def test_step_is_taken_by_auto(name: str) -> None:
    target, args, _ = STEPS[name]()
    capture = bp.capture(target, args=args)
    assert proved(capture)
    assert bool(capture.why) == (capture.engine != "eager")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_captured_right_by_eager(name: str) -> None:
    target, args, kwargs = PROGRAMS[name]()
    capture = bp.capture(target, args=args, kwargs=kwargs, engine="eager")
    assert all(parse(graph.code) == graph for graph in graphs(capture))
    proved(capture)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_captured_right_with_its_updates_in_place(name: str) -> None:
    target, args, kwargs = PROGRAMS[name]()
    try:
        capture = bp.capture(target, args=args, kwargs=kwargs, engine="eager", functional=False)
    except bp.errors.CaptureError as error:
        assert "leave functional=True" in str(error)  # noqa: PT017  # the one reason for which this form is refused
        return
    proved(capture)


# ------------------------------------------------------------------ what stands in the graphs


def used(graph: Graph) -> set[str]:
    """The values that something of the graph reads."""
    values = [value for step in graph.steps for value in (*step.args, *(v for _, v in step.kwargs))]
    return {name for value in (*values, *graph.results) for name in refs(value)}


def targets(graph: Graph) -> list[str]:
    return [step.target for step in graph.steps]


def test_the_boundary_between_the_directions_is_exact() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        h = (x @ w).exp()
        return (h * h.sigmoid()).sum()

    capture = bp.capture(f, torch.randn(2, 3), torch.randn(3, 4).requires_grad_(), engine="eager")
    forward, backward = capture.pairs[0].forward, capture.pairs[0].backward
    assert targets(forward) == [f"aten.{name}" for name in ("mm.default", "exp.default", "sigmoid.default")] + [
        "aten.mul.Tensor",
        "aten.sum.default",
    ]
    assert targets(backward) == [
        *("aten.expand.default", "aten.mul.Tensor", "aten.mul.Tensor", "aten.sigmoid_backward.default"),
        *("aten.add.Tensor", "aten.mul.Tensor", "aten.t.default", "aten.mm.default"),
    ]
    assert all(step.echo is None for step in forward.steps)
    assert all(step.echo is not None for step in backward.steps)


def assert_saved_are_read(forward: Graph, backward: Graph) -> None:
    """Saved ports are what the backward reads: the values themselves."""
    made = {step.name for step in forward.steps} | {port.local for port in forward.inputs}
    kept = {port.name: value for port, value in zip(forward.outputs, forward.results, strict=True)}
    assert [port.name for port in forward.by_role("saved")] == [port.name for port in backward.by_role("saved")]
    for port in backward.by_role("saved"):
        assert isinstance(kept[port.name], Ref)  # no copy stands between
        assert kept[port.name].name in made
        assert port.local in used(backward)


def test_dead_code_goes_and_random_draws_stay() -> None:
    def f(x: Tensor) -> Tensor:
        torch.rand(3)
        x.exp()
        return x * torch.rand(3)

    capture = bp.capture(f, torch.randn(3), engine="eager")
    assert targets(capture.pairs[0].forward) == ["aten.rand.default", "aten.rand.default", "aten.mul.Tensor"]
    x = torch.randn(3)
    torch.manual_seed(5)
    mine = bp.replay(capture, x).outputs
    torch.manual_seed(5)
    assert torch.equal(mine, f(x))


def test_one_tensor_given_twice_is_one_value_behind_two_ports() -> None:
    x = torch.randn(3).requires_grad_()
    capture = bp.capture(lambda a, b: (a * b.exp()).sum(), x, x, engine="eager")
    forward, backward = capture.pairs[0].forward, capture.pairs[0].backward
    first, second = forward.inputs
    assert (first.name, second.name) == ("a", "b")
    assert first.local in used(forward)
    assert second.local not in used(forward)
    assert [port.name for port in backward.outputs] == ["a", "b"]
    assert backward.results[0] == backward.results[1]
    expected = x.exp() + x * x.exp()
    gradients = bp.replay(capture, x, x).gradients
    assert torch.equal(gradients["a"], gradients["b"])
    assert torch.allclose(gradients["a"], expected)


def test_echoes_and_lines_stand_in_the_text() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.fc(x)
            return (h + h.relu()).sum()

    pair = bp.capture(Model(), torch.randn(2, 3), engine="eager").pairs[0]
    assert "h = self.fc(x)" in pair.forward.code
    assert "[fc]" in pair.forward.code
    assert "gradient of relu" in pair.backward.code
    assert "sum of gradients of addmm" in pair.backward.code
    assert "return (h + h.relu()).sum()" in pair.backward.code
    assert "grad_fc_weight" in pair.backward.code


# ------------------------------------------------------------------ as they ran, and the second order


def test_updates_and_views_stay_as_they_ran() -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        y[0].add_(1)
        y.relu_()
        return y.sum()

    x = torch.randn(3, 2).requires_grad_()
    as_run = bp.capture(f, x, engine="eager", functional=False)
    assert targets(as_run.pairs[0].forward) == [
        *("aten.mul.Tensor", "aten.select.int", "aten.add_.Tensor", "aten.relu_.default", "aten.sum.default")
    ]
    plain = targets(bp.capture(f, x, engine="eager").pairs[0].forward)
    assert "aten.select_scatter.default" in plain
    assert not [target for target in plain if target.split(".")[1].endswith("_")]
    assert proved(as_run) == "bitwise"


@pytest.mark.parametrize(("engine", "name"), [("aot", "a module"), ("eager", "a product")])
def test_the_second_order_is_the_gradient_of_the_gradient(engine: str, name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    target = {"a product": lambda x: (x.exp() * x.sin()).sum(), "a module": model}[name]
    x = torch.randn(5, 3).requires_grad_()
    capture = bp.capture(target, x, engine=engine, order=2)
    assert proved(capture) == "bitwise"
    leaves = {
        "x" if name == "a product" else "input": x,
        **(dict(model.named_parameters()) if name != "a product" else {}),
    }
    tangent = torch.ones_like(target(x)).requires_grad_()
    out = target(x)
    first = torch.autograd.grad(out, list(leaves.values()), tangent, create_graph=True)
    roots = [each for each in (out, *first) if each.requires_grad]
    ones = [torch.ones_like(each) for each in roots]
    second = torch.autograd.grad(roots, [*leaves.values(), tangent], ones, allow_unused=True)
    given = [port.name for port in capture.pairs[0].forward.inputs if port.name.startswith("tangent.")]
    assert len(given) == 1
    found = replayed(capture, leaves, {given[0]: tangent})
    for port, expected in zip([*leaves, given[0]], second, strict=True):
        assert (found[port] is None) == (expected is None)
        assert expected is None or torch.allclose(found[port], expected, rtol=1e-5, atol=1e-6), port


def replayed(capture: bp.Capture, leaves: dict[str, Tensor], tangents: dict[str, Tensor]) -> dict[str, Any]:
    """The gradients of a second-order capture, run port by port, all its tangents ones."""
    pair = capture.pairs[0]
    given = {**leaves, **tangents}
    results = bp.run(pair.forward, {port.name: given[port.name].detach() for port in pair.forward.inputs})
    made = dict(zip([(p.role, p.name) for p in pair.forward.outputs], results, strict=True))
    inputs = {
        port.name: made["saved", port.name] if port.role == "saved" else torch.ones_like(made["output", port.name])
        for port in pair.backward.inputs
    }
    return dict(zip([p.name for p in pair.backward.outputs], bp.run(pair.backward, inputs), strict=True))


def test_indices_fix_a_shape_and_masks_do_not() -> None:
    def by_places(x: Tensor, places: Tensor) -> Tensor:
        return x[places // 2].sum()

    def by_mask(x: Tensor, mask: Tensor) -> Tensor:
        return x[mask].sum()

    def by_both(x: Tensor, places: Tensor) -> Tensor:
        return x[places, (places > 0)[:2]].sum()

    x, places = torch.randn(5, 2, requires_grad=True), torch.tensor([1, 4, 0])
    free = bp.capture(by_places, x, places, engine="eager")
    held = bp.capture(by_mask, x, torch.tensor([True, False, True, False, True]), engine="eager")
    both = bp.capture(by_both, x, torch.tensor([1, 4]), engine="eager")
    assert [guard.kind for guard in free.guards] == []
    assert [guard.kind for guard in held.guards] == ["shape"]
    assert [guard.kind for guard in both.guards] == ["shape"]
    assert {verdict.verdict for capture in (free, held, both) for verdict in bp.verify(capture)} == {"bitwise"}


@pytest.mark.parametrize("engine", ["aot", "eager"])
def test_a_size_hangs_on_the_mask_that_decides_it_alone(engine: str, tmp_path: Path) -> None:
    def f(x: Tensor, mask: Tensor) -> Tensor:
        return (x[mask] * 2).sum() + x.masked_select(mask).square().sum()

    x, mask = torch.randn(6, requires_grad=True), torch.tensor([True, False, True, True, False, False])
    capture = bp.capture(f, x, mask, engine=engine, specialize=True)
    assert {guard.inputs for guard in capture.guards if guard.kind == "shape"} == {("mask",)}
    other = torch.randn(6)
    assert torch.equal(bp.replay(capture, other, mask).outputs, f(other, mask))
    with pytest.raises(bp.errors.GuardError):
        bp.replay(capture, x, ~mask | mask)
    capture.save(tmp_path / "sample")
    loaded = bp.load(tmp_path / "sample")
    assert loaded.recipes.recipes["x"].kind != "exact"
    assert loaded.recipes.recipes["mask"].kind == "exact"
    assert bp.verify(loaded)[-1].verdict == "bitwise"


def detached_inside(x: Tensor) -> Tensor:
    h = x.sin()
    return torch.cat([h, h.detach(), h[1:].detach()]).cumsum(0) * torch.where(h.detach() > 0, h, h.detach()).sum()


def test_a_saved_forward_is_differentiated_as_the_program_is(tmp_path: Path) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    capture = bp.capture(detached_inside, x, engine="eager")
    assert "aten.detach.default" in {step.target for step in capture.pairs[0].forward.steps}
    assert capture.opaque == ()
    again = bp.capture(capture.save(tmp_path / "sample"))
    (wanted,) = torch.autograd.grad(detached_inside(x).sum(), x)
    found = bp.replay(again, x, tangents=[torch.ones(11, 3)]).gradients["x"]
    assert torch.equal(found, wanted)


def test_an_update_of_a_detached_tensor_is_an_opaque_edge() -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        y.detach().mul_(3)
        return y.sin().sum()

    capture = bp.capture(f, torch.randn(3, requires_grad=True), engine="eager")
    assert [edge.kind for edge in capture.opaque] == ["detach"]
    assert proved(capture) == "bitwise"


@pytest.mark.parametrize("engine", ["aot", "eager"])
def test_a_capture_without_the_checkpoints_of_its_program_says_so(engine: str) -> None:
    def program(x: Tensor) -> Tensor:
        return checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False).sum()

    capture = bp.capture(program, torch.randn(3, requires_grad=True), engine=engine)
    (pair,) = capture.pairs
    recomputes = any(step.target == "aten.sin.default" for step in pair.backward.steps)
    assert recomputes == (engine == "eager")
    assert any("without the program's checkpoints" in note for note in capture.notes) == (engine == "aot")


def test_a_mask_that_each_layer_computes_alike_is_recomputed_with_its_layer() -> None:
    """It is one value for the steps that take it."""

    def layer(x: Tensor) -> Tensor:
        return (x @ torch.full((3, 3), 2.0).triu(1)).sin()

    def program(x: Tensor) -> Tensor:
        for _ in range(3):
            x = checkpoint(layer, x, use_reentrant=False)
        return x.sum()

    assert recomputed_products(program) == ["mm", "mm_1", "mm_2"]


def test_a_value_that_was_written_to_is_recomputed_by_the_same_writes() -> None:
    def layer(x: Tensor, number: int) -> Tensor:
        return (x @ torch.full((3, 3), 2.0).add_(number)).sin()

    def program(x: Tensor) -> Tensor:
        return sum(checkpoint(layer, x, number, use_reentrant=False).sum() for number in range(3))

    assert recomputed_products(program) == ["mm", "mm_1", "mm_2"]


def test_a_batch_norm_is_recomputed_though_its_first_run_changed_its_statistics() -> None:
    class Layer(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=False)

    def layer() -> Layer:
        return Layer(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.3))

    capture = bp.capture(nn.Sequential(layer(), layer()), torch.randn(5, 4), mode="train", engine="eager")
    assert proved(capture) == "bitwise"
    (pair,) = capture.pairs
    made_by = ("aten.addmm", "aten._native_batch_norm", "aten.relu", "torch.ops.higher_order.run_with_rng_state")
    again = [step for step in pair.backward.steps if step.target.startswith(made_by)]
    assert len(again) == 8  # four of each layer
    assert all(step.echo is not None and step.echo.kind == "recomputes" for step in again)


def recomputed_products(program: Callable[[Tensor], Tensor]) -> list[str]:
    """The products of the forward that the backward says it recomputes, in the order of the forward."""
    capture = bp.capture(program, torch.randn(3, 3, requires_grad=True), engine="eager")
    assert proved(capture) == "bitwise"
    (pair,) = capture.pairs
    echoes = [step.echo for step in pair.backward.steps if step.target == "aten.mm.default" and step.echo is not None]
    return sorted(name for echo in echoes if echo.kind == "recomputes" for name in echo.names)
