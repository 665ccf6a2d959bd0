"""Names that are not taken yet."""

from __future__ import annotations

from collections.abc import Container


def free_name(wanted: str, taken: Container[str], numbered: str = "{}_{}", first: int = 1) -> str:
    """Return the wanted name, with the first number that makes it free appended if it is taken.

    `numbered` says how: `{}_{}` for names of variables, and `{}~{}` for names of tensors, which may end in a number of
    their own, as in `layers_1`.
    """
    name, number = wanted, first
    while name in taken:
        name, number = numbered.format(wanted, number), number + 1
    return name
