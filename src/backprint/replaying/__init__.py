"""Floor 1: Graphs run, compared and proved."""
