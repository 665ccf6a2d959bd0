"""Write the kernels of a Capture below a folder.

    TARGET/kernels.jsonl                    a row for each kernel (`rows`)
    TARGET/pair_0/forward/wrapper.py        Python code that calls the kernels, with their sources in it
    TARGET/pair_0/forward/graph.json        ports, guards, notes, and each kernel's facts and calls
    TARGET/pair_0/forward/kernels/NAME.py   a Triton kernel alone, with its recorded calls
    TARGET/pair_0/forward/kernels/NAME.cpp  a C++ kernel's source
    TARGET/pair_0/forward/built/NAME/…      a Triton kernel's compiled forms, with `build`

Where the target's GPU is here, `graph.json` has the time of each configuration of a kernel, and which is the fastest.

TARGET is `cpu`, `cpu_avx2`, `cuda_90`, ….
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backprint.errors import PlaceError, RefusedError
from backprint.tools.kernels.alone import standalone_text
from backprint.tools.kernels.build_triton import compile_configurations
from backprint.tools.kernels.nouns import (
    CaptureKernels,
    ExtractedGraph,
    Kernel,
    KernelCall,
    KernelConfiguration,
    KernelTarget,
)
from backprint.tools.kernels.rows import KernelRow, kernel_row, write_rows
from backprint.tools.kernels.winners import has_gpu

FORMAT = 2
"""The format of `graph.json`."""

SUFFIXES = {"triton": "py", "cpp": "cpp"}
"""The suffix of a kernel's file, by language."""

NOT_TIMED = "not timed"
"""How the line of a kernel begins that could not be timed: `work` counts the others."""


def save_kernels(kernels: CaptureKernels, folder: Path, build: bool = False) -> list[str]:
    """Write extracted kernels below a folder, completely or not at all, in place of earlier ones for the target.

    With `build`, each configuration of a Triton kernel is compiled too. Returns a line for each kernel that was timed.
    """
    place = folder / kernels.target.name.replace(":", "_")
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")  # renamed when it is complete
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        times_lines: list[str] = []
        rows: list[KernelRow] = []
        for graph in kernels.graphs:
            times_lines += _write_graph(graph, unfinished / graph.title.replace(" ", "/"), build)
            relative_folder = f"{place.name}/{graph.title.replace(' ', '/')}"
            rows += [
                kernel_row(kernel, graph.title, f"{relative_folder}/{kernel_file(kernel)}") for kernel in graph.kernels
            ]
        write_rows(unfinished, rows)
        if place.exists():
            shutil.rmtree(place)  # `os.replace` does not replace a folder with files
        os.replace(unfinished, place)
        return times_lines
    except OSError as error:
        raise PlaceError(f"{place}: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write_graph(graph: ExtractedGraph, folder: Path, build: bool) -> list[str]:
    """Write the wrapper, the kernels and the facts of one graph; return a line for each kernel that was timed, or could
    not be."""
    folder.mkdir(parents=True)
    (folder / "wrapper.py").write_text(graph.wrapper, encoding="utf-8")
    for kernel in graph.kernels:
        (folder / "kernels").mkdir(exist_ok=True)
        text = standalone_text(kernel) if kernel.language == "triton" else kernel.source
        (folder / kernel_file(kernel)).write_text(text, encoding="utf-8")
        if build and kernel.language == "triton":
            _write_built(graph, kernel, folder / "built" / kernel.name)
    kernel_facts = [_facts_of_kernel(kernel) | _facts_of_times(graph.target, kernel) for kernel in graph.kernels]
    facts = {**graph_facts(graph), "kernels": kernel_facts}
    (folder / "graph.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return [_times_line(row["name"], row["times"]) for row in kernel_facts if "times" in row]


def kernel_file(kernel: Kernel) -> str:
    """Return the path of a kernel's file in the folder of its graph."""
    return f"kernels/{kernel.name}.{SUFFIXES[kernel.language]}"


def _times_line(name: str, times: Mapping[str, Any]) -> str:
    """Return the times of a kernel, or why there are none, as a line; `times` are those of `_facts_of_times`."""
    if "refused" in times:
        return f"{NOT_TIMED}: {times['refused']}"
    fastest = KernelConfiguration(**times["winner"]).name
    return f"{name}: {times['total']:.1f} us on {times['device']} in {fastest}"


def _write_built(graph: ExtractedGraph, kernel: Kernel, folder: Path) -> None:
    """Compile a Triton kernel in every configuration, and write each stage of it."""
    folder.mkdir(parents=True)
    for compiled in compile_configurations(kernel, graph.target):
        name = compiled.configuration.name
        for suffix, text in (("ttir", compiled.ttir), ("llir", compiled.llir), ("ptx", compiled.ptx)):
            (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
        (folder / f"{name}.cubin").write_bytes(compiled.cubin)


def graph_facts(graph: ExtractedGraph) -> dict[str, Any]:
    """Return the facts of a graph, for JSON."""
    return {
        "format": FORMAT,
        "title": graph.title,
        "direction": graph.direction,
        "target": graph.target.name,
        "inputs": [asdict(port) for port in graph.inputs],
        "outputs": [asdict(port) for port in graph.outputs],
        "guards": list(graph.guards),
        "notes": list(graph.notes),
        "externs": dict(graph.externs),
        "order": list(graph.order),
    }


def _facts_of_times(target: KernelTarget, kernel: Kernel) -> dict[str, Any]:
    """Return how long a kernel takes where its GPU is here, or why that is not known; nothing elsewhere."""
    if kernel.language != "triton" or not has_gpu(target):
        return {}
    try:
        return {"times": asdict(kernel.times())}
    except RefusedError as error:
        return {"times": {"refused": str(error)}}


def _facts_of_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return the facts of a kernel, for JSON."""
    return {
        "name": kernel.name,
        "hash": kernel.hash,
        "structure": kernel.structure,
        "language": kernel.language,
        "compiler": kernel.compiler,
        "threads": kernel.threads,
        "isa": kernel.isa,
        "operators": [asdict(operator) for operator in kernel.operators],
        "configurations": [asdict(configuration) for configuration in kernel.configurations],
        "calls": [_facts_of_call(call) for call in kernel.calls],
    }


def _facts_of_call(call: KernelCall) -> dict[str, Any]:
    """Return the facts of a call, for JSON, which has no numbers that are not finite: they are texts."""
    facts = asdict(call)
    for row in facts["arguments"]:
        if isinstance(row["value"], float) and not math.isfinite(row["value"]):
            row["value"] = str(row["value"])
    return facts
