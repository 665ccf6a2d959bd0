"""The report of kernels: facts, tables, a picture, the code of what is shared most, and a row a program for files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from backprint.benching.svg import (
    BOTTOM,
    EDGE,
    LEFT,
    TOP,
    LogScale,
    chart,
    height_for,
    value_axis,
)
from backprint.extracting.programs.dedup import KernelGroups
from backprint.extracting.reporting.kernel_tables import (
    MOST,
    byte_table,
    direction_table,
    name_table,
    operator_table,
    program_table,
    shared_programs,
    shared_structures,
    target_table,
    unread_table,
)
from backprint.report.nouns import Figure, Listing, Report, filled, one_line

LISTED = 10
"""How many programs are shown with their code."""

CODE_LARGEST = 64 << 10
"""The letters of code that are shown of one program."""

LANGUAGES = {"triton": "python", "cpp": "cpp"}
"""What Markdown calls the language of a kernel."""

FIELDS = (
    *((name, "text") for name in ("hash", "structure", "name", "language", "sample", "direction", "target", "place")),
    *((name, "count") for name in ("uses", "samples", "forward", "backward", "calls", "tensor_bytes")),
)
"""The columns of a program in files, and their kinds."""


def report_of_folders(groups: KernelGroups, folders: Sequence[Path], watch: Callable[[str], object] = str) -> Report:
    """Add the kernels in folders to groups and return their report; `watch` is called with the name of each sample."""
    for folder in folders:
        groups.index.add_folder(folder, watch)
    return kernel_report(groups, folders)


def kernel_report(groups: KernelGroups, folders: Iterable[Path] = ()) -> Report:
    """Return the report of the kernels in an index."""
    index = groups.index
    tables = (
        target_table(index),
        direction_table(index),
        shared_programs(groups),
        shared_structures(groups),
        operator_table(index),
        byte_table(index),
        name_table(index),
        unread_table(index),
    )
    return Report(
        "Kernels",
        total_facts(groups, folders),
        tuple(filled(tables)),
        program_table(groups),
        FIELDS,
        lambda: program_rows(groups),
        tuple(sharing_picture(groups)),
        tuple(shared_code(groups)),
    )


def total_facts(groups: KernelGroups, folders: Iterable[Path]) -> tuple[tuple[str, str], ...]:
    """Return the facts above the tables."""
    totals = groups.totals()
    structures = totals.uses / totals.structures if totals.structures else 0.0
    known = {
        "folders": ", ".join(map(str, folders)),
        "kernels": f"{totals.uses:,} in {totals.samples:,} samples",
        "programs": f"{totals.programs:,}, {totals.ratio:.2f} uses each",
        "structures": f"{totals.structures:,}, {structures:.2f} uses each; programs without sizes and constants",
        "forward against backward": (
            f"{totals.forward:,} programs of forwards, {totals.backward:,} of backwards, {totals.both:,} of both"
        ),
        "names": f"{totals.ambiguous_names:,} of {totals.names:,} stand for more than one program",
        "not read": f"{totals.unread:,} files" if totals.unread else "",
    }
    return tuple((name, one_line(value)) for name, value in known.items() if value)


def shared_code(groups: KernelGroups) -> Iterator[Listing]:
    """Yield the code of the programs with most uses."""
    for group in groups.groups(limit=LISTED):
        kernel = groups.representative(group)
        code = kernel.source
        if len(code) > CODE_LARGEST:
            code = f"{code[:CODE_LARGEST]}\n… {len(kernel.source) - CODE_LARGEST:,} letters more in {kernel.place}"
        first = f"first found in {kernel.sample}" + (f", {kernel.direction}" if kernel.direction else "")
        note = f"{group.uses:,} uses in {group.samples:,} samples; {first}; hash {group.hash}"
        yield Listing(one_line(group.name), one_line(note), code, LANGUAGES[kernel.language])


def program_rows(groups: KernelGroups) -> Iterator[dict[str, Any]]:
    """Yield every column of each program."""
    query = (
        "select kernels.hash, structure, kernels.name, language, kernels.sample, kernels.direction, kernels.target, "
        "kernels.place, count(*), count(distinct uses.sample), sum(uses.direction = 'forward'), "
        "sum(uses.direction = 'backward'), sum(calls), total(bytes) "
        "from kernels join uses on uses.hash = kernels.hash group by kernels.hash order by 9 desc, 1"
    )
    for row in groups.index.rows(query):
        known = dict(zip((name for name, _ in FIELDS), row, strict=True))
        yield {**known, "tensor_bytes": int(known["tensor_bytes"])}


# ------------------------------------------------------------------ the picture

POINTS = 200
"""The points of a line."""


def sharing_picture(groups: KernelGroups) -> Iterator[Figure]:
    """Draw how often each program is used, the most used first; nothing if all are used once."""
    query = "select count(*) from uses where ? in (direction, '') group by hash order by 1 desc"
    lines = {"all": "", "forward": "forward", "backward": "backward"}
    series = {title: [row[0] for row in groups.index.rows(query, (word,))] for title, word in lines.items()}
    known = {title: counts for title, counts in series.items() if counts}
    most = max((counts[0] for counts in known.values()), default=1)
    if most < 2:
        return
    across = LogScale(1, max(map(len, known.values())) * 1.05 + 1, LEFT, EDGE)
    up = LogScale(1, most * 1.15, height_for(len(known)) - BOTTOM, TOP)
    places = {
        title: [(across.place(rank + 1), up.place(counts[rank])) for rank in chosen_ranks(len(counts))]
        for title, counts in known.items()
    }
    ticks = [(across.place(tick), f"{tick:,.0f}") for tick in across.ticks()]
    axis = value_axis(up, up.ticks(), EDGE, "uses", "{:,.0f}".format)
    note = f"How often each program is used; both axes are logarithmic. The {MOST} most used are in a table below."
    title = "How often each program is used"
    yield Figure("Sharing", note, chart(title, places, axis, ticks, "programs, the most used first", mark=""))


def chosen_ranks(count: int) -> list[int]:
    """Return ranks that are evenly apart on a logarithmic axis, from the first to the last."""
    return sorted({min(count - 1, round(count ** (step / POINTS)) - 1) for step in range(POINTS + 1)})
