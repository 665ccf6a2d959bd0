"""What commands take: options that several have, each defined once, so that it means one thing; and groups of commands.

The words that an option may take are `common/text`'s CHOICES; what a command prints is in `say`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.types import FloatParamType

from backprint.common.text import CHOICES
from backprint.errors import UsageError
from backprint.graph.capture_options import GRAD_ROLES

F = TypeVar("F", bound=Callable[..., Any])

# ---- Groups of commands

LONGEST = 1000
"""More letters than the first sentence of a command has: click cuts a longer one at the width of the terminal."""


class Commands(click.Group):
    """A group whose help wraps the first sentence of each command, where click's would end in "...", and which says
    which commands there are if there is no such one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(LONGEST)) for name, command in commands if command])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0][:1] != "-" and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], names, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(names)}."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


# ---- Values


class Gibibytes(FloatParamType):
    """An amount of memory or disk: more than nothing, and a number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that a text means."""
        number = super().convert(value, param, ctx)
        if not 0 < number < 2**30:
            self.fail(f"{value!r} is not an amount in GiB", param, ctx)
        return number


GIB = Gibibytes()
PATH = click.Path(path_type=Path)


def choice(name: str, help: str, default: str | None = None) -> Any:
    """Return an option that takes one of a few words."""
    words = click.Choice(CHOICES[name])
    return click.option(f"--{name}", type=words, default=default, show_default=True, help=help)


def requires_grad_of(texts: Sequence[str]) -> str | list[str] | None:
    """Return `requires_grad` as `bp.capture` takes it: a word alone, or names; UsageError for a word beside others."""
    if words := [text for text in texts if text in GRAD_ROLES]:
        if len(texts) > 1:
            raise UsageError(f"--requires-grad {words[0]} stands alone: give one of {', '.join(GRAD_ROLES)}, or names")
        return words[0]
    return list(texts) or None


def split_names(texts: Iterable[str]) -> list[str]:
    """Return the names in the texts `NAME[,NAME…]` of an option that may be given several times."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


# ---- Arguments and options

SAMPLE = click.argument("sample", type=PATH)
SAMPLES = click.argument("samples", metavar="SAMPLE...", nargs=-1, required=True, type=PATH)

ENGINE = choice("engine", "How to trace.", "auto")
MODE = choice("mode", "Put the program in this mode first; else it stays as it is.")
DATA = choice("data", "Keep inputs as recipes, as bytes, or not.", "seed")
LAYOUT = choice("layout", "graphnet: train_forward/, train_backward/, eval_forward/.", "backprint")
DEVICE = click.option("--device", help="Move the program and its inputs here first.")
TRUST = click.option("--trust", is_flag=True, help="Execute a model.py that the parser refuses.")
ALLOW = click.option("--allow", multiple=True, metavar="NS::OP", help="A custom operator that samples may call.")
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace what is there already.")
JSON = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
REQUIRES_GRAD = click.option(
    "--requires-grad",
    multiple=True,
    metavar="WORD",
    help="inputs, parameters, all, or a name.",
)
ALLOW_UNPROVEN = click.option("--allow-unproven", is_flag=True, help="An unproven sample is no reason to exit with 1.")
WHERE = click.option(
    "--where",
    multiple=True,
    metavar="SQL",
    help="Samples for whose row in the ledger this holds: \"seconds < 10 and verdict in ('bitwise', 'close')\".",
)
JOBS = click.option("--jobs", type=click.IntRange(1), help="Workers; else one a core.")
MEMORY = click.option("--memory", type=GIB, metavar="GIB", help="For a sample; else a share of what is free.")
TIMEOUT = click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds for a sample.")


def json_lines(row: str) -> Any:
    """Return the option `--json` of a command that answers with a line for each of several things."""
    return click.option("--json", "as_json", is_flag=True, help=f"A JSON object in a line for each {row}.")


def output_option(help: str, metavar: str = "DIR", *, name: str = "output", required: bool = True) -> Any:
    """Return the option `-o` of a command that writes a folder or a FILE."""
    type = click.Path(path_type=Path, dir_okay=metavar != "FILE")
    return click.option("-o", "--output", name, required=required, metavar=metavar, type=type, help=help)


def rank_option(help: str) -> Any:
    """Return the option `--rank` of a command."""
    return click.option("--rank", "ranks", multiple=True, type=click.IntRange(0), metavar="K", help=help)


def all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds these options, in their order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


LIMITS = all_of(TIMEOUT, MEMORY)
"""The options of a command that runs samples, each in a process of its own."""


def run_options(jobs: Any = JOBS) -> Callable[[F], F]:
    """Return the options of every run over many samples: where and within which limits they are worked on, and
    which."""
    return all_of(
        jobs,
        TIMEOUT,
        MEMORY,
        click.option("--disk", type=GIB, metavar="GIB", help="What a sample may write; else at most 16."),
        click.option("--ray", metavar="ADDRESS", help="On a Ray cluster: HOST:PORT, auto (the nearest) or local."),
        click.option("--only", multiple=True, metavar="GLOB", help="Samples whose id matches one of these."),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N samples."),
        click.option("--restart", is_flag=True, help="Begin anew; the old ledger stays as ledger.1.sqlite."),
        click.option(
            "--retry", multiple=True, metavar="WORD", help="Do samples again that have this verdict or cause."
        ),
    )


def report_options(row: str) -> Callable[[F], F]:
    """Return the options of a command that reports; CSV, Parquet and JSON lines have a `row` each."""
    help = f"A file to write the report to: .html, or a row a {row} in .csv, .jsonl, .parquet; else to the terminal."
    return all_of(output_option(help, "FILE", required=False), json_lines(f"{row}, with every column"))
