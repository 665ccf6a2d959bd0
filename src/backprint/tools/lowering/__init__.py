"""Graphs as compilers take them.

- `subjects`: each graph of a Capture as an fx module with its inputs; random draws become inputs.
- `operators`: a graph written with operators that exchange formats have.
"""
