"""Everything that commands print: control characters in strangers' texts are escaped, and long work is shown.

A progress line is shown on a terminal's standard error, and removed before anything else is printed; without a
terminal, a line is printed now and then. A text is a *stranger's* if it may come from a sample's files. A Report is
what a run came to: an answer in a sentence (`answer`), tables, and all `rows`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from backprint.common.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from backprint.table.nouns import Report, Table

EVERY = 15.0
"""Seconds between two lines without a terminal."""

TICK = 0.5
"""Seconds between two updates of the progress line on a terminal, and before its first."""

WIPE = "\r\x1b[K"
"""Takes a terminal to the beginning of its line, and erases it."""


def echo(text: str, *, err: bool = False, lines: bool = False) -> None:
    """Print a text in one line, or with `lines` in its own lines."""
    wipe()
    click.echo(printable(text, lines), err=err)


def echo_styled(text: str, mark: str, **style: Any) -> None:
    """Print a line whose beginning, `mark`, has a style, and then `text` without one; with NO_COLOR, none has a
    color."""
    wipe()
    if os.environ.get("NO_COLOR"):
        style.pop("fg", None)
    click.echo(click.style(printable(mark), **style) + printable(text))


def console(**options: Any) -> Console:
    """Return the console for texts and tables; strangers' texts must go through `table_text`. In a pipe it does not
    wrap lines."""
    from rich.console import Console

    wipe()
    return Console(highlight=False, soft_wrap=in_a_pipe(), **options)


def in_a_pipe() -> bool:
    """Whether standard output has no width: it is no terminal, and COLUMNS does not give one."""
    return not (sys.stdout.isatty() or os.environ.get("COLUMNS"))


def width() -> int | None:
    """Return the width of the terminal; None in a pipe."""
    return None if in_a_pipe() else console().width


def print_table(table: Table) -> None:
    """Print a table that fits the terminal. In a pipe, print a line a row with tabs between its cells, so that nothing
    is wrapped, padded or cut."""
    from backprint.table.terminal import print_table as print_rows

    wipe()
    print_rows(table, sys.stdout, width())


def table_text(text: str, style: str = "") -> Text:
    """Return a stranger's text for a table."""
    from rich.text import Text

    return Text(printable(text), style)


def write_or_print(make: Callable[[], Report], output: Path | None, as_json: bool, title: str) -> Report:
    """Make a report, and write it to a file, whose ending says how, or print it: as tables, or with `as_json` a line
    for each row. Return it. `title` says what it is a report of. An ending that is not known is refused before the
    report is made, which may take long; so are a file and `as_json` together."""
    from backprint.errors import UsageError
    from backprint.table.files import format_of, json_lines, write_report
    from backprint.table.terminal import print_report

    if as_json and output is not None:
        raise UsageError("--json prints to the terminal: pass either it or -o; a file FILE.jsonl has the same lines")
    format = format_of(output) if output is not None else ""
    report = make()
    wipe()
    if output is not None:
        write_report(report, format, output)
        echo(report.answer)
        echo(f"{format} {title} in {output}", err=True)
    elif as_json:
        for line in json_lines(report.rows):
            sys.stdout.buffer.write(line.encode())
        sys.stdout.flush()
    else:
        print_report(report, sys.stdout, width())
    return report


# ---- The end

STOPPED = 130
"""The exit code after Ctrl-C."""

NOTHING = 3
"""The exit code where nothing was looked at."""

CUT_OFF = 141
"""The exit code where the output is not read to its end, as a shell gives it to who dies of SIGPIPE."""


@contextlib.contextmanager
def ending(what_exists: Callable[[], str]) -> Iterator[None]:
    """End the command at Ctrl-C with a line that says what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        echo(f"stopped by SIGINT; {what_exists()}", err=True)
        raise SystemExit(STOPPED) from None


# ---- Progress


class Working:
    """Shows the current work (`what`, at work since `since`) and its time until `close`: on a terminal (`inline`) in
    one line, which is updated by a thread of its own. `painted` says that the line is there now."""

    def __init__(self, file: IO[str]) -> None:
        self.file, self.what, self.since = file, "", time.monotonic()
        self.painted, self.lock, self.closed = False, threading.Lock(), threading.Event()
        self.inline = file.isatty()
        self.thread = threading.Thread(target=self.show, name="backprint progress", daemon=True)

    def at(self, what: str) -> None:
        """Set the current work."""
        self.what, self.since = what, time.monotonic()

    def show(self) -> None:
        """Update the line until it is closed."""
        while not self.closed.wait(TICK if self.inline else EVERY):
            self.paint()

    def paint(self) -> None:
        """Print the current line."""
        text = printable(f"{self.what} … {time.monotonic() - self.since:.0f} s")
        with self.lock, contextlib.suppress(OSError, ValueError):  # it may be closed, or gone
            if self.closed.is_set() or not self.what:
                return
            width = max(shutil.get_terminal_size().columns - 1, 10)  # a longer line would wrap, and stay
            self.file.write(f"{WIPE}{text[-width:]}" if self.inline else f"{text}\n")
            self.file.flush()
            self.painted = self.inline

    def wipe(self) -> None:
        """Remove the line from the terminal until the next update."""
        with self.lock, contextlib.suppress(OSError, ValueError):
            if self.painted:
                self.file.write(WIPE)
                self.file.flush()
                self.painted = False

    def close(self) -> None:
        """Stop showing the line."""
        self.closed.set()
        self.wipe()
        self.thread.join(1.0)


_working: Working | None = None


def wipe() -> None:
    """Remove the progress line, if there is one."""
    if _working is not None:
        _working.wipe()


@contextlib.contextmanager
def working(what: str = "") -> Iterator[Callable[[str], None]]:
    """Show the current work in a progress line; yield a function that sets it. In an outer block, its line is shown
    again afterwards."""
    global _working
    outer, _working = _working, Working(sys.stderr)
    line = _working
    line.at(what)
    line.thread.start()
    try:
        yield line.at
    finally:
        line.close()
        _working = outer
