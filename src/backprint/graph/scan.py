"""Look at the text of a graph before `ast` parses it: strings, comments, and how much memory its tree may take.

Python's tree takes up to BYTES_OF_A_TOKEN for each token, and an f-string of many holes takes a time that grows with
their square. One pass tells strings and comments from code exactly as Python does, because everything that would make
that hard is refused by name: prefixes of strings, backslashes that continue a line, characters that look different
from what they do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from backprint.errors import GraphError, RefusedError

MAX_CHARACTERS = 24 * 2**20

MAX_TOKENS = 1_000_000
"""How many names, numbers, strings and marks may be parsed at once, so that their tree fits in about 1 GB."""

MAX_QUOTES = 2_000_000
"""How many quote and comment marks a text may have."""

BYTES_OF_A_TOKEN = 1_000
"""The most memory that Python's tree takes for one of them: `a;a;a` takes 920 bytes for each."""

PIECE = re.compile(
    r"""(?P<comment>\#[^\n]*+)
    |(?<!\w)(?P<prefix>\w*+)(?:
        (?P<long>\"\"\"(?:[^"\\]|\\[\s\S]|"(?!""))*+\"\"\"|'''(?:[^'\\]|\\[\s\S]|'(?!''))*+''')
        |(?P<open>\"\"\"|''')
        |(?P<short>"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"|'[^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*+')
        |(?P<end>["'\\])
    )""",
    re.VERBOSE | re.ASCII,
)
_BESIDE = re.compile(r"^ *+[^ #\n][^#\n]*+#", re.MULTILINE)

_KINDS = {code: "a" if chr(code).isalnum() or chr(code) == "_" else "(" for code in range(128)}
_KINDS |= {ord(" "): " ", ord("\n"): "("}


@dataclass(frozen=True, slots=True)
class Scanned:
    """A text that is neither huge nor misleading."""

    lines: list[str]
    beside: list[int]
    """The numbers of the lines that have a comment beside code."""
    tokens: int
    """At least as many as Python counts."""


def count_tokens(text: str) -> int:
    """Return how many names, numbers and marks a text has at most; what is in strings and comments counts as well."""
    kinds = text.translate(_KINDS) if text.isascii() else re.sub(r"[^\x00-\x7f]", "a", text).translate(_KINDS)
    return kinds.count("(") + kinds.count("(a") + kinds.count(" a") + kinds.startswith("a")


def scan(text: str) -> Scanned:
    """Scan a text; raise if it is huge or misleading."""
    if len(text) > MAX_CHARACTERS:
        raise RefusedError(f"the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read")
    if (quotes := sum(map(text.count, "\"'#"))) > MAX_QUOTES:
        raise RefusedError(f"the text has {quotes:,} quote and comment marks; at most {MAX_QUOTES:,} are read")
    text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if not text.replace("\n", "").isprintable():
        number, line = next((number, line) for number, line in enumerate(lines, 1) if not line.isprintable())
        odd = next(character for character in line if not character.isprintable())
        raise RefusedError(f"line {number}: the character U+{ord(odd):04X} cannot stand in a graph's text")
    for number, line in enumerate(lines[:2], 1):
        if line.lstrip().startswith("#") and "coding" in line:  # Python would read the file in that encoding
            raise RefusedError(f"line {number}: {line.strip():.80} names an encoding: a graph's text is UTF-8")

    def bare_piece(found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind == "comment":
            return "#"
        prefix, string = found["prefix"], found[0][len(found["prefix"]) :]
        if kind in ("open", "end"):
            what = "a backslash outside a string" if string == "\\" else "a string that does not end on its line"
            raise GraphError(f"line {line_number(text, found)}: {what}: not Python that a graph is written in")
        if prefix:
            why = "is a string with a prefix, which is not read"
            raise RefusedError(f"line {line_number(text, found)}: {found[0]!r:.80} {why}")
        return '"' + "\n" * string.count("\n")

    bare = PIECE.sub(bare_piece, text)
    if not bare.isascii():
        for number, line in enumerate(bare.split("\n"), 1):
            for odd in line:
                if not odd.isascii():
                    raise RefusedError(f"line {number}: {odd!r} (U+{ord(odd):04X}) outside a string: names are ASCII")
    beside = numbers_of_lines(bare, [found.end() for found in _BESIDE.finditer(bare)]) if "#" in bare else []
    return Scanned(lines, beside, count_tokens(bare))


def line_number(text: str, found: re.Match[str]) -> int:
    """Return the number of the line of a piece."""
    return text.count("\n", 0, found.start()) + 1


def numbers_of_lines(text: str, places: list[int]) -> list[int]:
    """Return the numbers of the lines of places, which are in order."""
    numbers, line, last = [], 1, 0
    for place in places:
        line += text.count("\n", last, place)
        last = place
        numbers.append(line)
    return numbers
