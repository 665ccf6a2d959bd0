"""The parts that a split wrote: a row for each, with equal parts kept once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backprint.common.files import from_plain, read_json
from backprint.errors import SampleError
from backprint.tools.jobs.ledger import NAME, Ledger, place_of
from backprint.tools.jobs.places import RESULT, create_writable, lock_folder
from backprint.tools.jobs.pool import remove_folder


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part on disk, or why it was not written: a row of the table.

    `backward` is `sliced`, `derived` or `none`, `count` how many equal parts of the sample it stands for, `of` the part
    with the same graphs that was written instead, and `key` the hashes of the graphs.
    """

    sample: str
    part: str
    label: str
    verdict: str
    detail: str
    forward_steps: int
    backward_steps: int
    backward: str
    of: str = ""
    key: str = ""
    count: int = 1


def parts_of(out: Path, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of one sample of a run, with their folders; a sample without parts has a row too."""
    place = place_of(out, row)
    if (place / PARTS).exists():
        return [_shown_part(out, place, part) for part in _read_parts(place)]
    reason = ": ".join(filter(None, (row["cause"], row["detail"])))
    return [dict(sample=row["id"], part="", label="", verdict=row["verdict"], detail=reason, of="", backward="")]


def _read_parts(place: Path) -> list[dict[str, Any]]:
    """Read what `parts.json` says of each part of a sample; SampleError if it is damaged, or names a part by a path
    that leads out of the run."""
    file = place / PARTS
    rows = read_json(file)
    try:
        parts = [asdict(from_plain(PartRow, row, "a part")) for row in list(rows)]
    except (ValueError, TypeError) as error:
        raise SampleError(f"{file}: {error}") from None
    for part in parts:
        if {"..", "/"} & {*Path(part["part"]).parts, *Path(part["of"]).parts}:
            raise SampleError(f"{file}: a part is at {part['part'] or part['of']!r:.100}, which leads out of the run")
    return parts


def _shown_part(out: Path, place: Path, part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part's row for display."""
    shown = {name: value for name, value in part.items() if name != "key"}
    shown["part"] = os.fspath(place / part["part"]) if part["part"] else ""
    return shown | {"of": os.fspath(out / part["of"]) if part["of"] else ""}


def all_parts(out: Path) -> Iterator[dict[str, Any]]:
    """Yield every part of a run, in the order of its samples."""
    with Ledger.reading(out / NAME) as ledger:
        for row in ledger.rows("state = 'done'"):
            yield from parts_of(out, row)


def unify(out: Path) -> bool:
    """Keep the first of equal parts; return whether samples must be split again because that part is missing."""
    again = []
    first: dict[str, str] = {}
    with create_writable(out), lock_folder(out), Ledger.writing(out / NAME) as ledger:
        for row in list(ledger.rows("state = 'done'")):
            place = place_of(out, row)
            if not (place / PARTS).exists():  # a sample that was not split
                continue
            before = _read_parts(place)
            if any(part["of"] and not (out / part["of"]).is_dir() for part in before):
                again.append(row["id"])
                continue
            rewrite(out, place, before, first)
        for id in again:
            (place_of(out, {"id": id}) / RESULT).unlink(missing_ok=True)
            ledger.requeue(id)
    return bool(again)


def rewrite(out: Path, place: Path, parts: list[dict[str, Any]], first: dict[str, str]) -> None:
    """Remove a sample's parts that equal others: `first` has the folder of each graph, below OUT, and gets those that
    this sample is the first to have. `parts.json` is written before and after the removal, so that a call that is ended
    between goes on: a part keeps its place (`part`) until its folder is gone."""
    for part in parts:
        if part["part"]:
            here = (place / part["part"]).relative_to(out).as_posix()
            part["of"] = other if (other := first.setdefault(part["key"], here)) != here else ""
    temporary = place / f"{PARTS}.part"
    temporary.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, place / PARTS)
    for part in parts:
        if part["of"] and part["part"]:
            remove_folder(place / part["part"])
    for part in parts:
        part["part"] = "" if part["of"] else part["part"]
    temporary.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, place / PARTS)


PARTS = "parts.json"
