"""`SCHEME:NAME?OPTION=VALUE&OPTION=VALUE` in parts. It needs neither torch nor the libraries."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from backprint.errors import UsageError

LIBRARIES: Mapping[str, str] = {"hf": "transformers", "timm": "timm", "torchvision": "torchvision"}
"""The library that a scheme's models are of."""

EXAMPLES: Mapping[str, str] = {"hf": "hf:gpt2", "timm": "timm:resnet18", "torchvision": "torchvision:resnet18"}


@dataclass(frozen=True, slots=True)
class Name:
    """A model's name in a library, and the options that were written behind it, as texts."""

    text: str
    scheme: str
    name: str
    options: Mapping[str, str]

    @property
    def library(self) -> str:
        return LIBRARIES[self.scheme]


def is_named(target: Any) -> bool:
    """Return whether a TARGET is a model's name. A folder of that name is what it was: a folder."""
    text = os.fspath(target) if isinstance(target, (str, os.PathLike)) else ""
    scheme, colon, _ = text.partition(":")
    return bool(colon) and scheme in LIBRARIES and not os.path.isdir(text)


def library_of(target: Any) -> str:
    """Return the library that the name of a model is of."""
    return LIBRARIES[os.fspath(target).partition(":")[0]]


def parse_name(target: Any) -> Name:
    """Split the name of a model from its options; UsageError for what cannot be split."""
    text = os.fspath(target)
    scheme, _, rest = text.partition(":")
    name, mark, query = rest.partition("?")
    if not name or not name.isprintable():
        raise UsageError(f"{text}: no name of a model behind {scheme}: — write {EXAMPLES[scheme]}")
    options: dict[str, str] = {}
    for part in query.split("&") if mark else ():
        key, equals, value = part.partition("=")
        if not equals or not key or not value:
            raise UsageError(
                f"{text}: {part!r} is no option: write OPTION=VALUE, joined by &, such as ?layers=2&batch=4"
            )
        if key in options:
            raise UsageError(f"{text}: {key} is given twice, as {options[key]} and as {value}")
        options[key] = value
    return Name(text, scheme, name, options)


def count_of(name: Name, option: str, default: int) -> int:
    """Return an option that is a number of things, of which there is one at least; the default, where a name does not
    have it."""
    text = name.options.get(option)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{name.text}: {option}={text} is not a number from 1 on")
    return int(text)


def nearest(word: str, known: Iterable[str], most: int = 5) -> str:
    """Return the known words that are nearest to one, in a line; where none is near, all of them, or the first ones if
    they are more than `most`."""
    words = list(known)
    near = difflib.get_close_matches(word.lower(), words, most, cutoff=0.5)
    return ", ".join(near or (words if len(words) <= most else [*words[:most], "…"]))


def check_options(name: Name, own: Collection[str], fields: Iterable[str] = (), of: str = "") -> None:
    """Raise for an option of a name that is neither in `own`, the options of its library, nor one of the fields of the
    configuration named `of`; the error has all that there are."""
    fields = list(fields)
    for option in name.options:
        if option not in own and option not in fields:
            more = f"; fields of {of}: {', '.join(fields)}" if fields else ""
            raise UsageError(f"{name.text}: there is no option {option!r}; there are {', '.join(own)}{more}")
