"""Saved kernels as files of their own: they run without Inductor and Backprint, and are right."""

from __future__ import annotations

import ast
import importlib.util
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subjects.forked import run_python
from test_extract_kernels import needs_triton
from torch import Tensor, nn

import backprint as bp
from face import (
    FLAGS,
    ISA_FLAGS,
    FusedOperator,
    Kernel,
    KernelArgument,
    KernelCall,
    RefusedError,
    UnreadKernels,
    alone_text,
    capture_kernels,
    grouped_kernels,
    helper_definitions,
    read_kernels,
    template,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, of Inductor's import

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kernels_alone.py"

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="compiling kernels for AVX2 needs g++ and a processor that has it",
)


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
    found = capture_kernels(bp.capture(program, *inputs, **options), target)
    assert found.refused == ()
    assert {kernel.direction for kernel in found} == {"forward", "backward"}
    return tuple(found)


@cache
def benchmark() -> Any:
    return imported(BENCHMARK)


def imported(place: Path) -> Any:
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[place.stem] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


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
    row = benchmark().checked_alone(model, kernels)
    assert row.kernels == len(kernels)
    assert row.runs == sum(len(set(kernel.calls)) * len(kernel.configurations) for kernel in kernels)
    assert row.right == row.runs


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("model", MODELS)
def test_cpp_kernels_alone_give_what_the_wrappers_own_give(model: str) -> None:
    kernels = list(kernels_of(model, "cpu:avx2"))
    row = benchmark().checked_alone(model, kernels)
    assert (row.right, row.worst) == (row.runs, 0.0)
    assert row.runs == sum(len(set(kernel.calls)) for kernel in kernels)


@pytest.mark.slow
@needs_triton
def test_a_file_that_is_wrong_is_seen_to_be(tmp_path: Path) -> None:
    bench, kernel = benchmark(), gelu()
    bench.save_kernels([kernel], tmp_path)
    wrong = replace(kernel, source=kernel.source.replace("0.5, tl.float32", "0.5001, tl.float32"))
    assert wrong.source != kernel.source
    (tmp_path / "kernel_000.py").write_text(alone_text(wrong))
    bench.run_alone(tmp_path)
    bench.started(["--reference", str(tmp_path)], {"TRITON_INTERPRET": "1"})
    [(found, close)] = bench.compared(tmp_path)
    assert found > close


@needs_triton
def test_a_file_runs_from_the_command_line_and_sees_configurations_that_disagree(tmp_path: Path) -> None:
    kernel = next(one for one in kernels_of("embedding", "cuda:90") if len(one.configurations) > 1)
    done = run_file(tmp_path / "kernel.py", alone_text(kernel))
    assert (done.returncode, done.stderr) == (0, "")
    assert kernel.name in done.stdout
    assert "interpreter" in done.stdout
    assert "the configurations agree" in done.stdout
    store = "tl.store(out_ptr0 + (x2), tmp2"
    wrong = replace(kernel, source=kernel.source.replace(store, f"{store} + XBLOCK"))
    assert wrong.source != kernel.source
    done = run_file(tmp_path / "wrong.py", alone_text(wrong))
    assert done.returncode == 1
    assert "out_ptr0 differs by" in done.stdout


@needs_triton
def test_the_code_for_a_gpu_is_that_of_the_wrapper() -> None:
    kernels = [one for one in kernels_of("embedding", "cuda:90") if "embedding" in one.name or "softmax" in one.name]
    count, same = benchmark().same_ptx(kernels)
    assert count == same == sum(len(kernel.configurations) for kernel in kernels) > 3


@pytest.mark.slow
@needs_compiler
def test_a_cpp_file_runs_from_the_command_line(tmp_path: Path) -> None:
    done = run_file(tmp_path / "kernel.py", alone_text(gelu("cpu:avx2")))
    assert (done.returncode, done.stderr) == (0, "")
    assert "GB/s" in done.stdout
    odd = replace(gelu("cpu:avx2"), source=gelu("cpu:avx2").source + "elsewhere;")
    done = run_file(tmp_path / "odd.py", alone_text(odd))
    assert done.returncode == 1
    assert "g++ exited with 1" in done.stderr


def test_cpp_is_compiled_as_inductor_does() -> None:
    from torch._inductor import cpu_vec_isa
    from torch._inductor.cpp_builder import CppTorchOptions

    kinds = {"avx2": cpu_vec_isa.VecAVX2(), "avx512": cpu_vec_isa.VecAVX512(), "neon": cpu_vec_isa.VecNEON()}
    for name, isa in kinds.items():
        options = CppTorchOptions(vec_isa=isa, warning_all=False)
        wanted = {f"-{one}".replace("-D ", "-D") for one in options.get_cflags()}
        wanted |= {f"-D{one.strip()}" for one in options.get_definitions()} | {"-shared", "-fPIC", "-fopenmp"}
        wanted |= set(isa.build_arch_flags().split())
        wanted -= {"-DTORCH_INDUCTOR_PRECOMPILE_HEADERS", "-fno-omit-frame-pointer", "-g1", "-pedantic"}
        assert {one for one in wanted if not one.startswith("-W")} == {*FLAGS.split(), *ISA_FLAGS[name].split()}, name


def test_a_kernel_knows_the_instructions_it_is_written_for() -> None:
    known = {"AVX2": "avx2", "AVX512": "avx512", "NO AVX": "scalar"}
    wanted = known.get(torch.backends.cpu.get_cpu_capability())
    if wanted is None or shutil.which("g++") is None:
        pytest.skip("a processor whose instructions are not in this test, or no compiler")
    assert {kernel.isa for kernel in kernels_of("mlp", "cpu")} == {wanted}


# ------------------------------------------------------------------ their arguments


def draws(text: str) -> dict[str, Any]:
    return {row["name"]: row["draw"] for row in recorded(text, "CALLS")[0]["arguments"] if "draw" in row}


@needs_triton
def test_no_index_is_outside() -> None:
    found = {kernel.name: draws(alone_text(kernel)) for kernel in kernels_of("embedding", "cuda:90")}
    assert found["triton_poi_fused_embedding_0"] == {"in_ptr0": ("below", 50), "in_ptr1": "normal", "out_ptr0": "zeros"}
    loss = next(each for name, each in found.items() if "nll_loss_forward" in name)
    assert loss["in_ptr0"] == ("below", 50)
    unasserted = replace(gather(), source=gather().source.replace("    tl.device_assert", "    # "))
    assert draws(alone_text(unasserted))["in_ptr0"] == ("below", 1)


def gather() -> Kernel:
    return next(one for one in kernels_of("embedding", "cuda:90") if one.name == "triton_poi_fused_embedding_0")


def test_an_index_of_a_cpp_kernel_is_not_outside() -> None:
    found = {kernel.name: draws(alone_text(kernel)) for kernel in kernels_of("embedding", "cpu:avx2")}
    assert found["cpp_fused_embedding_0"] == {"in_ptr0": ("below", 50), "in_ptr1": "normal", "out_ptr0": "zeros"}
    loss = next(each for name, each in found.items() if "nll_loss_forward" in name)
    assert ("below", 50) in loss.values()


@needs_triton
def test_roots_have_positive_numbers() -> None:
    kernels = kernels_of("long rows", "cuda:90")
    assert draws(alone_text(kernels[0]))["in_ptr0"] == "positive"
    assert draws(alone_text(gelu()))["in_ptr0"] == "normal"


# ------------------------------------------------------------------ read again


@needs_triton
@pytest.mark.parametrize("model", MODELS)
def test_the_hash_is_the_wrappers(model: str, tmp_path: Path) -> None:
    for number, kernel in enumerate((*kernels_of(model, "cuda:90"), *kernels_of(model, "cpu:avx2"))):
        place = tmp_path / f"kernel_{number}.py"
        place.write_text(alone_text(kernel))
        [found] = read_kernels(place)
        assert isinstance(found, Kernel)
        assert found.hash == kernel.hash
        for field in ("language", "name", "target", "direction", "compiler", "isa", "threads", "declared"):
            assert getattr(found, field) == getattr(kernel, field), field


@needs_triton
def test_dedup_counts_a_kernel_beside_its_wrapper_once(tmp_path: Path) -> None:
    torch.manual_seed(0)
    program, *inputs = MODELS["embedding"]()
    [forward, _] = capture_kernels(bp.capture(program, *inputs, mode="train"), "cuda:90").graphs
    folder = tmp_path / "forward" / "kernels"
    folder.mkdir(parents=True)
    for kernel in forward.kernels:
        (folder / f"{kernel.name}.py").write_text(alone_text(kernel))
    groups = grouped_kernels(read_kernels(tmp_path))
    assert (groups.totals().uses, groups.totals().unread) == (len(forward.kernels), 0)
    (tmp_path / "forward" / "wrapper.py").write_text(forward.wrapper)
    groups = grouped_kernels(read_kernels(tmp_path))
    assert (groups.totals().uses, groups.totals().unread) == (len(forward.kernels), 0)
    edited = folder / f"{forward.kernels[0].name}.py"
    edited.write_text(edited.read_text().replace("tmp2, xmask)", "tmp2 * 2, xmask)"))
    groups = grouped_kernels(read_kernels(tmp_path))
    assert groups.totals().programs == len(forward.kernels) + 1


@needs_triton
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("WRITTEN_AS = ", "OTHER = ", "has no NAME or no WRITTEN_AS"),
        ("WRITTEN_AS = {", "WRITTEN_AS = {**more, ", "is not a literal"),
        ('"statements": [', '"statements": ["x = 1"], "more": [', "does not say which of its functions"),
        ("def make(", "def make((", "not Python"),
    ],
)
def test_a_damaged_file_is_named(old: str, new: str, says: str, tmp_path: Path) -> None:
    text = alone_text(gelu())
    assert old in text
    (tmp_path / "kernel.py").write_text(text.replace(old, new, 1))
    [found] = read_kernels(tmp_path)
    assert isinstance(found, UnreadKernels)
    assert says in found.reason


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
@pytest.mark.parametrize(("text", "target"), list(zip(HOSTILE, ["cuda:90", "cpu:avx2"] * 9, strict=False)))
def test_hostile_text_stays_text(text: str, target: str, tmp_path: Path) -> None:
    kernel = replace(gelu(target), operators=(FusedOperator("aten.gelu.default", "gelu", "a line"),))
    odd = replace(
        kernel,
        sample=text,
        direction=text,
        compiler=text,
        target=text,
        operators=(FusedOperator(text, text, text),),
    )
    written = alone_text(odd)
    assert shape_of(written) == shape_of(alone_text(kernel))
    assert written.encode("utf-8").decode("utf-8").splitlines() == written.split("\n")[:-1]
    assert "coding" not in "".join(written.splitlines()[:2])
    assert recorded(written, "WRITTEN_AS")["sample"] == text
    place = tmp_path / "kernel.py"
    place.write_text(written)
    [found] = read_kernels(place)
    assert isinstance(found, Kernel)
    assert found.compiler == text


@pytest.mark.parametrize("text", ["'''\nimport os\n'''", "\\", "\\'''", '"""', "\r\n", "\u202e", "'"])
def test_a_source_stays_a_text(text: str) -> None:
    kernel = replace(gelu("cpu:avx2"), source=gelu("cpu:avx2").source + f"/* {text} */")
    assert recorded(alone_text(kernel), "SOURCE") == kernel.source
    assert shape_of(alone_text(kernel)) == shape_of(alone_text(gelu("cpu:avx2")))


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
        alone_text(replace(kernel, source=kernel.source.replace(old, new, 1)))


def test_a_kernel_without_calls_is_refused() -> None:
    with pytest.raises(RefusedError, match="no recorded call"):
        alone_text(replace(gelu("cpu:avx2"), calls=()))
    with pytest.raises(RefusedError, match=r"\(vsx\) are none of avx2"):
        alone_text(replace(gelu("cpu:avx2"), isa="vsx"))
    with pytest.raises(RefusedError, match="2 parameters"):
        alone_text(replace(gelu("cpu:avx2"), calls=(KernelCall((KernelArgument("float32"),)),)))
    with pytest.raises(RefusedError, match="is not triton or cpp"):
        alone_text(replace(gelu("cpu:avx2"), language="hip"))


def test_no_function_of_pytorch_hides_a_name_that_the_file_uses() -> None:
    helpers = set(helper_definitions())
    for part in ("common", "triton", "interpreter"):
        names = {node.id for node in ast.walk(ast.parse(template(part))) if isinstance(node, ast.Name)}
        assert names & helpers == set(), part
