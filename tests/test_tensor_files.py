"""Files of tensors are written without numpy, byte for byte as the package safetensors writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from face import CODES, write_safetensors


def test_a_file_is_the_one_that_safetensors_writes(tmp_path: Path) -> None:
    numbers = torch.rand(3, 2)
    tensors = {}
    for name in CODES:
        dtype = getattr(torch, name)
        tensors |= {
            f"two {name}": numbers.to(dtype),
            f'\n"none" {name}': torch.empty(0, 3, dtype=dtype),
            f"scalar ü {name}": torch.tensor(1.0).to(dtype),
        }
    write_safetensors(tmp_path / "x", tensors)
    assert (tmp_path / "x").read_bytes() == save(tensors)


def test_views_and_tensors_that_share_memory_are_written_as_what_they_hold(tmp_path: Path) -> None:
    base = torch.randn(4, 3, dtype=torch.complex64, requires_grad=True)
    tensors = {"base": base, "turned": base.t(), "conjugate": base.conj(), "part": base[1:, ::2]}
    write_safetensors(tmp_path / "x", tensors)
    assert {name: torch.equal(load_file(tmp_path / "x")[name], tensor) for name, tensor in tensors.items()} == (
        dict.fromkeys(tensors, True)
    )


@pytest.mark.parametrize("tensor", [torch.randn(2, dtype=torch.complex128), torch.eye(2).to_sparse()])
def test_what_the_format_does_not_have_is_named(tensor: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"odd is a .* which safetensors do not have"):
        write_safetensors(tmp_path / "x", {"odd": tensor})
    assert not (tmp_path / "x").exists()
