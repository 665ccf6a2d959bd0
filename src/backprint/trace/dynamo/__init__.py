"""Engine `dynamo`, and the backend of `torch.compile`: the graphs that Dynamo makes of a program.

Both collect a graph with the inputs that it runs on, make a program of it, and have engine `aot` capture that.

- `graphs`: one graph as a program: names and lines, the modes around it, the function that runs it.
- `frontend`: one run of a program under Dynamo; its graphs, the numbers that it reads between them, and graph breaks.
- `engine`: the graphs of such a run captured as Pairs, the last first, and the Pairs linked.
- `backend`: one graph of a running `torch.compile`, captured while the program waits for it; what it goes on with.
"""
