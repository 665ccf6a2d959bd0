"""The files of samples in OUT, the folder of a run: who may write there, and how results are put in place.

One run at a time writes to OUT. The result of a sample is a complete folder, which is renamed into place, so that a
reader sees all of it or nothing; files of other samples stay.

The folder of a sample is OUT/ID, and an id may have slashes, so that samples may lie in folders of other samples. A
tree is a sample in GraphNet's layout, in one of three folders beside the samples (`task.TREE_NAMES`), with subgraphs in
folders `subgraph_0` below it. A folder is staged when it has been written elsewhere, and is to be put in place.
"""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from backprint.errors import NO_PERMISSION, NO_SPACE, PlaceError, SampleError, UsageError
from backprint.tools.jobs.find import LISTED
from backprint.tools.jobs.ledger import NAME
from backprint.tools.jobs.pool import remove_folder
from backprint.tools.jobs.task import TREE_FILES, TREE_NAMES

WORK = ".work"
"""The folder below OUT with the lock, logs, and work in progress."""

RESULT = "result.json"
"""The file with a sample's row, which makes its folder in OUT complete."""

MARK = "graph_net.json"
"""The file that makes a tree's folder a sample: it is put in place last."""

# ------------------------------------------------------------------ OUT: checks, the lock, and errors of writing


def check_places(corpus: Path, out: Path) -> None:
    """Refuse a corpus that is no folder, and an OUT that contains other files than a run's, or the corpus itself."""
    if not corpus.is_dir():
        raise UsageError(f"{corpus}: {'not a folder' if corpus.exists() else 'no such folder'}")
    source, target = corpus.resolve(), out.resolve()
    if source == target or target in source.parents:
        raise UsageError(f"OUT {out} is or contains the corpus {corpus}: choose a folder beside it")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder: choose another OUT")
    if out.is_dir() and not (out / NAME).exists() and {entry.name for entry in out.iterdir()} - {WORK, LISTED}:
        raise UsageError(f"{out} exists, and is not the OUT of a corpus run: choose another OUT")


@contextlib.contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Allow one run at a time in a folder; UsageError says who is at work there. The lock ends with the process,
    however it ends."""
    place = out / WORK / "lock"
    place.parent.mkdir(exist_ok=True)
    with open(place, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{out} is being worked on by {_lock_holder(file)}: wait for it, or end it") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _lock_holder(file: IO[str]) -> str:
    """Return the text that the holder of the lock wrote into it."""
    file.seek(0)
    return file.read(200).strip() or "another run"


@contextlib.contextmanager
def create_writable(out: Path) -> Iterator[None]:
    """Create OUT; raise PlaceError with the next step if it cannot be written to, or is removed during the block."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except BrokenPipeError:  # the reader of standard output has closed it
        raise
    except (OSError, sqlite3.Error) as error:
        raise _place_error(out, error) from error
    except SampleError as error:  # by `ledger.naming_ledger`, for an error of SQLite
        if isinstance(error.__cause__, sqlite3.OperationalError):
            raise _place_error(out, error.__cause__) from error
        raise


def _place_error(out: Path, error: OSError | sqlite3.Error) -> PlaceError:
    """Return the error that says what is wrong with OUT, and the next step: it is removed, a file in it is, its ledger
    is, or it cannot be written to. Which one is found by looking, because one cause has many errors."""
    # No space or no permission: OUT may never have been there, so it was not removed.
    is_unwritable = isinstance(error, OSError) and error.errno in (*NO_SPACE, *NO_PERMISSION)
    if not out.is_dir() and not is_unwritable:
        return PlaceError(f"{out} was removed while the run went on: the same command begins anew")
    error_now = None if is_unwritable else _write_error(out)
    if not is_unwritable and error_now is None:
        if isinstance(error, FileNotFoundError) and (out / NAME).exists():
            return PlaceError(f"{error.filename} was removed while the run went on: the same command goes on from here")
        if not isinstance(error, OSError) and not (out / NAME).exists():
            return PlaceError(f"{out / NAME} was removed while the run went on: begin anew in another OUT")
    cause = error if isinstance(error, OSError) or error_now is None else error_now
    reason = (cause.strerror or str(cause)) if isinstance(cause, OSError) else str(cause)
    file = f" ({cause.filename})" if isinstance(cause, OSError) and cause.filename else ""
    return PlaceError(f"{out} cannot be written to: {reason}{file}; once it can be, the same command goes on from here")


PROBE = 1 << 16
"""The bytes of a file that tests whether a disk is full; a smaller file may still fit on a full disk."""


def _write_error(out: Path) -> OSError | None:
    """Try to write a file into a folder; return the error, None if it succeeds. The file has no name, and is gone."""
    try:
        with tempfile.TemporaryFile(dir=out) as file:
            file.write(bytes(PROBE))
    except OSError as error:
        return error
    return None


# ------------------------------------------------------------------ results, put in place by renames


def place_folder(staged: Path | None, place: Path, out: Path) -> None:
    """Put a finished folder in place by one rename; nothing of an older result stays. Without one (`staged` is None),
    an older result is only removed.

    If the place has other samples, or their trees, in it, the files are moved one by one, and `result.json`, which
    makes them a sample, last.
    """
    if (place / RESULT).is_file():
        (place / RESULT).unlink()  # first, so that an old result which is half removed is no sample
        # A sample in a folder of that name, where the trees of other samples go.
        below_tree = place.relative_to(out).parts[:1] in {(name,) for name in TREE_NAMES}
        for entry in list(place.iterdir()):
            if not _belongs_to_others(entry, below_tree):
                remove_folder(entry)
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
        _merge_folders(staged, place, RESULT)


def _belongs_to_others(entry: Path, below_tree: bool) -> bool:
    """Whether an entry in a sample's folder belongs to other samples: their folders, and, if the folder is `below_tree`
    (it is in one of the folders of trees), the files and folders of their trees. A folder `pair_0` is the sample's."""
    if not entry.is_dir():
        return below_tree and entry.name in TREE_FILES
    if any(path.is_file() for path in entry.rglob(RESULT)):
        return True
    return below_tree and not re.fullmatch(r"pair_\d+", entry.name) and any(entry.rglob(MARK))


def _merge_folders(staged: Path, place: Path, last: str) -> None:
    """Move the content of a folder into another, the file named `last` last. Folders that contain samples are
    merged."""
    place.mkdir(parents=True, exist_ok=True)
    for entry in sorted(staged.iterdir(), key=lambda entry: entry.name == last):
        target = place / entry.name
        if entry.is_dir() and target.is_dir() and any(target.rglob(RESULT)):
            _merge_folders(entry, target, last)
            continue
        remove_folder(target)
        os.rename(entry, target)


def place_trees(trees: Path, out: Path, id: str, is_sample: Callable[[str], bool]) -> None:
    """Put a sample's trees in place beside the samples, in the place of its older ones; `is_sample` says whether an id
    is a sample's. Raise FileExistsError if a subgraph's place is that of a sample."""
    if not trees.is_dir():
        return
    for name in TREE_NAMES:
        _remove_tree(out / name / tree_name(id), lambda below: is_sample(f"{id}/{below}"))
    for mark in sorted(trees.rglob(MARK)):
        place = out / mark.parent.relative_to(trees)
        if place.name.startswith("subgraph_") and is_sample(f"{id}/{place.name}"):
            raise FileExistsError(errno.EEXIST, f"{place} is the place of the sample {id}/{place.name}")
        _merge_folders(mark.parent, place, MARK)
    remove_folder(trees)


def _remove_tree(place: Path, known: Callable[[str], bool]) -> None:
    """Remove a sample's files from a tree: its own files and subgraphs, but not those of samples below it. `known` says
    of the name of a folder whether it is such a sample's."""
    for name in (MARK, *TREE_FILES):  # the mark first: without it, it is no longer whole
        if (place / name).is_file():
            (place / name).unlink()
    for old in place.glob("subgraph_*"):
        if not known(old.name):
            _remove_tree(old, known)
            with contextlib.suppress(OSError):  # others are below it
                old.rmdir()


def write_log(out: Path, id: str, text: str) -> None:
    """Write the last output of a failed sample to its log."""
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


# ------------------------------------------------------------------ the files of one sample


def own_files(folder: Path) -> Iterator[str]:
    """Yield the paths of a sample's own files: those beside its main file, and those of its pairs. Links are left
    out."""
    for here, folders, names in os.walk(folder):
        if here == os.fspath(folder):
            folders[:] = [name for name in folders if re.fullmatch(r"pair_\d+", name)]
        folders.sort()
        for path in (os.path.join(here, name) for name in names):
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield os.path.relpath(path, folder)
