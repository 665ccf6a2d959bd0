"""Write the table of a job's summary from what `backprint verify --json` printed: `action.yml` calls it.

    backprint verify samples --json | python scripts/summary.py 0

The number is the exit code of the command. Texts of samples are a stranger's: what Markdown or HTML would make of them
is escaped.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CODES = {
    "0": "All is good.",
    "1": "Not all is good.",
    "2": "The call is wrong, or a path is not there: the log of the step says which.",
    "3": "No sample was found: nothing was compared.",
}
LONGEST = 300


def escaped(text: str) -> str:
    """Return a text for a cell of a table: one line, nothing of it a mark of Markdown or HTML."""
    line = " ".join(text.split())
    line = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
    line = re.sub(r"([\\`*_\[\]|~#!@])", r"\\\1", line)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cells_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a line: sample, name, verdict, derivative, proof, and what else there is to say."""
    derivative = row["derivative"] or {"word": "", "wrong": []}
    detail = "; ".join(filter(None, (row["detail"], row["nonfinite"], *derivative["wrong"])))
    return row["sample"], row["name"], row["verdict"], derivative["word"], "yes" if row["proof"] else "no", detail


def summary(lines: Iterable[str], code: str) -> Iterator[str]:
    """Yield the summary, line by line."""
    rows = [json.loads(line) for line in lines]
    words = ", ".join(f"{count} {word}" for word, count in Counter(row["verdict"] for row in rows).most_common())
    yield "### Samples proved by Backprint\n"
    yield f"{CODES.get(code, f'The command ended with exit code {code}.')} {words}".rstrip() + "\n"
    if rows:
        yield "| sample | name | verdict | backward | proof | detail |"
        yield "|---|---|---|---|---|---|"
        for row in rows:
            yield f"| {' | '.join(map(escaped, cells_of(row)))} |"


def main() -> None:
    for line in summary(sys.stdin, sys.argv[1]):
        print(line)


if __name__ == "__main__":
    main()
