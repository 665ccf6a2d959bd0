"""Names of compilers as pictures and narrow columns show them."""

from __future__ import annotations

import re
from collections.abc import Iterable

OWN = re.compile(r".*[/\\](?P<name>[^/\\]+\.py:[^/\\]+)", re.DOTALL)
"""A function in a file: `FOLDER/FILE.py:FUNCTION`."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return each name without its folder; with it, where two names would be the same."""
    known = list(dict.fromkeys(names))
    short = [OWN.fullmatch(name) for name in known]
    found = [match["name"] if match else name for match, name in zip(short, known, strict=True)]
    return {name: own if found.count(own) == 1 else name for name, own in zip(known, found, strict=True)}
