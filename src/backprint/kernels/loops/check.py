"""A file that was lowered, compared with the program in eager: in a process of its own, at several lengths."""

from __future__ import annotations

import copy
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from backprint.errors import RefusedError, UsageError
from backprint.kernels.loops.call import call_of, inputs_by_port
from backprint.kernels.loops.words import LIBDEVICE, SINGLE

if TYPE_CHECKING:
    from backprint.kernels.loops.lowered import Lowered

HALVES = (torch.float16, torch.bfloat16)

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
"""How far a value may be from eager's, relative to the largest of its tensor."""


@dataclass(frozen=True, slots=True)
class LoopRow:
    """One output or gradient at one length: its difference, and the largest that is right."""

    steps: int
    port: str
    difference: float
    allowed: float

    @property
    def ok(self) -> bool:
        """Whether it is right."""
        return self.difference <= self.allowed


@dataclass(frozen=True, slots=True)
class LoopCheck:
    """The comparison of a Lowered with eager, a row for each output and gradient at each length."""

    rows: tuple[LoopRow, ...]

    @property
    def ok(self) -> bool:
        """Whether all are right."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    @property
    def worst(self) -> LoopRow:
        """The row that is furthest from eager, for what is allowed."""
        return max(
            self.rows,
            key=lambda row: float("inf") if row.difference != row.difference else row.difference / row.allowed,
        )

    def __str__(self) -> str:
        wrong = [row for row in self.rows if not row.ok]
        shown = wrong or [self.worst]
        lines = [f"{len(self.rows)} outputs and gradients compared with eager: {len(wrong)} wrong"]
        lines += [
            f"  {row.steps} steps: {row.port}: {row.difference:.2e}, allowed {row.allowed:.2e}" for row in shown[:8]
        ]
        return "\n".join(lines)


RUNNER = """
import importlib.util, os, sys, torch
if os.environ.get("TRITON_INTERPRET") == "1":  # the interpreter of Triton 3.7 truncates bfloat16; a GPU rounds
    import numpy
    from triton.runtime import interpreter
    convert = interpreter._convert_float

    def rounded(data, here, there, mode):
        if not (here.is_fp32() and there.is_bf16()):
            return convert(data, here, there, mode)
        bits = torch.from_numpy(numpy.array(data)).to(torch.bfloat16).view(torch.int16)
        return bits.numpy().view(numpy.uint16)

    interpreter._convert_float = rounded
place, name = sys.argv[1:]
spec = importlib.util.spec_from_file_location("lowered", place + "/lowered.py")
lowered = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lowered)
answers = []
for case in torch.load(place + "/cases.pt", weights_only=True):
    inputs = [x.requires_grad_(flag) for x, flag in zip(case["inputs"], case["requires_grad"])]
    outputs = getattr(lowered, name)(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    wanted = [x for x in inputs if x.requires_grad]
    pairs = [(y, g) for y, g in zip(outputs, case["tangents"]) if y.requires_grad and g is not None]
    gradients = torch.autograd.grad([y for y, _ in pairs], wanted, [g for _, g in pairs]) if pairs and wanted else ()
    answers.append({"outputs": [y.detach() for y in outputs], "gradients": list(gradients)})
torch.save(answers, place + "/answers.pt")
"""
"""What the process runs: it has the inputs, and nothing of eager's results."""


@dataclass(frozen=True, slots=True)
class Case:
    """The program at one length: inputs by port, tangents, and the results of eager by port."""

    steps: int
    inputs: Mapping[str, Tensor]
    tangents: tuple[Tensor | None, ...]
    results: Mapping[str, Tensor]
    reference: Mapping[str, Tensor]


def checked(lowered: Lowered, lengths: Sequence[int], timeout: float) -> LoopCheck:
    """Return the comparison of a Lowered with its program."""
    cases = [case_of(lowered, steps) for steps in lengths]
    answers = run_apart(lowered, cases, timeout)
    rows: list[LoopRow] = []
    for case, answer in zip(cases, answers, strict=True):
        rows += [row_of(case, port, answer.get(port), value) for port, value in case.results.items()]
    return LoopCheck(tuple(rows))


def row_of(case: Case, port: str, result: Tensor | None, eager: Tensor) -> LoopRow:
    """Return how far a result is from eager."""
    if result is None or result.shape != eager.shape or result.dtype != eager.dtype:
        return LoopRow(case.steps, port, float("inf"), 0.0)
    if eager.dtype in HALVES:
        return row_of_halves(case.steps, port, result, eager, case.reference[port])
    scale = eager.abs().max().clamp_min(1e-30)
    same = (result == eager) | (result.isnan() & eager.isnan())
    difference = torch.where(same, 0.0, (result - eager).abs().double() / scale).max()
    return LoopRow(case.steps, port, float(difference), TOLERANCE.get(eager.dtype, 0.0))


def row_of_halves(steps: int, port: str, result: Tensor, eager: Tensor, reference: Tensor) -> LoopRow:
    """Return how far a half is from float32, beside how far eager is. Where eager overflows, it has no right answer to
    compare with, so such elements are left out; where it is NaN as float32 is, the result has to be too."""
    is_finite = eager.isfinite() & (reference.abs() <= torch.finfo(eager.dtype).max)
    is_nan = eager.isnan() & reference.isnan()
    if not is_finite.any() or not result[is_nan].isnan().all():
        return LoopRow(steps, port, float("inf"), 0.0)
    own = distance(eager[is_finite], reference[is_finite])
    difference = distance(result[is_finite], reference[is_finite])
    return LoopRow(steps, port, difference, max(2 * own, 4 * torch.finfo(eager.dtype).eps))


def distance(value: Tensor, reference: Tensor) -> float:
    """Return the relative distance of two tensors."""
    return float((value.double() - reference.double()).norm() / reference.double().norm().clamp_min(1e-30))


def case_of(lowered: Lowered, steps: int) -> Case:
    """Return the program at a length, run in eager."""
    call = call_of(lowered.make_inputs(steps))
    args, kwargs = copy.deepcopy((call.args, dict(call.kwargs)))
    inputs = named_inputs(lowered, lowered.function, args, kwargs)
    results, tangents = run_eager(lowered, lowered.function, args, kwargs, inputs, None)
    reference: dict[str, Tensor] = {}
    if any(value.dtype in HALVES for value in results.values()):
        function = widened(lowered.function)
        args, kwargs = widened(call.args), widened(dict(call.kwargs))
        wide = named_inputs(lowered, function, args, kwargs)
        wide_tangents = [None if item is None else item.float() for item in tangents]
        reference, _ = run_eager(lowered, function, args, kwargs, wide, wide_tangents)
    return Case(steps, inputs, tuple(tangents), results, reference)


def widened(value: Any) -> Any:
    """Return arguments or a module whose halves are float32."""
    if isinstance(value, Tensor):
        wide = value.detach().float() if value.dtype in HALVES else value.detach().clone()
        return wide.requires_grad_(value.requires_grad)
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).float()
    if isinstance(value, (tuple, list)):
        return type(value)(map(widened, value))
    return {key: widened(item) for key, item in value.items()} if isinstance(value, dict) else value


def named_inputs(lowered: Lowered, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the inputs of the program by port."""
    named = inputs_by_port(function, lowered.capture, args, kwargs)
    ports = [lowered.parts.layout.facts[name].port for name in lowered.parts.inputs]
    return {port: named[port] for port in ports}


def run_eager(
    lowered: Lowered,
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    inputs: Mapping[str, Tensor],
    tangents: Sequence[Tensor | None] | None,
) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """Return outputs and gradients of the program, and the tangents."""
    facts = lowered.parts.layout.facts
    wanted = {
        port: inputs[port]
        for port, gradient in zip(inputs, lowered.parts.gradients, strict=True)
        if gradient is not None
    }
    for tensor in wanted.values():
        if tensor.is_leaf:
            tensor.requires_grad_(True)
    value = function(*args, **kwargs)
    outputs = tensors_in(value)
    ports = [facts[name].port for name in lowered.parts.outputs]
    if len(outputs) != len(ports):
        raise UsageError(f"the program returned {len(outputs)} tensors, and was captured with {len(ports)}")
    if tangents is None:
        generator = torch.Generator().manual_seed(1)
        tangents = [
            torch.randn(output.shape, generator=generator).to(output) if name in lowered.parts.tangents else None
            for name, output in zip(lowered.parts.outputs, outputs, strict=True)
        ]
    results = {f"output {port}": output.detach() for port, output in zip(ports, outputs, strict=True)}
    pairs = [(output, tangent) for output, tangent in zip(outputs, tangents, strict=True) if tangent is not None]
    if wanted and pairs:
        gradients = torch.autograd.grad(
            [y for y, _ in pairs], list(wanted.values()), [g for _, g in pairs], materialize_grads=True
        )
        results |= {f"gradient {port}": gradient for port, gradient in zip(wanted, gradients, strict=True)}
    return results, list(tangents)


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors of a program's result, in order."""
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for item in items for tensor in tensors_in(item)]


def functions_text(names: Sequence[str]) -> str:
    """Return operations as the names that libdevice has for them."""
    return ", ".join(sorted({(LIBDEVICE | SINGLE)[name] for name in names}))


def run_apart(lowered: Lowered, cases: Sequence[Case], timeout: float) -> list[dict[str, Tensor]]:
    """Run the file on cases in a process of its own; return its results by port."""
    facts, parts = lowered.parts.layout.facts, lowered.parts
    is_cpu = all(tensor.device.type == "cpu" for case in cases for tensor in case.inputs.values())
    if is_cpu and parts.library:
        raise RefusedError(
            f"{lowered.name}: its kernels call {functions_text(parts.library)} of CUDA's libdevice, which Triton's "
            "interpreter does not run: check with inputs on a GPU, or compile with .build(90)"
        )
    for package in ("triton", *(("numpy",) if is_cpu else ())):  # numpy for Triton's interpreter
        if importlib.util.find_spec(package) is None:
            raise RefusedError(f"running the kernels needs {package}, which is not installed: pip install {package}")
    with tempfile.TemporaryDirectory(prefix="backprint_lowered_") as folder:
        lowered.save(Path(folder) / "lowered.py")
        flags = [gradient is not None for gradient in parts.gradients]
        rows = [
            {
                "inputs": [tensor.detach().clone() for tensor in case.inputs.values()],
                "requires_grad": flags,
                "tangents": list(case.tangents),
            }
            for case in cases
        ]
        torch.save(rows, Path(folder) / "cases.pt")
        environment = {**os.environ, **({"TRITON_INTERPRET": "1"} if is_cpu else {})}
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, folder, lowered.name],
            env=environment,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RefusedError(f"{lowered.name}: its file ended with {done.returncode}:\n{done.stderr[-2000:]}")
        answers = torch.load(Path(folder) / "answers.pt", weights_only=True)
    outputs = [f"output {facts[name].port}" for name in parts.outputs]
    gradients = [
        f"gradient {facts[name].port}" for name, item in zip(parts.inputs, parts.gradients, strict=True) if item
    ]
    return [
        dict(zip(outputs, answer["outputs"], strict=True)) | dict(zip(gradients, answer["gradients"], strict=False))
        for answer in answers
    ]
