"""Dumps of regions as a stranger may send them: `look` reads one, and prints, compares and draws what it holds.

The kept dumps are made anew each time, so a finding is kept with all its files that were changed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from seeds import Files
from whole import printed

import backprint as bp
from backprint.cli import diff, draw, show, view
from backprint.errors import BackprintError


def corpus() -> dict[str, Files]:
    """Dumps of a small program: whole gradients, statistics, with NaN, of several passes."""
    found: dict[str, Files] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("values", "stats", "nan"):
            place = Path(folder) / name
            x = torch.ones(2, 3, requires_grad=True)
            w = torch.full((3, 2), float("nan") if name == "nan" else 0.5, requires_grad=True)
            for _ in range(2 if name == "stats" else 1):
                with bp.region(place, gradients="values" if name == "values" else "stats"):
                    y = (x @ w).relu().sum()
                y.backward()
            found[name] = {
                path.relative_to(place).as_posix(): path.read_bytes()
                if path.suffix == ".safetensors"
                else path.read_text("utf-8")
                for path in sorted(place.rglob("*"))
                if path.is_file()
            }
    return found


def look(source: Path, number: int = 0) -> str:
    """Where a dump is refused: `fields`, or `loaded`."""
    dump = source / "s"
    try:
        printed(show.command, dump, *(("--bad",) if number % 2 else ()))
        printed(show.command, dump, "--json")
        printed(diff.command, dump, dump, exits=True)
        if number % 8 == 0:
            printed(draw.command, dump, "-o", source / "drawn.svg")
            printed(view.command, dump, "-o", source / "page.html")
    except BackprintError:
        return "fields"
    return "loaded"
