"""The progress of a run, shown while it runs, and its state, read from its ledger.

Progress is bars on a terminal, a line now and then elsewhere, or one JSON object a sample.

A display is a context manager; what it returns is called with each event of a run: `Begun` (how many samples there are,
and how many were done before), `Stage` (what a worker is at), `Written` (the row of a sample in the ledger). The
results of a good sample compared equal. That is no proof if some are ports without power, which do not move when inputs
are redrawn: the column `vacuous` has them.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from backprint.common.text import printable
from backprint.graph.verdicts import GOOD, VERDICTS, WORDS, has_proof, ports_without_power
from backprint.tools.jobs.ledger import Ledger, without_infinities
from backprint.tools.jobs.places import WORK, log_of
from backprint.tools.jobs.pool import Stage
from backprint.tools.jobs.run import Begun, Written
from backprint.tools.jobs.task import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

NAMED = 5
"""How many ports of a sample are named in a line; `--json` and the sample have all."""

EVERY = 15.0
"""Seconds between two lines without a terminal."""

SHOWN = ("verdict", "cause", "detail", "stage", "seconds", "power", "vacuous", "derivative", "peak_bytes", "family")
"""The columns of a sample that `--json` shows, besides its name."""


@dataclass(slots=True)
class RunTally:
    """The counts of this process so far. It does not grow with the corpus.

    `without` samples that are good have together `ports` without power; `bad` are the last that are not good, and
    `working` has worker, stage and its begin of each sample at work.
    """

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
                self.working[id] = (worker, stage, time.monotonic())
            case Written(row):
                self.verdicts[row["verdict"]] += 1
                self.working.pop(row["id"], None)
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


def tally_line(tally: RunTally) -> str:
    """Return the state of a run in one line."""
    counts = ", ".join(f"{tally.verdicts[name]} {name}" for name in VERDICTS if tally.verdicts[name])
    counts += f"; no proof of {tally.without}: {ports_without_power(tally.ports)}" if tally.without else ""
    parts = [f"{tally.done} of {tally.total} samples done", counts]
    if tally.done < tally.total and tally.verdicts:
        parts.append(_rate_text(tally.rate))
    return "; ".join(filter(None, parts))


def _rate_text(rate: float) -> str:
    """Return a rate as text."""
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate * 3600:.0f}/h"


def _duration(seconds: float | None) -> str:
    """Return seconds as text."""
    if seconds is None:
        return ""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.3g} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {whole % 60:02} s"


def _fault_text(row: Mapping[str, Any]) -> str:
    """Return a line about a sample that is not good."""
    why = ": ".join(filter(None, (row.get("cause"), row.get("detail"))))
    return f"{row.get('sample') or row['id']}: {row['verdict']}" + (f" ({why})" if why else "")


def powerless_text(id: str, ports: Sequence[str]) -> str:
    """Return a line about the ports without power of a sample whose ports compared equal; without ports, its power was
    not measured."""
    named = f": {', '.join(map(one_line, ports[:NAMED]))}" + (" …" if len(ports) > NAMED else "")
    if not ports:
        return f"{id}: no proof, its power was not measured: `backprint verify --power` measures it"
    many = f"{len(ports)} ports do" if len(ports) > 1 else "1 port does"
    why = "`backprint verify --power` says why"
    return f"{id}: not proved whole, {many} not move when inputs are redrawn ({why}){named}"


# ------------------------------------------------------------------ displays

Show = Callable[["Begun | Written | Stage"], None]


class ProgressLines:
    """Prints a line for each sample that is not good or has no power, and regularly one about all of them."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self.tally, self.file, self.last = RunTally(), file or sys.stderr, 0.0

    def __enter__(self) -> Show:
        return self.show

    def __exit__(self, *_: object) -> None:
        if self.tally.total:
            print(printable(tally_line(self.tally)), file=self.file, flush=True)

    def show(self, event: Begun | Written | Stage) -> None:
        """Count and print one event."""
        self.tally.take(event)
        if isinstance(event, Written) and event.row["verdict"] not in GOOD:
            print(printable(_fault_text(event.row)), file=self.file, flush=True)
        elif isinstance(event, Written) and event.row.get("vacuous"):
            print(printable(powerless_text(event.row["id"], event.row["vacuous"])), file=self.file, flush=True)
        if time.monotonic() - self.last >= EVERY and not isinstance(event, Stage):
            self.last = time.monotonic()
            print(printable(tally_line(self.tally)), file=self.file, flush=True)


class _JsonLines:
    """Prints one JSON object for each finished sample on standard output."""

    def __enter__(self) -> Show:
        return self.show

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()

    def show(self, event: Begun | Written | Stage) -> None:
        """Print one event."""
        if isinstance(event, Written):
            print(json.dumps(_as_object(event.row)), flush=True)


def _as_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in the form of `--json`."""
    sound = has_proof(str(row.get("verdict")), row.get("power"), row.get("vacuous") or ())
    columns: dict[str, Any] = without_infinities(
        {"sample": row["id"], **{name: row.get(name) for name in SHOWN}, "proof": sound}
    )
    return columns


class Bars:
    """Shows a bar for all with the time left, the counts, the samples at work, and the last that are not good."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeRemainingColumn())
        self.tally = RunTally()
        self.bar = Progress(*columns, auto_refresh=False, speed_estimate_period=3600.0)
        self.bar.add_task("", total=None)  # None: `Begun` tells the number of samples
        self.live = Live(get_renderable=self.picture, console=Console(stderr=True), refresh_per_second=4)

    def __enter__(self) -> Show:
        self.live.start()
        return self.take

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def take(self, event: Begun | Written | Stage) -> None:
        """Count one more event."""
        self.tally.take(event)
        if isinstance(event, Begun):
            self.bar.reset(self.bar.task_ids[0], total=event.total, completed=event.done)
        elif isinstance(event, Written):
            self.bar.advance(self.bar.task_ids[0])

    def picture(self) -> RenderableType:
        """Return the state of the run for display."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        tally, now = self.tally, time.monotonic()
        self.bar.update(self.bar.task_ids[0], description=tally_line(tally))
        working = Table.grid(padding=(0, 1))
        for id, (worker, stage, since) in sorted(tally.working.items(), key=lambda item: item[1]):
            name, at = Text(printable(worker), "dim"), Text(printable(stage), "cyan")
            working.add_row(name, at, Text(f"{now - since:.0f} s"), Text(printable(id)))
        bad = [
            Text(printable(_fault_text(row)[:300]), WORDS[row["verdict"]].color, no_wrap=True)
            for row in list(tally.bad)
        ]
        return Group(self.bar.get_renderable(), working, *bad)


def display_for(as_json: bool) -> ProgressLines | _JsonLines | Bars:
    """Return the display that fits the output."""
    if as_json:
        return _JsonLines()
    return Bars() if sys.stderr.isatty() else ProgressLines()


# ------------------------------------------------------------------ the state of a run, from its ledger

FIRST = 10
"""How many samples without power are named."""

WINDOW = 600.0
"""The rate is over the last so many seconds in which a sample was finished."""


def state(out: Path, where: Sequence[str] = ()) -> dict[str, Any]:
    """Return the state of a run as one plain object; with `where`, of the samples whose rows meet these conditions."""
    with Ledger.reading(out, where) as ledger:
        facts = ledger.facts()
        good = ", ".join(f"'{verdict}'" for verdict in GOOD)
        failures = list(ledger.rows(f"verdict not in ({good})", order="finished desc", limit=10))
        slowest = list(ledger.rows("state = 'done'", order="seconds desc", limit=5))
        states, samples_a_second = ledger.counts("state"), rate(ledger)
        left = sum(states.values()) - states.get("done", 0)
        return {
            "source": facts.get("source"),
            "verb": facts.get("verb"),
            "options": facts.get("options"),
            "where": list(where),
            "at_work": at_work(out),
            "states": states,
            "verdicts": ledger.counts("verdict", "verdict is not null"),
            "proofs": proofs(ledger),
            "derivatives": ledger.counts("derivative", "derivative is not null"),
            "causes": ledger.counts("cause", "cause != ''"),
            "rate": samples_a_second,
            "seconds_left": left / samples_a_second if samples_a_second else None,
            "running": [{"sample": row["id"], "seconds": since(row["started"])} for row in running(ledger)],
            "slowest": [{"sample": row["id"], "seconds": row["seconds"]} for row in slowest],
            "failures": [without_infinities(_as_object(row)) | {"log": log(out, row["id"])} for row in failures],
        }


def since(began: float) -> float:
    """Return the seconds since a time; 0 if the clock was set back."""
    return max(0.0, time.time() - began)


def proofs(ledger: Ledger) -> dict[str, Any]:
    """Return how many samples have a proof, and the ports without power of the first FIRST of the others."""
    counts = ledger.proofs()
    return {
        "proved": counts.proved,
        "of": counts.differentiable,
        "forwards": counts.proved_forwards,
        "of_forwards": counts.forwards_alone,
        "without_power": len(counts.without),
        "ports_without_power": counts.ports,
        "first": [{"sample": id, "ports": list(ports)} for id, ports in counts.without[:FIRST]],
        "told": counts.in_one_line(),
    }


def running(ledger: Ledger) -> Iterator[Mapping[str, Any]]:
    """Return the samples in progress."""
    return ledger.rows("state = 'running'")


def log(out: Path, id: str) -> str | None:
    """Return the path of a failed sample's log, if there is one."""
    place = log_of(out, id)
    return str(place) if place.exists() else None


def at_work(out: Path) -> bool:
    """Whether a run holds the folder's lock now."""
    try:
        with open(out / WORK / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def rate(ledger: Ledger) -> float:
    """Return how many samples a second were finished lately (WINDOW); 0 if that cannot be told."""
    late = "(select max(finished) from samples) - ?"
    query = f"select count(*), min(finished), max(finished) from samples where finished > {late}"
    count, first, last = ledger.connection.execute(query, (WINDOW,)).fetchone()
    # Between the ends of the first and of the last sample, all but the first were worked on.
    return (count - 1) / (last - first) if count > 1 and last > first else 0.0


def derivatives_text(counts: Mapping[str, int]) -> str:
    """Return in a line how many backwards are the derivative of their forward."""
    return "backwards: " + ", ".join(f"{count} {word}" for word, count in counts.items())


def report_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the state of a run, as `state` returns it, as lines of text."""
    states = answer["states"]
    total, done = sum(states.values()), states.get("done", 0)
    where_text = f" that meet {' and '.join(answer['where'])}" if answer["where"] else ""
    counts = ", ".join(f"{answer['verdicts'][word]} {word}" for word in VERDICTS if word in answer["verdicts"])
    time_left = (
        f"about {_duration(answer['seconds_left'])} left" if answer["at_work"] and answer["seconds_left"] else ""
    )
    resume = "" if answer["at_work"] or done == total else "nothing is running, the same command resumes it"
    yield "; ".join(filter(None, (f"{done} of {total} samples{where_text} are done", counts, time_left, resume)))
    rate_text = f"; {_rate_text(answer['rate'])} lately" if answer["rate"] and answer["at_work"] else ""
    yield f"{answer['verb']} of {answer['source']}{rate_text}"
    if answer["causes"]:
        yield "causes: " + ", ".join(f"{count} {text or 'none'}" for text, count in answer["causes"].items())
    if any(answer["verdicts"].get(word) for word in GOOD):
        yield f"proved: {answer['proofs']['told']}"
    if answer["derivatives"]:
        yield derivatives_text(answer["derivatives"])
    for row in answer["proofs"]["first"]:
        yield powerless_text(row["sample"], row["ports"])
    if answer["at_work"]:
        yield from (f"running: {row['sample']}, {_duration(row['seconds'])}" for row in answer["running"])
    yield from (f"slowest: {row['sample']}, {_duration(row['seconds'])}" for row in answer["slowest"] if row["seconds"])
    for row in answer["failures"]:
        yield _fault_text(row) + (f" [{row['log']}]" if row["log"] else "")
