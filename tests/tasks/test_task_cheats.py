"""The judge of solutions: cheats are caught with the reason named, unruly solutions are no crash of the judge."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from _pytest.mark import ParameterSet
from subjects.task_cheats import CHEATS, HARMLESS, RIGHT, UNRULY, capped_norm

import backprint as bp
from backprint.tasks.nouns import TaskReport


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


@pytest.mark.slow
@pytest.mark.parametrize("name", HARMLESS)
def test_what_harms_nothing_is_right(name: str, task: Path, tmp_path: Path) -> None:
    report = judged(task, HARMLESS[name], tmp_path)
    assert report.good, report


QUICK = ("zeros", "remembers by address", "another allclose", "exits at once", "nothing")
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
