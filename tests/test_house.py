"""The house stays readable: a class name has one meaning, and the face's names are no modules."""

from __future__ import annotations

import ast
import importlib.util
from collections import defaultdict
from pathlib import Path

import backprint as bp

SOURCE = Path(__file__).parents[1] / "src" / "backprint"


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_what_the_face_exports_is_not_a_module_too() -> None:
    assert [name for name in bp.__all__ if importlib.util.find_spec(f"backprint.{name}") is not None] == []
