"""`tests/ci.txt` says which tests CI runs; a test that no line speaks of runs, with its first parameters."""

from __future__ import annotations

import pytest
from subjects.ci import CHOICE, chosen, lines_of, problems_of

NAMES = "a.py::plain", "a.py::rows[x]", "a.py::rows[y-1]", "a.py::rows[y-2]", "b.py::long[x]", "b.py::long[y]"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", "a.py::plain a.py::rows[x] b.py::long[x]"),
        ("# a reason\na.py::rows[y-*\n", "a.py::plain a.py::rows[y-1] a.py::rows[y-2] b.py::long[x]"),
        ("a.py::rows*\n- a.py::rows[*-2]\n", "a.py::plain a.py::rows[x] a.py::rows[y-1] b.py::long[x]"),
        ("- a.py::rows[x]\n- b.py::*\n", "a.py::plain a.py::rows[y-1]"),
    ],
)
def test_of_each_function_the_named_ones_run_or_the_first(text: str, kept: str) -> None:
    assert chosen(NAMES, text) == set(kept.split())
    assert problems_of(NAMES, text) == []


def test_a_line_of_no_test_and_a_file_of_which_nothing_runs_are_named() -> None:
    text = "a.py::rows[z]\n- b.py::long[*\n"
    assert problems_of(NAMES, text) == ["a.py::rows[z] names no test", "nothing of b.py runs"]


def test_no_line_stands_twice() -> None:
    named, left_out = lines_of(CHOICE.read_text(encoding="utf-8"))
    assert len(set(named)) == len(named)
    assert len(set(left_out)) == len(left_out)
