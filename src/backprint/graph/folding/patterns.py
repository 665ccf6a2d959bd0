"""Series as Python expressions, and as patterns in comments: `view_{20+12*i} (at 3 last_view)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backprint.graph.folding.series import INDEXES, Index, Series
from backprint.graph.text import quote, show


def braced(text: str) -> str:
    """Return a text as it stands in a pattern."""
    return text.replace("{", "{{").replace("}", "}}")


def pattern(series: Series) -> str:
    """Return a Series as a pattern: `view_{20+12*i}`."""
    pieces = [braced(series.parts[0])]
    for number, part in zip(series.numbers, series.parts[1:], strict=True):
        pieces += (f"{{{number}}}" if any(number.steps) else str(number), braced(part))
    return "".join(pieces)


def pattern_with_odd(series: Series) -> str:
    """Return a Series as a pattern, with the iterations that have something else: `view_{2*i} (at 0 view; at 7 x)`."""
    odd = "; ".join(f"at {numbers_of(index)} {value}" for index, value in series.odd)
    return " ".join(([pattern(series)] if series.parts else []) + ([f"({odd})"] if odd else []))


def numbers_of(index: Index) -> str:
    """Return the numbers of an iteration as comments have them: `3, 0`."""
    return ", ".join(map(str, index))


def text_expression(series: Series) -> str:
    """Return a Series of texts as an expression."""
    return chosen(series, f"f{quote(pattern(series))}" if series.parts else None, quote)


def number_expression(series: Series) -> str:
    """Return a Series of numbers as an expression."""
    return chosen(series, str(series.numbers[0]) if series.numbers else None, show)


def chosen(series: Series, regular: str | None, shown: Callable[[Any], str]) -> str:
    """Return an expression that is the regular one but for the iterations that are odd."""
    if regular is not None and not series.odd:
        return regular
    axes = len(series.odd[0][0])
    here = ", ".join(INDEXES[:axes])
    if regular is not None and len(series.odd) == 1:
        ((index, value),) = series.odd
        return f"{shown(value)} if {key_of(here, axes)} == {index_text(index)} else {regular}"
    rows = ", ".join(f"{index_text(index)}: {shown(value)}" for index, value in series.odd)
    return f"{{{rows}}}.get({key_of(here, axes)}, {regular})" if regular is not None else f"{{{rows}}}[{here}]"


def key_of(here: str, axes: int) -> str:
    return here if axes == 1 else f"({here})"


def index_text(index: Index) -> str:
    return str(index[0]) if len(index) == 1 else str(index)
