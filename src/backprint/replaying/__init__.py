"""Run, compare and prove Graphs."""
