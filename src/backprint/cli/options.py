"""Options that several verbs take. Each is defined once, so that it means one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
from click.types import FloatParamType

from backprint.common.text import CHOICES
from backprint.errors import UsageError
from backprint.graph.capture_options import GRAD_ROLES

F = TypeVar("F", bound=Callable[..., Any])


class Gibibytes(FloatParamType):
    """An amount of memory or disk: more than nothing, and a number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that a text means."""
        number = super().convert(value, param, ctx)
        if not 0 < number < 2**30:
            self.fail(f"{value!r} is not an amount in GiB", param, ctx)
        return number


GIB = Gibibytes()


def rank_option(help: str) -> Any:
    """Return the option `--rank` of a verb."""
    return click.option("--rank", "ranks", multiple=True, type=click.IntRange(0), metavar="K", help=help)


def choice(name: str, help: str, default: str | None = None, hidden: bool = False) -> Any:
    """Return an option that takes one of a few words."""
    words = click.Choice(CHOICES[name])
    return click.option(f"--{name}", type=words, default=default, show_default=True, help=help, hidden=hidden)


ENGINE = choice("engine", "How to trace.", "auto")
MODE = choice("mode", "Put the program in this mode first; else it stays as it is.")
DATA = choice("data", "Keep inputs as recipes, as bytes, or not.", "seed")
LAYOUT = choice("layout", "graphnet: train_forward/, train_backward/, eval_forward/.", "backprint")
DEVICE = click.option("--device", help="Move the program and its inputs here first.")
TRUST = click.option("--trust", is_flag=True, help="Execute a model.py that the parser refuses.")
ALLOW = click.option("--allow", multiple=True, metavar="NS::OP", help="A custom operator that samples may call.")
REQUIRES_GRAD = click.option(
    "--requires-grad",
    multiple=True,
    metavar="WORD",
    help="inputs, parameters, all, or a name.",
)
ALLOW_UNPROVEN = click.option("--allow-unproven", is_flag=True, help="An unproven sample is no reason to exit with 1.")


def power_option(default: str) -> Any:
    """Return the option `--power` of a verb."""
    return choice("power", "What is redrawn to measure power.", default)


WHERE = click.option(
    "--where",
    multiple=True,
    metavar="SQL",
    help="Samples for whose row in the ledger this holds: \"seconds < 10 and verdict in ('bitwise', 'close')\".",
)

JOBS = click.option("--jobs", type=click.IntRange(1), help="Workers; else one a core.")
TIMEOUT = click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds a sample may take.")


def run_options(jobs: Any = JOBS, timeout: Any = TIMEOUT) -> Callable[[F], F]:
    """Return the options of every run over many samples: where and within which limits they are worked on, and
    which."""
    options = (
        jobs,
        timeout,
        click.option("--memory", type=GIB, metavar="GIB", help="For a sample; else a share of what is free."),
        click.option("--disk", type=GIB, metavar="GIB", help="What a sample may write; else at most 16."),
        click.option("--ray", metavar="ADDRESS", help="On a Ray cluster: HOST:PORT, auto (the nearest) or local."),
        click.option("--only", multiple=True, metavar="GLOB", help="Samples whose id matches one of these."),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N samples."),
        click.option("--restart", is_flag=True, help="Begin anew; the old ledger stays as ledger.1.sqlite."),
        click.option(
            "--retry", multiple=True, metavar="WORD", help="Do samples again that have this verdict or cause."
        ),
    )

    return all_of(options)


def all_of(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """Return a decorator that adds these options, in their order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def requires_grad_of(texts: Sequence[str]) -> str | list[str] | None:
    """Return `requires_grad` as `bp.capture` takes it: a word alone, or names."""
    if words := [text for text in texts if text in GRAD_ROLES]:
        if len(texts) > 1:
            raise UsageError(f"--requires-grad {words[0]} stands alone: give one of {', '.join(GRAD_ROLES)}, or names")
        return words[0]
    return list(texts) or None


def split_names(texts: Iterable[str]) -> list[str]:
    """Return the names in the texts `NAME[,NAME…]` of an option that may be given several times."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]
