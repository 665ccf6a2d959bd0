"""Bounded dumps: every so many passes, so many at most, those with NaN or Inf alone."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import backprint as bp
from face import PassBounds, PassCount, read_passes

SICK = (3, 4, 7)


def steps(path: Path | None, count: int = 10, **options: Any) -> list[Any]:
    """A training loop with a region; in some steps the loss is NaN."""
    regions = []
    for index in range(count):
        x = torch.tensor([-1.0 if index in SICK else 1.0], requires_grad=True)
        with bp.region(path, **options) as region:
            y = x.log() * 2
        y.sum().backward()
        regions.append(region)
    return regions


def numbers(path: Path) -> list[int]:
    return [each.index for each in read_passes(path)]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, list(range(10))),
        ({"every": 4}, [0, 4, 8]),
        ({"limit": 3}, [0, 1, 2]),
        ({"every": 3, "limit": 2}, [0, 3]),
        ({"only_bad": True, "gradients": "stats"}, [3, 4, 7]),
        ({"only_bad": True, "gradients": "values", "limit": 1}, [3]),
        ({"only_bad": True, "gradients": "stats", "every": 2}, [4]),
    ],
)
def test_a_loop_keeps_what_it_is_asked_for(options: dict[str, Any], kept: list[int], tmp_path: Path) -> None:
    regions = steps(tmp_path / "dump", **options)
    assert numbers(tmp_path / "dump") == kept
    assert [index for index, region in enumerate(regions) if len(region.passes)] == kept
    assert [region.unreached for region in regions] == [[]] * 10
    assert len(list((tmp_path / "dump").iterdir())) == len(kept)


def test_a_decorated_function_counts_its_calls_and_needs_no_folder() -> None:
    region = bp.region(every=2, limit=3)

    @region
    def double(x: Tensor) -> Tensor:
        return x * 2

    for _ in range(10):
        double(torch.ones(3, requires_grad=True)).sum().backward()
    assert [each.index for each in region.passes] == [0, 2, 4]
    assert len(steps(None, every=5)[1].passes) == 1  # without a folder each region counts its own


def test_nested_regions_and_names_have_their_own_counts(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    for _ in range(6):
        with bp.region(tmp_path, name="outer", every=3) as outer:
            a = x.sin()
            with bp.region(tmp_path, name="inner", gradients="values", limit=1) as inner:
                b = a.cos()
        b.sum().backward()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["inner_0000", "outer_0000", "outer_0001"]
    assert (len(outer.passes), len(inner.passes)) == (0, 0)
    assert [(each.region, each.index) for each in read_passes(tmp_path)] == [("inner", 0), ("outer", 0), ("outer", 3)]


def test_threads_together_keep_no_more_than_the_limit(tmp_path: Path) -> None:
    threads = [threading.Thread(target=steps, args=(tmp_path, 25), kwargs={"every": 2, "limit": 20}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = numbers(tmp_path)
    assert len(kept) == len(set(kept)) == 20
    assert all(number % 2 == 0 for number in kept)


def test_passes_at_the_same_time_keep_no_more_than_the_limit(tmp_path: Path) -> None:
    """One backward within another: both begin while there is room for one."""

    def loss() -> tuple[Tensor, Tensor]:
        x = torch.ones(3, requires_grad=True)
        with bp.region(tmp_path, limit=1):
            y = x.sin()
        return y, y.sum()

    (_, inner), (y, outer) = loss(), loss()
    y.register_hook(lambda _: inner.backward())
    outer.backward()
    assert numbers(tmp_path) == [1]
    count = PassCount()
    assert [count.keep(PassBounds(limit=1)) for _ in range(2)] == [True, False]


def test_a_backward_that_runs_nothing_inside_is_not_counted(tmp_path: Path) -> None:
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    for _ in range(4):
        with bp.region(tmp_path, every=2):
            y = x.sin()
        loss = (y * w).sum()
        torch.autograd.grad(loss, w, retain_graph=True)
        loss.backward()
    assert numbers(tmp_path) == [0, 2]


def test_a_backward_that_raises_is_bad(tmp_path: Path) -> None:
    def fails(_: Tensor) -> None:
        raise RuntimeError("not now")

    x = torch.ones(3, requires_grad=True)
    with bp.region(tmp_path, gradients="stats", only_bad=True) as region:
        y = x.sin()
    y.register_hook(fails)
    z = y.cos()
    with pytest.raises(RuntimeError, match="not now"):
        z.sum().backward()
    assert len(region.passes) == 0  # nothing inside had run
    with bp.region(tmp_path, gradients="stats", only_bad=True) as region:
        y = x.sin()
        y.register_hook(fails)
        z = y.cos()
    with pytest.raises(RuntimeError, match="not now"):
        z.sum().backward()
    assert "not now" in region.passes[0].error


def test_a_folder_that_was_removed_begins_anew(tmp_path: Path) -> None:
    for _ in range(2):
        steps(tmp_path / "dump", 4, limit=2)
        assert sorted(each.name for each in (tmp_path / "dump").iterdir()) == ["pass_0000", "pass_0001"]
        assert numbers(tmp_path / "dump") == [0, 1]
        shutil.rmtree(tmp_path / "dump")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": 0}, "every=0: a whole number of passes is expected, 1 or more"),
        ({"every": True}, "every=True: a whole number"),
        ({"every": None}, "every=None: a whole number"),
        ({"limit": -1}, "limit=-1: a whole number of passes is expected, 1 or more, or None for all"),
        ({"limit": 2.0}, r"limit=2\.0: a whole number"),
        ({"only_bad": 1, "gradients": "stats"}, "only_bad=1 is neither True nor False"),
        ({"only_bad": True}, r'only_bad=True looks for NaN and Inf: write gradients="stats"'),
    ],
)
def test_wrong_bounds_name_the_fix(options: dict[str, Any], said: str) -> None:
    with pytest.raises(bp.errors.UsageError, match=said):
        bp.region(**options)
