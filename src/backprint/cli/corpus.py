"""`backprint corpus run VERB SRC -o OUT`: many samples, one ledger; its `status` and `report`, `dedup` and `merge`.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.

A *verb* is what a run does with each sample: a row of TABLE, a command below `run`, or a function of the user's. The
*ledger* is the SQLite file of a run, with a row for each sample. A *CorpusRun* is a run that has ended: its folder
(`out`), and how many samples have each verdict.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from backprint.cli.options import (
    ALLOW,
    ALLOW_UNPROVEN,
    DATA,
    DEVICE,
    ENGINE,
    HOW,
    JSON,
    LAYOUT,
    LIMITED,
    MODE,
    OUTPUT,
    OVERWRITE,
    PATH,
    REQUIRES_GRAD,
    TRUST,
    WHAT,
    WHERE,
    WHICH,
    Commands,
    all_of,
    choice,
    command,
    json_lines,
    option,
    output_option,
    report_options,
    requires_grad_of,
    run_options,
)
from backprint.cli.say import NOTHING, echo, ending, print_table, working, write_or_print
from backprint.common.words import FilesWord
from backprint.errors import UsageError
from backprint.table.nouns import Table, count_rows

if TYPE_CHECKING:
    from backprint.table.nouns import Report
    from backprint.tools.jobs import CorpusRun

NAMED = 5
"""How many samples without power, or left out, are named at the end."""


@click.group("corpus", cls=Commands)
def corpus_command() -> None:
    """Work on every sample below a folder, resumably, each in a process of its own.

    The result of each is in OUT/ledger.sqlite. If the command is ended at any moment, the same command continues.
    """


# ------------------------------------------------------------------ the verbs


class Verbs(Commands):
    """The group whose verbs are the table below, and functions of the user's: `file.py:function`."""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        known = super().get_command(ctx, name)
        return known if known or ":" not in name else verb_command(name, "Run a function of yours.", (SET,))


@corpus_command.group("run", cls=Verbs)
def run_group() -> None:
    """Run a verb on every sample below SRC: one of these, or file.py:function of your own.

    The function takes (task, options, staging): task.path is the sample's folder, options are those of --set, staging
    is a folder that it may create, which becomes the sample's in OUT. It returns a dict with columns of the ledger, at
    least `verdict`.
    """


SOURCE = click.argument("source", metavar="SRC", type=PATH)
OUT = output_option("The folder of the run; the same command continues it.", "OUT", name="out")
SET = option(HOW, "--set", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the verb.")

RUN = all_of(
    SOURCE,
    OUT,
    run_options(),
    option(WHICH, "--shard", metavar="K/N", help="This share of the samples alone: 1/3, 2/3 and 3/3 are all."),
    option(WHICH, "--list", type=PATH, help="A file with one sample id per line."),
    WHERE,
    ALLOW_UNPROVEN,
    json_lines("sample, as it finishes"),
)
"""The arguments and options of every run."""


def verb_command(name: str, help: str, options_of_verb: Sequence[Callable[[Any], Any]]) -> click.Command:
    """Return the command of a verb: its `options_of_verb`, decorators that each add an option, are sent to the verb,
    the others to the run."""

    def call(source: Path, out: Path, **run_options: Any) -> None:
        """Divide what the user gave into options of the verb and of the run, and execute the run. An option of the verb
        by `--set` may not have the name of one of the run."""
        verb_options = {option: run_options.pop(option) for option in names}
        if "requires_grad" in verb_options:
            verb_options["requires_grad"] = requires_grad_of(verb_options["requires_grad"])
        if "allow" in verb_options:
            verb_options["allow"] = list(verb_options["allow"])
        settings = dict(map(setting, verb_options.pop("settings", ())))
        if shared := sorted(settings.keys() & run_options.keys()):
            problem = f"{shared[0]!r} is an option of every run: give the option of the verb another name"
            raise UsageError(f"--set {shared[0]}=…: {problem}")
        carry_out(name, source, out, verb_options | settings, **run_options)

    for add in reversed(options_of_verb):  # as decorators are applied: the last is the first
        add(call)
    # `names` are the options of the verb, because those of the run are not added yet. `call` reads them when it runs.
    names = [str(parameter.name) for parameter in call.__click_params__]  # type: ignore[attr-defined]  # click's
    return command(name, help=help)(RUN(call))


def power_option(default: str) -> Any:
    """Return the option `--power` of a verb."""
    return choice(HOW, "power", "What is redrawn to measure power.", default)


CAPTURING = (ENGINE, DATA, DEVICE, TRUST, REQUIRES_GRAD, LAYOUT, power_option("quick"))

SECONDS = option(LIMITED, "--seconds", type=float, help="End the redraws of a sample after so long.")

TABLE: dict[str, tuple[str, Sequence[Callable[[Any], Any]]]] = {
    "backward": ("Capture, prove and save the training forward and backward of every sample.", CAPTURING),
    "capture": ("Capture, prove and save every sample, in its own mode or that of --mode.", (MODE, *CAPTURING)),
    "forward": ("Capture, prove and save the forward of every sample in eval mode, without gradients.", CAPTURING),
    "verify": ("Prove every sample of Backprint's again, each from its files alone in a fresh process.", (ALLOW,)),
    "power": ("Measure how far results move when inputs are redrawn.", (ALLOW, power_option("own"), SECONDS)),
    "kernels": ("Write the kernels of every sample, as `backprint kernels` does.", (SET,)),
}
"""The verbs of corpora, with what each does and its own options."""

for _name, (_help, _own) in TABLE.items():
    run_group.add_command(verb_command(_name, _help, _own))


def setting(text: str) -> tuple[str, Any]:
    """Return name and value of `NAME=VALUE`; a value that is no JSON is a text. UsageError for another form."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--set {text}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


# ------------------------------------------------------------------ a run, and what is said of it


def carry_out(
    verb: str,
    source: Path,
    out: Path,
    options_of_verb: dict[str, Any],
    *,
    allow_unproven: bool,
    as_json: bool,
    show: Callable[[bool], Any] | None = None,
    close: Callable[[CorpusRun, bool], None] | None = None,
    **options_of_run: Any,
) -> None:
    """Execute a run and show its progress; exit with 1 unless all samples are good, and no backward is known not to be
    the derivative. `show(as_json)` makes the display, in place of the usual one, and `close(run, as_json)` prints the
    result, in place of `summarize_run`. A run that a signal stops ends with 128 and the signal's number."""
    from backprint.graph.verdicts import GOOD, NOT_THE_DERIVATIVE
    from backprint.tools.jobs import run_corpus
    from backprint.tools.jobs.ledger import Ledger
    from backprint.tools.jobs.progress import display_for
    from backprint.tools.jobs.run import Stopped

    listed = options_of_run.get("list")
    if listed is not None and not listed.is_file():  # before a folder is made
        raise UsageError(f"--list {listed}: No such file or directory")
    try:
        with (show or display_for)(as_json) as watcher:
            done = run_corpus(verb, source, out, watch=watcher, **options_of_run, **options_of_verb)
    except Stopped as stopped:
        echo(f"stopped by {stopped}; the same command goes on from here", err=True)
        if options_of_run["ray"] is not None:  # the address of a Ray cluster, on which the run was
            end_at_once(128 + stopped.number)
        raise SystemExit(128 + stopped.number) from None
    (close or summarize_run)(done, as_json)
    with Ledger.reading(done.out) as ledger:
        wrong = ledger.counts("derivative").get(NOT_THE_DERIVATIVE)
    not_good = set(done.verdicts) - GOOD - ({"unproven"} if allow_unproven else set())
    if wrong or not_good:
        raise SystemExit(1)


def end_at_once(code: int) -> NoReturn:
    """End the process without Ray's exit handlers, which race with running tasks. Nothing is lost, because the ledger
    is closed by now."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def summarize_run(done: CorpusRun, as_json: bool) -> None:
    """Print the result of a run; with `as_json` nothing: each sample was printed as it finished."""
    for text in () if as_json else closing_lines(done):
        echo(text)


def closing_lines(done: CorpusRun) -> Iterator[str]:
    """Yield the result of a run as lines: how many samples have each verdict and each cause of failure, how many
    backwards are the derivative, how many samples are proved, and the first that are not, with their ports."""
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
        # `ports` counts the ports without power; `without` has each sample that is not proved, with such ports.
        proofs = ledger.proofs()
        if proofs.ports or (proofs.without and ledger.facts()["options"].get("power") == "none"):
            yield f"proved: {proofs.in_one_line()}"
            yield from (powerless_text(id, ports) for id, ports in proofs.without[:NAMED])
            if len(proofs.without) > NAMED:
                yield f"and {len(proofs.without) - NAMED:,} more samples: `backprint corpus report` names them"


# ------------------------------------------------------------------ verbs whose result is more than rows


@run_group.command("split")
@option(
    HOW,
    "--by",
    required=True,
    metavar="HOW",
    help="range:N, ranges:0-10,10-25, operators[:A,B,C], module[:DEPTH], fold or saved[:N].",
)
@DATA
@ALLOW
@RUN
def split(source: Path, out: Path, by: str, data: str, allow: tuple[str, ...], as_json: bool, **rest: Any) -> None:
    """Cut samples into parts: a forward with the backward that belongs to it, each a sample again.

    SRC is a sample, or a folder with samples below; the parts of each are below OUT/<its path>/, and `parts.json` there
    has a row for each. Every part is proven: on the values that the whole had there, and against autograd of its
    forward on inputs from recipes. A part that is not proven is reported, and not written. With --json, one object a
    part, at the end.
    """
    from backprint.tools.jobs.parts import all_parts

    def close(done: CorpusRun, as_json: bool) -> None:
        """Print the parts, and without JSON the run."""
        rows = list(all_parts(out))
        if as_json:
            for row in rows:
                echo(json.dumps(row))
        else:
            print_parts(rows)
            summarize_run(done, as_json)

    def silent(as_json: bool) -> Any:  # the answer comes at the end
        return contextlib.nullcontext(lambda event: None)

    chosen = {"by": by, "data": data, "allow": list(allow)}
    carry_out("split", source, out, chosen, as_json=as_json, show=silent if as_json else None, close=close, **rest)


def print_parts(rows: list[dict[str, Any]]) -> None:
    """Print the parts of samples as a table; `part` of a row is the folder of a part, empty if it was not written."""
    columns = {"part": "name", "verdict": "word", "of": "text", "times": "count", "steps": "digits", "backward": "text"}
    cells = []
    for row in rows:
        steps = f"{row.get('forward_steps', 0)}+{row.get('backward_steps', 0)}"
        part, times = row["part"] or "(not written)", row.get("count", 1)
        cells.append((part, row["verdict"], row["label"], times, steps, row["backward"], row["detail"]))
    print_table(Table("", {**columns, "detail": "detail"}, cells))
    written = sum(bool(row["part"]) for row in rows)
    echo(f"{len(rows)} parts: {written} written")


@run_group.command("export")
@click.argument("source", metavar="RUN", type=PATH)
@output_option("The folder for the data set.", "OUT", name="out")
@WHERE
@option(OUTPUT, "--license", metavar="ID", help="The licence of the programs, for the card and the column `license`.")
@OVERWRITE
@JSON
def export(source: Path, out: Path, as_json: bool, **chosen: Any) -> None:
    """Write the graphs of a corpus run as one Parquet file, with a card, for Hugging Face's `datasets`.

    RUN is the OUT of the run. A row is one graph: text, hash, ports, verdict, derivative, power, FLOPs, bytes, seconds
    and provenance. Nothing of a sample is executed, neither here nor by who reads the rows.
    """
    from backprint.tools import corpus

    with ending(lambda: f"nothing was written to {out}"), working(f"{source}: writing graphs") as show_status:
        exported = corpus.export(source, out, watch=show_status, **chosen)
    if as_json:
        left_out = [{"sample": id, "why": why} for id, why in exported.left_out]
        echo(json.dumps({"graphs": exported.graphs, "samples": exported.samples, "left_out": left_out}))
    else:
        left_out_text = f"; {len(exported.left_out):,} samples left out" if exported.left_out else ""
        echo(f"{exported.graphs:,} graphs of {exported.samples:,} samples in {out}, with a card{left_out_text}")
        for id, why in exported.left_out[:NAMED]:
            echo(f"left out: {id}: {why}")
        if len(exported.left_out) > NAMED:
            echo(f"and {len(exported.left_out) - NAMED:,} more")
    if not exported.graphs:
        raise SystemExit(NOTHING)


@run_group.command("tasks")
@SOURCE
@output_option("A folder for the tasks; the same command continues.", "OUT", name="out")
@option(HOW, "--by", default="module", show_default=True, metavar="HOW", help="As of corpus run split; or whole.")
@option(LIMITED, "--most", type=click.IntRange(1), metavar="N", help="End with so many tasks.")
@option(WHAT, "--least", type=int, default=2, show_default=True, help="The fewest operators of a part's forward.")
@ALLOW
@json_lines("task")
def tasks(source: Path, out: Path, as_json: bool, **chosen: Any) -> None:
    """Make a task of each different part of samples, with how often it occurs, a held-out split and a card.

    Parts are the same if their graphs are equal but for names. A fifth of the tasks is held out. If the command is
    ended at any moment, the same command continues. The exit code is 1 if no part became a task.
    """
    from backprint.tools import tasks as library
    from backprint.tools.jobs.find import check_samples

    check_samples((source,))
    with ending(lambda: "the same command continues"), working(f"tasks of {source}") as show_status:
        task_set = library.make_set(source, out, watch=show_status, **chosen)
    if as_json:
        for row in task_set.rows:
            echo(json.dumps(row))
    else:
        held = sum(row["split"] == "held out" for row in task_set.rows)
        occurs = sum(row["occurs"] for row in task_set.rows)
        echo(f"{out}: {len(task_set.rows)} tasks, {held} held out, of {occurs} parts; {len(task_set.skipped)} left out")
    if not task_set.rows:
        raise SystemExit(1)


# ------------------------------------------------------------------ runs that are there


@corpus_command.command("status")
@click.argument("out", type=PATH)
@WHERE
@JSON
def status(out: Path, where: tuple[str, ...], as_json: bool) -> None:
    """Show the state of the run in OUT: counts, the time left, running samples, the slowest samples, the last ones that
    are not good."""
    from backprint.tools.jobs import progress as reading

    answer = reading.state(out, where)
    for text in [json.dumps(answer)] if as_json else reading.report_lines(answer):
        echo(text)


@corpus_command.command("report")
@click.argument("out", type=PATH)
@WHERE
@report_options("sample")
def report(out: Path, output: Path | None, where: tuple[str, ...], as_json: bool) -> None:
    """Report the results of a corpus run: how many samples are proved, why the others are not, and what is duplicated.

    OUT is the folder of the run, which may still be running. Nothing in it is changed. Other questions are a line of
    SQL over OUT/ledger.sqlite. The exit code is 3 if no sample has a row.
    """
    from backprint.tools.corpus import report as reporting

    def make() -> Report:
        with working("reading the ledger"):
            return reporting.report(out, where, output.parent if output is not None else Path())

    if not count_rows(write_or_print(make, output, as_json, f"report of {out}").rows):
        raise SystemExit(NOTHING)


# ------------------------------------------------------------------ several of one, one of several


@corpus_command.command("dedup")
@click.argument("source", metavar="SRC_OR_OUT", type=PATH)
@output_option("A new folder for what is kept.", "OUT")
@option(HOW, "--ignore-sizes", is_flag=True, help="Graphs that differ in sizes alone are the same.")
@choice(
    OUTPUT, "files", "How kept samples are written: hard links, copies, or only kept.txt and duplicates.json.", "link"
)
@json_lines("sample: id, kept, duplicate_of, why")
def dedup(source: Path, output: Path, ignore_sizes: bool, files: FilesWord, as_json: bool) -> None:
    """Keep one of each group of samples that are the same program, and list the others.

    SRC_OR_OUT is the folder of a corpus run, whose ledger has the hashes, or any folder of samples, which are read and
    not executed. Of each group it keeps the sample that is proved, then the smallest, then the first by name.
    `kept.txt` is a list for `--list` of other verbs, `duplicates.json` has the others.
    """
    from backprint.tools import corpus
    from backprint.tools.corpus.duplicates import KEPT, LIST

    with ending(lambda: f"nothing was written to {output}"), working(f"{source}: comparing"):
        groups = corpus.dedup(source, output, ignore_sizes=ignore_sizes, files=files)
    if as_json:
        for first, *others in groups.groups:
            echo(json.dumps(dict(id=first.id, kept=True, duplicate_of="", why="")))
            for other in others:
                echo(json.dumps(dict(id=other.id, kept=False, duplicate_of=first.id, why="")))
        for member in groups.left_out:
            echo(json.dumps(dict(id=member.id, kept=False, duplicate_of="", why=member.why)))
    else:
        counts = f"{sum(map(len, groups.groups)):,} samples, {len(groups.groups):,} distinct by {groups.by} graphs"
        echo(f"{counts}; the others are in {output / LIST}")
        if groups.left_out:
            unread = groups.left_out[0]
            echo(f"{len(groups.left_out):,} could not be compared and are left out; {unread.id}: {unread.why}")
        echo(f"kept: {output / KEPT}" if files == "none" else f"kept samples: {output}")
    if not groups.groups:
        raise SystemExit(NOTHING)


@corpus_command.command("merge")
@click.argument("out", type=PATH)
@click.argument("shards", nargs=-1, required=True, metavar="SHARD...", type=PATH)
@option(HOW, "--copy", is_flag=True, help="Copy results, and leave the shards as they are; else they are moved.")
@JSON
def merge(out: Path, shards: tuple[Path, ...], copy: bool, as_json: bool) -> None:
    """Make one run of the runs of shards: OUT is then the run that the same command without --shard would have made.

    SHARD is the OUT of `corpus run VERB SRC -o SHARD --shard K/N`. A sample that is in two shards is an error, and
    nothing is written then. The exit code is 1 if a sample is not done, or a shard is missing.
    """
    from dataclasses import asdict

    from backprint.graph.verdicts import VERDICTS
    from backprint.tools import corpus

    with ending(lambda: "the same command goes on"), working(f"{out}: merging"):
        merged = corpus.merge(out, shards, copy=copy)
    if as_json:
        echo(json.dumps(asdict(merged) | {"out": str(out)}))
    else:
        counts = ", ".join(f"{merged.verdicts[name]} {name}" for name in VERDICTS if name in merged.verdicts)
        echo(f"{sum(merged.verdicts.values()) + merged.unfinished:,} samples in {out}: {counts or 'none is done'}")
        if merged.unfinished:
            echo(f"{merged.unfinished:,} are not done: the same `corpus run` without --shard, -o {out}, does them")
        if merged.missing:
            echo(f"not among these: shard {', '.join(merged.missing)}")
    if merged.unfinished or merged.missing:
        raise SystemExit(1)
