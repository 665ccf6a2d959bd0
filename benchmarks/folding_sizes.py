"""Samples with loops and without: bytes on disk, and seconds to load them, to show them and to compare them.

    python benchmarks/folding_sizes.py SAMPLE...

Each sample is written twice, once flat and once as `save` writes it. Both are then read in turns: loaded with every
graph; loaded and hashed, as `corpus dedup` does; shown, as `backprint show` does. Seconds are those of the processor,
the fewest of five times. A sample whose graphs are not equal, or have other hashes, ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

import backprint as bp
from backprint.cli import main as backprint
from backprint.graph.folding.expand import is_folded
from backprint.graph.nouns import Graph

TIMES = 5


def graphs_of(sample: Path) -> list[Graph]:
    """Load a sample with every graph."""
    pairs = bp.load(sample).pairs
    return [graph for pair in pairs for graph in (pair.forward, pair.backward) if graph is not None]


def hashes_of(sample: Path) -> list[str]:
    """Load a sample, and return the hash of every graph."""
    return [graph.hash() for graph in graphs_of(sample)]


def shown(sample: Path) -> str:
    """Return what `backprint show` prints."""
    done = CliRunner().invoke(backprint, ["show", str(sample)])
    assert done.exit_code == 0, done.output
    return done.output


def fewest_seconds(doing: Callable[[Path], object], samples: tuple[Path, Path]) -> tuple[float, float]:
    """Return the fewest seconds that each of two samples takes, which are tried in turns."""
    best = [float("inf")] * 2
    for _ in range(TIMES):
        for place, sample in enumerate(samples):
            start = time.process_time()
            doing(sample)
            best[place] = min(best[place], time.process_time() - start)
    return best[0], best[1]


def bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def row_of_sample(sample: Path, work: Path) -> str:
    """Write a sample twice, compare both, and return its row."""
    capture = bp.load(sample)
    flat = capture.save(work / "flat", power="none", flat=True)
    start = time.process_time()
    short = capture.save(work / "short", power="none")
    saving = time.process_time() - start
    if graphs_of(flat) != graphs_of(short) or hashes_of(flat) != hashes_of(short):
        raise SystemExit(f"{sample}: its graphs are others with loops than flat")
    texts = sorted(short.glob("pair_*/*/model.py"))
    loops = sum(is_folded(path.read_text()) for path in texts)
    cells = [sample.name, f"{loops} of {len(texts)}"]
    cells += [f"{bytes_below(flat):,} → {bytes_below(short):,}", f"{texts_of(flat):,} → {texts_of(short):,}"]
    for doing in (graphs_of, hashes_of, shown):
        before, after = fewest_seconds(doing, (flat, short))
        cells.append(f"{before:.3f} → {after:.3f}")
    return f"| {' | '.join(cells)} | {saving:.2f} |"


def texts_of(sample: Path) -> int:
    """Return the bytes of a sample's graphs."""
    return sum(path.stat().st_size for path in sample.glob("pair_*/*/model.py"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("samples", nargs="+", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        bp.load(given.samples[0]).save(Path(folder) / "first", power="none")  # which imports what save needs
    print("| sample | graphs with loops | bytes, flat → stored | of `model.py` | load | and hash | show | save, s |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for sample in given.samples:
        with tempfile.TemporaryDirectory() as folder:
            print(row_of_sample(sample, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
