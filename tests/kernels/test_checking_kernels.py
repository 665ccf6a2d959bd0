"""Kernels are run and compared with the captured graphs in eager: right ones are good, and errors are seen."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from kernels.check_faults import planted_and_checked
from kernels.test_extract_kernels import needs_triton
from torch import Tensor, nn

import backprint as bp
from face import (
    KERNELS_EAGER,
    CaptureKernels,
    UsageError,
    Verdict,
    column_of_derivatives,
    derivatives_of_pairs,
    extract_kernels,
    main,
    with_derivatives,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]  # torch's own, of Inductor's import

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="C++ kernels need a compiler: install g++")


class Attention(nn.Module):
    """Attention with fewer heads of keys than of queries, a mask, and norms without a mean, as in a Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.q, self.kv, self.out = nn.RMSNorm(32), nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.norm(x)
        q = self.q(y).unflatten(-1, (4, 8)).transpose(1, 2)
        k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in self.kv(y).chunk(2, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return x + F.silu(self.out(y.transpose(1, 2).flatten(2)))


class Classified(nn.Module):
    """Its embedding's gradient is added up by atomic operations."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.out(self.embedding(tokens)).flatten(0, 1), targets.flatten())


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(torch.tanh(self.layer(x)), 0.3)


def total(x: Tensor) -> Tensor:
    return (x * x).sum()


def long_rows(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1)


def variance(x: Tensor) -> Tensor:
    return x.var(-1) + x.mean(-1)


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype)


def classes() -> tuple[Tensor, ...]:
    return torch.randint(0, 50, (2, 7)), torch.randint(0, 50, (2, 7))


PROGRAMS: dict[str, Any] = {
    "layer norm": lambda: (nn.Sequential(nn.LayerNorm(300), nn.Tanh()), (numbers(6, 300),)),
    "layer norm in bfloat16": lambda: (
        nn.Sequential(nn.LayerNorm(300), nn.Tanh()).bfloat16(),
        (numbers(6, 300, dtype=torch.bfloat16),),
    ),
    "batch norm": lambda: (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        (numbers(2, 3, 8, 8),),
    ),
    "attention": lambda: (Attention(), (numbers(2, 8, 32), torch.ones(8, 8, dtype=torch.bool).tril())),
    "dropout": lambda: (Dropped(), (numbers(4, 16),)),
    "dropout in bfloat16": lambda: (Dropped().bfloat16(), (numbers(4, 16, dtype=torch.bfloat16),)),
    "atomics": lambda: (Classified(), classes()),
    "split reduction": lambda: (total, (numbers(2**18 + 77).requires_grad_(),)),
    "looped reduction": lambda: (long_rows, (numbers(3, 5000).requires_grad_(),)),
    "welford": lambda: (variance, (numbers(3, 5000).requires_grad_(),)),
}


def made(name: str, target: str) -> CaptureKernels:
    torch.manual_seed(0)
    program, inputs = PROGRAMS[name]()
    options = {"mode": "train"} if isinstance(program, nn.Module) else {}
    return extract_kernels(bp.capture(program, *inputs, **options), target)


def told(verdicts: list[Verdict]) -> str:
    return "\n".join(f"{each.name}: {each.verdict}: {each.detail} {each.ports}" for each in verdicts)


OF_A_GPU = ("dropout in bfloat16", "looped reduction", "welford")
"""What C++ has no form of its own for."""

RIGHT = [
    *(pytest.param(name, "cuda:90", marks=needs_triton) for name in PROGRAMS),
    *(pytest.param(name, "cpu", marks=needs_compiler) for name in PROGRAMS if name not in OF_A_GPU),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target"), RIGHT)
def test_right_kernels_are_good(name: str, target: str) -> None:
    kernels = made(name, target)
    assert not kernels.refused
    found = kernels.check()
    assert [verdict.name for verdict in found] == ["pair_0 forward", "pair_0 backward"]
    assert all(verdict.good for verdict in found), told(found)
    for graph, verdict in zip(kernels.graphs, found, strict=True):
        drawn = "were inputs, with what eager drew" in verdict.detail  # other kernels than those of the graph
        assert drawn or f"{len(graph.kernels)} of {len(graph.kernels)} kernels ran" in verdict.detail
        assert {port.witness for port in verdict.ports} == {KERNELS_EAGER}
    if name.startswith("dropout"):
        assert "1 draws of aten.bernoulli.p were inputs, with what eager drew" in found[0].detail


def repeated(x: Tensor) -> Tensor:
    return (x.tanh() * 2.5).repeat(3, 1).reshape(-1, x.shape[0] * 3).sum(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [pytest.param("cuda:90", marks=needs_triton), pytest.param("cpu", marks=needs_compiler)]
)
def test_a_graph_with_symbols_is_lowered_for_the_sizes_of_its_capture(target: str) -> None:
    capture = bp.capture(repeated, numbers(5, 8).requires_grad_(), dynamic=True)
    kernels = extract_kernels(capture, target)
    assert not kernels.refused
    forward, backward = kernels.graphs
    assert "sizes are those of the capture: s0 = 5, s1 = 8" in forward.notes
    assert forward.guards[:2] == ("s0 == 5", "s1 == 8")
    assert {port.value for port in backward.inputs if port.role == "saved" and port.dtype == "int"} == {5, 8, 15}
    found = kernels.check()
    assert all(verdict.good for verdict in found), told(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [pytest.param("cuda:90", marks=needs_triton), pytest.param("cpu", marks=needs_compiler)]
)
def test_the_mask_of_a_native_dropout_is_an_input_of_the_check(target: str) -> None:
    capture = bp.capture(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.3)), numbers(4, 16), mode="train", engine="aot")
    kernels = extract_kernels(capture, target)
    found = kernels.check()
    assert "1 draws of aten.native_dropout.default were inputs, with what eager drew" in found[0].detail
    assert all(verdict.good for verdict in found), told(found)


@pytest.mark.slow
@needs_triton
def test_every_configuration_runs_if_it_is_asked_for() -> None:
    kernels = made("layer norm", "cuda:80")
    assert max(len(kernel.configurations) for kernel in kernels) > 1
    (_, first), (forward, backward) = kernels.check(), kernels.check("all")
    assert "the first configuration of each" in first.detail
    assert "all of" in backward.detail
    assert forward.good
    assert backward.good
    with pytest.raises(UsageError, match="configurations='some'"):
        kernels.check("some")


def changed(kernels: CaptureKernels, place: int, before: str, after: str) -> CaptureKernels:
    """The same with a text in the kernels of one graph replaced."""
    graph = kernels.graphs[place]
    sources = [kernel.source for kernel in graph.kernels]
    assert any(before in source for source in sources)
    other = tuple(replace(kernel, source=kernel.source.replace(before, after)) for kernel in graph.kernels)
    graphs = [replace(graph, kernels=other) if at == place else each for at, each in enumerate(kernels.graphs)]
    return replace(kernels, graphs=tuple(graphs))


@pytest.mark.slow
@needs_triton
def test_an_error_is_seen_in_the_graph_that_has_it() -> None:
    kernels = made("layer norm", "cuda:90")
    forward, backward = changed(kernels, 0, "libdevice.tanh", "libdevice.sin").check()
    assert forward.verdict == "wrong"
    assert "output output" in forward.detail
    assert backward.good, "it is judged by eager's backward on what these kernels saved"


@pytest.mark.slow
@needs_triton
def test_a_backward_alone_takes_what_eager_saves() -> None:
    torch.manual_seed(0)
    program, inputs = PROGRAMS["layer norm in bfloat16"]()
    capture = bp.capture(program, *inputs, mode="train")
    (found,) = extract_kernels(capture, "cuda:90", "backward").check()
    assert found.good, told([found])
    assert "what its forward saves was eager's" in found.detail


@pytest.mark.slow
@needs_triton
def test_a_write_outside_of_the_arguments_is_seen() -> None:
    forward, backward = changed(
        made("layer norm", "cuda:90"), 0, "r0_index < r0_numel", "r0_index < r0_numel + 1"
    ).check()
    assert forward.verdict == "failed"
    assert "elements outside of its arguments" in forward.detail
    assert backward.verdict == "unproven"
    assert "the kernels of its forward did not run" in backward.detail


@pytest.mark.slow
@needs_triton
def test_a_function_that_the_interpreter_lacks_is_named() -> None:
    forward, _ = changed(made("layer norm", "cuda:90"), 0, "libdevice.tanh", "libdevice.rcbrt").check()
    assert forward.verdict == "unproven"
    assert "no libdevice.rcbrt" in forward.detail


@pytest.mark.slow
@needs_triton
def test_a_kernel_that_no_call_runs_is_named() -> None:
    kernels = made("layer norm", "cuda:90")
    forward, backward = kernels.graphs
    idle = replace(forward.kernels[0], name="triton_idle")
    graphs = (replace(forward, kernels=(*forward.kernels, idle)), backward)
    found = replace(kernels, graphs=graphs).check()
    assert found[0].verdict == "unproven"
    assert "triton_idle did not" in found[0].detail


@pytest.mark.slow
@needs_triton
def test_a_kernel_that_draws_and_is_not_the_compilers_is_not_called_good() -> None:
    found = changed(made("dropout", "cuda:90"), 0, "libdevice.tanh", "libdevice.sin").check()
    assert found[0].verdict == "unproven"
    assert "not what the compiler writes of this graph" in found[0].detail


@pytest.mark.slow
@needs_compiler
def test_kernels_that_do_not_compile_or_crash_are_failed() -> None:
    kernels = made("layer norm", "cpu")
    forward, _ = changed(kernels, 0, 'extern "C"', "no type").check()
    assert forward.verdict == "failed"
    assert "cannot be compiled" in forward.detail
    forward, backward = changed(kernels, 0, "auto tmp0 = ", "__builtin_trap(); auto tmp0 = ").check()
    assert forward.verdict == "failed"
    assert "killed by SIG" in forward.detail
    assert backward.verdict == "unproven"


@needs_compiler
def test_a_process_that_takes_too_long_is_ended() -> None:
    forward, backward = made("layer norm", "cpu").check(timeout=0.01)
    assert (forward.verdict, backward.verdict) == ("failed", "failed")
    assert "still at work after 0.01 s" in forward.detail


def test_instructions_that_a_machine_lacks_are_unproven() -> None:
    other = "neon" if torch.backends.cpu.get_cpu_capability().startswith("AVX") else "avx2"
    found = made("layer norm", f"cpu:{other}").check()
    assert {verdict.verdict for verdict in found} == {"unproven"}
    assert f"this machine lacks the instructions {other}" in found[0].detail


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [pytest.param("cuda:90", marks=needs_triton), pytest.param("cpu", marks=needs_compiler)]
)
def test_a_workspace_leaves_the_other_ports_to_judge_by(target: str) -> None:
    torch.manual_seed(0)
    kernels = extract_kernels(bp.capture(nn.LSTM(4, 8), numbers(5, 2, 4), mode="train"), target)
    found = kernels.check()
    assert all(verdict.good for verdict in found), told(found)
    assert "workspace" in found[0].detail or "two eager runs give different values" in found[0].detail


def test_a_graph_without_kernels_is_unproven() -> None:
    kernels = extract_kernels(bp.capture(nn.LSTM(4, 8), numbers(5, 2, 4), mode="train"), "cpu:avx2")
    (found,) = replace(kernels, graphs=(), refused=(("pair_0", "no rule"),)).check()
    assert (found.verdict, found.detail) == ("unproven", "no kernels: no rule")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target", "every"),
    [
        pytest.param("layer norm", "cuda:90", 3, marks=needs_triton),
        pytest.param("atomics", "cuda:90", 5, marks=needs_triton),
        pytest.param("layer norm", "cpu", 9, marks=needs_compiler),
    ],
)
def test_planted_errors_are_seen(name: str, target: str, every: int) -> None:
    rows = planted_and_checked(made(name, target), every)
    counts = Counter(row.outcome for row in rows)
    assert counts["seen"] >= 4
    assert not [row for row in rows if row.outcome == "missed"]


@pytest.mark.slow
@needs_triton
def test_planted_errors_are_seen_in_bfloat16() -> None:
    rows = planted_and_checked(made("layer norm in bfloat16", "cuda:90"), 3)
    counts = Counter(row.outcome for row in rows)
    assert counts["seen"] >= 50
    missed = [row for row in rows if row.outcome == "missed"]
    # the six means of rows are saved in bfloat16, and so near as this to those that inputs of its precision may have
    assert all("300 is 301" in row.told for row in missed)


@pytest.mark.slow
@needs_triton
def test_a_bias_that_is_left_out_is_seen_while_the_program_is_alive() -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16))  # a new bias is 0
    found = bp.kernels.extract(net, torch.randn(4, 16), target="cuda:90", direction="forward")
    (graph,) = found.graphs
    (kernel,) = graph.kernels
    last = [line for line in kernel.source.splitlines() if " = tmp" in line and " + tmp" in line][-1]
    wrong = last[: last.rindex(" + tmp")]
    faulty = replace(kernel, source=kernel.source.replace(last, wrong))
    graph = replace(graph, kernels=(faulty,), wrapper=graph.wrapper.replace(last, wrong))
    assert [verdict.verdict for verdict in replace(found, graphs=(graph,)).check()] == ["wrong"]


# ------------------------------------------------------------------ the captured backward itself


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * grad


def test_kernels_of_a_wrong_backward_are_named() -> None:
    capture = bp.capture(Doubled.apply, numbers(4, 3).requires_grad_())
    derivatives = derivatives_of_pairs(capture)
    forward, backward = with_derivatives(
        [Verdict("bitwise", "pair_0 forward"), Verdict("bitwise", "pair_0 backward")], derivatives
    )
    assert forward.derivative is None
    assert backward.derivative is not None
    assert backward.derivative.word == "not the derivative"
    remarks: list[str] = []
    assert column_of_derivatives(capture, remarks) == {"derivative": "not the derivative"}
    assert "pair_0 backward as captured: not the derivative" in remarks[0]
    assert column_of_derivatives(bp.capture(torch.sin, numbers(3).requires_grad_()), remarks) == {
        "derivative": "derivative"
    }
    assert len(remarks) == 1


@pytest.mark.slow
@needs_compiler
def test_the_command_says_it_of_the_sample(tmp_path: Path) -> None:
    bp.save(bp.capture(Doubled.apply, numbers(4, 3).requires_grad_()), tmp_path / "samples" / "doubled")
    given = ["kernels", str(tmp_path / "samples"), "-o", str(tmp_path / "out"), "--check", "--jobs", "1"]
    done = CliRunner().invoke(main, [*given, "--json"])
    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout)["derivative"] == "not the derivative"
