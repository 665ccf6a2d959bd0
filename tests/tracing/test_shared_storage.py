"""Parameters that lie in one storage, as those of an LSTM on a GPU, and a tensor that is set to all of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import backprint as bp


class Flat(nn.Module):
    """Two parameters in one storage, which the forward sees as one tensor too."""

    def __init__(self, used: bool) -> None:
        super().__init__()
        flat = torch.randn(24)
        self.used, self.a, self.b = used, nn.Parameter(torch.empty(0)), nn.Parameter(torch.empty(0))
        self.a.data, self.b.data = flat[:12].view(3, 4), flat[12:].view(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            buffer = torch.empty(0).set_(self.a.untyped_storage(), 0, (24,), (1,))
        y = x @ self.a @ self.b
        return y + buffer.sum() if self.used else y


@pytest.mark.parametrize("used", [False, True])
def test_a_tensor_set_to_the_storage_of_several(used: bool) -> None:
    model, x = Flat(used), torch.randn(2, 3)
    capture = bp.capture(model, x, engine="eager")
    assert capture.pairs[0].forward.by_role("mutation") == ()
    assert {verdict.verdict for verdict in capture.verify()} == {"bitwise"}
    assert torch.equal(bp.replay(capture, x).outputs, model(x))


def test_a_program_that_raises_only_below_a_dispatch_mode() -> None:
    def program(x: Tensor) -> Tensor:
        if torch._C._len_torch_dispatch_stack():
            raise RuntimeError("not here")
        return x * 2

    with pytest.raises(
        bp.errors.CaptureError, match="runs, but not while a dispatch mode records it: RuntimeError: not here"
    ):
        bp.capture(program, torch.randn(3))


def test_a_program_that_raises_by_itself() -> None:
    def program(x: Tensor) -> Tensor:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        bp.capture(program, torch.randn(3))
