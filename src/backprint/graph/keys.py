"""Keys of ports: a port's role and name, and their text, `gradient w`, in files, messages and `bp.run`.

This module alone reads and writes the text. Among a program's inputs, the tangent of an output `y` has the name
`tangent y`; no other input has a role in its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

# ---- Text for a prompt: one short line, without line breaks or control characters of a sample


LONGEST = 60
"""The characters of a name or a text in such a line."""


def in_a_line(text: str, longest: int = LONGEST) -> str:
    """Return a stranger's text as part of a line: cut off, and without control characters."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in cut)


def number_of(count: int, noun: str) -> str:
    """Return a number with its noun: `1 step`, `2,078 steps`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# ---- Keys of ports

T = TypeVar("T")


class PortKey(NamedTuple):
    """Identifies a port of one direction, where ports of several roles may have one name."""

    role: str
    name: str

    def __str__(self) -> str:
        return f"{self.role} {self.name}" if self.name else self.role

    @classmethod
    def from_text(cls, text: str) -> PortKey:
        """Return the key of a text; one without a name if the text is not a key."""
        role, _, name = text.partition(" ")
        return cls(role, name)


PortValues: TypeAlias = Mapping[PortKey, Any]
"""The values at the ports of a Pair."""


def keyed(role: str, values: Mapping[str, T]) -> dict[PortKey, T]:
    """Return values by name as values by port key, for one role."""
    return {PortKey(role, name): value for name, value in values.items()}


def of_role(role: str, values: Mapping[PortKey, T]) -> dict[str, T]:
    """Return the values of one role's ports by name."""
    return {key.name: value for key, value in values.items() if key.role == role}


_TANGENT = "tangent "


def tangent_name(output: str) -> str:
    """Return the name that the tangent of an output has among inputs."""
    return _TANGENT + output


def is_tangent(name: str) -> bool:
    """Whether an input of this name is a tangent."""
    return name.startswith(_TANGENT)


def output_of(tangent: str) -> str:
    """Return the output whose tangent has this name among inputs."""
    return tangent.removeprefix(_TANGENT)


def with_tangents(values: Mapping[str, T], tangents: Mapping[str, T]) -> dict[str, T]:
    """Return inputs, and tangents by their outputs, in one mapping."""
    return {**values, **{tangent_name(output): value for output, value in tangents.items()}}


def without_tangents(values: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    """Return the inputs alone, and the tangents by their outputs."""
    inputs = {name: value for name, value in values.items() if not is_tangent(name)}
    return inputs, {output_of(name): value for name, value in values.items() if is_tangent(name)}
