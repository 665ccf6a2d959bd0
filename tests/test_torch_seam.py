"""The private APIs of torch behind `_torch/`: each probe holds here, and says so where it does not."""

from __future__ import annotations

import pytest
from torch.distributions import Distribution

from backprint._torch.probes import PROBES, broken_probes


@pytest.mark.parametrize("name", PROBES)
def test_each_probe_holds(name: str) -> None:
    assert PROBES[name]()


def test_a_private_name_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch.utils._python_dispatch._get_current_dispatch_mode_stack")
    assert list(broken_probes()) == ["active dispatch modes"]


def test_probes_leave_no_trace() -> None:
    before = Distribution._validate_args
    assert broken_probes() == {}
    assert Distribution._validate_args is before
