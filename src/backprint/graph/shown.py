"""How nouns show themselves at a prompt: in one short line, without line breaks or control characters of a sample."""

from __future__ import annotations

LONGEST = 60
"""The characters of a name or a text in such a line."""


def in_a_line(text: str, longest: int = LONGEST) -> str:
    """Return a text of a sample as a part of a line."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in cut)


def number_of(count: int, noun: str) -> str:
    """Return a number with its noun: `1 step`, `2,078 steps`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
