"""Updates in place become new values: random views and updates on shared memory, bit for bit as eager runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import backprint as bp
from face import graph_operators as operators

# ------------------------------------------------------------------ random programs

Act = Callable[[list[Tensor], Tensor, int, int], None]


def view(make: Callable[[Tensor, int], Tensor]) -> Act:
    """An action that keeps another view of a tensor."""

    def act(alive: list[Tensor], tensor: Tensor, number: int, other: int) -> None:
        alive.append(make(tensor, number))

    return act


def update(change: Callable[[Tensor, Tensor, int], Any]) -> Act:
    """An action that changes a tensor in place, from a value of its shape."""

    def act(alive: list[Tensor], tensor: Tensor, number: int, other: int) -> None:
        if meets_itself(tensor):
            raise IndexError("torch leaves open what a write to one spot twice gives")
        value = alive[other % len(alive)].sum() * 0.5 + 1
        change(tensor, value, number)

    return act


def meets_itself(tensor: Tensor) -> bool:
    """Whether two elements lie in one spot."""
    spots = torch.arange(tensor.untyped_storage().nbytes() // tensor.element_size())
    here = spots.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return here.unique().numel() < tensor.numel()


def put(tensor: Tensor, value: Tensor, number: int) -> None:
    index = torch.arange(number % (tensor.shape[0] + 1))
    tensor.index_put_((index,), value, accumulate=bool(number % 2))


def out_of(tensor: Tensor, value: Tensor, number: int) -> None:
    with torch.no_grad():
        torch.add(tensor.detach() * 2, value.detach(), out=tensor.detach())


def several(tensor: Tensor, value: Tensor, number: int) -> None:
    with torch.no_grad():
        torch._foreach_mul_([tensor, *tensor.detach().chunk(2)[:1]], 1.5)


ACTS: dict[str, Act] = {
    "select": view(lambda t, n: t.select(n % t.dim(), n % max(1, t.shape[n % t.dim()]))),
    "slice": view(lambda t, n: t[n % (t.shape[0] + 1) :: 1 + n % 2]),
    "narrow": view(lambda t, n: t.narrow(-1, 0, n % (t.shape[-1] + 1))),
    "transpose": view(lambda t, n: t.transpose(0, -1)),
    "permute": view(lambda t, n: t.permute(list(reversed(range(t.dim()))))),
    "view": view(lambda t, n: t.view(-1)),
    "reshape": view(lambda t, n: t.reshape(-1)),
    "unsqueeze": view(lambda t, n: t.unsqueeze(n % (t.dim() + 1))),
    "squeeze": view(lambda t, n: t.squeeze()),
    "expand": view(lambda t, n: t.expand(2, *t.shape)),
    "diagonal": view(lambda t, n: t.diagonal()),
    "unfold": view(lambda t, n: t.unfold(0, min(2, t.shape[0]), 1)),
    "as_strided": view(lambda t, n: t.as_strided((2,), (1,), t.storage_offset())),
    "chunk": view(lambda t, n: t.chunk(2, -1)[-1]),
    "split": view(lambda t, n: t.split(2)[0]),
    "unbind": view(lambda t, n: t.unbind(0)[0]),
    "detach": view(lambda t, n: t.detach()),
    "flatten": view(lambda t, n: t.flatten()),
    "movedim": view(lambda t, n: t.movedim(0, -1)),
    "T": view(lambda t, n: t.mT),
    "clone": view(lambda t, n: t.clone()),
    "times": view(lambda t, n: t * 2),
    "add_": update(lambda t, v, n: t.add_(v)),
    "mul_": update(lambda t, v, n: t.mul_(1.5)),
    "copy_": update(lambda t, v, n: t.copy_(v.expand(t.shape))),
    "zero_": update(lambda t, v, n: t.zero_()),
    "fill_": update(lambda t, v, n: t.fill_(v)),
    "index_put_": update(put),
    "masked_fill_": update(lambda t, v, n: t.masked_fill_(torch.ones(t.shape[-1:], dtype=torch.bool), float(n))),
    "setitem": update(lambda t, v, n: t.__setitem__(0, v)),
    "setitem_step": update(lambda t, v, n: t.__setitem__(slice(None, None, 2), v)),
    "iadd_self": update(lambda t, v, n: t.add_(t)),
    "relu_": update(lambda t, v, n: t.relu_()),
    "clamp_": update(lambda t, v, n: t.clamp_(-1, 1)),
    "out": update(out_of),
    "foreach": update(several),
    "data": update(lambda t, v, n: t.data.add_(1)),
    "transpose_": update(lambda t, v, n: t.detach().transpose_(0, -1).mul_(2)),
    "unsqueeze_": update(lambda t, v, n: t.detach().unsqueeze_(0).add_(1)),
    "uniform_": update(lambda t, v, n: t.detach().uniform_()),
}
Program = list[tuple[str, int, int, int]]
actions = st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 9), st.integers(0, 5), st.integers(0, 9))


def program(acts: Program, shared: bool) -> Callable[[Tensor, Tensor], Any]:
    """A function that does these things one after the other and gives all that is alive."""

    def run(x: Tensor, y: Tensor) -> Any:
        alive = [x if shared else x * 1, y, x.sin()]
        for name, which, number, other in acts:
            ACTS[name](alive, alive[which % len(alive)], number, other)
        return sum(t.sum() for t in alive if t.is_floating_point()), alive[-1], alive[1]

    return run


def runs(function: Callable[..., Any], x: Tensor, y: Tensor) -> bool:
    """Whether eager runs it, forward and backward."""
    try:
        leaf = x.clone().requires_grad_()
        result = function(leaf, y.clone())
        result[0].backward()
    except (RuntimeError, IndexError, ZeroDivisionError):
        return False
    return True


FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@pytest.mark.slow
@pytest.mark.parametrize("functional", [True, False])
@FUZZ
@given(acts=st.lists(actions, min_size=1, max_size=7))
def test_random_updates_are_as_eager_runs_them(functional: bool, acts: Program) -> None:
    function = program(acts, shared=False)
    x, y = torch.randn(3, 4).requires_grad_(), torch.randn(3, 4)
    assume(runs(function, x, y))
    capture = bp.capture(function, args=(x, y), engine="eager", functional=functional)
    (verdict,) = capture.verify()
    assert verdict.verdict == "bitwise", verdict.detail
    if functional and not {"unfold", "expand"} & {
        name for name, *_ in acts
    }:  # a tensor that meets itself is written in place
        assert not in_place(capture)


def in_place(capture: bp.Capture) -> list[str]:
    """The operators of a capture that change their arguments, among those that always have another form."""
    graphs = [g for pair in capture.pairs for g in (pair.forward, pair.backward) if g is not None]
    targets = [step.target for graph in graphs for step in graph.steps]
    return [t for t in targets if "m" in operators().get(t, "") and t in FUNCTIONAL]


FUNCTIONAL = {f"aten.{name}" for name in ("add_.Tensor", "mul_.Tensor", "copy_.default", "zero_.default")}


# ------------------------------------------------------------------ what random programs found, and other corners


FOUND: dict[str, Program] = {
    "a list with a tensor and its own part": [("foreach", 1, 3, 6)],
    "an update on lists makes views new": [("diagonal", 0, 0, 0), ("foreach", 0, 0, 0), ("T", 0, 0, 0)],
    "as_strided goes by the storage": [("as_strided", 0, 4, 3), ("setitem", 0, 5, 0), ("as_strided", 0, 2, 5)],
    "a draw into a tensor with gaps": [("narrow", 1, 3, 0), ("uniform_", 3, 0, 0), ("T", 3, 0, 0)],
    "memory seen flat by the program": [("as_strided", 0, 4, 3), ("reshape", 0, 5, 1), ("setitem", 0, 5, 0)],
}


@pytest.mark.parametrize("name", FOUND)
def test_found_by_random_programs(name: str) -> None:
    function, x, y = program(FOUND[name], shared=False), torch.randn(3, 4).requires_grad_(), torch.randn(3, 4)
    assert runs(function, x, y)
    assert bp.capture(function, args=(x, y), engine="eager").verify()[0].verdict == "bitwise"


def set_other(x: Tensor) -> Any:
    other = torch.zeros(3)
    other.set_(torch.arange(4.0)[1:])
    other.add_(1)
    return (x[:3] * other).sum(), other


def resized(x: Tensor) -> Any:
    small = torch.ones(2)
    small.resize_(4).fill_(2)
    return (x * small).sum()


def conjugates(x: Tensor) -> Any:
    z = torch.complex(x, x * 2)
    z.conj()[1:].mul_(2j)
    z.imag.add_(1)
    torch.view_as_real(z)[0].mul_(3)
    return z.abs().sum(), z.real.sum()


def parts(x: Tensor) -> Any:
    whole = (x * 1).view(2, 2).clone()
    first, second = whole.detach().unbind(0)
    first.add_(second)
    for part in whole.detach().split(1, 1):
        part.mul_(2)
    for part in whole.detach().chunk(2):
        part[0, 0] = 7
    left, right = whole.detach().tensor_split(2, 1)
    left.copy_(right)
    return (whole * x.view(2, 2)).sum(), whole.detach()


def on_lists(x: Tensor) -> Any:
    several = [torch.ones(2), torch.zeros(3), torch.full((), 2.0)]
    torch._foreach_add_(several, 1.5)
    torch._foreach_mul_(several, [2.0, 3.0, 4.0])
    torch._foreach_addcmul_(several, several, several, value=0.5)
    torch._foreach_zero_(several[:1])
    return x.sum() * torch.stack([each.sum() for each in several]).sum(), several


def from_numpy(x: Tensor) -> Any:
    numbers = numpy.arange(4, dtype=numpy.float32)
    tensor = torch.from_numpy(numbers)
    tensor.add_(1)
    return (x * tensor).sum(), tensor


def nothing_in_it(x: Tensor) -> Any:
    empty = x[:0]
    empty.clone().add_(1).mul_(2)
    return (
        torch.cat([empty, x]).sum() + empty.sum(),
        empty,
        torch.zeros(0, 3).index_fill_(0, torch.tensor([]).long(), 1),
    )


def with_outs(x: Tensor) -> Any:
    out, values, indices = torch.empty(4), torch.empty(0), torch.empty(0, dtype=torch.int64)
    torch.mul(x.detach(), 2, out=out)
    torch.max(x.detach().view(2, 2), 1, out=(values, indices))
    torch.add(out[:2], 1, out=out[2:])
    return (x * out).sum(), out, values, indices


def scattered(x: Tensor) -> Any:
    table = torch.zeros(3, 4)
    table[1] = x
    table[:, 2] += x[0]
    table.index_add_(0, torch.tensor([0, 0]), x.expand(2, 4))
    table.scatter_(1, torch.tensor([[0], [1], [2]]), 5.0)
    table.diagonal().mul_(2)
    table.T[0].masked_fill_(torch.tensor([True, False, True]), -1)
    table.unfold(1, 2, 2).select(1, 0).add_(1)
    return table.square().sum(), table


def parts_of_an_expanded_one(x: Tensor) -> Any:
    row = torch.zeros(4)
    wide = row.expand(2, 4)
    wide[0].add_(1)
    wide[::2].fill_(2)
    return (x * wide).sum(), row, wide.reshape(-1)


def seen_as_another_kind(x: Tensor) -> Any:
    whole = torch.ones(4, dtype=torch.float32)
    whole.view(torch.int32).add_(1)
    return (x * whole).sum(), whole.view(torch.uint8)


def turned(x: Tensor) -> Any:
    other = torch.arange(8.0).view(1, 2, 4)
    other.squeeze_(0).t_().mul_(2)
    other.unsqueeze_(0)
    other.swapaxes_(1, 2)
    return (other[0] * x).sum(), other


def filled_at_random(x: Tensor) -> Any:
    noise = torch.empty(2, 4)
    noise.T.normal_()
    noise[0].bernoulli_(0.5)
    noise[:, 1:3].exponential_()
    return (noise * x).sum(), noise


CORNERS: dict[str, Callable[[Tensor], Any]] = {
    each.__name__: each
    for each in (
        set_other,
        resized,
        conjugates,
        parts,
        on_lists,
        from_numpy,
        nothing_in_it,
        with_outs,
        scattered,
        parts_of_an_expanded_one,
        seen_as_another_kind,
        turned,
        filled_at_random,
    )
}


@pytest.mark.parametrize(
    ("name", "functional"), [*((name, True) for name in CORNERS), ("set_other", False), ("scattered", False)]
)
def test_corner(name: str, functional: bool) -> None:
    x = torch.randn(4).requires_grad_()
    capture = bp.capture(CORNERS[name], args=(x,), engine="eager", functional=functional)
    (verdict,) = capture.verify()
    assert verdict.verdict == "bitwise", verdict.detail


@pytest.mark.parametrize("engine", ["eager", "auto"])
def test_outputs_that_are_inputs_and_views_of_them(engine: str) -> None:
    def f(a: Tensor, b: Tensor) -> Any:
        b.add_(1)
        return a, a[0], b, b.view(-1), (a * b).sum()

    a, b = torch.randn(2, 2).requires_grad_(), torch.zeros(2, 2)
    capture = bp.capture(f, args=(a, b), engine=engine)
    assert capture.verify()[0].verdict == "bitwise"
    assert b.tolist() == [[0, 0], [0, 0]]
    out = bp.replay(capture, a, torch.ones(2, 2))
    assert out.mutations["b"].tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("engine", ["eager", "auto"])
def test_inputs_that_share_memory_larger_than_they_are(engine: str) -> None:
    storage = torch.arange(12.0)
    left, right = storage[2:8], storage[4:10].view(2, 3)

    def f(left: Tensor, right: Tensor, w: Tensor) -> Any:
        left.mul_(2)
        return (right * w).sum(), left

    capture = bp.capture(f, args=(left, right, torch.randn(3).requires_grad_()), engine=engine)
    assert capture.verify()[0].verdict == "bitwise"
    assert storage.tolist() == list(range(12))
    out = bp.replay(capture, left, right, torch.ones(3))
    assert {name: found.tolist() for name, found in out.mutations.items()} == {
        "left": [4.0, 6.0, 8.0, 10.0, 12.0, 14.0],
        "right": [[8.0, 10.0, 12.0], [14.0, 8.0, 9.0]],
    }


def test_resize_of_a_tensor_keeps_its_elements_and_of_a_view_is_refused_by_name() -> None:
    def grown(x: Tensor) -> Tensor:
        y = x.detach().clone()
        y.resize_(5, 4)
        y[3:] = 1
        return y.sum() * x

    x = torch.randn(3, 4, requires_grad=True)
    capture = bp.capture(grown, x, engine="eager")
    assert [verdict.verdict for verdict in capture.verify()] == ["bitwise"]

    def of_a_view(x: Tensor) -> Tensor:
        part = x.detach().clone()[1:]
        part.resize_(5, 4)
        part[2:] = 1
        return part.sum() * x

    with pytest.raises(bp.errors.CaptureError, match="resize_ makes a tensor larger that is a view"):
        bp.capture(of_a_view, x, engine="eager")
