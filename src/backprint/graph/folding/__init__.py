"""A graph with its repeated steps as loops: a view, which is never stored.

- `nouns`: FoldedGraph, its loops, and the series of what one place of a step has in each iteration.
- `find`: repeated structure in a list of steps. `fold`: a FoldedGraph made of it.
- `listing`: a folded graph as text for people, which is not read.
"""
