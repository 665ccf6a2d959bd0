"""Corpora of samples, for Python and the command line. Nothing here imports torch; worker processes do.

This module is the face: `run`, `dedup` and `export`.

- `duplicates`: samples, and parts of samples, that are the same program. `report`: the report of a run.
- `graphs_file`: the graphs of a run as one Parquet file with a card.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from backprint.common.text import check_choice, check_sequence
from backprint.errors import UsageError
from backprint.tools.jobs import run_corpus
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import Verb

if TYPE_CHECKING:
    from backprint.tools.corpus.duplicates import Dedup, SharedParts
    from backprint.tools.corpus.graphs_file import Exported

__all__ = ["dedup", "export", "run"]

run = run_corpus

COMPARED = ("graph", "part")
"""What `dedup` compares."""


@overload
def dedup(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    by: Literal["graph"] = "graph",
    ignore_sizes: bool = False,
    files: str = "link",
) -> Dedup: ...


@overload
def dedup(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    by: Literal["part"],
    ignore_sizes: bool = False,
    **run: Any,
) -> SharedParts: ...


def dedup(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    by: str = "graph",
    ignore_sizes: bool = False,
    files: str = "link",
    **run: Any,
) -> Dedup | SharedParts:
    """Keep one of each group of samples that are the same program, and list the others, as `backprint corpus dedup`
    does.

    `source` is the folder of a corpus run, or any folder of samples. With `ignore_sizes`, graphs that differ only in
    sizes are the same. `files` says how the kept samples are written to `out`: as hard links (`"link"`), copies
    (`"copy"`), or not (`"none"`). `kept.txt` and `duplicates.json` are always written.

    With `by="part"` nothing is kept: SharedParts has each different layer, and what stands between layers, once, with
    its hash, and how often and in which samples it is there. It is a run, with the options of `run_corpus`, such as
    `jobs`; `out/parts.json` is always written.
    """
    check_compared(by)
    from backprint.tools.corpus.duplicates import dedup as dedup_samples

    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"source is a {type(source).__name__}, not a folder; kernels are grouped by bp.kernels.dedup")
    check_choice("files", files)
    if by == "part":
        if files != "link":
            raise UsageError(f"files={files!r} is for by='graph': with by='part' no samples are kept")
        return _parts_of_corpus(Path(source), Path(out), ignore_sizes, run)
    if run:
        raise UsageError(f"{min(run)}= is for by='part': samples are compared one after the other, in this process")
    return dedup_samples(Path(source), Path(out), "shape" if ignore_sizes else "exact", files)


def check_compared(by: object) -> None:
    """Raise for a word that is none of those that `dedup` compares by."""
    if by not in COMPARED:
        raise UsageError(f"by={by!r} is not one of {', '.join(map(repr, COMPARED))}")


def _parts_of_corpus(source: Path, out: Path, ignore_sizes: bool, run: Mapping[str, Any]) -> SharedParts:
    """Note the parts of every sample in a run, and return them together."""
    from backprint.tools.corpus.duplicates import all_shared_parts

    run_corpus("parts", source, out, sizes=not ignore_sizes, **run)
    return all_shared_parts(source, out, "shape" if ignore_sizes else "exact")


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    where: Sequence[str] = (),
    license: str | None = None,
    overwrite: bool = False,
    watch: Callable[[str], None] | None = None,
) -> Exported:
    """Write the graphs of a corpus run to `out/graphs.parquet`, with the card `out/README.md`, as `backprint corpus
    export` does.

    A row is one graph, which `bp.parse(row["text"])` returns. `where` are conditions on the samples, such as
    `"seconds<10"`; `license` is the licence of the programs, if it is known. `watch` is called with each sample's turn.
    """
    from backprint.tools.corpus.graphs_file import export as export_graphs

    check_sequence("where", where)
    return export_graphs(Path(run), Path(out), tuple(where), license, overwrite, watch or (lambda what: None))


# ------------------------------------------------------------------ the verb that notes the parts of a sample


def note(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Write the parts of a sample."""
    from backprint.tools.corpus.duplicates import note_parts

    return note_parts(task, options, staging)


def load(options: Mapping[str, Any]) -> dict[str, str]:
    """Load what reads graphs; return versions."""
    from backprint.tools.corpus.duplicates import without_torch

    return without_torch(options)


CORPUS_VERB = Verb(note, load, {"sizes": True}, kinds=("backprint",))
