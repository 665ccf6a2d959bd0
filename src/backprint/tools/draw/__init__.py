"""Pictures and pages: the forward down the left, the backward up the right, saved tensors between them.

Nothing here needs torch. This module is the face: `draw`, `view`, and what notebooks show.

- `scene`: the steps of both directions, in frames of modules and loops. `layout`: where each stands.
- `picture`: boxes, lines and labels. `svg`, `dot`, `write`: the picture as a file.
- `page`: one HTML file with its data and its script, which is built from `page/` of the repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backprint.graph.keys import number_of
from backprint.graph.nouns import Capture, Graph, Pair, graph_in_words, known_verdict
from backprint.graph.verdicts import verdict_text
from backprint.table.page import text

if TYPE_CHECKING:
    from backprint.common.web_page import WebPage
    from backprint.tools.draw.page import StatsRows

IN_NOTEBOOK = 40
"""How many steps and folded frames the picture in a notebook shows."""


def draw(
    capture: Capture, path: str | os.PathLike[str], *, pair: int = 0, nodes: int = 300, scale: float = 2.0
) -> Path:
    """Draw a Pair as a picture: `.svg`, `.dot` for Graphviz, or `.png`. Return its path.

    The forward runs down on the left, the backward up on the right, and what is saved crosses between them. Modules are
    frames; where more than `nodes` steps and frames would be seen, inner frames are folded, and of a loop one turn is
    shown. `scale` is the number of pixels of a PNG for each point.
    """
    from backprint.graph.calls import check_capture
    from backprint.tools.draw.write import draw_capture

    check_capture(capture, "draw")
    return draw_capture(capture, path, pair, nodes, scale)


def view(capture: Capture, path: str | os.PathLike[str] | None = None, *, stats: bool = False) -> WebPage:
    """Make the page of a Capture: one HTML file that needs no network. Return it as a WebPage.

    With a path it is written there. Without one it is shown: a notebook shows the value that is returned, elsewhere a
    browser opens it. `stats=True` runs the graphs once on the Capture's own inputs, and the page has statistics of
    every value.
    """
    from backprint.common.web_page import check_html
    from backprint.graph.calls import check_capture

    check_capture(capture, "view")
    if path is not None:
        check_html(path)
    return page_of(capture, observed_rows(capture) if stats else None).shown(path)


def page_of(capture: Capture, rows: StatsRows | None = None) -> WebPage:
    """Return the page of a Capture, with statistics of its values if they are given."""
    from backprint.common.web_page import WebPage
    from backprint.tools.draw.page import page_data, page_html, with_statistics

    data = page_data(capture)
    return WebPage(capture.name, "".join(page_html(data if rows is None else with_statistics(data, capture, rows))))


def observed_rows(capture: Capture) -> StatsRows:
    """Run a Capture on its own inputs, and return statistics of every value."""
    from backprint.tools.draw.page import stats_row

    return {key: stats_row(stats) for key, stats in capture.observed().items()}


# ---- Notebooks


def html_of_pair(pair: Pair, title: str = "", modules: Iterable[tuple[str, str]] = ()) -> str:
    """Return what a notebook shows of a Pair: its picture, and above it what is in it and where. `modules` are the
    classes of its modules, by path."""
    name = title or pair.name
    forward = f"forward, {number_of(len(pair.forward.steps), 'step')}"
    if pair.backward is None:
        caption = f"{forward}; no backward"
    else:
        caption = f"{forward}, down the left; backward, {number_of(len(pair.backward.steps), 'step')}, up the right"
    return _figure(pair, name, f"<b>{text(name)}</b>: {caption}", dict(modules))


def html_of_capture(capture: Capture) -> str:
    """Return what a notebook shows of a Capture: what it is, and the picture of each Pair, under the Capture's name if
    there is only one."""
    is_single = len(capture.pairs) == 1
    verdict = known_verdict(capture)
    facts = f"engine {capture.engine}, {verdict_text(verdict) if verdict else 'not verified'}"
    pictures = (html_of_pair(pair, capture.name if is_single else pair.name, capture.modules) for pair in capture.pairs)
    return f"<div><p><b>{text(capture.name)}</b>, {text(facts)}</p>{''.join(pictures)}</div>"


def html_of_graph(graph: Graph) -> str:
    """Return what a notebook shows of a Graph: its picture, as that of a forward."""
    name = graph.title or "graph"
    return _figure(Pair(name, graph), name, text(graph_in_words(graph, len(graph.steps))))


def _figure(pair: Pair, name: str, caption: str, modules: Mapping[str, str] = {}) -> str:
    """Return, as HTML, a picture of a Pair under its `caption`, which is HTML already. `modules` are the classes of its
    modules, by path."""
    from backprint.tools.draw.layout import drawn_pair
    from backprint.tools.draw.svg import as_image
    from backprint.tools.draw.write import as_svg

    image = as_image(as_svg(drawn_pair(pair, modules), name, IN_NOTEBOOK).decode(), name)
    return f'<figure style="margin:0 0 1em"><figcaption>{caption}</figcaption>{image}</figure>'
