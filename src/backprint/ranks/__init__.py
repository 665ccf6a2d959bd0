"""The ranks of one distributed step, in one process: captured each for itself, proved together and against the whole.

- `turns`: threads, one a rank, of which one runs at a time. `meeting`: their collectives, computed where they meet.
- `sharded`: the model and the arguments of each rank, and one step of each, all among each other.
- `world`: a World, the Captures of the ranks. `whole`: whether the ranks' gradients are those of the whole model.
"""
