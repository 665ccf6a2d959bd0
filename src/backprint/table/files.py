"""A table for other programs, with all of its columns: CSV, JSON lines and Parquet; and the formats of a report.

A Table has the name of each column with the *kind* of its cells, a key of KINDS, and its rows. `KINDS[kind].arrow` is
the type of such a cell in Parquet, as the table `types` in `write_parquet` names it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from backprint.common.files import whole_file
from backprint.common.text import spreadsheet_cell
from backprint.errors import UsageError
from backprint.table.nouns import KINDS, Report, Table
from backprint.table.page import page_of
from backprint.table.shared import shared

# ------------------------------------------------------------------ texts


def json_lines(table: Table) -> Iterator[str]:
    """Yield an object a row. Numbers that are not finite are words, which JSON has no other form for."""
    for row in table.rows:
        odd = (isinstance(cell, float) and not math.isfinite(cell) for cell in row)
        cells = (str(cell) if is_odd else cell for cell, is_odd in zip(row, odd, strict=True))
        yield json.dumps(dict(zip(table.columns, cells, strict=True))) + "\n"


def csv_lines(table: Table) -> Iterator[str]:
    """Yield the headings and a line a row; lists and mappings are JSON."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in (tuple(table.columns), *table.rows):
        writer.writerow(map(_csv_cell, row))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _csv_cell(value: Any) -> Any:
    """Return a value for one cell; a text that a spreadsheet would compute as a formula is changed so that it does
    not (`spreadsheet_cell`)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return spreadsheet_cell(value)
    return json.dumps(value) if isinstance(value, (dict, list, tuple)) else value


# ------------------------------------------------------------------ Parquet

BATCH, GROUP = 256, 32 << 20
"""The most rows of a row group, which are in memory together, and about the most characters."""


def batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows together, at most BATCH, and no more after about GROUP characters."""
    batch: list[tuple[Any, ...]] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += sum(len(cell) for cell in row if isinstance(cell, str))
        if len(batch) >= BATCH or characters >= GROUP:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def write_parquet(columns: Mapping[str, str], rows: Iterable[tuple[Any, ...]], file: BinaryIO) -> None:
    """Write rows as a table of typed columns to an open file, a batch at a time. `columns` has the kind of the cells of
    each column by its name. UsageError says that pyarrow is missing."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed: pip install '.[parquet]' in Backprint's folder"
        ) from error

    text, count, number = arrow.string(), arrow.int64(), arrow.float64()

    def named(**fields: Any) -> Any:  # a list of records, not a map: Hugging Face's `datasets` loads no maps
        return arrow.list_(arrow.struct(list(fields.items())))

    types = {"text": text, "count": count, "number": number, "flag": arrow.bool_(), "texts": arrow.list_(text)}
    types |= {"pairs": named(name=text, why=text), "words": named(name=text, value=text)}
    types |= {"counts": named(name=text, value=count), "numbers": named(name=text, value=number)}
    types["ports"] = named(name=text, role=text, spec=text, dtype=text, shape=arrow.list_(count))
    schema = arrow.schema([(name, types[KINDS[kind].arrow]) for name, kind in columns.items()])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches(rows):
            records = [
                {name: _parquet_value(cell, kind) for (name, kind), cell in zip(columns.items(), row, strict=True)}
                for row in batch
            ]
            writer.write_table(arrow.Table.from_pylist(records, schema=schema))


def _parquet_value(value: Any, kind: str) -> Any:
    """Return a value as Parquet has it: a mapping, and pairs of a name and a reason, as a list of records. The values
    of a mapping of kind `words` are texts, or JSON."""
    if kind == "pairs" and value is not None:
        return [{"name": name, "why": why} for name, why in value]
    if isinstance(value, Mapping):
        as_text = kind == "words"
        return [
            {"name": name, "value": json.dumps(item) if as_text and not isinstance(item, str) else item}
            for name, item in value.items()
        ]
    return value


# ------------------------------------------------------------------ the formats of a report

FORMATS: Mapping[str, Callable[[Report], Iterator[str]]] = {
    "html": page_of,
    "csv": lambda report: csv_lines(report.rows),
    "json": lambda report: json_lines(report.rows),
    "parquet": lambda report: iter(()),  # no text: `write_report` writes it
}

ENDINGS = {".html": "html", ".htm": "html", ".csv": "csv", ".jsonl": "json", ".parquet": "parquet", ".pq": "parquet"}


def format_of(path: Path) -> str:
    """Return the format that the ending of a file's name stands for; UsageError if it is none of ENDINGS."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise UsageError(f"{path}: no format is known by {ending or 'no ending'!r}: end it in one of {known}")
    return ENDINGS[ending]


def write_report(report: Report, format: str, path: Path) -> None:
    """Write the rows of a report to a file in one of FORMATS, or the whole report as a page (`html`). A file that is
    there is replaced only once the new one is whole (`whole_file`). A page names no path of this machine, so that it
    can be shared."""
    if format == "html":
        report = shared(report, path.parent)
    with whole_file(path) as file:
        if format == "parquet":
            write_parquet(report.rows.columns, report.rows.rows, file)
        # Parquet, which is no text, has no pieces here.
        for piece in FORMATS[format](report):
            file.write(piece.encode())
