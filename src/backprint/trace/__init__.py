"""From a running program to a Capture. Objects of fx, AOTAutograd and Dynamo do not leave this room.

The idea fits into a screen. A dispatch mode sees every operator that PyTorch runs, below autograd. Record a call of the
program, and the backward that autograd then runs, and both graphs are there:

>>> import torch
>>> from torch.utils._python_dispatch import TorchDispatchMode
>>> class Tape(TorchDispatchMode):
...     def __torch_dispatch__(self, function, types, args=(), kwargs=None):
...         print(function)
...         return function(*args, **(kwargs or {}))
>>> x = torch.ones(3, requires_grad=True)
>>> with Tape():
...     y = x.sin()
...     (gradient,) = torch.autograd.grad(y, x, x)
aten.sin.default
aten.cos.default
aten.mul.Tensor

The rest of the room makes the recording true of the program:

- *Names.* The tape has tensors; a person wants `layer1.0.conv1.weight`. Before the run, `program` and `reach` name
  every tensor that the call can reach. A tensor that an operator uses, and that has no name, is a tensor from outside
  the call. It is named by the closure, global or attribute that holds it.
- *In place.* `x.add_(1)` changes what every later read of that memory sees. The engine `eager` records operators on
  storages, and then writes the graph of values that they compute.
- *Nothing but operators.* Whatever changes a gradient without an operator, such as a hook that replaces it, a
  `no_grad` island or a custom `autograd.Function`, is noted as an opaque edge. Autograd of the recorded forward would
  not give this backward. A computation without any operator is refused.
- *What was assumed.* A value read as a number, by `.item()` or an `if`, is a Guard with its line.
- *The caller notices nothing.* `state/` remembers what a run can change and puts it back.

The other engines trace instead of run: `aot` where values must not be computed, or sizes are symbolic, and `dynamo`
where control flow is to stay in the graph. Whichever engine made a capture, it counts only when its graphs return the
same results and gradients as the untouched program, bit for bit (room `prove`).

Refused, each with what to do instead: a program under a TorchDispatchMode of the user's own, one that needs a loop over
data as *one* graph, a write that PyTorch does not see, an iterator within reach.

In the order of one call:

- `program`: the call, its tensors under the program's own names. `reach`: what a callable can reach.
- `state/`: everything that the program can change: a snapshot before a run, restored after it.
- `running`: one run of the program on its own objects or on stand-ins. `witness`: a run of the untouched program, the
  reference of every proof. `hooks_after`: hooks that autograd calls when a gradient is in `.grad`. `silent_writes`:
  writes that no operator makes.
- `collectives`: a dispatch mode that answers the collectives of a rank that runs alone.
- `observe`: the dispatch mode under which a program runs, and the observers that it tells about each operator.
  `watch`: what is noted of a run, and facts about operators. `external`: the tensors that a run uses from outside.
  `edges`: its opaque edges. `non_operator_effects`: hooks, flags and other things that no operator shows. `custom`: the
  Python bodies of custom operators. `derivatives`: operators without a derivative.
- `warm_up`: one observed run before a trace. `refusals`: programs of which a trace would lose a part, refused by name.
- The engines: `eager/`, `aot/` (with `fake` for models without values and `stamping/` for deep ones), `dynamo/`.
  `request` has the result of an engine, `entry` the table of engines and what is checked before one is asked.
- `partition`: functions, which choose the values that are saved. `assembly`: the Pair of a recorded forward and
  backward, the one place where the two are tied. `captured`: the Capture of an engine's result, with the program that
  it was traced from.
- `frames`: the user's line, function and module that are running.
"""
