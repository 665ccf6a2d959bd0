"""What a call was given, as plain JSON (`describe`), and where two such descriptions differ (`differences`)."""
