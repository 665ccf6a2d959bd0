"""Which tests CI runs, of all that there are: what `tests/ci.txt` says, whose head has the rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from pathlib import Path
from typing import Any

CHOICE = Path(__file__).parents[1] / "ci.txt"


def lines_of(text: str) -> tuple[list[str], list[str]]:
    """Return the patterns that name what runs, and those that leave out."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [line for line in lines if line[0] != "-"], [line[1:].strip() for line in lines if line[0] == "-"]


def chosen(names: Iterable[str], text: str) -> set[str]:
    """Return the tests that CI runs: of each function those that are named, or the first that is not left out."""
    named, left_out = map(_matching, lines_of(text))
    functions: dict[str, list[str]] = {}
    for name in names:
        functions.setdefault(name.partition("[")[0], []).append(name)
    kept: set[str] = set()
    for all_of_it in functions.values():
        allowed = [name for name in all_of_it if not left_out(name)]
        kept.update([name for name in allowed if named(name)] or allowed[:1])
    return kept


def problems_of(names: Iterable[str], text: str) -> list[str]:
    """Return what is wrong with the choice: patterns of no test, and files of which, unsaid, nothing runs."""
    names = list(names)
    named, left_out = lines_of(text)
    gone = [f"{pattern} names no test" for pattern in (*named, *left_out) if not any(map(_matching([pattern]), names))]
    running = {name.partition("::")[0] for name in chosen(names, text)}
    files = dict.fromkeys(name.partition("::")[0] for name in names)
    silent = [f"nothing of {file} runs" for file in files if file not in running and f"{file}::*" not in left_out]
    return gone + silent


def _matching(patterns: Iterable[str]) -> Callable[[str], Any]:
    """Return what tells whether a name matches one of the patterns, in which `*` stands for any text."""
    return re.compile("|".join(translate(pattern.replace("[", "[[]")) for pattern in patterns) or r"(?!)").match
