"""A graph with its repeated steps as loops: found, written for people, and unfolded to the same graph."""

from backprint.graph.folding.nouns import FoldedGraph
from backprint.graph.folding.text import emit_folded

FoldedGraph.code = property(emit_folded)  # type: ignore[assignment,method-assign]  # a verb is bound to its noun here
