"""Whether the gradients of all ranks are the whole's: bugs are caught with their cause, and the same code without the
bug is equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import backprint as bp

if not dist.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import torch.distributed._functional_collectives as collectives
from subjects.sharded import Program
from subjects.sharding_bugs import BUGS
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.distributed's own deprecations

BY_NAME = {bug.name: bug for bug in BUGS}

FEW = {
    "input of a column-parallel layer": ("first.weight", "self.first(x)"),
    "norm of a sequence": ("norm.weight", "self.norm(x)"),
    "parts summed as replicas": ("up.weight", "self.up("),
    "expert's gradient not averaged": ("experts", "self.experts[0]"),
    "biases not reduced": ("head.bias", "self.head("),
    "not divided by micro-batches": ("model.module.0.weight", "self.model(part)"),
}
"""Bugs of all kinds, each with a parameter whose gradient is wrong, and what the line has that reads it. `python
benchmarks/ranks.py bugs` captures all bugs."""


def world_of(program: Program, ranks: int = 2) -> Any:
    return bp.capture(program.model, *program.args, world=ranks, shard=program.shard)


def test_each_bug_has_a_name_and_says_what_is_wrong() -> None:
    assert len(BY_NAME) == len(BUGS) >= 40
    assert all(bug.wrong.endswith(".") for bug in BUGS)


@pytest.mark.parametrize("name", FEW)
def test_a_bug_is_caught_with_its_cause_and_its_line(name: str) -> None:
    bug, (parameter, code) = BY_NAME[name], FEW[name]
    whole = world_of(bug.program, bug.ranks).against_whole()
    assert whole.verdict == "not equal to the whole"
    assert not whole.ok
    [fault] = [fault for fault in whole.faults if fault.name == parameter]
    assert bug.cause
    assert fault.cause.startswith(bug.cause)
    assert fault.ranks == tuple(range(bug.ranks))
    assert fault.error > 0.01
    assert fault.source is not None
    assert fault.source.file.endswith("sharding_bugs.py")
    assert code in fault.source.code
    assert f"{parameter}'s gradient {bug.cause}" in str(whole)


@pytest.mark.parametrize("name", FEW)
def test_the_same_code_without_the_bug_is_equal_to_the_whole(name: str) -> None:
    bug = BY_NAME[name]
    whole = world_of(bug.twin, bug.ranks).against_whole()
    assert whole.verdict == "equal to the whole", whole
    assert whole.ok
    assert whole.faults == ()
    assert whole.error < 1e-12


def test_only_the_gradients_that_are_not_reduced_are_faults() -> None:
    whole = world_of(BY_NAME["biases not reduced"].program).against_whole()
    assert [fault.name for fault in whole.faults] == ["body.0.bias", "head.bias"]
    assert {fault.cause for fault in whole.faults} == {"lacks an average over world"}
    assert whole.compared == 4


def test_a_bug_whose_cause_is_not_known_is_caught() -> None:
    whole = world_of(BY_NAME["the same rows"].program).against_whole()
    assert whole.verdict == "not equal to the whole"
    assert {fault.cause for fault in whole.faults} == {""}
    assert "is another" in str(whole)


def test_the_whole_may_be_given() -> None:
    bug = BY_NAME["biases not reduced"]
    world = world_of(bug.program)
    assert world.against_whole(bug.twin.model).ok
    with pytest.raises(bp.errors.UsageError, match="the whole must be a module"):
        world.against_whole(lambda x: x)
    with pytest.raises(bp.errors.UsageError, match="the whole model is not known here"):
        replace(world, whole=None).against_whole()


# ---- Outputs that are one number


class Logged(nn.Module):
    """Returns its loss, and what it logs: a sum over the ranks that should be a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.model: nn.Module = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss = self.model(x).square().mean()
        logged = collectives.all_reduce(loss.detach(), "sum", dist.group.WORLD) if dist.is_initialized() else loss
        return loss, logged + 0, x.shape[0] * torch.ones(())


def logged(model: Logged, x: Tensor) -> tuple[Logged, tuple[Tensor]]:
    model.model = DistributedDataParallel(model.model)
    return model, (x.chunk(2)[dist.get_rank()],)


def test_a_loss_that_is_only_logged_wrong_is_said_and_no_fault() -> None:
    torch.manual_seed(0)
    whole = bp.capture(Logged(), torch.randn(6, 4), world=2, shard=logged).against_whole()
    assert whole.ok
    relations = {output.name: output.relation for output in whole.outputs}
    assert relations == {
        "output.0": "the mean of the ranks' is the whole's",
        "output.1": "",
        "output.2": "the sum of the ranks' is the whole's",
    }
    logged_text = str(whole).splitlines()[2].strip()
    _, number, _ = (output.whole for output in whole.outputs)
    assert logged_text == f"output.1: {2 * number:.6g} on the ranks, {number:.6g} in the whole"


# ---- Cannot tell


def own_rows_of(model: nn.Module, x: Tensor) -> Any:
    return model, (x.chunk(dist.get_world_size())[dist.get_rank()],)


def test_weights_that_shard_makes_anew_cannot_be_told() -> None:
    def shard(model: nn.Linear, x: Tensor) -> Any:
        return own_rows_of(nn.Linear(4, 4, dtype=x.dtype), x)

    whole = bp.capture(nn.Linear(4, 4), torch.randn(4, 4), world=2, shard=shard).against_whole()
    assert whole.verdict == "cannot tell"
    assert not whole.ok
    assert [name for name, _ in whole.unknown] == ["weight", "bias"]
    assert str(whole).startswith("cannot tell:\n  weight does not hold elements of the whole in rank 0")


def test_weights_that_shard_computes_cannot_be_told() -> None:
    def shard(model: nn.Linear, x: Tensor) -> Any:
        model.weight = nn.Parameter(model.weight.detach() / 3)
        return own_rows_of(model, x)

    whole = bp.capture(nn.Linear(4, 4, bias=False), torch.randn(4, 4), world=2, shard=shard).against_whole()
    assert whole.verdict == "cannot tell"


def test_without_gradients_it_cannot_be_told() -> None:
    model = nn.Linear(4, 4).requires_grad_(False)
    whole = bp.capture(model, torch.randn(4, 4), world=2, shard=own_rows_of).against_whole()
    assert (whole.verdict, whole.compared) == ("cannot tell", 0)
