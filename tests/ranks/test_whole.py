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
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.parallel import DistributedDataParallel

from face import OutputNumber, families_of

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


EQUAL_PARTS = {
    "ones": torch.ones(4, 4),
    "zeros": torch.zeros(4, 4),
    "one row": torch.arange(4.0).repeat(4, 1),
    "the same rows": torch.arange(8.0).view(2, 4).repeat(2, 1),
}


@pytest.mark.parametrize(
    ("name", "reduces"), [*((name, False) for name in EQUAL_PARTS), ("ones", True), ("the same rows", True)]
)
def test_data_on_which_a_missing_reduction_does_not_show_are_redrawn(name: str, reduces: bool) -> None:
    torch.manual_seed(0)
    shard = data_parallel if reduces else own_rows_of
    world = bp.capture(nn.Linear(4, 2), EQUAL_PARTS[name], world=2, shard=shard, loss=lambda y: y.square().mean())
    whole = world.against_whole()
    assert whole.ok is reduces, whole
    if reduces:
        assert "ranks 0, 1 have equal data" in whole.notes[0]


def test_equal_tokens_are_redrawn_from_those_there_are_and_without_others_nobody_can_tell() -> None:
    def words(tokens: Tensor) -> Any:
        loss = {"loss": lambda y: y.square().mean()}
        return bp.capture(nn.Embedding(5, 3), tokens, world=2, shard=own_rows_of, **loss).against_whole()

    torch.manual_seed(0)
    assert words(torch.tensor([1, 2, 4]).repeat(4, 1)).verdict == "not equal to the whole"
    assert words(torch.full((4, 3), 3)).verdict == "not equal to the whole"
    alike = words(torch.zeros(4, 3, dtype=torch.long))
    assert alike.verdict == "cannot tell"
    assert "pass inputs whose rows differ" in str(alike)


def test_a_part_that_no_rank_has_shows_although_all_parts_are_equal() -> None:
    def first_rows(model: nn.Module, x: Tensor) -> Any:
        return DistributedDataParallel(model), (x.chunk(2)[0],)

    torch.manual_seed(0)
    x = torch.arange(4.0).repeat(4, 1)
    world = bp.capture(nn.Linear(4, 2), x, world=2, shard=first_rows, loss=lambda y: y.square().mean())
    assert world.against_whole().verdict == "not equal to the whole"


class BiasBeforeSum(nn.Module):
    """Rows of a linear layer on each rank; every rank adds the bias before the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.bias = nn.Linear(4, 2, bias=False), nn.Parameter(torch.zeros(2))
        self.first: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.first is None:
            return self.rows(x) + self.bias
        part: Tensor = self.rows(x[:, self.first : self.first + 2]) + self.bias
        return Summed.apply(part)  # type: ignore[no-any-return, no-untyped-call]


def test_a_bias_of_zeros_does_not_hide_that_every_rank_adds_it() -> None:
    def shard(model: BiasBeforeSum, x: Tensor) -> None:
        model.first = 2 * dist.get_rank()
        model.rows.weight = nn.Parameter(model.rows.weight.detach().chunk(2, 1)[dist.get_rank()].clone())

    torch.manual_seed(0)
    loss = {"loss": lambda y: y.square().mean()}
    whole = bp.capture(BiasBeforeSum(), torch.randn(3, 4), world=2, shard=shard, **loss).against_whole()
    assert whole.verdict == "not equal to the whole"


def test_data_that_every_rank_has_whole_are_right_on_redrawn_data() -> None:
    world = bp.capture(ColumnsAndRows(), torch.ones(3, 4, requires_grad=True), world=2, shard=by_columns)
    whole = world.against_whole()
    assert whole.ok


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


def test_a_number_may_be_the_sum_or_the_mean_over_one_dimension() -> None:
    groups = {
        "tp": {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)},
        "dp": {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)},
    }
    assert OutputNumber("output", (1.0, 1.0, 2.0, 2.0), 3.0, groups).relation == "the sum over dp is the whole's"
    assert OutputNumber("output", (1.0, 3.0, 2.5, 1.5), 2.0, groups).relation == "the mean of the ranks' is the whole's"
    assert OutputNumber("output", (1.0, 2.0, 1.0, 2.0), 3.0, groups).relation == "the sum over tp is the whole's"
    assert OutputNumber("output", (1.0, 2.0, 4.0, 2.0), 3.0, groups).relation == ""


def test_groups_without_names_in_common_belong_together_by_their_order() -> None:
    def shard(model: nn.Linear, x: Tensor) -> tuple[nn.Linear, tuple[Tensor]]:
        for ranks in ((0, 1), (2, 3), (0, 2), (1, 3)):
            dist.new_group(ranks)
        return model, (x.chunk(2)[dist.get_rank() // 2],)

    whole = bp.capture(
        nn.Linear(4, 2), torch.randn(6, 4), world=4, shard=shard, loss=lambda y: y.mean()
    ).against_whole()
    assert {fault.cause for fault in whole.faults} == {"lacks an average over [0, 2], [1, 3]"}
    assert families_of({0: [(0, 1), (0,)], 1: [(0, 1)]}) == {}  # nobody knows which belong together


class WithTable(nn.Module):
    """Has a table that is computed where the module is made, in float32, and is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.table = torch.cos(torch.arange(4).float() * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return (self.linear(x) * self.table).square().mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_module_that_shard_makes_anew_has_the_tables_of_the_whole_and_parameters_in_float64(dtype: Any) -> None:
    def shard(model: WithTable, x: Tensor) -> WithTable:
        own = WithTable()
        own.table = own.table.to(dtype).float()
        with torch.no_grad():
            for parameter, wanted in zip(own.parameters(), model.parameters(), strict=True):
                parameter.copy_(wanted)
        return own

    whole = bp.capture(WithTable(), torch.randn(3, 4), world=2, shard=shard).against_whole()
    assert (whole.verdict, whole.error) == ("equal to the whole", 0)


class Bucketed(nn.Module):
    """Adds gradients to a buffer of its own in hooks, reduces that after the backward, and leaves parts of it as the
    gradients."""

    def __init__(self, module: nn.Module, divides: bool) -> None:
        super().__init__()
        self.module, self.divides, self.waits = module, divides, False
        self.buffer = torch.zeros(sum(parameter.numel() for parameter in module.parameters()))
        self.parts, self.nodes = [], []
        for parameter, part in zip(
            module.parameters(), self.buffer.split([p.numel() for p in module.parameters()]), strict=True
        ):
            node: Any = parameter.expand_as(parameter).grad_fn
            accumulate = node.next_functions[0][0]
            accumulate.register_hook(lambda *_, parameter=parameter, part=part: self.add(parameter, part))
            self.nodes.append(accumulate)
            self.parts.append((parameter, part))

    def add(self, parameter: nn.Parameter, part: Tensor) -> None:
        assert parameter.grad is not None
        part.view_as(parameter).add_(parameter.grad)
        parameter.grad = None
        if not self.waits:
            torch.autograd.Variable._execution_engine.queue_callback(self.reduce)
            self.waits = True

    def reduce(self) -> None:
        self.waits = False
        if self.divides:
            self.buffer /= dist.get_world_size()
        dist.all_reduce(self.buffer, async_op=True).wait()
        for parameter, part in self.parts:
            parameter.grad = part.view_as(parameter)

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)


@pytest.mark.parametrize("divides", [True, False])
def test_gradients_that_a_program_adds_to_a_buffer_of_its_own(divides: bool) -> None:
    def shard(model: nn.Module, x: Tensor) -> tuple[nn.Module, tuple[Tensor]]:
        return Bucketed(model, divides), (x.chunk(2)[dist.get_rank()],)

    world = bp.capture(nn.Linear(4, 2), torch.randn(6, 4), world=2, shard=shard, loss=lambda y: y.mean())
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert [capture.verify()[0].verdict for capture in world.ranks] == ["bitwise"] * 2
    whole = world.against_whole()
    assert whole.ok == divides
    causes = {fault.cause for fault in whole.faults}
    assert causes == (
        set() if divides else {"is 2 times the whole's: summed over world once too often, or not averaged"}
    )


class OfManyGroups(nn.Linear):
    """Sends over a group that has the same ranks as another, of which it makes no use."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        dist.all_reduce(y.detach(), group=self.group) if dist.is_initialized() and dist.get_world_size() > 1 else None
        return y.mean()


@pytest.mark.parametrize("is_sharded", [False, True])
def test_of_groups_of_the_same_ranks_the_cause_names_that_of_the_parameter_or_of_the_step(is_sharded: bool) -> None:
    def shard(model: OfManyGroups, x: Tensor) -> tuple[OfManyGroups, tuple[Tensor]]:
        ranks = (0, 1)
        groups = {name: dist.new_group(ranks, group_desc=f"mesh_{name}") for name in ("first", "used", "last")}
        model.group = groups["used"]
        if is_sharded:
            mesh = DeviceMesh.from_group(groups["last"], "cpu", mesh_dim_names=("last",))
            model.weight = nn.Parameter(DTensor.from_local(model.weight.detach(), mesh, [Replicate()]))
            model.forward = lambda x: nn.functional.linear(x, model.weight.to_local(), model.bias).mean()
        return model, (x.chunk(2)[dist.get_rank()],)

    whole = bp.capture(OfManyGroups(4, 2), torch.randn(6, 4), world=2, shard=shard).against_whole()
    causes = {fault.name: fault.cause for fault in whole.faults}
    assert causes["weight"] == f"lacks an average over {'last' if is_sharded else 'used'}"


def test_infinite_numbers_are_not_near_to_any() -> None:
    inf = float("inf")
    assert OutputNumber("output", (inf, inf), inf).relation == "the whole's on every rank"
    for ranks, whole in (
        ((inf, inf), 0.5),
        ((0.5, inf), 0.5),
        ((0.5, 0.5), inf),
        ((-inf, inf), 0.5),
        ((inf, 1.0), -inf),
    ):
        assert OutputNumber("output", ranks, whole).relation == "", (ranks, whole)
    assert str(OutputNumber("output", (0.5, inf), 0.5)) == "output: 0.5 to inf on the ranks, 0.5 in the whole"


class WithLogits(nn.Module):
    """Returns its loss and its logits, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.model: nn.Module = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logits = self.model(x)
        return {"logits": logits, "loss": logits.square().mean(), "largest": logits.max()}


def test_the_backward_begins_at_the_loss_and_says_so() -> None:
    torch.manual_seed(0)
    whole = bp.capture(WithLogits(), torch.randn(6, 4), world=2, shard=logged).against_whole()
    assert whole.ok, whole
    assert whole.notes == (
        "the backward begins at output.loss, and not at output.logits, output.largest: pass loss= to begin elsewhere",
    )
    of_sums = bp.capture(
        nn.Sequential(nn.Linear(4, 2)), torch.randn(6, 4), world=2, shard=data_parallel
    ).against_whole()
    assert of_sums.notes == ("the backward begins with ones at output: pass loss= if the step has a loss",)
    assert [fault.cause for fault in of_sums.faults] == [
        "is 1/2 of the whole's: averaged over world once too often, or not summed"
    ] * 2


def data_parallel(model: nn.Module, x: Tensor) -> tuple[nn.Module, tuple[Tensor]]:
    return DistributedDataParallel(model), (x.chunk(2)[dist.get_rank()],)


# ---- Inputs that require grad


class Copied(torch.autograd.Function):
    """Sums the gradient over the ranks that have copies of a tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return collectives.all_reduce(gradients[0], "sum", dist.group.WORLD) + 0


class Summed(torch.autograd.Function):
    """Sums a tensor over the ranks, whose gradient is the same in all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return collectives.all_reduce(x, "sum", dist.group.WORLD) + 0

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class ColumnsAndRows(nn.Module):
    """Two layers, the first sharded by columns and the second by rows."""

    def __init__(self, copies: bool = True) -> None:
        super().__init__()
        self.up, self.down, self.copies = nn.Linear(4, 6, bias=False), nn.Linear(6, 4, bias=False), copies

    def forward(self, x: Tensor) -> Tensor:
        if dist.is_initialized() and dist.get_world_size() > 1:
            y = self.down(self.up(Copied.apply(x) if self.copies else x).tanh())
            return Summed.apply(y).square().mean()
        return self.down(self.up(x).tanh()).square().mean()


def by_columns(model: ColumnsAndRows, x: Tensor) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    model.up.weight = nn.Parameter(model.up.weight.detach().chunk(size)[rank].clone())
    model.down.weight = nn.Parameter(model.down.weight.detach().chunk(size, 1)[rank].clone())


def test_the_gradient_of_an_input_is_compared() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4, requires_grad=True)
    right = bp.capture(ColumnsAndRows(), x, world=2, shard=by_columns).against_whole()
    assert (right.ok, right.compared, right.notes) == (True, 3, ()), right
    wrong = bp.capture(ColumnsAndRows(copies=False), x, world=2, shard=by_columns).against_whole()
    assert [(fault.name, fault.cause, fault.ranks) for fault in wrong.faults] == [
        ("x", "lacks a sum over world", (0, 1))
    ]
    assert wrong.compared == 3


class Nested(nn.Linear):
    """Takes inputs in a dictionary, further ones, and one by its name."""

    def __init__(self) -> None:
        super().__init__(4, 2, bias=False)

    def forward(self, batch: dict[str, Tensor], *more: Tensor, scale: Tensor) -> Tensor:
        loss: Tensor = (super().forward(batch["x"]) * scale).square().mean() + sum(m.square().sum() for m in more)
        return loss


def test_inputs_have_the_names_of_ports() -> None:
    torch.manual_seed(0)
    x, a, scale = (torch.randn(size, requires_grad=True) for size in ((3, 4), (3,), (2,)))
    world = bp.capture(Nested(), {"x": x}, a, a, scale=scale, world=2)
    assert world.against_whole().ok
    assert world.against_whole().compared == 5

    def scaled(model: nn.Module, batch: Any, *more: Tensor, scale: Tensor) -> Any:
        return model, (batch, more[0] * 2, more[1], more[1]), {"scale": scale}

    whole = bp.capture(Nested(), {"x": x}, a, a.detach().clone().requires_grad_(), scale=scale, world=2, shard=scaled)
    answer = whole.against_whole()
    assert answer.notes == ("the gradient of the input more.0 is not compared: `shard` passes another",)
    [fault] = answer.faults  # it is passed twice
    assert (fault.name, fault.cause.partition(":")[0]) == ("more.1", "is 2 times the whole's")
    assert answer.compared == 4


def test_ranks_with_rows_of_their_own_have_larger_gradients_of_them() -> None:
    torch.manual_seed(0)
    whole = bp.capture(Unbiased(), torch.randn(6, 4, requires_grad=True), world=2, shard=data_parallel).against_whole()
    assert whole.ok, whole
    assert whole.notes == ("the gradient of the input x is 2 times the whole's on every rank",)


class Unbiased(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).square().mean()


# ---- Cannot tell


class Cleared(nn.Module):
    """A step that clears its gradients at its end."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters())

    def forward(self, x: Tensor) -> Tensor:
        loss = self.model(x)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def test_a_step_that_clears_its_gradients_cannot_be_told() -> None:
    def clearing(model: nn.Module, x: Tensor) -> Any:
        return Cleared(DistributedDataParallel(model)), (x.chunk(2)[dist.get_rank()],)

    def unchanged(model: nn.Module, x: Tensor) -> None:
        """Shards nothing: the whole clears its gradients, too."""

    for model, shard in ((Unbiased(), clearing), (Cleared(Unbiased()), unchanged)):
        whole = bp.capture(model, torch.randn(6, 4), world=2, shard=shard).against_whole()
        assert whole.verdict == "cannot tell"
        assert "the step leaves no gradients: it clears them" in str(whole)


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
