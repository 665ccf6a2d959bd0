"""The ranks of one distributed step, in one process: captured each for itself, proved together and against the whole.

- `turns`: threads, one a rank, of which one runs at a time. `kept`: what a program keeps outside of its arguments, and
  each rank has for itself; `reached`: where that is.
- `meeting`: their collectives, computed where they meet.
- `sharded`: the model and the arguments of each rank, and what all ranks do on them, among each other.
- `whole`: whether the ranks' gradients are those of the whole model. `double`: both, in float64. `causes`: what is
  missing. `text`: the ranks in words, and what they send.
- `world`: a World, the Captures of the ranks, proved together, and on disk.
- `processes`: a rank that is captured in a process of its own, under torchrun.
"""
