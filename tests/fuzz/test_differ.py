"""Some hundred mutated texts: what is read is what Python runs. And a reader that reads something else is seen."""

from __future__ import annotations

from dataclasses import replace

import differ
from differ import fuzz, read_text, tried

from backprint.graph.folding.unroll import unrolled
from backprint.graph.nouns import Graph
from backprint.graph.text import parse


def test_what_is_read_of_mutated_texts_is_what_python_runs() -> None:
    counts, findings = fuzz(1_500, 7)
    assert findings == []
    assert all(counts[f"{name}: the same"] > 10 for name in ("small", "mixed")), counts
    assert all(counts[f"{name}: refused"] > 100 for name in ("folded", "functions")), counts


def without_a_step(text: str) -> Graph:
    graph = read_text(text)
    return replace(graph, steps=tuple(step for step in graph.steps if not step.is_guard))


def test_a_reader_that_loses_a_step_is_seen() -> None:
    outcome, why = tried(differ.texts()["mixed"], without_a_step)
    assert outcome == "differs", why


def test_a_reader_of_loops_that_proves_nothing_is_seen() -> None:
    """A function named like a number that a comment gives: the flat text has another constant than Python takes."""
    text = differ.texts()["folded"].replace(
        "\n\n\nclass GraphModule",
        '\n\n\ndef a(x):\n    y: "f32[2, 3]" = aten.t.default(x)\n    return y\n\n\n'
        'def pick(x):\n    z: "f32[2, 3]" = aten.mul.Tensor(x, {5: 1.0}.get(a, -1.0))  # as picked\n    return z\n\n\n'
        "class GraphModule",
    )
    text = text.replace(
        "        last_addmm = inputs", '        chosen = pick(v["x"])  # a=5\n        last_addmm = inputs', 1
    )
    assert tried(text) == ("refused", "")

    outcome, why = tried(text, lambda text: parse(unrolled(text)))
    assert outcome == "differs", why
