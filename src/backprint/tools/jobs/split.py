"""Cut a sample on disk into parts: a row for each part, and a sample if it is proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from backprint import api
from backprint.graph.verdicts import GOOD
from backprint.tools.jobs.parts import PartRow
from backprint.tools.parts.cuts import SplitPart
from backprint.tools.parts.split import DERIVED, split_capture


def split_sample(sample: Path, out: Path, by: str, data: str = "seed", allow: Sequence[str] = ()) -> Iterator[PartRow]:
    """Cut one sample on disk, `by` what `split_capture` takes (such as modules), and yield a row for each requested
    part. A part that compared equal becomes a sample below `out`, complete or not at all; the row of any other has no
    folder (`part`). `data` says how inputs are kept, `allow` which custom operators may be called."""
    capture = api.load(sample, allow=allow)
    for part in split_capture(capture, by, data).parts:
        if not part.wanted:
            continue
        folder = out / (f"pair_{part.pair}" if len(capture.pairs) > 1 else "") / f"part_{part.index:03}"
        row = row_of(sample, folder, part)
        if part.verdict.verdict in GOOD:
            # With `exact`, the part has its data by `split_capture`, and `seed` keeps it.
            api.save(part.capture, folder, "none" if data == "none" else "seed", allow=allow, overwrite=True)
            yield row
        else:
            yield replace(row, part="")


def row_of(sample: Path, folder: Path, part: SplitPart) -> PartRow:
    """Return the row of a part that will be written to a folder."""
    [pair] = part.capture.pairs
    # Whether the part was captured anew, because the backward of the whole could not be cut for it.
    derived = any(why.startswith(DERIVED) for why in part.capture.why)
    return PartRow(
        sample=str(sample),
        part=str(folder),
        label=part.label,
        verdict=part.verdict.verdict,
        detail=part.verdict.detail,
        forward_steps=len(pair.forward.steps),
        backward_steps=len(pair.backward.steps) if pair.backward is not None else 0,
        backward="none" if pair.backward is None else "derived" if derived else "sliced",
        count=part.count,
    )
