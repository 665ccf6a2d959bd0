"""`kernels.jsonl`: a row for each kernel, and which of them are the same program.

    {"sample": "nets/mlp", "graph": "pair_0 forward", "target": "cuda:90", "name": "triton_poi_fused_gelu_0", ...}

The folder of each sample and target has the rows of its kernels. At the end of a run they are put together in one file,
OUT/kernels.jsonl, where `first` marks one row of each program. Whatever else somebody asks of the kernels is a line of
SQL, pandas or jq.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from backprint.common.files import from_plain, write_file
from backprint.errors import RefusedError
from backprint.tools.kernels.alone_file import kernel_bytes
from backprint.tools.kernels.nouns import Kernel

FILE = "kernels.jsonl"


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel of one graph."""

    sample: str
    graph: str
    """`pair_0 forward`."""
    direction: str
    target: str
    name: str
    """The compiler's name, which is no key: one name may stand for several programs."""
    language: str
    compiler: str
    hash: str
    """Equal for two kernels only if they are the same program."""
    structure: str
    """Equal for programs that differ in sizes and constants alone."""
    operators: tuple[str, ...]
    """The operators that it fuses."""
    launches: int
    """How often its graph calls it."""
    bytes: int
    """Of the tensors of all these calls."""
    file: str
    """The kernel's source, in the folder of `kernels.jsonl`."""
    first: bool = False
    """Whether this is the first row with its hash: the rows that are `first` are each program once."""


def kernel_row(kernel: Kernel, graph: str, file: str) -> KernelRow:
    """Return the row of a kernel of a graph, which has this title; `file` is the path of its source."""
    return KernelRow(
        sample=kernel.sample,
        graph=graph,
        direction=kernel.direction,
        target=kernel.target,
        name=kernel.name,
        language=kernel.language,
        compiler=kernel.compiler,
        hash=kernel.hash,
        structure=kernel.structure,
        operators=tuple(operator.operator for operator in kernel.operators),
        launches=len(kernel.calls),
        bytes=kernel_bytes(kernel) or 0,  # None without calls
        file=file,
    )


# ------------------------------------------------------------------ files


def write_rows(folder: Path, rows: Iterable[KernelRow]) -> None:
    """Write the `kernels.jsonl` of a folder, with `first` where a row is the first with its hash."""
    known: set[str] = set()
    lines = []
    for row in rows:
        lines.append(json.dumps(asdict(replace(row, first=row.hash not in known))).encode() + b"\n")
        known.add(row.hash)
    write_file(folder / FILE, lines)


def read_rows(folder: Path) -> Iterator[KernelRow]:
    """Yield the rows of the `kernels.jsonl` of a folder; refuse a line that is none."""
    for number, line in enumerate((folder / FILE).read_text("utf-8").splitlines(), 1):
        try:
            yield from_plain(KernelRow, json.loads(line))
        except (ValueError, RecursionError) as error:
            raise RefusedError(f"{folder / FILE}: line {number}: no row of a kernel: {error}") from error


def gather_rows(out: Path, samples: Iterable[str]) -> None:
    """Put the rows of a run's samples, which are folders of `out`, together in its own `kernels.jsonl`. Each sample has
    a folder with rows for each target; a row's file is from then on below `out`."""
    rows = (
        replace(row, sample=sample, file=f"{sample}/{row.file}")
        for sample in samples
        for file in sorted((out / sample).glob(f"*/{FILE}"))
        for row in read_rows(file.parent)
    )
    write_rows(out, rows)


# ------------------------------------------------------------------ which are the same


class _Hashed(Protocol):
    """A Kernel, or a row of one."""

    @property
    def hash(self) -> str: ...

    @property
    def structure(self) -> str: ...


H = TypeVar("H", bound=_Hashed)


def group_by_hash(kernels: Iterable[H], ignore_sizes: bool = False) -> dict[str, list[H]]:
    """Return hash -> the kernels that have it; of programs, or with `ignore_sizes` of structures."""
    groups: dict[str, list[H]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.structure if ignore_sizes else kernel.hash].append(kernel)
    return dict(groups)


def summary_lines(rows: Sequence[KernelRow]) -> Iterator[str]:
    """Yield how many kernels, programs and structures there are, and how the directions share the programs."""
    programs = group_by_hash(rows)
    samples = len({row.sample for row in rows})
    uses = f" ({len(rows) / len(programs):.2f} uses each)" if programs else ""
    structures = len(group_by_hash(rows, ignore_sizes=True))
    yield (
        f"{len(rows):,} kernels in {samples:,} samples: {len(programs):,} programs{uses}, {structures:,} structures "
        "apart from sizes and constants"
    )
    directions = [{row.direction for row in group} for group in programs.values()]
    if rows:
        forwards, backwards = (sum(names == {side} for names in directions) for side in ("forward", "backward"))
        both = sum(len(names) > 1 for names in directions)
        yield f"programs of forwards alone {forwards:,}, of backwards alone {backwards:,}, of both {both:,}"
