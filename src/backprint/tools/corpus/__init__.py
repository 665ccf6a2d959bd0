"""Corpora of samples, for Python and the command line. Nothing here imports torch; worker processes do.

This module is the face: `run`, `merge`, `dedup` and `export`.

- `duplicates`: samples that are the same program. `report`: the report of a run.
- `graphs_file`: the graphs of a run as one Parquet file with a card.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backprint.common.text import check_sequence
from backprint.errors import UsageError
from backprint.tools.jobs import run_corpus

if TYPE_CHECKING:
    from backprint.common.words import FilesWord
    from backprint.tools.corpus.duplicates import Dedup
    from backprint.tools.corpus.graphs_file import Exported
    from backprint.tools.jobs.merge import MergedRun

__all__ = ["dedup", "export", "merge", "run"]

run = run_corpus


def merge(out: str | os.PathLike[str], shards: Sequence[str | os.PathLike[str]], *, copy: bool = False) -> MergedRun:
    """Make one run of the runs of shards (`run(..., shard="1/3")`), as `backprint corpus merge` does.

    Results are moved to `out`, or copied with `copy`, and one ledger has all rows. A sample that is in two shards is an
    error, and nothing is written then. If it is ended at any moment, the same call continues.
    """
    from backprint.tools.jobs.merge import merge_runs

    check_sequence("shards", shards)
    if not shards:
        raise UsageError("merge needs the OUT of each shard: write shards=['out.1', 'out.2']")
    return merge_runs(Path(out), tuple(map(Path, shards)), copy)


def dedup(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    ignore_sizes: bool = False,
    files: FilesWord = "link",
) -> Dedup:
    """Keep one of each group of samples that are the same program, and list the others, as `backprint corpus dedup`
    does.

    `source` is the folder of a corpus run, or any folder of samples. With `ignore_sizes`, graphs that differ only in
    sizes are the same. `files` says how the kept samples are written to `out`: as hard links (`"link"`), copies
    (`"copy"`), or not (`"none"`). `kept.txt` and `duplicates.json` are always written.
    """
    from backprint.tools.corpus.duplicates import dedup as dedup_samples

    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"source is a {type(source).__name__}, not a folder; kernels are grouped by bp.kernels.dedup")
    return dedup_samples(Path(source), Path(out), "shape" if ignore_sizes else "exact", files)


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    where: Sequence[str] = (),
    license: str | None = None,
    overwrite: bool = False,
    watch: Callable[[str], None] | None = None,
) -> Exported:
    """Write the graphs of a corpus run to `out/graphs.parquet`, with the card `out/README.md`, as `backprint corpus run
    export` does.

    A row is one graph, which `bp.parse(row["text"])` returns. `where` are SQL conditions on the rows of samples,
    such as `"seconds < 10"`; `license` is the licence of the programs, if it is known. `watch` is called with each
    sample's turn.
    """
    from backprint.tools.corpus.graphs_file import export as export_graphs

    check_sequence("where", where)
    return export_graphs(Path(run), Path(out), tuple(where), license, overwrite, watch or (lambda what: None))
