"""The normal form of a kernel, and its two hashes: the same program, and the same structure.

Sources are parsed or split into tokens and never run. A source that is too large, too deep or not text is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from backprint.errors import RefusedError, UsageError
from backprint.tools.kernels.normal_cpp import normal_cpp
from backprint.tools.kernels.normal_triton import normal_triton
from backprint.tools.kernels.nouns import Kernel, NormalForm

LARGEST = 4 << 20
"""The characters that a source may have."""

FORMS: dict[str, Callable[[Kernel], NormalForm]] = {"triton": normal_triton, "cpp": normal_cpp}
"""The function that normalizes each language."""


@lru_cache(maxsize=8)  # who reads a kernel asks for its hash, and so does the index
def normal_form(kernel: Kernel) -> NormalForm:
    """Return the normal form of a kernel; a source that cannot be read raises RefusedError."""
    if kernel.language not in FORMS:
        raise UsageError(f"{kernel.language!r} is no language of kernels; known are {', '.join(FORMS)}")
    called = kernel.name or kernel.place or "a kernel"
    if len(kernel.source) > LARGEST:
        raise RefusedError(f"{called}: a source of {len(kernel.source)} characters; the limit is {LARGEST}")
    try:
        return FORMS[kernel.language](kernel)
    except (RecursionError, MemoryError) as error:
        raise RefusedError(f"{called}: nested too deeply to be read ({type(error).__name__})") from error
    except ValueError as error:  # an integer of more digits than Python writes
        raise RefusedError(f"{called}: {error}") from error


def kernel_hash(kernel: Kernel) -> str:
    """Return the hash that a kernel shares with the same program under any other name."""
    return normal_form(kernel).kernel_hash


def structure_hash(kernel: Kernel) -> str:
    """Return the hash that a kernel shares with programs that differ in sizes and constants only."""
    return normal_form(kernel).structure_hash
