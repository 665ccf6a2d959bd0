"""The cells of a bench run: how one compiler did on one graph of one sample, as plain values that JSON keeps."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from backprint.common.files import from_plain
from backprint.graph.verdicts import NOT_THE_DERIVATIVE
from backprint.judge import VERSION

ANSWERS = ("faster", "same", "slower", "unsure")
"""Outcomes of a graph whose every output is right, by its time beside eager's."""

UNTIMED = "untimed"
"""Every output is right, and the time was not measured; the reason says why."""

RIGHT = (*ANSWERS, UNTIMED)

STOPPED = ("refused", "failed", "crashed", "timeout", "out of memory")
"""The compiler raised; its function raised; its process died; its process was ended at a limit of time or memory."""

NOT_JUDGED = ("random", "nondeterministic", "eager failed", "skipped", "unjudged")
"""Neither right nor wrong: results depend on random numbers of the compiler's own and could not be judged; eager
differs from itself or raises; the graph needs one that did not run; judging raised an error of ours."""

OUTCOMES = (*RIGHT, "wrong", *STOPPED, *NOT_JUDGED)

LARGEST = 1e100
"""More than any measured number."""


@dataclass(frozen=True, slots=True)
class BenchOutput:
    """One output: its port, how it was judged (`tools/export/judged`), and GraphNet's tolerances that it is within."""

    role: str
    name: str
    word: str
    detail: str
    dtype: str
    shape: tuple[int, ...]
    compiled_dtype: str
    compiled_shape: tuple[int, ...]
    equal: bool
    within: tuple[int, ...] = ()
    """Places in `TOLERANCES` of `graphnet/scores`."""
    power: bool = True
    """Whether a redraw of the inputs moves this output."""


@dataclass(frozen=True, slots=True)
class BenchTiming:
    """The times of a call, in seconds: eager's and the compiler's, measured in turns, and the ratio of the second to
    the first with its interval. `noise` is the ratio of eager to eager, measured in the same way beside it."""

    answer: str
    eager: float
    compiled: float
    eager_mean: float
    compiled_mean: float
    ratio: float
    low: float
    high: float
    rounds: int
    noise: float | None = None
    noise_low: float | None = None
    noise_high: float | None = None
    device: float | None = None
    """The compiler's time on the GPU over eager's, by events; None on a CPU."""


@dataclass(frozen=True, slots=True)
class BenchDerivative:
    """Whether the backward of a compiled step is the derivative of its forward, in float64 (`bench --derivative`).

    `word` is that of a Derivative. `gap` is the distance of ⟨g, J·v⟩ and ⟨Jᵀ·g, v⟩ relative to their terms, and
    `forward` that of the compiled forward's outputs from the captured forward's, relative to the largest value of an
    output; None where it was not measured.
    """

    word: str
    detail: str = ""
    gap: float | None = None
    forward: float | None = None
    captured: str = ""
    """The word for the captured backward, where the compiled one is not the derivative."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BenchCell:
    """How a compiler did on one graph of a sample."""

    sample: str
    graph: str
    direction: str
    compiler: str
    outcome: str
    reason: str = ""
    family: str = ""
    steps: int = 0
    """How many operators the graph calls."""
    outputs: tuple[BenchOutput, ...] = ()
    timing: BenchTiming | None = None
    cold: float | None = None
    """Seconds of the first compilation, with empty caches."""
    warm: float | None = None
    """Seconds of the second compilation, in the same process with the caches that the first has filled."""
    peak_bytes: int | None = None
    """The most memory of the process, with all that was compiled and compared."""
    device_bytes: int | None = None
    """The most memory of the GPU that the first call took, with a copy of its inputs; None on a CPU."""
    flops: int | None = None
    """The least number of floating-point operations that the graph's results take."""
    moved_bytes: int | None = None
    """The least number of bytes: each input read once, each output written once."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    load: float | None = None
    """The machine's load average over the last minute when the cell was done; None where the system has none."""
    derivative: BenchDerivative | None = None
    """Whether the compiled backward of a step is the derivative; None where this was not tried."""
    judge: int = VERSION
    """The version of the judge; 0 of cells that were written before they had it."""

    @property
    def not_the_derivative(self) -> bool:
        """Whether the compiled backward is not the derivative of the compiled forward."""
        return self.derivative is not None and self.derivative.word == NOT_THE_DERIVATIVE

    @property
    def right(self) -> bool:
        """Whether every output is right."""
        return self.outcome in RIGHT

    @property
    def speedup(self) -> float | None:
        """Eager's time over the compiler's."""
        return None if self.timing is None else 1 / self.timing.ratio

    def to_json(self) -> dict[str, Any]:
        """Return the cell as plain values."""
        return asdict(self)


def cell_from_json(row: Mapping[str, Any]) -> BenchCell:
    """Return the cell of plain values; raise ValueError for values that no cell has."""
    # A row without the judge's version is from before cells had one: 0.
    cell = from_plain(BenchCell, {"judge": 0, **row}, "the cell")
    if cell.outcome not in OUTCOMES:
        raise ValueError(f"the cell's outcome {cell.outcome[:40]!r} is not one of {', '.join(OUTCOMES)}")
    check_numbers(cell, "the cell", 0)
    if cell.timing is not None:
        check_numbers(cell.timing, "the cell's timing", sys.float_info.min)  # above 0: `speedup` divides by the ratio
    if cell.derivative is not None:
        check_numbers(cell.derivative, "the cell's derivative", 0)
    return cell


def check_numbers(value: BenchCell | BenchTiming | BenchDerivative, name: str, least: float) -> None:
    """Raise ValueError for a number that no measurement gives: NaN, below `least`, or above LARGEST."""
    for field in fields(value):
        number = getattr(value, field.name)
        if isinstance(number, (int, float)) and not isinstance(number, bool) and not least <= number <= LARGEST:
            raise ValueError(f"{name} has {field.name} {str(number)[:40]}, which is not from {least:g} to {LARGEST:g}")
