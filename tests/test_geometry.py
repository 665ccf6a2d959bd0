"""Shapes and strides, compared with the offsets of all elements."""

from __future__ import annotations

import itertools

import pytest
import torch

from face import are_contiguous, bits_of, contiguous_strides, free_name, is_dense, overlaps_itself, span

SHAPES = [(), (0,), (1,), (3,), (2, 3), (3, 1), (1, 4), (2, 0, 3), (2, 2, 2), (4, 1, 2)]
STRIDES = [0, 1, 2, 3, 6]
LAYOUTS = [(shape, stride) for shape in SHAPES for stride in itertools.product(STRIDES, repeat=len(shape))]


def offsets(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    """Return the offset of each element in the storage."""
    places = itertools.product(*map(range, shape))
    return [sum(index * step for index, step in zip(place, stride, strict=True)) for place in places]


def test_each_layout_is_what_the_offsets_of_its_elements_say() -> None:
    for shape, stride in LAYOUTS:
        places = offsets(shape, stride)
        assert span(shape, stride) == max(places, default=-1) + 1, (shape, stride)
        assert is_dense(shape, stride) == (sorted(places) == list(range(len(places)))), (shape, stride)
        assert are_contiguous(shape, stride) == (places == list(range(len(places)))), (shape, stride)
        if len(places) > len(set(places)):  # the other way round, (3, 2) over (2, 3) counts as overlapping and is not
            assert overlaps_itself(shape, stride), (shape, stride)


@pytest.mark.parametrize("shape", SHAPES)
def test_contiguous_strides_are_torchs(shape: tuple[int, ...]) -> None:
    assert contiguous_strides(shape) == torch.empty(shape).stride()
    assert not overlaps_itself(shape, contiguous_strides(shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float8_e5m2])
def test_bits_tell_zeros_apart_and_a_nan_is_itself(dtype: torch.dtype) -> None:
    values = torch.tensor([0.0, -0.0, float("nan"), float("nan")]).to(dtype)
    zero, minus, first, second = bits_of(values).tolist()
    assert zero != minus
    assert first == second


def test_a_name_that_is_taken_gets_the_first_free_number() -> None:
    assert free_name("x", ()) == "x"
    assert free_name("x", {"x", "x_1"}) == "x_2"
    assert free_name("x", ["x"], "{}~{}", 2) == "x~2"
