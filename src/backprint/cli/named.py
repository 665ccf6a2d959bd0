"""Commands that take a sample take a factory or a name of a model too: `backprint view train.py:factory -o page.html`.

The model is captured, proved and saved as `backprint capture train.py:factory` does, to a folder that is gone with the
command; for a command whose run is kept in a folder `RUN` and can be continued, to `RUN.named` beside it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from backprint.cli.say import echo, working

FACTORY = r"(?:.+\.py|[\w.]+):[^\W\d]\w*"
"""`file.py:factory` or `package.module:factory`."""


def at_place(target: Path, *, fake: bool = False) -> Path:
    """Return where the sample of a target is: a path itself; for a factory or a model's name, a folder that it is saved
    to now, and that is there until the command ends. With `fake` nothing of the model is allocated."""
    if not names_program(target):
        return target
    folder = tempfile.TemporaryDirectory(prefix="backprint-")
    click.get_current_context().call_on_close(folder.cleanup)
    return _saved(target, Path(folder.name) / _folder_name(target), fake)


def at_places(targets: Sequence[Path], out: Path | None = None) -> tuple[Path, ...]:
    """Return where the samples of several targets are. Those of factories and of models' names are saved, or were
    saved by an earlier call, beside `out`, so that the same command goes on with them; without `out`, as by
    `at_place`."""
    if out is None:
        return tuple(map(at_place, targets))
    places = []
    for target in targets:
        if not names_program(target):
            places.append(target)
            continue
        place = out.with_name(f"{out.name}.named") / _folder_name(target)
        places.append(place if (place / "capture.json").is_file() else _saved(target, place, fake=False))
    return tuple(places)


def names_program(target: Path) -> bool:
    """Return whether a target is not a path, but `file.py:factory`, `package.module:factory` or a model's name."""
    from backprint.tools.named import is_named

    return is_named(target) or (re.fullmatch(FACTORY, str(target)) is not None and not target.exists())


def _saved(target: Path, place: Path, fake: bool) -> Path:
    """Capture a target, save it to `place` and return that; a line on standard error says what was made of a name."""
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
