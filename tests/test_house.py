"""The house stays readable: a file has one job, a class name one meaning, and a function's name leads to its room."""

from __future__ import annotations

import ast
import importlib.util
from collections import defaultdict
from pathlib import Path

import backprint as bp

SOURCE = Path(__file__).parents[1] / "src" / "backprint"

LONG = {
    "graph/text.py": "the grammar of a graph's text and its inverse",
    "graphnet/code.py": "the grammar of GraphNet's code",
}
"""Files of more lines than others may have, and why they stay whole."""

LINES = 450

STATEMENTS = 40
"""The lines that the body of a function may have, without its signature and its docstring."""

TABLES = {"command", "factory", "verify"}
"""Names that tables want: each verb of the command line is a `command`, each example has a `factory`, and `verify` is a
verb of the face, of the command line and of corpora."""

VAGUE = {"step", "read", "enter"}
"""Names that functions and methods had for several ideas."""


def test_a_file_has_one_job() -> None:
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {path for path, length in lengths.items() if length > LINES} == set(LONG)


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_the_name_of_a_function_is_in_few_rooms() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name].add(str(path.relative_to(SOURCE)))
    assert {name: sorted(paths) for name, paths in found.items() if len(paths) > 2 and name not in TABLES} == {}


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_a_function_reads_as_its_steps() -> None:
    found = {}
    for path in SOURCE.rglob("*.py"):
        for node in functions(path):
            body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
            found[f"{path.relative_to(SOURCE)}: {node.name}"] = (node.end_lineno or 0) - body[0].lineno + 1
    assert {name: lines for name, lines in found.items() if lines > STATEMENTS} == {}


def test_a_name_that_said_nothing_does_not_come_back() -> None:
    found = {(str(path.relative_to(SOURCE)), node.name) for path in SOURCE.rglob("*.py") for node in functions(path)}
    assert [(path, name) for path, name in sorted(found) if name in VAGUE] == []


def test_what_the_face_exports_is_not_a_module_too() -> None:
    assert [name for name in bp.__all__ if importlib.util.find_spec(f"backprint.{name}") is not None] == []
