"""The results of a corpus run as plain tables, and the formats that they are written in."""
