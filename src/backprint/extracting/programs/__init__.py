"""Kernels read from folders, in their normal form, deduplicated, indexed and found."""
