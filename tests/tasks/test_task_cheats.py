"""The judge of solutions: cheats are caught with the reason named, unruly solutions are no crash of the judge."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from _pytest.mark import ParameterSet
from subjects.task_cheats import CHEATS, HARMLESS, RIGHT, UNRULY, capped_norm
from torch import Tensor

import backprint as bp
from face import TaskReport


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The task of `capped_norm`, at symbolic sizes."""
    torch.manual_seed(0)
    inputs = torch.randn(6, 16, requires_grad=True), torch.randn(16, requires_grad=True)
    place = tmp_path_factory.mktemp("task") / "norm"
    bp.tasks.make(bp.capture(capped_norm, *inputs, dynamic=True), place)
    return place


def judged(task: Path, text: str, folder: Path, **options: float) -> TaskReport:
    place = folder / "solution.py"
    place.write_text(text)
    return bp.tasks.check(task, place, timed=False, first=True, **options)


def test_a_right_solution_is_right(task: Path, tmp_path: Path) -> None:
    report = judged(task, RIGHT, tmp_path)
    assert report.good, report
    assert not report.wrong
    assert "at the sizes s0 = 2, 3, 6, 7, 61, 64, 65, 129, 1025; s1 = 2, 3, 16, 19, 64, 65, 129, 163, 1025" in str(
        report
    )


def test_a_large_mean_beside_a_small_deviation_is_tried(tmp_path: Path) -> None:
    def norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (8,))

    bp.tasks.make(bp.capture(norm, torch.randn(6, 8, requires_grad=True)), tmp_path / "T")
    text = """
def norm(x):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * (VARIANCE + 1e-5).rsqrt()

Solution = norm
"""
    naive = judged(tmp_path / "T", text.replace("VARIANCE", "x.square().mean(-1, True) - mean.square()"), tmp_path)
    assert re.search("a large mean in x.*off by", naive.reason), naive
    two_passes = judged(tmp_path / "T", text.replace("VARIANCE", "(x - mean).square().mean(-1, True)"), tmp_path)
    assert not [row for row in two_passes.wrong if "large mean" in row.check], two_passes


def test_a_solution_may_draw_where_the_program_does_and_never_seed(tmp_path: Path) -> None:
    bp.tasks.make(bp.capture(lambda x: F.dropout(x, 0.3), torch.randn(6, 8, requires_grad=True)), tmp_path / "T")
    text = "import torch\ndef Solution(x, mask):\n    DRAW\n    return x * mask\n"
    assert judged(tmp_path / "T", text.replace("DRAW", "torch.rand(2)"), tmp_path).good
    seeded = judged(tmp_path / "T", text.replace("DRAW", "torch.manual_seed(0)"), tmp_path)
    assert "its forward seeds torch's random state" in seeded.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", HARMLESS)
def test_what_harms_nothing_is_right(name: str, task: Path, tmp_path: Path) -> None:
    report = judged(task, HARMLESS[name], tmp_path)
    assert report.good, report


QUICK = (
    "zeros",
    "remembers by address",
    "another allclose",
    "exits at once",
    "nothing",
    "seeds torch",
    "overwrites what it saved, unseen",
    "drops small tangents",
)
"""The rest are slow together: each judges a solution in a process of its own."""


def some_slow(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", some_slow(CHEATS))
def test_a_cheat_is_caught(name: str, task: Path, tmp_path: Path) -> None:
    text, reason = CHEATS[name]
    report = judged(task, text, tmp_path)
    assert not report.good
    assert re.search(reason, report.reason), report.reason


@pytest.mark.parametrize("name", some_slow(UNRULY))
def test_an_unruly_solution_is_named(name: str, task: Path, tmp_path: Path) -> None:
    text, reason = UNRULY[name]
    report = judged(task, text, tmp_path, timeout=5.0, warm_up=2.0 if name == "hangs" else 20.0, memory=2.0)
    assert not report.good
    assert re.search(reason, report.reason), report.reason
