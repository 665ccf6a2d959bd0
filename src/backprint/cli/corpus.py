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
    REQUIRES_GRAD,
    TRUST,
    WHERE,
    F,
    choice,
    power_option,
    requires_grad_of,
    run_options,
)
from backprint.cli.say import echo

if TYPE_CHECKING:
    from backprint.tools.jobs import CorpusRun

NAMED = 5
"""How many samples without power are named at the end."""


@click.group("corpus", cls=Listing, others=("report", "export", "dedup", "split", "tasks"))
def command() -> None:
    """Work on every sample below a folder, resumably, each in a process of its own.

    The result of each is in OUT/ledger.sqlite. If the command is ended at any moment, the same command continues.
    """


def options(function: F) -> F:
    """Add the options of every run."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object per sample, as it finishes."),
        ALLOW_UNPROVEN,
        click.option("--list", type=click.Path(path_type=Path), help="A file with one sample id per line."),
        run_options(),
    ):
        function = option(function)
    return function


SOURCE = click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
OUT = click.option("-o", "--output", "out", required=True, metavar="OUT", type=click.Path(path_type=Path))


def capturing(function: F) -> F:
    """Add the options of a verb that captures, except `--mode`."""
    for option in (power_option("quick"), LAYOUT, REQUIRES_GRAD, TRUST, DEVICE, DATA, ENGINE, OUT, SOURCE):
        function = option(function)
    return function


@command.command("backward")
@choice("mode", "It is train, which is what the verb means.", hidden=True)
@capturing
@options
def backward(source: Path, out: Path, **options: Any) -> None:
    """Capture, prove and save the training forward and backward of every sample below SRC.

    `corpus capture --mode train` is the same.
    """
    options_of_verb, options_of_run = split_options(options)
    carry_out("backward", source, out, options_of_verb, **options_of_run)


@command.command("capture")
@MODE
@capturing
@options
def capture(source: Path, out: Path, **options: Any) -> None:
    """Capture, prove and save every sample below SRC, in its own mode or that of --mode."""
    options_of_verb, options_of_run = split_options(options)
    carry_out("capture", source, out, options_of_verb, **options_of_run)


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a verb that captures, and those of the run."""
    options = {**options, "requires_grad": requires_grad_of(options["requires_grad"])}
    names = ("mode", "engine", "data", "device", "trust", "layout", "power", "requires_grad")
    return {name: options[name] for name in names}, {
        name: value for name, value in options.items() if name not in names
    }


@command.command("verify")
@SOURCE
@click.option("-o", "--output", "out", metavar="OUT", type=click.Path(path_type=Path), help="Keep the ledger here.")
@ALLOW
@WHERE
@options
def verify(source: Path, out: Path | None, allow: tuple[str, ...], **options_of_run: Any) -> None:
    """Prove every sample of Backprint's below SRC again, each from its files alone in a fresh process."""
    with contextlib.ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="backprint-")))
        carry_out("verify", source, folder, {"allow": list(allow)}, resumable=out is not None, **options_of_run)


@command.command("run")
@click.argument("verb")
@SOURCE
@OUT
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the verb.")
@WHERE
@options
def run_verb(verb: str, source: Path, out: Path, settings: tuple[str, ...], **options_of_run: Any) -> None:
    """Run any verb on every sample below SRC: `backward`, `verify`, …, or file.py:function of your own.

    The function takes (task, options, staging): task.path is the sample's folder, options are those of --set, staging
    is a folder that it may create, which becomes the sample's in OUT. It returns a dict with columns of the ledger, at
    least `verdict`.
    """
    from backprint.errors import UsageError

    options_of_verb = dict(map(setting, settings))
    if both := sorted(options_of_verb.keys() & options_of_run.keys()):
        raise UsageError(
            f"--set {both[0]}=…: {both[0]!r} is an option of every run: give the option of the verb another name"
        )
    carry_out(verb, source, out, options_of_verb, **options_of_run)


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
    options_of_verb: dict[str, Any],
    *,
    allow_unproven: bool,
    as_json: bool,
    resumable: bool = True,
    show: Callable[[bool], Any] | None = None,
    close: Callable[[CorpusRun, bool], None] | None = None,
    **options_of_run: Any,
) -> None:
    """Execute a run and show its progress; exit with 1 unless all samples are good. `close` prints the result."""
    from backprint.graph.verdicts import GOOD
    from backprint.tools.jobs import run_corpus
    from backprint.tools.jobs.progress import display_for
    from backprint.tools.jobs.run import Stopped

    try:
        with (show or display_for)(as_json) as watcher:
            done = run_corpus(verb, source, out, watch=watcher, **options_of_run, **options_of_verb)
    except Stopped as stopped:
        echo(f"stopped by {stopped}" + ("; the same command goes on from here" if resumable else ""), err=True)
        if options_of_run["executor"] == "ray":
            end_at_once(128 + stopped.number)
        raise SystemExit(128 + stopped.number) from None
    (close or summarize_run)(done, as_json)
    if set(done.verdicts) - GOOD - ({"unproven"} if allow_unproven else set()):
        raise SystemExit(1)


def end_at_once(code: int) -> NoReturn:
    """End the process without Ray's exit handlers, which race with running tasks. Nothing is lost, because the ledger
    is closed by now."""
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
    from backprint.tools.jobs.ledger import NAME, Ledger
    from backprint.tools.jobs.progress import derivatives_text, powerless_text

    counts = ", ".join(f"{done.verdicts[name]} {name}" for name in VERDICTS if name in done.verdicts)
    yield f"{sum(done.verdicts.values())} samples: {counts}"
    with Ledger.reading(done.out / NAME) as ledger:
        for cause, count in ledger.counts("cause", "cause != ''").items():
            yield f"{count:6} {cause}"
        if derivatives := ledger.counts("derivative", "derivative is not null"):
            yield derivatives_text(derivatives)
        proofs = ledger.proofs()
        if proofs.ports or (proofs.without and ledger.facts()["options"].get("power") == "none"):
            yield f"proved: {proofs.in_one_line()}"
            yield from (powerless_text(id, ports) for id, ports in proofs.without[:NAMED])
            if len(proofs.without) > NAMED:
                yield f"and {len(proofs.without) - NAMED:,} more samples: `backprint corpus report` names them"


@command.command("status")
@click.argument("out", type=click.Path(path_type=Path))
@WHERE
@click.option("--estimate", type=click.IntRange(1), metavar="N", help="Also say what N samples like these would cost.")
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
def status(out: Path, where: tuple[str, ...], estimate: int | None, as_json: bool) -> None:
    """Show the state of the run in OUT: counts, the time left, running samples, the slowest samples, the last ones that
    are not good."""
    from backprint.tools.jobs import progress as reading

    answer = reading.state(out, where)
    costs = reading.estimate(out, estimate, where) if estimate else None
    if as_json:
        echo(json.dumps(answer | ({"estimate": costs} if costs else {})))
        return
    for text in reading.report_lines(answer):
        echo(text)
    if costs:
        echo(reading.estimate_line(costs))
