"""The module of a node: the path of the innermost one whose forward made it, as far as the block can see the model."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects.region_shown import shown
from torch import Tensor, nn

import backprint as bp
from face import read_passes


class Block(nn.Module):
    """Two layers, and an operator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(3, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the layers make."""
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    """Blocks in a list, and one operator after them."""

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        """Run the blocks."""
        for block in self.blocks:
            x = block(x)
        return x * 2


def modules_of(region: Any) -> dict[str, str]:
    """The modules of the nodes inside the first pass."""
    return {node.name: node.module for node in region.passes[0].nodes if node.inside}


PATHS = {
    "t": "blocks.0.up",
    "addmm": "blocks.0.up",
    "relu": "blocks.0",
    "t_1": "blocks.0.down",
    "addmm_1": "blocks.0.down",
    "add": "blocks.0",
    "t_2": "blocks.1.up",
    "addmm_2": "blocks.1.up",
    "relu_1": "blocks.1",
    "t_3": "blocks.1.down",
    "addmm_3": "blocks.1.down",
    "add_1": "blocks.1",
    "mul": "",
    "sum": "",
}


@pytest.mark.parametrize("stacks", [True, False])
def test_each_node_has_the_module_whose_forward_made_it(stacks: bool) -> None:
    net = Net()
    with bp.region(stacks=stacks) as region:
        loss = net(torch.randn(2, 3)).sum()
    loss.backward()
    assert modules_of(region) == PATHS
    assert {node.module for node in region.passes[0].nodes if not node.inside} == {""}


def test_a_backward_in_the_block_has_modules_and_names_of_parameters_too() -> None:
    net = Net()
    with bp.region() as region:
        net(torch.randn(2, 3)).sum().backward()
    assert modules_of(region) == PATHS
    assert {node.name for node in region.passes[0].nodes if node.leaf} == {name for name, _ in net.named_parameters()}


def test_several_models_have_their_names_before_the_path() -> None:
    first, second = Net(1), nn.Sequential(nn.Linear(3, 3))
    with bp.region() as region:
        loss = second(first(torch.randn(2, 3))).sum()
    loss.backward()
    found = modules_of(region)
    assert (found["mul"], found["relu"], found["addmm_2"]) == ("first", "first.blocks.0", "second.0")


def test_a_decorated_method_has_paths_below_its_own_module() -> None:
    class Own(Net):
        """A net that watches itself."""

        @bp.region()
        def forward(self, x: Tensor) -> Tensor:
            """Run the blocks in a region."""
            return super().forward(x)

    Own(1)(torch.randn(2, 3)).sum().backward()
    region = Own.forward.region  # type: ignore[attr-defined]  # what bp.region adds
    assert modules_of(region)["addmm"] == "blocks.0.up"


def test_a_model_that_is_gone_has_left_its_paths() -> None:
    def loss_of_a_model_made_here() -> tuple[Any, Tensor]:
        net = Net(1)
        with bp.region() as region:
            loss = net(torch.randn(2, 3)).sum()
        return region, loss

    region, loss = loss_of_a_model_made_here()
    gc.collect()
    loss.backward()
    assert modules_of(region)["relu"] == "blocks.0"


def test_a_model_that_is_made_in_the_block_is_known_at_its_end() -> None:
    with bp.region() as region:
        net = Net(1)
        loss = net(torch.randn(2, 3)).sum()
    loss.backward()
    assert modules_of(region)["relu"] == "blocks.0"


def test_a_model_that_the_block_cannot_see_has_no_path() -> None:
    def hidden() -> Iterator[Tensor]:
        net = Net(1)
        yield net(torch.randn(2, 3)).sum()

    with bp.region() as region:
        loss = next(iter([*hidden()]))
    loss.backward()
    assert set(modules_of(region).values()) == {""}


def test_nodes_of_a_second_order_gradient_have_the_module_of_the_first() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.randn(2, 3, requires_grad=True)
    with bp.region() as region:
        out = net(x).sum()
    (grad,) = torch.autograd.grad(out, x, create_graph=True)
    grad.sum().backward()
    second = region.passes[1]
    assert "1" in {node.module for node in second.nodes if node.inside and "Tanh" in node.kind}


def test_watching_modules_keeps_no_tensor_and_no_model_alive() -> None:
    died: list[bool] = []

    def replaced(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        made = given[0] * 2
        seen.append(weakref.ref(made))
        return (made,)

    def replaced_again(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (given[0].detach() + weight,)

    class Last(nn.Module):
        """A layer that asks whether what a hook has replaced is gone."""

        def forward(self, x: Tensor) -> Tensor:
            """Return the argument times two."""
            died.append(seen[-1]() is None)
            return x * 2

    seen: list[weakref.ref[Tensor]] = []
    weight = torch.ones(3, requires_grad=True)
    net = Last()
    net.register_forward_pre_hook(replaced)
    net.register_forward_pre_hook(replaced_again)
    net(torch.randn(2, 3))
    with bp.region():
        net(torch.randn(2, 3))
    assert died[1] == died[0]
    held = weakref.ref(net)
    del net
    gc.collect()
    assert held() is None


def test_a_dump_keeps_modules(tmp_path: Path) -> None:
    net = Net()
    with bp.region(tmp_path / "dump"):
        loss = net(torch.randn(2, 3)).sum()
    loss.backward()
    [found] = read_passes(tmp_path / "dump")
    assert {node.name: node.module for node in found.nodes if node.inside} == PATHS
    [place] = (tmp_path / "dump").glob("*/graph.json")
    assert "relu blocks.0 aten.relu.default" in " ".join(shown(place.parent).split())


def test_reprs_are_one_short_line() -> None:
    net = Net(1)
    with bp.region(gradients="values") as region:
        loss = net(torch.randn(2, 3)).sum()
    loss.backward()
    [found] = region.passes
    nodes = {repr(node) for node in found.nodes}
    assert "<node relu: aten.relu.default in blocks.0>" in nodes
    assert repr(found.edges[0]).startswith("<edge sum:0 -> mul:0 float32[2, 3]: norm 2.449, 1 to 1")
    assert repr(found.root).startswith("<root loss float32[]: norm 1")
    assert (repr(region), repr(region.passes)) == ("<region region: finished, 1 passes>", "<1 passes>")
    assert all(len(text) < 200 for text in (*nodes, *map(repr, found.edges), *map(repr, found.inputs), repr(found)))
