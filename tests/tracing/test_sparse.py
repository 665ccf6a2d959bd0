"""Sparse tensors in engine eager: as inputs, results, saved values, gradients and state, from capture to disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects.forked import run_python
from torch import Tensor, nn

import backprint as bp
from backprint.graph.text import parse

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


def shared(values: Tensor, x: Tensor) -> Tensor:
    """Values written to after a sparse tensor was built on them."""
    mine = values * 1
    made = built(mine)
    mine.mul_(3)
    return torch.sparse.mm(made, x)


def through_values(a: Tensor) -> Tensor:
    a._values().mul_(2)
    return a.to_dense()


def grown(a: Tensor) -> Tensor:
    """An update that gives a tensor other parts."""
    made = a.clone()
    made.add_(built(torch.ones(4)))
    return made.to_dense()


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
    "csr times a number": lambda: (lambda a: a * 2, (sparse("sparse_csr"),)),
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
    "gradients added up": lambda: (
        lambda a, b: torch.sparse.mm(a, b) + torch.sparse.mm(a * 2, b),
        (sparse("sparse_coo"), dense(6, 3)),
    ),
    "built inside": lambda: (lambda v, b: torch.sparse.mm(built(v), b), (dense(4), dense(6, 3))),
    "built of indices": lambda: (
        lambda i, v, b: torch.sparse.mm(torch.sparse_coo_tensor(i, v, (4, 6)), b),
        (PLACES, dense(4), dense(6, 3)),
    ),
    "csr built inside": lambda: (
        lambda v, b: torch.sparse_csr_tensor([0, 1, 3, 3, 4], [2, 0, 2, 1], v, (4, 6)) @ b,
        (dense(4), dense(6, 3)),
    ),
    "a sparse constant": lambda: (
        lambda b: torch.sparse.mm(torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], (4, 6)), b),
        (dense(6, 3),),
    ),
    "from outside": lambda: (lambda b: torch.sparse.mm(OUTSIDE, b), (dense(6, 3),)),
    "coalesced values": lambda: (lambda v: built(v).coalesce().values() ** 2, (dense(4),)),
    "softmax": lambda: (lambda a: torch.sparse.softmax(a, 1), (sparse("sparse_coo"),)),
    "sum over a dimension": lambda: (lambda a: torch.sparse.sum(a, 1), (sparse("sparse_coo"),)),
    "addmm": lambda: (torch.sparse.addmm, (dense(4, 3), sparse("sparse_coo"), dense(6, 3))),
    "sampled addmm": lambda: (torch.sparse.sampled_addmm, (sparse("sparse_csr"), dense(4, 3), dense(3, 6))),
    "mm with amax": lambda: (
        lambda a, b: torch.sparse.mm(a, b, "amax"),
        (sparse("sparse_csr"), dense(6, 3)),
    ),
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
    "bag of embeddings": lambda: (Embed(nn.EmbeddingBag, mode="sum"), (INDEX,)),
    "an input written to": lambda: (lambda a: a.mul_(2).to_dense(), (sparse("sparse_coo", False),)),
    "a csr input written to": lambda: (lambda a: a.mul_(2).to_dense(), (sparse("sparse_csr", False),)),
    "an input's values written to": lambda: (through_values, (sparse("sparse_coo", False),)),
    "values written to": lambda: (shared, (dense(4), dense(6, 3))),
    "other parts": lambda: (grown, (sparse("sparse_coo"),)),
    "a sparse addend": lambda: (lambda x, a: (x * 1).add_(a), (dense(4, 6), sparse("sparse_coo"))),
}


@pytest.mark.slow
@pytest.mark.parametrize("functional", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_sparse_program_is_captured_saved_and_proved_from_disk(name: str, functional: bool, tmp_path: Path) -> None:
    target, args = PROGRAMS[name]()
    capture = bp.capture(target, args=args, engine="eager", functional=functional)
    graphs = [graph for graph in (capture.pairs[0].forward, capture.pairs[0].backward) if graph is not None]
    assert [parse(graph.code) for graph in graphs] == graphs
    verdict = capture.verify()[0]
    assert (verdict.verdict, verdict.detail) == ("bitwise", "")
    for data in ("seed", "exact"):
        loaded = bp.load(capture.save(tmp_path / data, data=data))
        verdict = loaded.verify()[0]
        assert (verdict.verdict, verdict.detail) == ("bitwise", "")


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


def test_a_sparse_optimizer_step_is_captured() -> None:
    embed = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)

    def train(index: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = embed(index).tanh().sum()
        loss.backward()
        optimizer.step()
        return loss

    capture = bp.capture(train, INDEX, engine="eager")
    mutations = {port.name: port.spec.layout for port in capture.pairs[0].forward.by_role("mutation")}
    assert mutations == {"embed.weight": "strided", "embed.weight.grad": "sparse_coo"}
    assert capture.verify()[0].verdict == "undifferentiable"
    assert embed.weight.grad is None


def test_a_sparse_tensor_from_outside_is_as_it_was() -> None:
    total = built(torch.ones(4))
    before = total._values().clone(), total._version, total._values().data_ptr()

    def add(x: Tensor) -> Tensor:
        total.add_(built(torch.ones(4)))
        return total.to_dense() * x.sum().detach()

    capture = bp.capture(add, torch.ones(2), engine="eager", requires_grad=False)
    assert torch.equal(total._values(), before[0])
    assert (total._version, total._values().data_ptr()) == before[1:]
    assert [port.name for port in capture.pairs[0].forward.by_role("mutation")] == ["total"]
    assert capture.verify()[0].verdict == "undifferentiable"


def test_a_write_to_shared_values_reaches_the_sparse_tensor() -> None:
    values, x = dense(4), dense(6, 3)
    capture = bp.capture(shared, values, x, engine="eager")
    got = bp.replay(capture, values, x).outputs
    assert torch.equal(got, torch.sparse.mm(built(values.detach() * 3), x.detach()))


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
    from backprint.replaying.results import compare

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
