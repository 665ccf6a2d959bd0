"""What the face exports can be reached as it is documented."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import backprint as bp


def test_what_the_face_exports_is_not_a_module_too() -> None:
    functions = [name for name in bp.__all__ if not isinstance(getattr(bp, name), ModuleType)]
    assert [name for name in functions if importlib.util.find_spec(f"backprint.{name}") is not None] == []
