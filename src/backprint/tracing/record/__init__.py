"""The steps of a running training script, each a Capture of linked Pairs: forward, backward, optimizer.

- `script`: the script, run as Python runs it.
- `recording`: hooks on torch that find where a step begins and ends.
- `messages`: the collectives of a step that runs among processes.
- `steps`: the tape of one step, divided where backwards begin and end, as a Capture.
"""
