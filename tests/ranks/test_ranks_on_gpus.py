"""On a GPU: ranks whose tensors are there, in one process and under torchrun. Skipped without one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from subjects.sharded import on_device, programs

import backprint as bp

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
]
SUBJECTS = Path(__file__).parents[1] / "subjects"


@pytest.mark.parametrize("name", list(programs()))
def test_all_ranks_in_one_process(name: str, tmp_path: Path) -> None:
    program = on_device(programs(2)[name], "cuda")
    try:
        world = bp.capture(program.model, *program.args, world=2, shard=program.shard)
    finally:
        on_device(program, "cpu")
    well = {"bitwise", "undifferentiable"}
    assert {verdict.verdict for verdict in world.verify()} <= well
    again = bp.load_world(world.save(tmp_path / "world"))
    assert {verdict.verdict for verdict in again.verify()} <= well
    assert {capture.verify()[0].verdict for capture in again.ranks} <= well
    assert "@cuda:0" in again.rank(1).pairs[0].forward.code
    model = next((tmp_path / "world" / "rank_1").rglob("forward/model.py"))
    alone = subprocess.run([sys.executable, model], capture_output=True, text=True, check=False)
    assert alone.returncode == 0, alone.stderr


@pytest.mark.parametrize("name", ["tensor parallel", "FSDP2", "DDP with buckets"])
def test_gradients_are_those_of_the_whole(name: str) -> None:
    program = on_device(programs(2)[name], "cuda")
    world = bp.capture(program.model, *program.args, world=2, shard=program.shard)
    assert world.against_whole().ok, str(world.against_whole())


def run_ranks(count: int, backend: str, *arguments: str) -> list[tuple[int, list[str], str]]:
    """Run a command of Python's in processes that share the GPU; return the exit code, the lines and the errors of
    each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore", "LOCAL_RANK": "0"}
    known |= {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    known |= {"DEVICE": "cuda", "BACKEND": backend, "PYTHONFAULTHANDLER": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**known, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    ends = [rank.communicate(timeout=200) for rank in ranks]
    return [(rank.returncode, out.splitlines(), err) for rank, (out, err) in zip(ranks, ends, strict=True)]


@pytest.mark.parametrize("kind", ["collectives", "FSDP2", "DDP", "TP"])
@pytest.mark.parametrize(("count", "backend"), [(1, "nccl"), (2, "gloo")])  # NCCL has one rank on one GPU
def test_a_script_is_recorded_and_does_not_notice(count: int, backend: str, kind: str, tmp_path: Path) -> None:
    script = str(SUBJECTS / "recorded_rank.py")
    plain = run_ranks(count, backend, script, kind)
    recorded = run_ranks(count, backend, "-m", "backprint", "record", "-o", str(tmp_path / "step"), script, kind)
    assert [row[:2] for row in recorded] == [row[:2] for row in plain], recorded
    for _, lines, err in recorded:
        assert len(lines) == 3
        assert "verdict bitwise" in err
    world = bp.load_world(tmp_path / "step")
    assert {verdict.verdict for verdict in world.verify()} == {"bitwise"}
    assert {capture.verify()[-1].verdict for capture in world.ranks} == {"bitwise"}


ON_GLOO = ("tensor parallel", "FSDP2", "DDP with buckets", "mixture of experts")
"""Programs of `training_rank.py` that Gloo runs on GPUs: PyTorch's own functional gather crashes there."""


@pytest.mark.parametrize(("count", "backend", "names"), [(1, "nccl", ()), (2, "gloo", ON_GLOO)])
def test_ranks_are_captured_while_they_train(count: int, backend: str, names: tuple[str, ...], tmp_path: Path) -> None:
    for code, lines, err in run_ranks(count, backend, str(SUBJECTS / "training_rank.py"), str(tmp_path), *names):
        assert code == 0, err
        rows = [json.loads(line) for line in lines]
        assert all(row["same"] and not row["gradients left"] for row in rows), rows
        assert {row["verdict"] for row in rows} == {"bitwise"}, rows
