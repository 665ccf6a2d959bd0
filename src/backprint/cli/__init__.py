"""The command `backprint`: read arguments, call the library, print. In reading order:

- `options`: what commands take, and groups of commands. `say`: what they print, progress, and the end. `named`:
  models' names in the place of samples.
- `capture`: `capture` and `record`. `verify`: with power. `show`, of samples and GraphNet's; `dumps`: regions' dumps.
- `draw`: `draw`, `view` and `diff`. `costs`: `fits` and `ranks`. `bug_report`: `export` and `minify`.
- `corpus`: run, status, report, dedup and merge. `bench`: run and report. `kernels`: `kernels`, `lower` and `task`.
- `doctor`: `doctor` and `demo`.

Exit codes are a promise to CI: 0 all is good; 1 something was looked at and is not good; 2 wrong usage, or a place that
cannot be written; 3 nothing was looked at; 130 Ctrl-C; 141 the output is not read to its end.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from backprint.cli.options import Commands
from backprint.cli.say import CUT_OFF, NOTHING, echo, ending
from backprint.common.text import printable
from backprint.version import __version__

QUESTIONS = {
    "Make a sample": {"capture": "capture", "record": "capture"},
    "See": {"show": "show", "view": "draw", "draw": "draw", "diff": "draw"},
    "Prove": {"verify": "verify"},
    "What it costs": {"fits": "costs", "ranks": "costs"},
    "Compilers and their faults": {"bench": "bench", "minify": "bug_report", "export": "bug_report"},
    "Write kernels": {"kernels": "kernels", "lower": "kernels", "task": "kernels"},
    "Many samples": {"corpus": "corpus"},
    "This machine": {"doctor": "doctor", "demo": "doctor"},
}
"""Each command below the question that it answers, and the module of this package with `NAME_command`, which is
imported when it is called."""

COMMANDS = {name: module for commands in QUESTIONS.values() for name, module in commands.items()}

UNCHANGED = "nothing was changed"
"""The message at Ctrl-C, if a command has no other."""

WARNINGS_OF_TORCH = (
    (r"Failed to initialize NumPy: No module named 'numpy'", ""),
    (r"`torch\.jit\.script(_method)?` is (deprecated|not supported in Python)", r"torch\."),
)
"""What torch warns of because of its own modules, which a user cannot change: the text, and the module that warns. A
NumPy that is there and broken is no such warning."""

NEWLINE, INDENTED = "\n", "\n  "
"""Continuation lines of a message are indented, so that they cannot look like another message of ours."""


class Ended(BaseException):
    """A script that a command ran has exited or raised: the process ends in the same way."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Main(Commands):
    """The group that imports a command's module by name, and turns our errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def questions(self, ctx: click.Context) -> Mapping[str, Iterable[str]]:
        return QUESTIONS

    def hint_for(self, word: str) -> str:
        """Return what to write in the place of a word that is no command, by what there is of that name; '' if nothing
        is known of it."""
        from backprint.common.formats import CAPTURE, has_dump

        path = Path(word)
        text = printable(word)
        if (path / CAPTURE).is_file():
            return f"It is a sample: backprint show {text}, or backprint verify {text}."
        if has_dump(path):
            return f"It is a dump of bp.region: backprint show {text}."
        if path.is_dir():
            return f"It is a folder: backprint verify {text} proves the samples below it."
        if path.suffix == ".py" and path.is_file():
            return f"It is a script: backprint record {text}."
        if ":" in word:
            return f"It is written like a program's name: backprint capture {text} -o samples/NAME."
        return ""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return the command of this name; None if there is none."""
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"backprint.cli.{COMMANDS[name]}"), f"{name}_command")
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; end as a script has ended that `record` ran (Ended)."""
        try:
            with warnings.catch_warnings():  # here and not on import: a program that imports us has filters of its own
                for text, module in WARNINGS_OF_TORCH:
                    warnings.filterwarnings("ignore", message=text, module=module)
                return super().main(*args, **kwargs)
        except Ended as ended:
            error = ended.error
        raise error  # outside click, which would handle it as its own

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with ending(lambda: UNCHANGED):
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; end with an exit code also for Ctrl-C, a cut pipe, and an error of the program."""
        with ending(lambda: UNCHANGED):  # before click, which would print "Aborted!" and exit with 1
            try:
                return self.invoked(ctx)
            except BrokenPipeError:  # of `| head -1`: nobody reads on, also not what Python flushes at the end
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                ctx.exit(CUT_OFF)
            except Exception as error:  # our own refusals have ended in `invoked`
                if not show_error_of_program(error):
                    raise  # a defect, with its traceback
                ctx.exit(1)

    def invoked(self, ctx: click.Context) -> Any:
        """Call the command; end with the exit code of the error that it raises, and a line for it. Strangers' names in
        click's own messages are escaped. Errors that are neither ours nor click's nor of the file system's space and
        permissions are raised. The excepts of subclasses stand before those of their base classes."""
        from backprint.errors import NO_PERMISSION, NO_SPACE, BackprintError, NothingFoundError, PlaceError, UsageError

        try:
            return super().invoke(ctx)
        except NothingFoundError as error:
            echo(f"backprint: {error}", err=True)
            ctx.exit(NOTHING)
        except UsageError as error:
            raise click.UsageError(printable(str(error), lines=True)) from error
        except click.UsageError as error:
            message = error.format_message()
            if message == printable(message, lines=True):  # nothing to escape
                raise
            raise click.UsageError(printable(message), error.ctx) from None
        except PlaceError as error:
            echo(f"backprint: {error}", err=True)
            ctx.exit(2)
        except BackprintError as error:
            echo(f"backprint: {type(error).__name__}: {str(error).replace(NEWLINE, INDENTED)}", err=True, lines=True)
            ctx.exit(1)
        except OSError as error:
            if error.errno not in (*NO_SPACE, *NO_PERMISSION):
                raise
            where = f"{error.filename}: " if error.filename else ""
            has_space = error.errno not in NO_SPACE
            advice = "choose a place that you may write to" if has_space else "free space or choose another place"
            echo(f"backprint: {where}{error.strerror}; {advice}, and run it again", err=True)
            ctx.exit(2)


def show_error_of_program(error: Exception) -> bool:
    """Print an error that the user's program raised, with the program's lines; return whether it is one."""
    from backprint.errors import is_of_program, without_own_frames

    if not is_of_program(error):
        return False
    error.__traceback__ = without_own_frames(error.__traceback__, besides=CLICK)
    echo(f"backprint: the program itself raised {type(error).__name__}:", err=True)
    echo("".join(traceback.format_exception(error)).rstrip(), err=True, lines=True)
    return True


CLICK = os.path.join(os.path.dirname(click.__file__), "")
"""The folder of click, with a slash at its end: its frames are no lines of the user's program."""


@click.group(cls=Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="backprint")
def main() -> None:
    """See, prove and fix the backward of PyTorch programs.

    Commands work on a sample, the folder that `capture` writes. In its place they take `file.py:factory`, a function
    that returns a model and its inputs, and the name of a model, `hf:gpt2`: these are captured first.

    Exit codes: 0 all is good, 1 something was looked at and is not good, 2 wrong usage, or a place that cannot be
    written, 3 nothing was looked at, 130 Ctrl-C.

    \b
    Shell completion, or zsh_source, fish_source:
      eval "$(_BACKPRINT_COMPLETE=bash_source backprint)"
    What the words mean that are printed:
      https://github.com/backprint/backprint/blob/main/docs/glossary.md
    """


def run_command(arguments: Sequence[str] | None = None) -> None:
    """Call `main` from a script."""
    main(args=arguments)
