"""Write what `docs/commands.md` says of each command and option, from the commands themselves.

    python scripts/commands.py [--check]

What stands between the marks of a command, `<!-- verify -->` and `<!-- end -->`, is written anew; the prose around is a
person's. With `--check` nothing is written, and the exit code is 1 if the page is not current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import made_pages

from backprint.cli import QUESTIONS, options
from backprint.cli import main as backprint
from backprint.cli.corpus import RUN

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
PART = re.compile(r"(<!-- ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


Key = tuple[str, str, str]
"""What an option is known by: its name, its help and its default."""


def options_of(command: click.Command) -> dict[Key, click.Option]:
    """Return the options of a command; of a group, all that its commands have."""
    if isinstance(command, click.Group):
        return {key: option for below in command.commands.values() for key, option in options_of(below).items()}
    those = [each for each in command.params if isinstance(each, click.Option)]
    return {(str(each.name), str(each.help), str(each.default)): each for each in those}


def shared(*decorators: Any) -> dict[Key, click.Option]:
    """Return the options that these decorators add."""
    return options_of(click.command()(options.all_of(*decorators)(lambda: None)))


MANY = shared(options.ALLOW, options.TRUST, options.OVERWRITE, options.TIMEOUT, options.MEMORY)
RUNS = {key: option for key, option in shared(RUN).items() if key not in MANY}


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its whole name; the verbs of `corpus run` are one."""
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group) and name != "run":
                yield from commands(command, f"{before}{name} ")
            else:
                yield f"{before}{name}", command


def marked(text: str) -> str:
    """Return a text of a command for the page: options between backticks, no marks of click's."""
    parts = text.replace("\b\n", "").split("`")
    parts[::2] = [re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", part) for part in parts[::2]]
    return "`".join(parts).replace("…", "...")


VALUES = {"text": "TEXT", "choice": "WORD", "path": "PATH"}


def written(option: click.Option) -> str:
    """Return how an option is written: `-o`, `--output DIR`."""
    value = "" if option.is_flag else f" {option.metavar or VALUES.get(option.type.name, 'N')}".replace("…", "...")
    return ", ".join(f"`{name}`" for name in (*option.opts[:-1], f"{option.opts[-1]}{value}", *option.secondary_opts))


def meaning(option: click.Option) -> str:
    """Return what an option means, with its words and its default."""
    text = marked(option.help or "")
    if isinstance(option.type, click.Choice):
        text += f" One of {', '.join(f'`{word}`' for word in option.type.choices)}."
    if option.show_default and option.default is not None and not option.is_flag:
        default = option.default[0] if isinstance(option.default, tuple) else option.default
        text += f" Default: `{default}`."
    return text + (" May be repeated." if option.multiple else "")


def in_sections(those: Iterable[click.Option], columns: int, row: Callable[[click.Option], str]) -> list[str]:
    """Return the rows of options, below a row for each section of the help that they stand in, if there are several."""
    those, rows = list(those), []
    sections = {name: [each for each in those if options.section_of(each) == name] for name in options.SECTIONS}
    sections = {name: own for name, own in sections.items() if own}
    for name, own in sections.items():
        rows += [f"| **{name}** |" + " |" * (columns - 1)] if len(sections) > 1 else []
        rows += map(row, own)
    return rows


def table(those: Iterable[click.Option]) -> str:
    """Return options as a table."""
    rows = in_sections(those, 2, lambda option: f"| {written(option)} | {meaning(option)} |")
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


def of_command(name: str, command: click.Command) -> str:
    """Return a command's usage, its help, its own options, and the names of those that others have too."""
    known = options_of(command)
    runs = [key for key in known if key in RUNS]
    runs = runs if 2 * len(runs) > len(RUNS) else []
    many = [option for key, option in known.items() if key in MANY]
    own = {key: option for key, option in known.items() if key not in MANY and key not in runs}
    with click.Context(command, info_name=name) as context:
        usage = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    blocks = [marked(inspect.cleandoc(command.help or ""))]
    if isinstance(command, click.Group):
        usage = ["VERB", "SRC", "-o", "OUT"]
        verbs = [f"| `{verb}` | {marked(below.get_short_help_str(1000))} |" for verb, below in command.commands.items()]
        of = {key: [verb for verb, below in command.commands.items() if key in options_of(below)] for key in own}
        verbs_of = {option: ", ".join(of[key]) for key, option in own.items()}
        rows = in_sections(
            own.values(), 3, lambda option: f"| {written(option)} | {verbs_of[option]} | {meaning(option)} |"
        )
        blocks.append("\n".join(["| verb | what it does |", "|---|---|", *verbs]))
        blocks.append("\n".join(["| option | of | meaning |", "|---|---|---|", *rows]))
    else:
        usage += [f"{option.opts[0]} {option.metavar}" for option in known.values() if option.required]
        blocks += [table(own.values())] if own else []
    if runs:
        lacking = [f"`{option.opts[-1]}`" for key, option in RUNS.items() if key[0] not in {each[0] for each in known}]
        but = f", but {', '.join(lacking)}" if lacking else ""
        blocks.append(f"It takes the [options of a run](#options-of-a-run) too{but}.")
    if many:
        names = ", ".join(f"`{option.opts[-1]}`" for option in many)
        blocks.append(f"Also {names}: [options of many commands](#options-of-many-commands).")
    return "\n\n".join([f"`{' '.join(['backprint', name, *usage]).replace('…', '...')}`", *blocks])


def parts() -> dict[str, str]:
    """Return each part of the page that is written here, by the name in its marks."""
    every = dict(commands(backprint))
    rows = []
    for question, names in QUESTIONS.items():
        rows.append(f"| **{question}** | |")
        of_it = [(name, command) for name, command in every.items() if name.split()[0] in names]
        rows += [f"| `backprint {name}` | {marked(command.get_short_help_str(1000))} |" for name, command in of_it]
    return {
        "commands": "\n".join(["| command | what it does |", "|---|---|", *rows]),
        "options of many commands": table(MANY.values()),
        "options of a run": table(RUNS.values()),
        **{name: of_command(name, command) for name, command in every.items()},
    }


def current(page: str) -> str:
    """Return the page as it has to be; raise if a command has no part in it, or a part no command."""
    texts = parts()
    names = [match[1] for match in PART.findall(page)]
    if sorted(names) != sorted(texts):
        odd = sorted(set(names) ^ set(texts)) or [name for name in names if names.count(name) > 1]
        raise SystemExit(f"{PAGE}: marks and commands differ: {', '.join(odd)}; write <!-- NAME --> and <!-- end -->")
    return PART.sub(lambda match: f"{match[1]}{texts[match[2]]}\n{match[3]}", page)


def main() -> None:
    made_pages.keep(PAGE, current(PAGE.read_text("utf-8")), "commands.py")


if __name__ == "__main__":
    main()
