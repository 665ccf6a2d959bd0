"""From a captured graph to the code that a compiler writes of it for a target."""
