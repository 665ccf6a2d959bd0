"""The table of a report that sets the bytes that kernels ask for against the least that their calls can move.

The index knows how large the tensors of a program's calls are, and so which programs move most. What a program's code
asks for is counted of those few alone, in the files that they came from.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from backprint.errors import BackprintError
from backprint.extracting.nouns import Kernel
from backprint.extracting.programs.index import KernelIndex
from backprint.extracting.programs.read import kernel_again
from backprint.extracting.traffic import kernel_traffic
from backprint.report.nouns import Cell, Table, columns

MOST = 20
"""The programs of the table."""

LETTERS = 12
"""Of a hash."""


@dataclass(frozen=True, slots=True)
class CountedBytes:
    """The bytes of all recorded calls of a kernel, in its first configuration."""

    least: int | None = None
    asked: int | None = None
    note: str = ""
    """What is not known, or not exact."""


def byte_table(index: KernelIndex) -> Table:
    """Return the programs whose calls have the largest tensors, with what they ask for against the least."""
    query = (
        "select name, kernels.hash, found.uses, calls, bytes from kernels join (select hash, count(*) as uses, "
        "total(calls) as calls, total(bytes) as bytes from uses where bytes is not null group by hash "
        "order by bytes desc, 1 limit ?) as found on found.hash = kernels.hash order by bytes desc, 2"
    )
    every = sum(row[0] for row in index.rows("select total(bytes) from uses"))
    rows: list[tuple[Cell, ...]] = []
    for name, key, uses, calls, size in list(index.rows(query, (MOST,))):
        counted = counted_bytes(index, key)
        ratio = counted.asked / counted.least if counted.asked is not None and counted.least else None
        part = size / every if every else None
        rows.append((name, uses, calls, size, part, counted.least, counted.asked, ratio, counted.note, key[:LETTERS]))
    heads = "kernel:name kernels:count calls:count tensors_of_all_calls:size share:share least_of_one_use:size"
    heads += " asked_for:size times:times not_known hash:name"
    note = (
        "The least that the calls of one use can move: each tensor that a call reads or writes, once. Asked for is "
        "what the blocks of a Triton kernel load and store in its first configuration; caches answer a part of it."
    )
    return Table("Bytes", note, columns(heads), tuple(rows))


def counted_bytes(index: KernelIndex, key: str) -> CountedBytes:
    """Count the bytes of a program in the use that has most calls, read again from its file."""
    query = "select name, place from uses where hash = ? and calls > 0 order by calls desc, place limit 1"
    for name, place in index.rows(query, (key,)):
        kernel = kernel_again(place, name, key)
        return CountedBytes(note="its file has changed since") if kernel is None else bytes_of_calls(kernel)
    return CountedBytes(note="no call of it is recorded")


def bytes_of_calls(kernel: Kernel) -> CountedBytes:
    """Count what the recorded calls of a kernel ask for, and the least; equal calls are counted once."""
    least, asked, known = 0, 0, True
    notes: dict[str, None] = {}
    for call, times in Counter(kernel.calls).items():
        try:
            found = kernel_traffic(call, kernel)
        except BackprintError as error:
            return CountedBytes(note=str(error))
        least += times * found.least
        asked += times * (found.asked or 0)
        known &= found.asked is not None
        notes.update(dict.fromkeys(found.unknown))
        if known and not found.exact:
            notes["blocks were sampled"] = None
    return CountedBytes(least, asked if known else None, "; ".join(notes))
