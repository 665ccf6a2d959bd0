"""What has no derivative is refused by name: the operator, the program's line, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import backprint as bp


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)
        return F.scaled_dot_product_attention(query, x, x).sum()


def inputs() -> Tensor:
    return torch.randn(1, 2, 4, 8, requires_grad=True)


@pytest.mark.parametrize("options", [{}, {"engine": "aot"}])
def test_order_2_through_attention_says_which_kernel_has_a_derivative(options: dict[str, Any]) -> None:
    said = (
        r"Attention: order=2 goes backward through _scaled_dot_product_flash_attention_for_cpu_backward, which has no "
        r"derivative in torch 2.* at .*test_derivatives\.py:\d+ in forward: 'return F\.scaled_dot_product_attention"
        r".*sdpa_kernel\(torch\.nn\.attention\.SDPBackend\.MATH\)"
    )
    with pytest.raises(bp.errors.CaptureError, match=said):
        bp.capture(Attention(), inputs(), order=2, **options)


def test_that_kernel_does_what_the_message_says(tmp_path: Path) -> None:
    model = Attention()
    with sdpa_kernel(SDPBackend.MATH):
        capture = bp.capture(model, inputs(), order=2)
    assert bp.verify(capture)[-1].verdict == "bitwise"
    capture.save(tmp_path / "sample")
    assert bp.verify(bp.load(tmp_path / "sample"))[-1].verdict == "bitwise"


OTHERS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "_cdist_backward": (lambda x: torch.cdist(x, x + 1, p=3).sum(), torch.randn(4, 3)),
    "_pdist_backward": (lambda x: F.pdist(x).sum(), torch.randn(4, 3)),
    "_embedding_bag_backward": (
        lambda w: F.embedding_bag(torch.tensor([1, 2, 0]), w, torch.tensor([0, 2]), mode="max").sum(),
        torch.randn(4, 3),
    ),
}


def goes_back_twice(program: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether this torch has the derivative of the derivative."""
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(program(x), x, create_graph=True)
    try:
        torch.autograd.grad(gradient.sum(), x)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize(("operator", "engine"), [*((name, "auto") for name in OTHERS), ("_cdist_backward", "aot")])
def test_other_operators_are_named_with_their_line(operator: str, engine: str) -> None:
    program, x = OTHERS[operator]
    if goes_back_twice(program, x):  # torch 2.14 has what 2.13 has not
        assert bp.verify(bp.capture(program, x, order=2, engine=engine))[-1].verdict == "bitwise"
        return
    with pytest.raises(
        bp.errors.CaptureError, match=rf"order=2 .* {operator}, .*test_derivatives\.py:\d+.*or ask for order=1"
    ):
        bp.capture(program, x.requires_grad_(), order=2, engine=engine)


def test_a_custom_operator_without_a_formula_is_named() -> None:
    with torch.library._scoped_library("bpnoformula", "DEF"):
        operator = torch.library.custom_op(
            "bpnoformula::double", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor"
        )
        operator.register_fake(torch.empty_like)
        x = torch.randn(3, requires_grad=True)
        said = r"autograd goes backward through bpnoformula\.double.*test_derivatives\.py.*register_autograd"
        for engine in ("auto", "aot", "eager"):
            with pytest.raises(bp.errors.CaptureError, match=said):
                bp.capture(lambda x: operator(x).sum(), x, engine=engine)
        capture = bp.capture(lambda x: operator(x).sum(), x, requires_grad=False)
        assert bp.verify(capture)[-1].verdict == "undifferentiable"


def test_what_the_program_itself_raises_stays_its_own() -> None:
    def program(x: Tensor) -> Tensor:
        raise RuntimeError("no derivative of mine")

    with pytest.raises(RuntimeError, match="no derivative of mine"):
        bp.capture(program, torch.randn(3), engine="eager")


def test_order_2_without_values_gives_the_graphs_of_a_real_one() -> None:
    x = torch.randn(3, requires_grad=True)
    real, fake = (bp.capture(lambda x: x.sin().sum(), x, engine="aot", order=2, fake=fake) for fake in (False, True))
    assert fake.pairs[0].forward.code == real.pairs[0].forward.code
    assert fake.pairs[0].backward.code == real.pairs[0].backward.code
