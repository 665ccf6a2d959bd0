"""One module per family of compilers, and the table that names them (`table`)."""
