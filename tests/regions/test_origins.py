"""Where NaN and Inf come from: the forward, the backward, or outside; and that nobody looked where nobody did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects.region_shown import shown
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import backprint as bp
from face import read_passes, watch

NAN, INF = float("nan"), float("inf")


def leaf(*values: float) -> Tensor:
    return torch.tensor(values, requires_grad=True)


def born_in_forward(block: Any) -> Tensor:
    x = leaf(-1.0, 2.0)
    with block:
        y = x * 2
        z = y.log()
        w = z + 1
    return w.sum()


def from_infinity(block: Any) -> Tensor:
    x = leaf(1.0, 2.0)
    with block:
        e = (x * 100).exp()
        d = e - e
    return d.sum()


def in_place(block: Any) -> Tensor:
    x = leaf(1.0, 2.0)
    with block:
        y = x - 5
        y.log_()
        z = y * 2
    return z.sum()


def into_a_slice(block: Any) -> Tensor:
    x = leaf(0.0, 2.0)
    with block:
        y = x.clone()
        y[0] = (x[0] - 1).log()
        z = y * 2
    return z.sum()


def without_gradients(block: Any) -> Tensor:
    x = leaf(0.0, 2.0)
    with block:
        with torch.no_grad():
            k = (x - 1).log()
        y = x * k
    return y.sum()


class Log(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        return (a - 5).log()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        return given[0]


def in_a_custom_function(block: Any) -> Tensor:
    x = leaf(0.0, 2.0)
    with block:
        y = Log.apply(x)
    return y.sum()


def hidden_by_where(block: Any) -> Tensor:
    x = leaf(0.0, 2.0)
    with block:
        logs = x.log()
        y = torch.where(x > 0, logs, x * 0)
    return y.sum()


def of_a_changed_slice(block: Any) -> Tensor:
    x, scale = leaf(0.0, 2.0), torch.ones(2)
    with block:
        scale[:1].sub_(5).log_()
        y = x * scale
    return y.sum()


def of_a_slice_taken(block: Any) -> Tensor:
    x = leaf(0.0, 2.0)
    with block:
        with torch.no_grad():
            k = (x - 1).log()
        y = x[:1] * k[:1]
    return y.sum()


def over_what_was_bad(block: Any) -> Tensor:
    x, old = leaf(0.0, 2.0), torch.full((2,), NAN)
    with block:
        with torch.no_grad():
            old.copy_((x - 1).log())
        y = x * old
    return y.sum()


def with_an_input_changed_in_place(block: Any) -> Tensor:
    x, data = leaf(1.0, 2.0), torch.tensor([1.0, NAN])
    with block:
        data.add_(1)
        y = x * data
    return y.sum()


def taken_with_a_good_result(block: Any) -> Tensor:
    x = leaf(0.5, 0.5)
    with block:
        with torch.no_grad():
            k = (x * 1000).exp()
        y = x.pow(k)
    return y.sum()


def after_it_was_good_again(block: Any) -> Tensor:
    x = leaf(0.0, 2.0)
    with block:
        with torch.no_grad():
            k = (x - 1).log()
            k.zero_()
        y = torch.hypot(x, k)
    return y.sum()


def with_an_input(block: Any) -> Tensor:
    x, data = leaf(1.0, 2.0), torch.tensor([1.0, NAN])
    with block:
        y = x * 2
        z = y * data
    return z.sum()


def with_a_weight(block: Any) -> Tensor:
    model, x = nn.Linear(2, 2), leaf(1.0, 2.0)
    with torch.no_grad():
        model.weight[0, 0] = NAN
    with block:
        y = model(x)
    return y.sum()


def born_in_backward(block: Any) -> Tensor:
    x = leaf(0.0, 2.0)
    with block:
        y = x.sqrt()
    return y.sum()


def born_in_a_hook(block: Any) -> Tensor:
    x = leaf(0.0, 2.0)
    with block:
        a = x * 2
        a.register_hook(lambda gradient: gradient * INF)
        y = a.sin()
    return y.sum()


def with_the_gradient(block: Any) -> Tensor:
    x = leaf(0.0, 2.0)
    with block:
        y = x.sin()
    return (y - y.detach()).sqrt().sum()


CASES: list[tuple[Callable[[Any], Tensor], str, str, str, str]] = [
    (born_in_forward, "NaN", "forward", "aten.log.default", "z = y.log()"),
    (from_infinity, "NaN", "forward", "aten.sub.Tensor", "d = e - e"),
    (in_place, "NaN", "forward", "aten.log_.default", "y.log_()"),
    (into_a_slice, "NaN", "forward", "aten.log.default", "y[0] = (x[0] - 1).log()"),
    (without_gradients, "NaN", "forward", "aten.log.default", "k = (x - 1).log()"),
    (in_a_custom_function, "NaN", "forward", "aten.log.default", "return (a - 5).log()"),
    (of_a_changed_slice, "NaN", "forward", "aten.log_.default", "scale[:1].sub_(5).log_()"),
    (of_a_slice_taken, "NaN", "forward", "aten.log.default", "k = (x - 1).log()"),
    (over_what_was_bad, "NaN", "forward", "aten.log.default", "old.copy_((x - 1).log())"),
    (taken_with_a_good_result, "Inf", "forward", "aten.exp.default", "k = (x * 1000).exp()"),
    (after_it_was_good_again, "NaN", "backward", "aten.hypot.default", "y = torch.hypot(x, k)"),
    (with_an_input_changed_in_place, "NaN", "inputs", "aten.add_.Tensor", "data.add_(1)"),
    (hidden_by_where, "Inf", "forward", "aten.log.default", "logs = x.log()"),
    (with_an_input, "NaN", "inputs", "aten.mul.Tensor", "z = y * data"),
    (with_a_weight, "NaN", "inputs", "aten.addmm.default", "y = model(x)"),
    (born_in_backward, "Inf", "backward", "aten.sqrt.default", "y = x.sqrt()"),
    (born_in_a_hook, "Inf", "backward", "aten.mul.Tensor", "a = x * 2"),
    (with_the_gradient, "Inf", "gradients", "aten.sin.default", "y = x.sin()"),
]


@pytest.mark.parametrize(
    ("program", "what", "where", "op", "code"), CASES, ids=lambda case: getattr(case, "__name__", "")
)
def test_where_bad_numbers_come_from(program: Any, what: str, where: str, op: str, code: str, tmp_path: Path) -> None:
    region = bp.region(tmp_path, gradients="stats")
    program(region).backward()
    (found,) = region.passes
    assert region.errors == []
    origin = found.origin
    assert (origin.what, origin.where, origin.op, origin.line.code) == (what, where, op, code), str(origin)
    assert found.bad
    assert str(origin) in shown(tmp_path / "pass_0000")
    assert read_passes(tmp_path)[0].origin == origin


def test_an_origin_says_what_came_in_and_what_it_was_made_of() -> None:
    def said(program: Callable[[Any], Tensor]) -> str:
        region = bp.region(gradients="stats")
        program(region).backward()
        return str(region.passes[0].origin)

    assert "came in from outside with data, first taken by aten.mul.Tensor" in said(with_an_input)
    assert "came in from outside with weight" in said(with_a_weight)
    assert "of Inf from aten.exp.default" in said(from_infinity)
    assert "Inf came in with the gradient of y, which sin took" in said(with_the_gradient)
    assert "made by a hook" in said(born_in_a_hook)


def test_what_an_outer_region_made_came_into_the_inner_one() -> None:
    x = leaf(-1.0, 2.0)
    with bp.region(gradients="stats") as outer:
        q = x.log()
        with bp.region(gradients="stats") as inner:
            y = q.cos()
    y.sum().backward()
    assert outer.passes[0].origin.where == "forward"
    origin = inner.passes[0].origin
    assert (origin.where, origin.tensor, origin.op) == ("inputs", "q", "aten.cos.default")
    assert "born in aten.log.default" in origin.detail


def test_the_forward_is_told_of_without_a_backward(tmp_path: Path) -> None:
    x = leaf(-1.0, 2.0)
    with bp.region(tmp_path, gradients="stats") as region:
        y = x.log()
    assert (region.origin.what, region.origin.op) == ("NaN", "aten.log.default")
    assert y.requires_grad
    assert str(region.origin).startswith("NaN born in the forward: aten.log.default at test_origins.py:")


def test_masks_uninitialised_memory_and_what_is_good_again_are_no_news() -> None:
    x = leaf(0.0, 2.0)
    mask = torch.tensor([[0.0, -INF], [0.0, 0.0]])
    torch.use_deterministic_algorithms(True)  # which fills uninitialised memory with NaN
    try:
        with bp.region(gradients="stats") as region:
            waste = torch.empty(2)
            first = waste[0].isnan()
            waste.copy_(x.detach())
            y = (x + 0).expand(2, 2).masked_fill(mask < 0, -INF).softmax(-1) * waste
        assert region.origin is None
        with bp.region(gradients="stats") as added:
            z = (x + mask).softmax(-1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert first
    for loss, watched in ((y, region), (z, added)):
        loss.sum().backward()
        (found,) = watched.passes
        assert (found.origin, found.first_bad, found.bad) == (None, None, False)


def test_another_passs_forward_is_not_blamed() -> None:
    region = bp.region(gradients="stats")

    @region
    def logs(x: Tensor) -> Tensor:
        return x.log()

    bad, good = logs(leaf(-1.0)), logs(leaf(1.0))
    unused = region.origin
    good.sum().backward()
    bad.sum().backward()
    assert unused.what == "NaN"
    assert [each.bad for each in region.passes] == [False, True]


def test_what_nobody_looked_at_says_so(tmp_path: Path) -> None:
    for region in (bp.region(tmp_path), bp.region()):
        born_in_forward(region).backward()
        (found,) = region.passes
        for answer in (found.first_bad, found.origin, region.origin):
            assert answer
            assert str(answer) == 'not watched: bp.region(gradients="stats") looks for NaN and Inf'
        assert found.where(found.first_bad) is None
    assert "NaN and Inf: not watched" in shown(tmp_path / "pass_0000")


def test_no_mode_of_the_users_sees_what_is_looked_at() -> None:
    class Log(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def seen(level: str) -> list[str]:
        x = leaf(-1.0, 2.0)
        with Log() as log, bp.region(gradients=level):
            x.log().relu_()
        return log.seen

    assert seen("stats") == seen("none")


def test_what_goes_wrong_while_looking_is_said_and_the_forward_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(watch.OperatorLook, "source", fails)
    x = leaf(1.0)
    with pytest.warns(RuntimeWarning, match="RuntimeError: ours"), bp.region(gradients="stats") as region:
        y = (x * 2).add(1)
    assert torch.equal(y.detach(), torch.tensor([3.0]))
    assert region.errors == ["RuntimeError: ours"]  # once, however many operators ran


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_zeros_are_counted_with_their_signs(dtype: torch.dtype) -> None:
    from face import stats_of

    tensor = torch.tensor([0.0, -0.0, 1.0, -1.0, -0.0, 1e-40], dtype=dtype)
    assert stats_of(tensor).zeros == int((tensor == 0).sum())
    assert stats_of(tensor.repeat(4, 2).t()).zeros == 8 * int((tensor == 0).sum())
