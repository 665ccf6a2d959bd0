"""Pictures of a dump, drawn when someone asks: never in the program's own step.

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
from backprint.regions.nouns import Forward
from backprint.regions.read import content_of, folders_of, forward_from, pass_from

SECONDS = 20.0
"""What a picture may take."""

NODES = 500
"""What a picture may show."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture, or why there is none."""

    place: Path
    why: str = ""


def draw(path: str | os.PathLike[str], run: str, seconds: float = SECONDS, nodes: int = NODES) -> Iterator[Drawn]:
    """Draw the forward and the backward of each pass of a dump, beside its `.dot` files; those that are alike once."""
    tool = shutil.which("dot")
    if tool is None:
        raise RegionError(f"{path}: Graphviz draws the pictures, and there is no `dot` here: install Graphviz")
    known: dict[str, bytes | str] = {}
    for folder in folders_of(path, run, unreached=True):
        for name, text, size in texts_of(folder):
            place = folder / f"{name}.svg"
            if size > nodes:
                yield Drawn(place, f"{size} nodes, and the limit is {nodes}: `--nodes {size}` draws it")
                continue
            if text not in known:
                known[text] = picture(tool, text, seconds)
            found = known[text]
            if isinstance(found, str):
                yield Drawn(place, found)
            else:
                yield put(place, found)


def texts_of(folder: Path) -> Iterator[tuple[str, str, int]]:
    """The pictures of a folder, each by name, as a text and with how many nodes it has."""
    content = content_of(folder)
    if content.get("reached"):
        found = pass_from(content, folder)
        yield "forward", dots.forward_dot(found), len(found.nodes)
        yield "backward", dots.backward_dot(found), len(found.nodes)
    else:
        forward: Forward = forward_from(content, folder)
        yield "forward", dots.unreached_dot(str(content["region"]), forward), len(forward.nodes)


def picture(tool: str, text: str, seconds: float) -> bytes | str:
    """A picture, or why there is none. What takes too long is killed, and so it is when we are interrupted."""
    try:
        done = subprocess.run([tool, "-Tsvg"], input=text.encode(), capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"Graphviz took longer than {seconds:g} s: `--timeout` gives it more"
    except OSError as error:
        return f"Graphviz did not run: {error}"
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return f"Graphviz failed with {done.returncode}" + (f": {said[-1][:200]!r}" if said else "")
    return done.stdout


def put(place: Path, drawn: bytes) -> Drawn:
    """Write a picture, whole or not at all."""
    part = place.with_name(f".{place.name}.part")
    try:
        part.write_bytes(drawn)
        part.replace(place)
    except OSError as error:
        part.unlink(missing_ok=True)
        return Drawn(place, f"could not be written: {error.strerror}")
    return Drawn(place)
