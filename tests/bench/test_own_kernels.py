"""Kernels of a user's own: what they save is their own matter, and a fault is seen whichever way a bench calls them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import own_kernels
import pytest
import torch
from torch import Tensor

import backprint as bp
from face import ANSWERS, GRAPH, PAIR, SOLUTION, UNTIMED, UsageError, compiled_by, compiler_named

KERNELS = Path(own_kernels.__file__)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


@cache
def captured() -> bp.Capture:
    torch.manual_seed(0)
    inputs = (torch.randn(2, 6, 4, requires_grad=True) for _ in range(3))
    return bp.capture(attention, *inputs)


@cache
def captured_with_sizes() -> bp.Capture:
    torch.manual_seed(0)
    sizes = {name: {1: "rows"} for name in "qkv"}
    return bp.capture(attention, *(torch.randn(2, 6, 4, requires_grad=True) for _ in range(3)), dynamic=sizes)


@pytest.mark.slow
def test_a_forward_that_saves_what_it_likes_is_right(cells_of: Any) -> None:
    cells = cells_of(captured(), f"{KERNELS}:Flash", ("forward", "backward", "step"), derivative=True)
    assert {name: cell.outcome for name, cell in cells.items()} == {"forward": UNTIMED, "step": UNTIMED}
    step = cells["step"]
    assert (step.outputs[0].role, step.outputs[0].name) == ("output", "output")
    assert [output.role for output in step.outputs].count("gradient") == 3
    assert all(output.within and output.power for output in step.outputs)
    assert step.derivative.word == "derivative"
    assert "comparisons in" in step.notes[0]


@pytest.mark.slow
def test_it_is_timed_by_the_clock_of_the_judge(cells_of: Any) -> None:
    cells = cells_of(captured(), f"{KERNELS}:flash_of_pair", ("forward", "step"), timed=True)
    for cell in cells.values():
        assert cell.outcome in ANSWERS or "too short" in cell.reason, cell.reason
        if cell.timing:
            assert 0 < cell.timing.low <= cell.timing.high
            assert cell.timing.compiled_mean >= cell.timing.compiled


@pytest.mark.slow
def test_a_forward_is_right_where_gradients_alone_are_wrong(cells_of: Any) -> None:
    cells = cells_of(captured(), f"{KERNELS}:SlightlyWrong", ("forward", "step"))
    assert {name: cell.outcome for name, cell in cells.items()} == {"forward": UNTIMED, "step": "wrong"}
    assert "its backward is wrong" in cells["forward"].reason
    assert {output.name: output.word for output in cells["step"].outputs}["k"] == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Remembers", "forward"),
        ("OneSize", "sizes"),
        ("WritesAnInput", "writes into v"),
        ("OneBuffer", "is another now|another call|view|uses the memory|different results"),
        ("NoNaN", "NaN|nan"),
    ],
)
def test_a_solution_that_is_wrong_elsewhere_is_wrong(name: str, reason: str, cells_of: Any) -> None:
    cells = cells_of(captured_with_sizes(), f"{KERNELS}:{name}", ("forward", "step"))
    assert {cell.outcome for cell in cells.values()} == {"wrong"}
    assert any(part in cells["forward"].reason for part in reason.split("|")), cells["forward"].reason


def test_a_solution_that_raises_has_failed(cells_of: Any) -> None:
    (cell,) = cells_of(captured(), f"{KERNELS}:Raises", ("forward",)).values()
    assert (cell.outcome, "heads of 128 alone" in cell.reason) == ("failed", True)


@pytest.mark.parametrize("name", ["names_directions", "for_one_size"])
def test_a_graph_with_other_sizes_is_compiled_for_them(name: str, cells_of: Any) -> None:
    cells = cells_of(captured_with_sizes(), f"{KERNELS}:{name}")
    for cell in cells.values():
        if name == "for_one_size":
            assert (cell.outcome, cell.reason.partition(":")[0]) == ("wrong", "compiled for rows=2"), cell.reason
        else:
            assert (cell.outcome, cell.notes[-1]) == (UNTIMED, "right for rows=2 too"), cell.reason


def test_what_a_compiler_takes_is_read_and_not_run(tmp_path: Path) -> None:
    names = {"Flash": SOLUTION, "OneBuffer": SOLUTION, "flash_of_pair": PAIR, "for_one_size": GRAPH, "no_nan": GRAPH}
    assert {name: compiler_named(f"{KERNELS}:{name}").takes for name in names} == names
    with pytest.raises(UsageError, match="both graphs of a Pair"):
        compiled_by(compiler_named(f"{KERNELS}:Flash"))
    (tmp_path / "mine.py").write_text("raise SystemExit\nclass Mine:\n    def __init__(self, gm, inputs): ...\n")
    assert compiler_named(f"{tmp_path / 'mine.py'}:Mine").takes == GRAPH
