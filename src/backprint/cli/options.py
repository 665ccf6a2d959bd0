"""What commands take: options that several have, each defined once, so that it means one thing; and groups of commands.

The help of a command has a section for each question that its options answer. An option says which one where it is
declared, and cannot be declared without: `option(HOW, "--fake", ...)`.

The words that an option may take are CHOICES of `common/words`; what a command prints is in `say`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.types import FloatParamType

from backprint.common.words import CHOICES
from backprint.errors import UsageError
from backprint.graph.capture_options import GRAD_ROLES

F = TypeVar("F", bound=Callable[..., Any])

# ---- Sections of the help

WHAT = "What"
WHICH = "Which samples"
DUMPS = "Of a dump of bp.region"
HOW = "How"
OUTPUT = "Where it goes"
COUNTS = "What counts as good"
TRUSTED = "What a sample may run"
LIMITED = "Limits"
OTHER = "Other"
SECTIONS = (WHAT, WHICH, DUMPS, HOW, OUTPUT, COUNTS, TRUSTED, LIMITED, OTHER)
"""The sections of a help in their order."""

FEW = 4
"""So many options stand together: sections would be longer than they are."""

WIDEST = 30
"""The widest first column of a section; what is wider has a line of its own."""


class Option(click.Option):
    """An option that knows the section of the help that it stands in."""

    def __init__(self, *args: Any, section: str, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.section = section


def option(section: str, *names: str, **rest: Any) -> Callable[[F], F]:
    """Return a decorator that adds an option, which stands in this section of the help."""
    return click.option(*names, cls=Option, section=section, **rest)


def section_of(option: click.Option) -> str:
    """Return the section that an option stands in; click's own `--help` is in the last."""
    return option.section if isinstance(option, Option) else OTHER


def by_section(options: Iterable[click.Option]) -> dict[str, list[click.Option]]:
    """Return options by the sections that they stand in, in the order of sections, without empty ones; few options
    stand together."""
    options = list(options)
    if sum(isinstance(one, Option) for one in options) <= FEW:  # click's own `--help` does not count
        return {"Options": options}
    return {name: own for name in SECTIONS if (own := [one for one in options if section_of(one) == name])}


class Command(click.Command):
    """A command whose help has its options in sections, with texts that begin at one place."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the help. A hidden option has no record (its names, its help), and is left out."""
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        records = {option: record for option in options if (record := option.get_help_record(ctx))}
        widest = min(WIDEST, formatter.width // 2, max(len(names) for names, _ in records.values()))
        for title, own in by_section(records).items():
            rows = [(names.ljust(widest), help) for names, help in (records[option] for option in own)]
            with formatter.section(title):
                formatter.write_dl(rows, widest)


def command(name: str, **rest: Any) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a command."""
    return click.command(name, cls=Command, **rest)


# ---- Groups of commands

LONGEST = 1000
"""More letters than the first sentence of a command has: click cuts a longer one at the width of the terminal."""


class Commands(click.Group):
    """A group whose help wraps the first sentence of each command, where click's would end in "...", and which says
    which commands there are if there is no such one."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def questions(self, ctx: click.Context) -> Mapping[str, Iterable[str]]:
        """Return the names of the commands below the questions that they answer; here all are below one."""
        return {"Commands": self.list_commands(ctx)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of the help, below the questions that they answer, with texts that begin at one place."""
        questions = self.questions(ctx)
        widest = max(len(name) for names in questions.values() for name in names)
        for question, names in questions.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(LONGEST)) for name, command in commands if command]
            with formatter.section(question):
                formatter.write_dl([(name.ljust(widest), text) for name, text in rows])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return what click resolves `args` to; end with a hint if the first is no command, and no option."""
        # `resilient_parsing` is on for shell completion, which must not end.
        if args[0][:1] != "-" and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], names, 1)
            hint = f"Did you mean {near[0]!r}?" if near else self.hint_for(args[0]) or f"There are {', '.join(names)}."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def hint_for(self, word: str) -> str:
        """Return what to write in the place of a word that is no command, and like none; here nothing is known."""
        return ""


# ---- Values


class Gibibytes(FloatParamType):
    """An amount of memory or disk: more than nothing, and a number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that a text means; refuse NaN, what is not above 0, and what no machine has."""
        number = super().convert(value, param, ctx)
        if not 0 < number < 2**30:
            self.fail(f"{value!r} is not an amount in GiB", param, ctx)
        return number


class Words(click.Choice):  # type: ignore[type-arg]  # generic from click 8.2 on
    """One of a few words; a word that is none of them, and like one, is answered with that one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            near = difflib.get_close_matches(str(value), [str(word) for word in self.choices], 1)
            self.fail(error.message + (f" Did you mean {near[0]!r}?" if near else ""), param, ctx)


GIB = Gibibytes()
PATH = click.Path(path_type=Path)


def choice(section: str, name: str, help: str, default: str | None = None) -> Any:
    """Return an option that takes one of a few words."""
    words = Words(CHOICES[name])
    return option(section, f"--{name}", type=words, default=default, show_default=True, help=help)


def requires_grad_of(texts: Sequence[str]) -> str | list[str] | None:
    """Return `requires_grad` as `bp.capture` takes it: a word alone, or names, None for no text; UsageError for a word
    beside others."""
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

ENGINE = choice(HOW, "engine", "How to trace.", "auto")
MODE = choice(HOW, "mode", "Put the program in this mode first; else it stays as it is.")
DATA = choice(OUTPUT, "data", "Keep inputs as recipes, as bytes, or not.", "seed")
LAYOUT = choice(OUTPUT, "layout", "graphnet: train_forward/, train_backward/, eval_forward/.", "backprint")
DEVICE = option(HOW, "--device", help="Move the program and its inputs here first.")
TRUST = option(TRUSTED, "--trust", is_flag=True, help="Execute a model.py that the parser refuses.")
ALLOW = option(TRUSTED, "--allow", multiple=True, metavar="NS::OP", help="A custom operator that samples may call.")
OVERWRITE = option(OUTPUT, "--overwrite", is_flag=True, help="Replace what is there already.")
JSON = option(OUTPUT, "--json", "as_json", is_flag=True, help="Answer with one JSON object.")
REQUIRES_GRAD = option(
    WHAT,
    "--requires-grad",
    multiple=True,
    metavar="WORD",
    help="inputs, parameters, all, or a name.",
)
ALLOW_UNPROVEN = option(
    COUNTS, "--allow-unproven", is_flag=True, help="An unproven sample is no reason to exit with 1."
)
WHERE = option(
    WHICH,
    "--where",
    multiple=True,
    metavar="SQL",
    help="Samples for whose row in the ledger this holds: \"seconds < 10 and verdict in ('bitwise', 'close')\".",
)
JOBS = option(LIMITED, "--jobs", type=click.IntRange(1), help="Workers; else one a core.")
MEMORY = option(LIMITED, "--memory", type=GIB, metavar="GIB", help="For a sample; else a share of what is free.")
TIMEOUT = option(LIMITED, "--timeout", type=float, default=600.0, show_default=True, help="Seconds for a sample.")


def json_lines(row: str) -> Any:
    """Return the option `--json` of a command that answers with a line for each of several things."""
    return option(OUTPUT, "--json", "as_json", is_flag=True, help=f"A JSON object in a line for each {row}.")


def output_option(help: str, metavar: str = "DIR", *, name: str = "output", required: bool = True) -> Any:
    """Return the option `-o` of a command that writes a folder or, with the metavar FILE, a file. `name` is the
    parameter of the command that gets the path."""
    type = click.Path(path_type=Path, dir_okay=metavar != "FILE")
    return option(OUTPUT, "-o", "--output", name, required=required, metavar=metavar, type=type, help=help)


def rank_option(help: str) -> Any:
    """Return the option `--rank` of a command."""
    return option(WHAT, "--rank", "ranks", multiple=True, type=click.IntRange(0), metavar="K", help=help)


def all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds these options, in their order."""

    def add(function: F) -> F:
        for option in reversed(options):  # as decorators are applied: the last is the first
            function = option(function)
        return function

    return add


LIMITS = all_of(TIMEOUT, MEMORY)
"""The options of a command that runs samples, each in a process of its own."""


def run_options(jobs: Any = JOBS) -> Callable[[F], F]:
    """Return the options of every run over many samples: where and within which limits they are worked on, and
    which. `jobs` is a command's own option `--jobs`."""
    return all_of(
        jobs,
        TIMEOUT,
        MEMORY,
        option(LIMITED, "--disk", type=GIB, metavar="GIB", help="What a sample may write; else at most 16."),
        option(LIMITED, "--ray", metavar="ADDRESS", help="On a Ray cluster: HOST:PORT, auto (the nearest) or local."),
        option(WHICH, "--only", multiple=True, metavar="GLOB", help="Samples whose id matches one of these."),
        option(WHICH, "--limit", type=click.IntRange(1), metavar="N", help="The first N samples."),
        option(WHICH, "--restart", is_flag=True, help="Begin anew; the old ledger stays as ledger.1.sqlite."),
        option(
            WHICH,
            "--retry",
            multiple=True,
            metavar="WORD",
            help="Do samples again that have this verdict or cause.",
        ),
    )


def report_options(row: str) -> Callable[[F], F]:
    """Return the options of a command that reports; CSV, Parquet and JSON lines have a `row` each."""
    help = f"A file to write the report to: .html, or a row a {row} in .csv, .jsonl, .parquet; else to the terminal."
    return all_of(output_option(help, "FILE", required=False), json_lines(f"{row}, with every column"))
