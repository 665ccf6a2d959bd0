"""A report that can be passed on: paths of this machine in it are relative to the report, or the end of them.

    Table cell   '/data/me/run/samples/mlp: no such operator'
    in run/      'samples/mlp: no such operator'
    elsewhere    'mlp: no such operator', and 'samples/mlp: …' where the report names another mlp too

A page of a report is shared; its rows as a file for programs keep what was measured.

`base` is the folder that the report is written to, `names` what the paths outside of it are called (Names), and `place`
a path with no `.`, `..` or double `/` in it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backprint.table.nouns import Report, Table, count_rows

ABSOLUTE = re.compile(r"(?<![\w:/.~%-])(?:/[^\s/:;,'\"`()\[\]{}<>|=]+){2,}/?")
"""The beginning of an absolute path of two names or more in a text, up to a blank; what follows `:` or `/`, as in an
address of the web, is none."""

WORD = re.compile(r" +[^\s:;,'\"`()\[\]{}<>|=]+")
"""What may go on with a path behind a blank."""

MOST_WORDS = 8
"""The most words of a text that are tried as parts of a path."""

Names = Mapping[str, str]
"""What each absolute path of a report is called in it, where that is not its last name."""


def shared(report: Report, base: Path) -> Report:
    """Return a report whose texts name no absolute path; `base` is the folder that it is written to. Different paths
    have different names: as much of their ends as tells them apart."""
    names = _names_of(_texts_of(report), base)

    def without(text: str) -> str:
        return without_paths(text, base, names)

    def of_table(table: Table) -> Table:
        return replace(table, title=without(table.title), note=without(table.note), rows=_Rows(table, base, names))

    return replace(
        report,
        title=without(report.title),
        answer=without(report.answer),
        facts={name: without(value) for name, value in report.facts.items()},
        tables=tuple(map(of_table, report.tables)),
        rows=of_table(report.rows),
        pictures=tuple(
            replace(
                picture,
                names=[without(name) for name in picture.names],
                series={without(name): values for name, values in picture.series.items()},
            )
            for picture in report.pictures
        ),
    )


def without_paths(text: str, base: Path, names: Names | None = None) -> str:
    """Return a text in which each absolute path is relative to `base` if it is in it, else what `names` call it, or its
    last name."""
    pieces, done = [], 0
    for start, end in _paths_in(text, base):
        place = os.path.normpath(text[start:end])
        pieces += [text[done:start], _within(place, base) or (names or {}).get(place) or os.path.basename(place)]
        done = end
    return "".join([*pieces, text[done:]])


# ---- Where paths are in a text


def _paths_in(text: str, base: Path) -> Iterator[tuple[int, int]]:
    """Yield where the absolute paths of a text begin and end, as indexes of its characters."""
    end = 0
    while match := ABSOLUTE.search(text, end):
        start, end = match.start(), _end_of_path(text, match.start(), match.end(), base)
        yield start, end


def _end_of_path(text: str, start: int, end: int, base: Path) -> int:
    """Return where the path of a text ends that begins at `start` and goes on at least up to `end`, where the first
    blank is. Behind a blank, it goes on with what is on this machine, or up to the quote that it is in; a text that
    begins with a path goes on up to its last word with a `/`."""
    # The path of the report's folder may have blanks itself: it goes on behind them.
    for folder in _folders(base):
        behind = start + len(folder)
        if text.startswith(folder, start) and text[behind : behind + 1] in {"", "/"}:
            rest = re.compile(r"[^\s:;,'\"`()\[\]{}<>|=]*").match(text, behind)
            end = max(end, rest.end() if rest else end)
    quote = text[start - 1] if start else ""
    # The path goes on up to the closing quote only if another `/` comes before it.
    if quote and quote in "'\"`" and (closed := text.find(quote, end)) > 0 and "/" in text[end:closed]:
        return closed if "\n" not in text[end:closed] else end
    return _end_of_words(text, start, end)


def _end_of_words(text: str, start: int, end: int) -> int:
    """Return where a path ends that begins at `start`, of the words behind the blank at `end`: after the last of
    MOST_WORDS words up to which it is on this machine, or, in a text that begins with the path, after the last word
    with a `/` inside. A word is matched with the blanks before it."""
    word_end = end
    for _ in range(MOST_WORDS):
        word = WORD.match(text, word_end)
        if word is None:
            break
        word_start, word_end = word_end, word.end()
        # Of a word such as `dir/file`, the path up to the first `/` is looked for: the file may be gone.
        up_to = text[start:word_start] + (word[0].partition("/")[0] if "/" in word[0].strip() else word[0])
        if os.path.lexists(up_to) or ("/" in word[0].strip(" /") and not start):
            end = word_end
    return end


# ---- What they are called


def _folders(base: Path) -> set[str]:
    """Return the paths of the folder of a report: as it is named, and where links lead."""
    root = os.path.abspath(base)
    return {root, os.path.realpath(root)}


def _within(place: str, base: Path) -> str:
    """Return a path relative to the folder of a report; empty if it is not in it."""
    found = (place[len(folder) + 1 :] for folder in _folders(base) if place.startswith(f"{folder}{os.sep}"))
    return next(found, "")


def _names_of(texts: Iterable[str], base: Path) -> Names:
    """Return what the paths of some texts are called that are not in the folder `base`, so that no two have the same
    name, and none that of a path in the folder: as few of the last parts of each as that takes."""
    places = {os.path.normpath(text[start:end]) for text in texts for start, end in _paths_in(text, base)}
    inside = {_within(place, base) for place in places}
    unnamed = {place for place in places if not _within(place, base)}
    names: dict[str, str] = {}
    length = 1  # how many of the last parts of a path are tried as its name
    while unnamed:
        called = {place: os.sep.join(place.split(os.sep)[1:][-length:]) for place in sorted(unnamed)}
        count = Counter(called.values())
        for place, name in called.items():
            # A path has as many parts as it has separators: with all of them, the name is the whole path.
            if (count[name] == 1 and name not in inside) or length >= place.count(os.sep):
                names[place] = name
                unnamed.remove(place)
        length += 1
    return names


def _texts_of(report: Report) -> Iterator[str]:
    """Yield every text of a report that may name a path."""
    yield from (report.title, report.answer, *report.facts.values())
    for table in (*report.tables, report.rows):
        yield from (table.title, table.note)
        for row in table.rows:
            for kind, value in zip(table.columns.values(), row, strict=True):
                if not _is_relative(kind, value):  # `_Rows` leaves a link as it is
                    yield from _texts_in(value)
    for picture in report.pictures:
        yield from (*picture.names, *picture.series)


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts of a cell, also those in lists and mappings."""
    match value:
        case str():
            if "/" in value:
                yield value
        case Mapping():
            yield from _texts_in([*value, *value.values()])
        case list() | tuple():
            for item in value:
                yield from _texts_in(item)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a table with paths that can be shared, made at each iteration."""

    table: Table
    base: Path
    names: Names

    def __len__(self) -> int:
        return count_rows(self.table)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        kinds = tuple(self.table.columns.values())
        for row in self.table.rows:
            yield tuple(
                value if _is_relative(kind, value) else _cell(value, self.base, self.names)
                for kind, value in zip(kinds, row, strict=True)
            )


def _is_relative(kind: str, value: Any) -> bool:
    """Whether a cell is a path relative to the report: a link, which must stay as it is, whatever is in its names."""
    return kind == "path" and not os.path.isabs(value)


def _cell(value: Any, base: Path, names: Names) -> Any:
    """Return a cell with its texts changed, also those in lists and mappings."""
    match value:
        case str():
            return without_paths(value, base, names) if "/" in value else value
        case Mapping():
            return {_cell(key, base, names): _cell(item, base, names) for key, item in value.items()}
        case list() | tuple() if type(value) in (list, tuple):  # a named tuple is not made of an iterator
            return type(value)(_cell(item, base, names) for item in value)
    return value
