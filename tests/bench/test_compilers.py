"""Compilers are found by their names, say what they need, and are right on graphs of training."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import backprint as bp
from face import (
    CACHE,
    COMPILERS,
    BenchGraph,
    Compiler,
    Eager,
    RefusedError,
    UsageError,
    bench_graphs,
    check_installed,
    compile_timed,
    compiled_by,
    compiler_named,
    judged,
    loaded_build,
    remarks_on,
    to_fx,
    unguarded_graph,
    versions_of,
    xla,
)

CONTROLS = ("eager", "aot_eager", "aot_eager_decomp_partition")
REAL = ("xla", "onnxruntime", "openvino")

TORCH_IMPORTS = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
"""What torch 2.13 says of itself when Inductor is imported."""

MLP = (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), (5, 6))
CONV = (
    lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1, groups=3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 4, 3, padding=1, groups=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ),
    (2, 3, 9, 8),
)
PROGRAMS = {"mlp": MLP, "conv": CONV}


@pytest.fixture(scope="module", params=PROGRAMS)
def graphs(request: pytest.FixtureRequest) -> list[BenchGraph]:
    make, shape = PROGRAMS[request.param]
    torch.manual_seed(0)
    return bench_graphs(bp.capture(make(), torch.randn(*shape), mode="train"))


def words(graph: BenchGraph, call: Callable[..., Any]) -> list[tuple[str, str]]:
    eager, found = Eager(graph.run, call), graph.run.again(call)
    assert len(found) == len(graph.run.results)
    return [judged(eager, index, value) for index, value in enumerate(found)]


# ------------------------------------------------------------------ the table


def test_the_table_has_controls_and_compilers() -> None:
    assert set(COMPILERS) >= {*CONTROLS, *REAL, "inductor", "aotinductor", "executorch", "iree", "tvm"}
    page = (Path(__file__).parents[2] / "docs" / "compilers.md").read_text(encoding="utf-8")
    assert [name for name in COMPILERS if f"`{name}`" not in page] == []
    assert all(row.name == name and callable(loaded_build(compiler_named(name))) for name, row in COMPILERS.items())


def test_a_backend_of_torch_compile_is_a_compiler() -> None:
    module = torch.fx.symbolic_trace(lambda x: (x * 2,))
    call = compiled_by(compiler_named("eager_noexcept"))(module, [torch.ones(2)])
    assert torch.equal(call(torch.ones(2))[0], torch.full((2,), 2.0))


def test_sizes_that_depend_on_values_go_through_torch_compile() -> None:
    x, index = torch.randn(4, 3), torch.tensor([0, 2, 3])
    capture = bp.capture(lambda x, index: x[index[index > 0]].square(), x, index, requires_grad=False)
    (graph,) = bench_graphs(capture)
    module = to_fx(unguarded_graph(graph.graph))
    call = compiled_by(compiler_named("aot_eager"))(module, [x, index])
    for other in (index, torch.tensor([1, 1, 1])):  # with another number of results
        assert torch.equal(call(x, other)[0], x[other[other > 0]].square())
    assert "breaks the graph at aten.nonzero.default" in remarks_on(call)[0]
    plain = torch.fx.symbolic_trace(lambda x: (torch.ops.aten.mul.Tensor(x, 2),))
    assert remarks_on(compiled_by(compiler_named("aot_eager"))(plain, [x])) == []


def test_modes_of_inductor_are_compilers() -> None:
    assert compiler_named("inductor:max-autotune").options == ("max-autotune",)
    with pytest.raises(UsageError, match=r"Inductor has no mode 'fast'; it has default, .*max-autotune"):
        compiler_named("inductor:fast")


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(UsageError, match=r"no compiler is called 'inductr': did you mean inductor") as caught:
        compiler_named("inductr")
    assert "package.module:name or file.py:name: a function gm, inputs -> callable(*inputs), a function forward" in str(
        caught.value
    )
    with pytest.raises(UsageError, match=r"'aot_eagr': did you mean aot_eager"):
        compiler_named("aot_eagr")


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    row = Compiler("none", "no.module:build", ("torch", "no_such_package", "no.such"), "compilers")
    with pytest.raises(UsageError, match=r"none needs no_such_package, no\.such, which .* '\.\[compilers\]'"):
        check_installed(row)
    with pytest.raises(UsageError, match="no_such_package"):
        compiled_by(row)


def test_extras_of_the_table_are_declared() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    extras = {row.extra for row in COMPILERS.values() if row.extra}
    assert [extra for extra in extras if f"\n{extra} = [" not in text] == []


def test_nothing_is_imported_to_learn_what_is_installed() -> None:
    code = (
        "import sys\nfrom backprint.tools.bench.compilers.table import *\n"
        "for row in COMPILERS.values():\n"
        "    try: check_installed(compiler_named(row.name))\n"
        "    except Exception: pass\n"
        "    versions_of(row)\n"
        "heavy = {'torch', 'jax', 'onnx', 'onnxruntime', 'openvino', 'torchax', 'tvm'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_versions_name_torch_and_the_packages() -> None:
    assert versions_of(COMPILERS["eager"]) == {"torch": importlib.metadata.version("torch")}
    assert set(versions_of(COMPILERS["tvm"])) == {"torch", "apache-tvm"}


# ------------------------------------------------------------------ the user's own


def own_file(tmp_path: Path, text: str) -> str:
    place = tmp_path / "mine.py"
    place.write_text(text)
    return str(place)


def test_a_loaded_build_a_file_is_a_compiler(tmp_path: Path, graphs: list[BenchGraph]) -> None:
    place = own_file(tmp_path, "def mine(gm, inputs):\n    return lambda *values: gm(*values)\n")
    call = compiled_by(compiler_named(f"{place}:mine"))(graphs[0].module, graphs[0].run.inputs)
    assert {word for word, _ in words(graphs[0], call)} == {"bitwise"}


def test_a_loaded_build_a_module_is_a_compiler() -> None:
    assert compiled_by(compiler_named("operator:add"))(1, 2) == 3


def test_a_place_without_that_function_says_so(tmp_path: Path) -> None:
    place = own_file(tmp_path, "def mine(gm, inputs):\n    return gm\n")
    with pytest.raises(UsageError, match="has no function 'mien': did you mean mine"):
        compiled_by(compiler_named(f"{place}:mien"))
    with pytest.raises(UsageError, match=r"no file nowhere\.py; a compiler of your own"):
        compiler_named("nowhere.py:mine")
    with pytest.raises(UsageError, match="no module no_such_module; a compiler"):
        compiler_named("no_such_module:mine")
    with pytest.raises(UsageError, match="'1x' is no function's name"):
        compiler_named(f"{place}:1x")
    broken = own_file(tmp_path, "1 / 0\nmine = None\n")
    with pytest.raises(UsageError, match=r"mine\.py raises ZeroDivisionError"):
        compiled_by(compiler_named(f"{broken}:mine"))


# ------------------------------------------------------------------ on graphs


@TORCH_IMPORTS
@pytest.mark.parametrize("name", CONTROLS)
def test_controls_are_right(name: str, graphs: list[BenchGraph]) -> None:
    assert [graph.direction for graph in graphs] == ["forward", "backward"]
    for graph in graphs:
        call = compiled_by(compiler_named(name))(graph.module, graph.run.inputs)
        assert {word for word, _ in words(graph, call)} <= {"bitwise", "close"}


def test_a_wrong_compiler_is_seen(tmp_path: Path, graphs: list[BenchGraph]) -> None:
    text = "def off(gm, inputs):\n    return lambda *values: tuple(v * 1.01 for v in gm(*values))\n"
    compiler = compiler_named(f"{own_file(tmp_path, text)}:off")
    backward = graphs[1]
    call = compiled_by(compiler)(backward.module, backward.run.inputs)
    assert "wrong" in {word for word, _ in words(backward, call)}


@pytest.mark.parametrize("name", REAL)
@pytest.mark.filterwarnings("default")
def test_compilers_of_exchange_formats_are_right(name: str, graphs: list[BenchGraph]) -> None:
    for package in COMPILERS[name].packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{name} needs the extra {COMPILERS[name].extra}: {package} is not installed")
    for graph in graphs:
        call = compiled_by(compiler_named(name))(graph.module, graph.run.inputs)
        found = words(graph, call)
        assert {word for word, _ in found} <= {"bitwise", "close"}, found


@pytest.mark.parametrize("name", REAL)
@pytest.mark.filterwarnings("default")
def test_exchange_formats_refuse_draws_before_anything_is_built(name: str) -> None:
    for package in COMPILERS[name].packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{name} needs the extra {COMPILERS[name].extra}: {package} is not installed")
    module = torch.fx.experimental.proxy_tensor.make_fx(lambda x: (torch.rand_like(x),))(torch.ones(2))
    with pytest.raises(RefusedError, match=r"aten\.rand_like\.default draws random numbers"):
        compiled_by(compiler_named(name))(module, [torch.ones(2)])


@TORCH_IMPORTS
@pytest.mark.slow
def test_inductor_is_right_and_warm_is_faster_than_cold(tmp_path: Path, graphs: list[BenchGraph]) -> None:
    graph = graphs[1]
    row = compiler_named("inductor")
    seconds = {}
    for cold in (True, False):
        call, seconds[cold], _ = compile_timed(row, graph.module, graph.run.inputs, tmp_path / "caches", cold)
        assert {word for word, _ in words(graph, call)} <= {"bitwise", "close"}
    assert seconds[False] < seconds[True]


# ------------------------------------------------------------------ time


def spying(tmp_path: Path) -> Compiler:
    """Return a compiler that leaves a file in its caches, and writes what it saw there beside them."""
    text = (
        "import os, pathlib\n"
        "def spy(gm, inputs):\n"
        f"    caches = pathlib.Path(os.environ[{CACHE!r}])\n"
        "    with open(caches.parent / 'seen', 'a') as seen:\n"
        "        seen.write(f'{caches.name} {sorted(each.name for each in caches.iterdir())}\\n')\n"
        "    (caches / 'left').touch()\n"
        "    return gm\n"
    )
    row = compiler_named(f"{own_file(tmp_path, text)}:spy")
    return replace(row, name=str(tmp_path))


def test_a_cold_compilation_has_empty_caches_and_a_warm_one_full_ones(
    tmp_path: Path, graphs: list[BenchGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CACHE, raising=False)
    row, graph = spying(tmp_path), graphs[0]
    for cold in (True, False, True):
        call, seconds, _ = compile_timed(row, graph.module, graph.run.inputs, tmp_path / "caches", cold)
        assert call is graph.module
        assert seconds > 0
    assert (tmp_path / "seen").read_text().splitlines() == [
        "prepared []",
        "caches []",
        "caches ['left']",
        "caches []",
    ]
    assert CACHE not in xla.os.environ


def test_what_a_compilation_writes_to_are_copies(tmp_path: Path) -> None:
    place = own_file(tmp_path, "def mine(gm, inputs):\n    return lambda x: (x.zero_(),)\n")
    value = torch.ones(2)
    compile_timed(compiler_named(f"{place}:mine"), None, [value], tmp_path / "caches", True)
    assert torch.equal(value, torch.ones(2))


def test_xla_gets_torch_s_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setenv("NPROC", "7")
    monkeypatch.setenv("XLA_FLAGS", "--xla_other=1")
    for _ in range(2):
        xla.limit_threads()
    assert (xla.os.environ["NPROC"], xla.os.environ["XLA_FLAGS"]) == ("1", f"--xla_other=1 {xla.ONE_THREAD}")
