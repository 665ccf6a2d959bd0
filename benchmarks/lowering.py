"""Loops as kernels: programs that walk time, lowered, compared with eager at other numbers of steps, and built.

The programs are those of `tests/kernels/loop_programs.py`, with a state of 5 × 33. Printed of each: seconds to lower,
whether it is right at all lengths, the worst difference from eager and what is allowed, the bytes that each direction
moves against the fewest at 64 steps, and registers on sm_80 and sm_90. Needs `triton`.

    python benchmarks/lowering.py [NAME...] [--lengths 1,2,7,64,1000]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch
from results import Figure, keep

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernels"))

from loop_programs import PROGRAMS

import backprint as bp


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--lengths", default="1,2,7,64,1000")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lengths = [int(word) for word in options.lengths.split(",")]
    right, part, moved, names = 0, [], [], options.names or list(PROGRAMS)
    for name in names:
        function, make_inputs = PROGRAMS[name]
        torch.manual_seed(0)
        begun = time.process_time()
        lowered = bp.lower(function, make_inputs, (6, 7, 8, max(64, *lengths)), name=name)
        seconds = time.process_time() - begun
        comparison = lowered.check(lengths)
        worst, ratios = comparison.worst, [row.ratio for row in lowered.traffic(64).values()]
        right += comparison.ok
        part.append(worst.difference / worst.allowed)
        moved += ratios
        registers = "; ".join(
            ", ".join(f"{kernel.registers}" for kernel in lowered.build(capability)) for capability in (80, 90)
        )
        print(
            f"{name:20} {seconds:5.1f} s   {'right' if comparison.ok else 'WRONG'}   {worst.difference:.1e} of "
            f"{worst.allowed:.0e}   bytes {'; '.join(f'{ratio:.3f}' for ratio in ratios)}   registers {registers}",
            flush=True,
        )
    figures = [
        Figure(f"programs right at {options.lengths} steps, of {len(names)}", right, at_least=len(names)),
        Figure("the worst difference from eager, of what is allowed", max(part), "×", at_most=1.0),
        Figure("bytes that a direction moves against the fewest, the most of all", max(moved), "×", at_most=1.05),
    ]
    return keep("lowering", figures)


if __name__ == "__main__":
    sys.exit(main())
