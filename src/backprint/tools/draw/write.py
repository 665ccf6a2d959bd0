"""Pictures as files: SVG, DOT and PNG.

A `DrawnPair` is a Pair laid out: its steps in frames of modules and loops. A frame is *open*, or folded to one box;
`frames_to_open` chooses, so that a picture has at most so many *nodes* (steps and folded frames) and is no wider than
it may be.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from backprint.common.files import write_file
from backprint.common.web_page import HTML
from backprint.errors import UsageError
from backprint.graph.nouns import Capture
from backprint.tools.draw.dot import dot_of
from backprint.tools.draw.layout import DrawnPair, drawn_pair
from backprint.tools.draw.picture import READABLE, WIDEST, PairPicture, frames_to_open, picture_of
from backprint.tools.draw.svg import svg_of

MOST_SCALE = 10
"""The most pixels of a PNG for each point."""

EDGE = 16_384
"""The most pixels of a side of a PNG."""


def draw_capture(
    capture: Capture, path: str | os.PathLike[str], pair: int = 0, nodes: int = READABLE, scale: float = 2.0
) -> Path:
    """Draw the Pair number `pair` of a Capture to a file, whose ending says in which format, and return its path.
    `nodes` is the most that is seen, `scale` the pixels of a PNG for each point. Refuse an unknown ending, a number out
    of its range and a Pair that there is not, before anything is drawn."""
    draw = _format_of_picture(path)
    check_numbers(pair, nodes, scale)
    count = len(capture.pairs)
    if pair >= count:
        pairs = "1 pair" if count == 1 else f"{count} pairs"
        raise UsageError(f"{capture.name} has {pairs}, numbered from 0: there is no pair {pair}")
    title = capture.name if len(capture.pairs) == 1 else f"{capture.name}, {capture.pairs[pair].name}"
    return write_file(Path(path), [draw(drawn_pair(capture.pairs[pair], dict(capture.modules)), title, nodes, scale)])


def write_picture(drawn: DrawnPair, path: str | os.PathLike[str], nodes: int = READABLE, scale: float = 2.0) -> Path:
    """Draw what is laid out already to a file, whose ending says in which format, and return its path."""
    draw = _format_of_picture(path)
    return write_file(Path(path), [draw(drawn, drawn.scene.name, nodes, scale)])


def _format_of_picture(path: str | os.PathLike[str]) -> Callable[[DrawnPair, str, int, float], bytes]:
    """Return the function that draws the format of a path's ending; refuse any other ending."""
    suffix = Path(path).suffix
    draw = FORMATS.get(suffix.lower())
    if draw is None:
        ending = f"not with {suffix!r}" if suffix else "and this has no ending"
        page = "; a page is written by `backprint view`" if suffix.lower() in HTML else ""  # `.html`, `.htm`
        raise UsageError(f"{str(path)!r}: the name of a picture ends with {', '.join(FORMATS)}, {ending}{page}")
    return draw


def check_numbers(pair: int, nodes: int, scale: float) -> None:
    """Refuse numbers of a picture with another type (True is no number here), or out of their range."""
    for name, value, least in (("pair", pair, 0), ("nodes", nodes, 1)):
        if type(value) is not int or value < least:
            raise UsageError(f"{name}={value!r:.80} must be a whole number from {least} on")
    if type(scale) not in (int, float) or not 0 < scale <= MOST_SCALE:
        raise UsageError(f"scale={scale!r:.80} must be a number above 0, and at most {MOST_SCALE}")


def as_svg(drawn: DrawnPair, title: str, nodes: int, scale: float = 1.0) -> bytes:
    """Return a picture as SVG. `scale` is for PNG; all functions of FORMATS take it."""
    return svg_of(_readable_picture(drawn, nodes, title), title).encode()


def _readable_picture(drawn: DrawnPair, nodes: int, title: str) -> PairPicture:
    """Return a picture of at most `nodes` steps and folded frames, and no wider than WIDEST; whoever asks for more than
    READABLE nodes gets any width."""
    return picture_of(drawn, frames_to_open(drawn, nodes, WIDEST if nodes <= READABLE else math.inf), title)


def as_dot(drawn: DrawnPair, title: str, nodes: int, scale: float = 1.0) -> bytes:
    """Return a picture as DOT, for Graphviz, which lays it out itself. `scale` is for PNG."""
    return dot_of(drawn, frames_to_open(drawn, nodes), title).encode()


def _as_png(drawn: DrawnPair, title: str, nodes: int, scale: float) -> bytes:
    """Return a picture as PNG: the SVG in light colors, drawn by resvg, and smaller than `scale` where a side would
    have more pixels than EDGE. Refuse if the package of resvg, which is optional, is not installed."""
    try:
        import resvg_py
    except ImportError:
        raise UsageError(
            "a PNG is made with the package resvg-py: pip install '.[png]' in Backprint's folder; .svg and .dot need "
            "no package"
        ) from None
    picture = _readable_picture(drawn, nodes, title)
    fits = min(scale, EDGE / max(picture.width, picture.height))
    return bytes(resvg_py.svg_to_bytes(svg_string=svg_of(picture, title), zoom=fits))


FORMATS: Mapping[str, Callable[[DrawnPair, str, int, float], bytes]] = {
    ".svg": as_svg,
    ".dot": as_dot,
    ".png": _as_png,
}
"""Endings, and what draws each."""
