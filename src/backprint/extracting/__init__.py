"""Kernels that compilers make of graphs: extracted, checked, normalised and deduplicated."""
