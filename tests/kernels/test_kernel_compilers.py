"""Compilers of kernels: Inductor with other settings, and functions of one's own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import backprint as bp
from face import UsageError, main

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, of Inductor's import

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="C++ kernels are compiled by g++")

OWN = Path(__file__).parents[1] / "subjects" / "loop_compiler.py"


@pytest.fixture(autouse=True)
def path_of_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is imported by its place has its folder on sys.path, as for a script; not for other tests."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def waves() -> bp.Capture:
    torch.manual_seed(0)
    return bp.capture(lambda x: x.sin(), torch.randn(4, 6, requires_grad=True))


@pytest.mark.slow
@needs_compiler
def test_a_function_of_ones_own_writes_kernels_that_are_checked() -> None:
    kernels = bp.kernels.extract(waves(), compiler=f"{OWN}:one_loop")
    assert not kernels.refused
    assert [kernel.name for kernel in kernels] == ["cpp_one_loop", "cpp_one_loop"]
    assert {kernel.compiler for kernel in kernels} == {"loop_compiler.py:one_loop"}
    assert [len(kernel.calls) for kernel in kernels] == [1, 1]
    assert len({kernel.hash for kernel in kernels}) == 2
    assert [verdict.good for verdict in kernels.check()] == [True, True]
    assert [verdict.verdict for verdict in bp.kernels.extract(waves(), compiler=f"{OWN}:wrong").check()] == [
        "wrong",
        "wrong",
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "wrote does not run on meta tensors"),
        ("nothing", "returned NoneType: a function of your own is"),
        ("failing", "raised KeyError: 'aten.sin.default'"),
    ],
)
def test_a_function_that_writes_no_kernels_is_refused_by_name(name: str, said: str) -> None:
    found = bp.kernels.extract(waves(), compiler=f"{OWN}:{name}", target="cpu:avx2")
    assert [title for title, _ in found.refused] == ["pair_0 forward", "pair_0 backward"]
    assert all(said in why and name in why for _, why in found.refused)


def test_inductor_takes_other_settings() -> None:
    program = bp.capture(lambda x: (x.sin(), x.cos().sum(1)), torch.randn(40, 60))
    plain = bp.kernels.extract(program, target="cpu:avx2")
    apart = bp.kernels.extract(
        program, target="cpu:avx2", compiler="inductor:cpp.enable_kernel_profile=True, epilogue_fusion=False"
    )
    assert [kernel.hash for kernel in apart] != [kernel.hash for kernel in plain]
    assert {kernel.compiler.partition(" with ")[2] for kernel in apart} == {
        "cpp.enable_kernel_profile=True, epilogue_fusion=False"
    }


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("inductor:max_fusion_sise=1", r"no setting 'max_fusion_sise': did you mean max_fusion_size"),
        ("inductor:max_fusion_size=many", r"max_fusion_size is \d+, of type int"),
        ("inductor:max_fusion_size", r"write max_fusion_size=VALUE"),
        ("inductr", r"no compiler of kernels is called 'inductr'"),
        ("nowhere.py:function", r"nowhere.py: no such file"),
        ("json:nothing", r"json has no function 'nothing'"),
    ],
)
def test_a_compiler_that_is_none_is_refused_with_what_there_is(compiler: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bp.kernels.extract(waves(), compiler=compiler)


def test_the_command_takes_a_compiler_by_its_path_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bp.save(waves(), tmp_path / "sample")
    shutil.copy(OWN, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    given = ["kernels", "sample", "-o", "out", "--jobs", "1", "--target", "cpu:avx2", "--compiler", "mine.py:one_loop"]
    done = CliRunner().invoke(main, given)  # its workers have another folder
    assert done.exit_code == 0, done.output
    written = (tmp_path / "out/sample/cpu_avx2/pair_0/forward/graph.json").read_text()
    assert '"compiler": "mine.py:one_loop"' in written
    assert str(tmp_path) not in written


@pytest.mark.slow
@needs_compiler
def test_the_command_takes_a_compiler(tmp_path: Path) -> None:
    bp.save(waves(), tmp_path / "sample")
    given = ["kernels", str(tmp_path / "sample"), "-o", str(tmp_path / "out"), "--jobs", "1"]
    done = CliRunner().invoke(main, [*given, "--compiler", f"{OWN}:one_loop", "--check"])
    assert done.exit_code == 0, done.output
    assert "2 kernels, 2 programs" in done.output
    wrong = CliRunner().invoke(main, [*given, "--compiler", "inductr"])
    assert wrong.exit_code == 2
    assert "no compiler of kernels is called" in wrong.output
