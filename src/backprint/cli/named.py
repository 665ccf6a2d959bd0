"""Commands that take a sample take the name of a model too: `backprint view hf:gpt2 -o page.html`.

The model is captured, proved and saved as `backprint capture hf:gpt2` does, to a folder that is gone with the command;
for a command whose run is kept in a folder `RUN` and can be continued, to `RUN.named` beside it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from backprint.cli.say import echo, working


def at_place(target: Path, *, fake: bool = False) -> Path:
    """Return where the sample of a target is: a path itself; for a model's name, a folder that is there until the
    command ends. With `fake` nothing of the model is allocated."""
    from backprint.tools.named import is_named

    if not is_named(target):
        return target
    folder = tempfile.TemporaryDirectory(prefix="backprint-")
    click.get_current_context().call_on_close(folder.cleanup)
    return _saved(target, Path(folder.name) / _folder_name(target), fake)


def at_places(targets: Sequence[Path], out: Path | None = None) -> tuple[Path, ...]:
    """Return where the samples of several targets are; those of names are kept beside `out`, so that the same
    command goes on with them."""
    from backprint.tools.named import is_named

    if out is None:
        return tuple(map(at_place, targets))
    places = []
    for target in targets:
        if not is_named(target):
            places.append(target)
            continue
        place = out.with_name(f"{out.name}.named") / _folder_name(target)
        places.append(place if (place / "capture.json").is_file() else _saved(target, place, False))
    return tuple(places)


def _saved(target: Path, place: Path, fake: bool) -> Path:
    """Capture a named model and save it; a line on standard error says what was made of the name."""
    import backprint as bp
    from backprint.tools.target import capture_target, read_target

    with working(f"{target}: capturing"):
        program = read_target(str(target), fake=fake)
        capture: Any = capture_target(program)
        bp.save(capture, place)
    for note in program.notes:
        echo(f"{target}: {note}", err=True)
    return place


def _folder_name(target: Path) -> str:
    """Return a name as that of a folder."""
    return re.sub(r"[^A-Za-z0-9.=-]+", "_", str(target)).strip("._") or "model"
