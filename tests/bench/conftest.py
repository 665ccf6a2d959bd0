"""What tests of the bench share: peaks that are measured once, and trials without a run around them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import backprint as bp
from face import BenchCell, GraphClock, TrialPlan, Turns, compiler_named, launch
from face import trial_tried as tried

Trial = Callable[..., dict[str, BenchCell]]


@pytest.fixture(scope="session", autouse=True)
def _peaks_measured_once() -> Iterator[None]:
    """The peaks of this machine are measured by the first run: a run of a small sample would take half its time."""
    measured: Any = functools.cache(launch.measured_peaks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "measured_peaks", lambda threads, device: dict(measured(threads, device)))
        yield


@pytest.fixture
def cells_of(tmp_path: Path) -> Trial:
    """A function that tries a compiler on a Capture, as the process of a sample does, and returns a cell a direction.

    The compiler has a process of its own; there is no worker, which takes seconds to load PyTorch, and no run.
    """
    turns = Turns(tmp_path, GraphClock())

    def cells(
        capture: bp.Capture,
        name: str,
        directions: Sequence[str] = ("forward", "backward"),
        *,
        timed: bool = False,
        derivative: bool = False,
    ) -> dict[str, BenchCell]:
        plan = TrialPlan(compiler_named(name), tuple(directions), timed, tmp_path / "caches", derivative)
        with turns.working():
            found = list(tried(capture, plan, {}, turns, lambda title, part: None))
        return {cell.direction: cell for cell in found}

    return cells
