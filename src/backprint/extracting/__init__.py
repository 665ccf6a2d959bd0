"""Kernels that compilers make of graphs: extracted, checked, normalized and deduplicated."""
