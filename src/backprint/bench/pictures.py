"""Names of compilers as pictures and narrow columns show them."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from backprint.bench.scores import ScoredSample, ScorePoint, ScoreTerms, right_and_timed, right_speedups, score_curve
from backprint.report.nouns import Figure
from backprint.report.svg import (
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

OWN = re.compile(r".*[/\\](?P<name>[^/\\]+\.py:[^/\\]+)", re.DOTALL)
"""A function in a file: `FOLDER/FILE.py:FUNCTION`."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return each name without its folder; with it, where two names would be the same."""
    known = list(dict.fromkeys(names))
    short = [OWN.fullmatch(name) for name in known]
    found = [match["name"] if match else name for match, name in zip(short, known, strict=True)]
    return {name: own if found.count(own) == 1 else name for name, own in zip(known, found, strict=True)}


# ------------------------------------------------------------------ curves, violins, and speedup by size
#
# All are drawn from ScoredSamples, so that the pictures of a run and of a GraphNet log agree.

Scored = Mapping[str, Sequence[ScoredSample]]
"""By name of a compiler, or of a log: its samples."""

WIDTH = 620.0


def pictures(scored: Scored) -> tuple[Figure, ...]:
    """Return the pictures for which there are samples."""
    measured = {name: tuple(each for each in samples if each.measured) for name, samples in scored.items()}
    shown = short_names(measured)
    known = {shown[name]: samples for name, samples in measured.items() if samples}
    if not known:
        return ()
    speeds = {name: right_speedups(samples) for name, samples in known.items()}
    figures = [*curve_pictures(known)]
    if any(speeds.values()):
        figures.append(violin_picture(speeds))
    if any(operators_of(sample) for samples in known.values() for sample in samples if right_and_timed(sample)):
        figures.append(size_picture(known))
    return tuple(figures)


def operators_of(sample: ScoredSample) -> int:
    """Return a sample's number of operators; 0 where it is unknown."""
    known = sample.setting("operators")
    return int(known) if known.isdecimal() else 0


# --- curves -----------------------------------------------------------------------------------------------------------

CURVE_NOTES = {
    "S(t)": "The geometric mean of speedups, where what is not within level t counts 0.1. Higher is better.",
    "ES(t), default": "From t = 1 on accuracy is forgiven, and from t = 3 on every failure.",
    "ES(t), extended": "From t = 1 on accuracy is forgiven, at 2 mismatches, at 3 failures to run, at 4 to compile.",
}


def curve_pictures(scored: Scored) -> Iterator[Figure]:
    """Yield the curves of S(t), and of ES(t) in both interpretations."""
    default = {name: score_curve(samples) for name, samples in scored.items()}
    extended = {name: score_curve(samples, ScoreTerms(interpretation="extended")) for name, samples in scored.items()}
    lines = {
        "S(t)": {name: [(point.level, point.s) for point in curve] for name, curve in default.items()},
        "ES(t), default": {name: es_points(curve) for name, curve in default.items()},
        "ES(t), extended": {name: es_points(curve) for name, curve in extended.items()},
    }
    for title, series in lines.items():
        yield Figure(title, CURVE_NOTES[title], curves_svg(title, series))


def es_points(curve: Sequence[ScorePoint]) -> list[tuple[int, float]]:
    return [(point.level, point.es) for point in curve]


def curves_svg(title: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Draw a line for each series by level."""
    levels = sorted({level for points in series.values() for level, _ in points})
    height = height_for(len(series))
    scale = LogScale(*range_around(value for points in series.values() for _, value in points), height - BOTTOM, TOP)

    def across(level: int) -> float:
        return LEFT + 14 + (level - levels[0]) / (levels[-1] - levels[0]) * (EDGE - LEFT - 28)

    places = {name: [(across(level), scale.place(value)) for level, value in points] for name, points in series.items()}
    ticks = [(across(level), str(level)) for level in levels]
    return chart(title, places, value_axis(scale, scale.ticks(), EDGE, "score"), ticks, "tolerance level t")


# --- violins ----------------------------------------------------------------------------------------------------------

COLUMN = 112.0

NAME_LINE = 14.0
"""From one line of a name to the next."""

FEWEST_SHAPED = 5
"""From so many speedups on a violin has a shape; fewer are dots."""

LEVELS_OF_SHAPE = 60

FEWEST_TICKS = 4

VIOLIN_NOTE = (
    "Speedups of what is right at level 0; the bar is from the first to the third quartile, the line in it the median. "
    "Fewer than 5 are dots."
)


def violin_picture(speeds: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the distribution of each compiler's speedups."""
    width = max(WIDTH, LEFT + 20 + COLUMN * len(speeds))
    shapes = {name: density(values) for name, values in speeds.items() if len(values) >= FEWEST_SHAPED}
    ends = [2.0 ** shape[end][0] for shape in shapes.values() for end in (0, -1)]
    everything = (*ends, *(value for values in speeds.values() for value in values))
    scale = LogScale(*range_around(everything, 2.0), HEIGHT - 60, TOP)
    column = (width - LEFT - 20) / len(speeds)
    names = {name: wrapped(name, int(column / 7.2)) for name in speeds}
    below = HEIGHT - 60 + 22 + NAME_LINE * (max(map(len, names.values())) - 1)
    parts = [*value_axis(scale, speedup_ticks(scale), width - 20, "speedup")]
    for index, (name, values) in enumerate(speeds.items()):
        middle = LEFT + (index + 0.5) * column
        if name in shapes:
            parts += violin(shapes[name], values, middle, min(column, 150.0) * 0.42, scale, index)
        else:
            parts += [marker(middle, scale.place(value), index) for value in values]
        median = f"median {statistics.median(values):.2f}×" if values else ""
        parts += [
            label(middle, HEIGHT - 38 + NAME_LINE * place, line, letters=int(column / 6))
            for place, line in enumerate(names[name])
        ]
        parts.append(label(middle, below + 17, f"n = {len(values):,}", kind="label soft"))
        parts.append(label(middle, below + 32, median, kind="label soft"))
    return Figure("Speedups", VIOLIN_NOTE, drawing(width, below + 38, "Speedups by compiler", parts))


Shape = Sequence[tuple[float, float]]
"""The density at each base-two logarithm of a speedup."""


def violin(
    shape: Shape, values: Sequence[float], middle: float, half: float, scale: LogScale, index: int
) -> Iterator[str]:
    """Yield one violin around its middle: the density, the quartiles and the median."""
    highest = max(thick for _, thick in shape)
    sides = [(half * thick / highest, scale.place(2.0**level)) for level, thick in shape]
    outline = [(middle + wide, y) for wide, y in sides] + [(middle - wide, y) for wide, y in reversed(sides)]
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
    yield f'<polygon class="violin {series_class(index)}" points="{places}"/>'
    quarter, _, three_quarters = statistics.quantiles(values, method="inclusive")
    first, third = scale.place(quarter), scale.place(three_quarters)
    tall = max(first - third, 1.0)
    yield f'<rect class="box" x="{middle - 3:.1f}" y="{third:.1f}" width="6" height="{tall:.1f}"/>'
    median = scale.place(statistics.median(values))
    yield rule(middle - 12, median, middle + 12, median, "median")


def speedup_ticks(scale: LogScale) -> Sequence[float]:
    """Return powers of two where the axis has several of them, else round values."""
    twos = powers_of_two(scale)
    return twos if len(twos) >= FEWEST_TICKS else scale.ticks()


def density(values: Sequence[float]) -> Shape:
    """Return a Gaussian kernel density of speedups' logarithms, by Silverman's width."""
    ordered = sorted(map(math.log2, values))
    quarter, _, three_quarters = statistics.quantiles(ordered, method="inclusive")
    spread = min(statistics.stdev(ordered), (three_quarters - quarter) / 1.34)
    width = max(0.9 * (spread or statistics.stdev(ordered)) * len(ordered) ** -0.2, 0.02)
    low, high = ordered[0] - 2 * width, ordered[-1] + 2 * width
    levels = [low + (high - low) * place / LEVELS_OF_SHAPE for place in range(LEVELS_OF_SHAPE + 1)]
    return [(level, math.fsum(math.exp(-(((level - each) / width) ** 2) / 2) for each in ordered)) for level in levels]


# --- speedup by size --------------------------------------------------------------------------------------------------


def size_picture(scored: Scored) -> Figure:
    """Draw the speedups of what is right at level 0, by the number of operators."""
    series = {name: size_points(samples) for name, samples in scored.items()}
    every = [point for points in series.values() for point in points]
    height = height_for(len(series))
    largest = max(size for size, _ in every)
    across = LogScale(min(size for size, _ in every) / 1.3, largest * 1.3, LEFT + 4, EDGE - 4)
    up = LogScale(*range_around((speedup for _, speedup in every), 2.0), height - BOTTOM, TOP)
    places = {
        name: [(across.place(size), up.place(speed)) for size, speed in points] for name, points in series.items()
    }
    ticks = [(across.place(tick), f"{tick:,.0f}") for tick in across.ticks()]
    axis, title = value_axis(up, speedup_ticks(up), EDGE, "speedup"), "Speedup by size"
    svg = chart(title, places, axis, ticks, "operators of the graph", joined=False, mark="mark dot")
    return Figure(title, "Speedups of what is right at level 0.", svg)


def size_points(samples: Sequence[ScoredSample]) -> list[tuple[int, float]]:
    return [
        (operators_of(each), each.speedup)
        for each in samples
        if right_and_timed(each) and operators_of(each) and each.speedup
    ]
