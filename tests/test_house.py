"""What the faces export can be reached as it is documented."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

import backprint as bp

FACES = ("", "bench", "corpus", "kernels", "draw", "diff", "regions", "jobs")


@pytest.mark.parametrize("face", FACES)
def test_what_a_face_exports_is_not_a_module_too(face: str) -> None:
    """Importing a submodule sets it as an attribute of its package, over a function of that name."""
    name = f"backprint.{face}".rstrip(".")
    module = importlib.import_module(name)
    functions = [key for key, value in vars(module).items() if callable(value) and not isinstance(value, ModuleType)]
    assert {"capture", "run", "extract", "draw", "compare", "region", "run_corpus"} & set(functions)
    assert [key for key in functions if importlib.util.find_spec(f"{name}.{key}") is not None] == []


def test_names_of_earlier_versions_are_told_where_they_are() -> None:
    with pytest.raises(AttributeError, match=r"bp\.minify is bp\.bench\.minify now"):
        bp.minify  # noqa: B018 - the lookup is what is tested
    with pytest.raises(AttributeError, match=r"'Graph'; classes are in bp\.types"):
        bp.Graph  # noqa: B018 - as above
    with pytest.raises(AttributeError, match=r"'UsageError'; errors are in bp\.errors"):
        bp.UsageError  # noqa: B018 - as above


@pytest.mark.parametrize(
    ("name", "function"), [("bench", "run"), ("kernels", "extract"), ("draw", "draw"), ("diff", "compare")]
)
def test_a_tool_that_was_a_function_says_what_to_call(name: str, function: str) -> None:
    with pytest.raises(TypeError, match=rf"bp\.{name} is a module now: call bp\.{name}\.{function}$"):
        getattr(bp, name)("samples")
