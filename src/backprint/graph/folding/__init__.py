"""A graph with its repeated steps as loops: found, written for people, and unfolded to the same graph."""
