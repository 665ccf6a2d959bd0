"""Engine `eager`: one real step, recorded operator by operator, as code without updates in place.

- `tape`: a watch that records every operator; each tensor is identified by its place in memory.
- `values`: the current value of every tensor, of its storage and of its views, while the tape is read.
- `page`: the steps of the graph so far, each with a name, a line and an echo.
- `writer`: the tape as straight-line code; an update in place becomes a new value.
- `engine`: the run, its tape and the Joint of it.
"""
