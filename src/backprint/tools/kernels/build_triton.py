"""Compile Triton kernels to PTX and cubin for a GPU that need not be there.

A kernel's source is run to get its function and its configurations: only kernels that were extracted in this process
come here. Triton compiles for a target that it is given, so nothing asks for a driver.

A configuration is one way to compile a kernel: the sizes of its blocks (`kwargs`), its warps and stages. Inductor's
autotuner of a kernel, here `tuner`, has its configurations (`configs`) and its function (`fn`).

Private APIs of triton, tried on triton 3.7.1 and 3.9: `knobs.cache`, `JITCallable.file_name` (3.9) and
`compiler.code_generator.get_jit_fn_file_line` (before).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import linecache
import os
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from backprint._torch.inductor import compilation_of, no_gpu_driver
from backprint.errors import RefusedError, UsageError
from backprint.tools.kernels.inductor import fake_gpu
from backprint.tools.kernels.nouns import BuiltKernel, Kernel, KernelCall, KernelConfiguration, KernelTarget


def compile_configurations(kernel: Kernel, target: KernelTarget) -> Iterator[BuiltKernel]:
    """Compile a Triton kernel for a target, a GPU; yield its configurations one after another. Refuse a kernel in C++,
    and where there is no triton."""
    if kernel.language != "triton":
        raise UsageError(f"{kernel.name} is written in {kernel.language}: only Triton kernels are compiled to PTX")
    if importlib.util.find_spec("triton") is None:
        raise RefusedError("compiling a Triton kernel needs triton, which is not installed: pip install triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    with fake_gpu(target), use_separate_cache(), name_files_by_package():
        tuner = load_tuner(kernel)
        for configuration in tuner.configs:
            meta, options = compilation_of(tuner, configuration)
            # what is known of arguments, as that they are divisible by 16, is the same for all configurations
            source = ASTSource(tuner.fn, meta["signature"], meta["constants"], attrs=meta["configs"][0])
            compiled = compile(source, target=GPUTarget("cuda", target.capability, warp_size=32), options=options)
            yield _built_kernel(compiled, configuration)


@contextlib.contextmanager
def use_separate_cache() -> Iterator[None]:
    """Let Triton use a cache folder of its own inside the usual one.

    Triton finds a compiled kernel by its source, not by its file, but writes the file's path into what it compiles: the
    usual cache would give what another program compiled of the same source, with that program's path inside.
    """
    from triton import knobs

    with knobs.cache.scope():
        knobs.cache.dir = str(Path(knobs.cache.dir) / "backprint_by_package")
        yield


@contextlib.contextmanager
def name_files_by_package() -> Iterator[None]:
    """Let Triton name the files of packages as `triton/language/standard.py`, wherever they are.

    It writes the files of all functions that a kernel calls into what it compiles: with their paths, the same kernel
    would be another text on another machine.
    """
    from triton.compiler import code_generator

    if hasattr(code_generator, "get_jit_fn_file_line"):  # before triton 3.9
        original = code_generator.get_jit_fn_file_line

        def locate_in_package(function: Any) -> tuple[str, int]:
            """Return the file and the line of a jitted function."""
            file, line = original(function)
            return _path_in_package(file), line

        with mock.patch.object(code_generator, "get_jit_fn_file_line", locate_in_package):
            yield
        return
    from triton.runtime.jit import JITCallable

    name = property(
        lambda function: _path_in_package(vars(function)["file_name"]),
        lambda function, file: vars(function).update(file_name=file),  # Triton sets the attribute, too
    )
    with mock.patch.object(JITCallable, "file_name", name, create=True):  # a property hides what an object has
        yield


def _path_in_package(file: str) -> str:
    """Return a file's path from the folder of `sys.path` that it is in, which starts with its package: of several such
    folders, from the innermost. Another path is returned as it is."""
    relative_paths = [
        os.path.relpath(file, folder)
        for folder in map(os.path.abspath, sys.path)
        if os.path.isabs(file) and file.startswith(os.path.join(folder, ""))
    ]
    return min(relative_paths, key=len, default=file)


def _built_kernel(compiled: Any, configuration: Any) -> BuiltKernel:
    """Return a kernel that Triton compiled in a configuration: its text at each stage, and its bytes of shared
    memory."""
    texts, shared_bytes = compiled.asm, int(compiled.metadata.shared)
    return BuiltKernel(
        _read_configuration(configuration), texts["ptx"], texts["cubin"], texts["llir"], texts["ttir"], shared_bytes
    )


def _read_configuration(configuration: Any) -> KernelConfiguration:
    """Return a configuration of Triton as plain values."""
    sizes = tuple((name, int(value)) for name, value in configuration.kwargs.items())
    return KernelConfiguration(sizes, int(configuration.num_warps), int(configuration.num_stages))


def load_tuner(kernel: Kernel) -> Any:
    """Run a kernel's source, and return its autotuner, which has its function and its configurations.

    The source is only in memory, under its name: Triton writes the file's name into what it compiles. It finds the
    source of a function by `linecache`.
    """
    place = f"{kernel.name}.py"
    # size, modification time (None: it is never checked), lines, name
    linecache.cache[place] = (len(kernel.source), None, kernel.source.splitlines(keepends=True), place)
    module = types.ModuleType(kernel.name)
    module.__file__ = place
    with no_gpu_driver():
        exec(compile(kernel.source, place, "exec"), vars(module))
    return getattr(module, kernel.name)


def load_tuner_from_file(folder: Path, kernel: Kernel) -> Any:
    """Write a kernel's source to a file in a folder, run it from there, and return its autotuner.

    This is for Triton's interpreter, which runs a kernel without a GPU: at a kernel's first launch it looks up the
    source of the function in this file, and rewrites it. So the folder must be there until all kernels have run; for a
    source in memory alone, as of `load_tuner`, the interpreter would run the function as it is.
    """
    name = f"{kernel.name}_{hashlib.sha256(kernel.source.encode()).hexdigest()[:12]}"
    with no_gpu_driver():
        place = folder / f"{name}.py"
        place.write_text(kernel.source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, kernel.name)


# ------------------------------------------------------------------ configurations and grids


def with_grids(kernel: Kernel) -> Kernel:
    """Return a Triton kernel with its configurations, and with the grids of its calls for each of them."""
    tuner = load_tuner(kernel)
    configurations = tuple(map(_read_configuration, tuner.configs))
    calls = tuple(replace(call, grids=_grids_of(tuner, call)) for call in kernel.calls)
    return replace(kernel, configurations=configurations, calls=calls)


def _grids_of(tuner: Any, call: KernelCall) -> tuple[tuple[int, int, int], ...]:
    """Return the grid of a call for each configuration of its kernel."""
    numbers = [argument.value for argument in call.arguments]
    return tuple(grid_of(tuner, configuration, numbers) for configuration in tuner.configs)


def grid_of(tuner: Any, configuration: Any, values: Sequence[Any]) -> tuple[int, int, int]:
    """Return the grid of a call in a configuration; `values` are its arguments, None for a tensor. Inductor's GridExpr
    computes it from the numbers among them, as `xnumel`."""
    from backprint._torch.inductor import GridExpr

    sizes = {**configuration.kwargs, "num_warps": configuration.num_warps, "num_stages": configuration.num_stages}
    expression = GridExpr.from_meta(tuner.inductor_meta, sizes, mode="python")
    # the last parameters, the sizes of a configuration, are no arguments of a call
    values_by_name = dict(zip(tuner.fn.arg_names, values, strict=False))
    x, y, z = expression.eval_slow(values_by_name)
    return int(x), int(y), int(z)
