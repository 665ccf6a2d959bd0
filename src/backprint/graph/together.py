"""Texts that differ in numbers alone, as one: names of modules, and guards of many parameters.

`split_numbers_of_text` returns the texts around the numbers of a text, and the numbers: of `layers.3.mlp`, the texts
`layers.` and `.mlp`, and 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from backprint.graph.folding.nouns import split_numbers_of_text
from backprint.graph.nouns import Guard

# ---- Names


def names_together(names: Sequence[str]) -> str:
    """Return names that differ in numbers alone as one: `layers.{0..3}.mlp`, `layers.{0,2}.mlp`. Of names that differ
    in more, or where braces would stand for other names too, return the first and the last: `layers.0.mlp, … norm`."""
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return names[0]
    texts_of_names, rows = zip(*map(split_numbers_of_text, names), strict=True)
    if len(set(texts_of_names)) > 1:
        return f"{names[0]}, … {names[-1]}"
    texts = texts_of_names[0]
    columns = [tuple(dict.fromkeys(column)) for column in zip(*rows, strict=True)]  # the numbers at each place
    # Braces stand for every combination of their numbers, of which some may be missing here.
    if prod(map(len, columns)) != len(names):
        return f"{names[0]}, … {names[-1]}"
    pieces = [texts[0]]
    for numbers, text in zip(columns, texts[1:], strict=True):
        pieces += (_numbers_together(numbers), text)
    return "".join(pieces)


def _numbers_together(numbers: Sequence[int]) -> str:
    """Return numbers as `{0..3}` or `{0,2}`."""
    if len(numbers) == 1:
        return str(numbers[0])
    inside = sorted(numbers)
    if inside[-1] - inside[0] == len(inside) - 1:
        return f"{{{inside[0]}..{inside[-1]}}}"
    return f"{{{','.join(map(str, inside[:6]))}{',…' if len(inside) > 6 else ''}}}"


# ---- Guards


def guard_texts(guards: Sequence[Guard]) -> tuple[str, ...]:
    """Return a line for each guard; guards of one line of the program that say the same of several inputs, as of the
    counters of an optimizer, are one line together."""
    families: dict[tuple[Any, ...], list[Guard]] = {}
    for guard in guards:
        families.setdefault(_family_of(guard), []).append(guard)
    return tuple(_family_text(family) for family in families.values())


def _family_of(guard: Guard) -> tuple[Any, ...]:
    """Return what guards have in common that are one line together: all but the numbers in the names of the value and
    of the inputs. A guard that is no equation, or has no line or no inputs, is with guards of the same text alone."""
    value, equals, expected = guard.text.partition(" == ")
    place = (guard.source.file, guard.source.line) if guard.source is not None else None
    if not equals or place is None or not guard.inputs:
        return guard.kind, guard.text, guard.inputs, place
    return (
        guard.kind,
        split_numbers_of_text(value)[0],
        expected,
        tuple(split_numbers_of_text(name)[0] for name in guard.inputs),
        place,
    )


def _family_text(family: Sequence[Guard]) -> str:
    """Return a guard as its text; several as their number, the first input of each, and the text of the first guard."""
    first = family[0]
    if len(family) == 1 or first.source is None:
        return first.text
    names = names_together([name for guard in family for name in guard.inputs[:1]])
    return f"{len(family)} guards at {first.source.at} on {names}: {first.text}, …"
