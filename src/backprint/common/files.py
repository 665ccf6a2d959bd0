"""Files: written whole or not at all, and read as if a stranger had written them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from backprint.common.text import check_values
from backprint.errors import BackprintError, PlaceError, SampleError, UsageError

# ---- Writing: under another name, put in place by one rename


@contextlib.contextmanager
def whole_file(place: Path) -> Iterator[BinaryIO]:
    """Open a file that appears in its place, with the folders above it, when the block ends without an error; else
    nothing is left of it. PlaceError if it cannot be written."""
    if "\0" in str(place):
        raise UsageError(f"{str(place)!r} is not the name of a file: it has a NUL character")
    part = None  # the file under its other name, while it is there
    new_folders = [folder for folder in place.parents if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{place.name[:80]}.", suffix=".part", dir=place.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(part, 0o644)  # `mkstemp` makes it readable by its owner alone
        os.replace(part, place)
        part, new_folders = None, []
    except OSError as error:
        raise PlaceError(f"{place} could not be written: {error.strerror or error}") from error
    finally:
        if part is not None:
            os.unlink(part)
        for folder in new_folders:  # the innermost first
            with contextlib.suppress(OSError):  # another process has put a file there
                folder.rmdir()


def write_file(place: Path, pieces: Iterable[bytes]) -> Path:
    """Write a file to its place; return the place."""
    with whole_file(place) as file:
        file.writelines(pieces)
    return place


# ---- Reading a stranger's file: one open, one look at what was opened, and no more bytes than are allowed
# A path that is looked at and then opened may be another file by then: larger, a pipe, a link to elsewhere. All
# functions here take the most bytes that are read, whether a symbolic link is followed (`links`), and the class of the
# error that they raise.

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""Opened so, a pipe does not wait for a writer."""


def open_regular(
    path: str | os.PathLike[str], links: bool = False, error: type[BackprintError] = SampleError
) -> BinaryIO:
    """Open a regular file for reading; a symbolic link to one only with `links`. Anything else raises `error`."""
    refuse_links = 0 if links else getattr(os, "O_NOFOLLOW", 0)  # a flag of `open`; 0 where the system has none
    if not links and not refuse_links and Path(path).is_symlink():
        raise error(f"{path}: is a symbolic link; {OWN}")
    try:
        handle = os.open(path, _FLAGS | refuse_links)
    except OSError as cause:
        if cause.errno in (errno.ELOOP, errno.EMLINK) and not links:  # from O_NOFOLLOW; EMLINK on FreeBSD
            raise error(f"{path}: is a symbolic link; {OWN}") from None
        if cause.errno == errno.ENXIO:  # a socket
            raise error(f"{path}: is not a regular file") from None
        raise error(f"{path}: cannot be read: {cause.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise error(f"{path}: is not a regular file")
    return os.fdopen(handle, "rb")


MOST_JSON = 64 << 20
"""The bytes of a file of JSON that a run keeps for each sample, and of one of the run as a whole."""

# How the message about a symbolic link ends.
OWN = "a sample's files are its own: copy what it leads to (cp -RL)"


def read_bytes(
    path: str | os.PathLike[str], most: int, links: bool = False, error: type[BackprintError] = SampleError
) -> bytes:
    """Return the content of a regular file of at most `most` bytes; `links` and `error` are as in `open_regular`."""
    with open_regular(path, links, error) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise error(f"{path}: {size:,} bytes; at most {most:,} are read")
        try:
            content = file.read(most + 1)  # it may have grown since its size was read
        except OSError as cause:
            raise error(f"{path}: cannot be read: {cause.strerror}") from None
    if len(content) > most:
        raise error(f"{path}: more than {most:,} bytes; at most {most:,} are read")
    return content


def read_lines(
    path: str | os.PathLike[str],
    most: int,
    lines: int,
    errors: str,
    links: bool = False,
    error: type[BackprintError] = SampleError,
) -> list[str]:
    """Return the lines of a regular file, which is read as `read_bytes` does; there may be `lines` of them. `errors` is
    the argument of `bytes.decode`."""
    content = read_bytes(path, most, links, error).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    count = content.count(b"\n")
    if count > lines:  # an empty line takes a byte of a file, and more of memory
        raise error(f"{path}: {count:,} lines; at most {lines:,} are read")
    return content.decode("utf-8", errors).split("\n")


def read_text(
    path: str | os.PathLike[str], most: int, links: bool = False, error: type[BackprintError] = SampleError
) -> str:
    """Return the text of a regular file as `read_bytes` does. It is UTF-8, and its line ends become those of Python."""
    try:
        text = read_bytes(path, most, links, error).decode("utf-8")
    except UnicodeDecodeError as cause:
        raise error(f"{path}: cannot be read: {cause}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_json(
    path: str | os.PathLike[str], most: int = MOST_JSON, links: bool = False, error: type[BackprintError] = SampleError
) -> Any:
    """Return the value of a file of JSON, which is read as `read_bytes` does; refuse one of too many values."""
    text = read_text(path, most, links, error)
    try:
        check_values(text)
        return json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise error(f"{path}: cannot be read as JSON: {cause}") from None


# ---- Dataclasses from plain values of a stranger: every field has its declared type, or an error

T = TypeVar("T")


def from_plain(kind: type[T], value: Any, where: str = "it") -> T:
    """Return the dataclass that a JSON object describes; raise ValueError that names the first value that is wrong."""
    return typing.cast(T, _converted(kind, value, where))


def _converted(kind: Any, value: Any, where: str) -> Any:
    """Return a value as the declared type `kind`; lists become tuples, objects become dataclasses. `where` is the path
    of the value, for messages."""
    if is_dataclass(kind):
        return filled(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))  # a union is `T | None` here
        return None if value is None else _converted(inner, value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise wrong(kind, value, where)
        repeated = len(arguments) == 2 and arguments[1] is Ellipsis  # `tuple[T, ...]`
        members = [arguments[0]] * len(value) if repeated else arguments
        if len(members) != len(value):
            raise wrong(kind, value, where)
        return tuple(
            _converted(member, item, f"{where}[{index}]")
            for index, (member, item) in enumerate(zip(members, value, strict=True))
        )
    if kind is float and type(value) is int:  # as JSON has a float without a fraction
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{where} is larger than a number of type float") from None
    if type(value) is not kind:
        raise wrong(kind, value, where)
    return value


def filled(kind: Any, value: Any, where: str) -> Any:
    """Return a dataclass of an object that has its fields, and no others; a field with a default may be missing.
    ValueError names the place of what is wrong, which begins with `where`."""
    if not isinstance(value, Mapping):
        raise wrong(kind, value, where)
    declared = _declared_fields(kind)
    for name in value:
        if name not in declared:
            raise ValueError(f"{where} has {str(name)[:40]!r}, which is not one of {', '.join(declared)}")
    if missing := [name for name, (_, required) in declared.items() if required and name not in value]:
        raise ValueError(f"{where} has no {missing[0]!r}")
    return kind(**{name: _converted(declared[name][0], item, f"{where}.{name}") for name, item in value.items()})


def wrong(kind: Any, value: Any, where: str) -> ValueError:
    """Return the error of a value of another type than the declared one."""
    name = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    return ValueError(f"{where} is of type {type(value).__name__}, and must be {name}")


@cache
def _declared_fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return, for each field of a dataclass, its declared type and whether a value is required."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: (hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    }
