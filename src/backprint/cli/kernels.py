"""`backprint kernels dedup`, `kernels find` and `kernels report`."""

from __future__ import annotations

import importlib

import click

OTHERS = ("dedup", "find", "report")
"""Verbs with a file of their own, `kernels_NAME.py`."""


class Kernels(click.Group):
    """The group of the kernel verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *OTHERS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in OTHERS:
            found: click.Command = importlib.import_module(f"backprint.cli.kernels_{name}").command
            return found
        return super().get_command(ctx, name)


@click.group("kernels", cls=Kernels)
def command() -> None:
    """Kernels that a compiler made: which are the same program, who uses them, and a report."""
