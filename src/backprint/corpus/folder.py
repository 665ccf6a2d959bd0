"""OUT, the folder of a run: whether it may be written to, by one run at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from backprint.corpus.ledger import NAME
from backprint.corpus.places import WORK
from backprint.corpus.several import LISTED
from backprint.errors import CLOSED, FULL, PlaceError, SampleError, UsageError


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
    closed = isinstance(error, OSError) and error.errno in (*FULL, *CLOSED)  # it may never have been there
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
