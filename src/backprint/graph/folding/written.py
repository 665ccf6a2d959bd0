"""What writes the statements of a folded text as flat ones, once for each iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from backprint.errors import RefusedError
from backprint.graph.folding.evaluate import Numbers, filled_pattern, of_iteration
from backprint.graph.scan import MAX_CHARACTERS
from backprint.graph.text import quote

Piece: TypeAlias = "str | Callable[[Expansion], str]"


@dataclass(slots=True)
class Expansion:
    """What is known while statements are written."""

    zeros: dict[str, str] = field(default_factory=dict)
    """Key with a number 0 -> the name in the flat graph, which leaves it out."""
    numbers: Numbers = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Short name -> name in the flat graph."""
    keys: dict[str, str] = field(default_factory=lambda: {"None": "None"})
    """Key -> name in the flat graph, of all that is in the tables."""
    source: str = ""
    """The line of the program of the call of a function, or its module."""
    out: list[str] = field(default_factory=list)
    size: int = 0
    said: str = "# -"

    def write(self, line: str) -> None:
        """Write a line."""
        self.out.append(line)
        self.size += len(line) + 1
        if self.size > MAX_CHARACTERS:
            raise RefusedError(f"the loops write more than {MAX_CHARACTERS:,} characters, the most that are read")

    def flat(self, key: str) -> str:
        """Return the name that a value has in the flat graph."""
        if key not in self.keys:
            raise RefusedError(f"{key[:80]!r} is taken before a step computes it")
        return self.keys[key]


Written: TypeAlias = Callable[[Expansion], None]
"""Writes one statement of the folded text."""

Said: TypeAlias = Callable[[Expansion], str]
"""Makes a text for an iteration."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What the comment behind a step says: its name, its echo, and whether the program has no line for it."""

    name: Said | None
    echo: Said | None
    unseen: bool


def checked_name(text: str) -> str:
    """Return a name that is one, so that a line that is written has no other statement in it."""
    if not text.isidentifier():
        raise RefusedError(f"{text[:80]!r} is not the name of a value")
    return text


def number_text(value: Any) -> str:
    """Return a literal as text."""
    return "nan" if value != value else repr(value)


def looped(index: str, count: int, body: Sequence[Written]) -> Written:
    """Return what writes a loop."""

    def write(expansion: Expansion) -> None:
        for place in range(count):
            expansion.numbers[index] = place
            for each in body:
                each(expansion)
        del expansion.numbers[index]

    return write


def only(index: str, place: int, body: Sequence[Written]) -> Written:
    """Return what writes statements of one iteration."""

    def write(expansion: Expansion) -> None:
        if expansion.numbers[index] == place:
            for each in body:
                each(expansion)

    return write


def renaming(name: str, pieces: Sequence[Piece]) -> Written:
    """Return what gives a value another short name; nothing is written."""

    def write(expansion: Expansion) -> None:
        expansion.names[name] = joined(pieces, expansion)

    return write


def written_guard(source: Said, behind: Behind, pieces: Sequence[Piece]) -> Written:
    """Return what writes a guard."""

    def write(expansion: Expansion) -> None:
        write_line(expansion, comment_of(expansion, source, behind), joined(pieces, expansion))

    return write


def written_step(
    source: Said,
    behind: Behind,
    target: Assigned,
    spec: str | None,
    types: dict[tuple[int, ...], str],
    pieces: Sequence[Piece],
) -> Written:
    """Return what writes a step."""
    typed = filled_pattern(spec) if spec is not None else None

    def write(expansion: Expansion) -> None:
        own = of_iteration(types, expansion.numbers)
        annotation = f": {quote(own or typed(expansion.numbers))}" if typed else ""
        call = joined(pieces, expansion)
        flat = checked_name(behind.name(expansion) if behind.name else target.plain(expansion))
        write_line(expansion, comment_of(expansion, source, behind), f"{flat}{annotation} = {call}")
        target.bind(expansion, flat)

    return write


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a statement assigns to: a short name, or a key of the table."""

    short: str
    key: Said | None = None

    def plain(self, expansion: Expansion) -> str:
        """Return the name in the flat graph, where no comment says another."""
        return expansion.zeros.get(key, key) if self.key and (key := self.key(expansion)) else self.short

    def bind(self, expansion: Expansion, flat: str) -> None:
        """Note the name of the value in the flat graph."""
        if self.key is None:
            expansion.names[self.short] = flat
        else:
            expansion.keys[self.key(expansion)] = flat


@dataclass(frozen=True, slots=True)
class Template:
    """A function of a folded text."""

    parameters: tuple[str, ...]
    body: tuple[Written, ...]
    results: tuple[str, ...]
    asks: bool
    """Whether it has the line, or the module, that its call says."""
    length: int
    """Of its text, in characters."""


def written_call(
    function: Template,
    source: Said,
    given: Sequence[Callable[[Expansion], Any]],
    marks: Callable[[Numbers], Numbers],
    targets: Sequence[Assigned],
) -> Written:
    """Return what writes the steps of a function for a call of it; it is given numbers, and texts of values."""

    def write(expansion: Expansion) -> None:
        values = {name: value(expansion) for name, value in zip(function.parameters, given, strict=True)}
        numbers = {name: value for name, value in values.items() if not isinstance(value, str)}
        around = expansion.numbers, expansion.names, expansion.source
        expansion.source = source(expansion)
        expansion.numbers = {**numbers, **marks(expansion.numbers)}
        expansion.names = {name: value for name, value in values.items() if isinstance(value, str)}
        for each in function.body:
            each(expansion)
        results = [expansion.names[name] for name in function.results]
        expansion.numbers, expansion.names, expansion.source = around
        for target, flat in zip(targets, results, strict=True):
            target.bind(expansion, flat)

    return write


def write_line(expansion: Expansion, comment: str, line: str) -> None:
    """Write a step below its comment, unless that was said last."""
    if comment != expansion.said:
        expansion.write(f"        {comment}")
        expansion.said = comment
    expansion.write(f"        {line}")


def joined(pieces: Sequence[Piece], expansion: Expansion) -> str:
    return "".join(piece if isinstance(piece, str) else piece(expansion) for piece in pieces)


def comment_of(expansion: Expansion, source: Said, behind: Behind) -> str:
    """Return the comment of a step as the flat text has it."""
    echo = f"{behind.echo(expansion)};" if behind.echo else ""
    line = "" if behind.unseen else source(expansion)
    return f"# {f'{echo} {line}'.strip() or '-'}"
