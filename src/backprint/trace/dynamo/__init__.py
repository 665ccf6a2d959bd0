"""Engine `dynamo`, and the backend of `torch.compile`: the graphs that Dynamo makes of a program.

- `frontend`: one run of the program under Dynamo; its graphs, graph breaks, names and lines.
- `engine`: each graph traced to a Pair, the last first, and the Pairs linked.
- `backend`: one graph of a running `torch.compile`, captured while the program waits for it.
"""
