"""Tensors and other values of a call, whatever graph they belong to.

- `tree`: the tensors among nested arguments, their names, and copies that keep aliases.
- `objects`: the places where Python's objects hold others, and the walk of everything that some objects lead to.
- `results`: a program's result taken apart into tensors and what holds them, and put together again.
- `geometry`: what shapes and strides say. `memory`: which bytes a tensor occupies, and which tensors overlap.
  `written_unseen`: writes that autograd does not see.
- `likeness`: values that are not tensors, described as JSON and compared.
- `bounds`: how large the result of a call may be.
- `closeness`: how far apart two tensors are. `statistics`: minimum, maximum, norm, NaN and Inf of one.
- `settings`: everything besides its inputs that a result depends on: threads, precision, random states.
- `wrappers`: tensors that wrap another, such as a DTensor its shard. `exchanges`: what ranks send each other.
- `tensor_files`: safetensors files, written without NumPy.
"""
