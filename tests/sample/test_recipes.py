"""Recipes keep what programs rely on, make the same bits everywhere, and refuse what is not a recipe.

`python tests/sample/test_recipes.py` prints the table DIGESTS anew, for the day when a draw is changed on purpose.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from face import (
    KINDS,
    PARTS_OF,
    Recipe,
    ReplayError,
    SampleError,
    UsageError,
    exact_data,
    fit,
    fit_all,
    from_json,
    make,
    make_all,
    redraw,
    run_sample,
    to_json,
)
from face import generator_digest as digest

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")

FLOATS = ("float64", "float32", "float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")

SPAN = 1001  # odd, so that the last Philox block is half used
SHAPES = {"tril": (7, 11, 13), "values": (5,), "permutation": (100,)}
FACTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "normal": (FLOATS + COMPLEX, {"mean": 0.1, "std": 0.7, "low": -2.0, "high": 1.75}),
    "uniform": (FLOATS + COMPLEX, {"low": -0.3, "high": 1.7}),
    "integers": (INTEGERS, {"low": 3, "high": 99}),
    "choice": ((*FLOATS, *COMPLEX, *INTEGERS, "bool"), {"values": (1, 0), "weights": (3, 10)}),
    "constant": ((*FLOATS, *COMPLEX, *INTEGERS, "bool"), {"value": 1}),
    "arange": (FLOATS + INTEGERS, {"start": 2, "step": 3, "period": 7}),
    "tril": ((*FLOATS, *INTEGERS, "bool"), {"rows": 11, "cols": 13, "diagonal": 1, "inside": 1, "outside": 0}),
    "values": ((*INTEGERS, "bool"), {"values": (1, 0, 0, 1, 1)}),
    "permutation": (INTEGERS, {"low": 4}),
}


def sample_recipe(kind: str, dtype: str) -> Recipe:
    shape = SHAPES.get(kind, (SPAN,))
    stride = torch.empty(shape, device="meta").stride()
    facts = tuple(sorted(FACTS[kind][1].items()))
    return Recipe(kind, dtype, shape, stride, extent=math.prod(shape), seed=2**63 + 12345, facts=facts)


CASES = [(kind, dtype) for kind, (dtypes, _) in FACTS.items() for dtype in dtypes]

DIGESTS: dict[str, str] = {
    "normal": ("7a2b3f3bda4120d5 978f2262e905d6e0 ae7017e56a3512bc d503bac040727af3 da2c163e9e1556ac 43b373b935a210ed"),
    "uniform": (
        "cf154a0f4ec05673 f2e47ad7c73fc5ac 75ff755bb9f5e6ca ddf9e47f47eb6211 6cd0d9bf78a235e4 8693434253778d24"
    ),
    "integers": "44b661286de6d838 ac99127a27fdc16c c9648fae3c48dfdf 47afc1183a1b1c5f 03aae314d1bd8642",
    "choice": (
        "17fffb7117eccfde 38f0673dacd67a95 a5099dbeadf6927c e1d1785736393840 d0956e834690eff9 "
        "54eef10bd8fe4ca9 7edf6f0274b3125c 673444a53711cb66 2026ee8b133c0930 ccd23f9d1e9e7b4a "
        "e1cb853bf7285973 931ee0eb66fc1c23"
    ),
    "constant": (
        "f2be071dce3cfbcf 0ff6d93446cd62a3 211140afb8890486 f37c6f35e70d1434 a2ce898636fdc58b "
        "6c873f37628c0a93 1ada9f11ad254503 fd6737baf99ed6ce a1aae0255d96dd98 4efa834c18d66cb5 "
        "36eb379d883642d0 3eacacea6ac4391a"
    ),
    "arange": (
        "ca64783ba974c789 fff3652d2cbd86f8 ad6447b90ce80a90 ca4e47bb6e3af2d4 496a2739e109d79f "
        "71b418125078d7be 9ef7346d6ac5e674 acfe75d29fdd7660 004627c45a8d5bcd"
    ),
    "tril": (
        "168d83c6bc621a9d 4b2a5f1dd549590f 173783af36a7a993 06a56ad4a05842ce 1f7c143911155694 "
        "38a624908022a85a 9c4e70ff7a628e4a 3ce0a8bb2816c64f c85736d72b1da0e6 205d3c97f34fbf2c"
    ),
    "values": ("4a471c9b3afba4bd 59939d4d65597f7a 43a717ce7a7819f1 7ac6c0a880b33b46 5fc4637ce45f957c ff9ad9cf1af2d1ef"),
    "permutation": "1f11995e6ac297ca 60f00402c4552396 a4222cb54bc54700 99cffce86430ba0e ebdc7b1818b8806a",
}
"""By kind, those of its dtypes in order."""


def digests_of(kind: str) -> str:
    """The digests of a kind's golden recipes."""
    return " ".join(digest(make(sample_recipe(kind, dtype))) for dtype in FACTS[kind][0])


def drawn(tensor: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return make(fit(tensor, seed))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return digest(a) == digest(b) and a.stride() == b.stride()


# --- the same bits everywhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "seed", "answer"),
    [
        ([0] * 4, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ([0xFFFFFFFF] * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0 << 32 | 0xA4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "ones", "digits of pi"],
)
def test_philox_gives_the_published_answers(counter, seed, answer):
    """Philox4x32-10's known answers, from Random123's kat_vectors."""
    assert tuple(one.item() for one in run_sample.philox(*map(torch.tensor, zip(counter)), seed)) == answer


@pytest.mark.parametrize("kind", FACTS)
def test_each_kind_and_dtype_makes_the_golden_bits(kind):
    assert digests_of(kind) == DIGESTS[kind]


def test_the_table_of_golden_bits_is_whole():
    rest = {"exact", "view", "sparse", "none"}
    assert set(KINDS) == set(run_sample.DRAWS) | rest == set(FACTS) | rest


@pytest.mark.parametrize("chunk", [3, 64])
def test_chunks_are_no_part_of_the_draw(chunk, monkeypatch):
    monkeypatch.setattr(run_sample, "CHUNK", chunk)
    for kind in ("normal", "integers", "permutation"):
        assert digests_of(kind) == DIGESTS[kind]


def test_recipes_that_are_drawn_together_make_the_golden_bits():
    rows = {f"{kind} {dtype}": sample_recipe(kind, dtype) for kind, dtype in CASES}
    empty = replace(sample_recipe("normal", "float32"), shape=(0,), extent=0)
    large = replace(sample_recipe("uniform", "float32"), shape=(2**17,), extent=2**17)
    rows = {"empty": empty, "large": large} | rows | {"last": replace(empty, shape=(1,), extent=1)}
    with torch.device("meta"):
        tensors = make_all(rows, {})
    assert {name: digest(tensor) for name, tensor in tensors.items()} == {
        name: digest(make(recipe)) for name, recipe in rows.items()
    }
    full = [tensor for tensor in tensors.values() if tensor.numel()]
    assert len({tensor.untyped_storage().data_ptr() for tensor in full}) == len(full)


@pytest.mark.parametrize("seed", [0, 2**53 - 1, 2**63, 2**64 - 1])
def test_a_seed_draws_the_same_beside_others(seed):
    recipe = replace(sample_recipe("normal", "float64"), seed=seed)
    together = make_all({"before": sample_recipe("uniform", "float32"), "x": recipe}, {})
    assert digest(together["x"]) == digest(make(recipe))


def test_a_default_dtype_and_device_and_the_thread_count_change_nothing():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        with torch.device("meta"):
            found = {kind: digests_of(kind) for kind in FACTS}
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)
    assert found == DIGESTS


@pytest.mark.slow
def test_a_processor_without_vector_instructions_makes_the_same_bits():
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout) == DIGESTS


def test_making_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    make_all(fit_all({"x": torch.linspace(0, 1, 300)}, 0), {})
    assert torch.equal(torch.get_rng_state(), before)


def test_a_digest_sees_every_bit_the_dtype_and_the_shape():
    zero = torch.zeros(4)
    strange = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    different = [zero, -zero, zero.view(2, 2), zero.int(), zero[:0], zero.bfloat16(), zero.to(torch.float8_e4m3fn)]
    different += [torch.tensor([math.nan]), strange, torch.tensor(0.0), torch.zeros(1), zero.cfloat()]
    assert len({digest(tensor) for tensor in different}) == len(different)
    assert digest(torch.arange(6).view(2, 3).t()) == digest(torch.arange(6).view(2, 3).t().contiguous())
    assert digest(torch.tensor([1 + 2j]).conj()) == digest(torch.tensor([1 - 2j]))
    assert digest(torch.ones(2, requires_grad=True)) == digest(torch.ones(2))


# --- what fit keeps ---------------------------------------------------------------------------------------------------


def kinds(**tensors: torch.Tensor) -> dict[str, str]:
    return {name: fit(tensor, 0).kind for name, tensor in tensors.items()}


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_data_comes_back_with_its_mean_spread_and_range(dtype):
    torch.manual_seed(0)
    weight = (torch.randn(300, 100) * 0.05 + 0.01).to(getattr(torch, dtype))
    made = drawn(weight)
    assert fit(weight, 0).kind == "normal"
    assert abs(made.double().mean() - 0.01) < 1e-3
    assert abs(made.double().std() - 0.05) < 1e-3
    assert weight.min() <= made.min() <= made.max() <= weight.max()
    assert made.dtype == weight.dtype


def test_bounded_data_stays_even_and_within_its_bounds():
    torch.manual_seed(0)
    data = torch.rand(50_000) * 2 - 1
    made = drawn(data)
    assert fit(data, 0).kind == "uniform"
    assert data.min() <= made.min() < -0.99
    assert 0.99 < made.max() <= data.max()
    assert abs(made.std() - 1 / math.sqrt(3)) < 0.01
    assert torch.histc(made, 10, -1, 1).min() > 4_600


def test_positive_data_stays_positive():
    torch.manual_seed(0)
    even, skewed = torch.rand(64) + 0.5, torch.randn(5000).exp() * 1e-3
    assert kinds(even=even, skewed=skewed) == {"even": "uniform", "skewed": "normal"}
    for data in (even, skewed):
        assert drawn(data).min() >= data.min() > 0
        assert drawn(data).max() <= data.max()


def test_complex_data_is_drawn_part_by_part():
    torch.manual_seed(0)
    made = drawn(torch.randn(100, 100, dtype=torch.complex64))
    assert made.dtype == torch.complex64
    assert abs(made.real.std() - math.sqrt(0.5)) < 0.02 > abs(made.imag.std() - math.sqrt(0.5))
    assert abs((made.real * made.imag).mean()) < 0.02
    constant = torch.full((3,), 1 - 2j)
    assert same_bits(drawn(constant), constant)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_reach_both_ends_of_their_range_and_never_leave_it(dtype):
    data = torch.randint(3, 100, (20_000,), generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    made = drawn(data)
    assert fit(data, 0).kind == "integers"
    assert (made.min(), made.max()) == (3, 99)
    assert torch.bincount(made.long())[3:].min() > 120


@pytest.mark.parametrize(
    ("low", "high"), [(-(2**63), 2**63 - 1), (0, 2**32), (-5, 2**40), (0, 2**32 - 1), (-(2**63), -(2**63))]
)
def test_integers_of_any_span_are_drawn_over_all_of_it(low, high):
    facts = (("high", high), ("low", low))
    made = make(Recipe("integers", "int64", (4000,), (1,), extent=4000, seed=1, facts=facts)).tolist()
    assert all(low <= one <= high for one in made)
    assert min(made) - low <= (high - low) / 100 >= high - max(made)


def test_masks_stay_masks():
    torch.manual_seed(0)
    coin = torch.rand(40, 50) < 0.25
    minus = torch.where(coin, -math.inf, 0.0)
    lowest = torch.where(coin, torch.finfo(torch.float16).min, 0.0).half()
    broken = torch.where(coin, math.nan, 1.0)
    for data in (coin, minus, lowest, broken, coin.long()):
        made = drawn(data)
        assert fit(data, 0).kind == "choice"
        assert set(map(str, made.unique().tolist())) <= set(map(str, data.unique().tolist()))
        assert 400 < (made.nan_to_num(9) == data.nan_to_num(9)[coin][0]).sum() < 600


@pytest.mark.parametrize("diagonal", [-3, 0, 4])
@pytest.mark.parametrize("corner", [torch.tril, torch.triu])
@pytest.mark.parametrize("size", [(9, 12), (12, 9)])
def test_triangles_come_back_exactly(corner, diagonal, size):
    for mask in (corner(torch.ones(2, 3, *size, dtype=torch.bool), diagonal), corner(torch.full(size, 2.5), diagonal)):
        assert fit(mask, 0).kind == "tril"
        assert same_bits(drawn(mask), mask)


def test_an_expanded_causal_mask_is_a_triangle_that_keeps_its_strides():
    causal = torch.full((16, 16), -math.inf).triu(1).expand(4, 2, 16, 16)
    recipe = fit(causal, 0)
    assert (recipe.kind, recipe.extent) == ("tril", 256)
    assert same_bits(make(recipe), causal)


def test_almost_a_triangle_is_a_choice():
    mask = torch.ones(20, 20).tril()
    mask[3, 9] = 1
    assert kinds(flipped=mask, transposed=torch.ones(10, 20).tril().t()) == dict(flipped="choice", transposed="choice")


def test_sequences_come_back_exactly():
    positions = torch.arange(100)
    for data in (
        positions,
        positions.expand(3, 100),
        positions.repeat(3, 1),
        200 - 2 * positions.to(torch.uint8),
        torch.arange(5.0),
        torch.arange(0, 50, 0.5).bfloat16(),
        torch.arange(400).view(20, 20).t(),
    ):
        assert fit(data, 0).kind == "arange"
        assert same_bits(drawn(data), data)
    assert kinds(broken=torch.tensor([*range(90), 0, 1, 2]), constant=torch.ones(90)) == {
        "broken": "integers",
        "constant": "constant",
    }


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_a_permutation_is_drawn_as_one(dtype):
    data = (torch.randperm(150, generator=torch.Generator().manual_seed(0)) + 7).to(getattr(torch, dtype))
    made = drawn(data)
    assert fit(data, 0).kind == "permutation"
    assert made.dtype == data.dtype
    assert made.sort().values.tolist() == list(range(7, 157))
    assert not torch.equal(made, make(redraw(fit(data, 0), 1)))


def test_small_integers_constants_and_empty_tensors_come_back_exactly():
    for data, kind in (
        (torch.tensor([5, -3, 2**62]), "values"),
        (torch.tensor([[True, False]]), "values"),
        (torch.tensor(7), "constant"),
        (torch.tensor(-0.0), "constant"),
        (torch.tensor(math.nan), "constant"),
        (torch.full((3, 4), -math.inf), "constant"),
        (torch.full((3,), 0.1, dtype=torch.float64), "constant"),
        (torch.empty(0, 3), "constant"),
        (torch.empty(2, 0, dtype=torch.complex64), "constant"),
        (torch.zeros(5, 0, dtype=torch.bool), "constant"),
        (torch.ones(()).expand(3, 5), "constant"),
    ):
        assert fit(data, 0).kind == kind
        assert same_bits(drawn(data), data)


def test_what_no_distribution_describes_is_exact():
    holes = torch.randn(100)
    holes[3] = math.nan
    wide = torch.tensor([-1.7e308, 1.7e308, 0.0], dtype=torch.float64)
    odd = torch.ones(4).to(torch.float8_e4m3fn)
    assert kinds(holes=holes, wide=wide) == {"holes": "exact", "wide": "exact"}
    assert kinds(odd=odd, unsigned=odd.to(torch.uint16)) == {"odd": "exact", "unsigned": "exact"}


def test_what_has_no_values_says_so():
    recipe = fit(torch.empty(2, 3, device="meta"), 0)
    assert (recipe.kind, recipe.shape, recipe.stride, recipe.device) == ("none", (2, 3), (3, 1), "meta")
    with pytest.raises(ReplayError, match="input 'x': cannot be made: captured without values"):
        make_all({"x": recipe}, {})
    assert "sparse" in dict(fit(torch.eye(3).to_sparse(), 0).facts)["why"]


def test_strides_are_kept():
    torch.manual_seed(0)
    image = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    for data in (image, image.t() if image.dim() == 2 else image.transpose(0, 1), torch.randn(5, 1).expand(5, 9)):
        assert drawn(data).stride() == data.stride()
        assert drawn(data).shape == data.shape
    expanded = drawn(torch.randn(5, 1).expand(5, 9))
    assert torch.equal(expanded, expanded[:, :1].expand(5, 9))
    gaps = torch.arange(300.0).sin().view(100, 3)[:, ::2]
    assert drawn(gaps).stride() == (3, 2)
    windows = torch.randn(50).unfold(0, 5, 1)
    assert torch.equal(drawn(windows)[1:, 0], drawn(windows)[:-1, 1])


def test_a_small_matrix_in_its_gaps_keeps_its_range():
    counts = torch.arange(40).view(10, 4)[:, 1:3]
    made = drawn(counts)
    assert counts.min() <= made.min() <= made.max() <= counts.max()


# --- many tensors -----------------------------------------------------------------------------------------------------


def test_each_name_and_each_seed_draws_differently():
    tensors = {"a": torch.randn(200), "b": torch.randn(200)}
    one, two = make_all(fit_all(tensors, 0), {}), make_all(fit_all(tensors, 1), {})
    assert len({digest(tensor) for made in (one, two) for tensor in made.values()}) == 4
    assert digest(one["a"]) == digest(make_all(fit_all({"a": tensors["a"]}, 0), {})["a"])


def test_overlapping_slices_share_their_storage_again():
    base = torch.randn(100)
    tensors = {"tail": base[40:], "other": torch.randn(3), "head": base[10:60].view(5, 10), "whole": base[10:]}
    recipes = fit_all(tensors, 0)
    made = make_all(recipes, {})
    assert list(made) == list(tensors)
    assert [recipes[name].kind for name in tensors] == ["normal", "normal", "view", "view"]
    assert torch.equal(made["tail"][:20], made["head"].flatten()[30:])
    made["head"].fill_(7)
    assert (made["tail"][:20] == 7).all()
    assert (made["whole"][:50] == 7).all()
    assert (made["whole"][50:] != 7).all()
    assert made["head"].stride() == (10, 1)


def test_a_tensor_given_twice_is_one_tensor_and_keeps_its_kind():
    causal = torch.ones(20, 20, dtype=torch.bool).tril()
    made = make_all(fit_all({"row": causal[3], "mask": causal, "again": causal}, 0), {})
    assert torch.equal(made["mask"], causal)
    assert torch.equal(made["row"], causal[3])
    assert made["mask"].data_ptr() == made["again"].data_ptr()


def test_exact_data_comes_back_to_the_bit_with_strides_and_sharing():
    torch.manual_seed(0)
    base = torch.randn(60)
    tensors = {
        "plain": torch.randn(3, 4),
        "turned": torch.randn(3, 4).t(),
        "expanded": torch.randn(3, 1).expand(3, 4),
        "gaps": torch.randn(9)[::2],
        "scalar": torch.tensor(math.pi),
        "lonely": torch.randn(45).as_strided((1, 1), (1, 45)),
        "none": torch.empty(0, 2),
        "eight": torch.randn(6).to(torch.float8_e5m2),
        "complex": torch.randn(5, dtype=torch.complex128),
        "lazy": torch.randn(5, dtype=torch.complex64).conj(),
        "left": base[:40].view(4, 10),
        "right": base[20:],
        "float": (mixed := torch.randn(8)),
        "int": mixed.view(torch.int32),
        "drawn": torch.randn(100),
    }
    recipes = fit_all(tensors, 0, exact=set(tensors) - {"drawn", "right"})
    assert [name for name, recipe in recipes.items() if recipe.kind != "exact"] == ["right", "drawn"]
    kept = exact_data(tensors, recipes)
    made = make_all(
        {name: from_json(json.loads(json.dumps(to_json(recipe)))) for name, recipe in recipes.items()}, kept
    )
    for name in set(tensors) - {"drawn"}:
        assert same_bits(made[name], tensors[name].resolve_conj()), name
    made["left"].zero_()
    assert (made["right"][:20] == 0).all()
    assert (base != 0).all()
    assert (kept["left"] != 0).all()


def test_exact_data_that_is_missing_or_of_another_shape_is_refused_by_name():
    recipes = fit_all({"w": torch.randn(4)}, 0, exact=["w"])
    with pytest.raises(SampleError, match=r"input 'w': .*its exact data is not there"):
        make_all(recipes, {})
    with pytest.raises(SampleError, match=r"its data is torch.float32 \[5\], not float32 \[4\]"):
        make_all(recipes, {"w": torch.zeros(5)})
    with pytest.raises(UsageError, match="exact names no input: v; the inputs are w"):
        fit_all({"w": torch.randn(4)}, 0, exact=["v"])


def test_a_view_of_nothing_is_refused_by_name():
    view = Recipe("view", "float32", (2,), (1,), extent=4, facts=(("of", "base"),))
    with pytest.raises(SampleError, match="input 'v': a view of 'base', which is not among"):
        make_all({"v": view}, {})
    base = Recipe("constant", "int64", (4,), (1,), extent=4, facts=(("value", 1),))
    with pytest.raises(SampleError, match="dtype float32, but that has int64"):
        make_all({"v": view, "base": base}, {})
    short = replace(base, dtype="float32", shape=(1,), extent=1)
    with pytest.raises(ReplayError, match="input 'v'"):
        make_all({"v": view, "base": short}, {})


LAYOUTS = {"sparse_coo": None, "sparse_csr": None, "sparse_csc": None, "sparse_bsr": (2, 2), "sparse_bsc": (2, 2)}


@pytest.mark.parametrize(
    ("layout", "dtype"), [*((layout, torch.float32) for layout in LAYOUTS), ("sparse_coo", torch.int32)]
)
def test_a_sparse_tensor_keeps_its_places_and_draws_its_values(layout, dtype):
    torch.manual_seed(0)
    full = torch.where(torch.rand(40, 60) < 0.2, torch.randn(40, 60) * 1000, 0).to(dtype)
    tensor = full.to_sparse(layout=getattr(torch, layout), blocksize=LAYOUTS[layout])
    recipes = fit_all({"x": tensor}, 3)
    assert list(recipes) == ["x", *(f"x/{part}" for part in PARTS_OF[layout])]
    assert {recipes[name].kind for name in recipes} >= {"sparse", "exact"}
    assert recipes["x/values"].kind in ("normal", "integers")
    recipes = {name: from_json(json.loads(json.dumps(to_json(recipe)))) for name, recipe in recipes.items()}
    kept = exact_data({"x": tensor}, recipes)
    made = make_all(recipes, kept)["x"]
    again = make_all({name: redraw(recipe, 1) for name, recipe in recipes.items()}, kept)["x"]
    assert (made.layout, made.dtype, made.shape) == (tensor.layout, tensor.dtype, tensor.shape)
    for other in (made, again):
        assert all(map(torch.equal, run_sample.parts(tensor)[:-1], run_sample.parts(other)[:-1]))
    assert len({digest(each) for each in (tensor, made, again)}) == 3
    exact = fit_all({"x": tensor}, 3, exact=["x"])
    assert digest(make_all(exact, exact_data({"x": tensor}, exact))["x"]) == digest(tensor)


def test_a_sparse_tensors_parts_take_names_that_no_other_tensor_has_and_share_their_memory():
    values = torch.randn(3)
    tensor = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], values, (2, 3))
    recipes = fit_all({"x": tensor, "x/values": torch.ones(1), "v": values}, 0)
    assert list(recipes) == ["x", "x/indices", "x/values~2", "x/values", "v"]
    made = make_all(recipes, {})
    assert made["x"]._values().data_ptr() == made["v"].data_ptr()
    assert not made["x"].is_coalesced()
    assert make_all(fit_all({"x": tensor.coalesce()}, 0), {})["x"].is_coalesced()


def test_a_sparse_tensor_whose_indices_are_out_of_order_cannot_be_made():
    odd = torch.sparse_coo_tensor([[0, 7]], torch.ones(2), (3,), check_invariants=False)
    recipe = fit_all({"x": odd}, 0)["x"]
    assert recipe.kind == "none"
    assert "sparse" in dict(recipe.facts)["why"]


def test_a_digest_sees_a_sparse_tensors_layout_places_and_whether_it_is_coalesced():
    one = torch.sparse_coo_tensor([[0, 1]], torch.ones(2), (3,))
    others = (one.coalesce(), torch.sparse_coo_tensor([[1, 0]], torch.ones(2), (3,)), one * 2, one.to_dense())
    assert len({digest(each) for each in (one, *others)}) == 5


SPARSE = Recipe(
    "sparse",
    "float32",
    (3,),
    (0,),
    extent=1,
    facts=(("coalesced", 0), ("layout", "sparse_coo"), ("of", ("x/indices", "x/values"))),
)


def parts_of_sparse(indices: list[list[int]], **values: Any) -> dict[str, Recipe]:
    size = len(indices[0])
    shape, flat = (len(indices), size), tuple(i for row in indices for i in row)
    index = Recipe("values", "int64", shape, (size, 1), extent=len(flat), facts=(("values", flat),))
    value = Recipe("constant", "float32", (size,), (1,), extent=size, facts=(("value", 1.0),))
    return {"x/indices": index, "x/values": replace(value, **values)}


@pytest.mark.parametrize(
    ("recipes", "message"),
    [
        ({"x": SPARSE}, "input 'x': a sparse of 'x/indices', which is not among"),
        ({"x": SPARSE, **parts_of_sparse([[0, 7]])}, "its parts do not make a sparse_coo tensor"),
        ({"x": SPARSE, **parts_of_sparse([[0, -1]])}, "its parts do not make a sparse_coo tensor"),
        ({"x": SPARSE, **parts_of_sparse([[0, 1], [1, 1]])}, "its parts do not make a sparse_coo tensor"),
        ({"x": SPARSE, **parts_of_sparse([[0, 1]], dtype="float64")}, "dtype float32, but that has float64"),
        (
            {"x": replace(SPARSE, facts=(("coalesced", 1), *SPARSE.facts[1:])), **parts_of_sparse([[1, 0]])},
            "its parts do not make a sparse_coo tensor",
        ),
        (
            {"x": replace(SPARSE, facts=(*SPARSE.facts[:2], ("of", ("x", "x/values")))), **parts_of_sparse([[1, 0]])},
            "a sparse of 'x', which is not among",
        ),
        (
            {
                "a": SPARSE,
                "x": replace(SPARSE, facts=(*SPARSE.facts[:2], ("of", ("a", "x/values")))),
                **parts_of_sparse([[1, 0]]),
            },
            "a sparse of 'a', which is not among",
        ),
    ],
)
def test_a_sparse_recipe_of_parts_that_do_not_fit_is_refused_by_name(recipes, message):
    with pytest.raises(SampleError, match=message):
        make_all(recipes, {})


def test_redraw_changes_what_is_random_and_nothing_else():
    for kind, dtype in CASES:
        recipe = sample_recipe(kind, dtype)
        changed = digest(make(redraw(recipe, 1))) != digest(make(recipe))
        assert changed == (kind in ("normal", "uniform", "integers", "choice", "permutation")), kind
    one, two = sample_recipe("normal", "float32"), replace(sample_recipe("normal", "float32"), seed=3)
    assert redraw(one, 1).seed != redraw(two, 1).seed


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_recipes_come_back_from_json_equal():
    torch.manual_seed(0)
    base = torch.randn(30)
    tensors = {
        "normal": torch.randn(50) * 1e-7 / 3,
        "uniform": torch.rand(50, dtype=torch.float64) / 3,
        "mask": torch.where(torch.rand(100) < 0.5, -math.inf, math.nan),
        "ones": torch.full((3,), math.inf),
        "nan": torch.randn(70),
        "complex": torch.full((3,), complex(0.1, -math.inf)),
        "ids": torch.randint(0, 1000, (200,)),
        "wide": torch.tensor([2**63 - 1, -(2**63)] * 50),
        "down": torch.arange(200, 0, -2, dtype=torch.uint8),
        "left": base[:20],
        "right": base[10:],
        "meta": torch.empty(3, device="meta"),
    }
    recipes = list(fit_all(tensors, 5).values()) + [sample_recipe(*case) for case in CASES]
    recipes.append(Recipe("view", "float32", (1,), (1,), extent=1, facts=(("of", "nan"),)))
    recipes.append(SPARSE)
    recipes.append(replace(SPARSE, shape=(2**40, 2**40), stride=(0, 0)))
    for recipe in recipes:
        text = json.dumps(to_json(recipe), allow_nan=False)
        assert from_json(json.loads(text)) == recipe
        assert run_sample.parse(json.loads(text)) == recipe


GOOD = to_json(sample_recipe("normal", "float32"))
WHOLE = to_json(sample_recipe("integers", "int8"))
CHOICE = to_json(sample_recipe("choice", "bool"))
STEPS = to_json(sample_recipe("arange", "int8"))
TRIL = to_json(sample_recipe("tril", "float32"))
SOME = to_json(sample_recipe("values", "int8"))
ORDER = to_json(sample_recipe("permutation", "int8"))
JOINED = to_json(SPARSE)


def facts(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return row | {"facts": row["facts"] | changes}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (None, "recipe: expected an object, found None"),
        ({}, "recipe: expected the keys kind, dtype"),
        (GOOD | {"__class__": 1}, "recipe: expected the keys"),
        (GOOD | {"kind": "pickle"}, "recipe.kind: expected one of normal, .*, found 'pickle'"),
        (GOOD | {"dtype": "save"}, "recipe.dtype: expected the name of a torch dtype, found 'save'"),
        (GOOD | {"dtype": "int64"}, "recipe.dtype: expected one of float64, .*, found 'int64'"),
        (GOOD | {"shape": [2**30, 2**30], "stride": [0, 0]}, "recipe.shape: expected at most 281474976710656 elements"),
        (GOOD | {"shape": [1] * 65, "stride": [1] * 65}, "recipe.shape"),
        (GOOD | {"stride": []}, "recipe.stride: expected 1 numbers"),
        (GOOD | {"stride": [2]}, r"recipe: expected a tensor within its extent of 1001, found .*'stride': \[2\]"),
        (GOOD | {"offset": 1}, "recipe: expected a tensor within its extent"),
        (GOOD | {"extent": 2**49}, "recipe.extent"),
        (GOOD | {"seed": 2**64}, "recipe.seed"),
        (GOOD | {"device": "cpu; rm"}, "recipe.device"),
        (GOOD | {"device": "cpu\n"}, "recipe.device"),
        (GOOD | {"facts": {}}, "recipe.facts: expected mean, std, low, high for kind 'normal'"),
        (facts(GOOD, extra=1), "recipe.facts: expected mean"),
        (facts(GOOD, mean="1"), "recipe.facts.mean: expected a finite number of the dtype, found '1'"),
        (facts(GOOD, mean=math.nan), "recipe.facts.mean"),
        (facts(GOOD, mean=2**64), "recipe.facts.mean"),
        (facts(GOOD, mean=1e300), "recipe.facts.mean"),
        (facts(GOOD, std=-1.0), "recipe.facts: expected low <= high and std >= 0"),
        (facts(GOOD, low=9.0), "recipe.facts: expected low <= high"),
        (facts(WHOLE, high=128), "recipe.facts.high"),
        (facts(WHOLE, low=10**400), r"recipe.facts.low: .*\.\.\.$"),
        (facts(CHOICE, values=[]), "recipe.facts: expected a weight"),
        (facts(CHOICE, values=[2, 0]), "recipe.facts.values"),
        (facts(CHOICE, values=[0] * 65), "recipe.facts.values"),
        (facts(CHOICE, weights=[1]), "recipe.facts: expected a weight"),
        (facts(CHOICE, weights=[1, 0]), "recipe.facts: expected a weight"),
        (facts(CHOICE, weights=[1, 2**62]), "recipe.facts.weights"),
        (facts(STEPS, period=0), "recipe.facts: expected a period from 1"),
        (facts(STEPS, period=100), "recipe.facts: expected a period from 1, all in the dtype"),
        (facts(STEPS, step=2**70), "recipe.facts.step"),
        (facts(TRIL, rows=0), "recipe.facts: expected matrices"),
        (facts(TRIL, rows=12), "recipe.facts: expected matrices"),
        (facts(TRIL, diagonal=2**64), "recipe.facts.diagonal"),
        (facts(SOME, values=[1]), "recipe.facts: expected one for each"),
        (facts(SOME, values=[1, 2, 3, 4, "nan"]), "recipe.facts.values"),
        (facts(ORDER, low=100), "recipe.facts: expected all of the extent"),
        (facts(JOINED, of=["x/values"]), "recipe.facts: expected a name for each part of the layout"),
        (facts(JOINED, layout="save"), "recipe.facts.layout: expected a sparse layout, found 'save'"),
        (facts(JOINED, coalesced=2), "recipe.facts.coalesced: expected 0 or 1"),
        (
            facts(JOINED, layout="sparse_csr", of=["a", "b", "c"], coalesced=1),
            "recipe.facts: expected .* coalesced for sparse_coo alone",
        ),
    ],
)
def test_hostile_json_is_refused_with_what_and_where(row, message):
    with pytest.raises(SampleError, match=message):
        from_json(row)


def test_a_value_of_another_type_anywhere_is_refused_with_its_place():
    for row in (GOOD, WHOLE, CHOICE, STEPS, TRIL, SOME, ORDER, JOINED, GOOD | {"kind": "view", "facts": {"of": "x"}}):
        changes = [(row, name) for name in row] + [(row["facts"], name) for name in row["facts"]]
        for place, name in changes:
            for other in (None, True, 0.5, -1.5, "12", [3.5], [True], {"a": 1}, 2**80):
                changed = {name: other} if place is row else {"facts": row["facts"] | {name: other}}
                numbers = (
                    isinstance(other, float) and isinstance(place[name], (float, int)) and row["dtype"] == "float32"
                )
                if numbers or (isinstance(other, str) and name == "of"):
                    continue
                with pytest.raises(SampleError, match="recipe"):
                    from_json(row | changed)


def test_a_recipe_too_large_for_memory_is_a_replay_error():
    row = GOOD | {"shape": [2**48], "stride": [1], "extent": 2**48}
    with pytest.raises(ReplayError, match="kind 'normal' cannot be made on cpu"):
        make(from_json(row))


if __name__ == "__main__":
    print(json.dumps({kind: digests_of(kind) for kind in FACTS}, indent=4))
