"""A report as Markdown, HTML, CSV, Parquet or JSON lines.

Names and messages in a report are not trusted: each format escapes them, so that they stay text.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from backprint.common.files import whole_file
from backprint.common.text import policy_digest, printable, spreadsheet_cell
from backprint.errors import UsageError
from backprint.graph.verdicts import WORDS
from backprint.tools.report.nouns import (
    NAMED,
    Cell,
    Column,
    Figure,
    Listing,
    Report,
    Table,
    cell_text,
    count_of_further,
    href,
    one_line,
)

# ------------------------------------------------------------------ Markdown


SPECIAL = re.compile(r"[\\`*<>|~&]|(?<![^\W_])_+|_+(?![^\W_])|!(?=\[)|\](?=[(\[:])|(?<![\w/])[@#](?=\w)")
"""Letters that mean something in a cell of Markdown: markup, entities, links, images, mentions, table borders."""

IN_LINKS = re.compile(rf"{SPECIAL.pattern}|[\[\]]")
"""SPECIAL, and the brackets that could end the text of a link."""

BACKTICKS = re.compile(r"`+")


def markdown_render(report: Report) -> Iterator[str]:
    """Yield the whole report in pieces."""
    yield f"# {escaped(report.title)}\n\n"
    if report.answer:
        yield f"{escaped(report.answer)}\n\n"
    yield from (f"- **{escaped(name)}**: {escaped(value)}\n" for name, value in report.facts)
    for table in report.tables:
        yield from _markdown_section(table, report)
    for listing in report.listings:
        yield from fenced(listing)


def _markdown_section(table: Table, report: Report) -> Iterator[str]:
    """Yield one table under its title."""
    yield f"\n## {escaped(table.title)}\n"
    yield f"{escaped(table.note)}\n\n" if table.note else "\n"
    yield line(escaped(column.name) for column in table.columns)
    yield line("---:" if column.right else "---" for column in table.columns)
    for row in table.rows:
        yield line(_markdown_cell(value, column, report) for value, column in zip(row, table.columns, strict=True))


def fenced(listing: Listing) -> Iterator[str]:
    """Yield code under its title; the fence is longer than any in the code."""
    code = printable(listing.code.strip("\n"), lines=True)
    fence = "`" * max(3, 1 + max(map(len, BACKTICKS.findall(code)), default=0))
    yield f"\n## {escaped(listing.title)}\n{escaped(listing.note)}\n\n"
    yield f"{fence}{listing.language}\n{code}\n{fence}\n"


def line(cells: Iterator[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _markdown_cell(value: Cell, column: Column, report: Report) -> str:
    """Return one cell; samples have links."""
    if isinstance(value, tuple):
        return ", ".join(_markdown_linked_sample(name, report, 1) for name in value[:NAMED]) + count_of_further(value)
    if column.kind == "sample" and isinstance(value, str):
        return _markdown_linked_sample(value, report)
    return escaped(cell_text(value, column))


def _markdown_linked_sample(sample: str, report: Report, most: int | None = None) -> str:
    """Return the name of a sample as a link to its code, and its other files beside it; `most` links in all."""
    links = [(link.word, href(link.path)) for link in report.links(sample)[:most]]
    if not links:
        return escaped(sample)
    name = f"[{escaped(sample, IN_LINKS)}]({links[0][1]})"
    return f"{name} " + " ".join(f"[{word}]({path})" for word, path in links[1:]) if links[1:] else name


def escaped(text: str, special: re.Pattern[str] = SPECIAL) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return special.sub(lambda match: "".join(f"\\{letter}" for letter in match[0]), one_line(text))


# ------------------------------------------------------------------ HTML
#
# One file without network access or inline handlers, for light and dark. Every text is escaped, and a content security
# policy allows only the script below, by its digest, so that a text that was not escaped could not run either.

FILTERED = 12
"""Tables of more rows have a filter box."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d9dee5; --page: #ffffff; --band: #f5f7fa;
  --bar: #2f6fde; --track: #e4e9f0; --good: #18794e; --close: #0b7285; --flat: #5b6470; --warn: #9a5b00;
  --bad: #b42318;
  --s0: #2f6fde; --s1: #c2410c; --s2: #18794e; --s3: #a21caf;
  --s4: #b42318; --s5: #0b7285; --s6: #8a6100; --s7: #4b5563; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa5b3; --line: #2d343e; --page: #14181d;
  --band: #1b2027; --bar: #6ea0ff; --track: #2a313b; --good: #5fd39a; --close: #5cc8de; --flat: #9aa5b3;
  --warn: #f0b35a; --bad: #ff8a7d;
  --s0: #6ea0ff; --s1: #ff9a5c; --s2: #5fd39a; --s3: #e58cf0;
  --s4: #ff8a7d; --s5: #5cc8de; --s6: #e3b94d; --s7: #b6c0cd; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 84rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 1rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .3rem; }
p { margin: .2rem 0 .6rem; color: var(--soft); } a { color: var(--bar); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 0 1rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; padding: .6rem 0; border-block: 1px solid var(--line); }
.scroll { overflow: auto; max-height: 75vh; width: fit-content; max-width: 100%;
  border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; min-width: 24rem; font-size: 14px; }
th, td { padding: .3rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  max-width: 34rem; overflow-wrap: break-word; }
th { position: sticky; top: 0; background: var(--band); white-space: nowrap; cursor: pointer; user-select: none; }
th[aria-sort=ascending]::after { content: " \\25b4"; } th[aria-sort=descending]::after { content: " \\25be"; }
tbody tr:last-child td { border-bottom: 0; } tbody tr:hover td { background: var(--band); }
.r { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.n { font-family: ui-monospace, monospace; font-size: 13px; min-width: 14rem; overflow-wrap: anywhere; }
th.n { font: inherit; font-weight: 600; }
.v { white-space: nowrap; font-weight: 600; } .n a { color: inherit; } .n .to { color: var(--bar); font-size: 12px; }
.bitwise { color: var(--good); } .close { color: var(--close); } .undifferentiable { color: var(--flat); }
.unproven, .vacuous { color: var(--warn); } .wrong, .failed { color: var(--bad); }
svg { vertical-align: middle; margin-left: .5rem; } svg .t { fill: var(--track); } svg .b { fill: var(--bar); }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
figure { margin: 1.4rem 0 0; max-width: 100%; overflow-x: auto; } figcaption { font-weight: 600; }
figure p { max-width: 38rem; } .picture { margin: 0; display: block; }
.picture .label { fill: var(--ink); font: 12px system-ui, sans-serif; } .picture .soft { fill: var(--soft); }
.picture .grid { stroke: var(--line); } .picture .axis { stroke: var(--soft); }
.picture .one { stroke: var(--soft); stroke-dasharray: 5 4; }
.picture .curve { fill: none; stroke: currentColor; stroke-width: 1.8; } .picture .dashed { stroke-dasharray: 6 3; }
.picture .mark { fill: currentColor; stroke: var(--page); stroke-width: .7; } .picture .dot { fill-opacity: .7; }
.picture .violin { fill: currentColor; fill-opacity: .35; stroke: currentColor; stroke-width: 1.2; }
.picture .box { fill: var(--soft); } .picture .median { stroke: var(--ink); stroke-width: 2.2; }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); } .s3 { color: var(--s3); }
.s4 { color: var(--s4); } .s5 { color: var(--s5); } .s6 { color: var(--s6); } .s7 { color: var(--s7); }
input { font: inherit; width: 22rem; max-width: 100%; padding: .3rem .6rem; margin: .2rem 0 .5rem; color: inherit;
  background: var(--page); border: 1px solid var(--line); border-radius: 6px; }
output { color: var(--soft); margin-left: .6rem; }
details { margin: .5rem 0; } summary { cursor: pointer; overflow-wrap: anywhere; }
pre { overflow: auto; max-height: 75vh; margin: .3rem 0; padding: .7rem 1rem; font: 13px/1.45 ui-monospace, monospace;
  background: var(--band); border: 1px solid var(--line); border-radius: 6px; }
"""

SCRIPT = """
for (const section of document.querySelectorAll("section")) {
  const [body, box, told] = ["tbody", "input", "output"].map(name => section.querySelector(name));
  if (box) box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      shown += !row.hidden;
    }
    told.textContent = words.length ? `${shown} of ${body.rows.length}` : "";
  });
  for (const head of section.querySelectorAll("th")) head.addEventListener("click", () => {
    const up = head.ariaSort !== "ascending", at = head.cellIndex, number = head.className === "r";
    const key = cell => number ? Number(cell.dataset.v) : cell.textContent, words = new Intl.Collator();
    const rows = [...body.rows].map(row => [key(row.cells[at]), row]);
    rows.sort(([a], [b]) => (up ? 1 : -1) * (number ? (a > b) - (a < b) : words.compare(a, b)));
    for (const other of section.querySelectorAll("th")) other.ariaSort = null;
    head.ariaSort = up ? "ascending" : "descending";
    body.replaceChildren(...rows.map(([, row]) => row));
  });
}
"""


def html_render(report: Report) -> Iterator[str]:
    """Yield the whole page in pieces."""
    allowed = f"style-src {policy_digest(STYLE)}; script-src {policy_digest(SCRIPT)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{text(report.title)}</h1>\n"
    )
    if report.answer:
        yield f"<p>{text(report.answer)}</p>\n"
    yield "<dl>\n"
    yield from (f"<dt>{text(name)}</dt><dd>{text(value)}</dd>\n" for name, value in report.facts)
    tables = (*report.tables, report.samples)
    links = [
        f'<a href="#p{index}">{text(report_figure.title)}</a>' for index, report_figure in enumerate(report.figures)
    ]
    links += [f'<a href="#t{index}">{text(table.title)}</a>' for index, table in enumerate(tables)]
    links += ['<a href="#code">Code</a>'] if report.listings else []
    yield f"</dl>\n<nav>{' '.join(links)}</nav>\n"
    if report.figures:
        yield f'<div class="pictures">\n{"".join(map(figure, range(len(report.figures)), report.figures))}</div>\n'
    for index, table in enumerate(tables):
        yield from _html_section(table, index, report)
    if report.listings:
        yield f'<section id="code">\n<h2>Code</h2>\n{"".join(map(_listing_of_code, report.listings))}</section>\n'
    yield f"<script>{SCRIPT}</script>\n</body>\n</html>\n"


def figure(index: int, picture: Figure) -> str:
    """Return a picture under its title."""
    caption = f"<figcaption>{text(picture.title)}</figcaption>\n<p>{text(picture.note)}</p>"
    return f'<figure id="p{index}">{caption}\n{picture.svg}\n</figure>\n'


def _html_section(table: Table, index: int, report: Report) -> Iterator[str]:
    """Yield one table under its title."""
    yield f'<section id="t{index}">\n<h2>{text(table.title)}</h2>\n'
    yield f"<p>{text(table.note)}</p>\n" if table.note else ""
    if sum(1 for _ in table.rows) > FILTERED:
        yield f'<input type="search" placeholder="filter" aria-label="filter {text(table.title)}"><output></output>\n'
    heads = (f"<th{css(column)}>{text(column.name)}</th>" for column in table.columns)
    yield f'<div class="scroll"><table>\n<thead><tr>{"".join(heads)}</tr></thead>\n<tbody>\n'
    for row in table.rows:
        cells = (_html_cell(value, column, report) for value, column in zip(row, table.columns, strict=True))
        yield f"<tr>{''.join(cells)}</tr>\n"
    yield "</tbody>\n</table></div>\n</section>\n"


def _listing_of_code(listing: Listing) -> str:
    """Return code that opens under its title."""
    code = html.escape(printable(listing.code.strip("\n"), lines=True), quote=True)
    caption = f"<summary>{text(listing.title)}</summary>\n<p>{text(listing.note)}</p>"
    return f"<details>{caption}\n<pre>{code}</pre>\n</details>\n"


CLASSES = {"name": "n", "sample": "n", "samples": "n", "verdict": "v"}


def css(column: Column) -> str:
    """Return the class of a column's cells."""
    kind = "r" if column.right else CLASSES.get(column.kind, "")
    return f' class="{kind}"' if kind else ""


def _html_cell(value: Cell, column: Column, report: Report) -> str:
    """Return one cell: numbers carry their value for sorting, shares a bar, verdicts their color, samples links."""
    if isinstance(value, tuple):
        names = ", ".join(_html_linked_sample(name, report, 1) for name in value[:NAMED])
        return f"<td{css(column)}>{names}{count_of_further(value)}</td>"
    if column.kind == "sample" and isinstance(value, str):
        return f"<td{css(column)}>{_html_linked_sample(value, report)}</td>"
    shown = text(cell_text(value, column))
    if column.kind == "verdict":
        return f'<td class="v {tone(str(value))}">{shown}</td>'
    if not column.right:
        return f"<td{css(column)}>{shown}</td>"
    known = -1 if value is None or value != value else value
    drawn = bar(float(known)) if column.kind == "share" and value is not None else ""
    return f'<td class="r" data-v="{text(str(known)).replace("inf", "Infinity")}">{shown}{drawn}</td>'


def _html_linked_sample(sample: str, report: Report, most: int | None = None) -> str:
    """Return the name of a sample as a link to its code, and its other files beside it; `most` links in all."""
    first, *others = [(text(link.word), text(href(link.path))) for link in report.links(sample)[:most]] or [("", "")]
    name = f'<a href="{first[1]}">{text(sample)}</a>' if first[1] else text(sample)
    return name + "".join(f' <a class="to" href="{path}">{word}</a>' for word, path in others)


TONES = {
    **{verdict: verdict for verdict in WORDS},
    **dict.fromkeys(("same", "unsure", "untimed"), "close"),
    "faster": "bitwise",
    "slower": "unproven",
    **dict.fromkeys(("refused", "crashed", "timeout", "out of memory", "regression"), "failed"),
    **dict.fromkeys(("random", "nondeterministic", "eager failed", "skipped", "unjudged"), "undifferentiable"),
}
"""Classes by word: verdicts, and outcomes of a bench."""


def tone(standing: str) -> str:
    """Return the class of a verdict or an outcome, or of none. A number may follow an outcome: `faster · 1.52×`."""
    verdict, _, vacuous = standing.partition(", ")
    return "vacuous" if vacuous else TONES.get(verdict.partition(" · ")[0], "")


def bar(share: float) -> str:
    """Return a share as a bar."""
    width = 90 * min(max(share, 0.0), 1.0)
    return (
        '<svg width="90" height="8" aria-hidden="true"><rect class="t" width="90" height="8" rx="2"/>'
        f'<rect class="b" width="{width:.1f}" height="8" rx="2"/></svg>'
    )


def text(value: str) -> str:
    """Return a text escaped, in one line."""
    return html.escape(one_line(value), quote=True)


# ------------------------------------------------------------------ rows for other programs
#
# One row a sample. CSV is written by the standard library, Parquet by pyarrow.

BATCH = 1000


def _finite_or_word(value: Any) -> Any:
    """Return a value for JSON: numbers that are not finite become words."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def json_lines(report: Report) -> Iterator[str]:
    """Yield one object a sample."""
    for row in report.rows():
        yield json.dumps({name: _finite_or_word(row[name]) for name, _ in report.fields}) + "\n"


def render_csv(report: Report) -> Iterator[str]:
    """Yield a header and a row a sample; lists and mappings are JSON."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")

    def take_text() -> str:
        text = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        return text

    writer.writerow([name for name, _ in report.fields])
    yield take_text()
    for row in report.rows():
        writer.writerow([text_of(row[name]) for name, _ in report.fields])
        yield take_text()


def text_of(value: Any) -> Any:
    """Return a value for one CSV field, which no spreadsheet computes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return spreadsheet_cell(value)
    return json.dumps(value) if isinstance(value, (dict, tuple)) else value


GROUP = 32 << 20
"""About as many characters are in memory at a time, and in a row group of the file."""


def _write_parquet(report: Report, file: BinaryIO) -> None:
    """Write a table of typed columns, with some thousand rows in memory at a time."""
    write_parquet_rows(report.fields, report.rows(), file)


def write_parquet_rows(
    fields: Sequence[tuple[str, str]], rows: Iterator[dict[str, Any]], file: BinaryIO, batch_rows: int = BATCH
) -> None:
    """Write rows as a table of typed columns, in row groups of at most `batch_rows` rows and about GROUP characters."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed: pip install '.[parquet]' in Backprint's folder"
        ) from error

    text = arrow.string()
    sizes = arrow.list_(arrow.int64())
    port = [("name", text), ("role", text), ("spec", text), ("dtype", text), ("shape", sizes)]
    kinds = {
        "text": text,
        "count": arrow.int64(),
        "number": arrow.float64(),
        "flag": arrow.bool_(),
        "texts": arrow.list_(text),
        "pairs": arrow.list_(arrow.struct([("name", text), ("why", text)])),
        "ports": arrow.list_(arrow.struct(port)),
        **{
            kind: arrow.list_(arrow.struct([("name", text), ("value", value)]))  # `datasets` loads no maps
            for kind, value in (("numbers", arrow.float64()), ("counts", arrow.int64()), ("words", text))
        },
    }
    schema = arrow.schema([(name, kinds[kind]) for name, kind in fields])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches(rows, batch_rows):
            columns = [[_arrow_value(row[name], kind) for row in batch] for name, kind in fields]
            arrays = [arrow.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
            writer.write_batch(arrow.record_batch(arrays, schema=schema))


def batches(rows: Iterator[dict[str, Any]], most: int) -> Iterator[list[dict[str, Any]]]:
    """Yield rows together, at most so many, and no more after about GROUP characters."""
    batch: list[dict[str, Any]] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(batch) >= most or characters >= GROUP:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _arrow_value(value: Any, kind: str) -> Any:
    """Return a value as pyarrow accepts it for a column of this type."""
    match kind, value:
        case _, None:
            return None
        case "pairs", _:
            return [{"name": name, "why": why} for name, why in value]
        case "numbers", _:
            return [{"name": key, "value": float(item)} for key, item in value.items()]
        case "counts", _:
            return [{"name": key, "value": item} for key, item in value.items()]
        case "words", _:
            texts = {key: item if isinstance(item, str) else json.dumps(item) for key, item in value.items()}
            return [{"name": key, "value": item} for key, item in texts.items()]
    return value


# ------------------------------------------------------------------ the table of formats


def as_bytes(render: Callable[[Report], Iterator[str]]) -> Callable[[Report, BinaryIO], None]:
    """Turn a renderer of text into one that writes bytes."""

    def write(report: Report, file: BinaryIO) -> None:
        for piece in render(report):
            file.write(piece.encode())

    return write


@dataclass(frozen=True, slots=True)
class _ReportFormat:
    """How a report is written, the file endings of the format, and whether a terminal can show it."""

    write: Callable[[Report, BinaryIO], None]
    endings: tuple[str, ...]
    text: bool = True


FORMATS = {
    "markdown": _ReportFormat(as_bytes(markdown_render), (".md", ".markdown")),
    "html": _ReportFormat(as_bytes(html_render), (".html", ".htm")),
    "csv": _ReportFormat(as_bytes(render_csv), (".csv",)),
    "parquet": _ReportFormat(_write_parquet, (".parquet", ".pq"), text=False),
}


def format_of(name: str | None, path: Path | None) -> str:
    """Return the requested format, else that of the file's name, else Markdown."""
    if name is not None:
        return name
    if path is None:
        return "markdown"
    for known, format in FORMATS.items():
        if path.suffix.lower() in format.endings:
            return known
    raise UsageError(f"{path}: no format is known by {path.suffix or 'no ending'!r}: pass --format {'|'.join(FORMATS)}")


def write_report(report: Report, format: str, path: Path) -> None:
    """Write a file beside its place, then rename it."""
    with whole_file(path) as file:
        FORMATS[format].write(report, file)
