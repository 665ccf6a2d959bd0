"""A running script, watched: each of its steps as a Capture of linked Pairs, forward, backward, optimizer."""
