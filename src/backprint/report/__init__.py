"""Floor 4: what a corpus run came to, as plain tables, and the formats that they are written in."""
