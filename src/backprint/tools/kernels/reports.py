"""The report of the kernels in an index: facts, tables, a picture, code, and a row a program for files.

Each table is a query of the index; facts that a sample's files do not have are left out.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backprint.tools.cost.costs import view_operators
from backprint.tools.kernels.groups import KernelGroup, KernelGroups
from backprint.tools.kernels.index import KernelIndex
from backprint.tools.report.nouns import Cell, Figure, Listing, Report, Table, columns, filled, one_line
from backprint.tools.report.svg import BOTTOM, EDGE, LEFT, TOP, LogScale, chart, height_for, value_axis

MOST = 20
"""The rows of a table of the most shared, or the largest."""

LETTERS = 12
"""Of a hash in a table."""

NO_WORK = view_operators() | {"getitem", "empty", "empty_like"}
"""Operators of which a kernel computes nothing: views, and what makes memory."""


def _target_table(index: KernelIndex) -> Table:
    """Count kernels and programs of each target."""
    query = (
        "select uses.target, language, count(distinct uses.sample), count(*), count(distinct uses.hash), "
        "count(distinct structure) from uses join kernels on kernels.hash = uses.hash group by 1, 2 order by 1, 2"
    )
    rows = tuple(
        (target or "(not known)", language, samples, uses, programs, uses / programs, structures)
        for target, language, samples, uses, programs, structures in index.rows(query)
    )
    heads = "target language samples:count kernels:count programs:count uses_a_program:times structures:count"
    note = "A program that two targets have counts in each."
    return Table("By target", note, columns(heads), rows)


def _direction_table(index: KernelIndex) -> Table:
    """Count kernels and programs of forwards and backwards, and what each shares with the other."""
    query = "select direction, count(distinct sample), count(*), count(distinct hash) from uses group by 1 order by 1"
    shared = (
        "select count(distinct hash), count(*) from uses where direction = ? and "
        "exists (select 1 from uses as others where others.hash = uses.hash and others.direction = ?)"
    )
    rows: list[tuple[Cell, ...]] = []
    for direction, samples, uses, programs in list(index.rows(query)):
        other = {"forward": "backward", "backward": "forward"}.get(direction, "")
        both, uses_of_both = next(index.rows(shared, (direction, other))) if other else (None, None)
        part = None if uses_of_both is None else uses_of_both / uses
        rows.append((direction or "(not known)", samples, uses, programs, uses / programs, both, part))
    heads = "direction samples:count kernels:count programs:count uses_a_program:times"
    heads += " programs_of_both:count their_share_of_kernels:share"
    note = "Of both are programs that forwards and backwards have."
    return Table("Forward against backward", note, columns(heads), tuple(rows))


def _shared_programs(groups: KernelGroups) -> Table:
    """Return the programs with most uses, of those that are used more than once."""
    rows = tuple(program_row(group) for group in groups.groups(limit=MOST) if group.uses > 1)
    return Table("The most shared programs", "The same program, whatever its name.", columns(PROGRAM), rows)


def _shared_structures(groups: KernelGroups) -> Table:
    """Return the structures with most uses, of those that several programs have."""
    rows = tuple(
        (*program_row(group), group.programs) for group in groups.groups("structure", MOST) if group.programs > 1
    )
    note = "Programs that differ in sizes and constants alone."
    return Table("The most shared structures", note, columns(f"{PROGRAM} programs:count"), rows)


def _byte_table(index: KernelIndex) -> Table:
    """Return the programs whose calls have the largest tensors."""
    query = (
        "select name, kernels.hash, found.uses, calls, bytes from kernels join (select hash, count(*) as uses, "
        "total(calls) as calls, total(bytes) as bytes from uses where bytes is not null group by hash "
        "order by bytes desc, 1 limit ?) as found on found.hash = kernels.hash order by bytes desc, 2"
    )
    total = sum(row[0] for row in index.rows("select total(bytes) from uses"))
    rows = tuple(
        (name, uses, calls, size, size / total if total else None, key[:LETTERS])
        for name, key, uses, calls, size in index.rows(query, (MOST,))
    )
    heads = "kernel:name kernels:count calls:count tensors_of_all_calls:size share:share hash:name"
    note = "A call that reads all of its inputs and writes all of its outputs moves as many bytes at least."
    return Table("Bytes", note, columns(heads), rows)


def _name_table(index: KernelIndex) -> Table:
    """Return the names that stand for several programs."""
    query = (
        "select uses.name, language, count(distinct uses.hash), count(*) from uses join kernels "
        "on kernels.hash = uses.hash group by 1, 2 having count(distinct uses.hash) > 1 order by 3 desc, 1 limit ?"
    )
    note = "A name is no key: these are names of more than one program."
    heads = columns("kernel:name language programs:count kernels:count")
    return Table("Names of several programs", note, heads, tuple(index.rows(query, (MOST,))))


def _unread_table(index: KernelIndex) -> Table:
    """Return what could not be read, and why."""
    rows = tuple((unread.place, unread.reason) for unread in index.unread())
    return Table("Not read", "", columns("file:name reason"), rows)


# ------------------------------------------------------------------ operators


@dataclass(slots=True)
class _OperatorUses:
    """How an operator of the captured graphs is computed."""

    fused: int = 0
    """Kernels that compute others too."""
    alone: int = 0
    externs: int = 0


def operator_table(index: KernelIndex) -> Table:
    """Return the operators that no kernel computes together with others."""
    uses_by_operator = _operator_uses(index)
    rows = [
        (name, "no kernel" if not uses.alone else "kernels of their own", uses.externs, uses.alone)
        for name, uses in uses_by_operator.items()
        if not uses.fused
    ]
    rows.sort(key=lambda row: (-row[2] - row[3], row[0]))
    note = (
        f"Of {len(uses_by_operator):,} operators of the captured graphs, those that no kernel computes together with "
        "another one; views do not count."
    )
    heads = "operator:name computed_by calls_beside_kernels:count kernels_alone:count"
    return Table("Operators never fused", note, columns(heads), tuple(rows))


def _operator_uses(index: KernelIndex) -> dict[str, _OperatorUses]:
    """Return each operator of the graphs with how it is computed; its overloads are one."""
    uses_by_operator: dict[str, _OperatorUses] = defaultdict(_OperatorUses)
    for text, count in index.rows("select operators, count(*) from uses where operators != '[]' group by 1"):
        names = Counter(name for name in map(_packet_of, json.loads(text)) if name.rpartition(".")[2] not in NO_WORK)
        for name in names:
            if names.total() > 1:
                uses_by_operator[name].fused += count
            else:
                uses_by_operator[name].alone += count
    for operator, calls in index.rows("select operator, total(calls) from externs group by 1"):
        if (name := _packet_of(operator)).rpartition(".")[2] not in NO_WORK:
            uses_by_operator[name].externs += int(calls)
    return uses_by_operator


def _packet_of(operator: str) -> str:
    """Return an operator without its overload: `aten.addmm` of `aten.addmm.out`."""
    parts = operator.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else operator


# ------------------------------------------------------------------ all programs


@dataclass(frozen=True, slots=True)
class _ProgramRows:
    """The rows of all programs, read from the index each time."""

    groups: KernelGroups

    def __iter__(self) -> Iterator[tuple[Cell, ...]]:
        return map(program_row, self.groups.groups())


PROGRAM = "kernel:name language uses:count samples:count forward:count backward:count hash:name"
"""The columns of `program_row`."""


def program_row(group: KernelGroup) -> tuple[Cell, ...]:
    return (group.name, group.language, group.uses, group.samples, group.forward, group.backward, group.hash[:LETTERS])


def _program_table(groups: KernelGroups) -> Table:
    """Return all programs."""
    return Table("All programs", "", columns(PROGRAM), _ProgramRows(groups))


# ------------------------------------------------------------------ the report

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
    return _kernel_report(groups, folders)


def _kernel_report(groups: KernelGroups, folders: Iterable[Path] = ()) -> Report:
    """Return the report of the kernels in an index."""
    index = groups.index
    tables = (
        _target_table(index),
        _direction_table(index),
        _shared_programs(groups),
        _shared_structures(groups),
        operator_table(index),
        _byte_table(index),
        _name_table(index),
        _unread_table(index),
    )
    return Report(
        "Kernels",
        _total_facts(groups, folders),
        tuple(filled(tables)),
        _program_table(groups),
        FIELDS,
        lambda: _program_rows(groups),
        tuple(_sharing_picture(groups)),
        tuple(_shared_code(groups)),
        answer=answer_text(groups),
    )


def answer_text(groups: KernelGroups) -> str:
    """Return how many different programs the kernels are, and how many of them forwards and backwards share."""
    totals = groups.totals()
    unread = f"; {totals.unread:,} files were not read" if totals.unread else ""
    return (
        f"{totals.uses:,} kernels of {totals.samples:,} samples are {totals.programs:,} programs; "
        f"{totals.forward:,} of forwards, {totals.backward:,} of backwards, {totals.both:,} of both{unread}"
    )


def _total_facts(groups: KernelGroups, folders: Iterable[Path]) -> tuple[tuple[str, str], ...]:
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


def _shared_code(groups: KernelGroups) -> Iterator[Listing]:
    """Yield the code of the programs with most uses."""
    for group in groups.groups(limit=LISTED):
        kernel = groups.representative(group)
        code = kernel.source
        if len(code) > CODE_LARGEST:
            code = f"{code[:CODE_LARGEST]}\n… {len(kernel.source) - CODE_LARGEST:,} letters more in {kernel.place}"
        first = f"first found in {kernel.sample}" + (f", {kernel.direction}" if kernel.direction else "")
        note = f"{group.uses:,} uses in {group.samples:,} samples; {first}; hash {group.hash}"
        yield Listing(one_line(group.name), one_line(note), code, LANGUAGES[kernel.language])


def _program_rows(groups: KernelGroups) -> Iterator[dict[str, Any]]:
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


def _sharing_picture(groups: KernelGroups) -> Iterator[Figure]:
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
