"""Observed values: statistics of everything that the graphs of a Capture compute on its own inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from backprint.graph.nouns import Capture, Graph
from backprint.graph.steps import UNWRITTEN, operator_name
from backprint.prove.run import RunOptions
from backprint.prove.whole import replay
from backprint.values.statistics import Stats, stats_of

ValueStats = dict[tuple[int, int, str], Stats]
"""By Pair, direction (0 the forward, 1 the backward), and the name of the value in the graph."""


def observed_values(capture: Capture) -> ValueStats:
    """Run a Capture once on its own inputs, forward and backward; return statistics of each floating-point tensor.

    Tensors that are made without a value, as `empty` makes them, have none.
    """
    # The Pair and the direction of each graph, by the graph's id.
    places = {
        id(graph): (index, side)
        for index, pair in enumerate(capture.pairs)
        for side, graph in enumerate((pair.forward, pair.backward))
        if graph is not None
    }
    # Values that are left out: memory that nothing has written yet may hold any numbers, NaN among them.
    empty = {
        (id(graph), step.name)
        for pair in capture.pairs
        for graph in pair.graphs
        for step in graph.steps
        if step.target.startswith("aten.") and operator_name(step.target) in UNWRITTEN
    }
    statistics: ValueStats = {}

    def watch(graph: Graph, name: str, value: Any) -> None:
        """Note the statistics of a value of the run. A graph that is none of a Pair is the body of a higher-order
        operator."""
        is_observed = id(graph) in places and (id(graph), name) not in empty
        if is_observed and isinstance(value, Tensor) and _has_stats(value):
            statistics[(*places[id(graph)], name)] = stats_of(value)

    replay(capture, options=RunOptions(watch=watch))
    return statistics


def _has_stats(value: Tensor) -> bool:
    """Whether a tensor is of floating-point or complex numbers, in a layout that `stats_of` takes."""
    return value.dtype.is_floating_point | value.dtype.is_complex and value.layout in (torch.strided, torch.sparse_coo)
