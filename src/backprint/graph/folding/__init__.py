"""A graph with its repeated steps as loops: a view, which is never stored.

- `nouns`: FoldedGraph, its loops, and the series of what one place of a step has in each iteration.
- `find`: repeated structure in a list of steps. `fold`: a FoldedGraph made of it.
- `text`: a folded graph as Python for people, with functions for what recurs. `unroll`: that text made flat again, the
  proof of what is shown.
- `stretches`: the iterations and what stands between them, each a graph, and what they cost.
"""

from backprint.graph.folding.nouns import FoldedGraph
from backprint.graph.folding.text import emit_folded

FoldedGraph.code = property(emit_folded)  # type: ignore[assignment,method-assign]  # a verb is bound to its noun here
