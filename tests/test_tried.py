"""A torch that nobody has tried is warned of, once."""

from __future__ import annotations

import re
import warnings

import pytest
import torch

import backprint as bp
from backprint.tried import warn_if_untried


@pytest.fixture(autouse=True)
def never_said() -> None:
    warn_if_untried.cache_clear()


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.13.0+cpu", "2.14.1", "2.14.0a0+git12", "unknown"])
def test_what_was_tried_is_not_spoken_of(version: str) -> None:
    with warnings.catch_warnings(action="error"):
        warn_if_untried(version)


@pytest.mark.parametrize("version", ["2.15.0", "2.10.1", "3.0.0+cu140", "10.2"])
def test_what_was_not_tried_is_named_once(version: str) -> None:
    with pytest.warns(UserWarning, match=re.escape(f"tried with torch 2.11 to 2.14, and this is {version}:")):
        warn_if_untried(version)
    with warnings.catch_warnings(action="error"):
        warn_if_untried(version)


def test_a_capture_goes_on_with_a_newer_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.15.0")
    with pytest.warns(UserWarning, match="and this is 2.15.0"):
        cap = bp.capture(torch.nn.Linear(2, 2), torch.randn(1, 2))
    assert bp.verify(cap)[0].verdict == "bitwise"
