"""Text: a stranger's made printable, as a cell of a table and as JSON; large numbers; whether an option is one of its
words.

Characters that move a cursor, hide or reorder letters are escaped. Texts that a spreadsheet would compute are quoted,
and JSON that its readers understand in different ways is refused. A page allows its own script by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from backprint.common.words import CHOICES
from backprint.errors import UsageError

# ---- Text of strangers


SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


def printable(text: str, lines: bool = False) -> str:
    r"""Return the text with `\u001b`, `\n`, `\u202e` and the like for what is not printable; with `lines`, its lines
    stay."""
    if text.isprintable():
        return text
    stays = "\n\t" if lines else ""
    return "".join(letter if letter.isprintable() or letter in stays else escape_character(letter) for letter in text)


def escape_character(letter: str) -> str:
    """Escape a character as Python does; `\\x` stands for a byte that is not UTF-8."""
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as os.fsdecode returns it
        return f"\\x{code - 0xDC00:02x}"
    return SHORT.get(letter) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def one_line(text: str) -> str:
    """Return a text as one line of printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def encodable(text: object) -> str:
    """Return a text that can be encoded: JSON can hold lone surrogates."""
    return str(text).encode("utf-8", "backslashreplace").decode()


FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""The first character of a cell that spreadsheets take for a formula (OWASP, CSV injection)."""


def spreadsheet_cell(text: str) -> str:
    """Write a text as a spreadsheet's cell: an apostrophe keeps a formula from being computed."""
    return printable(f"'{text}" if FORMULA.match(text) else text)


MOST_VALUES = 4_000_000
"""The values of a JSON text that is parsed: an empty list takes 3 characters of a file, and 64 bytes of memory."""


def check_values(text: str) -> None:
    """Raise ValueError for a JSON text that has, by its commas and brackets, more values than are read."""
    count = sum(map(text.count, ",[{"))
    if count > MOST_VALUES:
        raise ValueError(f"{count:,} commas and brackets; at most {MOST_VALUES:,} are read")


def parse_json(text: str) -> Any:
    """Parse JSON. Texts that JSON readers understand in different ways raise ValueError."""
    check_values(text)
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object_without_duplicates)


def _refuse_constant(text: str) -> Any:
    """Refuse `NaN` and `Infinity`, which Python reads and other readers do not."""
    raise ValueError(f"{text} is not a JSON number")


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise ValueError for a key that is there twice: one reader takes its first value and another
    the last."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"an object has the key {key!r:.80} twice")
        content[key] = value
    return content


def policy_digest(text: str) -> str:
    """Return a text's digest in the form of a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---- Large numbers as short texts


def amount(count: int) -> str:
    """Return a number of bytes with its unit: `1.5 GiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""  # not reached: the last unit has returned


def short(count: int) -> str:
    """Return a number with three digits and the letter of its unit: `1.23M`."""
    size = float(count)
    for unit in ("", "K", "M", "G", "T"):
        if size < 1000 or unit == "T":
            return f"{size:.3g}{unit}"
        size /= 1000
    return ""  # not reached: the last unit has returned


# ---- Options of a call (`words` has what they accept)


def check_choice(option: str, value: object, optional: bool = False) -> None:
    """Raise unless a value is one that an option accepts, or None if it is `optional`."""
    known = CHOICES[option]
    if value not in known and not (optional and value is None):
        raise UsageError(f"{option}={value!r} is not one of {', '.join(map(repr, known))}")


def check_sequence(option: str, value: object) -> None:
    """Raise for a string where a sequence of strings is needed: it would be read letter by letter."""
    if isinstance(value, (str, bytes)):
        raise UsageError(f"{option}={value!r} is a text: write {option}=({value!r},)")
