"""One error, one word: a planted error is right or wrong wherever it is judged. `benchmarks/one_error.py` has fifty
errors, and all verbs; here are ten, and the verbs that take moments."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "one_error.py"

WORDS = {
    "output, float32, factor 1e-07": "right",
    "output, float32, factor 1e-05": "wrong",
    "output, float32, noise 1e-07": "right",
    "output, float32, element 1e-05": "wrong",
    "output, float32, a row of zeros": "wrong",
    "output, float32, NaN": "wrong",
    "gradient, float32, factor 1e-07": "right",
    "gradient, float32, factor 1e-04": "wrong",
    "output, float32, shift 1e-06": "right",
    "output, bfloat16, factor 1e-02": "wrong",
}


@pytest.fixture(scope="module")
def one_error() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("one_error", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["one_error"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["one_error"]


@pytest.mark.parametrize("error", WORDS)
def test_an_error_has_one_word(error: str, one_error: ModuleType, tmp_path: Path) -> None:
    verbs = ("check", "swap", "verify")
    words = dict(one_error.words_of(error, tmp_path, verbs))
    assert words == dict.fromkeys(verbs, WORDS[error])
