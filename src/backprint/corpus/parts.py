"""The parts that a split wrote: a row for each, with equal parts kept once."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backprint.corpus.folder import locked, writable
from backprint.corpus.ledger import NAME, Ledger, place_of
from backprint.corpus.places import RESULT
from backprint.corpus.pool import remove
from backprint.corpus.verbs import PARTS


def parts_of(out: Path, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of one sample of a run, with their folders; a sample without parts has a row too."""
    place = place_of(out, row)
    with contextlib.suppress(OSError, ValueError):
        return [shown_part(out, place, part) for part in json.loads((place / PARTS).read_bytes())]
    said = ": ".join(filter(None, (row["cause"], row["detail"])))
    return [dict(sample=row["id"], part="", label="", verdict=row["verdict"], detail=said, of="", backward="")]


def shown_part(out: Path, place: Path, part: Mapping[str, Any]) -> dict[str, Any]:
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
    with writable(out), locked(out), Ledger.writing(out / NAME) as ledger:
        for row in list(ledger.rows("state = 'done'")):
            place = place_of(out, row)
            with contextlib.suppress(OSError, ValueError):
                before = json.loads((place / PARTS).read_bytes())
                if any(part["of"] and not (out / part["of"]).is_dir() for part in before):
                    again.append(row["id"])
                    continue
                rewrite(out, place, before, first)
        for id in again:
            (place_of(out, {"id": id}) / RESULT).unlink(missing_ok=True)
            ledger.put_off(id)
    return bool(again)


def rewrite(out: Path, place: Path, parts: list[dict[str, Any]], first: dict[str, str]) -> None:
    """Remove a sample's parts that equal others: `first` has the folder of each graph, below OUT."""
    for part in parts:
        if part["part"]:
            here = (place / part["part"]).relative_to(out).as_posix()
            part["of"] = other if (other := first.setdefault(part["key"], here)) != here else ""
    written = place / f"{PARTS}.part"
    written.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    os.replace(written, place / PARTS)
    for part in parts:
        if part["of"] and part["part"]:
            remove(place / part["part"])
    for part in parts:
        part["part"] = "" if part["of"] else part["part"]
    written.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    os.replace(written, place / PARTS)
