"""Saved kernels as files of their own: they run without Inductor and Backprint, and are right."""

from __future__ import annotations

import ast
import ctypes
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import kernels_alone
import pytest
import torch
import torch.nn.functional as F
from subjects.forked import run_python
from test_extract_kernels import needs_triton
from torch import Tensor, nn

import backprint as bp
from face import (
    BandedMemory,
    FusedOperator,
    Kernel,
    OutsideMemoryError,
    RefusedError,
    extract_kernels,
    helper_definitions,
    standalone_text,
    template,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, of Inductor's import


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, index: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.out(self.table(index)).view(-1, 50), target.view(-1))


def softmax_of_long_rows(x: Tensor) -> Tensor:
    return (x * 2).softmax(-1).sqrt()


def masked(x: Tensor, mask: Tensor) -> Tensor:
    y = torch.where(mask, x.half(), 0.5)
    return y.sin() * mask


MODELS: dict[str, Any] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8), nn.Softmax(-1)), torch.randn(4, 16)),
    "layer norm": lambda: (nn.Sequential(nn.LayerNorm(300), nn.Tanh()).bfloat16(), torch.randn(6, 300).bfloat16()),
    "batch norm": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        torch.randn(2, 3, 8, 8),
    ),
    "embedding": lambda: (Embedded(), torch.randint(0, 50, (2, 7)), torch.randint(0, 50, (2, 7))),
    "mask": lambda: (masked, torch.randn(5, 7, requires_grad=True), torch.rand(5, 7) > 0.5),
    "long rows": lambda: (softmax_of_long_rows, torch.randn(2, 1100, requires_grad=True)),
}


@cache
def kernels_of(model: str, target: str) -> tuple[Kernel, ...]:
    torch.manual_seed(0)
    program, *inputs = MODELS[model]()
    options = {"mode": "train"} if isinstance(program, nn.Module) else {}
    found = extract_kernels(bp.capture(program, *inputs, **options), target)
    assert found.refused == ()
    assert {kernel.direction for kernel in found} == {"forward", "backward"}
    return tuple(found)


def gelu(target: str = "cuda:90") -> Kernel:
    return next(kernel for kernel in kernels_of("mlp", target) if "gelu_0" in kernel.name)


def recorded(text: str, name: str) -> Any:
    """The value of a name in a file, which is not run."""
    values = [
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets) == name
    ]
    return ast.literal_eval(values[0])


def run_file(place: Path, text: str) -> subprocess.CompletedProcess[str]:
    place.write_text(text)
    blocked = "import runpy, sys; sys.modules.update({'torch._inductor': None, 'backprint': None}); "
    code = f"{blocked}runpy.run_path({str(place)!r}, run_name='__main__')"
    return run_python(["-c", code], flags=["-P"], env={"PATH": "/usr/bin:/bin"}, loaded="torch")


# ------------------------------------------------------------------ they run, and are right


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("model", MODELS)
def test_triton_kernels_alone_give_what_the_wrappers_own_give(model: str) -> None:
    kernels = list(kernels_of(model, "cuda:90"))
    row = kernels_alone.checked_alone(kernels)
    assert row.kernels == len(kernels)
    assert row.runs == sum(len(set(kernel.calls)) * len(kernel.configurations) for kernel in kernels)
    assert row.right == row.runs


@pytest.mark.slow
@needs_triton
def test_a_file_that_is_wrong_is_seen_to_be(tmp_path: Path) -> None:
    kernel = gelu()
    kernels_alone.save_kernels([kernel], tmp_path)
    wrong = replace(kernel, source=kernel.source.replace("0.5, tl.float32", "0.5001, tl.float32"))
    assert wrong.source != kernel.source
    (tmp_path / "kernel_000.py").write_text(standalone_text(wrong))
    kernels_alone.run_alone(tmp_path)
    kernels_alone.started([str(tmp_path)], {"TRITON_INTERPRET": "1"})
    [(found, close)] = kernels_alone.compared(tmp_path)
    assert found > close


@pytest.mark.slow
@needs_triton
def test_a_file_runs_from_the_command_line_and_sees_configurations_that_disagree(tmp_path: Path) -> None:
    kernel = next(one for one in kernels_of("embedding", "cuda:90") if len(one.configurations) > 1)
    done = run_file(tmp_path / "kernel.py", standalone_text(kernel))
    assert (done.returncode, done.stderr) == (0, "")
    assert kernel.name in done.stdout
    assert "interpreter" in done.stdout
    assert "the configurations agree" in done.stdout
    store = "tl.store(out_ptr0 + (x2), tmp2"
    wrong = replace(kernel, source=kernel.source.replace(store, f"{store} + XBLOCK"))
    assert wrong.source != kernel.source
    done = run_file(tmp_path / "wrong.py", standalone_text(wrong))
    assert done.returncode == 1
    assert "out_ptr0 differs by" in done.stdout


@needs_triton
def test_the_code_for_a_gpu_is_that_of_the_wrapper() -> None:
    kernels = [one for one in kernels_of("embedding", "cuda:90") if "embedding" in one.name or "softmax" in one.name]
    count, same = kernels_alone.same_ptx(kernels)
    assert count == same == sum(len(kernel.configurations) for kernel in kernels) > 3


def test_a_kernel_knows_the_instructions_it_is_written_for() -> None:
    known = {"AVX2": "avx2", "AVX512": "avx512", "NO AVX": "scalar"}
    wanted = known.get(torch.backends.cpu.get_cpu_capability())
    if wanted is None or shutil.which("g++") is None:
        pytest.skip("a processor whose instructions are not in this test, or no compiler")
    assert {kernel.isa for kernel in kernels_of("mlp", "cpu")} == {wanted}


# ------------------------------------------------------------------ their arguments


def between(kernel: Kernel) -> dict[str, Any]:
    """Between which values each tensor of the first call is drawn."""
    return {
        row["name"]: row["between"]
        for row in recorded(standalone_text(kernel), "CALLS")[0]["arguments"]
        if "between" in row
    }


@needs_triton
def test_no_index_is_outside_of_what_the_program_looked_up() -> None:
    torch.manual_seed(0)
    table, index, target = Embedded(), *MODELS["embedding"]()[1:]
    capture = bp.capture(table, index, target, mode="train")
    found = {kernel.name: between(kernel) for kernel in extract_kernels(capture, "cuda:90")}
    gather = found["triton_poi_fused_embedding_0"]
    assert gather["in_ptr0"] == (index.min().item(), index.max().item())
    assert gather["in_ptr1"] == pytest.approx((table.table.weight.min().item(), table.table.weight.max().item()))
    assert gather["out_ptr0"] == (0, 0)
    losses = [spans for name, spans in found.items() if "nll_loss" in name]
    assert losses
    assert all((target.min().item(), target.max().item()) in spans.values() for spans in losses)


@needs_triton
def test_roots_have_the_numbers_that_the_program_had_or_positive_ones() -> None:
    def program(x: Tensor) -> Tensor:
        return (x * x).mean(-1).sqrt()

    x = torch.randn(3, 1100, requires_grad=True)
    for kernel in extract_kernels(bp.capture(program, x), "cuda:90"):
        for name, (low, high) in between(kernel).items():
            assert low > 0 or low == high == 0 or (low, high) == (x.min().item(), x.max().item()), (kernel.name, name)


@needs_triton
def test_a_value_between_two_kernels_has_none_of_an_inputs_memory() -> None:
    """The memory of an input that is overwritten holds another value afterwards."""

    def program(index: Tensor, table: Tensor) -> Tensor:
        later = torch.where(index > 3, index - 4, index) * 2
        return table.index_select(0, later.sort().values)

    index = torch.arange(8).repeat(40)
    capture = bp.capture(program, index, torch.randn(8, 300), requires_grad=False)
    for kernel in extract_kernels(capture, "cuda:90"):
        for name, (_, high) in between(kernel).items():
            if name.startswith("in_ptr") and isinstance(high, int):
                assert high in (0, 7), (kernel.name, name)


def test_kernels_of_graphs_that_do_not_run_here_say_why_they_have_no_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **options: Any) -> None:
        raise RuntimeError("no such device")

    monkeypatch.setattr("backprint.tools.kernels.ranges.replay", fails)
    found = extract_kernels(bp.capture(nn.GELU(), torch.randn(4, requires_grad=True)), "cpu:avx2")
    arguments = [one for kernel in found for call in kernel.calls for one in call.arguments]
    assert arguments
    assert {one.low for one in arguments} == {None}
    assert {graph.notes[-1] for graph in found.graphs} == {
        "ranges of arguments are not known: RuntimeError: no such device"
    }


@pytest.mark.parametrize("place", [-1, 5])
def test_a_write_beside_a_buffer_is_seen(place: int) -> None:
    """Also in the bytes behind the last element that an allocator would add."""
    memory = BandedMemory()
    buffer = memory.empty((5,), (1,), torch.float32)
    memory.check([buffer])
    ctypes.c_float.from_address(buffer.data_ptr() + place * buffer.element_size()).value = 1.0
    with pytest.raises(OutsideMemoryError, match="outside of its argument 0"):
        memory.check([buffer])


# ------------------------------------------------------------------ hostile text, and what is refused

HOSTILE = (
    'x"\nraise SystemExit(7)\n"',
    "x'''\nraise SystemExit(7)\n'''",
    'x"""; raise SystemExit(7)',
    "x\r\nraise SystemExit(7)",
    "x\rraise SystemExit(7)\x0c\x0b\x1c\x85\u2028\u2029raise SystemExit(7)",
    "-*- coding: utf-7 -*- +AAo-raise SystemExit(7)",
    "x\\",
    "{raise_} %s {0} \\N{BULLET} \\x41",
    "\u202e\ud800\0 x",
)


def shape_of(text: str) -> str:
    """The syntax tree of a file without its constants."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = 0
    return ast.dump(tree)


@needs_triton
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    kernel = replace(gelu(), operators=(FusedOperator("aten.gelu.default", "gelu", "a line"),))
    odd = replace(
        kernel,
        sample=text,
        direction=text,
        compiler=text,
        target=text,
        operators=(FusedOperator(text, text, text),),
    )
    written = standalone_text(odd)
    assert shape_of(written) == shape_of(standalone_text(kernel))
    assert written.encode("utf-8").decode("utf-8").splitlines() == written.split("\n")[:-1]
    assert "coding" not in "".join(written.splitlines()[:2])


@needs_triton
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("triton_helpers.set_driver_to_gpu()", "import os\nos.system('x')", "only triton.jit functions and constants"),
        ("@triton.jit", "@open('x')\n@triton.jit", "has the decorator open"),
        ("@triton.jit", "@triton.jit(do_not_specialize=[])", "has the decorator triton.jit"),
        ("tl.load(in_ptr0", "elsewhere.load(in_ptr0", "it uses elsewhere"),
        ("tl.load(in_ptr0", "triton_helpers.elsewhere(in_ptr0", "triton_helpers.elsewhere is not in PyTorch"),
        (
            "@triton.jit",
            "@triton.jit\ndef make(x):\n    return x\n@triton.jit",
            "it defines make, a name that Backprint's files use",
        ),
        ("triton_meta={", "triton_meta={**{}, 'configs': open('x'), 'signature': open('x'), ", "is not a literal"),
        ("inductor_meta=", "other_meta=", "its decorator has no inductor_meta"),
    ],
)
def test_what_no_file_of_its_own_can_hold_is_refused_by_name(old: str, new: str, says: str) -> None:
    kernel = gelu()
    assert old in kernel.source
    with pytest.raises(RefusedError, match=says):
        standalone_text(replace(kernel, source=kernel.source.replace(old, new, 1)))


@needs_triton
def test_a_kernel_without_calls_and_one_in_cpp_are_refused() -> None:
    with pytest.raises(RefusedError, match="no recorded call"):
        standalone_text(replace(gelu(), calls=()))
    with pytest.raises(RefusedError, match="a kernel in cpp has no file"):
        standalone_text(gelu("cpu:avx2"))


def test_no_function_of_pytorch_hides_a_name_that_the_file_uses() -> None:
    helpers = set(helper_definitions())
    for part in ("common", "triton", "interpreter"):
        names = {node.id for node in ast.walk(ast.parse(template(part))) if isinstance(node, ast.Name)}
        assert names & helpers == set(), part
