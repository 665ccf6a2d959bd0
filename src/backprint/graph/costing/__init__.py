"""What the steps of a graph cost, from its text: floating-point operations, bytes, memory. Needs no torch."""
