"""What tests of the bench share: trials without a run around them."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import backprint as bp
from face import BenchCell, Compiler, GraphClock, TrialPlan, Turns, cell_from_json, compiler_named, in_child
from face import trial_tried as tried

Trial = Callable[..., dict[str, BenchCell]]


@pytest.fixture(scope="session")
def _loaded() -> None:
    """Load what each graph for a compiler needs of torch once: every forked process would take seconds for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._dynamo")


@pytest.fixture
def cells_of(tmp_path: Path, _loaded: None) -> Trial:
    """A function that tries a compiler on a Capture, as the process of a sample does, and returns a cell a direction.

    There is a process of its own for it, and no worker, which takes seconds to load PyTorch, and no run.
    """
    turns = Turns(tmp_path, GraphClock())

    def cells(
        capture: bp.Capture,
        name: str | Compiler,
        directions: Sequence[str] = ("forward", "backward"),
        *,
        timed: bool = False,
        derivative: bool = False,
    ) -> dict[str, BenchCell]:
        compiler = compiler_named(name) if isinstance(name, str) else name
        plan = TrialPlan(compiler, tuple(directions), timed, tmp_path / "caches", derivative)

        def rows() -> list[dict[str, Any]]:
            with turns.working():
                return [cell.to_json() for cell in tried(capture, plan, {}, turns, lambda title, part: None)]

        end = in_child(rows, 300.0)
        assert end.ended_well, end
        return {row["direction"]: cell_from_json(row) for row in end.value}

    return cells
