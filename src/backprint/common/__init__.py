"""What every room may use, and what knows nothing of torch or of graphs.

- `files`: files that are written whole or not at all, files and SQLite databases that a stranger may have written,
  and dataclasses read from plain values.
- `folders`: folders that appear whole; what killed writers have left is removed.
- `memory`: how much memory there is for one result. `at_work`: the call that a sample's process was at when it ended.
- `names`: names that are not taken yet. `text`: a stranger's text made printable, large numbers as short texts.
- `words`: the words that options accept, as types that editors complete.
- `factories`: the function that a text names. `formats`: which format of sample a folder holds, by the names of its
  files.
- `tried`: the versions of torch that Backprint was tried with.
- `web_page`: one HTML file, saved, opened or shown. `collector`: work without Python's garbage collector.
"""
