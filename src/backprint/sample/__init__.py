"""Captures on disk. Reading a sample runs none of its code, and needs no torch until tensors are read.

A sample is made to be sent to somebody who has PyTorch and nothing else: a compiler engineer, a bug tracker, oneself in
three years. So it is a folder of text. `model.py` is the graph as Python, and `python model.py` runs it. `capture.json`
has what Python text cannot say: roles, guards, links, the environment, recipes, and the verdict that the sample had.

Tensors are most of a model's bytes and least of its meaning. A *recipe* says how to make one again, to the bit, on any
machine: "normal numbers from this seed, of this size", "integers below 50,257", "a causal mask". Exact bytes are kept
where the caller asks for them, and where no recipe would do.

>>> import tempfile, torch
>>> import backprint as bp
>>> folder = tempfile.TemporaryDirectory()
>>> saved = bp.save(bp.capture(torch.nn.Linear(3, 2), torch.randn(4, 3)), folder.name + "/linear")
>>> sorted(file.name for file in (saved / "pair_0" / "backward").glob("*.py"))
['input_meta.py', 'input_tensor_constraints.py', 'model.py', 'weight_meta.py']
>>> sample = bp.load(saved)  # parses; nothing is executed
>>> [verdict.verdict for verdict in sample.verify()]
['bitwise']
>>> folder.cleanup()

What a backward takes from its forward is never stored. It is made by running the forward, so that the two cannot
disagree. Without the program, `verify` compares with digests and norms of its results, which `save` has kept.

A stranger's sample is read as one reads a letter. The text is parsed, not imported; each call in it must be one of
PyTorch's operators with arguments that its schema takes; sizes are bounded before anything is allocated; there is no
pickle. Whatever does not fit is refused with its file and line. Whoever *runs* a stranger's graph does so in a child
process: `bp.verify(path)`, and every command.

- `save`: a Capture written into a staging folder, which is renamed at the end (`place`). `load`: read back; `metadata`:
  `capture.json`; `kept`: exact data as bytes.
- `recipes`: how each input is made again; `inputs`: recipes fitted to tensors; `redraws`: other values for one input.
  `exchanges`: what the other ranks of a step sent. `backprint/run_sample.py` makes tensors of recipes.
- `ending`: the end of every `model.py`, which executes the sample's copy of `run_sample.py`.
"""
