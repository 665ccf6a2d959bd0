"""Recipes from GraphNet's metadata keep what its fields promise, and uses are read from the lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects.graphnet_samples import write
from torch import Tensor

import backprint as bp
from face import USES, KnownInput, Meta, Use, from_json, read_code, recipe_notes, recipes_from_metas, to_json, uses_of

INF, NONE = math.inf, Use()


def made(meta: Meta, role: str = "parameter", use: Use = NONE, name: str = "") -> Tensor:
    known = KnownInput(name or meta.name, role, meta, use)
    inputs = recipes_from_metas([known], 0, "cpu")
    for recipe in inputs.recipes.values():
        assert from_json(to_json(recipe)) == recipe
    tensor = inputs.make()[known.name]
    assert (tuple(tensor.shape), str(tensor.dtype)) == (meta.shape, f"torch.{meta.dtype}")
    assert tensor.is_contiguous()
    return tensor


def spread(tensor: Tensor) -> tuple[float, float]:
    return float(tensor.double().mean()), float(tensor.double().std(correction=0))


# ------------------------------------------------------------------ floats


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.02), (0.5, 0.289), (-3.25, 1.5), (120.0, 40.0)])
def test_floats_have_the_mean_and_the_whole_deviation(mean: float, std: float) -> None:
    found = spread(made(Meta("w", (200, 300), mean=mean, std=std)))
    assert found == pytest.approx((mean, std), rel=0.02, abs=0.02 * std)


def test_bounds_are_kept() -> None:
    tensor = made(Meta("points", (1, 900, 4), mean=0.4, std=0.296, min_val=0.0, max_val=1.0), "input")
    assert 0 <= float(tensor.min()) < float(tensor.max()) <= 1


@pytest.mark.parametrize(("mean", "role"), [(0.0, "parameter"), (-0.003, "buffer")])
def test_a_deviation_printed_as_nothing_prints_so_and_is_not(mean: float, role: str) -> None:
    tensor = made(Meta("bn.bias", (4096,), mean=mean, std=0.0), role)
    found = spread(tensor)
    assert f"{found[0]:.3f}".replace("-0.000", "0.000") == f"{mean:.3f}"
    assert f"{found[1]:.3f}" == "0.000"
    assert tensor.unique().numel() > 100
    assert found[1] > 0.0003


def test_digits_say_how_much_is_left_open() -> None:
    assert spread(made(Meta("w", (4096,), mean=0.0, std=0.0, digits=6)))[1] < 5e-7


@pytest.mark.parametrize(
    ("meta", "role", "use"),
    [
        (Meta("scale", (), mean=0.125, std=0.0), "buffer", Use()),
        (Meta("scale", (), mean=0.125, std=math.nan), "input", Use(frozenset({"read"}))),
        (Meta("x", (9,), mean=-1.0, std=0.0), "input", Use()),
    ],
)
def test_constants_stay_constant(meta: Meta, role: str, use: Use) -> None:
    assert set(made(meta, role, use).flatten().tolist()) == {meta.mean}


def test_numbers_that_are_read_one_by_one_are_evenly_spread_and_not_drawn() -> None:
    meta = Meta("stride", (3,), mean=18.667, std=12.22)
    use = Use(frozenset({"read"}))
    assert made(meta, "buffer", use).tolist() == pytest.approx([6.447, 18.667, 30.887])
    assert torch.equal(made(meta, "buffer", use), made(meta, "buffer", use, "other"))


@pytest.mark.parametrize("name", ["layernorm.eps", "L_self_modules_norm_variance_epsilon", "layer_norm1_eps"])
def test_what_keeps_a_divisor_from_nothing_is_not_nothing(name: str) -> None:
    meta = Meta(name, (), "float64", mean=0.0, std=0.0)
    use = Use(frozenset({"read"}))
    assert made(meta, "input", use).item() == 1e-5
    assert recipe_notes([KnownInput(name, "input", meta, use)])[0].startswith(
        "1 floating-point inputs are epsilons that are printed as 0"
    )
    assert made(Meta("dropout_p", (), "float64", mean=0.0, std=0.0), "input", use).item() == 0
    assert made(Meta("steps", (), "float64", mean=0.0, std=0.0), "input", use).item() == 0


@pytest.mark.parametrize(
    ("said", "mean", "std"),
    [
        ("minimum", 3.02, 2.947),
        ("use", 0.5, 2.0),
        *(("name", mean, std) for mean, std in ((1.0, 0.0), (0.0, 0.0), (0.001, 0.0), (86997.125, 14341.976))),
    ],
)
def test_a_variance_is_positive_with_its_mean_and_deviation(mean: float, std: float, said: str) -> None:
    meta = Meta("bn.running_var" if said == "name" else "b", (20000,), mean=mean, std=std)
    if said == "minimum":
        meta = Meta("b", (20000,), mean=mean, std=std, min_val=0)
    use = Use(frozenset({"variance"})) if said == "use" else Use()
    tensor = made(meta, "buffer", use)
    found = spread(tensor)
    assert float(tensor.min()) > max(0.0, 0.19 * mean)
    assert found[0] == pytest.approx(mean, rel=0.1, abs=0.0005)
    assert found[1] == pytest.approx(std, rel=0.1, abs=0.0005)
    assert tensor.unique().numel() > 20


def test_a_divisor_stays_away_from_nothing() -> None:
    tensor = made(Meta("std", (5000,), mean=0.2, std=0.2), "input", Use(frozenset({"positive"})))
    assert float(tensor.min()) > 0.04


# ------------------------------------------------------------------ data


def test_data_is_kept_as_it_is_printed_and_said() -> None:
    meta = Meta("eps", (3,), mean=0.0, std=0.0, data=(0.0, 0.25, -1.5))
    assert made(meta, "buffer").tolist() == [0.0, 0.25, -1.5]
    (note,) = recipe_notes([KnownInput("eps", "buffer", meta, Use())])
    assert (
        note
        == "1 floating-point inputs have elements that are printed as 0.000000, and are 0 here, whatever they were: eps"
    )


@pytest.mark.parametrize(
    ("dtype", "data"),
    [("int64", (5, 5, 0, 9)), ("bool", (True, False, True, True)), ("float32", (2.0, 2.0, 2.0, 2.0))],
)
def test_data_of_every_kind_is_kept(dtype: str, data: tuple[Any, ...]) -> None:
    assert made(Meta("x", (2, 2), dtype, data=data), "input").flatten().tolist() == list(data)


def test_data_of_another_length_is_not_taken_for_the_tensor() -> None:
    assert made(Meta("x", (3, 3), mean=0.0, std=1.0, data=(1.0,)), "input").unique().numel() == 9


# ------------------------------------------------------------------ whole numbers, masks


def test_whole_numbers_lie_in_their_range() -> None:
    tensor = made(Meta("index", (1601, 160), "int64", min_val=0, max_val=6243), "buffer")
    assert (int(tensor.min()), int(tensor.max())) == (0, 6243)


def test_an_index_stays_below_what_it_is_an_index_of() -> None:
    use = Use(frozenset({"index"}), 10)
    tensor = made(Meta("ids", (500,), "int64", min_val=3, max_val=99), "input", use)
    assert sorted(set(tensor.tolist())) == list(range(3, 10))
    assert set(made(Meta("ids", (500,), "int32"), "input", use).tolist()) == set(range(10))


def test_positions_count() -> None:
    assert made(Meta("L_position_ids_", (2, 80), "int64"), "input").tolist() == [list(range(80))] * 2


def test_whole_numbers_of_which_nothing_is_known_are_0_and_1() -> None:
    assert set(made(Meta("x", (100,), "uint8"), "input").tolist()) == {0, 1}


def test_masks_stay_masks() -> None:
    causal = made(Meta("causal_mask", (1, 1, 9, 9), "bool"), "buffer")
    assert torch.equal(causal[0, 0], torch.ones(9, 9, dtype=torch.bool).tril())
    padding = made(Meta("L_attention_mask_", (4, 100), "int64", min_val=0, max_val=1), "input")
    assert 0.6 < float(padding.double().mean()) < 0.9


@pytest.mark.parametrize("mean", [-INF, torch.finfo(torch.float32).min / 2])
def test_an_additive_mask_has_what_closed_its_places(mean: float) -> None:
    meta = Meta("mask", (1, 1, 16, 16), mean=mean, std=math.nan)
    tensor = made(meta, "buffer", Use(frozenset({"additive"})), "causal_mask")
    closed = -INF if mean == -INF else torch.finfo(torch.float32).min
    assert set(tensor.flatten().tolist()) == {0.0, closed}
    assert bool((tensor[0, 0].tril() == 0).all())


def test_every_recipe_has_its_own_seed_and_the_same_next_time() -> None:
    known = [KnownInput(name, "parameter", Meta(name, (50,), mean=0.0, std=1.0), Use()) for name in "ab"]
    first, second = recipes_from_metas(known, 0, "cpu").make(), recipes_from_metas(known, 0, "cpu").make()
    assert not torch.equal(first["a"], first["b"])
    assert torch.equal(first["a"], second["a"])
    assert not torch.equal(first["a"], recipes_from_metas(known, 1, "cpu").make()["a"])


# ------------------------------------------------------------------ samples


@pytest.mark.parametrize("name", ["convnet", "transformer"])
@pytest.mark.parametrize("mode", [None, "train"])
def test_a_check_of_a_sample_sees_all_that_its_results_depend_on(name: str, mode: str | None, tmp_path: Path) -> None:
    capture = bp.capture(write(name, tmp_path / name), mode=mode)
    power = bp.power(capture, "all")
    assert power.reacts, (power.hidden, power.dead_ports)
    assert power.tried > 3


# ------------------------------------------------------------------ uses

CODE = """
import torch

class GraphModule(torch.nn.Module):
    def forward(self, x, ids: torch.Tensor, table, mask, mean, var, n, bias, scores, pos, std, labels, where):
        {body}
        return (x,)
"""

METAS = {
    "x": Meta("x", (8, 30)),
    "ids": Meta("ids", (4,), "int64"),
    "table": Meta("table", (10, 3)),
    "scores": Meta("scores", (8, 8)),
}

ROWS = {
    "y = torch.nn.functional.embedding(ids, table, None)": {"ids": ("index", 10)},
    "y = torch.nn.functional.embedding(ids.view(-1).to(torch.int64) + 2, table)": {"ids": ("index", 8)},
    "y = torch.embedding(table, ids)": {"ids": ("index", 10)},
    "y = table[ids]": {"ids": ("index", 10)},
    "y = x[(slice(None, None, None), ids)]": {"ids": ("index", 30)},
    "y = x[(slice(None, None, None), ids)] = 0.0": {"ids": ("index", 30)},
    "y = x.gather(1, ids)": {"ids": ("index", 30)},
    "y = torch.gather(x, dim=0, index=ids)": {"ids": ("index", 8)},
    "y = x.index_select(0, ids)": {"ids": ("index", 8)},
    "y = torch.nn.functional.one_hot(ids, 7)": {"ids": ("index", 7)},
    "y = torch.t(table).index_select(0, ids)": {"ids": ("index", None)},
    "y = torch.nn.functional.batch_norm(x, mean, var, None, None, False, 0.1, 1e-05)": {
        "mean": ("average", None),
        "var": ("variance", None),
    },
    "y = torch.rsqrt(var.reshape(1, -1) + 1e-05)": {"var": ("positive", None)},
    "y = x / std": {"std": ("positive", None)},
    "y = x.masked_fill(mask, 0.0)": {"mask": ("mask", None)},
    "y = torch.where(mask, x, 0.0)": {"mask": ("mask", None)},
    "y = x.where(mask, bias)": {"mask": ("mask", None)},
    "y = x.masked_fill(~mask[(slice(None, None, None), None)], 0.0)": {"mask": ("mask", None)},
    "y = 1.0 - mask": {"mask": ("flag", None)},
    "y = n.item()": {"n": ("read", None)},
    "a = scores + bias\n        y = torch.nn.functional.softmax(a, dim=-1)": {"bias": ("additive", None)},
    "y = torch._C._nn.scaled_dot_product_attention(x, x, x, attn_mask=bias)": {"bias": ("additive", None)},
    "y = torch.nn.functional.cross_entropy(x, labels)": {"labels": ("target", None)},
    "a = mask\n        mask = None\n        y = torch.where(a, x, 0.0)": {"mask": ("mask", None)},
}


@pytest.mark.parametrize("body", ROWS)
def test_uses_are_read_from_the_lines(body: str) -> None:
    found = uses_of(read_code(CODE.format(body=body)), METAS)
    for name, use in found.items():
        kind, below = ROWS[body].get(name, (None, None))
        assert use == Use(frozenset({kind} - {None}), below), name
        assert use.kinds <= set(USES)


def test_what_stands_before_a_softmax_is_no_mask() -> None:
    body = "a = scores + bias\n        y = torch.nn.functional.softmax(a, dim=-1)"
    assert uses_of(read_code(CODE.format(body=body)), METAS)["scores"] == Use()
