"""Pictures and pages: the forward down the left, the backward up the right, saved tensors between them.

Nothing here needs torch. This module is the face: `draw`, `view`, and what notebooks show.

- `scene`: the steps of both directions, in frames of modules and loops. `layout`: where each stands.
- `picture`: boxes, lines and labels. `svg`, `dot`, `write`: the picture as a file.
- `page`: one HTML file with its data and its script, which is built from `page/` of the repository.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backprint.common.text import printable
from backprint.graph.nouns import Capture, Graph, Pair
from backprint.graph.verdicts import Verdict

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
    """Return what a notebook shows of a Pair: its picture. `modules` are the classes of its modules, by path."""
    from backprint.tools.draw.layout import drawn_pair
    from backprint.tools.draw.svg import as_image
    from backprint.tools.draw.write import as_svg

    return as_image(
        as_svg(drawn_pair(pair, dict(modules)), title or pair.name, IN_NOTEBOOK).decode(), title or pair.name
    )


def html_of_capture(capture: Capture) -> str:
    """Return what a notebook shows of a Capture: the picture of each Pair."""
    alone = len(capture.pairs) == 1
    names = (capture.name if alone else pair.name for pair in capture.pairs)
    rows = zip(capture.pairs, names, strict=True)
    return "\n".join(html_of_pair(pair, name, capture.modules) for pair, name in rows)


def html_of_graph(graph: Graph) -> str:
    """Return what a notebook shows of a Graph: its picture, as that of a forward."""
    return html_of_pair(Pair(graph.title or "graph", graph))


def html_of_verdict(verdict: Verdict) -> str:
    """Return what a notebook shows of a Verdict: a row for each port."""
    heads = ("port", "verdict", "detail", "power", "compared with")
    rows = [
        (str(port.key), port.verdict, port.detail, "" if port.power is None else f"{port.power:.3g}", port.witness)
        for port in verdict.ports
    ]
    detail = "; ".join(filter(None, (verdict.nonfinite, verdict.detail)))
    cells = _table_cells("td", (verdict.name, verdict.verdict, detail, "", ""))
    body = "".join(f"<tr>{_table_cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{_table_cells('th', heads)}</tr></thead><tbody><tr>{cells}</tr>{body}</tbody></table>"


def _table_cells(kind: str, texts: Sequence[str]) -> str:
    """Return the cells of a row of a table."""
    return "".join(f'<{kind} style="text-align:left">{html.escape(printable(text))}</{kind}>' for text in texts)
