"""Loops as kernels: programs that walk time, lowered, compared with eager, built, and beside Inductor.

    python benchmarks/lowering.py [NAME…] [--lengths 1,2,7,64,1000] [--halves] [--inductor STEPS]
    python benchmarks/lowering.py lengths [NAME…] [--lengths 1,2,7,64,1000]
    python benchmarks/lowering.py operators

A row for each program of `tests/kernels/loop_programs.py`, with a state of 5 x 33: seconds to lower, seconds to check,
the worst difference from eager (relative to the largest value of its tensor; of halves, the error beside that of
eager), kernels of each direction, the bytes that they move against the fewest at 64 steps, states a step, registers on
sm_80 and sm_90. With `--inductor`, the kernels and bytes of Inductor for the same captures of so many steps: a call
that reads all of its inputs and writes all of its outputs moves as many bytes at least.

`lengths` prints, for each program in float32, float16 and bfloat16, the worst error at each number of steps as a part
of what is allowed. `operators` compares loops of one operator each (`tests/kernels/loop_operators.py`) with eager,
those of FlexSN's table and others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernels"))

import loop_programs
from loop_programs import PROGRAMS, STATE

import backprint as bp
from backprint.errors import BackprintError
from backprint.tools.kernels.alone_file import least_bytes
from backprint.tools.kernels.loops.call import call_of
from backprint.tools.kernels.lowered import counted
from backprint.tools.kernels.lowered_check import widened


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Return arguments, or a module, in another dtype."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(dtype).requires_grad_(value.requires_grad)
    if isinstance(value, tuple):
        return tuple(cast(item, dtype) for item in value)
    if isinstance(value, dict):
        return {name: cast(item, dtype) for name, item in value.items()}
    return value


def row_of(
    name: str, function: Callable[..., Any], make_inputs: Callable[[int], Any], lengths: list[int], inductor: int
) -> None:
    """Print the row of a program."""
    begun = time.process_time()
    lowered = bp.lower(function, make_inputs, (6, 7, 8, max(64, *lengths)), name=name)
    seconds = time.process_time() - begun
    begun = time.perf_counter()
    comparison = lowered.check(lengths)
    checked = time.perf_counter() - begun
    worst = comparison.worst
    traffic = lowered.traffic(64)
    whole = torch.Size(STATE).numel() * 4 * 64
    kernels = "1 + 1" if lowered.backward is not None else "1"
    registers = [
        ", ".join(
            f"{kernel.registers}" + (f" ({kernel.spilled} spilled)" if kernel.spilled else "") for kernel in built
        )
        for built in (lowered.build(80), lowered.build(90))
    ]
    ratios = "; ".join(f"{row.ratio:.3f}" for row in traffic.values())
    print(
        f"| {name} | {seconds:.1f} | {checked:.0f} | {'right' if comparison.ok else 'WRONG'} | "
        f"{worst.difference:.1e} of {worst.allowed:.0e} | {kernels} | {ratios} | "
        f"{sum(row.moved for row in traffic.values()) / whole:.2f} | {'; '.join(registers)} |",
        flush=True,
    )
    if inductor:
        print_inductor(
            name, function, make_inputs, inductor, {key: row.moved for key, row in lowered.traffic(inductor).items()}
        )


def print_lengths(
    name: str, function: Callable[..., Any], make_inputs: Callable[[int], Any], dtype: str, lengths: list[int]
) -> None:
    """Print the worst error of a program at each number of steps, as a part of what is allowed."""
    begun = time.perf_counter()
    comparison = bp.lower(function, make_inputs, (6, 7, 8, max(64, *lengths)), name=name).check(lengths, timeout=3600.0)
    worst = {
        steps: max(row.difference / row.allowed for row in comparison.rows if row.size == counted(steps, "step"))
        for steps in lengths
    }
    cells = " | ".join(f"{worst[steps]:.3f}" for steps in lengths)
    verdict = "right" if comparison.ok else "WRONG"
    print(f"| {name} | {dtype} | {cells} | {verdict} | {time.perf_counter() - begun:.0f} |", flush=True)


def print_inductor(
    name: str, function: Callable[..., Any], make_inputs: Callable[[int], Any], steps: int, own: dict[str, int]
) -> None:
    """Print what Inductor makes of the same program."""
    call = call_of(make_inputs(steps))
    begun = time.process_time()
    capture = bp.capture(function, args=call.args, kwargs=dict(call.kwargs))
    kernels = bp.kernels.extract(capture, target="cuda:90")
    for graph in kernels.graphs:
        moved = sum(least_bytes(call, kernel) for kernel in graph.kernels for call in kernel.calls)
        calls = sum(len(kernel.calls) for kernel in graph.kernels)
        side = "backward" if "backward" in graph.title else "forward"
        lines = sum(kernel.source.count("\n") for kernel in graph.kernels)
        print(
            f"    Inductor, {steps} steps, {side}: {len(graph.kernels)} kernels, {calls} calls, {lines} lines, "
            f"{moved:,} bytes, {moved / own[side]:.2f} times ours",
            flush=True,
        )
    print(f"    Inductor took {time.process_time() - begun:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--lengths", default="1,2,7,64,1000")
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--inductor", type=int, default=0, metavar="STEPS")
    options = parser.parse_args()
    if options.names == ["operators"]:
        script = Path(loop_programs.__file__).with_name("loop_operators.py")
        raise SystemExit(subprocess.run([sys.executable, str(script)], check=False).returncode)
    warnings.simplefilter("ignore")
    lengths = [int(word) for word in options.lengths.split(",")]
    by_length = options.names[:1] == ["lengths"]
    if by_length:
        print(
            f"| program | dtype | {' | '.join(map(str, lengths))} | | s |\n|---|---|{'---:|' * len(lengths)}---|---:|"
        )
    else:
        print("| program | lower s | check s | | worst | kernels | bytes | states a step | registers 80; 90 |")
        print("|---|---:|---:|---|---:|---|---:|---:|---:|")
    halves = (torch.float16, torch.bfloat16)
    dtypes = (torch.float32, *halves) if by_length else halves if options.halves else (torch.float32,)
    for name in options.names[by_length:] or PROGRAMS:
        function, make_inputs = PROGRAMS[name]
        torch.manual_seed(0)
        for dtype in dtypes:
            program: Any = widened(function).to(dtype) if isinstance(function, torch.nn.Module) else function

            def inputs(steps: int, make_inputs: Callable[[int], Any] = make_inputs, dtype: torch.dtype = dtype) -> Any:
                return cast(make_inputs(steps), dtype)

            title = name if dtype is torch.float32 else f"{name}_{str(dtype)[6:]}"
            try:
                if by_length:
                    print_lengths(name, program, inputs, str(dtype)[6:], lengths)
                else:
                    row_of(title, program, inputs, lengths, options.inductor)
            except (BackprintError, RuntimeError) as error:  # a program may not run in a half: RWKV's -1e38 does not
                print(f"| {title} | {type(error).__name__}: {str(error)[:200]} |", flush=True)


if __name__ == "__main__":
    main()
