"""A kernel as one file that runs by itself."""
