"""Record a running script: each of its steps as a Capture of linked Pairs, forward, backward, optimizer."""
