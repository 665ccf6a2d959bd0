"""Pictures and pages of a dump, made by a command from its graph.json: never in the program's own step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from backprint.drawing.dot import dot_of
from backprint.drawing.opened import READABLE, opened_frames
from backprint.drawing.page import page_html
from backprint.drawing.picture import picture_of
from backprint.drawing.svg import svg_of
from backprint.regions.drawn import drawn_forward, drawn_pass, page_data_of_pass, page_of_scene
from backprint.regions.read import folders_of, parse_forward, parse_pass, read_graph_json
from backprint.whole_file import write_file

PICTURE, DOT, PAGE = "graph.svg", "graph.dot", "page.html"


def draw_dump(path: str | os.PathLike[str], run: str, nodes: int = READABLE) -> Iterator[Path]:
    """Write the picture (as SVG and as DOT) and the page of each pass of a dump into its folder; yield their places."""
    for folder in folders_of(path, run, unreached=True):
        content = read_graph_json(folder)
        if content.get("reached"):
            found = parse_pass(content, folder)
            drawn = drawn_pass(found)
            data = page_data_of_pass(found, drawn)
        else:
            drawn = drawn_forward(f"{content['region']}, which no pass has reached", parse_forward(content, folder))
            data = page_of_scene(drawn, {}, {})
        opened = opened_frames(drawn, nodes)
        yield write_file(folder / PICTURE, [svg_of(picture_of(drawn, opened), drawn.scene.name).encode()])
        yield write_file(folder / DOT, [dot_of(drawn, opened).encode()])
        yield write_file(folder / PAGE, (piece.encode() for piece in page_html(data)))
