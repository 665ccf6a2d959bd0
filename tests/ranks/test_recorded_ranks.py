"""`backprint record` of a training script that runs in several processes: the script does not notice, each process
keeps its rank's sample, and the samples run together without a process group."""

from __future__ import annotations

import copy
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import backprint as bp
from face import (
    COLLECTIVES,
    WAIT,
    Call,
    Exchange,
    Graph,
    Peers,
    ReplayError,
    SampleError,
    UsageError,
    received_by,
    received_without_others,
    refs,
)

if not dist.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

SCRIPT = Path(__file__).parents[1] / "subjects" / "recorded_rank.py"


def run_ranks(*arguments: str, folder: Path | None = None) -> list[tuple[int, list[str], str]]:
    """Run the script in two processes, recorded into a folder or not; return the exit code, the lines and the errors of
    each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    known |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    recorded = ["-m", "backprint", "record", "-o", str(folder)] if folder is not None else []
    ranks = [
        subprocess.Popen(
            [sys.executable, *recorded, str(SCRIPT), *arguments],
            env={**known, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ends = [rank.communicate(timeout=120) for rank in ranks]
    return [(rank.returncode, out.splitlines(), err) for rank, (out, err) in zip(ranks, ends, strict=True)]


@pytest.mark.parametrize("kind", ["collectives", "FSDP2", "DDP", "TP"])
def test_a_script_of_several_processes_is_recorded_and_does_not_notice(kind: str, tmp_path: Path) -> None:
    plain = run_ranks(kind)
    recorded = run_ranks(kind, folder=tmp_path / "step")
    assert [row[:2] for row in recorded] == [row[:2] for row in plain], recorded
    assert [len(lines) for _, lines, _ in plain] == [3, 3]
    derivative = "derivative" if kind == "collectives" else "cannot tell"  # its collectives come after the backward
    for rank, (_, _, err) in enumerate(recorded):
        assert f"verdict bitwise, {derivative}, in {os.path.relpath(tmp_path)}/step/rank_{rank}" in err, err
    world = bp.load_world(tmp_path / "step")
    assert world.size == 2
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise", "bitwise"]
    assert [capture.verify()[-1].verdict for capture in world.ranks] == ["bitwise", "bitwise"]
    for graph in (graph for pair in world.rank(0).pairs for graph in (pair.forward, pair.backward) if graph):
        collectives = {step.name for step in graph.steps if step.target in COLLECTIVES and "broadcast" not in step.name}
        assert collectives <= {str(step.args[0].name) for step in graph.steps if step.target == WAIT}
        assert not [step for step in graph.steps if step.target == WAIT and step.name not in names_used(graph)]
    last = tmp_path / "step" / "rank_1" / world.rank(1).pairs[-1].name / "forward" / "model.py"
    alone = subprocess.run([sys.executable, last], capture_output=True, text=True, check=False)
    assert alone.returncode == 0, alone.stderr
    assert "mutation optimizer.state.0.exp_avg float32" in alone.stdout


def names_used(graph: Graph) -> set[str]:
    """Return the values that steps and results of a graph take."""
    values = (value for step in graph.steps for value in (step.args, step.kwargs))
    return {name for value in (*values, graph.results) for name in refs(value)}


def test_a_step_that_one_rank_cannot_keep_is_kept_by_the_other(tmp_path: Path) -> None:
    plain = run_ranks("DDP", "unlike")
    recorded = run_ranks("DDP", "unlike", folder=tmp_path / "step")
    assert [row[:2] for row in recorded] == [row[:2] for row in plain]
    assert "step 1: 3 pairs, verdict bitwise" in recorded[0][2]
    assert "step 1 is not kept: the backward of prod rounds differently while it is recorded" in recorded[1][2]
    world = bp.load_world(tmp_path / "step")
    assert (world.size, world.numbers) == (2, (0,))
    with pytest.raises(UsageError, match=r"there are samples of rank 0 of 2, so the ranks cannot run together"):
        world.verify()


def test_a_rank_that_raises_ends_as_it_would_without_recording(tmp_path: Path) -> None:
    recorded = run_ranks("TP", "raise", folder=tmp_path / "step")
    code, lines, err = recorded[1]
    assert (code, len(lines)) == (1, 2)
    assert err.rstrip().endswith("ValueError: this rank does not like step 1")
    assert bp.load_world(tmp_path / "step").numbers == (0, 1)


# ---- What others sent is not known


CALLS = (
    (Call("all_reduce", "dp", ("sum",)), (4,)),
    (Call("all_reduce", "dp", ("avg",)), (4,)),
    (Call("reduce_scatter_tensor", "dp", ("sum",)), (6, 2)),
    (Call("all_gather_into_tensor", "dp"), (2, 2)),
    (Call("all_gather_into_tensor", "dp"), ()),
    (Call("broadcast", "dp", (0,)), (3,)),
    (Call("broadcast", "dp", (1,)), (3,)),
    (Call("all_to_all_single", "dp", ((1, 2, 1), (1, 2, 1))), (4, 2)),
)


@pytest.mark.parametrize(("call", "shape"), CALLS)
def test_a_rank_that_sends_something_else_receives_what_the_others_sent(call: Call, shape: tuple[int, ...]) -> None:
    before, now = ([torch.randn(shape, dtype=torch.float64) for _ in range(3)] for _ in range(2))
    others = [Call(call.kind, call.group, ((2, 2, 0), (1, 2, 1))) if len(call.options) == 2 else call] * 3
    options = [call.options if member == 1 else other.options for member, other in enumerate(others)]
    if call.kind == "all_to_all_single":
        options = [((1, 1, 2), (1, 1, 2)), call.options, ((2, 1, 1), (2, 1, 1))]
    received = received_by(1, call.kind, options, before)
    kept = Exchange((call,) * 3, (None, before[1], None), received)
    expected = received_by(1, call.kind, options, [before[0], now[1], before[2]])
    answer = received_without_others(kept, 1, now[1])
    assert answer is not None
    torch.testing.assert_close(answer, expected, rtol=1e-12, atol=1e-12)
    peers = Peers({"dp": [kept]}, {"dp": 1})
    assert torch.equal(peers(call, before[1]), received)


def test_a_product_of_what_is_not_known_is_refused() -> None:
    call = Call("all_reduce", "dp", ("product",))
    peers = Peers({"dp": [Exchange((call, call), (torch.ones(2), None), torch.ones(2))]}, {"dp": 0})
    assert torch.equal(peers(call, torch.ones(2)), torch.ones(2))
    peers.begin()
    with pytest.raises(ReplayError, match=r"what the others sent is not kept: replay it on its own inputs"):
        peers(call, torch.zeros(2))


# ---- Folders of samples that each process has written


def summed(x: Any) -> Any:
    from torch.distributed import _functional_collectives as collectives

    return collectives.all_reduce(x * 2, "sum", dist.group.WORLD) * 3


def saved_alone(folder: Path) -> Path:
    """Write the samples of two ranks as two processes do."""
    world = bp.capture(summed, torch.ones(2, requires_grad=True), world=2)
    assert copy.deepcopy(world) is world  # nobody edits one
    assert copy.deepcopy(world.ranks[0].pairs) == world.ranks[0].pairs
    for number in world.numbers:
        bp.save(world.rank(number), folder / f"rank_{number}", data="exact")
    return folder


def test_a_folder_of_ranks_is_a_world_and_wrong_ones_are_refused_by_name(tmp_path: Path) -> None:
    folder = saved_alone(tmp_path / "step")
    world = bp.load_world(folder)
    assert (world.size, world.numbers) == (2, (0, 1))
    (folder / "rank_1").rename(folder / "rank_3")
    with pytest.raises(SampleError, match=r"rank_3: is the sample of rank 1"):
        bp.load_world(folder)
    (folder / "rank_3").rename(folder / "rank_1")
    content = json.loads((folder / "rank_1" / "capture.json").read_text("utf-8"))
    content["rank"]["size"] = 4
    (folder / "rank_1" / "capture.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(SampleError, match=r"has samples of steps of 2 and 4 ranks"):
        bp.load_world(folder)
    with pytest.raises(SampleError, match=r"it has no world\.json and no rank_0"):
        bp.load_world(tmp_path)


# ---- What scripts do between a backward and a step, in a process that is the only one of its group

BEGIN = """
import threading
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
def reduce_gradients():
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
"""

TRAIN = """
optimizer = torch.optim.{optimizer}
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(3, 4)).square().mean().backward()
    {between}
    optimizer.step()
dist.destroy_process_group()
"""

SHARDED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
fully_shard(model, mesh=init_device_mesh("cpu", (1,), mesh_dim_names=("dp",)))
"""

HOOKED = """
bucket, works = torch.zeros(sum(p.numel() for p in model.parameters())), []
def reduce_later(parameter, begin):
    part = bucket[begin : begin + parameter.numel()]
    part.copy_(parameter.grad.reshape(-1))
    works.append((parameter, part, dist.all_reduce(part, async_op=True)))
begin = 0
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(lambda parameter, begin=begin: reduce_later(parameter, begin))
    begin += parameter.numel()
def finish():
    for parameter, part, work in works:
        work.wait()
        parameter.grad.copy_(part.view_as(parameter))
    works.clear()
"""

RAISING = """
def try_average():
    try:
        dist.broadcast(torch.ones(2), src=7)
    except Exception:
        reduce_gradients()
"""

THREAD = """
def in_thread():
    thread = threading.Thread(target=reduce_gradients)
    thread.start()
    thread.join()
"""

NUMPY = """
def filled_by_numpy():
    sent = torch.zeros(2)
    sent.numpy()[:] = 1
    dist.all_reduce(sent)
    model[2].bias.grad += sent
"""

SHAPES = """
from torch._subclasses import FakeTensorMode
def shapes():
    with FakeTensorMode():
        assert (torch.ones(2, 3) @ torch.ones(3, 4)).shape == (2, 4)
"""

RECORDED_BITWISE = {
    "fused optimizer on FSDP2's views": (SHARDED, "AdamW(model.parameters(), fused=True)", "pass"),
    "reduced in hooks, slice by slice": (HOOKED, "SGD(model.parameters(), lr=0.1)", "finish()"),
    "a collective that raises": (RAISING, "SGD(model.parameters(), lr=0.1)", "try_average()"),
    "a barrier that is monitored": ("", "SGD(model.parameters(), lr=0.1)", "dist.monitored_barrier()"),
    "shapes of fake tensors": (SHAPES, "SGD(model.parameters(), lr=0.1)", "shapes(); reduce_gradients()"),
    "FSDP2 from its first step on": (SHARDED, "SGD(model.parameters(), lr=0.1, momentum=0.9)", "pass"),
}


@pytest.mark.parametrize("name", RECORDED_BITWISE)
def test_what_scripts_do_is_recorded(name: str, tmp_path: Path) -> None:
    before, optimizer, between = RECORDED_BITWISE[name]
    text = BEGIN + before + TRAIN.format(optimizer=optimizer, between=between)
    (tmp_path / "train.py").write_text(text, "utf-8")
    told: list[str] = []
    first = 0 if "first step" in name else 1
    [step] = bp.record(tmp_path / "train.py", steps=(first, first + 1), tell=told.append)
    assert told == []
    assert [verdict.verdict for verdict in step.verify()][-1] == "bitwise"


@pytest.mark.parametrize("views", [False, True])
def test_a_step_ends_with_the_outermost_optimizer(views: bool, tmp_path: Path) -> None:
    options = f"parameters_as_bucket_view={views}, lr=0.1"
    zero = f"dist.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, {options})"
    text = BEGIN + TRAIN.format(optimizer="SGD", between="pass").replace("torch.optim.SGD", zero, 1)
    quiet = "import warnings; warnings.simplefilter('ignore')"
    text = text.replace("import threading", quiet).replace(
        "from torch import nn", "import torch.distributed.optim\nfrom torch import nn", 1
    )
    (tmp_path / "train.py").write_text(text, "utf-8")
    steps = bp.record(tmp_path / "train.py", steps=(0, 3))
    assert [len(step.pairs) for step in steps] == [2, 2, 2]
    assert all([verdict.verdict for verdict in step.verify()][-1] == "bitwise" for step in steps)


NOT_SEEN = {
    "a thread": (THREAD, "in_thread()", "another thread runs a collective on a tensor of the step, of shape [6, 4]"),
    "NumPy": (NUMPY, "filled_by_numpy()", "sends other values than the script did: something writes to what is sent"),
}


@pytest.mark.parametrize("name", NOT_SEEN)
def test_a_step_that_is_not_seen_as_a_whole_is_not_kept(name: str, tmp_path: Path) -> None:
    before, between, words = NOT_SEEN[name]
    text = BEGIN + before + TRAIN.format(optimizer="SGD(model.parameters(), lr=0.1)", between=between)
    (tmp_path / "train.py").write_text(text, "utf-8")
    told: list[str] = []
    assert bp.record(tmp_path / "train.py", tell=told.append) == []
    [line] = told
    assert line.startswith("step 1 is not kept: ")
    assert words in line
