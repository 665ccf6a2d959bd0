"""Options that several verbs take. Each is defined once, so that it means one thing."""

from __future__ import annotations

from typing import Any

import click

from backprint.choices import CHOICES


def choice(name: str, help: str, default: str | None = None, hidden: bool = False) -> Any:
    """An option that takes one of a few words."""
    words = click.Choice(CHOICES[name])
    return click.option(f"--{name}", type=words, default=default, show_default=True, help=help, hidden=hidden)


ENGINE = choice("engine", "How to trace.", "auto")
MODE = choice("mode", "Put the program in this mode first; else it stays as it is.")
DATA = choice("data", "Keep inputs as recipes, as bytes, or not.", "seed")
LAYOUT = choice("layout", "graphnet: train_forward/, train_backward/, eval_forward/.", "backprint")
DEVICE = click.option("--device", help="Move the program and its inputs here first.")
TRUST = click.option("--trust", is_flag=True, help="Execute a model.py that the parser refuses.")
ALLOW = click.option("--allow", multiple=True, metavar="NS::OP", help="A custom operator that samples may call.")
ALLOW_UNPROVEN = click.option("--allow-unproven", is_flag=True, help="An unproven sample is no reason to exit with 1.")


def power_option(default: str) -> Any:
    """The option `--power` of a verb."""
    return choice("power", "What is redrawn to measure power.", default)
