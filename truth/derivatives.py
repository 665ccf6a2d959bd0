"""Compares `bp.derivative` with differences of the programs of the truth suite, which share no code with it.

    python truth/derivatives.py [--every K] [--only NAME]

Each program is built anew for every run. Its gradient by autograd, along a random direction of its leaves, is compared
with central differences of its outputs, in float64 where it runs in float64. A program whose two agree must not be
`not the derivative`, one whose two differ must not be `derivative`; the exit code is 1 if there is one of these.
Differences that do not settle, as at a jump, say nothing, and neither does a program that counts its calls.
"""

import argparse
import collections
import json
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from case import Program, load_programs
from picture import roots_of, tensors
from torch import Tensor
from torch.utils._pytree import tree_leaves

import backprint as bp

TIMEOUT = 60
STEPS = {True: (1e-5, 1e-6), False: (1e-2, 3e-3)}
"""Steps of the differences in float64, and in the program's own dtype."""

TOLERANCE = {True: 1e-5, False: 2e-2}

ARTIFACTS = {
    "anomaly_gradient": "it is at a kink, and bp.derivative is about inputs near it",
    "disk_calibration": "its first call writes what later calls read",
    "bfloat_ones_come": "differences are 0 in bfloat16",
    "autocast_dtype_read_kept": "differences are 0 in bfloat16",
    "converted_and_back": "rounding to float16 is a step function for small steps",
    "reads_expanded_pointer_expanded": "it compares addresses, which are others for moved inputs",
    "tied_transposed_updated": "PyTorch leaves its gradient open",
    "checked_covariance": "PyTorch's gradient is that of a symmetric matrix",
    "half_full_gone": "rounding to float16 is a step function for small steps",
    "saved_rounded_gone": "its backward rounds to bfloat16, which float64 does not show",
    "storage_of_parameter_resized": "it frees the memory that is moved here",
    "global_module": "its module is global, and is not built anew",
}
"""Programs for which the differences here, or those of bp.derivative, say nothing, and why."""


def leaves_of(case: Any) -> dict[str, Tensor]:
    """The leaves that require grad; if none does, all floating-point ones, which are made to."""
    reached = tensors(roots_of(case.fn, case.call.args, case.call.kwargs))
    floats = {
        str(key): tensor
        for key, tensor in reached.items()
        if tensor.is_floating_point() and tensor.is_leaf and tensor.layout is torch.strided
    }
    distinct = {id(tensor): (key, tensor) for key, tensor in reversed(floats.items())}
    floats = dict(reversed(distinct.values()))
    asking = {key: tensor for key, tensor in floats.items() if tensor.requires_grad}
    return asking or {key: tensor.requires_grad_() for key, tensor in floats.items() if tensor._base is None}


def drawn(shape: torch.Size, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run(program: Program, step: float, double: bool) -> tuple[Tensor, dict[str, Tensor], list[torch.Size]]:
    """The product of random tangents with the outputs, where the leaves are moved a step; the leaves; the sizes."""
    case = program.build()
    case.reset()
    with case.under():
        if double:
            widen(tensors(roots_of(case.fn, case.call.args, case.call.kwargs)).values())
        leaves = leaves_of(case)
        with torch.no_grad():
            for tensor, towards in zip(leaves.values(), directions(leaves).values(), strict=True):
                moved = step * towards.to(tensor.dtype)
                if 0 in tensor.stride() and tensor.numel() > 1:  # expanded: its elements share memory
                    tensor.data = tensor.data + moved
                else:
                    tensor.data.add_(moved)
        torch.manual_seed(0)
        result = case.fn(*case.call.args, **case.call.kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
        outputs = [output for output in outputs if output.is_floating_point()]
        parts = [(output.double() * drawn(output.shape, 100 + number)).sum() for number, output in enumerate(outputs)]
        return sum(parts, torch.zeros((), dtype=torch.float64)), leaves, [output.shape for output in outputs]


def widen(all_tensors: Iterable[Tensor]) -> None:
    """Make leaves float64, in place; refused where tensors share memory, which they would no longer do."""
    leaves = [t for t in all_tensors if t.is_floating_point() and t.is_leaf and t.layout is torch.strided]
    if len({leaf.untyped_storage().data_ptr() for leaf in leaves}) < len({id(leaf) for leaf in leaves}):
        raise ValueError("tensors share memory")
    for leaf in leaves:
        leaf.data = leaf.data.double()


def directions(leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: drawn(tensor.shape, 7 + number) for number, (key, tensor) in enumerate(leaves.items())}


def by_differences(program: Program) -> str:
    """`agree` or `differ`, or why nothing is known."""
    why = ""
    for double in (True, False):
        try:
            product, leaves, sizes = run(program, 0.0, double)
            if not leaves or not sizes:
                return "no gradient"
            gradients = torch.autograd.grad(product, list(leaves.values()), allow_unused=True)
            pairs = zip(gradients, directions(leaves).values(), strict=True)
            expected = sum(float((g.double() * towards).sum()) for g, towards in pairs if g is not None)
            estimates = []
            for step in STEPS[double]:
                (ahead, _, some), (behind, _, others) = (run(program, way * step, double) for way in (1, -1))
                if some != sizes or others != sizes:
                    return "sizes move"
                estimates.append(float(ahead - behind) / (2 * step))
            size = max(1e-3, abs(estimates[0]), abs(expected))
            if not abs(estimates[0] - estimates[1]) <= TOLERANCE[double] * size:
                return "unsettled"
            return "agree" if abs(estimates[0] - expected) <= 10 * TOLERANCE[double] * size else "differ"
        except Exception as error:  # a program may raise anything in another dtype, or when it runs once more
            why = f"{type(error).__name__}: {error}"
    return f"does not run: {why}"


def row_of(program: Program) -> dict[str, Any]:
    case = program.build()
    try:
        with case.under():
            capture = bp.capture(case.fn, args=case.call.args, kwargs=case.call.kwargs, **case.options)
            answers = bp.derivative(capture)
        words, detail = [answer.word for answer in answers], "; ".join(map(str, answers))
    except bp.errors.BackprintError as error:
        words, detail = ["refused"], str(error)
    except Exception as error:  # the program's own
        words, detail = ["raises"], f"{type(error).__name__}: {error}"
    return {"name": program.name, "words": words, "detail": detail[:600], "differences": by_differences(program)}


def in_child(program: Program) -> dict[str, Any]:
    """A program's row, from a process of its own: programs change what is global."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(TIMEOUT)
        os.write(write, json.dumps(row_of(program)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        content = file.read()
    os.waitpid(child, 0)
    return json.loads(
        content or json.dumps({"name": program.name, "words": ["timeout"], "detail": "", "differences": ""})
    )


def word_of(row: Mapping[str, Any]) -> str:
    """One word for all Pairs: the worst."""
    order = ("not the derivative", "cannot tell", "timeout", "raises", "refused")
    return next((word for word in order if word in row["words"]), "derivative")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    programs = [program for program in load_programs().values() if program.name.startswith(options.only)]
    bp.derivative(torch.sin, torch.ones(3))  # loads what each child would load
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    wrong = 0
    for program in programs[:: options.every]:
        row = in_child(program)
        word, differences = word_of(row), row["differences"].partition(":")[0]
        counts[word, differences] += 1
        if word == "timeout" or (word, differences) in (("derivative", "differ"), ("not the derivative", "agree")):
            artifact = ARTIFACTS.get(program.name, "")
            wrong += word != "timeout" and not artifact and not any("but for" in text for text in row["words"])
            print(f"{program.name}: {word}, and differences {differences}; {artifact or row['detail']}", flush=True)
    for (word, differences), count in sorted(counts.items()):
        print(f"{count:6} {word}, differences: {differences or 'none'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
