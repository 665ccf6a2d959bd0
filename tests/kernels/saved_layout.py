"""Folders as `backprint kernels` writes them, made of the wrappers in `sources/`: Triton need not be installed."""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels.inductor_sources import SOURCES, kernels_of_text

from backprint.tools.kernels.alone import alone_text
from backprint.tools.kernels.nouns import Kernel, KernelArgument, KernelCall, KernelConfiguration
from backprint.tools.kernels.read import FORMAT

TENSOR = {"dtype": "float32", "shape": [4, 8], "stride": [8, 1], "value": None}
NUMBER = {"dtype": "int", "shape": [], "stride": [], "value": 32}

CONFIGURATIONS = (KernelConfiguration((("XBLOCK", 128),), 4, 1),)

OPERATORS = ("aten.gelu.default", "aten.mul.Tensor")


def save_layout(out: Path, gpus: Sequence[str] = ("80", "90")) -> Path:
    """Write every wrapper as the graph of a sample, those for a GPU for each of these; with stand-alone files."""
    for text in sorted(SOURCES.glob("*.txt")):
        device, name, direction = text.stem.split("_")
        for target in ("cpu:avx2",) if device == "cpu" else tuple(f"cuda:{each}" for each in gpus):
            save_text(out / name, text, target, direction)
    return out


def save_text(sample: Path, text: Path, target: str, direction: str) -> Path:
    """Write one wrapper as a graph of a sample; return the graph's folder."""
    kernels = kernels_of_text(text)
    folder = sample / target.replace(":", "_") / "pair_0" / direction
    (folder / "kernels").mkdir(parents=True)
    (folder / "wrapper.py").write_text(text.read_text())
    (folder / "graph.json").write_text(json.dumps(graph_facts(kernels, target, direction)))
    for kernel in kernels:
        (folder / "kernels" / f"{kernel.name}.py").write_text(written_alone(kernel, target))
    return folder


@functools.cache
def written_alone(kernel: Kernel, target: str) -> str:
    """The file of a kernel that runs alone, with a call that it could have had."""
    count = len(ast.literal_eval(kernel.declared)) if kernel.declared else 12
    call = KernelCall((KernelArgument("float32", (4, 8), (8, 1)),) * count, ((1, 1, 1),))
    return alone_text(replace(kernel, target=target, calls=(call,), isa="avx2", configurations=CONFIGURATIONS))


def graph_facts(kernels: Sequence[Kernel], target: str, direction: str) -> dict[str, Any]:
    """The content of a `graph.json`: of the kernels each second one computes one operator alone."""
    facts = [kernel_facts(kernel, OPERATORS[: 1 + number % 2]) for number, kernel in enumerate(kernels)]
    return {
        **dict(format=FORMAT, title=f"pair_0 {direction}", direction=direction, target=target),
        **dict(inputs=[], outputs=[], guards=[], notes=[], order=[kernel.name for kernel in kernels]),
        **dict(externs={"aten.addmm.out": 2, "aten.mm.out": 1}, kernels=facts),
    }


def kernel_facts(kernel: Kernel, operators: Sequence[str]) -> dict[str, Any]:
    return {
        **dict(name=kernel.name, hash="", structure="", language=kernel.language, compiler="inductor 2.13.0"),
        **dict(threads=1, isa="avx2" if kernel.language == "cpp" else ""),
        "operators": [dict(operator=each, step=each, line="model.py:3 in f: y") for each in operators],
        "configurations": [dict(sizes=[["XBLOCK", 128]], num_warps=4, num_stages=1)],
        "calls": [dict(arguments=[TENSOR, TENSOR, NUMBER], grids=[[1, 1, 1]])] * 2,
    }
