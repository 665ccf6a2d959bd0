"""Which modules of a model a pattern names. Nothing here needs torch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from backprint.errors import UsageError

NAMED = 3
"""How many near paths a message names."""


def matching(paths: Sequence[str], pattern: str) -> list[str]:
    """Return the paths that a pattern names, in the order of the model; UsageError names near ones if there are none.

    `*` and `?` stand for letters of one name, `[ab]` for one of them, and `**` for any number of names.
    """
    if not isinstance(pattern, str):
        raise UsageError(f"bp.swap: a pattern is a text such as 'blocks.*.mlp', not a {type(pattern).__name__}")
    expression = re.compile(_expression_of(pattern))
    matches = [path for path in paths if expression.fullmatch(path) and (path or not pattern)]  # '' is the model
    if not matches:
        raise UsageError(f"bp.swap: no module of the model is {pattern!r:.80}{near_paths_text(paths, pattern)}")
    return matches


def _expression_of(pattern: str) -> str:
    r"""Return a pattern as a regular expression: `blocks.*.mlp` -> `blocks\.[^.]*\.mlp`."""
    parts = re.split(r"(\*\*|\*|\?|\[[^\]]+\])", pattern)
    words = {"**": r".*", "*": r"[^.]*", "?": r"[^.]"}
    return "".join(words.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)


def near_paths_text(paths: Sequence[str], pattern: str) -> str:
    """Return what a message says of the paths that are nearest to a pattern: those with the same last name first, with
    `*` for each number in them, so that `blocks.0.mlp` and `blocks.1.mlp` are one."""
    # Each text once, the last of the model first: of many with the same last name, the later ones are named.
    texts = list(dict.fromkeys(_with_stars_for_numbers(path) for path in reversed(paths) if path))
    pattern_text = _with_stars_for_numbers(pattern)
    close_matches = difflib.get_close_matches(pattern_text, texts, NAMED, cutoff=0.5)
    same_last_name = [text for text in texts if text.rpartition(".")[2] == pattern_text.rpartition(".")[2]]
    names = list(dict.fromkeys([*same_last_name, *close_matches]))[:NAMED] or texts[::-1][:NAMED]
    if not names:
        return ", which has no submodules; '' is the model itself"
    return f"; near it are {', '.join(repr(name) for name in names)}"


def _with_stars_for_numbers(path: str) -> str:
    """Return a path with `*` for each of its names that is a number: `blocks.0.fc1` -> `blocks.*.fc1`."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path)
