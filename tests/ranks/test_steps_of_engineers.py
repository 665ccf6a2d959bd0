"""Steps as training engineers write them: with an optimizer, an average of the weights, gradients that only one rank
keeps, DDP over tensor parallel, NaN, dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import backprint as bp

if not dist.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

from subjects.sharded import MLP
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.distributed's own deprecations

PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


class Mean(nn.Module):
    """A layer with its loss."""

    def __init__(self, rows: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(8, rows)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).square().mean()


class Training(nn.Module):
    """Steps of an optimizer around a module that returns a loss; `last` is done at the end of each."""

    def __init__(self, module: nn.Module, last: Callable[[], object] = lambda: None, rate: float = 0.1) -> None:
        super().__init__()
        self.module, self.last = module, last
        self.optimizer = torch.optim.SGD(module.parameters(), lr=rate)

    def forward(self, x: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.module(x)
        loss.backward()
        self.optimizer.step()
        self.last()
        return loss.detach()


def own_rows(x: Tensor) -> tuple[Tensor]:
    return (x.chunk(dist.get_world_size())[dist.get_rank()],)


def world_of(model: nn.Module, shard: Any, size: int = 2) -> bp.World:
    return bp.capture(model, torch.randn(8, 8), world=size, shard=shard)


def verdicts(world: bp.World) -> list[str]:
    return [verdict.verdict for verdict in world.verify()]


def test_parameters_that_rows_do_not_divide_with_an_optimizer(tmp_path: Any) -> None:
    def shard(model: Mean, x: Tensor) -> Any:
        fully_shard(model.layer)
        return Training(model), own_rows(x)

    world = world_of(Mean(3), shard)
    assert verdicts(world) == ["bitwise"] * 2
    world.save(tmp_path / "world")
    assert verdicts(bp.load_world(tmp_path / "world")) == ["bitwise"] * 2


def test_state_of_a_program_that_is_no_parameter_and_no_buffer() -> None:
    class Momentum(nn.Module):
        def __init__(self, module: Mean) -> None:
            super().__init__()
            self.module, self.momentum = module, {n: torch.zeros_like(p) for n, p in module.named_parameters()}

        def forward(self, x: Tensor) -> Tensor:
            self.module.zero_grad()
            loss = self.module(x)
            loss.backward()
            with torch.no_grad():
                for name, parameter in self.module.named_parameters():
                    assert parameter.grad is not None
                    dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
                    parameter -= 0.1 * self.momentum[name].mul_(0.9).add_(parameter.grad)
            return loss.detach()

    world = world_of(Mean(), lambda model, x: (Momentum(model), own_rows(x)))
    assert verdicts(world) == ["bitwise"] * 2
    assert "momentum.layer.weight" in world.outcomes[0].mutations


def test_an_average_of_the_weights_is_a_copy_without_a_gradient() -> None:
    def shard(model: Mean, x: Tensor) -> Any:
        average = AveragedModel(model)
        step = Training(DistributedDataParallel(model), lambda: average.update_parameters(model))
        step.average = average
        return step, own_rows(x)

    world = world_of(Mean(), shard)
    assert verdicts(world) == ["bitwise"] * 2
    whole = world.against_whole()
    assert (whole.verdict, whole.compared) == ("equal to the whole", 2)
    assert any("average.module.layer.weight is a copy of a parameter" in note for note in whole.notes)


def test_gradients_that_only_their_owner_keeps_cannot_be_told() -> None:
    class Owned(nn.Module):
        def __init__(self, module: Mean) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Tensor:
            loss = self.module(x)
            loss.backward()
            for owner, parameter in enumerate(self.module.parameters()):
                assert parameter.grad is not None
                dist.reduce(parameter.grad, owner, dist.ReduceOp.AVG)
                if owner != dist.get_rank():
                    parameter.grad = None
            return loss.detach()

    whole = world_of(Mean(), lambda model, x: (Owned(model), own_rows(x))).against_whole()
    assert whole.verdict == "cannot tell"
    assert dict(whole.unknown) == {
        "module.layer.weight": "has no gradient on rank 1: the step has cleared it",
        "module.layer.bias": "has no gradient on rank 0: the step has cleared it",
    }


def test_ddp_of_a_model_in_tensor_parallel() -> None:
    def shard(model: MLP, x: Tensor) -> Any:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], PLAN)
        return DistributedDataParallel(model, device_mesh=mesh["dp"]), (x.chunk(2)[mesh.get_local_rank("dp")],)

    world = bp.capture(MLP(), torch.randn(4, 8), world=4, shard=shard, loss=lambda y: y.square().mean())
    assert verdicts(world) == ["bitwise"] * 4
    assert world.against_whole().verdict == "equal to the whole"


def test_a_sum_for_a_mean_names_the_dimension_that_the_backward_reduces_over() -> None:
    def shard(model: MLP, x: Tensor) -> Any:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], PLAN)
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda own: dist.all_reduce(own.grad.to_local(), group=mesh.get_group("dp")) and None
            )
        return model, (x.chunk(2)[mesh.get_local_rank("dp")],)

    world = bp.capture(MLP(), torch.randn(4, 8), world=4, shard=shard, loss=lambda y: y.square().mean())
    causes = {fault.cause for fault in world.against_whole().faults}
    assert causes == {"is 2 times the whole's: summed over dp once too often, or not averaged"}


class Doubled(torch.autograd.Function):
    """All-reduces the gradient of an input that is whole on every rank already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


def test_a_doubled_gradient_of_an_input_that_each_rank_has_whole_is_a_fault() -> None:
    class Stage(Mean):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(Doubled.apply(x) if dist.is_initialized() and dist.get_world_size() > 1 else x)

    [fault] = bp.capture(Stage(), torch.randn(4, 8, requires_grad=True), world=2).against_whole().faults
    assert (fault.name, fault.cause.partition(":")[0]) == ("x", "is 2 times the whole's")


class Adapted(nn.Module):
    """A layer with an adapter whose second matrix is 0, as it is at the begin of a training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.first, self.second = nn.Linear(8, 4), nn.Linear(8, 2), nn.Linear(2, 4)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        return (self.layer(x) + self.second(self.first(x))).square().mean()


def test_an_adapter_of_zeros_does_not_hide_a_missing_reduction() -> None:
    """Its gradients are 0 with the weights of the program, and its parameters are redrawn."""

    def averaged(model: nn.Module, x: Tensor) -> Any:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda own: dist.all_reduce(own.grad, dist.ReduceOp.AVG) and None
            )
        return model, own_rows(x)

    def shard(model: nn.Module, x: Tensor) -> Any:
        for name, parameter in model.named_parameters():
            if not name.startswith("first"):  # whose gradients nothing averages
                parameter.register_post_accumulate_grad_hook(
                    lambda own: dist.all_reduce(own.grad, dist.ReduceOp.AVG) and None
                )
        return model, own_rows(x)

    whole = world_of(Adapted(), averaged).against_whole()
    assert (whole.verdict, whole.compared) == ("equal to the whole", 6)
    faults = world_of(Adapted(), shard).against_whole().faults
    assert {(fault.name, fault.cause.partition(" (")[0]) for fault in faults} == {
        ("first.weight", "lacks an average over world"),
        ("first.bias", "lacks an average over world"),
    }


def test_gradients_that_are_zero_everywhere_say_nothing_of_a_reduction() -> None:
    class Nothing(Mean):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 0

    assert world_of(Nothing(), lambda model, x: (model, own_rows(x))).against_whole().verdict == "cannot tell"


@pytest.mark.parametrize("operation", ["SUM", "AVG", "MAX"])
def test_a_nan_goes_through_a_collective_and_its_origin_is_known(operation: str) -> None:
    class Kinked(Mean):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + (self.layer.bias * 0).square().sum().sqrt()

    def shard(model: nn.Module, x: Tensor) -> Any:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda own: dist.all_reduce(own.grad, getattr(dist.ReduceOp, operation)) and None
            )
        return model, own_rows(x)

    world = world_of(Kinked(), shard)
    for verdict in world.verify():
        assert verdict.verdict == "bitwise"
        assert "(sqrt)" in verdict.nonfinite
    whole = world.against_whole()
    assert whole.verdict == ("cannot tell" if operation == "AVG" else "not equal to the whole")
    assert ("layer.bias", "has NaN or Inf in its gradient in the whole") in whole.unknown


def test_of_a_step_that_draws_random_numbers_nothing_can_be_told_in_training() -> None:
    def shard(model: nn.Module, x: Tensor) -> Any:
        return DistributedDataParallel(model), own_rows(x)

    model = nn.Sequential(nn.Dropout(0.5), Mean())
    whole = bp.capture(model, torch.randn(8, 8), world=2, shard=shard, mode="train").against_whole()
    assert whole.verdict == "cannot tell"
    assert "mode='eval'" in str(whole)
    assert bp.capture(model, torch.randn(8, 8), world=2, shard=shard, mode="eval").against_whole().ok

    class Attention(Mean):  # an operator that may draw, and does not here
        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)[:, None]
            return nn.functional.scaled_dot_product_attention(y, y, y).square().mean()

    assert (
        world_of(Attention(), lambda model, x: (model, own_rows(x))).against_whole().verdict == "not equal to the whole"
    )


def test_the_folders_of_several_worlds_are_named(tmp_path: Any) -> None:
    world = world_of(Mean(), lambda model, x: (model, own_rows(x)))
    for step in (0, 1):
        world.save(tmp_path / f"step_{step}")
    with pytest.raises(bp.errors.SampleError, match=r"step_0, .*step_1 is one"):
        bp.load_world(tmp_path)


# ---- Micro-batches: gradients are reduced after the last


class Accumulating(nn.Module):
    """Two micro-batches: gradients are reduced, and weights sharded again, as `switches` say, after the last."""

    def __init__(self, switches: tuple[str, ...], reduces: bool = True) -> None:
        super().__init__()
        self.model, self.switches, self.reduces = MLP(), switches, reduces

    def forward(self, x: Tensor) -> Tensor:
        total = x.new_zeros(())
        for part, is_last in zip(x.chunk(2), (False, self.reduces), strict=True):
            for switch in self.switches:
                getattr(self.model, switch)(is_last)
            loss = self.model(part).square().mean() / 2
            loss.backward()
            total = total + loss.detach()
        return total


def fully_sharded(step: Accumulating, x: Tensor) -> Any:
    fully_shard(step.model.up)
    fully_shard(step.model)
    return step, own_rows(x)


SYNC, RESHARD = "set_requires_gradient_sync", "set_reshard_after_backward"


@pytest.mark.parametrize(("switches", "gathers"), [((SYNC,), 6), ((RESHARD,), 4), ((SYNC, RESHARD), 4)])
def test_micro_batches_of_fsdp_are_those_of_the_whole(switches: tuple[str, ...], gathers: int) -> None:
    world = bp.capture(Accumulating(switches), torch.randn(8, 8), world=2, shard=fully_sharded)
    [pair] = world.ranks[0].pairs
    calls = [step.target for step in pair.forward.steps]
    assert calls.count("torch.ops._c10d_functional.all_gather_into_tensor.default") == gathers
    reductions = calls.count("torch.ops._c10d_functional.reduce_scatter_tensor.default")
    assert reductions == (2 if SYNC in switches else 4)
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert world.against_whole().verdict == "equal to the whole", str(world.against_whole())


def test_a_step_of_fsdp_that_leaves_its_weights_gathered_begins_sharded_each_time() -> None:
    def shard(model: Any, x: Tensor) -> Any:
        fully_shard(model.up)
        fully_shard(model)
        model.set_reshard_after_backward(False)
        return model, own_rows(x)

    world = bp.capture(MLP(), torch.randn(4, 8), world=2, shard=shard, loss="mean")
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert world.against_whole().verdict == "equal to the whole"


@pytest.mark.parametrize("when", ["before", "in the step"])
@pytest.mark.parametrize("switch", [SYNC, "set_requires_all_reduce"])
def test_gradients_that_fsdp_keeps_to_itself_are_refused(switch: str, when: str) -> None:
    def shard(step: Accumulating, x: Tensor) -> Any:
        fully_sharded(step, x)
        if when == "before":
            getattr(step.model, switch)(False)
        return step, own_rows(x)

    step = Accumulating((switch,) if when != "before" else (), reduces=False)
    with pytest.raises(bp.errors.CaptureError, match=rf"keeps the gradients of FSDPMLP to itself.*\({switch}\(False\)"):
        bp.capture(step, torch.randn(8, 8), world=2, shard=shard)


# ---- A rank alone


def needs_others() -> tuple[nn.Module, tuple[Tensor]]:
    return DistributedDataParallel(MLP()), (torch.ones(2, 8),)


def test_a_rank_without_the_others_is_told_how_it_is_captured() -> None:
    def reduced(x: Tensor) -> Tensor:
        dist.all_reduce(x)
        return x

    what = r"the program is one of several ranks \(.+\): .*world=2 \(--world 2\), or run it under torchrun"
    with pytest.raises(bp.errors.UsageError, match=what):
        bp.capture(reduced, torch.ones(2))
    with pytest.raises(bp.errors.UsageError, match=what):
        bp.capture(f"{__file__}:needs_others")
    assert [verdict.verdict for verdict in bp.capture(f"{__file__}:needs_others", world=2).verify()] == ["bitwise"] * 2


# ---- Tensors that are no parameters


class WithTable(MLP):
    """Its table is a plain attribute, so `double()` leaves it in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.randn(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.layer_norm(super().forward(x) @ self.table, (8,), self.table[0])
        return (y * self.table[1]).square().mean()


@pytest.mark.parametrize("is_right", [True, False])
def test_a_table_that_is_a_plain_attribute_is_compared_in_double(is_right: bool) -> None:
    def shard(model: Any, x: Tensor) -> Any:
        if is_right:
            fully_shard(model)
        return model, own_rows(x)

    whole = bp.capture(WithTable(), torch.randn(4, 8), world=2, shard=shard).against_whole()
    assert whole.verdict == ("equal to the whole" if is_right else "not equal to the whole"), str(whole)
