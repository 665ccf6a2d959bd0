"""Many samples: find them, process them in a pool of processes, and record them in one ledger."""
