"""Read the exact data of a sample: as bytes, without torch, or as tensors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from backprint.common.files import open_regular
from backprint.errors import SampleError

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_HEADER = 100_000_000
"""The most bytes of a header, as the safetensors format limits it."""


def kept_bytes(path: Path, name: str) -> bytes | None:
    """Return the data of one tensor in a safetensors file; None if the file does not have it. SampleError if the file
    is not as the format has it: nothing is read beyond its end, and no header that is too long."""
    try:
        with open_regular(path) as file:
            # The format: the length of the header in 8 bytes, the header as JSON, the data.
            size = int.from_bytes(file.read(8), "little")
            if size > LONGEST_HEADER:
                raise ValueError(f"a header of {size:,} bytes")
            entry = json.loads(file.read(size)).get(name)
            if entry is None:
                return None
            room = os.fstat(file.fileno()).st_size - 8 - size
            match entry:
                case {"data_offsets": [int(start), int(end)]} if 0 <= start <= end <= room:
                    file.seek(8 + size + start)
                    return file.read(end - start)
            raise ValueError(f"a tensor without its place in {room:,} bytes of data: {entry!r:.80}")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise SampleError(f"{path}: forged or damaged: {error}") from None


def plain_file(path: Path) -> Path:
    """Return the path if it is a regular file and not a link: a sample's files are in its own folder."""
    open_regular(path).close()
    return path


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file of a sample, by name; empty if there is no file."""
    # A dangling link is no missing file: it is refused below.
    if not path.exists() and not path.is_symlink():
        return {}
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(str(plain_file(path)))
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, MemoryError, OverflowError) as error:
        raise SampleError(f"{path}: forged or damaged: {error}") from None
