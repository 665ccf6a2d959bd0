"""Graphs as plain data: no torch is needed for anything here but `fx/`.

Why a data structure of its own, where PyTorch has `torch.fx`? An `fx.GraphModule` is Python that runs: its nodes hold
functions, its attributes hold tensors, and reading one from a file executes it. A Graph is a value. It can be compared,
hashed, printed, and read from a stranger's file without executing anything. `to_fx` makes the GraphModule of it when
something has to run.

A Graph is straight-line code: inputs, one call of an ATen operator after another, outputs. There are no branches, no
loops and no views of tensors that somebody else changes. What a training step does is *one path* through its program,
and a branch that was taken is a Guard. So every question about a graph is one pass over a tuple of Steps.

The text is the storage, and it reads as a person would write it. `parse` takes back exactly what `emit` writes, so a
graph that was printed, mailed and pasted is the same graph:

>>> from backprint.graph.text import emit, parse
>>> text = '''import math
... import operator
...
... import torch
... from torch import inf, nan
...
... aten, prims = torch.ops.aten, torch.ops.prims
...
...
... class GraphModule(torch.nn.Module):
...     def forward(
...         self,
...         x: "f32[3] input x",
...         w: "f32[3] parameter w",
...     ) -> (
...         "f32[3] output output",
...         "f32[3] saved sin",
...     ):
...         sin: "f32[3]" = aten.sin.default(x)
...         mul: "f32[3]" = aten.mul.Tensor(sin, w)
...         return (mul, sin)
... '''
>>> graph = parse(text)
>>> [port.role for port in graph.inputs], [step.name for step in graph.steps]
(['input', 'parameter'], ['sin', 'mul'])
>>> parse(emit(graph)) == graph
True

A Pair is two graphs. What the forward saves is an output port of the one and an input port of the other, with the same
name, and nothing else connects them: what a backward costs in memory can be read off its ports. A Capture is the Pairs
of one call, the Links between them, and the environment that they were traced in.

Refused: a name or an operator that is not in the tables at the end of `nouns`, a port that is used before it is made,
a spec that cannot be (a stride for each size, sizes that are not negative). Objects are valid when they are made, so
nothing downstream checks again. Text with any other form is refused with its line.

Begin with `nouns`, then `text`:

- `nouns`: Port, Step, Graph, Pair, Link, Capture and their parts, valid by construction.
- `keys`: how a port is identified, and its text. `verdicts`: the words of a Verdict, and when a check was a proof;
  `notebook`: what a notebook shows of them.
- `capture_options`: the options of `bp.capture`, with their defaults. `calls`: calls of the public functions that
  cannot be right, with what to write instead.
- `text`: a Graph as straight-line Python, and back; the parser runs nothing.
- `canonical`: the form of a Graph without names, and its hash.
- `operators`: the operators that a graph may call, from `operators.txt`.
- `steps`, `depends`, `links`, `sizes`: questions about steps, about what depends on what, about links between Pairs,
  about symbolic sizes.
- `folding/`: repeated structure, found once. `together`: names and guards that differ in numbers alone, as one.
- `fx/`: a Graph as a torch.fx graph, and back.
"""
