"""The nouns, their text, and their canonical form. Needs no torch."""
