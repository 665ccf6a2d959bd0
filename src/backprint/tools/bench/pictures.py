"""The pictures of a run of compilers, and the short names of the compilers in pictures and narrow columns."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from backprint.tools.graphnet.scores import (
    ScoredSample,
    ScorePoint,
    ScoreTerms,
    right_and_timed,
    right_speedups,
    score_curve,
)
from backprint.tools.report.nouns import Figure
from backprint.tools.report.svg import (
    BOTTOM,
    EDGE,
    HEIGHT,
    LEFT,
    TOP,
    LogScale,
    chart,
    drawing,
    height_for,
    label,
    marker,
    powers_of_two,
    range_around,
    rule,
    series_class,
    value_axis,
    wrapped,
)

FUNCTION_IN_FILE = re.compile(r".*[/\\](?P<name>[^/\\]+\.py:[^/\\]+)", re.DOTALL)
"""The name of a compiler that is a function of the user's: `FOLDER/FILE.py:FUNCTION`."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return, for each name, the name without its folder. If several would then be the same, they keep their
    folders."""
    full_names = list(dict.fromkeys(names))
    matches = [FUNCTION_IN_FILE.fullmatch(name) for name in full_names]
    short = [match["name"] if match else name for match, name in zip(matches, full_names, strict=True)]
    return {
        name: short_name if short.count(short_name) == 1 else name
        for name, short_name in zip(full_names, short, strict=True)
    }


# ------------------------------------------------------------------ curves, violins, and speedup by size
#
# All are drawn from ScoredSamples, so that the pictures of a run and of a GraphNet log agree.

Scored = Mapping[str, Sequence[ScoredSample]]
"""The samples of each compiler, or of each log, by its name."""

WIDTH = 620.0


def pictures(scored: Scored) -> tuple[Figure, ...]:
    """Return the pictures of the samples that have a measured time; none if there are no such samples."""
    measured = {
        name: tuple(scored_sample for scored_sample in samples if scored_sample.measured)
        for name, samples in scored.items()
    }
    short = short_names(measured)
    by_short_name = {short[name]: samples for name, samples in measured.items() if samples}
    if not by_short_name:
        return ()
    speeds = {name: right_speedups(samples) for name, samples in by_short_name.items()}
    figures = [*_curve_pictures(by_short_name)]
    if any(speeds.values()):
        figures.append(_violin_picture(speeds))
    all_samples = [sample for samples in by_short_name.values() for sample in samples]
    if any(operators_of(sample) for sample in all_samples if right_and_timed(sample)):
        figures.append(_size_picture(by_short_name))
    return tuple(figures)


def operators_of(sample: ScoredSample) -> int:
    """Return a sample's number of operators; 0 where it is unknown."""
    count = sample.setting("operators")
    return int(count) if count.isdecimal() else 0


# --- curves -----------------------------------------------------------------------------------------------------------

CURVE_NOTES = {
    "S(t)": "The geometric mean of speedups, where what is not within level t counts 0.1. Higher is better.",
    "ES(t), default": "From t = 1 on accuracy is forgiven, and from t = 3 on every failure.",
    "ES(t), extended": "From t = 1 on accuracy is forgiven, at 2 mismatches, at 3 failures to run, at 4 to compile.",
}


def _curve_pictures(scored: Scored) -> Iterator[Figure]:
    """Yield the curves of S(t), and of ES(t) in both interpretations."""
    default = {name: score_curve(samples) for name, samples in scored.items()}
    extended = {name: score_curve(samples, ScoreTerms(interpretation="extended")) for name, samples in scored.items()}
    lines = {
        "S(t)": {name: [(point.level, point.s) for point in curve] for name, curve in default.items()},
        "ES(t), default": {name: _es_points(curve) for name, curve in default.items()},
        "ES(t), extended": {name: _es_points(curve) for name, curve in extended.items()},
    }
    for title, series in lines.items():
        yield Figure(title, CURVE_NOTES[title], _curves_svg(title, series))


def _es_points(curve: Sequence[ScorePoint]) -> list[tuple[int, float]]:
    return [(point.level, point.es) for point in curve]


def _curves_svg(title: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Draw a line for each series by level."""
    levels = sorted({level for points in series.values() for level, _ in points})
    height = height_for(len(series))
    scale = LogScale(*range_around(value for points in series.values() for _, value in points), height - BOTTOM, TOP)

    def across(level: int) -> float:
        return LEFT + 14 + (level - levels[0]) / (levels[-1] - levels[0]) * (EDGE - LEFT - 28)

    positions = {
        name: [(across(level), scale.place(value)) for level, value in points] for name, points in series.items()
    }
    ticks = [(across(level), str(level)) for level in levels]
    return chart(title, positions, value_axis(scale, scale.ticks(), EDGE, "score"), ticks, "tolerance level t")


# --- violins ----------------------------------------------------------------------------------------------------------

COLUMN = 112.0

NAME_LINE = 14.0
"""The distance between two lines of a name."""

FEWEST_SHAPED = 5
"""The least number of speedups that are drawn as a violin. Fewer are drawn as dots."""

LEVELS_OF_SHAPE = 60
"""How many steps the density of a violin is computed in."""

FEWEST_TICKS = 4
"""The least number of powers of two on an axis of speedups; with fewer, it has round values."""

VIOLIN_NOTE = (
    "Speedups of what is right at level 0; the bar is from the first to the third quartile, the line in it the median. "
    "Fewer than 5 are dots."
)


def _violin_picture(speeds: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the distribution of each compiler's speedups."""
    width = max(WIDTH, LEFT + 20 + COLUMN * len(speeds))
    shapes = {name: density(values) for name, values in speeds.items() if len(values) >= FEWEST_SHAPED}
    ends = [2.0 ** shape[end][0] for shape in shapes.values() for end in (0, -1)]
    everything = (*ends, *(value for values in speeds.values() for value in values))
    scale = LogScale(*range_around(everything, 2.0), HEIGHT - 60, TOP)
    column = (width - LEFT - 20) / len(speeds)
    names = {name: wrapped(name, int(column / 7.2)) for name in speeds}
    below = HEIGHT - 60 + 22 + NAME_LINE * (max(map(len, names.values())) - 1)
    parts = [*value_axis(scale, _speedup_ticks(scale), width - 20, "speedup")]
    for index, (name, values) in enumerate(speeds.items()):
        middle = LEFT + (index + 0.5) * column
        if name in shapes:
            parts += violin(shapes[name], values, middle, min(column, 150.0) * 0.42, scale, index)
        else:
            parts += [marker(middle, scale.place(value), index) for value in values]
        median = f"median {statistics.median(values):.2f}×" if values else ""
        parts += [
            label(middle, HEIGHT - 38 + NAME_LINE * index_of_line, line, letters=int(column / 6))
            for index_of_line, line in enumerate(names[name])
        ]
        parts.append(label(middle, below + 17, f"n = {len(values):,}", kind="label soft"))
        parts.append(label(middle, below + 32, median, kind="label soft"))
    return Figure("Speedups", VIOLIN_NOTE, drawing(width, below + 38, "Speedups by compiler", parts))


Shape = Sequence[tuple[float, float]]
"""Pairs of a base-two logarithm of a speedup and the density of the speedups there."""


def violin(
    shape: Shape, values: Sequence[float], middle: float, half: float, scale: LogScale, index: int
) -> Iterator[str]:
    """Yield one violin around its middle: the density, the quartiles and the median."""
    highest = max(thick for _, thick in shape)
    sides = [(half * thick / highest, scale.place(2.0**level)) for level, thick in shape]
    outline = [(middle + wide, y) for wide, y in sides] + [(middle - wide, y) for wide, y in reversed(sides)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
    yield f'<polygon class="violin {series_class(index)}" points="{points}"/>'
    quarter, _, three_quarters = statistics.quantiles(values, method="inclusive")
    first, third = scale.place(quarter), scale.place(three_quarters)
    tall = max(first - third, 1.0)
    yield f'<rect class="box" x="{middle - 3:.1f}" y="{third:.1f}" width="6" height="{tall:.1f}"/>'
    median = scale.place(statistics.median(values))
    yield rule(middle - 12, median, middle + 12, median, "median")


def _speedup_ticks(scale: LogScale) -> Sequence[float]:
    """Return powers of two where the axis has several of them, else round values."""
    twos = powers_of_two(scale)
    return twos if len(twos) >= FEWEST_TICKS else scale.ticks()


def density(values: Sequence[float]) -> Shape:
    """Return a Gaussian kernel density estimate of the logarithms of speedups, with the bandwidth of Silverman's
    rule."""
    ordered = sorted(map(math.log2, values))
    quarter, _, three_quarters = statistics.quantiles(ordered, method="inclusive")
    spread = min(statistics.stdev(ordered), (three_quarters - quarter) / 1.34)
    width = max(0.9 * (spread or statistics.stdev(ordered)) * len(ordered) ** -0.2, 0.02)
    low, high = ordered[0] - 2 * width, ordered[-1] + 2 * width
    levels = [low + (high - low) * index / LEVELS_OF_SHAPE for index in range(LEVELS_OF_SHAPE + 1)]
    return [
        (level, math.fsum(math.exp(-(((level - value) / width) ** 2) / 2) for value in ordered)) for level in levels
    ]


# --- speedup by size --------------------------------------------------------------------------------------------------


def _size_picture(scored: Scored) -> Figure:
    """Draw the speedups of samples that are right at level 0, by the number of operators."""
    series = {name: _size_points(samples) for name, samples in scored.items()}
    all_points = [point for points in series.values() for point in points]
    height = height_for(len(series))
    largest = max(size for size, _ in all_points)
    across = LogScale(min(size for size, _ in all_points) / 1.3, largest * 1.3, LEFT + 4, EDGE - 4)
    up = LogScale(*range_around((speedup for _, speedup in all_points), 2.0), height - BOTTOM, TOP)
    positions = {
        name: [(across.place(size), up.place(speed)) for size, speed in points] for name, points in series.items()
    }
    ticks = [(across.place(tick), f"{tick:,.0f}") for tick in across.ticks()]
    axis, title = value_axis(up, _speedup_ticks(up), EDGE, "speedup"), "Speedup by size"
    svg = chart(title, positions, axis, ticks, "operators of the graph", joined=False, mark="mark dot")
    return Figure(title, "Speedups of what is right at level 0.", svg)


def _size_points(samples: Sequence[ScoredSample]) -> list[tuple[int, float]]:
    return [
        (operators_of(sample), sample.speedup)
        for sample in samples
        if right_and_timed(sample) and operators_of(sample) and sample.speedup
    ]
