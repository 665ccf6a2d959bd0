"""Ranks of a step without values: any rank of any number, whose graphs compute what the ranks with values compute."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import backprint as bp
from face import CaptureError, RanksError, SampleError, UsageError, main

if not dist.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import torch.distributed._functional_collectives as collectives
from click.testing import CliRunner
from subjects import sharded
from subjects.llama_on_ranks import SMALL, Sizes, step
from subjects.sharded import programs
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from face import COLLECTIVES, bytes_by_group, replay_together, results_of, traffic_of

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.distributed's own deprecations

TWIN = replace(SMALL, layers=1)

MANY = Sizes(12, 1024, 8, 8, 128, 1024, 1024, 4, 128, 8, torch.bfloat16)
"""Twelve layers on 128 × 8 ranks."""


def twin() -> Any:
    return step(TWIN, drawn=True)


def many() -> Any:
    return step(MANY, drawn=False)


HERE = f"{__file__}:"


def on_values_of(fakes: Any, world: Any) -> list[Any]:
    """What the graphs of ranks without values compute on the values of a World that has some."""
    values = []
    for fake, capture in zip(fakes.ranks, world.ranks, strict=True):
        constants = {name: value for name, value in fake.origin.values().items() if name.startswith("tensor_constant")}
        values.append({**constants, **capture.origin.values()})
    return replay_together(fakes.ranks, values)


def test_the_graphs_without_values_compute_what_the_ranks_compute() -> None:
    world = bp.capture(f"{HERE}twin", world=4)
    fakes = bp.capture(f"{HERE}twin", world=4, fake=True, ranks=range(4))
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 4
    for outcome, results in zip(world.outcomes, on_values_of(fakes, world), strict=True):
        wanted = results_of(outcome)
        assert wanted.keys() == results.keys()
        assert all(torch.equal(results[key], value) for key, value in wanted.items())
    for capture in (world.ranks[3], fakes.ranks[3]):
        assert bytes_by_group(traffic_of(capture)) == TWIN.bytes_sent()
    assert "ranks 0 and 1 differ first in the backward" in str(fakes)
    shards = [{port.name: port.shard for port in each.ranks[1].pairs[0].forward.inputs} for each in (world, fakes)]
    assert shards[0] == shards[1]


def test_a_program_in_which_every_layer_is_replaced_by_a_sharded_one() -> None:
    program = programs(2)["tensor parallel"]
    options = {"world": 2, "shard": program.shard}
    world = bp.capture(program.model, *program.args, **options)
    fakes = bp.capture(program.model, *program.args, fake=True, ranks=(0, 1), **options)
    for outcome, results in zip(world.outcomes, on_values_of(fakes, world), strict=True):
        assert all(torch.equal(results[key], value) for key, value in results_of(outcome).items())
    assert world.against_whole().ok


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    world = bp.capture(f"{HERE}many", world=1024, fake=True, ranks=(5,))
    return world, world.save(tmp_path_factory.mktemp("large") / "world")


@pytest.mark.slow
def test_one_rank_of_a_thousand_is_stamped_and_sends_what_the_formula_says(large: tuple[Any, Path]) -> None:
    world, _ = large
    [capture] = world.ranks
    assert "stamped: the 12 layers" in " ".join(capture.notes)
    assert (capture.rank.number, capture.rank.size) == (5, 1024)
    assert dict(capture.rank.groups) == {"dp": tuple(range(5, 1024, 8)), "tp": tuple(range(8))}
    assert bytes_by_group(traffic_of(capture)) == {group: int(size) for group, size in MANY.bytes_sent().items()}
    assert repr(world) == "World(ShardedLlama: 1,024 ranks, one pair of graphs for rank 5)"
    assert "dp: [5, 13, 21, … 1021] of 128" in str(world)
    assert world.rank(5) is capture
    with pytest.raises(UsageError, match="rank 0 was not captured: there are rank 5"):
        world.rank(0)
    [verdict] = world.verify()
    assert verdict.verdict == "unproven"
    with pytest.raises(UsageError, match="a World without values has no gradients to compare"):
        world.against_whole()


def test_a_stamped_rank_is_that_of_a_trace_in_full(large: tuple[Any, Path]) -> None:
    full = bp.capture(f"{HERE}many", world=1024, fake=True, ranks=(5,), stamp=False)
    [left], [right] = large[0].ranks[0].pairs, full.ranks[0].pairs
    assert (left.forward.hash(), left.backward.hash()) == (right.forward.hash(), right.backward.hash())
    assert str(left.backward) == str(right.backward)
    assert [port.shard for port in left.backward.outputs] == [port.shard for port in right.backward.outputs]


def test_some_ranks_are_saved_and_read_again(large: tuple[Any, Path], tmp_path: Path) -> None:
    world, folder = large
    again = bp.load_world(folder)
    assert (again.size, again.numbers) == (1024, (5,))
    assert str(again) == str(world)
    content = json.loads((folder / "world.json").read_text("utf-8"))
    for ranks in ([], [5, 5], [1024]):
        (tmp_path / "world.json").write_text(json.dumps({**content, "ranks": ranks}), "utf-8")
        with pytest.raises(SampleError, match="are not some of 1024 ranks"):
            bp.load_world(tmp_path)
    (tmp_path / "world.json").write_text(json.dumps({**content, "format": 1}), "utf-8")
    with pytest.raises(SampleError, match="format 1, and this Backprint reads format 2: capture the World again"):
        bp.load_world(tmp_path)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_rank_is_read_by_the_commands(large: tuple[Any, Path]) -> None:
    _, folder = large
    code, text = run("ranks", folder, "--flops", "400T", "--bytes", "3.35T", "--link", "dp=50G", "--link", "tp=450G")
    assert code == 0, text
    assert "a model, not a measurement: 400 TFLOP/s, 3.35 TB/s, dp 50 GB/s, tp 450 GB/s" in text
    assert "waits for subjects/llama_on_ranks.py:" in text
    code, text = run(
        "ranks", folder, "--rank", 5, "--json", "--flops", 1, "--bytes", 1, "--link", "dp=1", "--link", "tp=1"
    )
    (rank,) = json.loads(text)["ranks"]
    assert (code, rank["rank"], rank["size"]) == (0, 5, 1024)
    assert rank["collectives"]
    assert rank["model"][0]["ordered"]["seconds"] >= rank["model"][0]["early"]["seconds"] > 0
    code, text = run("show", folder / "rank_5", "--summary")
    assert "128 ranks: " in " ".join(text.split())
    code, text = run("fits", folder, "--memory", 1, "--optimizer-bytes", 8)
    assert code == 0
    assert text.startswith("rank 5: fits into 1 GiB: ")
    assert "of the optimizer" in text
    code, text = run("fits", folder, "--memory", 0.001, "--json")
    assert code == 1
    [row] = json.loads(text)["ranks"]
    assert row["bytes"] == sum(part["bytes"] for part in row["parts"])
    assert not row["fits"]
    assert run("fits", folder, "--memory", 1, "--rank", 0)[0] == 2
    assert run("fits", folder / "rank_5", "--memory", 1, "--rank", 0)[0] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--flops", "400T"), "a model of the time needs --flops and --bytes"),
        (("--flops", "400T", "--bytes", "3T"), "needs --link dp=RATE, too"),
        (("--flops", "400T", "--bytes", "3T", "--link", "pp=5G"), "the groups are dp, tp"),
        (("--flops", "many", "--bytes", "3T"), "'many' is not a rate"),
        (("--flops", "4T", "--bytes", "3T", "--link", "dp=1G", "--link", "dp=2G"), "dp has a rate already"),
        (("--flops", "4T", "--bytes", "3T", "--link", "dp=1G", "--link", "tp=2G", "--latency", "nan"), "nan is not a"),
        (("--latency", "-1"), "not in the range"),
    ],
)
def test_a_model_without_its_rates_is_refused(large: tuple[Any, Path], options: tuple[str, ...], said: str) -> None:
    code, text = run("ranks", large[1], *options)
    assert code == 2
    assert said in text


def identity(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"world": 4, "ranks": (0,)}, "with values every rank is captured"),
        ({"fake": True, "ranks": (0,)}, "ranks= chooses ranks of a World without values"),
        ({"world": 4, "fake": True, "ranks": (4,)}, "are not different ranks of 0 to 3"),
        ({"world": 4, "fake": True, "ranks": (1, 1)}, "are not different ranks of 0 to 3"),
        ({"world": 4, "fake": True, "ranks": (True,)}, "are not different ranks of 0 to 3"),
        ({"world": 4, "fake": True, "ranks": "03"}, "are not numbers of ranks"),
    ],
)
def test_ranks_that_cannot_be_chosen_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bp.capture(identity, torch.ones(2), **options)


@pytest.mark.parametrize("name", ["FSDP2", "DDP with buckets"])
def test_what_reduces_in_hooks_is_refused_by_name(name: str) -> None:
    program = programs(2)[name]
    with pytest.raises(CaptureError, match="gathers and reduces in hooks"):
        bp.capture(program.model, *program.args, world=2, shard=program.shard, fake=True)


class Scaled(nn.Module):
    """Scales by a sum over all ranks, made in place, which is no part of the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.linear(x).detach().clone()
        dist.all_reduce(scale)
        return self.linear(x) * scale


def test_a_collective_in_place_is_one_that_returns_its_result() -> None:
    model, x = Scaled(), torch.randn(2, 4)
    world = bp.capture(model, x, world=2, shard=lambda model, x: (model, sharded.own_rows((x,))))
    fakes = bp.capture(
        model, x, world=2, fake=True, ranks=(0, 1), shard=lambda model, x: (model, sharded.own_rows((x,)))
    )
    steps = [step.target for step in fakes.ranks[0].pairs[0].forward.steps]
    assert [target for target in steps if target in COLLECTIVES] == ["torch.ops._c10d_functional.all_reduce.default"]
    for outcome, results in zip(world.outcomes, on_values_of(fakes, world), strict=True):
        assert all(torch.equal(results[key], value) for key, value in results_of(outcome).items())


class Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.v = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))


def whole_call(model: Any, x: Tensor) -> Any:
    return model, (x,)


def reduced(y: Tensor) -> Tensor:
    dist.all_reduce(y)
    return y


def reduced_later(y: Tensor) -> Tensor:
    dist.all_reduce(y, async_op=True).wait()
    return y


def largest(y: Tensor) -> Tensor:
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    return y


def broadcast(y: Tensor) -> Tensor:
    dist.broadcast(y, 0)
    return y


def gathered(y: Tensor) -> Tensor:
    whole = torch.empty(8, 4)
    dist.all_gather_into_tensor(whole, y)
    return whole


def scattered(y: Tensor) -> Tensor:
    part = torch.empty(2, 4)
    dist.reduce_scatter_tensor(part, y)
    return part


def handed_out(y: Tensor) -> Tensor:
    part = torch.empty(2, 4)
    dist.scatter(part, list(y.detach().chunk(2)) if dist.get_rank() == 0 else None, src=0)
    return part


def summed_twice(y: Tensor) -> Tensor:
    world = dist.group.WORLD
    return collectives.all_reduce(y, "sum", world) * collectives.all_reduce(y, "sum", world)


@pytest.mark.parametrize(
    "exchange", [reduced, reduced_later, largest, broadcast, gathered, scattered, handed_out, summed_twice]
)
def test_a_collective_has_the_backward_that_the_program_has(exchange: Any) -> None:
    class Exchanging(Layered):
        def forward(self, x: Tensor) -> Tensor:
            return (exchange(x @ self.w) @ self.v).square().sum()

    model, x = Exchanging(), torch.randn(4, 4)
    world = bp.capture(model, x, world=2, shard=whole_call)
    fakes = bp.capture(model, x, world=2, shard=whole_call, fake=True, ranks=(0, 1))
    for left, right in zip(world.ranks, fakes.ranks, strict=True):
        assert bytes_by_group(traffic_of(left)) == bytes_by_group(traffic_of(right))
    for outcome, results in zip(world.outcomes, on_values_of(fakes, world), strict=True):
        for key, value in results_of(outcome).items():
            assert (value is None) == (results.get(key) is None)
            assert value is None or torch.equal(results[key], value)


class Coalesced(Layered):
    def forward(self, x: Tensor) -> Tensor:
        left, right = collectives.all_reduce_coalesced([x @ self.w, x @ self.v], "sum", dist.group.WORLD)
        return (left * right).sum()


class Unlike(Layered):
    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.w
        if dist.get_rank() == 0:
            y = collectives.all_reduce(y, "sum", dist.group.WORLD)
        return (y @ self.v).sum()


class Uneven(Layered):
    def forward(self, x: Tensor) -> Tensor:
        return collectives.all_reduce((x @ self.w)[: dist.get_rank() + 1], "sum", dist.group.WORLD).sum()


class Early(Layered):
    def forward(self, x: Tensor) -> Tensor:
        name = dist.group.WORLD.group_name
        return (torch.ops._c10d_functional.all_reduce(x @ self.w, "sum", name) * 2).sum()


class Raising(Layered):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w[:3]


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        (Coalesced, CaptureError, "autograd calls torch.ops._c10d_functional.all_reduce_coalesced.default"),
        (Unlike, RanksError, r"number 1 is all_reduce, 'sum' of float32\[4, 4\] at .* in one and none in the other"),
        (Uneven, RanksError, r"of float32\[1, 4\] at .* in one and .* of float32\[2, 4\]"),
        (Early, CaptureError, "the result of a collective, before it has ended"),
        (Raising, RanksError, "rank 0 raised RuntimeError"),
    ],
)
def test_what_no_ranks_could_run_is_refused(kind: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        bp.capture(kind(), torch.randn(4, 4), world=2, shard=whole_call, fake=True, ranks=(0, 1))


def test_what_shard_sets_is_set_back() -> None:
    def shard(model: Any, x: Tensor) -> Any:
        torch.set_default_dtype(torch.float64)
        return model, (x,)

    drawn = torch.random.get_rng_state()
    bp.capture(identity, torch.ones(2), world=2, shard=shard, fake=True)
    assert torch.get_default_dtype() is torch.float32
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert not dist.is_initialized()


@pytest.mark.parametrize("memory", ["nan", "inf", "-1", "0", "much"])
def test_an_amount_of_memory_that_is_none_is_refused(memory: str, large: tuple[Any, Path]) -> None:
    code, text = run("fits", large[1], "--memory", memory)
    assert code == 2
    assert "Invalid value for '--memory': " in text


def test_a_call_without_collectives_has_as_many_ranks_as_it_was_asked_for() -> None:
    world = bp.capture(identity, torch.ones(2), world=16, fake=True)
    assert (world.size, world.numbers, world.ranks[0].rank) == (16, (0,), None)
    assert "16 ranks, one pair of graphs for rank 0" in repr(world)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(12))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def parallelized(odd: int | None) -> Any:
    """Shards every block by hooks, as `parallelize_module` does; one of them otherwise."""

    def shard(model: Deep, x: Tensor) -> Any:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        for place, block in enumerate(model.blocks):
            up = ColwiseParallel(output_layouts=Replicate()) if place == odd else ColwiseParallel()
            down = {} if place == odd else {"down": RowwiseParallel()}
            parallelize_module(block, mesh, {"up": up, **down})
        return model, (x,)

    return shard


@cache
def deep(odd: int | None, stamp: bool) -> Any:
    return bp.capture(Deep(), torch.randn(4, 8), world=2, fake=True, shard=parallelized(odd), stamp=stamp).ranks[0]


def test_layers_that_hooks_shard_alike_are_stamped() -> None:
    [note] = deep(None, True).notes
    assert note.startswith("stamped: the 12 layers in blocks")


def test_layers_that_hooks_shard_in_other_ways_are_not_stamped() -> None:
    [note] = deep(7, True).notes
    assert "layers 6 and 7 differ: up.hooks of a Linear" in note


def test_what_hooks_shard_is_stamped_as_it_is_traced_in_full() -> None:
    left, right = (deep(None, stamp).pairs[0] for stamp in (True, False))
    assert (left.forward.hash(), left.backward.hash()) == (right.forward.hash(), right.backward.hash())
