"""Runs a graph of Dynamo's node by node: the one way in which it runs as a program, to be traced or as an oracle.

Private torch APIs of this module, tried on torch 2.13: `torch.fx.Interpreter`, `torch.fx.traceback.preserve_node_meta`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx.traceback as fx_traceback
from torch import fx

from backprint.graph.nouns import Source
from backprint.tracing import frames


def tell_lines(module: fx.GraphModule, line: Callable[[fx.Node], Source | None]) -> None:
    """Put every node's line of the user's program where `frames` looks for it; those of subgraphs too."""
    for node in module.graph.nodes:
        node.meta[frames.TOLD] = line(node)
    for child in module.children():
        if isinstance(child, fx.GraphModule):
            tell_lines(child, line)


class GraphRunner(fx.Interpreter):
    """Runs a graph whose nodes have been told their lines: what they run, and what is traced of it, has these."""

    def results(self, *given: Any) -> Any:
        """What the graph gives."""
        with fx_traceback.preserve_node_meta():
            return self.run(*given)
