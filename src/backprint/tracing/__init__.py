"""Floor 1: from a running program to plain Graphs. fx and AOTAutograd objects enter here and leave as data."""
