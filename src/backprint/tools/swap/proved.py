"""What a proof of a swap returns: a row for every comparison, and a table of them.

A place is one module whose forward the swap replaces. A row (CheckRow) has what was compared (`check`), the dtype, the
`name` of the result, the error, what is allowed, and a verdict: `ok`, `wrong`, or `not tried: ` and the reason; a row
is `tried` unless it is the last. The check of a row of one place alone begins with ALONE, as in `alone, gradient,
values nearby`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backprint.derive.checked import (
    NOT_TRIED,
    OK,
    WRITTEN,
    WRONG,
    CheckRow,
    checks_by_text,
    error_number_text,
    html_of_rows,
    shown_rows,
    table_lines,
)
from backprint.errors import CheckError
from backprint.graph.keys import in_a_line

GOOD, UNPROVEN = "good", "unproven"

CALLS, GRADIENT, LOSS = "calls", "gradient", "loss"
"""The first words of the rows that say whether a place ran, and of those of the whole model's gradients and loss."""

SETTINGS = "settings"
"""The check whose rows name what a solution changes in the process, as its seed or its default dtype."""

ALONE = "alone, "
"""The beginning of the checks of one place alone."""


@dataclass(frozen=True, slots=True)
class SwapProof:
    """Every comparison of a model's step before and after a swap, and of each place alone.

    `own` is the model's own dtype, as the rows have it, and `places` are the paths of the places. A row's `name` is
    that of the gradient, output or buffer; of a place alone it begins with the path.
    """

    name: str
    own: str
    places: tuple[str, ...]
    rows: tuple[CheckRow, ...]

    @property
    def wrong(self) -> tuple[CheckRow, ...]:
        """The rows that are wrong."""
        return tuple(row for row in self.rows if row.verdict == WRONG)

    @property
    def missing(self) -> tuple[str, ...]:
        """What was not compared and has to be, in words: a place that did not run, or a gradient."""
        return tuple(_missing_from(self))

    @property
    def good(self) -> bool:
        """Whether nothing is wrong, the solution ran at every place in the model's own dtype, an output and a gradient
        of each place were compared there, and every gradient of the whole model was compared in one dtype."""
        return not self.wrong and not self.missing

    @property
    def verdict(self) -> str:
        """`good`, `wrong` or `unproven`."""
        return WRONG if self.wrong else UNPROVEN if self.missing else GOOD

    def __str__(self) -> str:
        return "\n".join([summary(self), "", *table_lines(shown_rows(self.rows)), *explanation(self)])

    def __repr__(self) -> str:
        return f"SwapProof({in_a_line(summary(self))})"

    def _repr_html_(self) -> str:
        return html_of_rows(summary(self), self.rows, explanation(self))

    def raise_if_wrong(self) -> None:
        """Raise CheckError, an AssertionError, with the table unless the proof is good."""
        if not self.good:
            raise CheckError(f"{self}")


def _missing_from(proof: SwapProof) -> Iterator[str]:
    """Yield, in words, what was not compared and has to be: of each place, that its solution ran, its outputs, and each
    other kind of result that it has, in the model's own dtype; of the whole model, the loss and each gradient, in some
    dtype."""
    for path in proof.places:
        calls = [row for row in proof.rows if row.check == CALLS and row.name == path and row.dtype == proof.own]
        if not any(row.tried for row in calls):
            reason = calls[0].verdict.removeprefix(f"{NOT_TRIED}: ") if calls else "the step was not run"
            yield f"{path}: {reason}"
            continue
        rows = [row for row in _rows_of_place(proof, path) if row.check.startswith(ALONE)]
        kinds = {"output", *map(_kind_of_result, rows)}
        for kind in sorted(kinds - {_kind_of_result(row) for row in rows if row.tried}):
            yield f"{path}: no {kind} of it alone was compared in {proof.own}"
    is_compared: dict[str, bool] = {}  # by the name of the loss or the gradient
    for row in proof.rows:
        if row.check.startswith((GRADIENT, LOSS)):
            is_compared[row.name] = is_compared.get(row.name, False) or row.tried
    yield from (f"{name}: it was compared in no dtype" for name, compared in is_compared.items() if not compared)
    if not is_compared:
        yield "no loss and no gradient was compared"


def _kind_of_result(row: CheckRow) -> str:
    """Return what a row of one place alone compares, `output`, `gradient` or `buffer`: the second word of its check, as
    in `alone, gradient, values nearby`."""
    return row.check.removeprefix(ALONE).partition(",")[0]


def _rows_of_place(proof: SwapProof, path: str) -> list[CheckRow]:
    """Return the rows of one place in the model's own dtype; their names begin with its path."""
    return [row for row in proof.rows if row.dtype == proof.own and row.name.startswith(f"{path}: ")]


def summary(proof: SwapProof) -> str:
    """Return what came of a proof, in a line."""
    tried = sum(row.tried for row in proof.rows)
    parts = [f"{len(proof.places)} {'place' if len(proof.places) == 1 else 'places'}", f"{tried} comparisons"]
    if proof.wrong:
        parts.append(f"{len(proof.wrong)} wrong")
    if left := len(proof.rows) - tried:
        parts.append(f"{left} not tried")
    return f"{proof.name}: {proof.verdict} ({', '.join(parts)})"


SHOWN = 5
"""The most things that a list of what is missing names."""


def explanation(proof: SwapProof) -> Iterator[str]:
    """Yield what is said below the table: reasons, the first fault, and what is missing."""
    # The checks by reason. [2:] drops the colon and the blank of `not tried: the reason`.
    reasons = checks_by_text(proof.rows, lambda row: "" if row.tried else row.verdict.removeprefix(NOT_TRIED)[2:])
    if reasons:
        yield from ("", "Not tried:")
        yield from (f"  {'; '.join(dict.fromkeys(checks))}: {text}" for text, checks in reasons.items())
    if proof.wrong:
        # A fault that names a place is named before one of a gradient of the whole model: '' begins every check.
        beginnings = (WRITTEN, SETTINGS, ALONE, "")
        first = min(proof.wrong, key=lambda row: [row.check.startswith(word) for word in beginnings].index(True))
        about = f"First fault: {first.check}, {first.dtype}: {first.name} is wrong"
        if first.error is not None and first.allowed is not None:
            about += f" by {error_number_text(first.error)}, where {error_number_text(first.allowed)} is allowed"
        yield from ("", about)
        if first.detail:
            yield f"  {first.detail}"
    elif proof.missing:
        yield from ("", "Unproven:", *(f"  {text}" for text in proof.missing[:SHOWN]))
        if len(proof.missing) > SHOWN:
            yield f"  and {len(proof.missing) - SHOWN} more"


__all__ = ["ALONE", "CALLS", "GRADIENT", "LOSS", "NOT_TRIED", "OK", "WRITTEN", "WRONG", "SwapProof"]
