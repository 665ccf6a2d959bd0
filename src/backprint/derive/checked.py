"""What `bp.check` returns: a row for every comparison, and a table of them.

`check` is the name of a comparison, such as `gradient, random tangents`: its first word says what was compared
(FORWARD, GRADIENT, …), the rest with which tangents or inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backprint.errors import CheckError
from backprint.graph.keys import in_a_line

if TYPE_CHECKING:
    from backprint.derive.reproduced import Fault

OK, WRONG, NOT_TRIED = "ok", "wrong", "not tried"

FORWARD = "forward"
"""The check that compares the outputs with the reference's; other checks of outputs begin with this word."""

GRADIENT, DERIVATIVE = "gradient", "derivative"
"""The first words of the checks that say whether a gradient is right."""


WRITTEN = "written"
"""The check whose rows name the tensors that a function writes into and must not."""

PROCESS = "process"
"""The check of the settings, modes and random states that the function leaves."""


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One comparison: what was done, in which dtype, for which output or gradient, and what came of it.

    `error` is the largest absolute difference and `allowed` the largest that is rounding, of the same quantity.
    `verdict` is `ok`, `wrong`, or `not tried: ` and the reason. `detail` has more about a verdict, in words.
    """

    check: str
    dtype: str
    name: str
    error: float | None
    allowed: float | None
    verdict: str
    detail: str = ""

    @property
    def tried(self) -> bool:
        """Whether something was compared."""
        return not self.verdict.startswith(NOT_TRIED)

    @property
    def is_gradient(self) -> bool:
        """Whether a gradient was compared with the right one, and not only with the gradient for other memory."""
        return self.check.startswith((GRADIENT, DERIVATIVE))


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Every comparison that `bp.check` made of a function, in the order in which they were made."""

    name: str
    rows: tuple[CheckRow, ...]
    fault: Fault | None = None
    """The first wrong row that one call shows, with its tensors, for `write_repro`."""

    @property
    def wrong(self) -> tuple[CheckRow, ...]:
        """The rows that are wrong."""
        return tuple(row for row in self.rows if row.verdict == WRONG)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong, a gradient was compared with the right one, and, if there is a reference, an output
        was compared with its output in each dtype."""
        is_forward_tried_by_dtype: dict[str, bool] = {}
        for row in self.rows:
            # A dtype in which the outputs could not be compared must not pass because another dtype could.
            if row.check == FORWARD:
                is_forward_tried_by_dtype[row.dtype] = is_forward_tried_by_dtype.get(row.dtype, False) or row.tried
        compared = any(row.tried and row.is_gradient for row in self.rows) and all(is_forward_tried_by_dtype.values())
        return compared and not self.wrong

    def __str__(self) -> str:
        return "\n".join([summary(self), "", *table_lines(shown_rows(self.rows)), *_explanation(self)])

    def __repr__(self) -> str:
        return f"CheckReport({in_a_line(summary(self))})"

    def _repr_html_(self) -> str:
        return html_of_rows(summary(self), self.rows, _explanation(self))

    def raise_if_wrong(self) -> None:
        """Raise CheckError, an AssertionError, with the table if something is wrong or no gradient was compared."""
        if not self.good:
            raise CheckError(f"{self}")

    def write_repro(self, path: str | Path) -> Path:
        """Write one Python file that shows the first fault with PyTorch alone, and return its path.

        It imports the function, makes the inputs and the tangents, and prints the function's result beside the one that
        was expected. UsageError names what cannot be written, as a function that no module has under a name.
        """
        from backprint.derive.reproduced import write_fault

        return write_fault(self.name, self.fault, Path(path))


# ---- Text


def summary(report: CheckReport) -> str:
    """Return the outcome of a check in one line: `silu: wrong (34 comparisons, 2 wrong)`."""
    tried = sum(row.tried for row in report.rows)
    not_tried = len(report.rows) - tried
    parts = [f"{tried} comparisons"]
    if report.wrong:
        parts.append(f"{len(report.wrong)} wrong")
    if not_tried:
        parts.append(f"{not_tried} not tried")
    word = "good" if report.good else "wrong" if report.wrong else "not compared"
    return f"{report.name}: {word} ({', '.join(parts)})"


def shown_rows(rows: Sequence[CheckRow]) -> Iterator[CheckRow]:
    """Yield the rows of the table: neighbours of one check that are `ok`, or not tried for one reason, are one row."""
    group: list[CheckRow] = []
    for row in rows:
        if group and group_key(row) != group_key(group[0]):
            yield merge_rows(group)
            group = []
        group.append(row)
    if group:
        yield merge_rows(group)


def group_key(row: CheckRow) -> tuple[str, str, str]:
    """Return the key of a row: neighbours with one key are shown as one row. The key of a wrong row has its name in
    it."""
    return row.check, row.dtype, f"{row.verdict} {row.name}" if row.verdict == WRONG else row.verdict


def merge_rows(group: Sequence[CheckRow]) -> CheckRow:
    """Return rows as one, with the numbers of the row whose error is the largest part of what is allowed, and the names
    and details of all."""
    worst = max(group, key=lambda row: (row.error or 0.0) / row.allowed if row.allowed else 0.0)
    names = ", ".join(dict.fromkeys(row.name for row in group))
    detail = "; ".join(dict.fromkeys(row.detail for row in group if row.detail))
    return CheckRow(worst.check, worst.dtype, names, worst.error, worst.allowed, worst.verdict, detail)


HEADS = ("check", "dtype", "of", "error", "allowed", "verdict")

MAX_NAME_LENGTH = 40
"""The most letters of the names of the outputs or gradients of one row."""


def table_lines(rows: Iterator[CheckRow]) -> Iterator[str]:
    """Yield the lines of the table, aligned, but for the last column, the verdict, which is not padded."""
    cells = [HEADS, *map(_cells_of, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADS) - 1)]
    for *padded_cells, verdict in cells:
        padded = [
            text.rjust(width) if head in ("error", "allowed") else text.ljust(width)
            for head, text, width in zip(HEADS[:-1], padded_cells, widths, strict=True)
        ]
        yield "  ".join([*padded, verdict]).rstrip()


def _cells_of(row: CheckRow) -> tuple[str, ...]:
    """Return the cells of a row of the table, in the order of HEADS."""
    names = row.name if len(row.name) <= MAX_NAME_LENGTH else row.name[: MAX_NAME_LENGTH - 2] + " …"
    verdict = row.verdict if row.tried else NOT_TRIED
    return row.check, row.dtype, names, error_number_text(row.error), error_number_text(row.allowed), verdict


def html_of_rows(summary: str, rows: Sequence[CheckRow], explanation: Iterable[str]) -> str:
    """Return what a notebook shows of comparisons: their summary, `NAME: good (…)`, the table, and what stands below
    it."""
    from backprint.table.notebook import html_of
    from backprint.table.nouns import Report, Table

    kinds = ("name", "text", "text", "digits", "digits", "word")
    table = Table("", dict(zip(HEADS, kinds, strict=True)), [_cells_of(row) for row in shown_rows(rows)])
    name, _, answer = summary.rpartition(": ")
    return html_of(Report(name, answer, (), table), list(explanation)[1:])  # [1:]: an empty line parts it in a text


def error_number_text(value: float | None) -> str:
    """Return an error as text: two digits say enough."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"


def _explanation(report: CheckReport) -> Iterator[str]:
    """Yield what is said below the table: why something was not tried, what is said of what is right, and the first
    fault."""
    reasons = checks_by_text(report.rows, lambda row: "" if row.tried else row.verdict.removeprefix(f"{NOT_TRIED}: "))
    details_of_right = checks_by_text(report.rows, lambda row: row.detail if row.verdict == OK else "")
    for title, texts in (("Not tried:", reasons), ("Said of what is ok:", details_of_right)):
        if texts:
            yield from ("", title)
            yield from (f"  {'; '.join(dict.fromkeys(checks))}: {text}" for text, checks in texts.items())
    wrong = report.wrong
    if wrong:
        yield from ("", *_first_fault(report, wrong[0]))
    elif not report.good:
        if any(row.tried and row.is_gradient for row in report.rows):
            yield from ("", "The reference was not compared: the reasons are above. Without `like` it is not needed.")
        else:
            yield from ("", "No gradient was compared with what it must be: nothing is known of the backward.")


def checks_by_text(rows: Sequence[CheckRow], text_of: Callable[[CheckRow], str]) -> dict[str, list[str]]:
    """Return the checks of the rows that have a text, by their texts."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        if text := text_of(row):
            texts.setdefault(text, []).append(row.check)
    return texts


def _first_fault(report: CheckReport, first: CheckRow) -> Iterator[str]:
    """Yield the lines about the first wrong row (`first`): what is wrong, by how much, with which tangents it is right,
    and where if known."""
    what = first.name if first.check.startswith(OUTPUTS) else f"the gradient of {first.name}"
    about = f"First fault: {first.check}, {first.dtype}: {what} is wrong"
    if first.error is None or first.allowed is None or first.check == DERIVATIVE:
        yield about
    else:
        yield f"{about} by {error_number_text(first.error)}, where {error_number_text(first.allowed)} is allowed"
    if first.detail:
        yield from _indented(first.detail)
    yield from _by_tangents(report.rows, first)
    derivative = [row for row in report.rows if row.check.startswith(DERIVATIVE) and row.tried and row is not first]
    yield from (line for row in derivative if row.verdict == WRONG for line in _indented(row.detail))
    if first.check.startswith(GRADIENT) and derivative and all(row.verdict == OK for row in derivative):
        yield "  Its backward is the derivative of its own forward, in float64 and near these inputs."


OUTPUTS = (FORWARD, "same output", WRITTEN, PROCESS)
"""The first words of checks whose rows name something else than a gradient."""


def _indented(text: str) -> list[str]:
    """Return the lines of a text, indented for the explanation below the table."""
    return [f"  {line}" for line in text.splitlines()]


def _by_tangents(rows: Sequence[CheckRow], first: CheckRow) -> Iterator[str]:
    """Yield the kinds of tangents with which the first wrong gradient is wrong too, and the kinds with which it is
    right."""
    kind = first.check.partition(", ")[0] + ", "  # as `gradient, `, before the kind of tangents
    rows_of_gradient = [
        row for row in rows if row.name == first.name and row.dtype == first.dtype and row.check.startswith(kind)
    ]
    right, wrong = (
        [row.check.removeprefix(kind) for row in rows_of_gradient if row.verdict == verdict] for verdict in (OK, WRONG)
    )
    if not wrong or kind.startswith(OUTPUTS):  # a row about no gradient has no tangents
        return
    if right:
        yield f"  wrong with {', '.join(wrong)}"
        yield f"  right with {', '.join(right)}"
    else:
        yield "  wrong with every kind of tangents and inputs that was tried"
