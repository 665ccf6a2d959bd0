"""A group of verbs whose help has the whole sentence of each."""

from __future__ import annotations

import click

LONGEST = 1000
"""More letters than the first sentence of a verb has: click cuts a longer one at the width of the terminal."""


class Listing(click.Group):
    """A group whose help wraps the first sentence of each verb, where click's would end in "..."."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(LONGEST)) for name, command in commands if command])
