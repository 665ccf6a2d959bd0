"""A sample's own files, and as a mapping of paths to bytes where no file system is shared."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import socket
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from backprint.common.files import open_regular
from backprint.errors import NO_PERMISSION, NO_SPACE, PlaceError, SampleError, UsageError
from backprint.jobs.find import LISTED
from backprint.jobs.ledger import NAME
from backprint.jobs.pool import remove
from backprint.jobs.task import TREE_FILES, TREE_NAMES


def own_files(folder: Path) -> Iterator[str]:
    """Yield a sample's own files: those beside its main file, and those of its pairs; no links."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield entry.name
            elif entry.is_dir(follow_symlinks=False) and re.fullmatch(r"pair_\d+", entry.name):
                yield from (f"{entry.name}/{name}" for name in all_files(Path(entry.path)))


def all_files(folder: Path) -> Iterator[str]:
    """Yield every regular file below a folder; no links."""
    for below, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            path = os.path.join(below, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield os.path.relpath(path, folder)


def packed(folder: Path, names: Iterator[str], most: int) -> dict[str, bytes]:
    """Return files as bytes; raise if they are more than may be sent."""
    content: dict[str, bytes] = {}
    size = 0
    for name in sorted(names):
        with open_regular(folder / name) as file:
            content[name] = file.read(most - size + 1)
        size += len(content[name])
        if size > most:
            raise SampleError(
                f"{folder}: more than the {most >> 20:,} MiB of a sample that are sent between machines: "
                "put SRC and OUT on a file system that all of them see"
            )
    return content


def unpacked(content: Mapping[str, bytes], folder: Path) -> Path:
    """Write files that were sent; refuse a path that leaves the folder."""
    for name, data in content.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise SampleError(f"{name!r:.100}: a file of a sample must be in its own folder")
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder


# ----------------------------------------------------------------------------
# OUT, the folder of a run: whether it may be written to, by one run at a time.
# ----------------------------------------------------------------------------


def check_places(given: Path, out: Path) -> None:
    """Refuse an OUT that contains other files than a run's, or the corpus itself."""
    source, there = given.resolve(), out.resolve()
    if source == there or there in source.parents:
        raise UsageError(f"OUT {out} is or contains the corpus {given}: choose a folder beside it")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder: choose another OUT")
    if out.is_dir() and not (out / NAME).exists() and {entry.name for entry in out.iterdir()} - {WORK, LISTED}:
        raise UsageError(f"{out} exists, and is not the OUT of a corpus run: choose another OUT")


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Allow one run at a time in a folder. The lock ends with the process, however it ends."""
    place = out / WORK / "lock"
    place.parent.mkdir(exist_ok=True)
    with open(place, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{out} is being worked on by {holder(file)}: wait for it, or end it") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def holder(file: IO[str]) -> str:
    """Return who holds the lock."""
    file.seek(0)
    return file.read(200).strip() or "another run"


@contextlib.contextmanager
def writable(out: Path) -> Iterator[None]:
    """Create OUT; if it cannot be written to, or is removed meanwhile, say so with the next step."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except BrokenPipeError:  # the reader of standard output has closed it
        raise
    except (OSError, sqlite3.Error) as error:
        raise unwritable(out, error) from error
    except SampleError as error:
        if isinstance(error.__cause__, sqlite3.OperationalError):
            raise unwritable(out, error.__cause__) from error
        raise


def unwritable(out: Path, error: OSError | sqlite3.Error) -> PlaceError:
    """Say what is wrong with OUT, and the next step."""
    closed = isinstance(error, OSError) and error.errno in (*NO_SPACE, *NO_PERMISSION)  # it may never have been there
    if not out.is_dir() and not closed:
        return PlaceError(f"{out} was removed while the run went on: the same command begins anew")
    refused = None if closed else refusal(out)
    if not closed and refused is None:
        if isinstance(error, FileNotFoundError) and (out / NAME).exists():
            return PlaceError(f"{error.filename} was removed while the run went on: the same command goes on from here")
        if not isinstance(error, OSError) and not (out / NAME).exists():
            return PlaceError(f"{out / NAME} was removed while the run went on: begin anew in another OUT")
    cause = error if isinstance(error, OSError) or refused is None else refused
    said = (cause.strerror or str(cause)) if isinstance(cause, OSError) else str(cause)
    where = f" ({cause.filename})" if isinstance(cause, OSError) and cause.filename else ""
    return PlaceError(f"{out} cannot be written to: {said}{where}; once it can be, the same command goes on from here")


PROBE = 1 << 16
"""How many bytes are written to see whether a folder takes more: less may fit into what a full disk has left."""


def refusal(out: Path) -> OSError | None:
    """Return why a folder does not take a new file now; None if it does."""
    try:
        with tempfile.TemporaryFile(dir=out) as file:
            file.write(bytes(PROBE))
    except OSError as error:
        return error
    return None


# ----------------------------------------------------------------------------
# Put the results of samples into OUT, each in its own folder, by renames, without losing files of other samples.
# ----------------------------------------------------------------------------

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
