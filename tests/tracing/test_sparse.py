"""Sparse tensors in engine eager: as inputs, results, saved values, gradients and state, from capture to disk. A change
of one in place is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects.forked import run_python
from torch import Tensor, nn

import backprint as bp
from face import parse

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")

BLOCKED = {"sparse_bsr", "sparse_bsc"}
LAYOUTS = ("sparse_coo", "sparse_csr", "sparse_csc", *sorted(BLOCKED))
PLACES = torch.tensor([[0, 1, 1, 3], [2, 0, 2, 1]])


def dense(*shape: int) -> Tensor:
    """Normals that require grad."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


def sparse(layout: str, asks: bool = True) -> Tensor:
    """About half of a 4 x 6 matrix."""
    full = dense(4, 6).detach().relu()
    made = full.to_sparse(layout=getattr(torch, layout), blocksize=(2, 2) if layout in BLOCKED else None)
    return made.requires_grad_(asks)


def built(values: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(PLACES, values, (4, 6))


class Graph(nn.Module):
    """A sparse parameter and a sparse buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(sparse("sparse_coo", False))
        self.register_buffer("adjacent", sparse("sparse_csr", False))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.weight, x).relu() + self.adjacent @ x


class Embed(nn.Module):
    """An embedding whose gradient is sparse."""

    def __init__(self, kind: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.embed = kind(10, 3, sparse=True, **options)

    def forward(self, index: Tensor) -> Tensor:
        return self.embed(index).tanh()


OUTSIDE = sparse("sparse_coo", False)
INDEX = torch.tensor([[1, 2, 2], [5, 1, 9]])
PROGRAMS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    **{f"to dense from {name}": lambda name=name: (lambda a: a.to_dense() * 2, (sparse(name),)) for name in LAYOUTS},
    **{
        f"to {name}": lambda name=name: (
            lambda x: x.to_sparse(layout=getattr(torch, name), blocksize=(2, 2) if name in BLOCKED else None),
            (dense(4, 6).detach().relu().requires_grad_(),),
        )
        for name in LAYOUTS
    },
    "coo times a number": lambda: (lambda a: a * 2, (sparse("sparse_coo"),)),
    "coo @ dense": lambda: (torch.sparse.mm, (sparse("sparse_coo"), dense(6, 3))),
    "csr @ dense": lambda: (lambda a, b: a @ b, (sparse("sparse_csr"), dense(6, 3))),
    "uncoalesced": lambda: (
        torch.sparse.mm,
        (torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 2]], torch.ones(3), (4, 6)).requires_grad_(), dense(6, 3)),
    ),
    "sparse @ sparse": lambda: (
        lambda a, b: torch.sparse.mm(a, b.t()).to_dense(),
        (sparse("sparse_coo"), sparse("sparse_coo")),
    ),
    "built inside": lambda: (lambda v, b: torch.sparse.mm(built(v), b), (dense(4), dense(6, 3))),
    "csr built inside": lambda: (
        lambda v, b: torch.sparse_csr_tensor([0, 1, 3, 3, 4], [2, 0, 2, 1], v, (4, 6)) @ b,
        (dense(4), dense(6, 3)),
    ),
    "from outside": lambda: (lambda b: torch.sparse.mm(OUTSIDE, b), (dense(6, 3),)),
    "softmax": lambda: (lambda a: torch.sparse.softmax(a, 1), (sparse("sparse_coo"),)),
    "addmm": lambda: (torch.sparse.addmm, (dense(4, 3), sparse("sparse_coo"), dense(6, 3))),
    "sampled addmm": lambda: (torch.sparse.sampled_addmm, (sparse("sparse_csr"), dense(4, 3), dense(3, 6))),
    "masked": lambda: (lambda x, a: x.sparse_mask(a), (dense(4, 6), sparse("sparse_coo", False))),
    "hybrid": lambda: (
        lambda a: a.to_dense() * 3,
        (torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 3), (4, 3)).requires_grad_(),),
    ),
    "no values at all": lambda: (lambda a: a.to_dense() * 3, (torch.sparse_coo_tensor(size=(4, 3)).requires_grad_(),)),
    "nan among the values": lambda: (
        lambda a: a * 2,
        (torch.sparse_coo_tensor([[0, 2]], torch.tensor([float("nan"), 1.0]), (4,)).requires_grad_(),),
    ),
    "in a dictionary": lambda: (lambda a: {"s": a * 2, "d": a.to_dense()}, (sparse("sparse_coo"),)),
    "state": lambda: (Graph(), (dense(6, 3),)),
    "embedding": lambda: (Embed(nn.Embedding), (INDEX,)),
    "a sparse addend": lambda: (lambda x, a: (x * 1).add_(a), (dense(4, 6), sparse("sparse_coo"))),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "functional"),
    [*((name, True) for name in PROGRAMS), ("built inside", False), ("a sparse addend", False), ("state", False)],
)
def test_a_sparse_program_is_captured_saved_and_proved_from_disk(name: str, functional: bool, tmp_path: Path) -> None:
    target, args = PROGRAMS[name]()
    capture = bp.capture(target, args=args, engine="eager", functional=functional)
    graphs = [graph for graph in (capture.pairs[0].forward, capture.pairs[0].backward) if graph is not None]
    assert [parse(graph.code) for graph in graphs] == graphs
    verdict = capture.verify()[0]
    assert verdict.verdict == "bitwise"
    assert not verdict.detail or "does not move" in verdict.detail, verdict.detail
    for data in ("seed", "exact"):
        loaded = bp.load(capture.save(tmp_path / data, data=data))
        verdict = loaded.verify()[0]
        assert verdict.verdict == "bitwise"
        assert not verdict.detail or "does not move" in verdict.detail, verdict.detail


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coo @ dense", "sampled addmm", "coo times a number", "state"])
def test_a_model_text_runs_alone(name: str, tmp_path: Path) -> None:
    target, args = PROGRAMS[name]()
    capture = bp.capture(target, args=args, engine="eager")
    path = capture.save(tmp_path / "sample")
    again = bp.load(path)
    wanted = {key: row["digest"] for key, row in again.witness.items() if "digest" in row}
    for side in ("forward", "backward"):
        done = run_python([path / "pair_0" / side / "model.py"], flags=["-I"])
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            role, port, *_, digest = line.split(" ")
            assert role == "saved" or wanted[f"{role} {port}"] == digest


def test_no_data_keeps_no_parts(tmp_path: Path) -> None:
    capture = bp.capture(torch.sparse.mm, sparse("sparse_coo"), dense(6, 3), engine="eager")
    loaded = bp.load(capture.save(tmp_path / "sample", data="none"))
    assert len(loaded.recipes.missing) == 3
    assert not any("/" in name for name in loaded.recipes.recipes)


def train_step(optimizer_type: type[torch.optim.Optimizer], **options: Any) -> Callable[[Tensor], Tensor]:
    """A training step of an embedding with sparse gradients."""
    embed = nn.Embedding(10, 3, sparse=True)
    optimizer = optimizer_type(embed.parameters(), lr=0.1, **options)

    def train(index: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = embed(index).tanh().sum()
        loss.backward()
        optimizer.step()
        return loss

    return train


@pytest.mark.parametrize(("optimizer", "functional"), [(torch.optim.SGD, True), (torch.optim.SparseAdam, False)])
def test_a_sparse_optimizer_step_is_captured(optimizer: Any, functional: bool) -> None:
    """SparseAdam computes in place in the values of sparse tensors that are not used any more."""
    train = train_step(optimizer)
    capture = bp.capture(train, INDEX, engine="eager", functional=functional)
    mutations = {port.name: port.spec.layout for port in capture.pairs[0].forward.by_role("mutation")}
    assert mutations["embed.weight"] == "strided"
    assert mutations["embed.weight.grad"] == "sparse_coo"
    (verdict,) = capture.verify()
    assert verdict.verdict == "undifferentiable"
    assert "the forward is bitwise" in verdict.detail


# ---- Changes in place, which are refused


def on_copy(change: Callable[[Tensor], Any], layout: str = "sparse_coo") -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    """A program that changes a copy of its sparse input."""

    def program(a: Tensor) -> Tensor:
        mine = a.clone()
        change(mine)
        return mine.to_dense()

    return lambda: (program, (sparse(layout, False),))


def shared(values: Tensor) -> Tensor:
    """Values written to after a sparse tensor was built on them."""
    mine = values * 1
    made = built(mine)
    mine.mul_(3)
    return made.to_dense()


def saved_and_changed(values: Tensor) -> Tensor:
    """Values written to after a product that saves the sparse tensor for the backward."""
    mine = values * 1
    product = torch.sparse.mm(built(mine), torch.ones(6, 3).requires_grad_())
    mine.detach().mul_(3)
    return product


def accumulating(index: Tensor) -> Tensor:
    """Two backwards that add to one sparse gradient."""
    table = nn.Embedding(10, 3, sparse=True)
    for _ in range(2):
        loss = table(index).tanh().sum()
        loss.backward()
    return loss


def zeroing(index: Tensor) -> Tensor:
    """A step that keeps a sparse gradient, as zeros."""
    table = nn.Embedding(10, 3, sparse=True)
    loss = table(index).tanh().sum()
    loss.backward()
    table.weight.grad.zero_()  # type: ignore[union-attr]
    return loss


def second_step_with_momentum() -> tuple[Any, tuple[Any, ...]]:
    """The first step makes the momentum of a sparse gradient, and each later one changes it in place."""
    train = train_step(torch.optim.SGD, momentum=0.9)
    train(INDEX)
    return train, (INDEX,)


class Doubled(torch.autograd.Function):
    """A backward that changes a sparse tensor in place, directly or through its values."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor, through_values: bool) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape, ctx.through_values = table.shape, through_values
        return table[index]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        values = gradient.reshape(-1, ctx.shape[1]) * 1
        made = torch.sparse_coo_tensor(ctx.saved_tensors[0].reshape(1, -1), values, ctx.shape)
        (values if ctx.through_values else made).mul_(2)
        return made.to_dense(), None, None


class Counting(torch.autograd.Function):
    """A backward that changes the values of a sparse tensor from outside, a constant of its graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * OUTSIDE._values().mul_(2).sum()


VALUES = r"mul_.Tensor changes the values of a sparse_coo tensor in place .*and the sparse tensor is still in use"
REFUSED: dict[str, tuple[Callable[[], tuple[Any, tuple[Any, ...]]], str]] = {
    "an input": (
        lambda: (lambda a: a.mul_(2).to_dense(), (sparse("sparse_coo", False),)),
        "mul_.Tensor changes a sparse_coo",
    ),
    "a copy into it": (on_copy(lambda a: a.copy_(a * 2)), "copy_.default changes a sparse_coo"),
    "out=": (on_copy(lambda a: torch.mul(a, 2, out=a)), "mul.out changes a sparse_coo"),
    "a list": (on_copy(lambda a: torch._foreach_mul_([a], 2)), "_foreach_mul_.Scalar changes a sparse_coo"),
    "an input's values": (
        lambda: (lambda a: (a._values().mul_(2), torch.ones(2))[1], (sparse("sparse_coo", False),)),
        VALUES,
    ),
    "values": (on_copy(lambda a: a._values().mul_(2)), VALUES),
    "csr values": (on_copy(lambda a: a.values().mul_(2), "sparse_csr"), VALUES.replace("coo", "csr")),
    "indices": (on_copy(lambda a: a._indices().zero_()), "zero_.default changes the indices of a sparse_coo"),
    "values it was built on": (lambda: (shared, (dense(4),)), VALUES),
    "values of a saved tensor": (lambda: (saved_and_changed, (dense(4),)), VALUES),
    "values of a constant of the backward": (lambda: (lambda x: Counting.apply(x) * 1, (dense(3),)), VALUES),
    "a gradient accumulated": (
        lambda: (accumulating, (INDEX,)),
        "add_.Tensor changes a sparse_coo .*call backward once on the sum of the losses",
    ),
    "a gradient set to zeros": (lambda: (zeroing, (INDEX,)), r"zero_.default .*zero_grad\(set_to_none=True\)"),
    "a momentum": (second_step_with_momentum, "mul_.Tensor changes a sparse_coo"),
}


WITHOUT_GRADIENT = ("a copy into it", "out=", "a list", "csr values")
"""Changes that autograd has no derivative of."""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in REFUSED),
        *((name, {"engine": "eager", "functional": False}) for name in ("an input", "values", "indices", "a momentum")),
    ],
)
def test_a_change_in_place_is_refused_by_name(name: str, options: dict[str, Any]) -> None:
    make, message = REFUSED[name]
    target, args = make()
    requires_grad = False if name in WITHOUT_GRADIENT else None
    with pytest.raises(bp.errors.CaptureError, match=message) as raised:
        bp.capture(target, args=args, requires_grad=requires_grad, **options)
    text = str(raised.value)
    assert "sparse tensors are captured where nothing changes them in place" in text
    assert "test_sparse.py:" in text


def test_a_change_in_place_says_what_to_do() -> None:
    def double(a: Tensor) -> Tensor:
        return a.mul_(2).to_dense()

    with pytest.raises(bp.errors.CaptureError) as raised:
        bp.capture(double, sparse("sparse_coo", False))
    before, _, after = str(raised.value).partition("test_sparse.py:")
    assert before.startswith("aten.mul_.Tensor changes a sparse_coo tensor in place at ")
    assert after.partition(" ")[2] == (
        "in double: 'return a.mul_(2).to_dense()': sparse tensors are captured where nothing changes them in place; "
        "write it out of place, as `s = s * 2` for `s.mul_(2)`"
    )


def test_a_refused_change_leaves_sparse_tensors_as_they_were() -> None:
    total, given = built(torch.ones(4)), sparse("sparse_coo", False)
    before = total._values().clone(), total._version, total._values().data_ptr()
    values = given._values().clone()

    def add(a: Tensor) -> Tensor:
        total.add_(built(torch.ones(4)))
        a._values().mul_(2)
        return total.to_dense() * a.to_dense()

    with pytest.raises(bp.errors.CaptureError, match=r"in add: 'total\.add_"):
        bp.capture(add, given, requires_grad=False)
    assert torch.equal(total._values(), before[0])
    assert (total._version, total._values().data_ptr()) == before[1:]
    assert torch.equal(given._values(), values)


def test_a_sparse_tensor_may_be_built_again_after_its_values_changed() -> None:
    def twice(values: Tensor) -> tuple[Tensor, Tensor]:
        mine = values * 1
        first = built(mine).to_dense()
        mine.mul_(3)
        return first, built(mine).to_dense()

    values = dense(4).detach()
    for functional in (True, False):
        capture = bp.capture(twice, values, engine="eager", requires_grad=False, functional=functional)
        first, second = bp.replay(capture, values * 5).outputs
        assert torch.equal(first, built(values * 5).to_dense())
        assert torch.equal(second, built(values * 5 * 3).to_dense())


@pytest.mark.slow
def test_auto_takes_another_engine_only_if_it_computes_the_same() -> None:
    table = dense(10, 3)
    capture = bp.capture(lambda t, i: Doubled.apply(t, i, False).sin(), table, INDEX)
    assert capture.engine == "aot"
    assert "eager: aten.mul_.Tensor changes a sparse_coo tensor in place" in capture.why[0]
    assert capture.verify()[0].verdict == "bitwise"
    with pytest.raises(bp.errors.CaptureError) as raised:
        bp.capture(lambda t, i: Doubled.apply(t, i, True).sin(), table, INDEX)
    assert "eager: aten.mul_.Tensor changes the values of a sparse_coo tensor" in str(raised.value)
    assert "aot: the captured graph does not compute what the program computes: gradient t" in str(raised.value)


# ---- Replays, guards and comparisons


def test_a_replay_takes_other_values_and_refuses_another_layout() -> None:
    a, b = sparse("sparse_coo"), dense(6, 3)
    capture = bp.capture(lambda a, b: torch.sparse.mm(a, b), a, b, engine="eager")
    other = (a.detach() * 5).coalesce()
    assert torch.equal(bp.replay(capture, other, b).outputs, torch.sparse.mm(other, b).detach())
    with pytest.raises(
        bp.errors.ReplayError, match=r"input 'a' was f32\[4, 6\] sparse_coo at capture and is float32\[4, 6\] now"
    ):
        bp.replay(capture, a.detach().to_dense(), b)
    uncoalesced = torch.sparse_coo_tensor(a._indices(), a._values().detach(), a.shape)
    with pytest.raises(bp.errors.GuardError, match="is_coalesced == True"):
        bp.replay(capture, uncoalesced, b)


def test_how_many_values_there_are_is_guarded_where_it_hangs_on_values() -> None:
    x = dense(4, 6).detach().relu().requires_grad_()
    capture = bp.capture(lambda x: x.to_sparse().values() * 2, x, engine="eager")
    assert {(guard.kind, guard.inputs) for guard in capture.guards} == {("shape", ("x",))}
    with pytest.raises(bp.errors.GuardError, match="shape"):
        bp.replay(capture, torch.ones(4, 6))
    plain = bp.capture(lambda a: a.values() * 2, sparse("sparse_csr"), engine="eager")
    assert {guard.kind for guard in plain.guards} == {"spec"}


def test_a_tangent_is_laid_out_as_its_output() -> None:
    capture = bp.capture(lambda a: a * 2, sparse("sparse_coo"), engine="eager")
    with pytest.raises(
        bp.errors.ReplayError, match=r"tangent of 'output' is \[4, 6\], and its output is \[4, 6\] sparse_coo"
    ):
        bp.replay(capture, sparse("sparse_coo"), tangents=[torch.ones(4, 6)])


def test_a_wrong_sparse_result_is_seen() -> None:
    from face import compare

    right = built(torch.arange(4.0))
    assert compare("x", "output", right, right.clone()).verdict == "bitwise"
    assert compare("x", "output", built(torch.arange(4.0) + 1e-6), right).verdict == "close"
    assert compare("x", "output", right * 2, right).verdict == "wrong"
    assert compare("x", "output", right.to_dense(), right).verdict == "wrong"
    assert compare("x", "output", right.coalesce(), right).verdict == "wrong"
    elsewhere = torch.sparse_coo_tensor(PLACES.flip(1), torch.arange(4.0), (4, 6))
    assert "indices are not" in compare("x", "output", elsewhere, right).detail


def test_engine_aot_refuses_sparse_tensors_by_name_and_auto_takes_eager() -> None:
    a = sparse("sparse_csr")
    for engine in ("aot", "dynamo"):
        said = rf"engine '{engine}' does not take sparse_csr tensors \(input 'a'\): engine 'eager' does"
        with pytest.raises(bp.errors.UsageError, match=said):
            bp.capture(lambda a: a.to_dense(), a, engine=engine)
    with pytest.raises(bp.errors.CaptureError, match=r"_sparse_addmm.* takes a sparse_coo tensor"):
        bp.capture(lambda b: torch.sparse.mm(OUTSIDE, b), dense(6, 3), engine="aot")
    capture = bp.capture(lambda a: a.to_dense(), a)
    assert capture.engine == "eager"
    assert capture.why == ()
