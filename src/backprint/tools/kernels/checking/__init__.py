"""Kernels run in a process of their own, and compared with the captured graphs in eager.

- `check`: the check of a Capture's kernels. `plan`: what the two processes tell each other. `work`: the process.
- `memory`: the memory that a kernel may touch.
- `interpreter`: Triton's interpreter, mended so that it computes what a GPU computes.
"""
