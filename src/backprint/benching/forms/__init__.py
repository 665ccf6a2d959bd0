"""Operators of backward graphs, written with operators that exchange formats have, for `benching/lowering`."""
