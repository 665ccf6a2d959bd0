"""`kernels.jsonl`: a row for each kernel of a run, each program once, and what the command says of them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from test_extract_kernels import needs_triton
from torch import nn

import backprint as bp
from face import KernelRow, RefusedError, UsageError, main, read_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # torch's own, of Inductor's import
]


def net(width: int = 16, layers: int = 1) -> nn.Module:
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    return nn.Sequential(*parts)


class Renamed(nn.Module):
    """A net whose parameters have other names."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.zz_inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.zz_inner(x)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nets that differ in names alone, in a folder and in one below it, and one of another size."""
    folder = tmp_path_factory.mktemp("samples")
    x = torch.randn(5, 16)
    bp.save(bp.capture(net(), x, mode="train"), folder / "one")
    bp.save(bp.capture(Renamed(net()), x, mode="train"), folder / "more" / "renamed")
    bp.save(bp.capture(net(48), torch.randn(7, 48), mode="train"), folder / "wide")
    return folder


@pytest.fixture(scope="module")
def out(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kernels") / "out"
    done = run(samples, "-o", out, "--target", "cpu:avx2")
    assert done.exit_code == 0, done.output
    return out


def run(*words: Any) -> Any:
    return CliRunner().invoke(main, ["kernels", *map(str, words)])


def groups_of(rows: list[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups


def rows_in(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "kernels.jsonl").read_text().splitlines()]


def test_each_kernel_has_a_row_with_its_origin_and_its_file(out: Path) -> None:
    rows = rows_in(out)
    assert {row["sample"] for row in rows} == {"one", "more/renamed", "wide"}
    assert {row["graph"] for row in rows} == {"pair_0 forward", "pair_0 backward"}
    for row in rows:
        assert row["graph"].endswith(row["direction"])
        assert (row["target"], row["language"], row["launches"] > 0, row["bytes"] > 0) == (
            "cpu:avx2",
            "cpp",
            True,
            True,
        )
        assert 'extern "C"' in (out / row["file"]).read_text()
        facts = json.loads((out / row["file"]).parents[1].joinpath("graph.json").read_text())
        (known,) = [kernel for kernel in facts["kernels"] if kernel["name"] == row["name"]]
        assert known["hash"] == row["hash"]
        assert [operator["operator"] for operator in known["operators"]] == row["operators"]
    assert any("aten.gelu.default" in row["operators"] for row in rows)


def test_programs_that_differ_in_names_alone_are_one(out: Path) -> None:
    groups = groups_of(rows_in(out), "hash")
    for group in groups.values():
        assert sorted(row["sample"] for row in group) in (["more/renamed", "one"], ["wide"])
        assert Counter(row["first"] for row in group)[True] == 1


def test_programs_that_differ_in_sizes_alone_are_one_structure(out: Path) -> None:
    sharing = [{row["sample"] for row in group} for group in groups_of(rows_in(out), "structure").values()]
    assert {"one", "more/renamed", "wide"} in sharing


def test_the_command_says_how_many_programs_there_are(samples: Path, out: Path) -> None:
    rows = rows_in(out)
    programs, structures = groups_of(rows, "hash"), groups_of(rows, "structure")
    done = run(samples, "-o", out, "--target", "cpu:avx2")  # again: nothing is left to be done
    assert done.exit_code == 0
    said = done.output.splitlines()
    counts = f"{len(rows)} kernels in 3 samples: {len(programs)} programs ({len(rows) / len(programs):.2f} uses each)"
    assert f"{counts}, {len(structures)} structures apart from sizes and constants" in said
    assert f"a row for each kernel: {out / 'kernels.jsonl'}" in said
    assert rows_in(out) == rows


def test_a_run_of_a_corpus_has_the_rows_too(samples: Path, out: Path, tmp_path: Path) -> None:
    words = ["corpus", "run", "kernels", samples, "-o", tmp_path / "out", "--set", 'targets=["cpu:avx2"]']
    done = CliRunner().invoke(main, [*map(str, words), "--allow-unproven"])
    assert done.exit_code == 0, done.output
    assert rows_in(tmp_path / "out") == rows_in(out)


@needs_triton
def test_triton_kernels_are_files_that_stand_alone(samples: Path, tmp_path: Path) -> None:
    done = run(samples / "one", samples / "more" / "renamed", "-o", tmp_path / "out", "--target", "cuda:90,cuda:80")
    assert done.exit_code == 0, done.output
    rows = rows_in(tmp_path / "out")
    assert {row["target"] for row in rows} == {"cuda:80", "cuda:90"}
    for group in groups_of(rows, "hash").values():  # the same program for two samples and two GPUs
        assert len({(row["sample"], row["target"]) for row in group}) == 4
    assert all(
        (tmp_path / "out" / row["file"]).read_text().startswith("# A kernel that Backprint saved") for row in rows
    )


# ------------------------------------------------------------------ Python


def test_dedup_is_a_dictionary() -> None:
    x = torch.randn(5, 16)
    first = bp.kernels.extract(net(), x, target="cpu:avx2", mode="train")
    same = bp.kernels.extract(Renamed(net()), x, target="cpu:avx2", mode="train")
    wide = bp.kernels.extract(net(48), torch.randn(7, 48), target="cpu:avx2", mode="train")
    programs = bp.kernels.dedup([first, same, wide])
    assert set(programs) == {kernel.hash for found in (first, wide) for kernel in found}
    assert programs[next(iter(first)).hash] == [next(iter(first)), next(iter(same))]
    assert len(bp.kernels.dedup([first, wide], ignore_sizes=True)) < len(bp.kernels.dedup([first, wide]))


def test_what_is_no_kernel_is_named() -> None:
    with pytest.raises(UsageError, match=r"dedup of str: pass a list of Kernels; bp\.corpus\.dedup is for samples"):
        bp.kernels.dedup("samples")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="found int '3', which is no Kernel"):
        bp.kernels.dedup([3])  # type: ignore[list-item]


def test_a_damaged_row_is_named_by_its_line(out: Path, tmp_path: Path) -> None:
    text = (out / "kernels.jsonl").read_text()
    (tmp_path / "kernels.jsonl").write_text(text)
    assert [type(row) for row in read_rows(tmp_path)] == [KernelRow] * len(text.splitlines())
    (tmp_path / "kernels.jsonl").write_text(text.replace('"launches": 1', '"launches": "one"', 1))
    with pytest.raises(RefusedError, match=r"line 1: no row of a kernel: it\.launches is of type str, and must be int"):
        list(read_rows(tmp_path))
