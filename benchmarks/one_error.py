"""One error, one word: fifty planted errors, each through every verb that judges.

An error is a change of one result of a small program, gelu between two products: of its output, or of the gradient of
its input, in float32 or bfloat16. It is planted where each verb takes something of yours: in the function of
`bp.check`, in the solution of `bp.swap` and of `task check`, in a compiler of `bench` and of an exported file, in the
file that `bp.lower` wrote, in the graphs that `verify` replays. `bp.derivative` has a column of its own: it compares
two products in float64, so it sees what no rounding of float32 explains (docs/derivative.md), and it asks about the
function's own forward.

    python benchmarks/one_error.py [--only NAME...] [--verbs check,swap,...]

`right` and `wrong` are what a verb said; `-` stands where a verb has no place for the error. The last lines are the
errors that did not get one word, and where `bench` and others differ by what they run, docs/verdicts.md says why.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import io
import json
import re
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# ---- The program, and what is planted in it

NAMES = ("x", "up", "up_bias", "down", "down_bias")


def program(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, up, up_bias)), down, down_bias)


def inputs_of(dtype: torch.dtype) -> tuple[Tensor, ...]:
    source = torch.Generator().manual_seed(11)

    def drawn(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(shape, generator=source)).to(dtype).requires_grad_()

    return drawn(16, 32), drawn(64, 32, scale=0.2), drawn(64), drawn(24, 64, scale=0.2), drawn(24)


class Block(nn.Module):
    """The program as a module, for a swap: the solution gets x and then these, in order."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        for name, tensor in zip(NAMES[1:], tensors[1:], strict=True):
            setattr(self, name, nn.Parameter(tensor.detach().clone()))

    def forward(self, x: Tensor) -> Tensor:
        return program(x, self.up, self.up_bias, self.down, self.down_bias)


Change = Callable[[Tensor], Tensor]


def places(y: Tensor) -> Tensor:
    return torch.arange(y.numel(), device=y.device).view(y.shape)


def largest(y: Tensor) -> Tensor:
    return y.double().abs().nan_to_num(0.0, 0.0, 0.0).max()


def noise(y: Tensor, e: float) -> Tensor:
    """Each element is off by up to a part e of itself, in no order."""
    return (
        y * (1 + e * torch.sin(12.9898 * places(y))).to(y.dtype)
        if e > 1e-3
        else y + (y.double() * e * torch.sin(12.9898 * places(y))).to(y.dtype)
    )


def factor(y: Tensor, e: float) -> Tensor:
    return (y.double() * (1 + e)).to(y.dtype)


def shift(y: Tensor, e: float) -> Tensor:
    return (y.double() + e * largest(y)).to(y.dtype)


def element(y: Tensor, e: float) -> Tensor:
    """One element is off by a part e of the largest."""
    return (y.double() + e * largest(y) * (places(y) == y.numel() // 2)).to(y.dtype)


def row(y: Tensor, e: float) -> Tensor:
    return (y.double() * (1 + e * (places(y) < y.shape[-1]))).to(y.dtype)


def put(number: float) -> Change:
    """One element is this number."""
    return lambda y: torch.where(places(y) == y.numel() // 2, number, y).to(y.dtype)


def by(change: Callable[[Tensor, float], Tensor], *sizes: float) -> dict[str, Change]:
    return {f"{change.__name__} {e:.0e}": functools.partial(change, e=e) for e in sizes}


OF_SIZES: dict[str, Change] = {
    **by(factor, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
    **by(noise, 1e-7, 1e-6, 1e-5, 1e-3, 1e-1),
    **by(element, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2),
}
OF_KINDS: dict[str, Change] = {
    **by(shift, 1e-6, 1e-4),
    **by(row, 1e-5, 1e-2),
    "a row of zeros": lambda y: y * (places(y) >= y.shape[-1]),
    "a sign": lambda y: torch.where(places(y) == 3, -y, y),
    "all signs": torch.neg,
    "NaN": put(float("nan")),
    "infinity": put(float("inf")),
    "two rows exchanged": lambda y: torch.cat([y[1:2], y[:1], y[2:]]),
    "rounded to bfloat16": lambda y: y.bfloat16().to(y.dtype),
}
IN_16_BITS = ("factor 1e-03", "factor 1e-02", "factor 1e-01", "element 1e-02", "a sign", "NaN", "noise 1e-03")


class Error(NamedTuple):
    """A planted error: of the `output`, or of the `gradient` of x, which is computed in a dtype."""

    side: str
    dtype: torch.dtype
    change: Change


def error_table() -> dict[str, Error]:
    half = {name: change for name, change in (OF_SIZES | OF_KINDS).items() if name in IN_16_BITS}
    gradients = {
        name: change
        for name, change in (OF_SIZES | OF_KINDS).items()
        if name.split()[0] in ("factor", "a", "NaN", "all") or name in ("element 1e-04", "element 1e-06", "noise 1e-05")
    }
    tables = (
        ("output", torch.float32, OF_SIZES | OF_KINDS),
        ("gradient", torch.float32, gradients),
        ("output", torch.bfloat16, half),
        ("gradient", torch.bfloat16, {"factor 1e-02": OF_SIZES["factor 1e-02"], "a sign": OF_KINDS["a sign"]}),
    )
    return {
        f"{side}, {str(dtype)[6:]}, {name}": Error(side, dtype, change)
        for side, dtype, table in tables
        for name, change in table.items()
    }


ERRORS = error_table()


class Output(torch.autograd.Function):
    """Another output, and the right gradient."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, change: Change) -> Tensor:
        return change(y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0].clone(), None


class Gradient(torch.autograd.Function):
    """The right output, and another gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Change) -> Tensor:
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.change(grads[0]), None


def planted(name: str, right: Callable[..., Any] = program, place: int = 0) -> Callable[..., Any]:
    """Return a function with an error in its output, or in the gradient of the input at a place. A kernel in float32 is
    not wrong in other dtypes, so the error is only in its own."""
    error = ERRORS[name]

    def wrong(*tensors: Tensor) -> Any:
        taken = list(tensors)
        if error.side == "gradient" and taken[place].dtype is error.dtype:
            taken[place] = Gradient.apply(taken[place], error.change)
        result = right(*taken)
        y = result[0] if isinstance(result, (tuple, list)) else result
        if error.side == "output" and y.dtype is error.dtype:
            y = Output.apply(y, error.change)
        return (y, *result[1:]) if isinstance(result, (tuple, list)) else y

    wrong.__name__ = wrong.__qualname__ = re.sub(r"\W+", "_", name)
    return wrong


def compiler(name: str, module: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a graph of the program, with an error among its results: the output is the first of the forward's, and
    the gradient of x has the shape of x."""
    error = ERRORS[name]
    is_backward = any("tangent" in node.name for node in module.graph.nodes if node.op == "placeholder")

    def run(*values: Any) -> Any:
        results = list(module(*values))
        if is_backward == (error.side == "gradient"):
            shape = (16, 32) if is_backward else (16, 24)
            at = next(place for place, value in enumerate(results) if tuple(value.shape) == shape)
            if results[at].dtype is error.dtype:
                results[at] = error.change(results[at])
        return tuple(results)

    return run


def stem_of(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def compiler_file(name: str, folder: Path) -> str:
    """Write a file with the compiler that plants an error, and return its name for `--compiler` and `--backend`."""
    file = folder / f"{stem_of(name)}.py"
    lines = ["import sys", f"sys.path.insert(0, {str(Path(__file__).parent)!r})", "import one_error", "", ""]
    lines += ["def plant(module, inputs):", f"    return one_error.compiler({name!r}, module, inputs)"]
    file.write_text("\n".join(lines) + "\n")
    return f"{file}:plant"


# ---- The verbs

CAPTURED: dict[torch.dtype, Any] = {}


def captured(dtype: torch.dtype) -> Any:
    import backprint as bp

    if dtype not in CAPTURED:
        CAPTURED[dtype] = bp.capture(program, *inputs_of(dtype), name="one_error")
    return CAPTURED[dtype]


def word(is_right: bool) -> str:
    return "right" if is_right else "wrong"


def by_check(name: str, folder: Path) -> str:
    import backprint as bp

    error = ERRORS[name]
    # Its `derivative` is the question of bp.derivative, which has a column of its own.
    report = bp.check(planted(name), *inputs_of(error.dtype), like=program, raises=False)
    return word(not any(row.verdict == "wrong" and not row.check.startswith("derivative") for row in report.rows))


def by_swap(name: str, folder: Path) -> str:
    import backprint as bp

    tensors = inputs_of(ERRORS[name].dtype)
    model = nn.Sequential(nn.Identity(), Block(tensors))
    proof = bp.swap(model, "1", planted(name)).prove(tensors[0], dtypes=[ERRORS[name].dtype])
    return {"good": "right", "wrong": "wrong"}.get(proof.verdict, proof.verdict)


def by_task(name: str, folder: Path) -> str:
    import backprint as bp

    dtype = ERRORS[name].dtype
    place = folder / f"task_{str(dtype)[6:]}"
    if not place.exists():
        bp.tasks.make(captured(dtype), place)
    ports = [port["name"] for port in json.loads((place / "task.json").read_text())["inputs"]]
    lines = [
        "import sys",
        f"sys.path[:0] = [{str(place)!r}, {str(Path(__file__).parent)!r}]",
        "import one_error, reference",
        f"Solution = one_error.planted({name!r}, reference.Solution.apply, {ports.index('x')})",
    ]
    solution = folder / "solution.py"
    solution.write_text("\n".join(lines) + "\n")
    report = bp.tasks.check(place, solution, timed=False)
    return word(report.right)


def by_bench(name: str, folder: Path) -> str:
    """Bench all errors of a dtype at once, each as a compiler, and return the word for one."""
    import backprint as bp

    dtype = ERRORS[name].dtype
    if dtype not in BENCHED:
        sample = captured(dtype).save(folder / f"sample_{str(dtype)[6:]}")
        compilers = {error: compiler_file(error, folder) for error in ERRORS if ERRORS[error].dtype is dtype}
        out = folder / f"bench_{str(dtype)[6:]}"
        done = bp.bench.run(sample, list(compilers.values()), out, directions=["forward", "backward"], timed=False)
        BENCHED[dtype] = {
            (Path(cell.compiler.partition(":")[0]).stem, cell.direction): cell.outcome for cell in done.cells
        }
    direction = "forward" if ERRORS[name].side == "output" else "backward"
    outcome = BENCHED[dtype][stem_of(name), direction]
    return {"untimed": "right"}.get(outcome, outcome)


BENCHED: dict[torch.dtype, dict[tuple[str, str], str]] = {}


def by_export(name: str, folder: Path) -> str:
    import backprint as bp

    error = ERRORS[name]
    file = folder / f"exported_{str(error.dtype)[6:]}.py"
    if not file.exists():
        bp.export(captured(error.dtype), file, overwrite=True)
    said, before = io.StringIO(), sys.argv
    torch._dynamo.reset()
    sys.argv = [str(file), "--backend", compiler_file(name, folder)]
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            runpy.run_path(str(file), run_name="__main__")
    finally:
        sys.argv = before
    port = r"output \S+" if error.side == "output" else "gradient x"
    words = re.findall(rf"^{port} .*?\b(bitwise|close|wrong|failed|random|nondeterministic)\b", said.getvalue(), re.M)
    assert len(words) == 1, said.getvalue()
    return {"bitwise": "right", "close": "right"}.get(words[0], words[0])


def by_lower(name: str, folder: Path) -> str:
    import backprint as bp

    dtype = ERRORS[name].dtype
    if dtype not in LOWERED:
        LOWERED[dtype] = bp.lower(captured(dtype), name="lowered")
    lowered = LOWERED[dtype]
    lines = [
        "import sys",
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})",
        "import one_error",
        f"{lowered.name} = one_error.planted({name!r}, {lowered.name}, {lowered.face.inputs.index('x')})",
    ]
    wrong = dataclasses.replace(lowered, source=lowered.source + "\n" + "\n".join(lines) + "\n")
    return word(wrong.check().ok)


LOWERED: dict[torch.dtype, Any] = {}


def by_verify(name: str, folder: Path) -> str:
    """Verify the program with the graphs of the one that is wrong."""
    import backprint as bp

    tensors, wrong = inputs_of(ERRORS[name].dtype), planted(name)
    graphs = bp.capture(lambda x, up, up_bias, down, down_bias: wrong(x, up, up_bias, down, down_bias), *tensors)
    verdicts = dataclasses.replace(graphs, origin=captured(ERRORS[name].dtype).origin).verify(derivative=False)
    words = {verdict.verdict for verdict in verdicts}
    return word(words <= {"bitwise", "close"}) if words <= {"bitwise", "close", "wrong"} else ", ".join(sorted(words))


def by_derivative(name: str, folder: Path) -> str:
    import backprint as bp

    answers = bp.derivative(planted(name), *inputs_of(ERRORS[name].dtype))
    return word(all(answer.good for answer in answers))


VERBS: dict[str, Callable[[str, Path], str]] = {
    "check": by_check,
    "swap": by_swap,
    "task": by_task,
    "bench": by_bench,
    "export": by_export,
    "lower": by_lower,
    "verify": by_verify,
    "derivative": by_derivative,
}


def words_of(name: str, folder: Path, verbs: Sequence[str] = tuple(VERBS)) -> Iterator[tuple[str, str]]:
    """Yield what each verb says of an error."""
    for verb in verbs:
        try:
            yield verb, VERBS[verb](name, folder)
        except Exception as error:
            yield verb, f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"


def main() -> int:
    torch.set_num_threads(1)  # of tensors so small, several threads only wait for one another
    reader = argparse.ArgumentParser()
    reader.add_argument("--only", nargs="*", default=list(ERRORS))
    reader.add_argument("--verbs", default=",".join(VERBS))
    given = reader.parse_args()
    verbs = given.verbs.split(",")
    rows: dict[str, dict[str, str]] = {}
    seconds = dict.fromkeys(verbs, 0.0)
    print(f"{'':42} " + " ".join(f"{verb:10}" for verb in verbs))
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only:
            rows[name], began = {}, time.monotonic()
            for verb, said in words_of(name, Path(folder), verbs):
                rows[name][verb] = said
                seconds[verb], began = seconds[verb] + time.monotonic() - began, time.monotonic()
            print(f"{name:42} " + " ".join(f"{said:10}" for said in rows[name].values()), flush=True)
    differ = {name: row for name, row in rows.items() if len({row[verb] for verb in verbs if verb != "derivative"}) > 1}
    print(f"\n{len(rows)} errors, {len(differ)} with several words")
    for name, row in differ.items():
        print(f"  {name}: " + ", ".join(f"{verb} {said}" for verb, said in row.items() if verb != "derivative"))
    print(", ".join(f"{verb} {spent:.0f} s" for verb, spent in seconds.items()))
    if given.only != list(ERRORS) or verbs != list(VERBS):
        return 0
    from results import Figure, keep

    judged = ", ".join(verb for verb in verbs if verb != "derivative")
    figures = [
        Figure(f"errors that have one word in {judged}, of {len(rows)}", len(rows) - len(differ)),
        Figure(
            "errors that are right for all of these, and `not the derivative` in float64",
            sum(set(row.values()) == {"right", "wrong"} and row["derivative"] == "wrong" for row in rows.values()),
        ),
    ]
    return keep("one_error", figures, f"two words, for reasons that `docs/verdicts.md` has: {'; '.join(differ)}")


if __name__ == "__main__":
    sys.modules.setdefault("one_error", sys.modules["__main__"])
    sys.exit(main())
