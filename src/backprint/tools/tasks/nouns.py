"""The nouns: a Task, what the judge says of a solution, and a set of tasks. Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backprint.derive.checked import WRONG, CheckRow
from backprint.judge import VERSION


@dataclass(frozen=True, slots=True)
class TaskPort:
    """One tensor of a task: an input, or a result. `differentiable` says that an input has a gradient, or a result a
    tangent."""

    name: str
    role: str
    dtype: str
    shape: tuple[str, ...]
    """The sizes as texts: a symbolic one is an expression."""
    differentiable: bool


@dataclass(frozen=True, slots=True)
class TaskWork:
    """The least work of one direction, without saved values: what any solution computes, reads and writes."""

    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TaskTolerance:
    """How far eager is off from float64 on the captured inputs, and how far a solution may be off there."""

    name: str
    error_of_eager: float
    allowed: float


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a Capture set as a problem; `task.json` is this."""

    format: int
    name: str
    hash: str
    inputs: tuple[TaskPort, ...]
    outputs: tuple[TaskPort, ...]
    dtypes: tuple[str, ...]
    """Further dtypes that the reference takes."""
    sized: bool
    """Whether other sizes than the captured ones count."""
    is_derivative: bool
    """Whether the reference's backward is the derivative of its forward."""
    forward: TaskWork
    step: TaskWork
    tolerances: tuple[TaskTolerance, ...]
    without_power: tuple[str, ...]
    """Results that hardly move with the inputs."""
    seconds: tuple[tuple[str, float], ...]
    """Measured times of a step: of eager, and of Inductor, where asked for."""
    torch: str
    occurs: int = 1
    """How often the part occurs in the set that the task belongs to."""


FORMAT = 1


@dataclass(frozen=True, slots=True)
class FirstWrong:
    """The element that is wrong by most in the first wrong comparison."""

    name: str
    index: tuple[int, ...]
    value: float
    wanted: float


def row_without_numbers(check: str, dtype: str, name: str, verdict: str, detail: str = "") -> CheckRow:
    """Return the row of a comparison that has no error and nothing that is allowed: it was not made, or its result is
    wrong, or right, without a number. `dtype` is '' of a row of no dtype in particular, and `name` is `all` of a row of
    all results."""
    return CheckRow(check, dtype, name, error=None, allowed=None, verdict=verdict, detail=detail)


@dataclass(frozen=True, slots=True)
class SolutionTime:
    """Seconds of a call of a solution and of eager, by the judge's clock, without what carrying tensors takes.

    `faster` is how many times faster than eager, from `low` to `high`.
    """

    what: str
    seconds: float
    eager: float
    faster: float
    low: float
    high: float
    mean: float = 0.0
    """The mean of all rounds, which shows a slowdown in some of them alone."""
    mean_of_eager: float = 0.0
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What the judge says of a solution: whether it is right, why not, and how fast."""

    task: str
    solution: str
    right: bool
    reason: str
    """Why it is not right; '' if it is."""
    rows: tuple[CheckRow, ...]
    first: FirstWrong | None
    refused: tuple[str, ...]
    """What the solution raised for, and the task does not ask for."""
    notes: tuple[str, ...]
    times: tuple[SolutionTime, ...]
    untimed: str
    seed: int
    """The seed of the contents, which was drawn after the solution was loaded and called."""
    calls: int

    @property
    def good(self) -> bool:
        """Whether the solution is right."""
        return self.right

    @property
    def wrong(self) -> tuple[CheckRow, ...]:
        """The comparisons that are wrong."""
        return tuple(row for row in self.rows if row.verdict == WRONG)

    @property
    def fast_1(self) -> bool:
        """Whether the solution is right, and its step certainly faster than eager's."""
        return self.faster_than(1.0)

    @property
    def fast_2(self) -> bool:
        """Whether the solution is right, and its step certainly more than twice as fast as eager's."""
        return self.faster_than(2.0)

    def faster_than(self, times: float) -> bool:
        """Whether the solution is right, and its step certainly more than so many times faster than eager's."""
        return self.right and any(time.what == "step" and time.low > times for time in self.times)

    def as_json(self) -> dict[str, Any]:
        """Return the report as an object of JSON."""
        return {**asdict(self), "judge": VERSION, "fast_1": self.fast_1, "fast_2": self.fast_2}

    def __str__(self) -> str:
        return "\n".join(_six_lines(self))

    def _repr_html_(self) -> str:
        from backprint.table.notebook import html_of
        from backprint.table.nouns import Report, Table

        first, *lines = _six_lines(self)
        name, _, answer = first.partition(": ")
        columns = {"timed": "name", "seconds": "seconds", "eager": "seconds", "faster": "times", "from": "times"}
        rows = [(time.what, time.seconds, time.eager, time.faster, time.low, time.high) for time in self.times]
        lines_without_times = [line.strip() for line in lines if line not in map(_time_line, self.times)]
        table = Table(title="", columns={**columns, "to": "times"}, rows=rows)
        return html_of(Report(title=name, answer=answer, tables=(), rows=table), lines_without_times)


def _six_lines(report: TaskReport) -> list[str]:
    """Return the report for people: six lines at most."""
    tried = [row for row in report.rows if row.tried]
    checks = {row.check for row in tried}
    not_tried = len(report.rows) - len(tried)
    lines = [f"{report.task}: {report.solution} is {'right' if report.right else 'wrong: ' + report.reason}"]
    if report.first is not None:
        first = report.first
        lines.append(f"  {first.name}{list(first.index)} is {first.value:.8g}, and {first.wanted:.8g} is wanted")
    lines.append(
        f"  {len(tried)} comparisons of {len(checks)} kinds in {report.calls} calls, contents from seed {report.seed}"
        + (f"; {not_tried} not made" if not_tried else "")
        + (f"; at the sizes {sizes}" if (sizes := _sizes_tried(tried)) else "")
    )
    if report.refused:
        lines.append(f"  it raises for, which is allowed: {', '.join(report.refused)}")
    lines += [f"  {note}" for note in report.notes[:1]]  # one, because the times must fit into the six lines too
    lines += [_time_line(time) for time in report.times]
    if report.untimed:
        lines.append(f"  not timed: {report.untimed}")
    return lines[:6]


SIZES = "sizes "
"""How the name of a check at other sizes begins, behind `forward, ` or `gradient, `; the sizes follow it."""


def _sizes_tried(rows: Sequence[CheckRow]) -> str:
    """Return in words which sizes each symbol had in these comparisons, `s0 = 2, 7; s1 = 3`; '' if none was made at
    other sizes. They are read from the names of checks, as in `forward, sizes s0=2, s1=3`."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        if SIZES not in row.check:
            continue
        _, _, sizes_text = row.check.partition(SIZES)
        for part in sizes_text.split(", "):
            name, _, size = part.partition("=")
            sizes.setdefault(name, set()).add(int(size))
    return "; ".join(f"{name} = {', '.join(map(str, sorted(tried)))}" for name, tried in sizes.items())


def _time_line(time: SolutionTime) -> str:
    """Return a time in a line."""
    span = f"{time.faster:.2f} times as fast as eager ({time.low:.2f} to {time.high:.2f})"
    return f"  {time.what}: {1e6 * time.seconds:.1f} µs, {span}"


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of a set: the path of each, how often its part occurs, and whether it is held out."""

    out: Path
    rows: tuple[Mapping[str, Any], ...]
    skipped: tuple[tuple[str, str], ...]
    """The parts that became no task, and why."""
