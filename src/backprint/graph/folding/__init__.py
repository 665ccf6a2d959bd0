"""Fold: repeated structure of a graph found once, and unfolded to the same graph."""
