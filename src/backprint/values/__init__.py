"""Tensors and other values of a call, whatever graph they belong to.

A program is called with more than tensors in a tuple. A batch is a dataclass in a dict; the same tensor is passed
twice; one is a view of another; a module keeps a cache in an attribute of an object in a list. To capture a call, its
values have to be named, copied, put back and compared, without a change that the program could see. Each of these
questions has one answer here, and every other room asks it here.

- *What is there?* `tree` opens containers as `torch.utils._pytree` does, and gives each tensor the path of its leaf:
  `batch.labels.0`. `objects` goes further, through attributes, closures and globals. It has the one table that says
  which objects are opened, and which belong to a library and are left alone.
- *What may it be replaced by?* A copy of values keeps what they share: if `b` is a view of `a`, the copy of `b` is a
  view of the copy of `a`. A program that writes into one of them has the same effect on both.
- *Is it the same?* Tensors are compared bit for bit (if not, `judge` says how far apart they are), plain values by
  value, and other objects by identity.

>>> import torch
>>> from backprint.values.tree import copy_values, flatten_with_path, leaf_name
>>> a = torch.zeros(4)
>>> arguments = ({"labels": [a[2:], 7]},), {}  # as the call f(batch) has them
>>> leaves, _ = flatten_with_path(arguments)
>>> [leaf_name(path, ["batch"]) for path, leaf in leaves]
['batch.labels.0', 'batch.labels.1']
>>> copy = copy_values({"a": a, "b": a[2:]})
>>> _ = copy["b"].fill_(1)
>>> copy["a"], a
(tensor([0., 0., 1., 1.]), tensor([0., 0., 0., 0.]))

Why so careful? A capture runs the program several times: once recorded, once untouched as the reference, and again on
other values. If the first run changed what the second one reads, a right capture would look wrong. Worse, a wrong one
might look right.

Refused, by name: an iterator, which cannot be read without being advanced; results in a set, a closure or a generator;
in a replay, an argument that is neither a value nor the object of the captured call.

- `tree`: the tensors among nested arguments, their names, and copies that keep aliases.
- `objects`: the places where Python's objects hold others, and the walk of everything that some objects lead to.
- `results`: a program's result taken apart into tensors and what holds them, and put together again.
- `geometry`: what shapes and strides say. `memory`: which bytes a tensor occupies, and which tensors overlap.
  `written_unseen`: writes that autograd does not see.
- `fingerprint`: values that are not tensors, described as JSON and compared.
- `bounds`: how large the result of a call may be.
- `rounding`: a run that rounds in another way. `statistics`: minimum, maximum, norm, NaN and Inf of one tensor.
- `settings`: everything besides its inputs that a result depends on: threads, precision, random states.
- `wrappers`: tensors that wrap another, such as a DTensor its shard. `exchanges`: what ranks send each other.
- `tensor_files`: safetensors files, written without NumPy.
"""
