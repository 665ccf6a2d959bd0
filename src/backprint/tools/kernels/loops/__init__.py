"""Loops over time as one Triton kernel a direction: a captured program becomes a file that a kernel writer would keep.

In the order in which a program passes through them:

- `nouns`: an element of a tensor, and a loop of elements. `call`: the arguments of a length.
- `elements`: a captured Pair as what happens to one element. `rolling`: the iterations of one direction as a loop.
- `keeping`: what a forward keeps for its backward. `traffic`: the bytes that a direction moves, and the fewest.
- `words`: operations in Triton. `triton_text`: a kernel as text. `torch_text`: its loop in PyTorch.
  `file_text`: the file around them.
- `limits`: at which numbers of steps, and of which states, the loop is the program.
- `lower`: all of it, from captures to a LoweredLoop. `lowered`: what a LoweredLoop does. `build`: its PTX and cubin.
"""
