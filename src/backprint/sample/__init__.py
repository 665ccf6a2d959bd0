"""Captures on disk. Reading a sample runs none of its code, and needs no torch until tensors are read."""
