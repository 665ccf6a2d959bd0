"""Programs that Dynamo divides into several graphs: each a maker of (callable, args), named after the difficulty."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Broken = tuple[Callable[..., Any], tuple[Any, ...]]
BROKEN: dict[str, Callable[[], Broken]] = {}


def broken(make: Callable[[], Broken]) -> Callable[[], Broken]:
    """Register a maker under its name."""
    BROKEN[make.__name__] = make
    return make


def cut() -> None:
    """Break the graph."""
    torch._dynamo.graph_break()


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape).requires_grad_()


@broken
def a_print() -> Broken:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = (x @ w).relu()
        print("between")
        return (y @ w).sum()

    return f, (torch.randn(3, 3), leaf(3, 3))


@broken
def a_printed_tensor() -> Broken:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        print(y)
        return y.cos().sum()

    return f, (leaf(3),)


@broken
def a_branch_on_values() -> Broken:
    def f(x: Tensor) -> Tensor:
        y = x.exp()
        if y.sum() > 0:
            y = y * 2
        return y.log()

    return f, (leaf(3),)


@broken
def an_item() -> Broken:
    def f(x: Tensor, n: Tensor) -> Tensor:
        y = x.sin()
        return y * n.max().item()

    return f, (leaf(3), torch.arange(3))


@broken
def an_item_of_an_input() -> Broken:
    def f(x: Tensor, n: Tensor) -> Tensor:
        y = x.sin()
        cut()
        return y * n.item() + n

    return f, (leaf(3), torch.tensor(3))


@broken
def an_item_of_an_input_that_is_changed_later() -> Broken:
    def f(x: Tensor, n: Tensor) -> Tensor:
        y = x * n.item()
        n.add_(1)
        cut()
        return (y * n).sin()

    return f, (leaf(3), torch.tensor(3.0))


@broken
def an_unsupported_call() -> Broken:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        warnings.simplefilter("default", ResourceWarning)
        return y.cos() + y

    return f, (leaf(3),)


@broken
def a_value_that_two_later_pairs_use() -> Broken:
    def f(x: Tensor) -> Tensor:
        y = x.exp()
        cut()
        a = y.sin()
        cut()
        return a * y.tanh()

    return f, (leaf(5),)


@broken
def a_value_that_is_a_result_too() -> Broken:
    def f(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y = x.exp()
        cut()
        return y.sin(), {"y": y, "x": x, "again": y}

    return f, (leaf(5),)


@broken
def a_weight_in_several_pairs() -> Broken:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x).tanh()
            cut()
            x = self.fc(x).tanh()
            cut()
            return self.fc(x)

    return Net(), (torch.randn(2, 4),)


@broken
def a_buffer_changed_in_one_and_read_in_another() -> Broken:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))
            self.bn = nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            x = self.bn(x)
            cut()
            x = self.bn(x * self.count.exp())
            self.count.mul_(2)
            cut()
            return x + self.count + self.bn.running_mean

    return Net(), (leaf(4, 3),)


@broken
def a_break_inside_nested_modules() -> Broken:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x)
            cut()
            return x.relu()

    class Middle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()
            self.last = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.inner(x) + x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.middle = nn.Linear(4, 4), Middle()

        def forward(self, x: Tensor) -> Tensor:
            return self.middle(self.first(x)).softmax(-1)

    return Outer(), (torch.randn(2, 4),)


@broken
def a_checkpoint() -> Broken:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = checkpoint(lambda y: self.a(y).tanh().sin(), x, use_reentrant=False)
            cut()
            return checkpoint(lambda y: self.b(y).tanh().sin(), x, use_reentrant=False)

    return Net(), (leaf(2, 4),)


@broken
def a_cond() -> Broken:
    def f(x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        cut()
        return y * x

    return f, (leaf(3),)


@broken
def a_custom_function() -> Broken:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * 3 * ctx.saved_tensors[0]

    def f(x: Tensor) -> Tensor:
        y = Twice.apply(x.sin())
        cut()
        return Twice.apply(y).sum()

    return f, (leaf(3),)


@broken
def no_grad_over_a_break() -> Broken:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        with torch.no_grad():
            z = y * 2
            cut()
            z = z * y
        cut()
        return z * y

    return f, (leaf(3),)


@broken
def autocast_over_a_break() -> Broken:
    def f(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
            cut()
            y = y @ v
        return y.float().sum()

    return f, (leaf(4, 4), leaf(4, 4), leaf(4, 4))


@broken
def random_draws_in_several_pairs() -> Broken:
    def f(x: Tensor) -> Tensor:
        y = nn.functional.dropout(x, 0.5)
        cut()
        y = y + torch.rand(7)
        cut()
        return nn.functional.dropout(y, 0.3).sin()

    return f, (leaf(7),)


@broken
def a_tensor_from_outside() -> Broken:
    outside, parameter = torch.randn(3), nn.Parameter(torch.randn(3))

    def f(x: Tensor) -> Tensor:
        y = x * outside
        cut()
        return y * outside + parameter

    return f, (leaf(3),)


@broken
def a_module_hook() -> Broken:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.a.register_forward_hook(lambda module, args, result: result * 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            cut()
            return self.b(x)

    return Net(), (torch.randn(2, 4),)


@broken
def a_hook_on_a_parameter() -> Broken:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.a.weight.register_hook(lambda gradient: gradient * 10)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            cut()
            return self.b(x)

    return Net(), (torch.randn(2, 4),)


@broken
def an_intermediate_changed_in_place() -> Broken:
    def f(x: Tensor) -> Tensor:
        y = x.detach().exp()
        cut()
        y.mul_(3)
        cut()
        y.add_(1)
        return y * x, y

    return f, (leaf(3),)


@broken
def integers_between() -> Broken:
    def f(x: Tensor, table: Tensor) -> Tensor:
        best = (x @ table.T).argmax(-1)
        cut()
        return table[best] * x

    return f, (leaf(3, 4), leaf(5, 4))


@broken
def containers_and_constants() -> Broken:
    def f(batch: dict[str, Any], scale: float) -> dict[str, Any]:
        y = [batch["a"] * scale, batch["b"]]
        cut()
        return {"sum": y[0] + y[1], "scale": scale, "b": y[1]}

    return f, ({"a": leaf(3), "b": leaf(3)}, 2.0)


@broken
def the_same_tensor_twice() -> Broken:
    x = leaf(3)

    def f(a: Tensor, b: Tensor) -> Tensor:
        y = a.sin()
        cut()
        return y * b

    return f, (x, x)


@broken
def no_gradients_at_all() -> Broken:
    def f(x: Tensor) -> Tensor:
        y = x + 1
        cut()
        return y * 2

    return f, (torch.arange(3),)
