"""Graphs of deep models, stamped: continued from captures with a few of their equal layers, and held against a run of
the whole."""
