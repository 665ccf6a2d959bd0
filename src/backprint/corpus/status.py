"""The state of a run, read from its ledger during the run or after it."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backprint.corpus.ledger import Ledger, without_infinities
from backprint.corpus.places import WORK, log_of
from backprint.corpus.progress import as_object, duration, powerless, speed, why_not_good
from backprint.graph.verdicts import GOOD

FIRST = 10
"""How many samples without power are named."""

WINDOW = 600.0
"""The rate is over the last so many seconds in which a sample was finished."""


def state(out: Path) -> dict[str, Any]:
    """Return the state of a run as one plain object."""
    with Ledger.reading(out) as ledger:
        facts = ledger.facts()
        good = ", ".join(f"'{verdict}'" for verdict in GOOD)
        failures = list(ledger.rows(f"verdict not in ({good})", order="finished desc", limit=10))
        slowest = list(ledger.rows("state = 'done'", order="seconds desc", limit=5))
        return {
            "source": facts.get("source"),
            "verb": facts.get("verb"),
            "options": facts.get("options"),
            "at_work": at_work(out),
            "states": ledger.counts("state"),
            "verdicts": ledger.counts("verdict", "verdict is not null"),
            "proofs": proofs(ledger),
            "causes": ledger.counts("cause", "cause != ''"),
            "rate": rate(ledger),
            "running": [{"sample": row["id"], "seconds": since(row["started"])} for row in running(ledger)],
            "slowest": [{"sample": row["id"], "seconds": row["seconds"]} for row in slowest],
            "failures": [without_infinities(as_object(row)) | {"log": log(out, row["id"])} for row in failures],
        }


def since(began: float) -> float:
    """Return the seconds since a time; 0 if the clock was set back."""
    return max(0.0, time.time() - began)


def proofs(ledger: Ledger) -> dict[str, Any]:
    """Return how many samples have a proof, as in the report, and the ports without power of the first of the
    others."""
    found = ledger.proofs()
    return {
        "proved": found.proved,
        "of": found.of,
        "forwards": found.forwards,
        "of_forwards": found.of_forwards,
        "without_power": len(found.without),
        "ports_without_power": found.ports,
        "first": [{"sample": id, "ports": list(ports)} for id, ports in found.without[:FIRST]],
        "told": found.told(),
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
    """Return the recent rate in samples a second."""
    late = "(select max(finished) from samples) - ?"
    query = f"select count(*), min(finished), max(finished) from samples where finished > {late}"
    count, first, last = ledger.connection.execute(query, (WINDOW,)).fetchone()
    return (count - 1) / (last - first) if count > 1 and last > first else 0.0


def report_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the same as lines of text."""
    states = answer["states"]
    total, done = sum(states.values()), states.get("done", 0)
    yield f"{answer['verb']} of {answer['source']}: {done} of {total} samples are done" + (
        "" if answer["at_work"] or done == total else "; nothing is running, the same command resumes it"
    )
    left = (total - done) / answer["rate"] if answer["rate"] and answer["at_work"] else None
    yield f"{speed(answer['rate'])}" + (f", {duration(left)} left" if left is not None else "")
    for name in ("verdicts", "causes"):
        if answer[name]:
            yield f"{name}: " + ", ".join(f"{count} {text or 'none'}" for text, count in answer[name].items())
    if any(answer["verdicts"].get(word) for word in GOOD):
        yield f"proved: {answer['proofs']['told']}"
    for row in answer["proofs"]["first"]:
        yield powerless(row["sample"], row["ports"])
    if answer["at_work"]:
        yield from (f"running: {row['sample']}, {duration(row['seconds'])}" for row in answer["running"])
    yield from (f"slowest: {row['sample']}, {duration(row['seconds'])}" for row in answer["slowest"] if row["seconds"])
    for row in answer["failures"]:
        yield why_not_good(row) + (f" [{row['log']}]" if row["log"] else "")
