"""Many samples: found, worked on by a pool of processes, and written down in one ledger."""
