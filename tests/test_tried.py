"""A torch that nobody has tried is warned of, once, and works as far as it does."""

from __future__ import annotations

import re
import warnings

import pytest
import torch

import backprint as bp
from face import common_tried as tried


@pytest.fixture(autouse=True)
def never_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried, "_warned", set())


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.13.0+cpu", "2.15.0+cu132", "2.14.0a0+git", "unknown"])
def test_what_was_tried_is_not_spoken_of(version: str) -> None:
    with warnings.catch_warnings(action="error"):
        tried.warn_if_untried(version)


@pytest.mark.parametrize("version", ["2.16.0", "2.10.1", "3.0.0+cu140", "10.2"])
def test_what_was_not_tried_is_named_once(version: str) -> None:
    with pytest.warns(UserWarning, match=re.escape(f"tried with torch 2.11 to 2.15, and this is {version}:")):
        tried.warn_if_untried(version)
    with warnings.catch_warnings(action="error"):
        tried.warn_if_untried(version)


def test_a_capture_goes_on_with_a_newer_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.warns(UserWarning, match=r"and this is 2\.99\.0"):
        cap = bp.capture(torch.nn.Linear(2, 2), torch.randn(1, 2))
    assert bp.verify(cap)[0].verdict == "bitwise"


def test_where_warnings_are_errors_it_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with warnings.catch_warnings(action="error"):
        for _ in range(2):
            assert bp.verify(bp.capture(torch.nn.Linear(2, 2), torch.randn(1, 2)))[0].verdict == "bitwise"
    assert capsys.readouterr().err.count("this is 2.99.0") == 1
