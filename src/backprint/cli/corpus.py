"""`backprint corpus VERB SRC -o OUT`: many samples, one ledger."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from backprint.cli.say import echo

if TYPE_CHECKING:
    from backprint.corpus.run import RunPlan

NAMED = 5
"""How many samples without power are named at the end."""

OTHERS: tuple[str, ...] = ("report", "dedup", "split")
"""Verbs that have a file of their own, `corpus_NAME.py`."""

F = TypeVar("F", bound=Callable[..., Any])


class Corpus(click.Group):
    """The group of the verbs for corpora."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *OTHERS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in OTHERS:
            found: click.Command = importlib.import_module(f"backprint.cli.corpus_{name}").command
            return found
        return super().get_command(ctx, name)


@click.group("corpus", cls=Corpus)
def command() -> None:
    """Work on every sample below a folder, resumably, each in a process of its own.

    What becomes of each is in OUT/ledger.sqlite. Ended at any moment, the same command goes on where it was.
    """


def options(function: F) -> F:
    """What every run takes."""
    for option in reversed(
        (
            click.option("--jobs", type=click.IntRange(1), help="Workers; else one a core, as far as memory goes."),
            click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds a sample may take."),
            click.option("--memory", type=float, metavar="GIB", help="For a sample; else a share of what is free."),
            click.option("--disk", type=float, metavar="GIB", help="What a sample may write; else at most 16."),
            click.option(
                "--executor",
                type=click.Choice(["pool", "ray"]),
                default="pool",
                show_default=True,
                help="Where samples are worked on: by processes here, or by a Ray cluster.",
            ),
            click.option(
                "--ray-address", metavar="ADDR", help="HOST:PORT of the cluster, or `local` to start one here."
            ),
            click.option("--list", "names", type=click.Path(path_type=Path), help="A file with a sample's id a line."),
            click.option("--only", multiple=True, metavar="GLOB", help="Samples whose id matches one of these."),
            click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N samples."),
            click.option("--restart", is_flag=True, help="Begin anew; the old ledger stays as ledger.1.sqlite."),
            click.option(
                "--retry", multiple=True, metavar="WORD", help="Do samples again that have this verdict or cause."
            ),
            click.option("--allow-unproven", is_flag=True, help="An unproven sample is no reason to exit with 1."),
            click.option("--json", "as_json", is_flag=True, help="One JSON object a sample, as it finishes."),
        )
    ):
        function = option(function)
    return function


SOURCE = click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
OUT = click.option("-o", "--output", "out", required=True, metavar="OUT", type=click.Path(path_type=Path))


@command.command("backward")
@SOURCE
@OUT
@click.option("--mode", type=click.Choice(["train", "eval"]), default="train", show_default=True)
@click.option(
    "--engine", type=click.Choice(["auto", "aot", "dynamo", "eager"]), default="auto", show_default=True,
    help="How to trace.",
)  # fmt: skip
@click.option(
    "--data", type=click.Choice(["seed", "exact", "none"]), default="seed", show_default=True,
    help="How inputs are kept.",
)  # fmt: skip
@click.option("--device", help="Where samples run; else the CPU.")
@click.option("--trust", is_flag=True, help="Run the code of a sample that the parser refuses.")
@click.option(
    "--layout", type=click.Choice(["backprint", "graphnet"]), default="backprint", show_default=True,
    help="graphnet: train_forward/, train_backward/ and eval_forward/ in OUT as well.",
)  # fmt: skip
@click.option(
    "--power", type=click.Choice(["none", "quick", "own", "all"]), default="quick", show_default=True,
    help="How much of a sample's power is measured: nothing, one redraw, or what `backprint power` does.",
)  # fmt: skip
@options
def backward(source: Path, out: Path, **given: Any) -> None:
    """Capture, prove and save the forward and backward of every sample below SRC."""
    chosen = {name: given.pop(name) for name in ("mode", "engine", "data", "device", "trust", "layout", "power")}
    carry_out("backward", source, out, chosen, **given)


@command.command("verify")
@SOURCE
@click.option("-o", "--output", "out", metavar="OUT", type=click.Path(path_type=Path), help="Keep the ledger here.")
@click.option("--allow", multiple=True, metavar="NS::OP", help="Custom operators that the samples may call.")
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
    """Any verb on every sample below SRC: `backward`, `verify`, …, or file.py:function of your own.

    The function is given (task, options, staging): task.path is the sample's folder, options what --set says, staging
    a folder it may make, which becomes the sample's in OUT. It gives a dict with columns of the ledger, `verdict` at
    least.
    """
    carry_out(verb, source, out, dict(map(setting, settings)), **rest)


def setting(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`, the value as JSON if it is."""
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
    jobs: int | None,
    timeout: float,
    memory: float | None,
    disk: float | None,
    executor: str,
    ray_address: str | None,
    names: Path | None,
    only: tuple[str, ...],
    limit: int | None,
    restart: bool,
    retry: tuple[str, ...],
    allow_unproven: bool,
    as_json: bool,
    resumable: bool = True,
    show: Callable[[bool], Any] | None = None,
    finish: Callable[[], bool] = lambda: False,
    close: Callable[[RunPlan, dict[str, int], bool], None] | None = None,
) -> None:
    """The run that a verb asks for, shown as it goes; exit 1 unless all is good.

    `finish` is done at its end, and says whether samples are to do again; `close` says what came of it.
    """
    from backprint.corpus.ledger import GOOD
    from backprint.corpus.limits import default_jobs, limits_of
    from backprint.corpus.progress import shown
    from backprint.corpus.run import RunPlan, run_plan
    from backprint.corpus.stopping import Stopped
    from backprint.corpus.verbs import settled
    from backprint.errors import UsageError

    verb, chosen = settled(verb, chosen)
    plan = RunPlan(verb, source, out, chosen, names, only, limit)
    count = jobs or default_jobs()
    elsewhere = None
    if executor == "ray":
        from backprint.corpus.ray import cluster

        limits, elsewhere = cluster(ray_address, verb, chosen, (timeout, memory, disk), jobs)
    elif ray_address:
        raise UsageError("--ray-address is for --executor ray: pass both")
    else:
        limits = limits_of(count, out, timeout, memory, disk)
    try:
        with (show or shown)(as_json) as watcher:
            go_on = partial(run_plan, plan, limits, count, watcher=watcher, executor=elsewhere)
            verdicts = go_on(restart=restart, retry=retry)
            if finish():
                verdicts = go_on()
                finish()
    except Stopped as stopped:
        echo(f"stopped by {stopped}" + ("; the same command goes on from here" if resumable else ""), err=True)
        if elsewhere is not None:
            end_at_once(128 + stopped.number)
        raise SystemExit(128 + stopped.number) from None
    (close or told)(plan, verdicts, as_json)
    if set(verdicts) - GOOD - ({"unproven"} if allow_unproven else set()):
        raise SystemExit(1)


def end_at_once(code: int) -> NoReturn:
    """End without what Ray does at the exit of a process: with tasks at work, it is a race. The ledger is closed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def told(plan: RunPlan, verdicts: dict[str, int], as_json: bool) -> None:
    """Say for people what came of a run."""
    for text in () if as_json else closing(plan, verdicts):
        echo(text)


def closing(plan: RunPlan, verdicts: dict[str, int]) -> Iterator[str]:
    """What is said at the end."""
    from backprint.corpus.ledger import NAME, Ledger
    from backprint.corpus.progress import powerless
    from backprint.graph.verdicts import VERDICTS

    counts = ", ".join(f"{verdicts[name]} {name}" for name in VERDICTS if name in verdicts)
    yield f"{sum(verdicts.values())} samples: {counts}"
    with Ledger.reading(plan.out / NAME) as ledger:
        for cause, count in ledger.counts("cause", "cause != ''").items():
            yield f"{count:6} {cause}"
        found = ledger.proofs()
        if found.ports or (found.without and plan.options.get("power") == "none"):
            yield f"proved: {found.told()}"
            yield from (powerless(id, ports) for id, ports in found.without[:NAMED])
            if len(found.without) > NAMED:
                yield f"and {len(found.without) - NAMED:,} samples more: corpus report names them"


@command.command("status")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
def status(out: Path, as_json: bool) -> None:
    """How the run in OUT stands: counts, rate, what runs, the slowest samples, the last ones that are not good."""
    from backprint.corpus import status as reading

    answer = reading.state(out)
    if as_json:
        echo(json.dumps(answer))
        return
    for text in reading.report_lines(answer):
        echo(text)
