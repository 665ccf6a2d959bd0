"""A report as one HTML file, for light and dark, that sorts and filters without a network.

Every text is escaped, by `text`. A content security policy allows only the script and the style below, by their
digests, so that a text that was not escaped could not run either.

A Table has the name of each column with the *kind* of its cells, a key of KINDS (`name`, `word`, `count`, `path`, …),
and its rows. `table.places()` are the indexes of the columns that people are shown, `cell_text(value, kind)` is a cell
as text, and `tone(word)` the class of STYLE for how good a word is.
"""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from backprint.common.text import one_line, policy_digest
from backprint.table.nouns import KINDS, Report, Table, cell_text, count_rows, tone
from backprint.table.pictures import MISSING, svg_of

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d9dee5; --page: #fff; --band: #f5f7fa;
  --link: #2f6fde; --good: #18794e; --fair: #0b7285; --warn: #9a5b00; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa5b3; --line: #2d343e; --page: #14181d;
  --band: #1b2027; --link: #6ea0ff; --good: #5fd39a; --fair: #5cc8de; --warn: #f0b35a; --bad: #ff8a7d; } }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 84rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .3rem; } a { color: var(--link); }
p, dt, output { color: var(--soft); } .answer { color: var(--ink); font-size: 1.1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
div { overflow: auto; max-height: 75vh; width: fit-content; max-width: 100%; border: 1px solid var(--line); }
table { border-collapse: collapse; font-size: 14px; }
th, td { padding: .3rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  max-width: 34rem; overflow-wrap: break-word; }
th { position: sticky; top: 0; background: var(--band); white-space: nowrap; cursor: pointer; }
th[aria-sort=ascending]::after { content: " \\25b4"; } th[aria-sort=descending]::after { content: " \\25be"; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.w { white-space: nowrap; font-weight: 600; } .good { color: var(--good); } .fair { color: var(--fair); }
.quiet { color: var(--soft); } .warn { color: var(--warn); } .bad { color: var(--bad); }
img { max-width: 100%; background: #fff; }
@media (max-width: 700px) { body { padding: 1.2rem .8rem 3rem; } table { width: max-content; }
  th, td { max-width: 20rem; } }
input { font: inherit; width: 22rem; max-width: 100%; margin: .2rem 0 .5rem; }
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
    const up = head.ariaSort !== "ascending", at = head.cellIndex, number = head.className === "n";
    const key = cell => number ? Number(cell.dataset.v) : cell.textContent, words = new Intl.Collator();
    const rows = [...body.rows].map(row => [key(row.cells[at]), row]);
    rows.sort(([a], [b]) => (up ? 1 : -1) * (number ? (a > b) - (a < b) : words.compare(a, b)));
    for (const other of section.querySelectorAll("th")) other.ariaSort = null;
    head.ariaSort = up ? "ascending" : "descending";
    body.replaceChildren(...rows.map(([, row]) => row));
  });
}
"""

POLICY = (
    f"default-src 'none'; img-src data:; style-src {policy_digest(STYLE)}; script-src {policy_digest(SCRIPT)}; "
    "base-uri 'none'; form-action 'none'"
)

FILTERED = 12
"""Tables of more rows have a filter box."""


def page_of(report: Report) -> Iterator[str]:
    """Yield a report as one HTML page, in pieces."""
    title = text(report.title)
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f'<p class="answer">{text(report.answer)}</p>\n<dl>\n'
    )
    yield from (f"<dt>{text(name)}</dt><dd>{text(value)}</dd>\n" for name, value in report.facts.items())
    yield "</dl>\n"
    yield from _pictures(report)
    for table in (*report.tables, report.rows):
        if count_rows(table):
            yield from _section(table)
    yield f"<script>{SCRIPT}</script>\n</body>\n</html>\n"


def _pictures(report: Report) -> Iterator[str]:
    """Yield each picture under its title; without matplotlib, one line that says what they all need."""
    for picture in report.pictures:
        drawn = svg_of(picture)
        if drawn is None:
            yield f"<p>{text(MISSING)}</p>\n"
            return
        data = base64.b64encode(drawn.encode()).decode()
        yield f"<figure>\n<h2>{text(picture.title)}</h2>\n<p>{text(picture.note)}</p>\n"
        yield f'<img alt="{text(picture.title)}" src="data:image/svg+xml;base64,{data}">\n</figure>\n'


def _section(table: Table) -> Iterator[str]:
    """Yield a table under its title, with a box that filters its rows if it has more than FILTERED."""
    names, kinds, places = list(table.columns), list(table.columns.values()), table.places()
    yield f"<section>\n<h2>{text(table.title)}</h2>\n<p>{text(table.note)}</p>\n"
    if count_rows(table) > FILTERED:
        yield f'<input type="search" placeholder="filter" aria-label="filter {text(table.title)}"><output></output>\n'
    # A text times a bool: the class is there for numbers only.
    heads = (f"<th{' class=n' * KINDS[kinds[place]].number}>{text(heading(names[place]))}</th>" for place in places)
    yield f"<div><table>\n<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>\n"
    for row in table.rows:
        yield f"<tr>{''.join(_cell(row[place], kinds[place]) for place in places)}</tr>\n"
    yield "</tbody>\n</table></div>\n</section>\n"


def heading(name: str) -> str:
    """Return the name of a column as people read it."""
    return name.replace("_", " ")


def _cell(value: Any, kind: str) -> str:
    """Return a cell. Numbers carry their value for sorting, words a color, and paths are links."""
    shown = text(cell_text(value, kind))
    if KINDS[kind].number:
        sort_value = -1 if value is None or value != value else value  # no value and NaN are sorted as -1
        # As JavaScript writes the infinity.
        return f'<td class="n" data-v="{text(str(sort_value)).replace("inf", "Infinity")}">{shown}</td>'
    if kind == "word":
        return f'<td class="w {tone(str(value))}">{shown}</td>'
    if kind == "path" and shown:  # percent-encoded, so that no name in it is a scheme or ends a quotation
        return f'<td><a href="{text(quote(os.fsencode(value)))}">{shown}</a></td>'
    return f"<td>{shown}</td>"


def text(value: str) -> str:
    """Return a text escaped, in one line."""
    return html.escape(one_line(value), quote=True)
