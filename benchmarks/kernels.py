"""The kernels that graphs become, for a processor and two GPUs that are not there; and planted errors that are seen.

    python benchmarks/kernels.py OUT [--samples FOLDER ...] [--build] [--check]      a table by target
    python benchmarks/kernels.py --planted 5 [--models MODEL ...] [--target cpu cuda:90]

The subjects are the models of `kernel_models.py` and the samples below each FOLDER, for example of `backprint corpus
backward`. The table is that of OUT/TARGET/kernels.jsonl, which `backprint kernels` writes: what has been done stays,
and the same command goes on. With `--planted 5`, each fifth of the errors that can be planted in a model's kernels is,
and `kernels.check()` looks for it. Triton's kernels run in its interpreter, C++ is compiled; a GPU is not needed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from kernel_models import MODELS

import backprint as bp
from backprint.tools.kernels.rows import KernelRow, grouped, read_rows

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

TARGETS = "cpu:avx2", "cuda:80", "cuda:90"

# ------------------------------------------------------------------ the kernels of all subjects


def save_models(folder: Path) -> Path:
    """Save the models as samples; return their folder."""
    for name, make in MODELS.items():
        if not (folder / name).exists():
            model, inputs = make()
            bp.save(bp.capture(model, *inputs, mode="train", name=name), folder / name)
    return folder


def print_table(out: Path, folders: Iterable[Path], options: list[str]) -> None:
    """Extract the kernels of all samples for each target, and print what they come to."""
    print("| target | samples | graphs | kernels | programs | structures | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    hashes: dict[str, dict[tuple[str, str], list[str]]] = {}
    for target in TARGETS:
        began = time.perf_counter()
        place = out / target.replace(":", "_")
        command = ["-m", "backprint", "kernels", *map(str, folders), "-o", str(place), "--target", target, *options]
        with open(out / f"{place.name}.log", "w") as log:
            subprocess.run([sys.executable, *command], stdout=log, stderr=subprocess.STDOUT, check=False)
        rows = list(read_rows(place))
        hashes[target] = hashes_of(rows)
        programs, structures = len(grouped(rows)), len(grouped(rows, ignore_sizes=True))
        samples = len({row.sample for row in rows})
        numbers = f"{samples} | {len(hashes[target])} | {len(rows)} | {programs} | {structures}"
        print(f"| {target} | {numbers} | {time.perf_counter() - began:.0f} |", flush=True)
    first, second = (hashes[target] for target in TARGETS[1:])
    both = first.keys() & second.keys()
    same = sum(first[key] == second[key] for key in both)
    print(f"\nThe kernels of {same} of {len(both)} graphs are the same for cuda:80 and cuda:90.")
    print(f"What is refused, and verdicts of --check, stand in {out}/*.log.")


def hashes_of(rows: Iterable[KernelRow]) -> dict[tuple[str, str], list[str]]:
    """Return the hashes of the kernels of each graph."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        found[row.sample, row.graph].append(row.hash)
    return found


# ------------------------------------------------------------------ planted errors

OUTCOMES = ("seen", "nothing", "rounding", "missed")


def print_planted(names: Iterable[str], targets: Iterable[str], every: int) -> None:
    """Print how many planted errors were seen, and each that was not."""
    from kernels.check_faults import planted_and_checked  # of the tests

    print(f"{'model':<20} {'target':<8}" + "".join(f" {word:>8}" for word in ("planted", *OUTCOMES, "seconds")))
    total: Counter[str] = Counter()
    for name in names:
        model, inputs = MODELS[name]()
        capture = bp.capture(model, *inputs, mode="train")
        for target in targets:
            began = time.monotonic()
            rows = planted_and_checked(bp.kernels.extract(capture, target=target), every)
            counts = Counter(row.outcome for row in rows)
            total += counts
            numbers = "".join(f" {number:>8}" for number in (len(rows), *(counts[word] for word in OUTCOMES)))
            print(f"{name:<20} {target:<8}{numbers} {time.monotonic() - began:8.1f}", flush=True)
            for row in rows:
                if row.outcome == "missed":
                    print(f"    missed: {row.graph}: {row.kind}: {row.told}: {row.detail}")
    different = total["seen"] + total["missed"]
    share = f"{100 * total['seen'] / different:.2f} %" if different else "none"
    quiet = f"{total['nothing']} change no bit of a result, {total['rounding']} no more than rounding"
    print(f"{total.total()} planted; {quiet}; of the others {share} are seen")


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("kernels"))
    parser.add_argument("--samples", type=Path, action="append", default=[], help="a folder of samples")
    parser.add_argument("--build", action="store_true", help="compile every configuration to PTX and cubin")
    parser.add_argument("--check", action="store_true", help="run the kernels, and compare them with eager")
    parser.add_argument("--planted", type=int, metavar="EVERY", default=0)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--target", nargs="+", default=["cpu", "cuda:90"], help="of planted errors")
    given = parser.parse_args()
    if given.planted:
        print_planted(given.models, given.target, given.planted)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    options = [f"--{name}" for name in ("build", "check") if getattr(given, name)]
    print_table(given.out, [save_models(given.out / "models"), *given.samples], options)


if __name__ == "__main__":
    main()
