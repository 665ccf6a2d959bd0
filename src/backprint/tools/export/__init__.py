"""Captures proven and written: as samples, as GraphNet's trees, and as one Python file.

- `saving`: what `bp.save` and `bp.export` do: prove a Capture on inputs from its recipes, and write it.
- `export`: one Python file that runs a Capture and compares a compiler with eager; `exported`: its own functions.
- `rerun`, `judged`: runs and the rule of comparison, of `bench` too.
"""
