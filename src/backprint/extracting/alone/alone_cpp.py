"""Write a C++ kernel of Inductor as a file of its own: its source as a text, how it is compiled, and its calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from types import MappingProxyType

from backprint.errors import RefusedError
from backprint.extracting.alone.alone_draws import draws_of_cpp
from backprint.extracting.alone.alone_file import DRAWN, body, call_rows, header, literal, long_text, tensor_dtypes
from backprint.extracting.nouns import Kernel
from backprint.extracting.programs.normal_cpp import BINDING

RUNS = """\
    python THIS_FILE        compiles the kernel and runs it twice on each recorded call, with times. Exits with 1 if
                            the results differ.
    import THIS_FILE        make(call) -> arguments, launch(arguments), run(call) -> results
"""

IMPORTS = """\
import atexit
import ctypes
import functools
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

import torch

DEVICE = "cpu"
"""

FLAGS = (
    "-DTORCH_INDUCTOR_CPP_WRAPPER -DSTANDALONE_TORCH_HEADER -DC10_USING_CUSTOM_GENERATED_MACROS -O3 -DNDEBUG "
    "-fno-trapping-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -fno-finite-math-only "
    "-fno-unsafe-math-optimizations -fmath-errno -ffp-contract=off -fexcess-precision=fast -fno-tree-loop-vectorize "
    "-march=native -shared -fPIC -std=c++20 -fopenmp"
)
"""How Inductor 2.13 compiles a kernel, without its warnings and its precompiled headers."""

ISA_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "avx2": "-DCPU_CAPABILITY_AVX2 -mavx2 -mfma -mf16c",
        "avx512": "-DCPU_CAPABILITY_AVX512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma",
        "neon": "-DCPU_CAPABILITY_NEON -DAT_BUILD_ARM_VEC256_WITH_SLEEF",
        "scalar": "",
    }
)
"""Vector instructions -> the flags that they add."""

CAPABILITIES: Mapping[str, tuple[str, ...]] = MappingProxyType({"avx2": ("AVX2", "AVX512"), "avx512": ("AVX512",)})
"""Vector instructions -> what torch says of processors that have them."""

FUNCTION = re.compile(r'extern\s+"C"\s+(?:__\w+(?:\(\w+\))?\s+)?void\s+(\w+)\s*\(([^)]*)\)')
"""The head of a kernel."""

TYPE = re.compile(r"\s*(.*?)\s*(\w+)\s*")


def cpp_file(kernel: Kernel) -> str:
    """Return the file of a C++ kernel."""
    source = kernel.source.partition(BINDING)[0]
    function, parameters = head_of(kernel)
    if kernel.isa not in ISA_FLAGS:
        raise RefusedError(f"{kernel.name}: the vector instructions it is written for ({kernel.isa or 'unknown'}) are "
                           f"none of {', '.join(ISA_FLAGS)}: extract it for cpu:avx2 or another of these")  # fmt: skip
    names = [name for name, _ in parameters]
    if any(len(call.arguments) != len(names) for call in kernel.calls):
        raise RefusedError(f"{kernel.name}: it has {len(names)} parameters, and calls with another number of arguments")
    dtypes = tensor_dtypes(kernel, names)
    tensors = [(name, kind, dtypes[name]) for name, kind in parameters if name in dtypes]
    rows = {
        "NAME": kernel.name,
        "HASH": kernel.hash,
        "FUNCTION": function,
        "TYPES": [kind for _, kind in parameters],
        "FLAGS": [*FLAGS.split(), *ISA_FLAGS[kernel.isa].split()],
        "NEEDS": list(CAPABILITIES.get(kernel.isa, ())),
        "THREADS": f"{kernel.threads or 1} thread{'s' if (kernel.threads or 1) > 1 else ''}",
        "CALLS": call_rows(kernel, names, draws_of_cpp(source, tensors)),
        "WRITTEN": [name for name, kind, _ in tensors if not kind.startswith("const ")],
    }
    said = {
        "declared": kernel.declared, "sample": kernel.sample, "direction": kernel.direction, "target": kernel.target,
        "compiler": kernel.compiler, "isa": kernel.isa, "threads": kernel.threads,
    }  # fmt: skip
    parts = [
        header(kernel, "torch and a C++ compiler", RUNS + "\n" + DRAWN),
        IMPORTS.rstrip(),
        f"# ---- the kernel\n\nSOURCE = {long_text(source)}",
        "# ---- what was recorded of it",
        "\n".join(f"{name} = {literal(value)}" for name, value in rows.items()),
        f"# For those who compare programs; nothing below reads it.\nWRITTEN_AS = {literal(said)}",
        body("common"),
        body("cpp"),
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def head_of(kernel: Kernel) -> tuple[str, list[tuple[str, str]]]:
    """Return the name of a kernel's function, and its parameters' names and types."""
    found = FUNCTION.search(kernel.source)
    if found is None:
        raise RefusedError(f'{kernel.name}: there is no function extern "C" in this source')
    types = declared_types(kernel)
    written = [TYPE.fullmatch(one) for one in found[2].split(",")] if found[2].strip() else []
    if any(one is None for one in written) or (types and len(types) != len(written)):
        raise RefusedError(f"{kernel.name}: its parameters are not those that its binding declares")
    names = [one[2] for one in written if one is not None]
    own = [" ".join(one[1].split()).replace(" *", "*") for one in written if one is not None]
    return found[1], list(zip(names, types or own, strict=True))


def declared_types(kernel: Kernel) -> list[str]:
    """Return the types that a kernel's binding declares."""
    try:
        types = ast.literal_eval(kernel.declared) if kernel.declared else []
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise RefusedError(f"{kernel.name}: what its binding declares is no list of types ({error})") from error
    if not isinstance(types, list | tuple) or not all(isinstance(one, str) for one in types):
        raise RefusedError(f"{kernel.name}: what its binding declares is no list of types")
    return list(types)
