"""GraphNet samples, in and out."""
