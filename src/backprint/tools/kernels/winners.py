"""Time every configuration of a Triton kernel on a GPU that is here, and say which is the fastest.

A kernel's stand-alone file times itself, in a process of its own: the median of many runs on each recorded call. A
configuration is one way to compile the kernel: the sizes of its blocks, its warps and stages.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from backprint.child.child import run_command
from backprint.errors import RefusedError
from backprint.tools.jobs.turns import GraphClock, Turns, turns_folder
from backprint.tools.kernels.alone import standalone_text
from backprint.tools.kernels.alone_file import call_counts
from backprint.tools.kernels.nouns import Kernel, KernelTarget, KernelTimes, target_named

TIMEOUT = 600.0
"""Seconds that timing a kernel may take."""


def has_gpu(target: KernelTarget) -> bool:
    """Whether this machine has a GPU of a target's compute capability."""
    if target.device != "cuda" or not torch.cuda.is_available():
        return False
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor == target.capability


def time_kernel(kernel: Kernel) -> KernelTimes:
    """Time a Triton kernel in every configuration; refuse kernels in C++, and those for a GPU that is not here."""
    if kernel.language != "triton":
        raise RefusedError(
            f"{kernel.name} is written in {kernel.language}: only Triton kernels have configurations to "
            "choose from; its stand-alone file times it"
        )
    if not has_gpu(target_named(kernel.target)):
        raise RefusedError(
            f"{kernel.name} is a kernel for {kernel.target}, and there is no such GPU here: on one, its "
            "stand-alone file times it"
        )
    with tempfile.TemporaryDirectory(prefix="backprint_times_") as name:
        file = Path(name) / f"{kernel.name}.py"
        file.write_text(standalone_text(kernel), encoding="utf-8")
        # processes on one machine take turns by files in that folder
        turns = Turns(turns_folder(Path(tempfile.gettempdir())), GraphClock())
        with turns.working(), turns.alone():  # as in a bench: no other worker times meanwhile
            return run_timing(kernel, [sys.executable, "-P", str(file), "--times"])


def run_timing(kernel: Kernel, command: Sequence[str]) -> KernelTimes:
    """Run a command, which is a stand-alone file that times itself; return its times. Refuse a run that ends
    otherwise."""
    end = run_command(command, TIMEOUT)
    if not end.ended_well:
        raise RefusedError(f"{kernel.name}: its timing was not finished: {end.account}")
    lines = end.printed.strip().splitlines() or ["nothing was said"]
    # its last line of JSON: a kernel may print others
    output = next((line for line in reversed(lines) if line.startswith("{")), lines[-1])
    try:
        return read_times(kernel, json.loads(output))
    except (ValueError, TypeError, KeyError) as error:
        raise RefusedError(f"{kernel.name}: its timing said what is no time: {output[:300]}") from error


def read_times(kernel: Kernel, report: dict[str, Any]) -> KernelTimes:
    """Return times of a kernel from the JSON of its file: `device`, and `microseconds`, a row for each distinct call,
    with a number for each configuration. Refuse rows of other lengths, and numbers that are no times."""
    rows = tuple(tuple(map(float, row)) for row in report["microseconds"])
    # `calls` has how often each distinct call was made
    calls, configuration_count = call_counts(kernel), len(kernel.configurations)
    if len(rows) != len(calls) or any(len(row) != configuration_count for row in rows):
        raise RefusedError(
            f"{kernel.name}: {len(rows)} rows of times, for {len(calls)} calls of {configuration_count} configurations"
        )
    if not all(math.isfinite(microseconds) and microseconds > 0 for row in rows for microseconds in row):
        raise RefusedError(f"{kernel.name}: times that are none: {rows!s:.200}")
    totals = [
        sum(row[place] * count for row, count in zip(rows, calls.values(), strict=True))
        for place in range(configuration_count)
    ]
    best = totals.index(min(totals))
    return KernelTimes(str(report["device"]), microseconds=rows, winner=kernel.configurations[best], total=totals[best])
