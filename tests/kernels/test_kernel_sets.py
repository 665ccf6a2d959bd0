"""`bp.kernels.extract` and `backprint kernels`: kernels of captures and samples, written below a folder."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import re
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import backprint as bp
from face import UsageError, build_triton, main

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, of Inductor's import

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Inductor's Triton kernels need triton: pip install triton"
)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples that have kernels, and one that Inductor has none for: its input is sparse."""
    folder = tmp_path_factory.mktemp("samples")
    bp.save(bp.capture(mlp(), torch.randn(5, 8), mode="train"), folder / "nets" / "mlp")
    bp.save(bp.capture(lambda x: torch.tanh(x) * x, torch.randn(6, 6)), folder / "tanh")
    sparse = torch.eye(4).to_sparse()
    bp.save(bp.capture(lambda x: torch.sparse.mm(x, torch.ones(4, 4)), sparse), folder / "sparse", "exact")
    return folder


def run(*words: Any) -> Any:
    return CliRunner().invoke(main, ["kernels", *map(str, words)])


def rows_of(text: str) -> dict[str, dict[str, Any]]:
    return {row["sample"]: row for row in map(json.loads, filter(lambda line: line.startswith("{"), text.splitlines()))}


# ------------------------------------------------------------------ Python


def test_kernels_of_a_module() -> None:
    found = bp.kernels.extract(mlp(), torch.randn(5, 8), target="cpu:avx2", mode="train")
    assert [graph.title for graph in found.graphs] == ["pair_0 forward", "pair_0 backward"]
    assert not found.refused
    fused = {operator.operator for kernel in found for operator in kernel.operators}
    assert {"aten.native_layer_norm.default", "aten.gelu.default"} <= fused
    assert {kernel.direction for kernel in found} == {"forward", "backward"}
    assert all(kernel.calls and kernel.language == "cpp" and kernel.isa == "avx2" for kernel in found)
    assert len({kernel.hash for kernel in found}) == len(list(found))


@pytest.mark.slow
def test_kernels_of_a_capture_in_one_direction() -> None:
    capture = bp.capture(mlp(), torch.randn(5, 8), mode="train")
    both, alone = bp.kernels.extract(capture), bp.kernels.extract(capture, direction="backward")
    assert [graph.direction for graph in alone.graphs] == ["backward"]
    assert [kernel.hash for kernel in alone] == [k.hash for k in both if k.direction == "backward"]
    assert {kernel.direction for kernel in bp.kernels.extract(capture, direction="forward")} == {"forward"}


@pytest.mark.slow
@pytest.mark.skipif(not torch.cpu._is_avx2_supported(), reason="this processor has no AVX2")
def test_kernels_run_with_the_instructions_they_are_written_for() -> None:
    capture = bp.capture(mlp(), torch.randn(37, 8), mode="train")
    verdicts = bp.kernels.extract(capture, target="cpu:avx2").check()
    assert [verdict.name for verdict in verdicts] == ["pair_0 forward", "pair_0 backward"]
    assert all(verdict.good for verdict in verdicts), verdicts


def test_threads_belong_to_the_program() -> None:
    capture = bp.capture(lambda x: torch.tanh(x) * x, torch.randn(512, 512))
    one, four = ([k.hash for k in bp.kernels.extract(capture, target="cpu:avx2", threads=n)] for n in (1, 4))
    assert one != four


@needs_triton
def test_a_kernel_is_compiled_when_it_is_asked() -> None:
    kernel = next(iter(bp.kernels.extract(mlp(), torch.randn(5, 8), target="cuda:90", mode="train")))
    assert ".target sm_90" in kernel.ptx()
    assert ".target sm_80" in kernel.ptx(80)
    assert tempfile.gettempdir() not in kernel.ptx()  # nothing of this machine, also where it is installed there
    assert kernel.cubin().startswith(b"\x7fELF")
    assert len(kernel.configurations) == len(kernel.calls[0].grids) > 0
    assert all(min(grid) >= 1 for call in kernel.calls for grid in call.grids)


@needs_triton
def test_what_is_compiled_names_files_by_package_and_nothing_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    kernel = next(iter(bp.kernels.extract(lambda x: x.softmax(-1), torch.randn(5, 300), target="cuda:90")))
    built = kernel.built()
    texts = (built.ptx, built.llir, built.ttir, built.cubin.decode("latin-1"))
    for module in (torch, triton):
        assert not [text for text in texts if str(Path(module.__file__).parents[1]) in text]
    assert re.search(r'\.file\s+\d+ "triton/language/?"? ?"?standard\.py', built.ptx), "it calls a function of Triton's"
    with monkeypatch.context() as without:
        without.setattr(build_triton, "name_files_by_package", contextlib.nullcontext)
        without.setattr(build_triton, "use_separate_cache", contextlib.nullcontext)
        assert str(Path(triton.__file__).parents[1]) in kernel.ptx()  # as Triton itself has it


@pytest.mark.slow
@needs_triton
def test_a_compiled_kernel_is_not_the_one_another_program_left_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    kernel = next(iter(bp.kernels.extract(mlp(), torch.randn(5, 8), target="cuda:90", mode="train")))
    with monkeypatch.context() as another:
        another.setattr(build_triton, "load_tuner", lambda k: build_triton.load_tuner_from_file(tmp_path, k))
        another.setattr(build_triton, "use_separate_cache", contextlib.nullcontext)
        assert str(tmp_path) in kernel.ptx()  # of the same source, in a file
    assert str(tmp_path) not in kernel.ptx()


def test_a_kernel_of_a_processor_has_no_ptx() -> None:
    kernel = next(iter(bp.kernels.extract(lambda x: x.tanh(), torch.randn(3))))
    with pytest.raises(UsageError, match=r"written in cpp"):
        kernel.ptx(90)
    with pytest.raises(UsageError, match=r"only Triton kernels are compiled to PTX"):
        kernel.ptx()


def test_calls_that_cannot_be_right() -> None:
    capture = bp.capture(lambda x: x.tanh(), torch.randn(3))
    for given, said in (
        ({"target": "cuda:91"}, r"no target is called 'cuda:91': did you mean cuda:90"),
        ({"direction": "up"}, r"direction='up' is not one of"),
        ({"threads": 0}, r"threads=0 must be 1 or more"),
        ({"compiler": "gcc"}, r"no compiler of kernels is called 'gcc': known are inductor, and"),
        ({"mode": "train"}, r"a Capture takes no further arguments"),
    ):
        with pytest.raises(UsageError, match=said):
            bp.kernels.extract(capture, **given)


# ------------------------------------------------------------------ the command


@pytest.mark.slow
def test_samples_below_a_folder(samples: Path, tmp_path: Path) -> None:
    done = run(samples, "-o", tmp_path / "out", "--target", "cpu:avx2,cpu:avx512", "--only", "*n*h", "--only", "nets/*")
    assert done.exit_code == 0, done.output
    for sample in ("nets/mlp", "tanh"):
        for target in ("cpu_avx2", "cpu_avx512"):
            for direction in ("forward", "backward"):
                place = tmp_path / "out" / sample / target / "pair_0" / direction
                facts = json.loads((place / "graph.json").read_text())
                assert facts["direction"] == direction
                assert facts["target"] == target.replace("_", ":")
                assert {kernel["name"] for kernel in facts["kernels"]} == set(facts["order"])
                for kernel in facts["kernels"]:
                    assert "extern" in (place / "kernels" / f"{kernel['name']}.cpp").read_text()
                ast.parse((place / "wrapper.py").read_text())


@pytest.mark.slow
def test_what_is_refused_is_named_and_the_rest_is_done(samples: Path, tmp_path: Path) -> None:
    done = run(samples, "-o", tmp_path / "out", "--target", "cpu:avx2", "--json")
    rows = rows_of(done.output)
    assert done.exit_code == 1, done.output
    assert {id: row["verdict"] for id, row in rows.items()} == {
        "nets/mlp": "unproven",
        "sparse": "failed",
        "tanh": "unproven",
    }
    assert rows["sparse"]["cause"] == "refused"
    assert "sparse" in rows["sparse"]["detail"]
    assert "not run" in rows["tanh"]["detail"]


@pytest.mark.slow
def test_several_samples_and_going_on(samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = (samples / "tanh", samples / "nets" / "mlp", "-o", out, "--target", "cpu:avx2")
    assert run(*given).exit_code == 0
    times = {file: file.stat().st_mtime_ns for file in out.rglob("wrapper.py")}
    assert len(times) == 4
    assert run(*given).exit_code == 0
    assert times == {file: file.stat().st_mtime_ns for file in out.rglob("wrapper.py")}
    other = run(samples / "sparse", "-o", out, "--target", "cpu:avx2")
    assert other.exit_code == 2
    assert "is a run of other samples (2 there, 1 now)" in other.output


@pytest.mark.slow
def test_no_compiler_of_cpp_is_needed(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mean = bp.capture(lambda x: (x.relu() * x).mean(1), torch.ones(8, 40), name="mean", engine="aot")
    mean.save(tmp_path / "mean")
    assert run(tmp_path / "mean", "-o", tmp_path / "with", "--target", "cpu:avx2").exit_code == 0
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.setenv("CXX", os.fspath(tmp_path / "absent"))
    done = run(samples / "tanh", "-o", tmp_path / "out", "--target", "cpu:avx512")
    assert done.exit_code == 0, done.output
    assert list((tmp_path / "out").rglob("wrapper.py"))
    done = run(tmp_path / "mean", "-o", tmp_path / "without", "--target", "cpu:avx2")  # which has a reduction
    assert done.exit_code == 0, done.output
    wrappers = [{file.read_text() for file in (tmp_path / out).rglob("wrapper.py")} for out in ("with", "without")]
    assert wrappers[0] == wrappers[1] != set()
    done = run(samples / "tanh", "-o", tmp_path / "own", "--target", "cpu")
    assert done.exit_code == 1
    assert "there is no C++ compiler here to say which vector instructions" in done.output


@pytest.mark.slow
def test_a_sample_of_graphnet_is_captured_first(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "golden" / "format_4" / "pair_0" / "forward", tmp_path / "theirs")
    done = run(tmp_path / "theirs", "-o", tmp_path / "out", "--target", "cpu:avx2")
    assert done.exit_code == 0, done.output
    assert {file.parent.name for file in (tmp_path / "out").rglob("graph.json")} == {"forward", "backward"}


@pytest.mark.slow
def test_the_verb_of_a_corpus_run(samples: Path, tmp_path: Path) -> None:
    words = ["corpus", "run", "kernels", samples, "-o", tmp_path / "out", "--only", "tanh", "--allow-unproven"]
    done = CliRunner().invoke(main, [*map(str, words), "--set", 'targets=["cpu:avx2"]', "--set", "direction=forward"])
    assert done.exit_code == 0, done.output
    assert [file.parent.name for file in (tmp_path / "out").rglob("graph.json")] == ["forward"]
    with sqlite3.connect(tmp_path / "out" / "ledger.sqlite") as ledger:
        assert ledger.execute("select id, verdict from samples").fetchall() == [("tanh", "unproven")]


def test_options_that_cannot_be_right_end_before_the_run(samples: Path, tmp_path: Path) -> None:
    done = run(samples, "-o", tmp_path / "out", "--target", "cuda:9")
    assert done.exit_code == 2
    assert "no target is called 'cuda:9'" in done.output
    assert not (tmp_path / "out").exists()
    done = run(tmp_path, "-o", tmp_path / "out")
    assert done.exit_code == 3
    assert "no sample here or below" in done.output
