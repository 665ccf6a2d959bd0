"""Dedup of 100,000 kernels in one streaming pass: kernels per second, and peak memory after 25, 50 and 100 thousand.

The kernels are variants of those that Inductor wrote of small functions (`tests/kernels/sources`): other names,
numbers of temporaries and constants. Half of them are a program that was there before. Bars: 500 kernels a second
of the processor, and less than 16 MiB more memory after 100,000 kernels than after 25,000.

    python benchmarks/kernels_dedup.py [KERNELS]
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from backprint.tools.kernels.groups import grouped_kernels
from backprint.tools.kernels.normal import normal_form
from backprint.tools.kernels.nouns import Kernel
from backprint.tools.kernels.read import kernels_of_wrapper

SOURCES = Path(__file__).parents[1] / "tests" / "kernels" / "sources"
PER_SAMPLE = 20
BARS = {"kernels a second": 500.0, "MiB more": 16.0}

TEMPORARY = re.compile(r"\btmp(\d+)\b")
NUMBER = re.compile(r"(?<=xnumel = )\d+|(?<=static_cast<int64_t>\()\d+(?=L)")


def main() -> None:
    """One pass, with a line at each mark."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    bases = [one for path in sorted(SOURCES.glob("*.txt")) for one in kernels_of_wrapper(path.read_text(), path.name)]
    kernels = [one for one in bases if isinstance(one, Kernel)]
    for language in ("triton", "cpp"):
        print(f"normal forms alone, {language}: {normal_rate(kernels, language):.0f} kernels a second")
    marks = [count // 4, count // 2, count]
    peaks: dict[int, float] = {}
    start, began = time.perf_counter(), time.process_time()
    groups = grouped_kernels(watched(variants(kernels, count), marks, peaks, start))
    seconds, processor = time.perf_counter() - start, time.process_time() - began
    totals = groups.totals()
    shown = sum(1 for _ in groups.groups())
    coarse = sum(1 for _ in groups.groups("structure"))
    grouped = time.perf_counter() - start - seconds
    rate, more = count / processor, mebibytes() - peaks[marks[0]]
    print(f"{totals.uses} kernels, {totals.programs} programs, {totals.structures} structures")
    print(f"{shown} groups and {coarse} coarser ones read in {grouped:.1f} s")
    print(f"{count / seconds:.0f} kernels a second, {rate:.0f} a second of the processor")
    print(f"{more:.1f} MiB more at the end than after {marks[0]}")
    bad = rate < BARS["kernels a second"] or more > BARS["MiB more"]
    print(f"{'over' if bad else 'within'} the bars {BARS}")
    raise SystemExit(bad)


def variants(kernels: list[Kernel], count: int) -> Iterator[Kernel]:
    """Yield so many kernels; each second one is a program that was there before, under other names."""
    for number in range(count):
        base = kernels[number % len(kernels)]
        program = number // 2 // len(kernels) if number > len(kernels) else 0
        yield replace(
            base,
            name=f"{base.name}_{number}",
            source=changed(base, number, program),
            sample=f"sample_{number // PER_SAMPLE}",
            direction=("forward", "backward")[number // PER_SAMPLE % 2],
        )


def changed(base: Kernel, number: int, program: int) -> str:
    """The source with other names and numbers of temporaries, and a constant of its own for each program."""
    source = base.source.replace(base.name, f"{base.name}_{number}")
    source = TEMPORARY.sub(lambda found: f"tmp{int(found[1]) + number % 50}", source)
    return NUMBER.sub(lambda found: str(int(found[0]) + program), source, count=1)


def watched(stream: Iterator[Kernel], marks: list[int], peaks: dict[int, float], start: float) -> Iterator[Kernel]:
    """Pass a stream on, with the peak of memory at each mark."""
    for number, kernel in enumerate(stream, 1):
        yield kernel
        if number in marks:
            peaks[number] = mebibytes()
            spent = f"{time.perf_counter() - start:6.1f} s ({time.process_time():.1f} of the processor)"
            print(f"{number:7} kernels: {spent}, peak {peaks[number]:.1f} MiB")
            sys.stdout.flush()


def normal_rate(kernels: list[Kernel], language: str, seconds: float = 2.0) -> float:
    """Normal forms and hashes of one language, a second."""
    chosen = [kernel for kernel in kernels if kernel.language == language]
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for kernel in chosen:
            form = normal_form(kernel)
            done += bool(form.kernel_hash and form.structure_hash)
    return done / (time.perf_counter() - start)


def mebibytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


if __name__ == "__main__":
    main()
