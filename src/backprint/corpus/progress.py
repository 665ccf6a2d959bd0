"""Show the progress of a run: bars on a terminal, a line now and then elsewhere, or one JSON object a sample."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from backprint.corpus.ledger import without_infinities
from backprint.corpus.pool import Stage
from backprint.corpus.run import Begun, Written
from backprint.corpus.task import one_line
from backprint.graph.verdicts import GOOD, VERDICTS, WORDS, has_proof, ports_without
from backprint.plain import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

NAMED = 5
"""How many ports of a sample are named in a line; `--json` and the sample have all."""

EVERY = 15.0
"""Seconds between two lines without a terminal."""

SHOWN = ("verdict", "cause", "detail", "stage", "seconds", "power", "vacuous", "peak_bytes", "family")
"""The columns of a sample that `--json` shows, besides its name."""


@dataclass(slots=True)
class RunTally:
    """The counts of this process so far. It does not grow with the corpus."""

    total: int = 0
    before: int = 0
    started: float = field(default_factory=time.monotonic)
    verdicts: Counter[str] = field(default_factory=Counter)
    without: int = 0
    ports: int = 0
    bad: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=5))
    working: dict[str, tuple[str, str, float]] = field(default_factory=dict)

    def take(self, event: Begun | Written | Stage) -> None:
        """Count one more event."""
        match event:
            case Begun(total, done):
                self.total, self.before, self.started = total, done, time.monotonic()
            case Stage(id, worker, stage):
                self.working[worker] = (id, stage, time.monotonic())
            case Written(row):
                self.verdicts[row["verdict"]] += 1
                self.working.pop(row.get("worker") or "", None)
                if row["verdict"] not in GOOD:
                    self.bad.append(row)
                elif row.get("vacuous"):
                    self.without, self.ports = self.without + 1, self.ports + len(row["vacuous"])

    @property
    def done(self) -> int:
        """Samples that are done, in earlier calls too."""
        return self.before + self.verdicts.total()

    @property
    def rate(self) -> float:
        """Samples a second, in this call."""
        return self.verdicts.total() / max(time.monotonic() - self.started, 1e-9)

    @property
    def left(self) -> float | None:
        """Estimated seconds for the rest."""
        return (self.total - self.done) / self.rate if self.rate else None


def line(tally: RunTally) -> str:
    """Return the state of a run in one line."""
    counts = ", ".join(f"{tally.verdicts[name]} {name}" for name in VERDICTS if tally.verdicts[name])
    left = f", {duration(tally.left)} left" if tally.left is not None and tally.done < tally.total else ""
    counts += f"; no proof of {tally.without}: {ports_without(tally.ports)}" if tally.without else ""
    return f"{tally.done}/{tally.total} samples, {speed(tally.rate)}{left}" + (f": {counts}" if counts else "")


def speed(rate: float) -> str:
    """Return a rate as text."""
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate * 3600:.0f}/h"


def duration(seconds: float | None) -> str:
    """Return seconds as text."""
    if seconds is None:
        return ""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.3g} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {whole % 60:02} s"


def why_not_good(row: Mapping[str, Any]) -> str:
    """Say in one line what is wrong with a sample."""
    why = ": ".join(filter(None, (row.get("cause"), row.get("detail"))))
    return f"{row.get('sample') or row['id']}: {row['verdict']}" + (f" ({why})" if why else "")


def powerless(id: str, ports: Sequence[str]) -> str:
    """Say in one line which ports of a sample that compared equal have no power."""
    named = f": {', '.join(map(one_line, ports[:NAMED]))}" + (" …" if len(ports) > NAMED else "")
    return f"{id}: no proof, " + (ports_without(len(ports)) + named if ports else "its power was not measured")


# ------------------------------------------------------------------ the ways to show it

Show = Callable[["Begun | Written | Stage"], None]


class ProgressLines:
    """Prints a line for each sample that is not good or has no power, and regularly one about all of them."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self.tally, self.file, self.last = RunTally(), file or sys.stderr, 0.0

    def __enter__(self) -> Show:
        return self.show

    def __exit__(self, *_: object) -> None:
        if self.tally.total:
            print(printable(line(self.tally)), file=self.file, flush=True)

    def show(self, event: Begun | Written | Stage) -> None:
        """Count and print one event."""
        self.tally.take(event)
        if isinstance(event, Written) and event.row["verdict"] not in GOOD:
            print(printable(why_not_good(event.row)), file=self.file, flush=True)
        elif isinstance(event, Written) and event.row.get("vacuous"):
            print(printable(powerless(event.row["id"], event.row["vacuous"])), file=self.file, flush=True)
        if time.monotonic() - self.last >= EVERY and not isinstance(event, Stage):
            self.last = time.monotonic()
            print(printable(line(self.tally)), file=self.file, flush=True)


class JsonLines:
    """Prints one JSON object for each finished sample on standard output."""

    def __enter__(self) -> Show:
        return self.show

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()

    def show(self, event: Begun | Written | Stage) -> None:
        """Print one event."""
        if isinstance(event, Written):
            print(json.dumps(as_object(event.row)), flush=True)


def as_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in the form of `--json`."""
    sound = has_proof(str(row.get("verdict")), row.get("power"), row.get("vacuous") or ())
    shown: dict[str, Any] = without_infinities(
        {"sample": row["id"], **{name: row.get(name) for name in SHOWN}, "proof": sound}
    )
    return shown


class Bars:
    """Shows a bar for all, the counts, the current sample of each worker, and the last samples that are not good."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self.tally = RunTally()
        self.live = Live(get_renderable=self.picture, console=Console(stderr=True), refresh_per_second=4)

    def __enter__(self) -> Show:
        self.live.start()
        return self.tally.take

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def picture(self) -> RenderableType:
        """Return the state of the run for display."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tally, now = self.tally, time.monotonic()
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=max(tally.total, 1), completed=tally.done, width=40), Text(line(tally)))
        working = Table.grid(padding=(0, 1))
        for name, (id, stage, since) in sorted(tally.working.items()):
            working.add_row(
                Text(name, "dim"), Text(printable(stage), "cyan"), Text(f"{now - since:.0f} s"), Text(printable(id))
            )
        bad = [
            Text(printable(why_not_good(row)[:300]), WORDS[row["verdict"]].color, no_wrap=True)
            for row in list(tally.bad)
        ]
        return Group(bar, working, *bad)


def shown(as_json: bool) -> ProgressLines | JsonLines | Bars:
    """Return the display that fits the output."""
    if as_json:
        return JsonLines()
    return Bars() if sys.stderr.isatty() else ProgressLines()
