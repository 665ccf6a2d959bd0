"""Groups of verbs: their help has the whole sentence of each, and a group may be short for one of its verbs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

LONGEST = 1000
"""More letters than the first sentence of a verb has: click cuts a longer one at the width of the terminal."""


class Listing(click.Group):
    """A group whose help wraps the first sentence of each verb, where click's would end in "...". `others` are verbs
    that have a file of their own, `GROUP_VERB.py`."""

    def __init__(self, *args: Any, others: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.others = tuple(others)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *self.others]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in self.others:
            command: click.Command = importlib.import_module(f"backprint.cli.{self.name}_{name}").command
            return command
        return super().get_command(ctx, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(LONGEST)) for name, command in commands if command])


RUN = "run"
"""The verb that a group is short for."""


class ShortGroup(Listing):
    """A group that runs its verb `run` where no verb is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args[:1] in [[name] for name in self.list_commands(ctx)]
        helped = args[:1] in [[name] for name in ctx.help_option_names]
        return super().parse_args(ctx, args if named or helped else [RUN, *args])
