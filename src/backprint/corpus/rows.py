"""A sample's row: its columns, and the values that each may have. An invalid row is replaced by one that says why.

Rows are checked where they are made (the sample's process), where they enter (a worker, the parent), and where they are
written, because a stranger's code runs in between.
"""

from __future__ import annotations

import json
import math
import operator
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from backprint.corpus.task import failure
from backprint.errors import UsageError
from backprint.graph.verdicts import VERDICTS

COLUMNS: Mapping[str, str] = {
    "id": "text primary key",
    "path": "text",
    "family": "text",
    "kind": "text",
    "source_hash": "text",
    "state": "text",
    "attempts": "integer",
    "verdict": "text",
    "cause": "text",
    "detail": "text",
    "stage": "text",
    "seconds": "real",
    "stages": "json",
    "peak_bytes": "integer",
    "engine": "text",
    "mode": "text",
    "forward_hash": "text",
    "backward_hash": "text",
    "forward_shape": "text",
    "backward_shape": "text",
    "forward_steps": "integer",
    "backward_steps": "integer",
    "saved_bytes": "integer",
    "inputs": "integer",
    "gradients": "integer",
    "outputs": "integer",
    "input_bytes": "integer",
    "disk_bytes": "integer",
    "power": "real",
    "vacuous": "json",
    "asks": "json",
    "notes": "json",
    "guards": "integer",
    "worker": "text",
    "started": "real",
    "finished": "real",
    "versions": "json",
    "operators": "json",
}
"""The columns of a row: `stages` (stage -> seconds), `versions` and `operators` (`forward aten.mm.default float32` ->
calls) are JSON objects, `vacuous`, `asks` and `notes` lists."""

ADDED = ("operators",)
"""Columns that ledgers of earlier versions of Backprint do not have; there they are empty."""

GIVEN = ("id", "path", "family", "kind", "source_hash", "state", "attempts")
"""Columns that the ledger sets; a verb sets the others."""

NO_ROW = "no row"
"""The cause of a sample with an invalid row."""

LONGEST = 1 << 16
"""The most characters of a text."""

LARGEST = 1 << 22
"""The most characters of a list or an object, as JSON."""


def row_to_keep(given: Any) -> dict[str, Any]:
    """Return the row of a verb, or one that says why it is invalid."""
    try:
        return checked_row(given)
    except UsageError as error:
        return failure(NO_ROW, str(error), "done")


def checked_row(row: Any) -> dict[str, Any]:
    """Return a verb's row with each value in its column's form; raise UsageError with the name of an invalid column."""
    if not isinstance(row, Mapping):
        raise UsageError(f"the verb returned {type(row).__name__}, and a verb returns a dict")
    for key in row:
        if type(key) is not str or key not in COLUMNS or key in GIVEN:
            raise UsageError(
                f"a verb's row has {seen(key)}, which is not one of {', '.join(set(COLUMNS) - set(GIVEN))}"
            )
    verdict = row.get("verdict")
    if type(verdict) is not str or verdict not in VERDICTS:
        raise UsageError(f"a verb's row has verdict {seen(verdict)}, which is not one of {', '.join(VERDICTS)}")
    found = {key: None if value is None else column(key, value) for key, value in row.items()}
    return {**found, "cause": found.get("cause") or ""}


def column(key: str, value: Any) -> Any:
    """Return a value in its column's form."""
    words, keep = KEEPERS.get(key) or KINDS[COLUMNS[key].split()[0]]
    try:
        return keep(value)
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError) as error:
        why = f": {error}" if type(error) is Unkept else ""
        raise UsageError(f"a verb's row has {key} {seen(value)}, and {key} is {words}{why}") from None


class Unkept(ValueError):
    """A value of the right type that its column cannot keep; says why."""


def seen(value: Any) -> str:
    """Return a short text for a stranger's value."""
    try:
        return reprlib.repr(value)[:80]
    except Exception:  # a user's repr may raise; so does an int with too many digits
        return f"a {type(value).__name__}"


# ------------------------------------------------------------------ what a column keeps


def encodable_text(value: Any) -> str:
    """Return a text with lone surrogates escaped."""
    if not isinstance(value, str):
        raise TypeError
    if len(value) > LONGEST:
        raise Unkept(f"{len(value):,} characters, at most {LONGEST:,} are kept")
    return value.encode("utf-8", "backslashreplace").decode()


def whole_number(value: Any) -> int:
    """Return an integer of 64 bits."""
    number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


def finite_number(value: Any) -> float:
    """Return a finite number."""
    if isinstance(value, (str, bytes)):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise Unkept("it is not finite")
    return number


def number_or_infinity(value: Any) -> float:
    return math.inf if value in ("inf", math.inf) else finite_number(value)


def texts(value: Any) -> list[str]:
    return small([encodable_text(item) for item in list_of(value)])


def pairs(value: Any) -> list[list[str]]:
    """Return a list of pairs of texts."""
    return small([[encodable_text(left), encodable_text(right)] for left, right in map(list_of, list_of(value))])


def numbers_by_name(value: Any) -> dict[str, float]:
    return small({encodable_text(key): finite_number(item) for key, item in value.items()})


def counts_by_name(value: Any) -> dict[str, int]:
    return small({encodable_text(key): whole_number(item) for key, item in value.items()})


def words(value: Any) -> dict[str, Any]:
    """Return texts, or numbers, by name."""
    return small(
        {
            encodable_text(key): encodable_text(item) if isinstance(item, str) else finite_number(item)
            for key, item in value.items()
        }
    )


def list_of(value: Any) -> Any:
    """Return a list or a tuple."""
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return value


def small(value: Any) -> Any:
    """Return a value that is not too long as JSON."""
    if (size := len(json.dumps(value))) > LARGEST:
        raise Unkept(f"{size:,} characters of JSON, at most {LARGEST:,} are kept")
    return value


Keeper = tuple[str, Callable[[Any], Any]]

KINDS: Mapping[str, Keeper] = {
    "text": ("a text", encodable_text),
    "integer": ("a whole number of 64 bits", whole_number),
    "real": ("a finite number", finite_number),
}

KEEPERS: Mapping[str, Keeper] = {
    "power": ("a number, or infinity", number_or_infinity),
    "vacuous": ("a list of texts", texts),
    "notes": ("a list of texts", texts),
    "asks": ("a list of pairs of texts", pairs),
    "stages": ("an object of numbers", numbers_by_name),
    "versions": ("an object of texts and numbers", words),
    "operators": ("an object of whole numbers of 64 bits", counts_by_name),
}
