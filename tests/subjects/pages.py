"""README and the pages of docs/: run their code blocks as a reader pastes them, and compare them with what is shown.

Each block runs alone, in a new process and an empty folder. A block whose first line is a comment with the word
`continues` is the next step of the block above it, and runs in the same folder after it, with its names.

A `python` block prints exactly the `# ->` comments in it, and then the `text` block directly below it, if there is one.
A block that begins with `# NAME.py` is a file, which the steps that continue use. The commands of a `bash` block all
end with 0, and print the `text` block directly below; without one, their output is not looked at. `...` stands for any
text. Other `text` blocks are listings.

    python pages.py PAGE            runs a page in the current folder
    python pages.py PAGE --write    puts what the blocks print now where the page shows something else
    python pages.py --serve         prints the value of BACKPRINT_FORKED with which pages and their commands need not
                                    load PyTorch each, and serves them until standard input ends
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from subjects import forked

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.py)\b[^\n]*\n")
CONTINUES = re.compile(r"#[^\n]*\bcontinues\b")
ARROW = re.compile(r"# .*?-> (.*)$", re.MULTILINE)
ROUNDING = re.compile(r"\b\d\\\.\d+e\\-(?:0[7-9]|1\d)\b")  # as `re.escape` writes it
SOME_ROUNDING = r"(?:0|\\d(?:\\.\\d+)?e-(?:0[7-9]|1\\d))"

LOADED = "torch", "torch._dynamo", "backprint.trace.entry"
"""What is loaded before blocks are forked; Triton's interpreter has to be chosen before all but the first."""

Printed = Callable[["Block", str], None]
"""What is done with the text that a block printed."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `shown` is the `text` block directly below it, whose `below` is then true."""

    line: int
    language: str
    text: str
    shown: str | None = None
    below: bool = False

    @property
    def file(self) -> str:
        """The name of the file that the block is; '' if it is code to run."""
        named = FILE.match(self.text) if self.language == "python" else None
        return named[1] if named else ""

    @property
    def runs(self) -> bool:
        """Whether the block is code, and not text to read."""
        return self.language in ("python", "bash")

    @property
    def continues(self) -> bool:
        """Whether the block is the next step of the block above it."""
        return self.runs and CONTINUES.match(self.text) is not None

    @property
    def arrows(self) -> list[str]:
        """The lines that the comments of a `python` block show."""
        return ARROW.findall(self.text)

    @property
    def printed(self) -> str:
        """The text that a `python` block must print."""
        return "\n".join([*self.arrows, self.shown or ""])


def blocks(text: str) -> tuple[Block, ...]:
    """Return the fenced blocks of a page, in order."""
    fenced: list[Block] = []
    end = -1
    for fence in FENCE.finditer(text):
        block = Block(text.count("\n", 0, fence.start()) + 1, fence[1], fence[2])
        if block.language == "text" and fenced and fenced[-1].runs and text[end : fence.start()] == "\n":
            fenced[-1:] = [replace(fenced[-1], shown=block.text)]
            block = replace(block, below=True)
        fenced.append(block)
        end = fence.end()
    return tuple(fenced)


def sequences(text: str) -> tuple[tuple[Block, ...], ...]:
    """Return the blocks of a page that run, each with the blocks that continue it."""
    steps: list[list[Block]] = []
    for block in blocks(text):
        if block.continues and steps:
            steps[-1].append(block)
        elif block.runs:
            steps.append([block])
    return tuple(map(tuple, steps))


# ------------------------------------------------------------------ a page


def run_page(text: str, folder: Path) -> list[int]:
    """Run the blocks of a page; return the lines of those that show something else, and say on standard error what."""
    environment = prepare(folder)
    return [steps[0].line for steps in sequences(text) if not in_a_process(steps, folder, environment, check)]


def rewritten(text: str, folder: Path) -> str:
    """Return the page with what its blocks print now, where it shows something else."""
    environment = prepare(folder)
    new: dict[str, str] = {}

    def note(block: Block, printed: str) -> None:
        first = len(block.arrows)
        lines = trimmed(printed).splitlines()
        if block.shown is not None and not matches("\n".join(lines[first:]), block.shown):
            new[str(block.line)] = "\n".join(lines[first:]) + "\n"
        (folder / "printed.json").write_text(json.dumps(new), encoding="utf-8")

    for steps in sequences(text):
        in_a_process(steps, folder, environment, note)
        if (folder / "printed.json").exists():
            new.update(json.loads((folder / "printed.json").read_text(encoding="utf-8")))
    shown = {block.line: block for block in blocks(text)}
    for line, printed in new.items():
        block = shown[int(line)]
        old = f"```{block.language}\n{block.text}```\n\n```text\n"
        assert text.count(f"{old}{block.shown}```") == 1, f"line {line} stands twice on the page"
        text = text.replace(f"{old}{block.shown}```", f"{old}{printed}```")
    return text


def as_its_reader(text: str) -> bool:
    """Whether no process of a page is forked from one that has loaded PyTorch: a page that chooses Triton's interpreter
    does so before Triton is imported, and README is run as a newcomer runs it."""
    interprets = 'os.environ.setdefault("TRITON_INTERPRET"', "\npython kernels.py\n"
    return text.startswith("# Backprint\n") or any(each in text for each in interprets)


def prepare(folder: Path) -> dict[str, str]:
    """Put `backprint`, `python` and `torchrun` for this Python into a folder; return the environment to run in."""
    commands = folder / ".bin"
    commands.mkdir()
    python = f'"{sys.executable}"'
    if forked.SERVERS in os.environ:  # a test runs many pages: no command of theirs need load PyTorch
        python += f' -I -S "{forked.__file__}" call "{forked.server((), forked.COMMANDS)}"'
    calls = {"backprint": f"{python} -m backprint", "python": python}
    calls["torchrun"] = f'"{sys.executable}" -m torch.distributed.run'  # starts processes of its own, so is not served
    for name, call in calls.items():
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {call} "$@"\n', encoding="utf-8")
        command.chmod(0o755)
    return {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "COLUMNS": "120"}


def in_a_process(steps: Sequence[Block], folder: Path, environment: Mapping[str, str], printed: Printed) -> bool:
    """Run a block and those that continue it in a process that is forked from this one; return whether all is right."""
    place = folder / f"line_{steps[0].line}"
    place.mkdir()
    sys.stdout.flush()
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    os.chdir(place)
    sys.path.insert(0, "")  # as at Python's prompt
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in steps:
            printed(block, run(block, place, names, environment))
    except BaseException:
        print(f"a block at line {block.line}:", file=sys.stderr)
        traceback.print_exc()
        sys.exit(1)
    sys.exit(0)


def run(block: Block, place: Path, names: dict[str, Any], environment: Mapping[str, str]) -> str:
    """Run a block in a folder, and return what it prints."""
    if block.file:
        (place / block.file).parent.mkdir(exist_ok=True)
        (place / block.file).write_text(block.text, encoding="utf-8")
        return ""
    if block.language == "python":
        source = place / f"line_{block.line}.py"
        source.write_text(block.text, encoding="utf-8")
        return run_python(block.text, source, names)
    return run_bash(block, place, environment)


def run_python(text: str, source: Path, names: dict[str, Any]) -> str:
    """Run Python code on some names, and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, str(source), "exec"), names)
    return printed.getvalue()


def run_bash(block: Block, place: Path, environment: Mapping[str, str]) -> str:
    """Run commands, each of which must end with 0, and return what they print."""
    command = ["bash", "-e", "-o", "pipefail", "-c", block.text]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"line {block.line}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


# ------------------------------------------------------------------ what a page shows


def check(block: Block, printed: str) -> None:
    """Compare printed text with what a page shows."""
    if block.file or (block.language == "bash" and block.shown is None):
        return
    shown = block.printed if block.language == "python" else block.shown or ""
    assert matches(printed, shown), f"line {block.line}: the page shows\n{shown}\nand this was printed\n{printed}"


def matches(printed: str, shown: str) -> bool:
    """Whether a text is the one shown, apart from space at the ends of lines. `...` stands for any text, and an error
    of rounding such as `2.27e-16` for any other, as processors differ in it.
    """
    parts = [ROUNDING.sub(SOME_ROUNDING, re.escape(part)) for part in trimmed(shown).split("...")]
    return re.fullmatch(".*?".join(parts), trimmed(printed), re.DOTALL) is not None


def trimmed(text: str) -> str:
    """Return a text without space at the ends of its lines."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def servers(flags: tuple[str, ...]) -> str:
    """Start what pages, which run with these flags, and their commands are forked from; return the value of
    BACKPRINT_FORKED."""
    commands = ((), forked.COMMANDS), (("-P",), forked.WORKERS), forked.FILES
    return forked.servers((flags, ",".join(LOADED)), *commands)


def own_flags() -> tuple[str, ...]:
    """Return the flags of this interpreter that pages run with."""
    return tuple(word for option in sys.warnoptions for word in ("-W", option))


def main(page: Path, write: bool) -> int:
    """Run or rewrite a page; return the exit code."""
    text = page.read_text(encoding="utf-8")
    if as_its_reader(text):
        os.environ.pop(forked.SERVERS, None)
    elif forked.SERVERS in os.environ and "torch" not in sys.modules:
        place = forked.server(own_flags(), ",".join(LOADED))
        return forked.Call(place, [__file__, os.fspath(page)], os.getcwd(), os.environ, (0, 1, 2)).wait()
    for name in ("torch",) if "triton" in text.lower() else LOADED:
        importlib.import_module(name)
    if write:
        page.write_text(rewritten(text, Path.cwd()), encoding="utf-8")
        return 0
    wrong = run_page(text, Path.cwd())
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        print(servers(own_flags()), flush=True)
        sys.stdin.read()
    else:
        sys.exit(main(Path(sys.argv[1]), "--write" in sys.argv[2:]))
