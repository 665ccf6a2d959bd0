"""Programs that are no loops, lowered to a file of Inductor's kernels."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from fused_programs import PROGRAMS, layer_norm, softmax
from torch import Tensor, nn
from torch.nn import functional as F

import backprint as bp
from face import RefusedError, UsageError, main

pytest.importorskip("triton", reason="Inductor's kernels are written with triton")

FLOAT = torch.float32


def lowered_rows(name: str, columns: int, dtype: torch.dtype = FLOAT) -> bp.types.LoweredGraph:
    """Return a program for every number of rows."""
    function, inputs = PROGRAMS[name]
    lowered = bp.lower(function, lambda rows: inputs(rows, columns, dtype), name=name)
    assert isinstance(lowered, bp.types.LoweredGraph)
    return lowered


@pytest.fixture(scope="module")
def norm() -> bp.types.LoweredGraph:
    return lowered_rows("layer_norm", 17)


# ------------------------------------------------------------------ the file


def test_a_file_needs_torch_and_triton_alone(norm: bp.types.LoweredGraph) -> None:
    imports = [node for node in ast.walk(ast.parse(norm.source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in imports if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} <= {"os", "types", "torch", "triton", "numpy"}
    assert "_inductor" not in norm.source.replace("torch/_inductor/runtime/triton_helpers.py", "")


def test_a_file_has_the_names_and_lines_of_the_program(norm: bp.types.LoweredGraph) -> None:
    assert "def layer_norm(x, w, b):" in norm.source
    assert "tl.load(x_ptr + (r0_1 + 17*x0)" in norm.source
    assert "# native_layer_norm\n#   " in norm.source
    assert "return F.layer_norm(x, (x.shape[-1],), w, b)" in norm.source
    assert max(map(len, norm.source.splitlines())) <= 140


def test_every_number_of_rows_is_one_file(norm: bp.types.LoweredGraph) -> None:
    assert "n = x.shape[0]" in norm.source
    assert "if not (n >= 1 and n <= " in norm.source


def test_what_is_saved_has_the_layout_that_the_backward_takes() -> None:
    # Inductor pads rows of 4,097 elements; the backward would read them without.
    lowered = bp.lower(softmax, (torch.randn(6, 4097, requires_grad=True),))
    assert "output = torch.empty((6, 4097)," in lowered.source
    assert "4128" not in lowered.source


def test_bytes_are_counted_against_the_least(norm: bp.types.LoweredGraph) -> None:
    count = norm.traffic()["forward"]
    assert count.moved == count.least == 4 * (2 * 128 * 17 + 2 * 17 + 2 * 128)
    lines = norm.explain().splitlines()
    assert lines[0].startswith("layer_norm: 1 kernel forward, 2 kernels backward, of Inductor")
    assert any("17 elements, each of 128" in line for line in lines)
    assert any("is not one with the kernel before, which has 128 elements, each of 17" in line for line in lines)


@pytest.mark.slow
def test_inductor_chooses_for_the_larger_length() -> None:
    function, inputs = PROGRAMS["layer_norm"]
    lowered = bp.lower(function, lambda rows: inputs(rows, 1024, FLOAT), (5200, 5248))
    assert isinstance(lowered, bp.types.LoweredGraph)
    assert lowered.explain().startswith("layer_norm: 1 kernel forward, 1 kernel backward")
    assert lowered.traffic()["backward"].ratio < 1.1
    assert lowered.file.conditions[0] == "n >= 5120", "below, it would choose other kernels"
    with pytest.raises(UsageError, match=r"is not for 128: only where n >= 5120"):
        lowered.check((128,))


def test_a_loop_is_still_one_kernel_a_direction() -> None:
    def average(x: Tensor) -> Tensor:
        v, out = torch.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            v = v * 0.5 + x[t]
            out.append(v)
        return torch.stack(out)

    lowered = bp.lower(average, lambda steps: torch.randn(steps, 3, requires_grad=True))
    assert isinstance(lowered, bp.types.LoweredLoop)
    unrolled = bp.lower(average, torch.randn(3, 3, requires_grad=True))
    assert isinstance(unrolled, bp.types.LoweredGraph)


# ------------------------------------------------------------------ right


@pytest.mark.slow
def test_a_file_is_right_at_several_sizes(norm: bp.types.LoweredGraph) -> None:
    comparison = norm.check((1, 2, 130))
    assert comparison.ok, comparison
    assert {row.size for row in comparison.rows} == {"size 1", "size 2", "size 130"}
    assert {row.port for row in comparison.rows} == {"output output", "gradient x", "gradient w", "gradient b"}


FAULTS = {
    "another sign": ("tmp10 = tmp1 - tmp9", "tmp10 = tmp1 + tmp9"),
    "another number": ("1e-05", "1e-03"),
    "a result at another place": ("grad_w_ptr + (x0)", "grad_w_ptr + (16 - x0)"),
    "two results swapped": ("return grad_x, grad_w, grad_b\n\n\nclass", "return grad_x, grad_b, grad_w\n\n\nclass"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(norm: bp.types.LoweredGraph, fault: str) -> None:
    old, new = FAULTS[fault]
    assert old in norm.source
    wrong = replace(norm, source=norm.source.replace(old, new))
    assert not wrong.check((5,)).ok


@pytest.mark.slow
def test_a_read_outside_of_memory_is_seen(norm: bp.types.LoweredGraph) -> None:
    wrong = replace(norm, source=norm.source.replace("w_ptr + (r0_1)", "w_ptr + (r0_1 + 1)"))
    with pytest.raises(RefusedError, match="outside of its arguments"):
        wrong.check((5,))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "columns"), [*((name, 17) for name in PROGRAMS), ("softmax", 1), ("softmax", 4097), ("layer_norm", 4097)]
)
def test_rows_of_all_lengths(name: str, columns: int) -> None:
    function, inputs = PROGRAMS[name]
    torch.manual_seed(0)
    comparison = lowered_rows(name, columns).check((1, 6))
    assert comparison.ok, comparison
    if columns == 17:
        comparison = bp.lower(function, inputs(6, columns, FLOAT), name=name).check()
        assert comparison.ok, comparison


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"), [("softmax", torch.float16), ("rms_norm", torch.bfloat16), ("rotary", torch.float64)]
)
def test_other_dtypes(name: str, dtype: torch.dtype) -> None:
    comparison = lowered_rows(name, 33, dtype).check((1, 7))
    assert comparison.ok, comparison


def channels_last(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last).requires_grad_()


LAYOUTS: dict[str, tuple[Any, Any]] = {
    "a gradient that is a view": (lambda x: (x + 1).permute(2, 0, 1), (torch.randn(3, 4, 5, requires_grad=True),)),
    "channels last": (lambda x, w: torch.relu(F.conv2d(x, w)), (channels_last(2, 3, 8, 8), torch.randn(4, 3, 3, 3))),
    "transposed": (lambda x: x.softmax(0), (torch.randn(5, 7).t().requires_grad_(),)),
    "indices of the program": (lambda x: x[[0, 2]].exp(), (torch.randn(3, 4, requires_grad=True),)),
    "by columns": (lambda x: torch.linalg.svdvals(x).exp(), (torch.randn(5, 3, requires_grad=True),)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_those_of_the_program(name: str) -> None:
    function, inputs = LAYOUTS[name]
    comparison = bp.lower(function, inputs, name="program").check()
    assert comparison.ok, comparison


class Block(nn.Module):
    """A block with a convolution, a norm, products and an embedding's gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 16)

    def forward(self, index: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.table(index)
        y = x + self.out(self.norm(self.conv(x)).atan())
        return y, {"largest": y.argmax(-1)}


@pytest.mark.slow
def test_a_module_with_calls_of_libraries() -> None:
    torch.manual_seed(0)
    block = Block()
    lowered = bp.lower(block, torch.randint(0, 11, (3, 4)))
    assert "torch.convolution(" in lowered.source
    assert "torch.addmm(" in lowered.source or "torch.mm(" in lowered.source
    assert lowered.check().ok
    assert set(lowered.module().state_dict()) == set(block.state_dict())


@pytest.mark.slow
def test_a_sample_is_compared_with_its_graphs(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.3))
    bp.save(bp.capture(model, torch.randn(5, 4)), tmp_path / "sample")
    done = CliRunner().invoke(main, ["lower", str(tmp_path / "sample"), "-o", str(tmp_path / "kernels.py"), "--check"])
    assert done.exit_code == 0, done.output
    assert "0 wrong" in done.output


ALONE = """
import torch
from kernels import softmax

x = torch.randn(3, 33, requires_grad=True)
y = softmax(x)
g = torch.randn_like(y)
(mine,) = torch.autograd.grad(y, x, g)
(right,) = torch.autograd.grad(torch.softmax(x, -1), x, g)
assert torch.allclose(y, torch.softmax(x, -1), atol=1e-6), (y - torch.softmax(x, -1)).abs().max()
assert torch.allclose(mine, right, atol=1e-6), (mine - right).abs().max()
print("right")
"""


@pytest.mark.slow
def test_a_file_runs_in_the_interpreter_as_it_is(tmp_path: Path) -> None:
    bp.lower(softmax, (torch.randn(3, 33, requires_grad=True),)).save(tmp_path / "kernels.py")
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=tmp_path,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "right\n", done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_of_a_graph_are_compiled_without_a_gpu(norm: bp.types.LoweredGraph, capability: int) -> None:
    built = norm.build(capability)
    assert [kernel.name for kernel in built] == [kernel.name for kernel in norm.file.kernels]
    assert all(f".target sm_{capability}" in kernel.ptx for kernel in built)
    assert all(kernel.spilled in (0, None) for kernel in built)


# ------------------------------------------------------------------ refused by name


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "statistics": (nn.BatchNorm1d(4), (torch.randn(7, 4),), r"writes to running_mean, .*write them outside"),
    "libraries alone": (lambda x, y: x @ y, (draw(7, 4), draw(4, 7)), r"writes no kernel"),
    "an argument": (lambda x, y: (x, x + y), (draw(7), draw(7)), r"returns its argument x as it is"),
    "a value": (lambda x: x.sin() if x.sum() > 0 else x, (torch.ones(3, requires_grad=True),), r"depends on gt"),
    "a mask": (lambda x: x[x > 0].sin(), (torch.randn(5, 5, requires_grad=True),), r"depends on a value, .*shape"),
    "no size": (softmax, lambda n: (draw(3, 4),), r"no argument has a size that changes"),
    "no tensor": (lambda: torch.arange(4.0).sin(), (), r"takes no tensor, .*: pass what it makes to it"),
    "a free stride": (softmax, lambda n: torch.randn(n, 9)[:, :3], r"strides \(s0, 1\), .*: pass it contiguous"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_kernels_cannot_be_is_refused_by_name(name: str) -> None:
    function, inputs, why = REFUSED[name]
    with pytest.raises(RefusedError, match=why):
        bp.lower(function, inputs)


def test_a_free_size_may_be_a_stride() -> None:
    lowered = bp.lower(softmax, lambda n: torch.randn(3, n).t().requires_grad_(), (6, 8))
    assert "x = laid(x, (1, n,))" in lowered.source
    assert lowered.check((1, 5)).ok


@pytest.mark.slow
def test_a_tensor_that_is_returned_twice_has_two_tangents() -> None:
    """As the loss of a model of transformers, which is in its output too."""

    def twice(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss = x.sin().sum(1)
        return loss, x.cos().T, loss

    lowered = bp.lower(twice, (draw(3, 4),))
    assert ".clone()" in lowered.source
    assert lowered.check().ok


@pytest.mark.slow
def test_a_saved_value_that_was_expanded_reaches_the_backward_as_it_was_captured() -> None:
    """Inductor's forward writes such a value as a whole tensor."""

    def one_key_for_two_heads(q: Tensor, k: Tensor) -> Tensor:
        scaled = k.transpose(-2, -1) * 0.5
        return torch.bmm(q, scaled.expand(1, 2, 4, 19).view(2, 4, 19)).softmax(-1)

    drawn = tuple(torch.randn(shape, requires_grad=True) for shape in ((2, 19, 4), (1, 1, 19, 4)))
    lowered = bp.lower(one_key_for_two_heads, drawn)
    assert "[:1, :, :], (0, 4, 1,)).expand(2, 19, 4)" in lowered.source
    assert lowered.check().ok


def test_names_of_a_file_are_left_to_it() -> None:
    def laid(n: Tensor, device: Tensor) -> Tensor:
        return (n + device).softmax(-1)

    lowered = bp.lower(laid, lambda rows: (draw(rows, 3), draw(rows, 3)))
    assert lowered.name == "laid_"
    assert "def laid_(n_1, device_):" in lowered.source, "n is the free size"
    assert "n = n_1.shape[0]" in lowered.source
    assert "def laid(tensor, stride):" in lowered.source


def test_results_do_not_take_the_names_of_inputs_or_of_each_other() -> None:
    def transposed(output: Tensor, w: Tensor) -> Tensor:
        return (torch.sin(output) * w).t()[:, :]

    lowered = bp.lower(transposed, (draw(5, 6), draw(6)))
    assert "output_1 = transposed_forward(output, w)" in lowered.source, "the backward reads the input"
    assert lowered.check().ok

    def twice(x: Tensor) -> dict[str, Tensor]:
        sine = x.sin()
        return {"a": sine, "b": sine, "b_again": x.cos()}

    assert bp.lower(twice, draw(5, 6)).check().ok


def test_wrong_calls() -> None:
    capture = bp.capture(softmax, draw(3, 4))
    with pytest.raises(UsageError, match="a Capture takes no further inputs"):
        bp.lower(capture, (draw(3, 4),))
    with pytest.raises(UsageError, match="pass a function or a module and its inputs"):
        bp.lower(softmax)
    with pytest.raises(UsageError, match="is for the captured sizes"):
        bp.lower(capture).check((3,))


def test_a_module_of_kernels_says_where_it_runs() -> None:
    lowered = bp.lower(layer_norm, (draw(3, 4), draw(4), draw(4)))
    with pytest.raises(UsageError, match="TRITON_INTERPRET=1 before triton is imported"):
        lowered.module()(draw(3, 4), draw(4), draw(4))


FACTORY = """
import torch

def factory():
    return torch.nn.GELU(), (torch.randn(3, 4, requires_grad=True),)
"""


def test_a_factory_without_a_number(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(FACTORY, encoding="utf-8")
    target, out = f"{tmp_path}/made.py:factory", str(tmp_path / "kernels.py")
    done = CliRunner().invoke(main, ["lower", target, "-o", out])
    assert done.exit_code == 0, done.output
    assert "gelu: 1 kernel forward, 1 kernel backward, of Inductor" in done.output
    done = CliRunner().invoke(main, ["lower", target, "-o", out, "--overwrite", "--lengths", "6,7"])
    assert "takes no number" in done.output
