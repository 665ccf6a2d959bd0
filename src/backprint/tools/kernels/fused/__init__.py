"""A program in Inductor's kernels, as one file: what is not a loop has the same face as a loop that `bp.lower` wrote.

In the order in which a program passes through them:

- `nouns`: a direction in Inductor's code, its ports and kernels. `directions`: a Pair as two of them.
- `wrapper_text`: the code that calls the kernels, in plain PyTorch. `kernel_text`: a kernel as a Triton function.
- `file_text`: the file around them.
- `lower`: all of it, from a capture to a LoweredGraph. `lowered`: what that does, and the fewest
  bytes that it could move.
"""
