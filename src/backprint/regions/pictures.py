"""Pictures of a dump, drawn by a command: never in the program's own step.

Graphviz takes minutes for some graphs of a hundred nodes, so it gets a limit of nodes and of seconds. It is given what
graph.json says, quoted, and not the `.dot` files, which may say anything.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backprint.errors import RegionError
from backprint.regions import dots
from backprint.regions.nouns import RegionForward
from backprint.regions.read import folders_of, parse_forward, parse_pass, read_graph_json

SECONDS = 20.0
"""The time limit of a picture."""

NODES = 500
"""The most nodes of a picture."""


@dataclass(frozen=True, slots=True)
class DrawnPicture:
    """The place of a picture, and why it could not be drawn, or ''."""

    place: Path
    why: str = ""


def draw_dump(
    path: str | os.PathLike[str], run: str, seconds: float = SECONDS, nodes: int = NODES
) -> Iterator[DrawnPicture]:
    """Draw the forward and the backward of each pass of a dump beside its `.dot` files; equal graphs are drawn once."""
    tool = shutil.which("dot")
    if tool is None:
        raise RegionError(f"{path}: Graphviz draws the pictures, and its `dot` is not installed: install Graphviz")
    known: dict[str, bytes | str] = {}
    for folder in folders_of(path, run, unreached=True):
        for name, text, size in dot_texts(folder):
            place = folder / f"{name}.svg"
            if size > nodes:
                yield DrawnPicture(place, f"{size} nodes, and the limit is {nodes}: `--nodes {size}` draws it")
                continue
            if text not in known:
                known[text] = run_graphviz(tool, text, seconds)
            found = known[text]
            if isinstance(found, str):
                yield DrawnPicture(place, found)
            else:
                yield write_picture(place, found)


def dot_texts(folder: Path) -> Iterator[tuple[str, str, int]]:
    """The graphs of a folder: the name of each, its text, and its number of nodes."""
    content = read_graph_json(folder)
    if content.get("reached"):
        found = parse_pass(content, folder)
        yield "forward", dots.forward_dot(found), len(found.nodes)
        yield "backward", dots.backward_dot(found), len(found.nodes)
    else:
        forward: RegionForward = parse_forward(content, folder)
        yield "forward", dots.unreached_dot(str(content["region"]), forward), len(forward.nodes)


def run_graphviz(tool: str, text: str, seconds: float) -> bytes | str:
    """Run Graphviz: the picture, or why there is none. It is killed at the time limit, and when we are interrupted."""
    try:
        done = subprocess.run([tool, "-Tsvg"], input=text.encode(), capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"Graphviz took longer than {seconds:g} s: `--timeout` gives it more"
    except OSError as error:
        return f"Graphviz did not run: {error}"
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return f"Graphviz failed with {done.returncode}" + (f": {lines[-1][:200]!r}" if lines else "")
    return done.stdout


def write_picture(place: Path, drawn: bytes) -> DrawnPicture:
    """Write a picture to its place by one rename."""
    part = place.with_name(f".{place.name}.part")
    try:
        part.write_bytes(drawn)
        part.replace(place)
    except OSError as error:
        part.unlink(missing_ok=True)
        return DrawnPicture(place, f"could not be written: {error.strerror}")
    return DrawnPicture(place)
