"""What changed between two Captures: their steps and ports matched to one another, without torch."""
