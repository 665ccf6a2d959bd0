"""A stranger's code in a process of its own, and what its results and times are held against.

Compilers (`bench`) and solutions (`tasks`) are judged with these.

- `asking`: the errors of a stranger's code.
- `contents`: inputs that are drawn anew.
- `clocks`: times, compared, and what a stranger's code must not change. `roofline`, `peaks`: the least work of a graph,
  and the peaks of the machine.
"""
