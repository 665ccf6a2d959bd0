"""Saved Triton kernels run alone: in a process where neither `torch._inductor` nor Backprint can be imported.

Every kernel of the models is saved as a file of its own. A process that blocks both modules imports the files, makes
the arguments of each recorded call, and runs every configuration in Triton's interpreter. Another process runs the
kernels as the wrapper has them, with Inductor's own decorators and helpers, on the same arguments; libdevice is numpy's
there. Results are right within 1e-5 of the largest number, 1e-2 in bf16 and fp16.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

ALONE = """
import glob, importlib.util, sys

for name in ("torch._inductor", "backprint"):
    sys.modules[name] = None
import torch

for place in sorted(glob.glob(sys.argv[1] + "/*.py")):
    spec = importlib.util.spec_from_file_location("kernel", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    counts = len(module.CALLS), len(module.CONFIGURATIONS)
    for call in range(counts[0]):
        found = [list(module.make(call).values())]
        found += [module.run(call, configuration) for configuration in range(counts[1])]
        torch.save(found, f"{place}.{call}.alone")
    print(place, "->", module.main() if "--run" in sys.argv else 0)
"""
"""What runs the files."""

CLOSE = {torch.float16: 1e-2, torch.bfloat16: 1e-2, torch.float64: 1e-12}


@dataclass(frozen=True, slots=True)
class AloneRow:
    """What became of the saved kernels of a graph."""

    kernels: int
    runs: int
    """Calls times configurations."""
    right: int


def checked_alone(kernels: list[Any]) -> AloneRow:
    """Save kernels, run them alone, and compare them with the wrapper's own."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        save_kernels(kernels, place)
        run_alone(place)
        started([str(place)], {"TRITON_INTERPRET": "1"})
        differences = list(compared(place))
    right = sum(found <= close for found, close in differences)
    return AloneRow(len(kernels), len(differences), right)


def save_kernels(kernels: list[Any], folder: Path) -> None:
    """Write each kernel as a file of its own, and what the reference needs."""
    from backprint.tools.kernels.alone import standalone_text

    rows = []
    for number, kernel in enumerate(kernels):
        (folder / f"kernel_{number:03}.py").write_text(standalone_text(kernel), encoding="utf-8")
        fields = ("language", "name", "source", "target")
        rows.append({field: getattr(kernel, field) for field in fields})
    (folder / "kernels.json").write_text(json.dumps(rows))


def run_alone(folder: Path, *options: str) -> str:
    """Run the files in a process without Inductor and without Backprint; return what they print."""
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRITON_INTERPRET")}
    return process([sys.executable, "-P", "-c", ALONE, str(folder), *options], outside)


def started(options: list[str], settings: dict[str, str]) -> str:
    """Run this file in a process of its own."""
    return process([sys.executable, __file__, *options], {**os.environ, **settings})


def process(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def compared(folder: Path) -> Iterator[tuple[float, float]]:
    """Yield, of each run, how far the results are from the reference's, and how far they may be."""
    for place in sorted(folder.glob("*.alone")):
        arguments, *alone = torch.load(place)
        reference = torch.load(place.with_suffix(".reference"))
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        assert tensors
        assert len(alone) == len(reference)
        for one, other in zip(alone, reference, strict=True):
            assert one
            assert one.keys() <= other.keys()
            pairs = [(difference(one[name], other[name]), CLOSE.get(one[name].dtype, 1e-5)) for name in one]
            yield max(pairs, key=lambda pair: pair[0] / pair[1])


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference as a part of the largest number."""
    if torch.equal(one, other):
        return 0.0
    first, second = one.double(), other.double()
    first, second = first.nan_to_num(nan=1e300), second.nan_to_num(nan=1e300)
    return ((first - second).abs().max() / max(first.abs().max().item(), 1e-30)).item()


# ------------------------------------------------------------------ the wrapper's own kernels


def run_reference(folder: Path) -> None:
    """Run the kernels as the wrapper has them on the arguments that the files made."""
    from backprint.tools.kernels.inductor import lowering_for
    from backprint.tools.kernels.nouns import Kernel, target_named

    for number, row in enumerate(json.loads((folder / "kernels.json").read_text())):
        kernel = Kernel(**row)
        with lowering_for(target_named(kernel.target), 1):
            launch = wrapper_triton(kernel)
            for place in folder.glob(f"kernel_{number:03}.py.*.alone"):
                arguments = torch.load(place)[0]
                torch.save(list(launch(arguments)), place.with_suffix(".reference"))


def wrapper_triton(kernel: Any) -> Callable[[list[Any]], Iterator[dict[str, Any]]]:
    """Return what runs a Triton kernel with Inductor's own autotuner, grids and helpers, in the interpreter."""
    from backprint.tools.kernels.build_triton import grid_of, load_tuner

    libdevice_of_numpy()
    whole_arrays()
    tuner = load_tuner(kernel)

    def launch(arguments: list[Any]) -> Iterator[dict[str, Any]]:
        for configuration in tuner.configs:
            values = [twin(value) for value in arguments]
            numbers = [None if isinstance(value, torch.Tensor) else value for value in values]
            names = [name for name in tuner.fn.arg_names if name not in configuration.kwargs]
            named = dict(zip(names, values, strict=False))
            grid = grid_of(tuner, configuration, numbers)
            tuner.fn[grid](**{**tuner.triton_meta["constants"], **named, **configuration.kwargs})
            yield named

    return launch


def twin(value: Any) -> Any:
    """Return a tensor of the same layout and numbers, gaps and overlaps too."""
    if not isinstance(value, torch.Tensor):
        return value
    whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage().clone())
    return whole.as_strided(value.shape, value.stride())


def libdevice_of_numpy() -> None:
    """Give the names of libdevice functions of numpy and of `math`, for the interpreter."""
    import numpy as np
    import triton.language as tl
    import triton.language.extra.libdevice as libdevice
    from triton.runtime.interpreter import TensorHandle

    def each(function: Callable[..., float]) -> Callable[..., Any]:
        return np.vectorize(function, otypes=[np.float64])

    names = {
        "exp": np.exp,
        "rsqrt": lambda x: 1 / np.sqrt(x.astype(np.float64)),
        "sqrt": np.sqrt,
        "erf": each(math.erf),
        "tanh": np.tanh,
        "log1p": np.log1p,
        "expm1": np.expm1,
        "pow": np.power,
        "sin": np.sin,
        "cos": np.cos,
        "log": np.log,
        "log2": np.log2,
        "exp2": np.exp2,
        "floor": np.floor,
        "ceil": np.ceil,
        "trunc": np.trunc,
        "isnan": np.isnan,
        "isinf": np.isinf,
        "nearbyint": np.rint,
        "atan": np.arctan,
        "fmod": np.fmod,
    }

    def called(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*operands: Any, **_: Any) -> Any:
            arrays = [one.handle.data if isinstance(one, tl.tensor) else getattr(one, "value", one) for one in operands]
            first = next(one for one in operands if isinstance(one, tl.tensor))
            found = np.asarray(function(*arrays))
            kind = tl.int1 if found.dtype == np.bool_ else first.type.scalar
            array = found if found.dtype == np.bool_ else found.astype(first.handle.data.dtype)
            return tl.tensor(TensorHandle(array, kind), tl.block_type(kind, list(array.shape)))

        return call

    for name, function in names.items():
        setattr(libdevice, name, called(function))


def whole_arrays() -> None:
    """Have the interpreter's atomic operations take whole arrays; triton 3.7.1 reads broadcast ones wrongly."""
    import types

    import numpy as np
    import triton.runtime.interpreter as interpreter

    if isinstance(interpreter._interpreter, types.SimpleNamespace):
        return
    real = interpreter._interpreter.atomic_rmw
    interpreter._interpreter = types.SimpleNamespace(**vars(interpreter._interpreter))
    interpreter._interpreter.atomic_rmw = lambda operation, pointers, values, mask, order: real(
        operation, np.array(pointers), np.array(values), np.array(mask), order
    )


# ------------------------------------------------------------------ PTX


def same_ptx(kernels: list[Any]) -> tuple[int, int]:
    """Return how many configurations there are, and of how many the file's PTX is the wrapper's."""
    from backprint.tools.kernels.alone import standalone_text
    from backprint.tools.kernels.build_triton import compile_configurations
    from backprint.tools.kernels.nouns import target_named

    count = same = 0
    for kernel in kernels:
        target = target_named(kernel.target)
        wanted = [bare(one.ptx) for one in compile_configurations(kernel, target)]
        with tempfile.TemporaryDirectory() as folder, on_gpu():
            made = list(file_ptx(standalone_text(kernel), Path(folder), target.capability, kernel))
        count += len(wanted)
        same += sum(one == bare(other) for one, other in zip(wanted, made, strict=True))
    return count, same


def file_ptx(text: str, folder: Path, capability: int, kernel: Any) -> Iterator[str]:
    """Yield the PTX of each configuration of a file."""
    import importlib.util

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    place = folder / "kernel_alone.py"
    place.write_text(text)
    spec = importlib.util.spec_from_file_location("kernel_alone", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from backprint.tools.kernels.build_triton import load_tuner

    aligned = load_tuner(kernel).triton_meta["configs"][0]
    for one in module.CONFIGURATIONS:
        signature = {**module.SIGNATURE, **dict.fromkeys(one["sizes"], "constexpr")}
        source = ASTSource(module.KERNEL, signature, {**module.CONSTANTS, **one["sizes"]}, aligned)
        options = {**module.OPTIONS, "num_warps": one["num_warps"], "num_stages": one["num_stages"]}
        yield triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]


@contextmanager
def on_gpu() -> Iterator[None]:
    """While this lasts, a file believes that there is a GPU, and its kernel is for one."""
    from unittest import mock

    with mock.patch.object(torch.cuda, "is_available", return_value=True):
        yield


def bare(ptx: str) -> list[str]:
    """Return the instructions of PTX, without what says where they come from: an assertion has its file and line."""
    import re

    code = re.sub(r"(?s)\.section\s+\.debug.*", "", ptx)
    code = re.sub(r".*\bassertFile_\d+\[.*|st\.param\.b32\s+\[param2\], \d+;(?=\s*call\.uni __assertfail)", "", code)
    lines = (re.sub(r"//.*|\$L__\w+", "", line).strip() for line in code.splitlines())
    return [line for line in lines if line and not line.startswith((".loc", ".file"))]


if __name__ == "__main__":
    run_reference(Path(sys.argv[1]))
