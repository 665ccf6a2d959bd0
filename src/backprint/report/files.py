"""A report's rows for other programs: CSV by the standard library, Parquet by pyarrow, JSON lines. One row a sample."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

from backprint.errors import UsageError
from backprint.plain import spreadsheet_cell
from backprint.report.nouns import Report

BATCH = 1000


def finite_or_word(value: Any) -> Any:
    """Return a value for JSON: numbers that are not finite become words."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def json_lines(report: Report) -> Iterator[str]:
    """Yield one object a sample."""
    for row in report.rows():
        yield json.dumps({name: finite_or_word(row[name]) for name, _ in report.fields}) + "\n"


def render_csv(report: Report) -> Iterator[str]:
    """Yield a header and a row a sample; lists and mappings are JSON."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")

    def taken() -> str:
        text = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        return text

    writer.writerow([name for name, _ in report.fields])
    yield taken()
    for row in report.rows():
        writer.writerow([text_of(row[name]) for name, _ in report.fields])
        yield taken()


def text_of(value: Any) -> Any:
    """Return a value for one CSV field, which no spreadsheet computes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return spreadsheet_cell(value)
    return json.dumps(value) if isinstance(value, (dict, tuple)) else value


def write_parquet(report: Report, file: BinaryIO) -> None:
    """Write a table of typed columns, with some thousand rows in memory at a time."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "--format parquet needs pyarrow, which is not installed: pip install '.[parquet]' in Backprint's folder, "
            "or take --format csv"
        ) from error

    pair = arrow.struct([("name", arrow.string()), ("why", arrow.string())])
    kinds = {
        "text": arrow.string(),
        "count": arrow.int64(),
        "number": arrow.float64(),
        "flag": arrow.bool_(),
        "texts": arrow.list_(arrow.string()),
        "pairs": arrow.list_(pair),
        "numbers": arrow.map_(arrow.string(), arrow.float64()),
        "counts": arrow.map_(arrow.string(), arrow.int64()),
        "words": arrow.map_(arrow.string(), arrow.string()),
    }
    schema = arrow.schema([(name, kinds[kind]) for name, kind in report.fields])
    rows = report.rows()
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(islice(rows, BATCH)):
            columns = [[shaped(row[name], kind) for row in batch] for name, kind in report.fields]
            arrays = [arrow.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
            writer.write_batch(arrow.record_batch(arrays, schema=schema))


def shaped(value: Any, kind: str) -> Any:
    """Return a value as pyarrow accepts it for a column of this type."""
    match kind, value:
        case _, None:
            return None
        case "pairs", _:
            return [{"name": name, "why": why} for name, why in value]
        case "numbers", _:
            return [(key, float(item)) for key, item in value.items()]
        case "counts", _:
            return list(value.items())
        case "words", _:
            return [(key, item if isinstance(item, str) else json.dumps(item)) for key, item in value.items()]
    return value
