"""A short exported file has the full one's inputs, bits and words, and is written only if it ran and agreed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.forked import run_python
from torch import Tensor, nn

import backprint as bp
from backprint.cli import main
from backprint.sample import export, short_text
from backprint.sample.export import why_full
from backprint.sample.generator import Recipe, make
from backprint.sample.short import LongForm, expression, setting_lines
from backprint.sample.short_check import ShortFile, same_as_full, without_reasons

SHORT, FULL = 360, 1000
"""The most lines of the short file of this small program, both directions, and the fewest of a full one."""


class Small(nn.Module):
    """What rounds, what cancels (a bias before a batch norm), and what is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.norm(self.first(x)).tanh()))


def small(kind: type[nn.Module] = Small) -> bp.Capture:
    torch.manual_seed(0)
    return bp.capture(kind(), torch.randn(6, 4), name='"""; raise SystemExit(99); """')


def alone(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -I FILE` in an empty folder."""
    here = file.parent / "empty"
    here.mkdir(exist_ok=True)
    return run_python([file, *arguments], flags=["-I"], cwd=here, env={})


def texts_of(capture: bp.Capture, folder: Path, **options: Any) -> tuple[tuple[str, ...], str]:
    """The short texts of a Capture, none where it has none, and its full one; nothing is run."""
    short: list[tuple[str, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "same_as_full", lambda texts, *rest: short.append(texts) or "it was not tried")
        file = bp.export(capture, folder / "texts.py", overwrite=True, **options)
    return short[0] if short else (), file.read_text()


# ------------------------------------------------------------------ the whole

BACKENDS = """
def wrong(gm, inputs):
    def play(*values):
        return tuple(value + 0.5 if value.is_floating_point() else value for value in gm(*values))
    return play

def refuses(gm, inputs):
    raise NotImplementedError("not today")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The short file of a small program, and its full one."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "backends.py").write_text(BACKENDS)
    made = small()
    return bp.export(made, folder / "short.py"), bp.export(made, folder / "full.py", full=True)


@pytest.mark.slow
def test_a_short_file_is_short_and_has_the_bits_of_the_full_one(files: tuple[Path, Path]) -> None:
    short, full = files
    assert len(short.read_text().splitlines()) <= SHORT
    assert len(full.read_text().splitlines()) >= FULL
    plain: Any = dict(cwd=short.parent, env={}, capture_output=True, text=True)  # as a user does who gets the file
    found, wanted = (subprocess.run([sys.executable, "-I", file], **plain) for file in files)
    assert (found.returncode, found.stderr) == (0, "")
    assert without_reasons(found.stdout) == without_reasons(wanted.stdout) != ()


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "code"), [("aot_eager", 0), ("wrong", 1), ("refuses", 1), ("nonesuch", 2)])
def test_a_short_file_says_of_a_backend_what_the_full_one_says(
    files: tuple[Path, Path], backend: str, code: int
) -> None:
    name = f"{files[0].parent / 'backends.py'}:{backend}" if backend in BACKENDS else backend
    found, wanted = (alone(file, "--backend", name) for file in files)
    assert found.returncode == wanted.returncode == code, found.stderr
    assert without_reasons(found.stdout) == without_reasons(wanted.stdout)
    if backend == "wrong":
        assert "expected, " in found.stdout
    assert found.stdout.splitlines()[-1:] == wanted.stdout.splitlines()[-1:]


def test_a_short_file_imports_torch_and_the_standard_library_alone(files: tuple[Path, Path]) -> None:
    tree = ast.parse(files[0].read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"torch"}


# ------------------------------------------------------------------ it is tried before it is kept


@pytest.mark.slow
def test_a_file_that_says_something_else_is_not_written(tmp_path: Path) -> None:
    class Plain(Small):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Identity()

    texts, full = texts_of(small(Plain), tmp_path)
    lenient = texts[1].replace('"float32": 1e-4', '"float32": 1e4')
    others = texts[1].replace("uniform(", "uniform(1", 1)
    strict = texts[1].replace('"float32": 1e-4', '"float32": 0.0').replace("its <= 4 * own", "False")
    strict = strict.replace("error <= 4 * max", "error < 0 * max")
    breaks = texts[1].replace("def main():", "def main():\n    raise KeyError(1)")
    assert len({*texts[1:2], lenient, others, strict, breaks}) == 5
    assert why_full(tmp_path / "texts.py") == "it was not tried"
    assert same_as_full([lenient, others, strict, texts[1]], full, "repro.py", None) == ShortFile(texts[1])
    assert same_as_full([breaks], full, "repro.py", None) == "its short form says something else: KeyError: 1"
    ends = "import os\nos._exit(3)\n"
    assert same_as_full([ends], ends, "repro.py", None) == "the run of its short form ended with exit code 3"
    late = same_as_full([texts[1]], full, "repro.py", None, limit=0.01)
    assert late == "a run of the short form and the full one did not end in 0.01 s"


def test_nothing_is_run_for_a_full_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "same_as_full", lambda *given: pytest.fail("it was run"))
    assert len(bp.export(small(), tmp_path / "repro.py", full=True).read_text().splitlines()) >= FULL


# ------------------------------------------------------------------ what it has


IN_FULL = {
    "dynamic": "it has symbolic sizes, or graphs inside",
    "complex": "fft_r2c has dtype complex64",
    "sparse": "input_0 has layout sparse_coo",
    "guarded": "it has guards",
    "parts": "it has several Pairs",
    "isolated": "it calls an operator that may crash the process that tries the file",
    "beside": "its exact data are in a file beside it",
}
"""What a short file cannot have -> what the full one and its verb say of it."""


@pytest.mark.parametrize("kind", IN_FULL)
def test_what_a_short_file_cannot_have_is_written_in_full_and_told(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    match kind:
        case "dynamic":
            made = bp.capture(nn.Linear(4, 3), torch.randn(5, 4), dynamic=True)
        case "complex":
            made = bp.capture(lambda x: torch.fft.fft(x).abs().sum(), torch.randn(8), requires_grad=True)
        case "sparse":
            made = bp.capture(torch.sparse.mm, torch.eye(3).to_sparse().coalesce(), torch.randn(3, 4))
        case "guarded":
            made = bp.capture(lambda x: x * x.sum().item(), torch.randn(3), requires_grad=True)
        case "parts":
            made = bp.split(
                bp.capture(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), torch.randn(3, 2)), by="range:2"
            ).joined
        case "isolated":
            helper = torch.ops.aten._cholesky_solve_helper
            made = bp.capture(helper, args=(torch.randn(3, 2), torch.eye(3), False), requires_grad=False)
        case "beside":
            made = bp.capture(torch.sin, torch.randn(200, 200), requires_grad=False)
    bp.save(made, tmp_path / "sample", data="exact" if kind == "beside" else "seed")
    allow = ["--allow", "aten._cholesky_solve_helper"] if kind == "isolated" else []
    done = CliRunner().invoke(main, ["export", str(tmp_path / "sample"), "-o", str(tmp_path / "full.py"), *allow])
    assert f"note: it is the full form, because {IN_FULL[kind]}" in done.output.splitlines(), done.output
    assert len((tmp_path / "full.py").read_text().splitlines()) >= FULL


def row(kind: str, dtype: str, shape: list[int], stride: list[int] | None = None, **facts: Any) -> Recipe:
    """A recipe whose tensor lies from the first element of its memory on."""
    laid = tuple(stride) if stride else torch.empty(shape).stride()
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, laid, strict=True)) if 0 not in shape else 0
    return Recipe(
        kind, dtype, tuple(shape), laid, extent=extent, seed=2**52 + 12345, facts=tuple(sorted(facts.items()))
    )


RECIPES = [
    *(
        row("normal", dtype, [5, 7], mean=0.1, std=2.5, low=-3.0, high=4.0)
        for dtype in ("float32", "bfloat16", "float16", "float64")
    ),
    row("normal", "float32", [4, 3], [1, 4], mean=0.0, std=1.0, low=-4.0, high=4.0),
    row("normal", "float32", [2, 3], [8, 2], mean=0.0, std=1.0, low=-4.0, high=4.0),
    row("normal", "float32", [0, 3], mean=0.0, std=1.0, low=-4.0, high=4.0),
    row("normal", "float32", [], mean=0.0, std=1.0, low=-4.0, high=4.0),
    *(row("uniform", dtype, [11], low=-0.25, high=0.75) for dtype in ("float32", "bfloat16", "float64")),
    row("integers", "int64", [9], low=-3, high=1000),
    row("integers", "int32", [3, 3], low=0, high=1),
    row("choice", "bool", [10], values=(False, True), weights=(3, 7)),
    row("choice", "float32", [10], values=(0.0, float("inf")), weights=(1, 2)),
    row("permutation", "int64", [17], low=2),
    row("constant", "float32", [2, 2], value=float("-inf")),
    row("constant", "bool", [3], value=True),
    row("arange", "int64", [12], start=3, step=2, period=4),
    row("arange", "float32", [6], start=0.5, step=0.1, period=6),
    row("tril", "float32", [2, 3, 4], rows=3, cols=4, diagonal=0, inside=0.0, outside=float("-inf")),
    row("values", "int64", [4], values=(5, 5, 7, 4)),
    *(row("exact", dtype, [6]) for dtype in ("float32", "bfloat16", "float64", "int64", "bool")),
    row("exact", "float32", [9, 9]),
    row("exact", "float32", [3, 2], [1, 3]),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.kind} {recipe.dtype} {list(recipe.shape)}")
def test_a_short_file_makes_the_bits_of_a_recipe(recipe: Recipe) -> None:
    data = None
    if recipe.kind == "exact":
        flat = (torch.randn(recipe.shape, generator=torch.Generator().manual_seed(1)) * 3).to(
            getattr(torch, recipe.dtype)
        )
        data = (
            flat.view(-1).index_fill(0, torch.tensor([0]), 0.0).neg_().view(recipe.shape)
            if flat.is_floating_point()
            else flat
        )
    found = eval(expression(recipe, data), {**vars(short_text), "nan": float("nan")})
    wanted = make(recipe, data)
    assert found.stride() == wanted.stride()
    assert short_text.digest(found) == short_text.digest(wanted)


def test_what_is_drawn_in_another_way_is_refused() -> None:
    with pytest.raises(LongForm):
        expression(row("integers", "int64", [3], low=0, high=2**40), None)
    with pytest.raises(LongForm):
        expression(row("normal", "complex64", [3], mean=0.0, std=1.0, low=-4.0, high=4.0), None)


def test_only_unusual_settings_are_written() -> None:
    usual = {"threads": "2", "default_dtype": "float32", "deterministic": "False", "mkldnn": "True", "torch": "2"}
    assert list(setting_lines(usual)) == ["torch.set_num_threads(2)"]
    found = list(setting_lines({"default_dtype": "float64", "deterministic": "warn", "threads": "1; evil()"}))
    assert found == [
        "torch.set_default_dtype(torch.float64)",
        "torch.use_deterministic_algorithms(True, warn_only=True)",
    ]
