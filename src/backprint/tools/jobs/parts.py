"""The parts that a split wrote: a row for each.

A split cuts each sample of a corpus into parts, which are samples in folders below the sample's folder in OUT; its file
`parts.json` has a PartRow for each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backprint.common.files import from_plain, read_json
from backprint.errors import SampleError
from backprint.tools.jobs.ledger import NAME, Ledger, place_of


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part on disk, or why it was not written: a row of the table.

    `backward` is `sliced`, `derived` or `none`, `count` how many equal layers of the sample it stands for.
    """

    sample: str
    part: str
    label: str
    verdict: str
    detail: str
    forward_steps: int
    backward_steps: int
    backward: str
    count: int = 1


def parts_of(out: Path, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of one sample of a run, which has this row in the ledger, with their folders; a sample without
    parts has one row, which says why."""
    place = place_of(out, row)
    if (place / PARTS).exists():
        return [part | {"part": os.fspath(place / part["part"]) if part["part"] else ""} for part in _read_parts(place)]
    reason = ": ".join(filter(None, (row["cause"], row["detail"])))
    return [dict(sample=row["id"], part="", label="", verdict=row["verdict"], detail=reason, backward="")]


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
        if {"..", "/"} & {*Path(part["part"]).parts}:
            raise SampleError(f"{file}: a part is at {part['part']!r:.100}, which leads out of the run")
    return parts


def all_parts(out: Path) -> Iterator[dict[str, Any]]:
    """Yield every part of a run, in the order of its samples."""
    with Ledger.reading(out / NAME) as ledger:
        for row in ledger.rows("state = 'done'"):
            yield from parts_of(out, row)


PARTS = "parts.json"
