"""Extracted kernels, run and compared with the captured graphs in eager; and how many planted errors the check sees.

    python benchmarks/kernels_check.py [MODEL ...] [--target cpu cuda:90] [--every-configuration]
    python benchmarks/kernels_check.py [MODEL ...] --planted 5       each fifth of the errors that can be planted

Triton's kernels run in its interpreter, C++ is compiled; a GPU is not needed. The models are those of
`kernel_models.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from kernel_models import MODELS

import backprint as bp
from backprint.tools.kernels.extraction import capture_kernels
from backprint.tools.kernels.nouns import CaptureKernels

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kernels.check_faults import FaultRow, planted_and_checked  # of the tests

OUTCOMES = ("seen", "nothing", "rounding", "missed")


def kernels_of(name: str, target: str) -> CaptureKernels:
    """Capture a model, and have its kernels written."""
    model, inputs = MODELS[name]()
    return capture_kernels(bp.capture(model, *inputs, mode="train"), target)


def print_verdicts(names: list[str], targets: list[str], configurations: str) -> None:
    """Print a row for each graph."""
    print(f"{'graph':<40} {'target':<8} {'verdict':<9} {'error':>8} {'kernels':>7} {'seconds':>7}  what the check says")
    words: Counter[str] = Counter()
    for name in names:
        for target in targets:
            kernels = kernels_of(name, target)
            began = time.monotonic()
            counts = {graph.title: len(graph.kernels) for graph in kernels.graphs}
            found = kernels.check(configurations)
            took = time.monotonic() - began
            for verdict in found:
                worst = max((port.error for port in verdict.ports), default=0.0)
                row = f"{name} {verdict.name:<20}"
                count = counts.get(verdict.name, 0)
                said = f"{worst:8.1e} {count:>7} {took:7.1f}  {verdict.detail}"
                print(f"{row:<40} {target:<8} {verdict.verdict:<9} {said}", flush=True)
                words[verdict.verdict] += 1
    print(", ".join(f"{count} {word}" for word, count in words.items()))


def print_planted(names: list[str], targets: list[str], every: int) -> None:
    """Print how many planted errors were seen, and each that was not."""
    columns = "".join(f" {word:>8}" for word in ("planted", *OUTCOMES, "seconds"))
    print(f"{'model':<20} {'target':<8}{columns}")
    total: Counter[str] = Counter()
    for name in names:
        for target in targets:
            began = time.monotonic()
            rows = planted_and_checked(kernels_of(name, target), every)
            counts = Counter(row.outcome for row in rows)
            total += counts
            said = "".join(f" {number:>8}" for number in (len(rows), *(counts[word] for word in OUTCOMES)))
            print(f"{name:<20} {target:<8}{said} {time.monotonic() - began:8.1f}", flush=True)
            print_missed(rows)
    different = total["seen"] + total["missed"]
    share = f"{100 * total['seen'] / different:.2f} %" if different else "none"
    quiet = f"{total['nothing']} change no bit of a result, {total['rounding']} no more than rounding"
    print(f"{total.total()} planted; {quiet}; of the others {share} are seen")


def print_missed(rows: list[FaultRow]) -> None:
    """Print the errors that were not seen, and the kinds of those that do nothing."""
    for row in rows:
        if row.outcome == "missed":
            print(f"    missed: {row.graph}: {row.kind}: {row.told}: {row.detail}")
    kinds = Counter(row.kind for row in rows if row.outcome == "nothing")
    if kinds:
        print(f"    nothing: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}")


def main() -> None:
    """Print one of the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("models", nargs="*", choices=[[], *MODELS], default=[])
    options.add_argument("--target", nargs="+", default=["cpu", "cuda:90"])
    options.add_argument("--every-configuration", action="store_true")
    options.add_argument("--planted", type=int, metavar="EVERY", default=0)
    given = options.parse_args()
    names = given.models or list(MODELS)
    if given.planted:
        print_planted(names, given.target, given.planted)
    else:
        print_verdicts(names, given.target, "all" if given.every_configuration else "first")


if __name__ == "__main__":
    main()
