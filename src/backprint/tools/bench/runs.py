"""Read the folder of a bench run: `bench.json`, and for each compiler a corpus run whose samples have `cells.jsonl`.

Each line of `cells.jsonl` is a BenchCell; its sample is named by the ledger's row. Before a graph is compiled, a line
`{"begun": TITLE}` names it, with the `stage` that it has reached. Where a process was ended, that graph's cell is made
from the ledger's row: the `verdict` of the sample, the `cause` and `detail` of its end, and what it took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backprint.common import files
from backprint.common.files import read_json
from backprint.common.text import check_values
from backprint.common.words import BENCH_DIRECTIONS
from backprint.errors import SampleError, UsageError
from backprint.graph.verdicts import VERDICTS
from backprint.tools.bench.cells import STOPPED, BenchCell, cell_from_json
from backprint.tools.jobs.ledger import NAME, Ledger, place_of

FORMAT = 2

META = "bench.json"

CELLS = "cells.jsonl"

MOST_CELLS = 64 << 20
"""The bytes of such a file that are read."""

MOST_LINES = 100_000
"""The lines of one: each is a graph of a sample."""

ENDED = {"timeout": "timeout", "out of memory": "out of memory"}
"""Causes of a ledger's row that are outcomes of a cell too."""

NAME_MAX = 255
"""The longest name of a folder that file systems take."""

DIED = ("killed by ", "exit ")
"""How the cause of a process begins that ended by itself: a crash."""

FAILED = VERDICTS[-1]
"""The verdict of a sample whose process was ended."""


@dataclass(frozen=True, slots=True)
class _BenchCompiler:
    """A compiler of a run: its name, its folder in the run, and the versions of its packages."""

    name: str
    folder: str
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BenchRun:
    """A bench run that is finished or in progress."""

    place: Path
    backprint: str
    torch: str
    started: float | None
    finished: float | None
    sources: tuple[str, ...]
    options: Mapping[str, Any]
    machine: Mapping[str, Any]
    compilers: tuple[_BenchCompiler, ...]
    cells: tuple[BenchCell, ...]
    jobs: int = 1
    """How many samples were worked on at a time, at most."""
    unfinished: int = 0
    """How many samples are not done, counted for each compiler."""

    def _repr_html_(self) -> str:
        from backprint.table.notebook import html_of
        from backprint.tools.bench.reports import bench_report

        return html_of(bench_report(self))

    def of(self, compiler: str) -> tuple[BenchCell, ...]:
        """Return the cells of one compiler; UsageError if it is not in this run."""
        if compiler not in (names := [row.name for row in self.compilers]):
            raise UsageError(f"{self.place}: compiler {compiler!r} is not in this run, which has {', '.join(names)}")
        return tuple(cell for cell in self.cells if cell.compiler == compiler)


def read_run(path: Path | str) -> BenchRun:
    """Read the run in a folder; a run in progress has the cells that are known so far. Raise UsageError for a folder
    that is no run, and SampleError for a damaged `bench.json`."""
    place = Path(path)
    meta = read_meta(place)
    try:
        compilers = tuple(map(_compiler_of, meta["compilers"]))
        cells_and_unfinished = [_read_compiler(place, compiler) for compiler in compilers]
        return BenchRun(
            place,
            backprint=str(meta.get("backprint", "")),
            torch=str(meta.get("torch", "")),
            started=moment(meta, "started"),
            finished=moment(meta, "finished"),
            sources=tuple(map(str, meta.get("sources", ()))),
            options=dict(meta.get("options") or {}),
            machine=dict(meta.get("machine") or {}),
            compilers=compilers,
            cells=with_operator_counts([cell for cells, _ in cells_and_unfinished for cell in cells]),
            jobs=int(meta.get("jobs", 1)),
            unfinished=sum(count for _, count in cells_and_unfinished),
        )
    # What values of another type raise, which a damaged file may have where the code above takes lists and texts.
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, UsageError):  # it is a ValueError, and has its own message
            raise
        raise SampleError(f"{place / META}: is damaged: {type(error).__name__}: {error}; bench again") from error


def moment(meta: Mapping[str, Any], name: str) -> float | None:
    """Return a time of `bench.json` in seconds since 1970; raise ValueError for one that no date has."""
    seconds = meta.get(name)
    if seconds is not None and not (isinstance(seconds, (int, float)) and 0 <= seconds < 1e11):  # the year 5138
        raise ValueError(f"{name} is {str(seconds)[:40]}, which is no time")
    return seconds


def with_operator_counts(cells: Sequence[BenchCell]) -> tuple[BenchCell, ...]:
    """Return cells with the number of operators that another compiler's cell of the graph has, where it is unknown."""
    counts = {(cell.sample, cell.graph): cell.steps for cell in cells if cell.steps}
    return tuple(
        cell if cell.steps else replace(cell, steps=counts.get((cell.sample, cell.graph), 0)) for cell in cells
    )


def read_meta(place: Path) -> dict[str, Any]:
    """Read `bench.json`; raise UsageError where a folder is no run, or one of another format."""
    try:
        meta = read_json(place / META, links=True)
    except SampleError as error:
        if not (place / META).exists():
            raise UsageError(f"{place}: no {META} here; name the RUN that `backprint bench run -o RUN` wrote") from None
        raise UsageError(f"{error}; bench again into another RUN") from None
    version = meta.get("format") if isinstance(meta, dict) else None
    if version != FORMAT:
        raise UsageError(
            f"{place}: a bench run of format {version!r}, and this Backprint reads format {FORMAT}; "
            "report it with the Backprint that made it, or bench again into another RUN"
        )
    return dict(meta)


def _compiler_of(row: Mapping[str, Any]) -> _BenchCompiler:
    """Return a compiler as `bench.json` has it; UsageError if its folder is not one in the run."""
    folder = str(row["folder"])
    if Path(folder).name != folder or folder == ".." or len(folder) > NAME_MAX:
        raise UsageError(f"{META}: compiler {row['name']!r} has folder {folder[:80]!r}, which is not one in the run")
    versions = tuple((str(name), str(version)) for name, version in (row.get("versions") or {}).items())
    return _BenchCompiler(str(row["name"]), folder, versions)


def _read_compiler(place: Path, compiler: _BenchCompiler) -> tuple[tuple[BenchCell, ...], int]:
    """Return a compiler's cells, and how many of its samples are not done. A folder not begun has none."""
    out = place / compiler.folder
    if not (out / NAME).is_file():
        return (), 0
    with Ledger.reading(out) as ledger:
        rows = tuple(ledger.rows(order="id"))
    done = [row for row in rows if row["state"] == "done"]
    return tuple(cell for row in done for cell in cells_of(out, row, compiler.name)), len(rows) - len(done)


def cells_of(out: Path, row: Mapping[str, Any], compiler: str) -> Iterator[BenchCell]:
    """Yield the cells of one sample, whose row is in the ledger of the folder `out`; where its process was ended, the
    cell of the graph at work comes last. A last cell without a graph says that a line is damaged, that no graph had
    begun, or that all had ended before the process."""
    failed = row["verdict"] == FAILED
    cells: dict[str, BenchCell] = {}
    begun: Mapping[str, Any] = {}  # the last line that names a graph
    damage: list[str] = []
    for line in read_lines(place_of(out, row) / CELLS, failed):
        match line:
            case str():
                damage.append(line)
            case BenchCell():
                cells[line.graph] = replace(line, sample=row["id"], family=line.family or str(row["family"] or ""))
            case _:
                begun = line
    yield from cells.values()
    if damage:
        yield replace(_ended_cell(row, compiler, "", "a damaged file"), outcome="unjudged", reason=damage[0])
        return
    if not cells or (failed and begun and begun["begun"] not in cells):
        yield _ended_cell(row, compiler, str(begun.get("begun") or ""), str(begun.get("stage") or ""))
        return
    # The process was ended in a way that no cell has yet, such as a limit of time after its last graph.
    if failed and _outcome_of_row(row["cause"]) in {*STOPPED} - {cell.outcome for cell in cells.values()}:
        yield replace(_ended_cell(row, compiler, "", "after the last cell"), outcome="skipped")


def read_lines(file: Path, failed: bool) -> Iterator[BenchCell | Mapping[str, Any] | str]:
    """Yield the cells of a file of JSON lines, the objects that name a graph (`begun`), and a text for a damaged line.

    The last line may be cut off if the process was ended (`failed`): it is then left out.
    """
    if not file.is_file():
        return
    lines = files.read_lines(file, MOST_CELLS, MOST_LINES, "backslashreplace")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            check_values(line)
            row = json.loads(line)
            begun = isinstance(row, dict) and isinstance(row.get("begun"), str)
            yield row if begun else cell_from_json(row)
        except (ValueError, RecursionError) as error:
            if failed and number == len(lines):
                return
            yield f"{file}:{number}: is not a cell: {error}; bench the sample again"


def _ended_cell(row: Mapping[str, Any], compiler: str, title: str, stage: str) -> BenchCell:
    """Return the cell of a graph whose process was ended, from the sample's row in the ledger and the stage that the
    graph had reached; without a title, no graph had begun."""
    direction = title.rpartition(" ")[2]  # of `pair_0 forward`
    reason_of_end = ": ".join(filter(None, (stage, str(row["cause"] or ""), str(row["detail"] or ""))))
    return BenchCell(
        sample=row["id"],
        graph=title,
        direction=direction if direction in BENCH_DIRECTIONS else "",
        compiler=compiler,
        outcome=_outcome_of_row(row["cause"]),
        reason=reason_of_end if title or stage else f"no graph had begun: {reason_of_end}",
        family=str(row["family"] or ""),
        peak_bytes=row["peak_bytes"],
        seconds=float(row["seconds"] or 0.0),
    )


def _outcome_of_row(cause: str | None) -> str:
    """Return the outcome of a row's cause: how the process ended; `skipped` where an error ended the sample."""
    if cause is not None and cause.startswith(DIED):
        return "crashed"
    return ENDED.get(cause or "", "skipped")
