"""Read a stranger's file: one open, one look at what was opened, and no more bytes than are allowed.

A path that is looked at and then opened may be another file by then: larger, a pipe, a link to elsewhere.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from backprint.errors import BackprintError, SampleError
from backprint.plain import check_values

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""Opened so, a pipe does not wait for a writer."""


def open_regular(
    path: str | os.PathLike[str], links: bool = False, error: type[BackprintError] = SampleError
) -> BinaryIO:
    """Open a regular file for reading; a link to one only with `links`. Anything else raises `error`."""
    refuse_links = 0 if links else getattr(os, "O_NOFOLLOW", 0)
    if not links and not refuse_links and Path(path).is_symlink():
        raise error(f"{path}: is a symbolic link; {OWN}")
    try:
        handle = os.open(path, _FLAGS | refuse_links)
    except OSError as cause:
        if cause.errno in (errno.ELOOP, errno.EMLINK) and not links:
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

OWN = "a sample's files are its own: copy what it leads to (cp -RL)"


def read_bytes(
    path: str | os.PathLike[str], most: int, links: bool = False, error: type[BackprintError] = SampleError
) -> bytes:
    """Return the content of a regular file of at most `most` bytes."""
    with open_regular(path, links, error) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise error(f"{path}: {size:,} bytes; at most {most:,} are read")
        try:
            content = file.read(most + 1)
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
    """Return the lines of such a file, of which there may be `lines`; `errors` is that of `bytes.decode`."""
    content = read_bytes(path, most, links, error).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    count = content.count(b"\n")
    if count > lines:  # an empty line takes a byte of a file, and more of memory
        raise error(f"{path}: {count:,} lines; at most {lines:,} are read")
    return content.decode("utf-8", errors).split("\n")


def read_text(
    path: str | os.PathLike[str], most: int, links: bool = False, error: type[BackprintError] = SampleError
) -> str:
    """Return the text of such a file, which is UTF-8; line ends are those of Python."""
    try:
        text = read_bytes(path, most, links, error).decode("utf-8")
    except UnicodeDecodeError as cause:
        raise error(f"{path}: cannot be read: {cause}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_json(
    path: str | os.PathLike[str], most: int = MOST_JSON, links: bool = False, error: type[BackprintError] = SampleError
) -> Any:
    """Return the value of such a file of JSON."""
    text = read_text(path, most, links, error)
    try:
        check_values(text)
        return json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise error(f"{path}: cannot be read as JSON: {cause}") from None
