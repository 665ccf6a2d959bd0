"""Some hundred mutated texts: what is read is what Python runs. And a reader that reads something else is seen."""

from __future__ import annotations

from dataclasses import replace

import differ
import pytest
from differ import fuzz, tried

from face import Graph, parse


@pytest.mark.slow
def test_what_is_read_of_mutated_texts_is_what_python_runs() -> None:
    counts, findings = fuzz(1_500, 7)
    assert findings == []
    assert all(counts[f"{name}: the same"] > 10 for name in ("small", "mixed", "deep")), counts


def without_a_step(text: str) -> Graph:
    graph = parse(text)
    return replace(graph, steps=tuple(step for step in graph.steps if not step.is_guard))


def test_a_reader_that_loses_a_step_is_seen() -> None:
    outcome, why = tried(differ.texts()["mixed"], without_a_step)
    assert outcome == "differs", why
