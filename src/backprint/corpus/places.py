"""Put the results of samples into OUT, each in its own folder, by renames, without losing files of other samples."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from backprint.corpus.pool import remove
from backprint.corpus.task import TREE_FILES, TREE_NAMES

WORK = ".work"
RESULT = "result.json"
MARK = "graph_net.json"
"""The file that makes a tree's folder a sample: it is put there last."""


def settle(staged: Path | None, place: Path, out: Path) -> None:
    """Put a finished folder into its place by one rename; nothing of an older one stays.

    If other samples, or their trees, are there or below, its files are moved one by one, and `result.json`, which makes
    them a sample, is the last.
    """
    if (place / RESULT).is_file():
        (place / RESULT).unlink()
        below_tree = place.relative_to(out).parts[:1] in {(name,) for name in TREE_NAMES}
        for entry in list(place.iterdir()):
            if not of_others(entry, below_tree):
                remove(entry)
        with contextlib.suppress(OSError):  # others are below it
            place.rmdir()
    if staged is None:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(staged, place)
    except OSError:
        if not place.is_dir():
            raise
        join(staged, place, RESULT)


def of_others(entry: Path, below_tree: bool) -> bool:
    """Whether an entry in a sample's folder belongs to other samples: their folders, and those of their trees."""
    if not entry.is_dir():
        return below_tree and entry.name in TREE_FILES
    if any(found.is_file() for found in entry.rglob(RESULT)):
        return True
    return below_tree and not re.fullmatch(r"pair_\d+", entry.name) and any(entry.rglob(MARK))


def join(staged: Path, place: Path, last: str) -> None:
    """Move the content of a folder into another, the file of this name last. Folders that contain samples are
    merged."""
    place.mkdir(parents=True, exist_ok=True)
    for entry in sorted(staged.iterdir(), key=lambda entry: entry.name == last):
        there = place / entry.name
        if entry.is_dir() and there.is_dir() and any(there.rglob(RESULT)):
            join(entry, there, last)
            continue
        remove(there)
        os.rename(entry, there)


def plant(trees: Path, out: Path, id: str, known: Callable[[str], bool]) -> None:
    """Put a sample's trees into their places beside the samples; `known` says whether an id is a sample's."""
    if not trees.is_dir():
        return
    for name in TREE_NAMES:
        uproot(out / name / tree_name(id), lambda below: known(f"{id}/{below}"))
    for mark in sorted(trees.rglob(MARK)):
        place = out / mark.parent.relative_to(trees)
        if place.name.startswith("subgraph_") and known(f"{id}/{place.name}"):
            raise FileExistsError(errno.EEXIST, f"{place} is the place of the sample {id}/{place.name}")
        join(mark.parent, place, MARK)
    remove(trees)


def uproot(place: Path, known: Callable[[str], bool]) -> None:
    """Remove a sample's files from a tree: its own files and subgraphs, but not those of samples below it."""
    for name in (MARK, *TREE_FILES):  # the mark first: without it, it is no longer whole
        if (place / name).is_file():
            (place / name).unlink()
    for old in place.glob("subgraph_*"):
        if not known(old.name):
            uproot(old, known)
            with contextlib.suppress(OSError):  # others are below it
                old.rmdir()


def keep_log(out: Path, id: str, text: str) -> None:
    """Keep the last output of a failed sample."""
    place = log_of(out, id)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8", errors="backslashreplace")


def log_of(out: Path, id: str) -> Path:
    """Return the path of a failed sample's log."""
    name = re.sub(r"[^\w.+=-]", "_", id)[-100:]
    return out / WORK / "logs" / f"{name}.{hashlib.sha256(id.encode()).hexdigest()[:8]}.txt"


def tree_name(id: str) -> str:
    """Return a sample's id as a path for GraphNet's tools: other characters are replaced, and a hash makes it
    unique."""
    plain = re.sub(r"[^A-Za-z0-9_.@+,=/-]", "_", id)
    return plain if plain == id else f"{plain}.{hashlib.sha256(id.encode()).hexdigest()[:8]}"
