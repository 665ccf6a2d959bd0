"""`backprint corpus VERB SRC -o OUT`: many samples, one ledger."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from backprint.cli.groups import Listing
from backprint.cli.options import (
    ALLOW,
    ALLOW_UNPROVEN,
    DATA,
    DEVICE,
    ENGINE,
    LAYOUT,
    MODE,
    TRUST,
    F,
    choice,
    power_option,
    run_options,
)
from backprint.cli.say import echo

if TYPE_CHECKING:
    from backprint.jobs import CorpusRun

NAMED = 5
"""How many samples without power are named at the end."""


@click.group("corpus", cls=Listing, others=("report", "dedup", "split"))
def command() -> None:
    """Work on every sample below a folder, resumably, each in a process of its own.

    The result of each is in OUT/ledger.sqlite. If the command is ended at any moment, the same command continues.
    """


def options(function: F) -> F:
    """Add the options of every run."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object a sample, as it finishes."),
        ALLOW_UNPROVEN,
        click.option("--list", type=click.Path(path_type=Path), help="A file with a sample's id a line."),
        run_options(),
    ):
        function = option(function)
    return function


SOURCE = click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
OUT = click.option("-o", "--output", "out", required=True, metavar="OUT", type=click.Path(path_type=Path))


def capturing(function: F) -> F:
    """Add the options of a verb that captures, except `--mode`."""
    for option in (power_option("quick"), LAYOUT, TRUST, DEVICE, DATA, ENGINE, OUT, SOURCE):
        function = option(function)
    return function


@command.command("backward")
@choice("mode", "It is train, which is what the verb means.", hidden=True)
@capturing
@options
def backward(source: Path, out: Path, **given: Any) -> None:
    """Capture, prove and save the training forward and backward of every sample below SRC.

    `corpus capture --mode train` is the same.
    """
    chosen, rest = parted(given)
    carry_out("backward", source, out, chosen, **rest)


@command.command("capture")
@MODE
@capturing
@options
def capture(source: Path, out: Path, **given: Any) -> None:
    """Capture, prove and save every sample below SRC, in its own mode or that of --mode."""
    chosen, rest = parted(given)
    carry_out("capture", source, out, chosen, **rest)


def parted(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a verb that captures, and those of the run."""
    names = ("mode", "engine", "data", "device", "trust", "layout", "power")
    return {name: given[name] for name in names}, {name: each for name, each in given.items() if name not in names}


@command.command("verify")
@SOURCE
@click.option("-o", "--output", "out", metavar="OUT", type=click.Path(path_type=Path), help="Keep the ledger here.")
@ALLOW
@options
def verify(source: Path, out: Path | None, allow: tuple[str, ...], **rest: Any) -> None:
    """Prove every sample of Backprint's below SRC again, each from its files alone in a fresh process."""
    with contextlib.ExitStack() as stack:
        place = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="backprint-")))
        carry_out("verify", source, place, {"allow": list(allow)}, resumable=out is not None, **rest)


@command.command("run")
@click.argument("verb")
@SOURCE
@OUT
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the verb.")
@options
def run_verb(verb: str, source: Path, out: Path, settings: tuple[str, ...], **rest: Any) -> None:
    """Run any verb on every sample below SRC: `backward`, `verify`, …, or file.py:function of your own.

    The function takes (task, options, staging): task.path is the sample's folder, options are those of --set, staging
    is a folder that it may create, which becomes the sample's in OUT. It returns a dict with columns of the ledger, at
    least `verdict`.
    """
    from backprint.errors import UsageError

    chosen = dict(map(setting, settings))
    if taken := sorted(chosen.keys() & rest.keys()):
        raise UsageError(f"--set {taken[0]}=…: {taken[0]!r} is an option of every run: call the verb's another name")
    carry_out(verb, source, out, chosen, **rest)


def setting(text: str) -> tuple[str, Any]:
    """Parse `NAME=VALUE`; the value may be JSON."""
    from backprint.errors import UsageError

    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--set {text}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def carry_out(
    verb: str,
    source: Path,
    out: Path,
    chosen: dict[str, Any],
    *,
    allow_unproven: bool,
    as_json: bool,
    resumable: bool = True,
    show: Callable[[bool], Any] | None = None,
    close: Callable[[CorpusRun, bool], None] | None = None,
    **given: Any,
) -> None:
    """Execute a run and show its progress; exit with 1 unless all samples are good. `close` prints the result."""
    from backprint.graph.verdicts import GOOD
    from backprint.jobs import run_corpus
    from backprint.jobs.progress import display_for
    from backprint.jobs.run import Stopped

    try:
        with (show or display_for)(as_json) as watcher:
            done = run_corpus(verb, source, out, watch=watcher, **given, **chosen)
    except Stopped as stopped:
        echo(f"stopped by {stopped}" + ("; the same command goes on from here" if resumable else ""), err=True)
        if given["executor"] == "ray":
            end_at_once(128 + stopped.number)
        raise SystemExit(128 + stopped.number) from None
    (close or summarize_run)(done, as_json)
    if set(done.verdicts) - GOOD - ({"unproven"} if allow_unproven else set()):
        raise SystemExit(1)


def end_at_once(code: int) -> NoReturn:
    """Skip Ray's exit handlers, which race with running tasks. The ledger is closed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def summarize_run(done: CorpusRun, as_json: bool) -> None:
    """Print the result of a run."""
    for text in () if as_json else closing_lines(done):
        echo(text)


def closing_lines(done: CorpusRun) -> Iterator[str]:
    """Yield the verdicts, causes and proofs of a run as lines."""
    from backprint.graph.verdicts import VERDICTS
    from backprint.jobs.ledger import NAME, Ledger
    from backprint.jobs.progress import powerless_text

    counts = ", ".join(f"{done.verdicts[name]} {name}" for name in VERDICTS if name in done.verdicts)
    yield f"{sum(done.verdicts.values())} samples: {counts}"
    with Ledger.reading(done.out / NAME) as ledger:
        for cause, count in ledger.counts("cause", "cause != ''").items():
            yield f"{count:6} {cause}"
        found = ledger.proofs()
        if found.ports or (found.without and ledger.facts()["options"].get("power") == "none"):
            yield f"proved: {found.told()}"
            yield from (powerless_text(id, ports) for id, ports in found.without[:NAMED])
            if len(found.without) > NAMED:
                yield f"and {len(found.without) - NAMED:,} samples more: corpus report names them"


@command.command("status")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
def status(out: Path, as_json: bool) -> None:
    """Show the state of the run in OUT: counts, rate, running samples, the slowest samples, the last ones that are not
    good."""
    from backprint.jobs import progress as reading

    answer = reading.state(out)
    if as_json:
        echo(json.dumps(answer))
        return
    for text in reading.report_lines(answer):
        echo(text)
