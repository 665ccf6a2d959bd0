"""README and the pages of docs/: run their code blocks in order, as a reader would, and compare them with the results
shown.

The `python` blocks of a page share their names. A block prints exactly the `# ->` comments in it, and then the `text`
block directly below it, if there is one. A block that begins with `# NAME.py` is a file. A `console` block runs the
lines after `$ `, and the lines below each are its output. `...` stands for any text. Other `text` blocks are listings.

    python pages.py PAGE    runs a page in the current folder
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from subjects import forked

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.py)\n")
ARROW = re.compile(r"# .*?-> (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `shown` is the `text` block directly below a `python` one, whose `below` is then true."""

    line: int
    language: str
    text: str
    shown: str = ""
    below: bool = False

    @property
    def file(self) -> str:
        """The name of the file that the block is; '' if it is code to run."""
        named = FILE.match(self.text) if self.language == "python" else None
        return named[1] if named else ""

    @property
    def printed(self) -> str:
        """The text that a `python` block must print."""
        return "\n".join([*ARROW.findall(self.text), self.shown])


def blocks(text: str) -> tuple[Block, ...]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    end = -1
    for fence in FENCE.finditer(text):
        block = Block(text.count("\n", 0, fence.start()) + 1, fence[1], fence[2])
        if block.language == "text" and found and found[-1].language == "python" and text[end : fence.start()] == "\n":
            found[-1:] = [replace(found[-1], shown=block.text)]
            block = replace(block, below=True)
        found.append(block)
        end = fence.end()
    return tuple(found)


def run_page(text: str, folder: Path) -> None:
    """Run the blocks of a page in `folder`; an AssertionError names the line of the block that shows another result."""
    environment = prepare(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(text):
        if block.file:
            (folder / block.file).parent.mkdir(exist_ok=True)
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            check_python(block, folder, names)
        elif block.language == "console":
            check_console(block, folder, environment)


def prepare(folder: Path) -> dict[str, str]:
    """Put `examples` and a `backprint` command for this Python into a folder; return the environment to run in."""
    (folder / "examples").symlink_to(ROOT / "examples")
    commands = folder / ".bin"
    commands.mkdir()
    python = f'"{sys.executable}"'
    if forked.SERVERS in os.environ:  # a test runs many pages: no command of theirs need load PyTorch
        python += f' -I -S "{forked.__file__}" call "{forked.server((), forked.COMMANDS)}"'
    for name, call in {"backprint": "-m backprint", "python": ""}.items():
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {python} {call} "$@"\n', encoding="utf-8")
        command.chmod(0o755)
    return {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "COLUMNS": "120"}


def check_python(block: Block, folder: Path, names: dict[str, Any]) -> None:
    """Run a `python` block on the names of the page; it must print what is shown."""
    source = folder / f"line_{block.line}.py"
    source.write_text(block.text, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block.text, str(source), "exec"), names)
    check_output(block.line, printed.getvalue(), block.printed)


def check_console(block: Block, folder: Path, environment: dict[str, str]) -> None:
    """Run the commands of a `console` block in order; each must exit with 0 and print the lines below it."""
    for session in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = session.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"line {block.line}: {command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        check_output(block.line, done.stdout, shown)


def check_output(line: int, printed: str, shown: str) -> None:
    """Compare printed text with what a page shows, where `...` stands for any text."""
    assert matches(printed, shown), f"line {line}: the page shows\n{shown}\nand this was printed\n{printed}"


def matches(printed: str, shown: str) -> bool:
    """Whether a text is the one shown, apart from space at the ends of lines."""
    parts = [re.escape(part) for part in trimmed(shown).split("...")]
    return re.fullmatch(".*?".join(parts), trimmed(printed), re.DOTALL) is not None


def trimmed(text: str) -> str:
    """Return a text without space at the ends of its lines."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


if __name__ == "__main__":
    run_page(Path(sys.argv[1]).read_text(encoding="utf-8"), Path.cwd())
