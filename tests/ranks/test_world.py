"""All ranks of a step in one process: captured, proved together, kept, and read again without a process group."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import backprint as bp
from face import CaptureError, RanksError

if not dist.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

from subjects import sharded
from subjects.sharded import MLP, Program, programs

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.distributed's own deprecations

PROGRAMS = programs(2)

FEW = ("tensor parallel", "FSDP2", "DDP with unused parameters", "mixture of experts", "all-to-all of its own")
"""What every run of the suite captures; the rest are variations of these."""


def world_of(program: Program, size: int = 2) -> Any:
    return bp.capture(program.model, *program.args, world=size, shard=program.shard)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name in FEW])
def test_every_rank_is_bitwise_together_alone_and_equal_to_the_whole(name: str) -> None:
    world = world_of(PROGRAMS[name])
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert all(capture.verify()[0].verdict == "bitwise" for capture in world.ranks)
    whole = world.against_whole()
    assert whole.verdict == "equal to the whole", whole
    assert whole.error < 1e-12


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in FEW])
def test_every_other_program_is_bitwise_and_equal_to_the_whole(name: str) -> None:
    world = world_of(PROGRAMS[name])
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert world.against_whole().ok


def test_a_mesh_of_two_dimensions_names_both() -> None:
    world = world_of(PROGRAMS["tensor parallel"], 4)
    assert [dict(capture.rank.groups) for capture in world.ranks] == [{"tp": (0, 1)}] * 2 + [{"tp": (2, 3)}] * 2
    text = str(world.ranks[0].pairs[0].forward)
    assert "f32[16, 8] of [32, 8] on tp: Shard(0) parameter up.weight" in text
    assert "torch.ops._c10d_functional.all_reduce.default(addmm_1, 'sum', 'tp')" in text
    assert "tp: [0, 1], [2, 3]" in str(world)


def test_ranks_whose_inputs_lie_elsewhere_make_the_same_calls() -> None:
    def shard(model: nn.Module, x: Tensor) -> tuple[nn.Module, tuple[Tensor]]:
        return model, (x[3 * dist.get_rank() :][:3],)

    text = str(bp.capture(nn.Linear(3, 1), torch.randn(6, 3), world=2, shard=shard))
    assert "2 different pairs of graphs" in text
    assert "ranks 0 and 1 make the same calls; in the forward one has f32[3, 3] input input, the other" in text
    assert "the other f32[3, 3] offset=9 input input" in text


def test_a_sample_of_a_rank_runs_alone_in_a_process_without_process_groups(tmp_path: Path) -> None:
    world = world_of(PROGRAMS["all-to-all of its own"])
    world.save(tmp_path / "world")
    code = (
        "import sys, backprint as bp\n"
        "world = bp.load_world(sys.argv[1])\n"
        "print([v.verdict for v in world.verify()], [c.verify()[0].verdict for c in world.ranks])\n"
        "import torch; print(torch.distributed.is_initialized())"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "world")], capture_output=True, text=True)
    assert run.stdout.split("\n")[:2] == ["['bitwise', 'bitwise'] ['bitwise', 'bitwise']", "False"], run.stderr
    model = tmp_path / "world" / "rank_1" / "pair_0" / "backward" / "model.py"
    alone = subprocess.run([sys.executable, str(model)], capture_output=True, text=True)
    kept = bp.load(tmp_path / "world" / "rank_1").witness or {}
    gradients = {key: row for key, row in kept.items() if key.startswith("gradient")}
    assert len(gradients) == 4
    for key, row in gradients.items():
        assert f"{key} float32{row['shape']} {row['digest']}" in alone.stdout, alone.stderr


def test_verify_misses_a_rank_that_is_not_there(tmp_path: Path) -> None:
    folder = world_of(PROGRAMS["tensor parallel"]).save(tmp_path / "world")
    command = [sys.executable, "-m", "backprint", "verify", str(folder)]
    (folder / "rank_1").rename(tmp_path / "rank_1")
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "1 checked: 1 bitwise" in run.stdout
    assert f"{folder}: its world.json names 2 ranks, and these are not there: rank_1" in " ".join(run.stderr.split())


def test_a_sample_kept_by_seeds_is_verified_alone_and_not_together(tmp_path: Path) -> None:
    world = world_of(PROGRAMS["all-to-all of its own"])
    world.save(tmp_path / "world", data="seed")
    loaded = bp.load_world(tmp_path / "world")
    assert loaded.ranks[1].verify()[0].verdict == "bitwise"
    with pytest.raises(bp.errors.UsageError, match="data='exact'"):
        loaded.verify()
    with pytest.raises(bp.errors.UsageError, match="exists already"):
        world.save(tmp_path / "world")
    with pytest.raises(bp.errors.SampleError, match="not the folder of a World"):
        bp.load_world(tmp_path / "world" / "rank_0")


def test_a_graph_whose_collective_sends_another_value_is_wrong_together() -> None:
    from dataclasses import replace

    world = world_of(PROGRAMS["tensor parallel"])
    [pair] = world.ranks[1].pairs
    halved = [
        replace(step, args=(*step.args[:1], 3)) if step.target == "aten.div.Tensor" else step
        for step in pair.forward.steps
    ]
    forward = replace(pair.forward, steps=tuple(halved))
    assert forward != pair.forward
    from face import Pair

    changed = replace(world.ranks[1], pairs=(Pair(pair.name, forward, pair.backward),))
    verdicts = replace(world, ranks=(world.ranks[0], changed)).verify()
    assert [verdict.verdict for verdict in verdicts] == ["wrong", "wrong"]


@pytest.mark.parametrize("side", ["forward", "backward"])
def test_a_false_annotation_is_found_where_peers_answer(side: str, tmp_path: Path) -> None:
    from dataclasses import replace

    from face import Pair

    world_of(PROGRAMS["tensor parallel"]).save(tmp_path / "world")
    loaded = bp.load(tmp_path / "world" / "rank_1")
    assert loaded.peers is not None
    [pair] = loaded.pairs
    graph = getattr(pair, side)
    product = next(step for step in graph.steps if step.target in ("aten.mm.default", "aten.addmm.default"))
    false = replace(product, spec=replace(product.spec, dtype="float64"))
    steps = tuple(false if step is product else step for step in graph.steps)
    graphs = {"forward": pair.forward, "backward": pair.backward, side: replace(graph, steps=steps)}
    [verdict] = replace(loaded, pairs=(Pair(pair.name, **graphs),)).verify(("recipe",))
    assert verdict.verdict == "wrong"
    assert f"step {product.name}: recipe inputs: annotated f64" in verdict.detail


# ---- Ranks that do not fit each other


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return self.meet(y) if hasattr(self, "meet") else y


def reduced(y: Tensor) -> Tensor:
    dist.all_reduce(y)
    return y * 2


def test_a_collective_in_place_is_a_step_and_a_value() -> None:
    def shard(model: Any, x: Tensor) -> None:
        model.meet = reduced

    world = bp.capture(Plain(), torch.randn(2, 4), world=2, shard=shard)
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise", "bitwise"]
    [step] = [step for step in world.ranks[0].pairs[0].forward.steps if "all_reduce" in step.target]
    assert step.args[-2:] == ("sum", "world")
    assert world.ranks[0].requires == ()


def test_a_collective_that_is_read_before_its_wait_is_refused() -> None:
    def unwaited(y: Tensor) -> Tensor:
        return torch.ops._c10d_functional.all_reduce(y, "sum", dist.group.WORLD.group_name) * 2

    def shard(model: Any, x: Tensor) -> None:
        model.meet = unwaited

    with pytest.raises(bp.errors.CaptureError, match=r"reads the result of a collective before it has ended at .*2"):
        bp.capture(Plain(), torch.randn(2, 4), world=2, shard=shard)


def read_early(received: Tensor, work: Any) -> Tensor:
    early = received * 2
    work.wait()
    return early


def written_early(received: Tensor, work: Any) -> Tensor:
    received.zero_()
    work.wait()
    return received


def read_late(received: Tensor, work: Any) -> Tensor:
    like = torch.empty_like(received).zero_()
    work.wait()
    return received.view(-1) + like


def read_by_future(received: Tensor, work: Any) -> Tensor:
    work.get_future().wait()
    return received * 2


def polled(received: Tensor, work: Any) -> Tensor:
    while not work.is_completed():
        pass
    return received * 2


@pytest.mark.parametrize("use", [read_early, written_early, read_late, read_by_future, polled])
def test_a_collective_in_place_that_is_used_before_it_has_ended_is_refused(use: Any) -> None:
    class Reducing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            flat = torch.cat([x, x])
            work = dist.all_reduce(flat[:3], async_op=True)
            other = flat[3:] * 2  # which the collective does not write
            return (super().forward(x) * use(flat[:3], work) * other).sum()

    def captured() -> Any:
        return bp.capture(Reducing(3, 3), torch.randn(3), world=2)

    if use in (read_early, written_early):
        with pytest.raises(CaptureError, match=r"aten.(mul.Tensor|zero_.default).*_early.* uses what allreduce_ at "):
            captured()
    else:
        assert [verdict.verdict for verdict in captured().verify()] == ["bitwise"] * 2


def test_groups_that_a_step_makes_are_made_again_in_each_run() -> None:
    class Grouping(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if not hasattr(self, "group"):
                self.group = dist.new_group([0, 1])
            other = dist.new_group([0, 1])
            dist.all_reduce(total := x.clone(), group=self.group)
            dist.all_reduce(largest := x.clone(), dist.ReduceOp.MAX, group=other)
            return (super().forward(x) * total * largest).sum()

    world = bp.capture(Grouping(3, 3), torch.randn(3), world=2)
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert [verdict.verdict for capture in world.ranks for verdict in capture.verify()] == ["bitwise"] * 2
    assert "'ranks 0,1')" in world.rank(0).pairs[0].forward.code
    assert "'ranks 0,1 (2)')" in world.rank(0).pairs[0].forward.code


def test_objects_are_exchanged_before_the_step() -> None:
    class Logging(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            dist.all_gather_object([None, None], {"rank": dist.get_rank()})
            return super().forward(x).sum()

    with pytest.raises(CaptureError, match=r"objects are exchanged at test_world.py:\d+ in forward.*in `shard`"):
        bp.capture(Logging(3, 3), torch.randn(3), world=2)


def test_the_source_of_a_broadcast_reads_what_it_sends() -> None:
    class Sending(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            work = dist.broadcast(y := x.clone(), 0, async_op=True)
            early = y * 2 if dist.get_rank() == 0 else x
            work.wait()
            return (super().forward(x) * early * y).sum()

    assert [verdict.verdict for verdict in bp.capture(Sending(3, 3), torch.randn(3), world=2).verify()] == [
        "bitwise"
    ] * 2


def test_ranks_that_call_other_collectives_are_refused_by_name() -> None:
    def shard(model: Any, x: Tensor) -> None:
        other = dist.get_rank() == 1
        model.meet = (lambda y: dist.broadcast(y, 0) or y) if other else reduced

    with pytest.raises(bp.errors.RanksError, match="do not call the same collective: member 0 calls all_reduce"):
        bp.capture(Plain(), torch.randn(2, 4), world=2, shard=shard)


def test_ranks_that_wait_for_one_that_has_ended_are_refused_by_name() -> None:
    def shard(model: Any, x: Tensor) -> None:
        if dist.get_rank() == 0:
            model.meet = reduced

    with pytest.raises(bp.errors.RanksError, match=r"rank 0 waits in all_reduce.*rank 1 has ended"):
        bp.capture(Plain(), torch.randn(2, 4), world=2, shard=shard)


def test_backward_of_a_rank_runs_in_its_thread() -> None:
    class Square(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if torch.autograd.is_multithreading_enabled():  # for devices that are no CPU
                raise ValueError("backward may run in another thread")
            return super().forward(x).square().sum()

    world = bp.capture(Square(3, 3), torch.randn(3), world=2)
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert torch.autograd.is_multithreading_enabled()
    with pytest.raises(ValueError, match="backward may run in another thread"):
        bp.capture(Square(3, 3), torch.randn(3))


def test_a_rank_that_raises_ends_the_others_with_its_cause() -> None:
    def shard(model: Any, x: Tensor) -> None:
        def fails(y: Tensor) -> Tensor:
            raise ValueError("not on this rank")

        model.meet = fails if dist.get_rank() == 1 else reduced

    with pytest.raises(bp.errors.RanksError, match="rank 1 raised ValueError: not on this rank"):
        bp.capture(Plain(), torch.randn(2, 4), world=2, shard=shard)
    assert not dist.is_initialized()


def test_a_mesh_that_does_not_fit_the_world_is_pytorchs_own_error() -> None:
    def shard(model: Any, x: Tensor) -> None:
        sharded.init_device_mesh("cpu", (3, 2), mesh_dim_names=("dp", "tp"))

    with pytest.raises(bp.errors.RanksError, match="rank 0 raised RuntimeError"):
        bp.capture(Plain(), torch.randn(2, 4), world=4, shard=shard)


def test_uneven_shards_are_captured() -> None:
    def shard(model: Any, x: Tensor) -> Any:
        sharded.fully_shard(model, mesh=sharded.init_device_mesh("cpu", (3,), mesh_dim_names=("dp",)))
        return model, (x.chunk(3)[dist.get_rank()],)

    world = bp.capture(Plain(), torch.randn(3, 4), world=3, shard=shard)
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 3
    assert "f32[2, 4] of [4, 4] on dp: Shard(0) parameter linear.weight" in str(world.ranks[0].pairs[0].forward)
    assert "f32[0, 4] of [4, 4] on dp: Shard(0) parameter linear.weight" in str(world.ranks[2].pairs[0].forward)


def premultiplied(factor: Any) -> Any:
    """The reduction that multiplies by a number before it sums, as FSDP2 takes it."""
    make = getattr(dist, "_make_nccl_premul_sum", None)  # before torch 2.13, where NCCL is there
    return make(factor) if make is not None else dist.ReduceOp.PREMUL_SUM(factor)  # type: ignore[operator]  # an enum's member


try:
    premultiplied(0.5)
    NO_PREMUL = ""
except TypeError:
    NO_PREMUL = "this build of torch makes no PREMUL_SUM, as it has no NCCL"


@pytest.mark.skipif(bool(NO_PREMUL), reason=NO_PREMUL)
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_gradients_that_fsdp_divides_by_a_number_of_the_program(factor: float) -> None:
    def shard(model: nn.Module, x: Tensor) -> tuple[nn.Module, tuple[Tensor]]:
        fully_shard(model)
        model.set_gradient_divide_factor(factor)  # type: ignore[operator]  # which fully_shard gives it
        return model, (x.chunk(2)[dist.get_rank()],)

    world = bp.capture(MLP(), torch.randn(4, 8), world=2, shard=shard, loss=lambda y: y.sum() / 4)
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert all(capture.verify()[0].verdict == "bitwise" for capture in world.ranks)
    backward = str(world.ranks[0].pairs[0].backward)
    assert re.search(rf'\bmul: "f32\[552\]" = aten.mul.Tensor\(\w+, {1 / factor!r}\)', backward)
    assert "torch.ops._c10d_functional.reduce_scatter_tensor.default(mul, 'sum', 2, 'world')" in backward
    whole = world.against_whole()
    assert whole.ok == (factor == 1)
    assert all(fault.cause == "is 0.333333 times the whole's" for fault in whole.faults)


@pytest.mark.skipif(bool(NO_PREMUL), reason=NO_PREMUL)
def test_a_reduction_that_multiplies_by_a_tensor_is_refused() -> None:
    class Reduced(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            dist.all_reduce(y.detach(), op=premultiplied(torch.tensor(0.5)))
            return y.sum()

    with pytest.raises(CaptureError, match="PREMUL_SUM, which scales by a tensor as it sums"):
        bp.capture(Reduced(3, 3), torch.randn(2, 3), world=2)


def test_a_group_of_a_backend_that_reaches_nobody_here_is_made_all_the_same() -> None:
    class Reduced(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            dist.all_reduce(y.detach(), group=self.group)
            return y.sum()

    def shard(model: Any, x: Tensor) -> None:
        model.group = dist.new_group([0, 1], backend="gloo", timeout=timedelta(seconds=9), group_desc="of_gloo")

    world = bp.capture(Reduced(3, 3), torch.randn(2, 3), world=2, shard=shard)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # and is a real one again
    try:
        assert dist.get_backend() == dist.get_backend(dist.new_group([0], backend="gloo")) == "gloo"
    finally:
        dist.destroy_process_group()
    assert world.ranks[0].rank.groups == (("of_gloo", (0, 1)),)
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2


def test_what_shard_and_world_may_be() -> None:
    x = torch.randn(2, 4)
    with pytest.raises(bp.errors.UsageError, match="world='2' is not a number of ranks"):
        bp.capture(Plain(), x, world="2")  # type: ignore[call-overload]  # which is refused
    with pytest.raises(bp.errors.UsageError, match="say how many with world=4"):
        bp.capture(Plain(), x, shard=lambda model, x: None)  # type: ignore[call-overload]  # which is refused
    with pytest.raises(bp.errors.UsageError, match="shard returned a int"):
        bp.capture(Plain(), x, world=1, shard=lambda model, x: 3)
    with pytest.raises(bp.errors.UsageError, match=r"only engine 'eager' \(or 'aot'\) captures that"):
        bp.capture(Plain(), x, world=1, engine="dynamo")


def test_the_callers_model_random_state_and_process_groups_are_as_before() -> None:
    model, x = MLP(), torch.randn(4, 8)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state, hook = torch.get_rng_state(), sys.excepthook
    bp.capture(model, x, world=2, shard=sharded.tensor_parallel)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert sys.excepthook is hook
    assert not dist.is_initialized()
    assert all(parameter.grad is None for parameter in model.parameters())


class Step(nn.Module):
    """A whole training step: its backward, its clipping and its optimizer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.optimizer = model, torch.optim.AdamW(model.parameters())

    def forward(self, x: Tensor) -> Tensor:
        loss = self.model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


@pytest.mark.parametrize("name", ["tensor parallel", "DDP with unused parameters"])
def test_a_step_with_its_optimizer_is_bitwise(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]

    def shard(model: Any, *args: Any) -> Any:
        made = program.shard(model, *args)
        model, args = made if isinstance(made, tuple) else (model, args)
        return Step(model), args

    world = bp.capture(program.model, *program.args, world=2, shard=shard)
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    mutated = [port.name for port in world.ranks[0].pairs[0].forward.outputs if port.role == "mutation"]
    assert any(name.endswith("exp_avg_sq") for name in mutated)
    world.save(tmp_path / "world")
    assert [verdict.verdict for verdict in bp.load_world(tmp_path / "world").verify()] == ["bitwise"] * 2


def test_engine_aot_traces_ranks_and_proves_them_with_values(tmp_path: Path) -> None:
    program = programs(2)["tensor parallel"]
    world = bp.capture(program.model, *program.args, world=2, shard=program.shard, engine="aot")
    assert {capture.engine for capture in world.ranks} == {"aot"}
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert [capture.verify()[0].verdict for capture in world.ranks] == ["bitwise"] * 2
    assert world.against_whole().verdict == "equal to the whole"
    world.save(tmp_path / "world")
    assert [verdict.verdict for verdict in bp.load_world(tmp_path / "world").verify()] == ["bitwise"] * 2


def test_engine_aot_says_why_it_reads_no_values() -> None:
    class Counting(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            dist.all_reduce(total := x.clone())
            return super().forward(total)[: int((x > 0).sum())].sum()

    with pytest.raises(
        CaptureError, match=r"reads values.*engine 'aot' traces a rank without values.*'eager' captures"
    ):
        bp.capture(Counting(3, 3), torch.ones(2, 3), world=2, engine="aot")


def test_engine_aot_refuses_what_it_writes_in_another_order() -> None:
    from torch.distributed import _functional_collectives as collectives

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
            ctx.save_for_backward(scale)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            (scale,) = ctx.saved_tensors
            total = collectives.all_reduce(scale * 5, "sum", dist.group.WORLD)
            return collectives.all_reduce(gradient, "sum", dist.group.WORLD) * total, None

    def scaled(x: Tensor) -> Tensor:
        total = collectives.all_reduce(
            Scaled.apply(x, torch.full((2,), 1.0 + dist.get_rank())), "sum", dist.group.WORLD
        )
        return (total * total).sum()

    x = torch.ones(2, requires_grad=True)
    assert [verdict.verdict for verdict in bp.capture(scaled, x, world=2).verify()] == ["bitwise"] * 2
    with pytest.raises(CaptureError, match=r"engine 'eager' captures the rank as it ran"):
        bp.capture(scaled, x, world=2, engine="aot")


RECORDED = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(4, 4)
if {sharded}:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    parallelize_module(model, init_device_mesh("cpu", (1,)), ColwiseParallel())
else:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("is_sharded", [True, False])
def test_a_step_is_recorded_where_a_process_is_the_only_one(is_sharded: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RECORDED.format(sharded=is_sharded), "utf-8")
    told: list[str] = []
    [step] = bp.record(tmp_path / "train.py", steps=(2, 3), tell=told.append)
    assert told == []
    assert [verdict.verdict for verdict in step.verify()][-1] == "bitwise"
    assert step.rank is not None
    assert step.rank.size == 1
    shards = [port.shard for port in step.pairs[0].forward.inputs if port.name.endswith("weight")]
    assert shards == (["[4, 4] on dim_0: Shard(0)"] if is_sharded else [""])


class Barred(nn.Linear):
    """Its first rank comes to a barrier before the others do, or alone."""

    alone = True

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x).sum()
        if dist.get_rank() == 0 or not self.alone:
            dist.barrier()
        return y


class BarredBefore(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x).sum()
        if dist.get_rank() == 0:
            dist.barrier()
        dist.all_reduce(y.detach())
        if dist.get_rank() == 1:
            dist.barrier()
        return y


def test_a_barrier_that_others_do_not_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3)
    with pytest.raises(RanksError, match=r"rank 0 waits in barrier\('world'\) at .*; rank 1 has ended"):
        bp.capture(Barred(3, 3), x, world=2)
    with pytest.raises(RanksError, match=r"rank 0 waits in barrier\('world'\) .*; rank 1 waits in all_reduce\('world'"):
        bp.capture(BarredBefore(3, 3), x, world=2)
    monkeypatch.setattr(Barred, "alone", False)
    world = bp.capture(Barred(3, 3), x, world=2)
    assert "barrier" not in str(world.ranks[0])
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert [capture.verify()[0].verdict for capture in world.ranks] == ["bitwise"] * 2


@pytest.mark.parametrize("wrapped", [True, False])
def test_ranks_that_share_a_parameter_are_refused(wrapped: bool) -> None:
    model = Plain()

    def shard(own: nn.Module, x: Tensor) -> Any:
        return (DistributedDataParallel(model) if wrapped else model), (x,)

    with pytest.raises(bp.errors.UsageError, match=r"ranks 0 and 1 share the parameter \w+.*the model that `shard` is"):
        bp.capture(model, torch.randn(2, 4), world=2, shard=shard)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda: dist.init_process_group("gloo"), "leave init_process_group out of shard"),
        (lambda: os.environ["RANK"], r"KeyError: 'RANK' at .*ask torch\.distributed\.get_rank\(\)"),
        (lambda: 1 // 0, r"raised ZeroDivisionError: .* at test_world.py:\d+ in <lambda>"),
    ],
)
def test_an_error_in_shard_has_its_line_and_says_what_to_do(wrong: Any, what: str) -> None:
    def shard(model: nn.Module, x: Tensor) -> None:
        wrong()

    with pytest.raises(RanksError, match=what):
        bp.capture(Plain(), torch.randn(2, 4), world=2, shard=shard)
