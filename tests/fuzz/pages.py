"""Pictures, pages and differences of a stranger's sample: `look` makes all of them of one that the loader reads.

Each has to be what a browser or a terminal can be given: JSON without numbers that JSON lacks, no `<` in a page's data,
SVG that is XML, lines that can be printed. A difference is that of the sample and a kept one, more often than not the
one that it was.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from seeds import OPERATOR, Files, seeds
from whole import At, Broken, printed, stage_of

import backprint as bp
from backprint.cli import draw as draw_cli
from backprint.errors import BackprintError
from backprint.graph.nouns import Capture
from backprint.tools.diff.differences import compare_captures
from backprint.tools.diff.page import page_of_diff
from backprint.tools.diff.words import diff_json
from backprint.tools.draw import page_of
from backprint.tools.draw.layout import drawn_pair
from backprint.tools.draw.write import as_dot, as_svg

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def corpus() -> dict[str, Files]:
    """The kept samples of ours."""
    return {name: files for name, files in seeds().items() if name.startswith("ours_")}


@functools.cache
def kept() -> dict[str, Capture]:
    """The kept samples, read, by the names of their captures."""
    found: dict[str, Capture] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, files in corpus().items():
            place = Path(folder) / name
            for path, content in files.items():
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                (place / path).write_bytes(content if isinstance(content, bytes) else content.encode())
            capture = bp.load(place, allow=(OPERATOR,))
            whole(capture)
            found.setdefault(capture.name, capture)
    return found


def look(source: Path, number: int = 0) -> str:
    """Where the sample `s` below `source` is refused, or `loaded`.

    `number` says which sample it is compared with, and which of the slower things are made of it.
    """
    at, folder = At(), source / "s"
    try:
        at.stage = "fields"
        capture = bp.load(folder, allow=(OPERATOR,))
        at.stage = "graph"
        whole(capture)
        shown(capture, at, number)
        differences(capture, folder, at, number)
    except BackprintError as error:
        return stage_of(at.stage, error)
    return "loaded"


def whole(capture: Capture) -> None:
    """Have every graph read, which is not before it is asked for."""
    for pair in capture.pairs:
        for graph in (pair.forward, pair.backward):
            assert graph is None or graph.outputs is not None


def shown(capture: Capture, at: At, number: int) -> None:
    """Draw the sample, and make its page."""
    at.stage = "sizes"
    for pair in capture.pairs:
        drawn = drawn_pair(pair)
        nodes = (300, 1, 12)[number % 3]
        check_svg(as_svg(drawn, capture.name, nodes))
        if number % 2:
            as_dot(drawn, capture.name, nodes)
    at.stage = "row"
    check_page(page_of(capture).html)


def differences(capture: Capture, folder: Path, at: At, number: int) -> None:
    """Compare the sample with a kept one, in both directions by turns."""
    at.stage = "function"
    others = kept()
    other = others.get(capture.name) if number % 4 else None
    other = other or list(others.values())[number % len(others)]
    sides = (capture, other) if number % 2 else (other, capture)
    diff = compare_captures(*sides)
    json.loads(json.dumps(diff_json(diff), allow_nan=False))
    str(diff).encode()
    if number % 4 == 0:
        check_page(page_of_diff(diff).html)
    if number % 16 == 0:
        printed(draw_cli.diff_command, folder, folder, "--all", "--allow", OPERATOR)


def check_svg(svg: bytes) -> None:
    """Raise unless a picture is XML."""
    try:
        ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise Broken(f"a picture is no XML: {error}") from error


def check_page(page: str) -> None:
    """Raise unless a page has its data, as JSON that no browser takes for anything else."""
    data = DATA.search(page)
    if data is None or "<" in data[1]:
        raise Broken("a page's data end early")
    json.loads(data[1], parse_constant=no_constant)
    page.encode()


def no_constant(text: str) -> None:
    raise Broken(f"a page's data have {text}")
