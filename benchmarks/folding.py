"""Folding: how many lines graphs have with their repeated steps as loops, and whether they come back from that.

    python benchmarks/folding.py FOLDER... [--rows]

Every graph of every sample below the folders (of `compilers.py`, `architectures.py`, `corpus run backward`) is
folded and unfolded, and its hash is compared; whatever is not equal is printed, and ends the run with exit code 1.
`--rows` prints a line for each graph. Seconds are those of the processor, the lesser of two runs.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import backprint as bp
from backprint.errors import BackprintError
from backprint.graph.folding.fold import folded
from backprint.graph.folding.nouns import FoldedGraph
from backprint.graph.nouns import Graph


@dataclass(frozen=True, slots=True)
class FoldRow:
    """What became of one graph."""

    name: str
    steps: int
    flat: int
    short: int
    seconds: float
    wrong: str = ""


def rows_of_folder(folder: Path) -> Iterator[FoldRow]:
    """Yield a row for each graph of each sample of a folder."""
    for place in sorted(folder.glob("**/capture.json")):
        try:
            capture = bp.load(place.parent)
        except BackprintError as error:
            print(f"{place.parent}: not loaded: {error}")
            continue
        for pair in capture.pairs:
            for direction, graph in (("forward", pair.forward), ("backward", pair.backward)):
                if graph is not None:
                    yield row_of_graph(f"{place.parent.relative_to(folder)} {pair.name} {direction}", graph)


def row_of_graph(name: str, graph: Graph) -> FoldRow:
    """Fold a graph; say what does not come back."""
    flat = graph.code.count("\n")
    try:
        fold, seconds = min((timed_fold(graph) for _ in range(2)), key=lambda run: run[1])
        text = str(fold)
        wrong = "" if fold.unfold().hash() == graph.hash() else "it unfolds to another hash"
    except BackprintError as error:
        return FoldRow(name, len(graph.steps), flat, flat, 0.0, str(error))
    return FoldRow(name, len(graph.steps), flat, text.count("\n"), seconds, wrong)


def timed_fold(graph: Graph) -> tuple[FoldedGraph, float]:
    """Fold a graph, which compares what it unfolds to."""
    start = time.process_time()
    return folded(graph), time.process_time() - start


def print_folder(folder: Path, rows: list[FoldRow]) -> None:
    """Print a folder's line."""
    big = [row for row in rows if row.steps >= 100]
    shorter = [row for row in rows if 3 * row.short < 2 * row.flat]
    slowest = max((row.seconds / row.steps * 1e3 for row in big), default=0.0)
    steps, seconds = sum(row.steps for row in rows), sum(row.seconds for row in rows)
    print(
        f"| {folder.name} | {len(rows)} | {sum(not row.wrong for row in rows)} | {steps:,} "
        f"| {sum(row.flat for row in rows):,} | {sum(row.short for row in rows):,} "
        f"| {len(shorter)}: {sum(row.flat for row in shorter):,} → {sum(row.short for row in shorter):,} "
        f"| {seconds / max(steps, 1) * 1e3:.3f} | {slowest:.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rows", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {folder: list(rows_of_folder(folder)) for folder in given.folders}
    print(
        "| samples | graphs | come back | steps | lines | folded | of those a third shorter | ms a step "
        "| slowest of 100 steps or more |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for folder, rows in found.items():
        print_folder(folder, rows)
    every = [row for rows in found.values() for row in rows]
    for row in every if given.rows else ():
        print(f"{row.name}: {row.steps} steps, {row.flat} → {row.short} lines")
    wrong = [row for row in every if row.wrong]
    for row in wrong:
        print(f"WRONG {row.name}: {row.wrong}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
