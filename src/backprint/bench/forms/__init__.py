"""Operators of backward graphs, written with operators that exchange formats have; `bench/lowering` collects them."""
