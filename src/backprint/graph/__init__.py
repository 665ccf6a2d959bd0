"""Floor 0: the nouns, their text, their canonical form. Needs no torch."""
