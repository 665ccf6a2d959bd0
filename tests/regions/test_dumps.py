"""Dumps: whole or not there, readable, read again to the bit, compared."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.blocks import PROGRAMS
from subjects.region_shown import shown

import backprint as bp
from face import SampleError, compare_passes, main, read_passes


def dumped(place: Path, program: str = "attention", gradients: str = "values", **options: Any) -> Any:
    torch.manual_seed(1)
    region = bp.region(place, gradients=gradients, **options)
    loss, _ = PROGRAMS[program](region)
    loss.backward()
    return region


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_dump_is_read_again_as_it_was(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    held = bp.region(gradients="values")
    loss, _ = PROGRAMS[name](held)
    loss.backward()
    (kept,) = held.passes
    (found,) = dumped(tmp_path / "dump", name).passes
    assert read_passes(tmp_path / "dump")[0].nodes == found.nodes
    assert [replace(node, stack=()) for node in found.nodes] == [replace(node, stack=()) for node in kept.nodes]
    assert [node.stack[-1:] for node in found.nodes] == [node.stack[-1:] for node in kept.nodes]
    assert [edge.name for edge in found.edges] == [edge.name for edge in kept.edges]
    assert [(each.stats, each.shape) for each in found.inputs] == [(each.stats, each.shape) for each in kept.inputs]
    compared = compare_passes([kept], [found])
    assert compared.good
    assert {row.verdict for row in compared.rows} == {"bitwise"}


def test_verbs_of_samples_that_run_say_who_takes_a_dump(tmp_path: Path) -> None:
    dumped(tmp_path / "dump")
    with pytest.raises(SampleError, match="the dump of a region, which show, diff, draw and view take"):
        bp.load(tmp_path / "dump")


def test_the_files_of_a_pass(tmp_path: Path) -> None:
    region = dumped(tmp_path / "dump", "seed", name="block3")
    (place,) = (tmp_path / "dump").iterdir()
    assert place.name == "block3_0000"
    assert {each.name for each in place.iterdir()} == {"graph.json", "gradients.safetensors"}
    summary = shown(place)
    assert "3 nodes inside, 3 on the boundary, 6 edges" in summary
    assert "z3 = z1 * z2" in summary
    assert "tensor(" not in (place / "graph.json").read_text()
    assert repr(region) == "<region block3: finished, 1 passes>"


def test_without_values_no_tensor_is_written_and_without_stats_no_number(tmp_path: Path) -> None:
    (stats,) = dumped(tmp_path / "stats", gradients="stats").passes
    (none,) = dumped(tmp_path / "none", gradients="none", stacks=False).passes
    assert not list(tmp_path.glob("*/*/gradients.safetensors"))
    assert all(edge.stats is not None and edge.gradient is None for edge in stats.edges)
    assert all(edge.stats is None for edge in none.edges)
    assert all(node.stack == () and node.line is not None for node in none.nodes if node.inside)
    assert [edge.name for edge in none.edges] == [edge.name for edge in stats.edges]


def test_regions_of_one_folder_number_on(tmp_path: Path) -> None:
    for _ in range(3):
        dumped(tmp_path, "seed")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pass_0000", "pass_0001", "pass_0002"]
    shutil.rmtree(tmp_path / "pass_0000")
    for _ in range(2):
        dumped(tmp_path, "seed")
    assert len(read_passes(tmp_path)) == 4


def test_a_region_that_no_loss_reaches_has_operators_and_no_pass(tmp_path: Path) -> None:
    x = torch.randn(3, requires_grad=True)
    with bp.region(tmp_path / "dump") as region:
        y = x.sin()
        z = y * 2
        torch.ones(3).exp()
    assert [op.name for op in region.unreached][:2] == ["aten.sin.default", "aten.mul.Tensor"]
    assert "aten.exp.default" in [op.name for op in region.unreached]
    assert region.unreached[1].line.code == "z = y * 2"
    del y, z
    assert list((tmp_path / "dump").iterdir()) == []
    with pytest.raises(bp.errors.UsageError, match=r"no pass here: .* region\.unreached lists its operators"):
        read_passes(tmp_path / "dump")
    done = CliRunner().invoke(main, ["show", str(tmp_path / "dump")])
    assert (done.exit_code, "nor graph.json, as a dump of bp.region does" in done.output) == (3, True)


def test_a_folder_deleted_half_way_is_made_again(tmp_path: Path) -> None:
    x = torch.randn(3, requires_grad=True)
    with bp.region(tmp_path / "dump", gradients="values") as region:
        y = x.sin()
    shutil.rmtree(tmp_path / "dump")
    y.sum().backward()
    assert torch.equal(x.grad, x.detach().cos())
    assert region.passes[0].edges[-1].gradient.equal(x.grad)


def test_a_dump_that_cannot_be_written_leaves_the_step_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(3, requires_grad=True)
    with bp.region(tmp_path / "dump", gradients="values") as region:
        y = x.sin()
    shutil.rmtree(tmp_path / "dump")
    (tmp_path / "dump").write_text("in the way")
    with pytest.warns(RuntimeWarning, match=r"pass 0 of region could not be written .* region\.save\(path\)"):
        y.sum().backward()
    assert torch.equal(x.grad, x.detach().cos())
    assert "kept in memory" in region.errors[0]
    assert region.passes[0].edges[-1].gradient.equal(x.grad)
    (place,) = region.save(tmp_path / "elsewhere")
    assert read_passes(place)[0].edges[-1].gradient.equal(x.grad)
    assert region.save(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("broken", ["save", "rename"])
def test_a_pass_is_there_whole_or_not_at_all(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        if broken == "save":
            patched.setattr("backprint.tools.regions.dumps.write_safetensors", fails)
        else:
            patched.setattr("os.rename", fails)
        with pytest.warns(RuntimeWarning, match="the disk is full"):
            region = dumped(tmp_path / "dump", "seed")
    assert list((tmp_path / "dump").iterdir()) == []
    assert len(region.passes[0].edges) == 6


def spoiled(change: Callable[[dict[str, Any]], Any], place: Path) -> None:
    content = json.loads((place / "graph.json").read_text())
    change(content)
    (place / "graph.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.update(format=9), "has format 9, and this Backprint reads format 3: run the program again"),
        (lambda c: c["edges"][0].update(gradient={"name": "nothing"}), "malformed: KeyError"),
        (lambda c: c.update(level="all"), r"malformed: ValueError: the pass\.level is 'all'"),
        (lambda c: c.pop("region"), "is not a region's graph.json"),
        (lambda c: c.update(time="now"), "malformed: its time is 'now'"),
        (lambda c: c.update(origin={"what": "NaN"}), r"malformed: ValueError: the pass\.origin has no 'where'"),
        (
            lambda c: c.update(origin={"what": "NaN", "where": "x"}),
            r"malformed: ValueError: the pass\.origin\.where is 'x'",
        ),
    ],
)
def test_a_spoiled_dump_is_refused_by_name(change: Any, said: str, tmp_path: Path) -> None:
    dumped(tmp_path, "seed")
    spoiled(change, tmp_path / "pass_0000")
    with pytest.raises(bp.errors.RegionError, match=said):
        read_passes(tmp_path)
    (tmp_path / "pass_0000/graph.json").write_text("{")
    with pytest.raises(bp.errors.RegionError, match="cannot be read"):
        read_passes(tmp_path)


def test_spoiled_tensors_are_refused_by_name(tmp_path: Path) -> None:
    dumped(tmp_path, "seed")
    (tmp_path / "pass_0000/gradients.safetensors").write_bytes(b"no tensors")
    with pytest.raises(bp.errors.RegionError, match=r"gradients\.safetensors: cannot be read"):
        read_passes(tmp_path)
    with pytest.raises(bp.errors.UsageError, match="no such folder"):
        read_passes(tmp_path / "nothing")


# ------------------------------------------------------------------ compare


def changed(place: Path, scale: float, dtype: torch.dtype = torch.float32, more: bool = False, **options: Any) -> None:
    torch.manual_seed(2)
    x = torch.randn(6, dtype=torch.float64).to(dtype).requires_grad_()
    with bp.region(place, **{"gradients": "values", **options}):
        a = x.sin()
        b = a * scale
        c = b.cos() if more else b
        d = c.exp()
    d.sum().backward()


def compared(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["diff", *map(str, arguments)])
    return done.exit_code, done.output


def test_two_runs_are_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        changed(tmp_path / name, 2.0)
    code, said = compared(tmp_path / "a", tmp_path / "b")
    assert (code, said) == (0, "9 bitwise\n")


def test_a_change_is_found_where_it_begins(tmp_path: Path) -> None:
    changed(tmp_path / "a", 2.0)
    changed(tmp_path / "b", 2.001)
    code, said = compared(tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert "first divergence: pass 0, edge exp:0 -> mul:0, forward test_dumps.py:" in said
    assert "largest error" in said
    code, text = compared(tmp_path / "a", tmp_path / "b", "--json")
    row = json.loads(text)
    assert (code, row["good"], row["first"]["name"], row["first"]["tensor"]) == (1, False, "exp:0 -> mul:0", "b")
    assert row["worst"]["error"] > 1e-4


def test_precisions_are_compared_with_the_wider_tolerance(tmp_path: Path) -> None:
    changed(tmp_path / "a", 2.0)
    changed(tmp_path / "b", 2.0, torch.bfloat16)
    code, said = compared(tmp_path / "a", tmp_path / "b")
    assert code == 0, said
    assert "float32 in the first, bfloat16 in the second" in said


def test_missing_edges_are_named(tmp_path: Path) -> None:
    changed(tmp_path / "a", 2.0)
    changed(tmp_path / "b", 2.0, more=True)
    code, said = compared(tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert "only the second has it" in said
    assert "only the first has it" in said


def test_statistics_are_compared_where_values_are_not_there(tmp_path: Path) -> None:
    changed(tmp_path / "a", 2.0, gradients="stats")
    changed(tmp_path / "b", 2.0)
    changed(tmp_path / "c", 3.0, gradients="stats")
    changed(tmp_path / "d", 2.0, gradients="none")
    code, said = compared(tmp_path / "a", tmp_path / "b")  # equal statistics are no equal bits
    assert (code, said.splitlines()[-1]) == (0, "9 close")
    assert "by statistics: relative error 0, tolerance 0.0001" in said
    assert compared(tmp_path / "a", tmp_path / "c")[0] == 1
    code, said = compared(tmp_path / "a", tmp_path / "d")
    assert (code, "no gradients kept" in said) == (1, True)


def test_show_prints_the_summary(tmp_path: Path) -> None:
    changed(tmp_path / "a", 2.0)
    done = CliRunner().invoke(main, ["show", str(tmp_path / "a")])
    assert done.exit_code == 0
    assert "3 nodes inside" in done.output


@pytest.mark.parametrize("name", ["count", "nan", "inf", "zeros"])
@pytest.mark.parametrize("count", [-1, 1 << 63, 10**400])
def test_a_count_that_no_tensor_has_is_refused(name: str, count: int, tmp_path: Path) -> None:
    """`show --json` ended in an OverflowError."""
    dumped(tmp_path, "seed")
    spoiled(lambda content: content["edges"][0]["stats"].update({name: count}), tmp_path / "pass_0000")
    with pytest.raises(bp.errors.RegionError, match=rf"the pass\.edges\[0\]\.stats\.{name} is negative, or larger"):
        read_passes(tmp_path)


@pytest.mark.parametrize("gradient", [[1e20, -3e20, 1e20, 5e20], [3e38, 3e38, 3e38, 0.0], [3e38, 3e38, -3e38, -3e38]])
def test_statistics_whose_squares_or_sum_overflow_are_read_again(gradient: list[float], tmp_path: Path) -> None:
    x, region = torch.ones(4, requires_grad=True), bp.region(tmp_path, gradients="stats")
    with region:
        y = x * 1.0
    y.backward(torch.tensor(gradient))
    (found,) = read_passes(tmp_path)
    wide = torch.tensor(gradient, dtype=torch.float64)
    assert found.roots[0].stats.mean == pytest.approx(float(wide.mean()))
    assert found.roots[0].stats.std == pytest.approx(float(wide.std(correction=0)))
