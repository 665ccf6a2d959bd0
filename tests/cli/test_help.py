"""The help: options in sections, commands below the question that they answer, and lines that fit a narrow terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from face import COMMANDS, QUESTIONS, main, options


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                assert found is not None
                yield from commands(found, f"{name} {below}".strip())


EVERY = dict(commands(main))


def help_of(name: str, columns: int) -> str:
    result = CliRunner().invoke(main, [*name.split(), "--help"], env={"COLUMNS": str(columns)}, terminal_width=columns)
    assert result.exit_code == 0, result.output
    return result.output


def test_every_option_says_in_which_section_it_stands() -> None:
    those = [(name, each) for name, command in EVERY.items() for each in command.params]
    loose = {
        (name, each.opts[-1])
        for name, each in those
        if isinstance(each, click.Option) and options.section_of(each) == options.OTHER
    }
    assert loose == {("", "--version")}
    named = {options.section_of(each) for _, each in those if isinstance(each, click.Option)}
    assert named == {*options.SECTIONS}, "a section without an option"


@pytest.mark.parametrize("columns", [60, 80])
def test_each_help_fits_the_terminal(columns: int) -> None:
    wide = [
        (name, line)
        for name in EVERY
        for line in help_of(name, columns).splitlines()
        if len(line) > columns and "://" not in line
    ]
    assert wide == []


def test_options_stand_in_sections_in_one_order_with_texts_that_begin_at_one_place() -> None:
    text = help_of("capture", 80)
    headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert headings == [name for name in options.SECTIONS if name in headings]
    assert set(headings) >= {"What", "How", "Where it goes", "Limits", "Other"}
    places = {len(match[0]) for match in re.finditer(r"^  -\S+(?: \S+)* {2,}(?=\S)", text, re.MULTILINE)}
    assert len(places) == 1
    # A few options need no sections.
    assert re.findall(r"^(\S.*):$", help_of("demo", 80), re.MULTILINE) == ["Options"]


def test_every_command_stands_below_a_question() -> None:
    text = help_of("", 80)
    assert re.findall(r"^(\S.*):$", text, re.MULTILINE) == ["Options", *QUESTIONS]
    assert re.findall(r"^  ([a-z]+)  ", text, re.MULTILINE) == list(COMMANDS)
