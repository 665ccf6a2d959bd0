"""The text of a graph on disk: every step, or loops where those make it much smaller. One reader for both.

All objects that are made of a text are kept. Python's collector looks for cycles among them over and over, and finds
none: it is paused meanwhile, which takes a third off the time of a large graph.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from backprint.graph.folding.expand import is_folded
from backprint.graph.folding.fold import parse_folded, proved_text
from backprint.graph.nouns import Graph
from backprint.graph.text import emit, parse

LEAST_STEPS = 400
"""A graph of fewer steps is stored flat, so that saving it does not pay for a fold: its text is some tens of KB."""

SMALLER = 4
"""How many times smaller a text with loops is, in characters, where it is stored."""


def text_to_store(graph: Graph, title: str = "") -> str:
    """Return the text of a graph for disk. One with loops was written out here, and is the flat text to the letter."""
    flat = emit(graph, title)
    if len(graph.steps) < LEAST_STEPS:
        return flat
    with collector_paused():
        return proved_text(graph, flat, lambda short: SMALLER * len(short) <= len(flat), title)


def parse_stored(text: str) -> Graph:
    """Return the Graph of a text from disk, with loops or without. Nothing of it is run."""
    with collector_paused():
        return parse_folded(text) if is_folded(text) else parse(text)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's collector of cycles, if it runs; what is in no cycle is freed as always."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
