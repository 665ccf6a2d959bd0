"""The seam to PyTorch: each private API that Backprint uses, under a public name, with a probe that says if it holds.

Backprint needs to know what PyTorch does not promise to tell: which hooks a tensor has, when a backward of a library
saves a value, what AOTAutograd partitions. Such names move between releases. If they stood where they are used, a new
PyTorch would break a capture somewhere in the middle, with an AttributeError, or would silently mean something else. So
they stand here, and no other room says `torch._…`; a test holds that.

A private name is a row of a table: the path where torch keeps it, what Backprint takes it to promise, and what stops
working without it. Other rooms import it as any function:

>>> import torch
>>> from backprint._torch.tensors import version_of
>>> x = torch.zeros(2)
>>> before = version_of(x)
>>> _ = x.add_(1)
>>> version_of(x) - before
1

A *probe* tries the promise in a few lines, as one would in a shell: add in place, and the version counts up. `backprint
doctor` runs them all, in a second or two, and says for a torch that nobody has tried which commands will work and which
will refuse. A name that this torch lacks can be imported all the same. It raises PrivateApiError where it is used, with
what it is needed for, so that the other features go on working.

Where releases differ by more than a name, there is a function with a branch for each, and the version beside it.
CONTRIBUTING.md has the steps for a name that was renamed.

A module for each domain: `modes`, `autograd`, `tensors`, `operators`, `functorch`, `pytree`, `modules`, `fake`,
`shapes`, `graphs`, `aot`, `dynamo`, `inductor`, `pointwise`, `process_state`, `script`, `distributed`. `private` says
how their tables work, and `probes` collects their probes.
"""
