"""The pictures of a report, drawn by matplotlib as SVG: speedups over samples, and a history over runs.

matplotlib is the extra `pictures`: a page without it has no pictures, and says so.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from backprint.common.text import one_line
from backprint.table.nouns import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MISSING = "Pictures need matplotlib, which is not installed: pip install '.[pictures]' in Backprint's folder"

SIZE = (8.0, 4.0)
"""Inches."""

STEADY: Any = {"svg.hashsalt": "backprint", "svg.fonttype": "none", "text.parse_math": False}
"""Settings by which equal numbers make equal files, letters stay letters, and a name is no formula."""


def svg_of(picture: Picture) -> str | None:
    """Return a picture as the text of an SVG file; None without matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return None
    file = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context(STEADY):
        warnings.simplefilter("ignore")  # a letter that the font lacks is drawn as a box
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        DRAWN[picture.draw](axes, picture)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _label(name: str) -> str:
    """Return a name as a label; one that begins with `_` would be left out."""
    return " " + one_line(name)


def _speedups(axes: Axes, picture: Picture) -> None:
    """Draw for each compiler the speedups of its graphs, from the slowest to the fastest; without those that are not
    finite or not above 0, which the logarithm of the axis does not have."""
    for name, values in picture.series.items():
        ordered = sorted(value for value in values if 0 < value < math.inf)
        axes.plot([(place + 1) / len(ordered) for place in range(len(ordered))], ordered, ".-", label=_label(name))
    axes.axhline(1.0, color="0.5", linestyle=":")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}×")
    axes.yaxis.set_minor_formatter("")
    axes.set(xlabel="share of the graphs", ylabel="times as fast as eager")


def _history(axes: Axes, picture: Picture) -> None:
    """Draw for each compiler a value in each run."""
    for name, values in picture.series.items():
        axes.plot(range(len(values)), values, "o-", label=_label(name))
    axes.axhline(1.0, color="0.5", linestyle=":")
    axes.set_xticks(range(len(picture.names)), [_label(name) for name in picture.names], rotation=30, ha="right")
    axes.set_ylabel("times as fast as eager")


DRAWN: Mapping[str, Callable[[Axes, Picture], None]] = {"speedups": _speedups, "history": _history}
