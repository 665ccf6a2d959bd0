"""The fastest configuration of a kernel: what its stand-alone file says is read, and kept in graph.json."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from test_extract_kernels import needs_triton
from torch import nn

import backprint as bp
from face import (
    CaptureKernels,
    Kernel,
    KernelConfiguration,
    RefusedError,
    standalone_text,
    target_named,
    winners,
)
from face import kernels_save as save

pytestmark = [
    needs_triton,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # torch's own, of Inductor's import
]


@cache
def normed() -> CaptureKernels:
    torch.manual_seed(0)
    return bp.kernels.extract(
        nn.Sequential(nn.LayerNorm(300), nn.Tanh()), torch.randn(6, 300), target="cuda:90", mode="train"
    )


def with_configurations(count: int) -> Kernel:
    kernel = next(iter(normed()))
    return replace(kernel, configurations=tuple(KernelConfiguration((("XBLOCK", n),), 4, 1) for n in range(count)))


def saying(text: str) -> list[str]:
    return [sys.executable, "-c", f"print({text!r})"]


def test_the_winner_takes_the_least_time_of_all_calls() -> None:
    kernel = with_configurations(3)
    (call,) = kernel.calls
    other = replace(call, arguments=call.arguments[:-1])
    kernel = replace(kernel, calls=(call, other, other))  # one call once, the other twice
    said = json.dumps({"device": "a GPU", "microseconds": [[1.0, 2.0, 9.0], [8.0, 6.0, 5.0]]})
    found = winners.run_timing(kernel, saying(said))
    assert found.device == "a GPU"
    assert found.winner == kernel.configurations[1]  # 17, 14, 19
    assert found.total == 14.0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[1.0, 2.0]], r"1 rows of times, for 1 calls of 3 configurations"),
        ([[1.0, 2.0, 3.0]] * 2, r"2 rows of times"),
        ([[1.0, float("nan"), 2.0]], r"times that are none"),
        ([[1.0, 0.0, 2.0]], r"times that are none"),
    ],
)
def test_times_that_are_not_of_each_configuration_are_refused(rows: Any, said: str) -> None:
    text = json.dumps({"device": "a GPU", "microseconds": rows})
    with pytest.raises(RefusedError, match=said):
        winners.run_timing(with_configurations(3), saying(text))


@pytest.mark.parametrize("text", ["", "3 warnings", "[1, 2]", '{"device": "a GPU"}', '{"microseconds": 3}'])
def test_what_is_no_time_is_refused_with_what_was_said(text: str) -> None:
    with pytest.raises(RefusedError, match=r"its timing said what is no time: "):
        winners.run_timing(with_configurations(1), saying(text))


def test_a_file_that_fails_is_refused_with_what_it_said() -> None:
    with pytest.raises(RefusedError, match=r"not finished: exit 1: .*out of memory"):
        winners.run_timing(with_configurations(1), [sys.executable, "-c", "raise SystemExit('out of memory')"])


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens where no GPU is")
def test_without_a_gpu_nothing_is_timed(tmp_path: Path) -> None:
    kernels = normed()
    with pytest.raises(RefusedError, match="for cuda:90, and there is no such GPU here"):
        next(iter(kernels)).times()
    assert not winners.has_gpu(target_named("cuda:90"))
    assert save.save_kernels(kernels, tmp_path / "kernels") == []
    assert "times" not in (tmp_path / "kernels/cuda_90/pair_0/forward/graph.json").read_text()
    file = tmp_path / "kernel.py"
    file.write_text(standalone_text(next(iter(kernels))))
    done = subprocess.run([sys.executable, str(file), "--times"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "there is no GPU here, so no times")


def test_where_the_gpu_is_graph_json_has_the_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save, "has_gpu", lambda target: True)
    monkeypatch.setattr(winners, "has_gpu", lambda target: True)

    def timed(kernel: Kernel, command: Any) -> Any:
        assert command[1:] == ["-P", command[2], "--times"]
        assert Path(command[2]).read_text() == standalone_text(kernel)
        if kernel.direction == "backward":
            raise RefusedError("the GPU is lost")
        rows = [[100.0 - place for place in range(len(kernel.configurations))]]
        return winners.read_times(kernel, {"device": "a GPU", "microseconds": rows})

    monkeypatch.setattr(winners, "run_timing", timed)
    lines = save.save_kernels(normed(), tmp_path)
    place = tmp_path / "cuda_90" / "pair_0"
    (known,) = json.loads((place / "forward" / "graph.json").read_text())["kernels"]
    last = KernelConfiguration(**known["times"]["winner"])
    assert last.name in lines[0]
    assert known["times"]["device"] == "a GPU"
    refused = json.loads((place / "backward" / "graph.json").read_text())["kernels"]
    assert {row["times"]["refused"] for row in refused} == {"the GPU is lost"}
    assert lines[1:] == ["not timed: the GPU is lost"] * len(refused)
