"""What the faces export can be reached as it is documented."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import backprint as bp
import face

FACES = ("", *(f"tools.{name}" for name in "bench corpus kernels draw diff record regions jobs".split()))


@pytest.mark.parametrize("face", FACES)
def test_what_a_face_exports_is_not_a_module_too(face: str) -> None:
    """Importing a submodule sets it as an attribute of its package, over a function of that name."""
    name = f"backprint.{face}".rstrip(".")
    module = importlib.import_module(name)
    values = {key: getattr(module, key) for key in [*vars(module), *getattr(module, "__all__", ())]}
    functions = [key for key, value in values.items() if callable(value) and not isinstance(value, ModuleType)]
    assert {"capture", "run", "extract", "draw", "compare", "record", "region", "run_corpus"} & set(functions)
    assert [key for key in functions if importlib.util.find_spec(f"{name}.{key}") is not None] == []


def test_every_name_of_the_face_can_be_had_and_is_listed() -> None:
    """They are imported when they are first asked for."""
    assert dir(bp) == sorted(bp.__all__)
    assert [name for name in bp.__all__ if getattr(bp, name, None) is None] == []


def test_names_that_are_elsewhere_are_told_where_they_are() -> None:
    with pytest.raises(AttributeError, match=r"'Graph'; classes are in bp\.types"):
        bp.Graph  # noqa: B018 - the lookup is what is tested
    with pytest.raises(AttributeError, match=r"'UsageError'; errors are in bp\.errors"):
        bp.UsageError  # noqa: B018 - as above


@pytest.mark.parametrize("name", ["save", "release", "verify", "inputs", "observed", "draw", "view"])
def test_a_method_of_a_capture_takes_what_the_function_of_its_name_takes(name: str) -> None:
    of_face = getattr(bp.draw if name in ("draw", "view") else importlib.import_module("backprint.api"), name)
    options = [
        [
            (parameter.name, parameter.kind, parameter.default)
            for parameter in inspect.signature(function).parameters.values()
        ]
        for function in (getattr(bp.Capture, name), of_face)
    ]
    assert options[0][1:] == options[1][1:]


@pytest.mark.parametrize("folder", ["benchmarks", "scripts"])
def test_what_scripts_import_of_backprint_is_there(folder: str) -> None:
    """They import the inside, and run by hand: a name that was changed would be missed months later."""
    missing = []
    for path in (Path(__file__).resolve().parent.parent / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "backprint":
                module = importlib.import_module(str(node.module))
                inside = {name for _, name, _ in pkgutil.iter_modules(getattr(module, "__path__", ()))}
                names = [name.name for name in node.names if name.name not in inside]
                missing += [f"{path.name}: {node.module}.{name}" for name in names if not hasattr(module, name)]
    assert missing == []


def test_the_table_of_the_benchmarks_is_made_of_their_results() -> None:
    script = Path(__file__).resolve().parent.parent / "benchmarks" / "results.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_tests_take_the_inside_of_backprint_from_one_place() -> None:
    """A name that moves changes a line of `face.py`, which has no name that is not tested."""
    here = Path(__file__).parent
    used: set[str] = set()
    for path in [*here.rglob("test_*.py"), *here.rglob("conftest.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not str(node.module).startswith("backprint"), f"{path.name}, line {node.lineno}: see face.py"
                used |= {alias.name for alias in node.names} if node.module == "face" else set()
    assert used == set(face.PLACES)


CORE = ("graph", "values", "_torch", "trace", "prove", "sample", "derive")


@pytest.mark.parametrize("room", CORE)
def test_each_room_of_the_core_says_why_it_is_there_with_an_example_that_runs(room: str) -> None:
    package = importlib.import_module(f"backprint.{room}")
    results = doctest.testmod(package, raise_on_error=False)
    assert results.attempted >= 4, results
    assert not results.failed, results
