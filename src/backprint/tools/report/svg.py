"""The parts of a picture in SVG: text, lines, shapes, scales and legends.

Colors come from the classes of the page (`tools/report/formats`), so that a picture follows light and dark, and no
attribute is a style, which the policy of the page forbids. Every text is escaped.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from backprint.tools.report.nouns import one_line

SERIES = 8
"""The number of colors; further series repeat them with dashed lines."""

MARKS = (
    "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z",
    "M-3 -3h6v6h-6z",
    "M0 -4l4 6.6h-8z",
    "M0 -4.2l4.2 4.2l-4.2 4.2l-4.2 -4.2z",
    "M0 4l4 -6.6h-8z",
    "M-4 -1.3h2.7v-2.7h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7z",
    "M-4 0l2 -3.5h4l2 3.5l-2 3.5h-4z",
    "M-3.4 -3.4h6.8l-6.8 6.8h6.8z",
)
"""A shape for each color, around the origin."""


def shorter(text: str, letters: int) -> str:
    """Return a text shortened to at most `letters` letters."""
    line = one_line(text)
    return line if len(line) <= letters else f"{line[: letters - 1]}…"


def middle_out(text: str, letters: int) -> str:
    """Return a text shortened to at most `letters` letters in its middle: names often differ at their ends."""
    line = one_line(text)
    half = (letters - 1) // 2
    return line if len(line) <= letters else f"{line[: letters - 1 - half]}…{line[-half:]}"


BREAKS = re.compile(r"(?<=[_:.\-/ ])")
"""Where a name may go on in the next line."""


def wrapped(text: str, letters: int) -> list[str]:
    """Return a name in lines of about so many letters, which break where its words do."""
    lines = [""]
    for word in BREAKS.split(one_line(text)):
        if lines[-1] and len(lines[-1]) + len(word) > letters:
            lines.append("")
        lines[-1] += word
    return lines


def label(
    x: float, y: float, text: str, *, anchor: str = "middle", letters: int = 60, kind: str = "label", turn: int = 0
) -> str:
    """Return a text at a place; a text that is cut off has its whole in a title."""
    shown = shorter(text, letters)
    title = f"<title>{html.escape(one_line(text))}</title>" if shown != one_line(text) else ""
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}'
    return f'<text class="{kind}" {place}>{html.escape(shown)}{title}</text>'


def rule(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def series_class(index: int) -> str:
    """Return the classes of a series: its color, and dashes from the second round of colors on."""
    return f"s{index % SERIES}" + (" dashed" if index >= SERIES else "")


def polyline(points: Iterable[tuple[float, float]], index: int) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="curve {series_class(index)}" points="{places}"/>'


def marker(x: float, y: float, index: int, kind: str = "mark") -> str:
    """Return the shape of a series at a place."""
    shape = MARKS[index % SERIES]
    return f'<path class="{kind} {series_class(index)}" transform="translate({x:.1f} {y:.1f})" d="{shape}"/>'


def drawing(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """Return a whole SVG of these parts."""
    inside = "".join(parts)
    label_text = html.escape(one_line(title), quote=True)
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return f'<svg class="picture" role="img" aria-label="{label_text}" {size}>{inside}</svg>'


LEGEND_LETTERS = 64
"""A longer name loses its middle."""

LETTER = 7.0
"""How wide a letter is at most, on average over a name."""

LEGEND_LINE = 18


def _legend_width(names: Iterable[str]) -> float:
    """Return the room that a legend of these names takes."""
    return 46 + LETTER * max((len(middle_out(name, LEGEND_LETTERS)) for name in names), default=0)


def legend(x: float, y: float, names: Sequence[str]) -> Iterable[str]:
    """Yield mark and name of each series, one below the other."""
    for index, name in enumerate(names):
        middle = y + index * LEGEND_LINE
        yield polyline([(x, middle), (x + 18, middle)], index)
        yield marker(x + 9, middle, index)
        yield label(x + 24, middle + 4, middle_out(name, LEGEND_LETTERS), anchor="start", letters=LEGEND_LETTERS)


@dataclass(frozen=True, slots=True)
class LogScale:
    """A logarithmic axis: values between `low` and `high` lie between `start` and `end`, others at the nearest end."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return where a value lies."""
        within = min(max(value, self.low), self.high)
        share = math.log(within / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 7) -> tuple[float, ...]:
        """Return round values on the axis, at most so many."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for steps in ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
            values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
            inside = tuple(value for value in values if self.low * 0.999 <= value <= self.high * 1.001)
            if len(inside) <= most:
                break
        return inside[:: -(-len(inside) // most) or 1]


def range_around(values: Iterable[float], least: float = 1.5) -> tuple[float, float]:
    """Return a range that has all positive values and 1, a bit wider, and at least this factor each way in sum."""
    known = [value for value in values if 0 < value < math.inf] + [1.0]
    low, high = min(known) / 1.08, max(known) * 1.08
    return (low / math.sqrt(least), high * math.sqrt(least)) if high / low < least else (low, high)


def powers_of_two(scale: LogScale, most: int = 9) -> tuple[float, ...]:
    """Return the powers of two on an axis, or of four, 16 and 256 where it is long."""
    first, last = math.log2(scale.low), math.log2(scale.high)
    space = next((each for each in (1, 2, 4, 8) if (last - first) / each <= most), 16)
    count = range(math.ceil(first / space), math.floor(last / space) + 1)
    return tuple(2.0 ** (place * space) for place in count)


# ------------------------------------------------------------------ charts

HEIGHT = 340.0

LEFT, TOP, BOTTOM = 68.0, 16.0, 46.0
"""Room around the axes; on the right is as much as the legend takes."""

EDGE = 434.0
"""Where the axes end on the right."""

Point = tuple[float, float]


def chart(
    title: str,
    series: Mapping[str, Sequence[Point]],
    values: Iterable[str],
    ticks: Iterable[tuple[float, str]],
    across: str,
    *,
    joined: bool = True,
    mark: str = "mark",
) -> str:
    """Draw series of places with a legend, beside the axis of their `values` and above the `ticks` of the other one."""
    height = height_for(len(series))
    parts = [*values]
    for x, text in ticks:
        parts += [rule(x, height - BOTTOM, x, height - BOTTOM + 4, "axis"), label(x, height - BOTTOM + 17, text)]
    parts.append(label((LEFT + EDGE) / 2, height - 8, across))
    for index, places in enumerate(series.values()):
        parts += [polyline(places, index)] if joined else []
        parts += [marker(x, y, index, mark) for x, y in places] if mark else []
    parts += legend(EDGE + 14, TOP + 8, tuple(series))
    return drawing(EDGE + _legend_width(series), height, title, parts)


def height_for(count: int) -> float:
    """Return the height of a picture whose legend has so many lines."""
    return max(HEIGHT, TOP + BOTTOM + count * LEGEND_LINE)


def value_axis(
    scale: LogScale, ticks: Sequence[float], right: float, name: str, text: Callable[[float], str] | None = None
) -> Iterator[str]:
    """Yield the vertical axis with its grid; the line of 1 stands out."""
    for tick in ticks:
        y = scale.place(tick)
        yield rule(LEFT, y, right, y)
        yield label(LEFT - 6, y + 4, (text or _ratio_text)(tick), anchor="end")
    yield rule(LEFT, scale.place(1.0), right, scale.place(1.0), "one")
    yield rule(LEFT, scale.start, right, scale.start, "axis")
    yield label(14, (scale.start + scale.end) / 2, name, turn=-90)


def _ratio_text(value: float) -> str:
    """Return a tick of a ratio, such as 0.25×."""
    return f"{value:.3g}×" if 1e-3 <= value < 1e5 else f"{value:.0e}×"
