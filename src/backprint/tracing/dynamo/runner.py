"""Run a graph of Dynamo's node by node, to trace it or as an oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx.traceback as fx_traceback
from torch import fx

from backprint.graph.nouns import Source
from backprint.tracing import frames


def tell_lines(module: fx.GraphModule, line: Callable[[fx.Node], Source | None]) -> None:
    """Set every node's line of the user's program where `frames` looks for it, in subgraphs too."""
    for node in module.graph.nodes:
        node.meta[frames.TOLD] = line(node)
    for child in module.children():
        if isinstance(child, fx.GraphModule):
            tell_lines(child, line)


class GraphRunner(fx.Interpreter):
    """Runs a graph whose nodes have lines (`tell_lines`): operators that they run have these lines."""

    def results(self, *given: Any) -> Any:
        """Return the outputs of the graph."""
        with fx_traceback.preserve_node_meta():
            return self.run(*given)
