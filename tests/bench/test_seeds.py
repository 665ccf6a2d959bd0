"""Generators are seeded as torch.manual_seed does, without its cost."""

from __future__ import annotations

import traceback

import pytest
import torch

from face import seed_generators, state_of


def test_a_seed_gives_the_numbers_that_it_gives_everywhere() -> None:
    torch.manual_seed(11)
    wanted = torch.rand(5)
    state, _ = state_of(11)
    assert torch.equal(torch.rand(5), wanted)
    torch.set_rng_state(state)
    assert torch.equal(torch.rand(5), wanted)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU that is in use is seeded")
def test_devices_that_are_not_in_use_are_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(*_: object) -> list[str]:
        raise AssertionError("the text of the stack, for a device that may be used later")

    monkeypatch.setattr(traceback, "format_stack", told)
    seed_generators(3)
