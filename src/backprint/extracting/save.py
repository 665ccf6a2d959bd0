"""Write the kernels of a Capture below a folder.

    TARGET/pair_0/forward/wrapper.py        Python code that calls the kernels, with their sources in it
    TARGET/pair_0/forward/graph.json        ports, guards, what was rewritten, and each kernel's facts and calls
    TARGET/pair_0/forward/kernels/NAME.py   a kernel alone, with its recorded calls
    TARGET/pair_0/forward/built/NAME/…      what it was compiled to, with `build`

TARGET is `cpu`, `cpu_avx2`, `cuda_90`, ….
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backprint.errors import PlaceError
from backprint.extracting.alone import alone_text
from backprint.extracting.build_triton import built
from backprint.extracting.capture_kernels import CaptureKernels
from backprint.extracting.extract import ExtractedGraph
from backprint.extracting.nouns import Kernel
from backprint.extracting.saved_graphs import ALONE_FOLDER, BUILT_FOLDER, FORMAT, GRAPH_FILE, WRAPPER_FILE


def save_kernels(found: CaptureKernels, folder: Path, build: bool = False) -> None:
    """Write what was extracted below a folder, completely or not at all; what was there for this target is replaced."""
    place = folder / found.target.name.replace(":", "_")
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for graph in found.graphs:
            write_graph(graph, unfinished / graph.title.replace(" ", "/"), build)
        if place.exists():
            shutil.rmtree(place)
        os.replace(unfinished, place)
    except OSError as error:
        raise PlaceError(f"{place}: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_graph(graph: ExtractedGraph, place: Path, build: bool) -> None:
    """Write what a compiler made of one graph."""
    place.mkdir(parents=True)
    (place / WRAPPER_FILE).write_text(graph.wrapper, encoding="utf-8")
    (place / GRAPH_FILE).write_text(json.dumps(facts_of(graph), indent=1) + "\n", encoding="utf-8")
    for kernel in graph.kernels:
        (place / ALONE_FOLDER).mkdir(exist_ok=True)
        (place / ALONE_FOLDER / f"{kernel.name}.py").write_text(alone_text(kernel), encoding="utf-8")
        if build and kernel.language == "triton":
            write_built(graph, kernel, place / BUILT_FOLDER / kernel.name)


def write_built(graph: ExtractedGraph, kernel: Kernel, place: Path) -> None:
    """Compile a Triton kernel in every configuration, and write each stage of it."""
    place.mkdir(parents=True)
    for one in built(kernel, graph.target):
        name = one.configuration.name
        for suffix, text in (("ttir", one.ttir), ("llir", one.llir), ("ptx", one.ptx)):
            (place / f"{name}.{suffix}").write_text(text, encoding="utf-8")
        (place / f"{name}.cubin").write_bytes(one.cubin)


def facts_of(graph: ExtractedGraph) -> Mapping[str, Any]:
    """Return the facts of a graph and its kernels, for JSON."""
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
        "kernels": [facts_of_kernel(kernel) for kernel in graph.kernels],
    }


def facts_of_kernel(kernel: Kernel) -> Mapping[str, Any]:
    """Return the facts of a kernel, for JSON."""
    form = kernel.form
    return {
        "name": kernel.name,
        "hash": form.kernel_hash,
        "structure": form.structure_hash,
        "language": kernel.language,
        "compiler": kernel.compiler,
        "threads": kernel.threads,
        "isa": kernel.isa,
        "operators": [asdict(operator) for operator in kernel.operators],
        "configurations": [asdict(configuration) for configuration in kernel.configurations],
        "calls": [asdict(call) for call in kernel.calls],
    }
