"""A fuzz of the operators that a graph may call: which of them can kill or hang the process, past our own checks.

    python tests/fuzz/operators.py --tries 24 --seconds 3000 -o found.jsonl
    LD_PRELOAD=./guard.so python tests/fuzz/operators.py ...    # see guard.c beside this file

Each operator is called in a forked child with limits of time and memory, in two ways. Arguments are drawn by the types
of its schema, hostile ones among them: numbers of any size, tensors full of 1e9, -1, NaN or the smallest integer, empty
ones, lists of wrong lengths. And right calls, taken from the operator samples of torch forward and backward, have
one or two arguments replaced, swapped or filled anew, because many kernels check shapes first. A call that our checks
refuse does not run. A child that ends by a signal is kept in the output, with the call.
`python scripts/operators.py --fuzz found.jsonl` writes these operators into the table as isolated. 24 tries of all
operators take three minutes on one core.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import random
import re
import resource
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint.common import memory
from backprint.errors import RefusedError
from backprint.fx.values import check_call, resolve
from backprint.graph.operators import operators
from backprint.graphnet.code import callables
from backprint.graphnet.emit import torch_callable as torch_function
from backprint.graphnet.safety import guarded_function, guarded_method

SECONDS = 4
"""How long one call may take."""

MEMORY = 3 << 30
"""How much more memory a child may take than it begins with."""

SHAPES = ((), (0,), (1,), (3,), (4,), (8,), (4, 4), (2, 3, 4), (1, 2, 4, 4), (2, 4, 8, 8), (1, 1, 2, 4, 4), (0, 3))
WHOLE = (0, 1, -1, 2, -2, 3, 4, 8, 10**6, -(10**6), 10**9, 2**31, 2**62, -(2**63), 2**63 - 1)
REAL = (0.0, 1.0, -1.0, 0.5, 1e30, -1e30, float("nan"), float("inf"))
WORDS = ("sum", "mean", "max", "none", "trunc", "floor", "constant", "reflect", "tanh", "", "ij", "left", "\0")
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int32)
DTYPES += (torch.int8, torch.uint8, torch.bool, torch.qint8, torch.float8_e4m3fn)
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch._mkldnn)
FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
LOWEST = {torch.int64: -(2**63), torch.int32: -(2**31), torch.int8: -128}


# ------------------------------------------------------------------ drawn arguments


def tensor(draw: random.Random, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor, as a stranger would make one."""
    shape = draw.choice(SHAPES) if shape is None else shape
    dtype = dtype or draw.choice((*[torch.float32] * 6, *[torch.int64] * 4, *DTYPES[1:10]))
    if dtype.is_complex or dtype is torch.bool:
        return torch.ones(shape, dtype=dtype)
    if dtype.is_floating_point:
        fill = draw.choice((None, None, None, 0.0, 1.0, float("nan"), 1e30, -1.0))
        return torch.randn(shape).to(dtype) if fill is None else torch.full(shape, fill).to(dtype)
    fill = draw.choice((0, 1, -1, 2, 3, 5, 10**9, -(10**9), LOWEST.get(dtype, 0), 100))
    low, high = (0, 255) if dtype is torch.uint8 else (-128, 127) if dtype is torch.int8 else (-(2**63), 2**63 - 1)
    low, high = (-(2**31), 2**31 - 1) if dtype is torch.int32 else (low, high)
    return torch.full(shape, max(low, min(high, fill)), dtype=dtype)


def drawn(draw: random.Random, kind: str) -> Any:
    """An argument of a schema's type; now and then of another one."""
    if kind.startswith("Optional["):
        return None if draw.random() < 0.5 else drawn(draw, kind[9:-1])
    if kind.startswith("List["):
        return [drawn(draw, kind[5:-1]) for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4)))]
    if draw.random() < 0.02:
        return draw.choice((-1, None, -(10**6), 4, "x", torch.float32, torch.strided))
    match kind:
        case "Tensor":
            return tensor(draw)
        case "int":
            return draw.choice(WHOLE[:8]) if draw.random() < 0.6 else draw.choice(WHOLE)
        case "float" | "number" | "complex":
            return draw.choice(REAL) if draw.random() < 0.6 or kind == "float" else draw.choice(WHOLE)
        case "bool":
            return draw.random() < 0.5
        case "str":
            return draw.choice(WORDS)
        case "ScalarType":
            return draw.choice(DTYPES)
        case "Layout":
            return draw.choice(LAYOUTS)
        case "MemoryFormat":
            return draw.choice(FORMATS)
        case "Device":
            return torch.device(draw.choice(("cpu", "cpu", "meta")))
    return None


def call_by_schema(draw: random.Random, function: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as its schema says, each drawn."""
    args, kwargs = [], {}
    for each in function._schema.arguments:
        if each.has_default_value() and draw.random() < 0.4:
            if each.kwarg_only:
                continue
            args.append(each.default_value)
        elif each.kwarg_only:
            kwargs[each.name] = drawn(draw, str(each.real_type))
        else:
            args.append(drawn(draw, str(each.real_type)))
    return args, kwargs


# ------------------------------------------------------------------ right calls, spoilt


class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """Keeps a few calls of each operator."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.calls: dict[str, list[tuple[Any, Any]]] = collections.defaultdict(list)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept = self.calls[str(function)]
        if len(kept) < self.most and size_of(args) + size_of(kwargs or {}) < 2**16:
            kept.append((copied(args), copied(kwargs or {})))
        return function(*args, **(kwargs or {}))


def size_of(value: Any) -> int:
    """The number of elements in a call."""
    return sum(leaf.numel() for leaf in tensors_in(value))


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of a call or a result."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def copied(value: Any) -> Any:
    """A call's arguments with tensors of their own."""
    return torch.utils._pytree.tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, value)


def right_calls(most: int, seconds: float) -> dict[str, list[tuple[Any, Any]]]:
    """Calls of aten operators that torch's own samples make, forward and backward."""
    from torch.testing._internal.common_methods_invocations import op_db

    recorder, start = Recorder(most), time.monotonic()
    for info in op_db:
        if time.monotonic() - start > seconds:
            break
        for dtype in (torch.float32, torch.int64):
            if dtype not in info.dtypes:
                continue
            graded = dtype.is_floating_point and info.supports_autograd
            try:
                for index, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=graded)):
                    if index > 5:
                        break
                    with recorder:
                        record(info, sample)
            except Exception:  # a sample of torch's that does not run here
                continue
    for module, *inputs in modules():
        with recorder:
            made = module(*inputs)
            sum(leaf.abs().sum() for leaf in tensors_in(made) if leaf.requires_grad).backward()
    return recorder.calls


def modules() -> list[tuple[Any, ...]]:
    """Modules whose operators have no samples, and their inputs."""
    rows = torch.tensor([1, 2, 3, 9])
    return [
        (torch.nn.LSTM(3, 4), torch.randn(5, 2, 3)),
        (torch.nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True), torch.randn(5, 2, 3)),
        (torch.nn.GRU(3, 4), torch.randn(5, 2, 3)),
        (torch.nn.EmbeddingBag(10, 4), rows, torch.tensor([0, 2])),
        (torch.nn.EmbeddingBag(10, 4, mode="max"), rows, torch.tensor([0, 2])),
        (torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8)),
        (torch.nn.BatchNorm3d(2), torch.randn(2, 2, 3, 3, 3)),
        (torch.nn.AdaptiveMaxPool3d(2), torch.randn(2, 2, 4, 4, 4, requires_grad=True)),
    ]


def record(info: Any, sample: Any) -> None:
    """One sample, run forward and backward."""
    try:
        made = info(sample.input, *sample.args, **sample.kwargs)
        graded = [
            leaf for leaf in torch.utils._pytree.tree_leaves(made) if isinstance(leaf, Tensor) and leaf.requires_grad
        ]
        if graded:
            sum(leaf.abs().sum() for leaf in graded).backward()
    except Exception:  # what raises has been recorded up to there
        return


def spoilt(draw: random.Random, call: tuple[Any, Any]) -> tuple[list[Any], dict[str, Any]]:
    """A right call in which one or two arguments are no longer what they should be."""
    args, kwargs = copied(call)
    args, kwargs = list(args), dict(kwargs)
    for _ in range(draw.choice((1, 1, 2))):
        keys = [*range(len(args)), *kwargs]
        if not keys:
            break
        key = draw.choice(keys)
        held: Any = args if isinstance(key, int) else kwargs
        held[key] = otherwise(
            draw, held[key], [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        )
    return args, kwargs


def otherwise(draw: random.Random, value: Any, tensors: list[Tensor]) -> Any:
    """Another value of the same kind."""
    if isinstance(value, Tensor):
        match draw.randrange(8):
            case 0:
                return draw.choice(tensors)
            case 6:
                return value.to(draw.choice(DTYPES[:10]))
            case 7:
                return torch.stack([value, value], -1)[..., 0]
            case 1:
                return tensor(draw, None, value.dtype)
            case 2:
                return tensor(draw, tuple(value.shape), value.dtype)
            case 3:
                return value[..., : max(value.shape[-1] // 2, 1)] if value.dim() else value
            case 4:
                return value.flatten()[:1].clone().expand(value.shape) if value.numel() else value
        return value.reshape(-1)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((value + 1, value * 2, -value, *WHOLE))
    if isinstance(value, float):
        return draw.choice(REAL)
    if isinstance(value, (list, tuple)) and value:
        items = list(value)
        place = draw.randrange(len(items))
        match draw.randrange(4):
            case 0:
                return items[:place]
            case 1:
                return [*items, items[place]]
        items[place] = otherwise(draw, items[place], tensors or [torch.ones(())])
        return items
    if isinstance(value, torch.dtype):
        return draw.choice(DTYPES)
    return value


# ------------------------------------------------------------------ one operator, in a child


def limited() -> None:
    """Limits of the child's own."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    memory.limit_memory(MEMORY // 4)


def shown(value: Any) -> str:
    """An argument in a row of the output."""
    if isinstance(value, Tensor):
        held = ""
        if value.numel() and value.layout is torch.strided and not value.is_meta and not value.is_quantized:
            held = f", first {value.reshape(-1)[0].item()}"
        return f"{str(value.dtype)[6:]}{list(value.shape)}{held}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    return repr(value)[:60]


Target = tuple[Any, Any, Any]
"""What is called, an operator whose schema its arguments are drawn by, and what checks a call before it runs."""


def operator_of(name: str) -> Target:
    """An operator of the table."""
    function = resolve(name)
    return function, function, functools.partial(check_call, name, function)


def callable_of(name: str) -> Target:
    """A function or a method of the table for GraphNet's samples, as their Programs call it."""
    last = name.removesuffix(".default").rpartition(".")[2]
    if name.startswith("Tensor."):
        function: Any = guarded_method(last) or functools.partial(method, last)
    else:
        function = guarded_function(name, torch_function(name))
        last = getattr(function, "__name__", last)
    packet = getattr(torch.ops.aten, last, None)
    overloads = [getattr(packet, each) for each in packet.overloads()] if packet is not None else []
    aten = torch.ops.aten
    some = [aten.relu.default, aten.add.Tensor, aten.select.int, aten.addmm.default]
    return function, overloads or some, lambda args, kwargs: None


def method(name: str, owner: Any, *args: Any, **kwargs: Any) -> Any:
    """A method of a tensor's."""
    return getattr(owner, name)(*args, **kwargs)


def tries_of(target: Target, name: str, first: int, last: int, calls: list[Any], pipe: int) -> None:
    """The tries of one operator, each told before it runs."""
    function, drawn_by, check = target
    for number in range(first, last):
        draw = random.Random(f"{name} {number}")
        torch.manual_seed(number)
        if calls and number % 3:
            args, kwargs = spoilt(draw, draw.choice(calls))
        else:
            args, kwargs = call_by_schema(draw, draw.choice(drawn_by) if isinstance(drawn_by, list) else drawn_by)
        said = ", ".join([*map(shown, args), *(f"{key}={shown(value)}" for key, value in kwargs.items())])
        os.write(pipe, json.dumps({"try": number, "call": said[:600]}).encode() + b"\n")
        outcome = "refused"
        try:
            signal.alarm(SECONDS)  # a check may not hang either
            check(args, kwargs)
            outcome = "raised"
            made = function(*args, **kwargs)
            outcome = "ran"
            del made, args, kwargs
        except RefusedError:
            pass
        except Exception:  # an operator may raise anything: only signals count
            pass
        signal.alarm(0)
        os.write(pipe, json.dumps({"done": number, "outcome": outcome}).encode() + b"\n")


def child_of(target: Target, name: str, first: int, last: int, calls: list[Any]) -> tuple[int, list[dict[str, Any]]]:
    """How a child that makes these tries ended, and what it told."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        limited()
        try:
            tries_of(target, name, first, last, calls, write)
            os._exit(0)
        except BaseException:
            os._exit(1)
    os.close(write)
    with open(read, "rb") as told:
        rows = [json.loads(line) for line in told if line.endswith(b"\n")]
    _, status = os.waitpid(child, 0)
    return status, rows


def operator_row(target: Target, name: str, tries: int, calls: list[Any]) -> dict[str, Any]:
    """What all tries of one operator came to: a call that killed is told, and the tries after it go on."""
    counts: collections.Counter[str] = collections.Counter()
    kills, first = [], 0
    while first < tries:
        status, rows = child_of(target, name, first, tries, calls)
        counts.update(row["outcome"] for row in rows if "outcome" in row)
        if not os.WIFSIGNALED(status):
            break
        last = rows[-1] if rows else {"try": first, "call": "?"}
        number = last.get("try", last.get("done", first))
        kills.append({"signal": signal.Signals(os.WTERMSIG(status)).name, "try": number, "call": last.get("call", "?")})
        first = number + 1
        if len(kills) >= 3:
            break
    return {"operator": name, "right_calls": len(calls), **counts, "kills": kills}


# ------------------------------------------------------------------ the whole table


def target_of(make: Any, name: str) -> Target | None:
    """What a name of a table leads to; None where this torch does not have it."""
    try:
        found: Target = make(name)
    except Exception:  # a library that is absent raises its own
        return None
    return found


def calls_of(calls: dict[str, list[Any]], drawn_by: Any) -> list[Any]:
    """The right calls of an operator, or of several."""
    if isinstance(drawn_by, list):
        return [call for each in drawn_by for call in calls.get(str(each), [])]
    return calls.get(str(drawn_by), [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tries", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--callables", action="store_true", help="the functions and methods that GraphNet samples call")
    parser.add_argument("--only", default="", help="operators whose name this pattern is found in")
    parser.add_argument("-o", "--output", type=Path, default=Path("operator_fuzz.jsonl"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    end = time.monotonic() + asked.seconds
    calls = right_calls(6, 240)
    done = (
        {json.loads(line)["operator"] for line in asked.output.read_text().splitlines()}
        if asked.output.exists()
        else set()
    )
    make, table = (callable_of, sorted(callables())) if asked.callables else (operator_of, list(operators()))
    names = [name for name in table if re.search(asked.only, name) and name not in done]
    killed = 0
    with asked.output.open("a") as output:
        for place, name in enumerate(names):
            if time.monotonic() > end:
                print(f"stopped after {place} of {len(names)}: the time is over", file=sys.stderr)
                break
            target = target_of(make, name)
            if target is None:
                continue
            row = operator_row(target, name, asked.tries, calls_of(calls, target[1]))
            killed += bool(row["kills"])
            output.write(json.dumps(row) + "\n")
            output.flush()
    print(f"{len(done) + len(names)} operators, {len(calls)} with right calls, {killed} that kill or hang")


if __name__ == "__main__":
    main()
