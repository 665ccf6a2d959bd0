"""Ranks in processes of their own: captured while they train, kept, and read again; and what happens when one fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch.distributed as dist

import backprint as bp

if not dist.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

SUBJECTS = Path(__file__).parents[1] / "subjects"


def started(subject: str, *arguments: str) -> list[subprocess.Popen[str]]:
    """Start two ranks, without a launcher that would end one when the other fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    known |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, str(SUBJECTS / subject), *arguments]
    return [
        subprocess.Popen(
            command, env={**known, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]


def test_ranks_are_captured_while_they_train_and_train_on_as_if_they_were_not(tmp_path: Path) -> None:
    ranks = started("training_rank.py", str(tmp_path))
    for rank in ranks:
        out, err = rank.communicate(timeout=300)
        rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        assert len(rows) == 5, err
        assert all(row["verdict"] == "bitwise" and row["same"] for row in rows), rows
        assert all(row["gradients left"] == [] for row in rows), rows
    for sample in sorted(tmp_path.glob("*/rank_*")):
        assert bp.load(sample).verify()[0].verdict == "bitwise", sample
    assert len(list(tmp_path.glob("*/rank_*"))) == 10


def until_ready(ranks: list[subprocess.Popen[str]]) -> None:
    """Wait until all ranks are about to capture."""
    for rank in ranks:
        assert rank.stdout is not None
        while (line := rank.stdout.readline()) and line.strip() != "ready":
            pass


@pytest.mark.parametrize(("how", "cause"), [("raise", "this rank does not like run"), ("refuse", "is a nested tensor")])
def test_a_rank_that_fails_ends_the_other_with_its_cause(how: str, cause: str, tmp_path: Path) -> None:
    ranks = started("failing_rank.py", how, "3", str(tmp_path))
    until_ready(ranks)
    errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert cause in errors[1]
    assert "RanksError: another rank could not be captured, so this one ends too: rank 1" in errors[0]
    assert cause in errors[0]
    assert all(rank.returncode for rank in ranks)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("seconds", [0.1, 1.5])
def test_a_rank_that_is_killed_ends_the_other(seconds: float, tmp_path: Path) -> None:
    ranks = started("failing_rank.py", "none", "0", str(tmp_path))
    until_ready(ranks)
    time.sleep(seconds)
    ranks[1].send_signal(signal.SIGKILL)
    error = ranks[0].communicate(timeout=60)[1]
    ranks[1].communicate()
    assert ranks[0].returncode
    assert "RanksError: a rank has gone while this one waited in" in error
    assert not list(tmp_path.rglob("*.part"))  # what the killed one was writing, the other has removed
