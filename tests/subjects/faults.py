"""Compilers with planted faults, as functions of a graph and its inputs, and programs of 25 operators a block for them.

Each fault is in a few operators that the programs' forwards and backwards have, among many that are right.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

aten = torch.ops.aten

LARGE = 0.3
"""The numbers that `wrong_for_large_values` computes wrongly are larger."""


class GatedBlock(nn.Module):
    """A layer of a network whose forward and backward have the operators of every fault."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.gate, self.up = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        y = self.down(nn.functional.gelu(self.up(x + y))) * torch.sigmoid(self.gate(y))
        return x + torch.tanh(y) * x * 0.1


def gated_stack(blocks: int = 20, width: int = 8) -> tuple[nn.Module, Tensor]:
    """Return a network of such blocks and its input."""
    torch.manual_seed(0)
    return nn.Sequential(*(GatedBlock(width) for _ in range(blocks))), torch.randn(2, 4, width)


class NodeByNode(fx.Interpreter):
    """Runs a graph as eager does, but for the nodes that `alter` changes the results of."""

    def __init__(self, module: fx.GraphModule, alter: Callable[[fx.Node, Any], Any]) -> None:
        super().__init__(module)
        self.alter = alter

    def run_node(self, n: fx.Node) -> Any:
        return self.alter(n, super().run_node(n))


def right(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compute what eager computes."""
    return module


def wrong_operator(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return 1.01 times the sigmoid, and as much of its gradient."""
    wrong = (aten.sigmoid.default, aten.sigmoid_backward.default)
    return NodeByNode(module, lambda node, value: value * 1.01 if node.target in wrong else value).run


def wrong_for_large_values(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return matrix products of which the numbers beyond LARGE are wrong."""
    wrong = (aten.addmm.default, aten.mm.default)

    def alter(node: fx.Node, value: Any) -> Any:
        return torch.where(value.abs() > LARGE, value * 1.01, value) if node.target in wrong else value

    return NodeByNode(module, alter).run


def wrong_stride(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Lay a sum out in another order, and view it as if it were laid out as eager does."""

    def alter(node: fx.Node, value: Any) -> Any:
        if node.target is aten.add.Tensor and value.dim() > 1:
            return value.mT.contiguous().mT
        return value

    class Views(NodeByNode):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is aten.view.default and not args[0].is_contiguous():
                return torch.as_strided(args[0], args[1], torch.empty(args[1], device="meta").stride())
            return super().call_function(target, args, kwargs)

    return Views(module, alter).run


def crash_on_a_pattern(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """End the process by a signal where a product is added to something."""
    for node in module.graph.nodes:
        if node.target is aten.add.Tensor and any(each.target is aten.mul.Tensor for each in node.all_input_nodes):
            faulthandler.disable()  # pytest enables it, and the stack of a planted death would alarm a reader
            os.kill(os.getpid(), signal.SIGSEGV)
    return module


def hang(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile for ever where there is a tangent."""
    if any(node.target in (aten.tanh.default, aten.tanh_backward.default) for node in module.graph.nodes):
        time.sleep(10_000)
    return module


def refuse(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Refuse one operator by name."""
    for node in module.graph.nodes:
        if node.target in (aten.gelu.default, aten.gelu_backward.default):
            raise NotImplementedError(f"no lowering of {node.target} in node {node.name}")
    return module


FAULTS = {
    fault.__name__: fault
    for fault in (wrong_operator, wrong_for_large_values, wrong_stride, crash_on_a_pattern, hang, refuse)
}
