"""Floor 1: Captures on disk. Reading runs nothing of a sample, and needs no torch until tensors are asked for."""
