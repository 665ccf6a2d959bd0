"""Captures on disk. Reading a sample runs none of its code, and needs no torch until tensors are read.

- `save`: a Capture written into a staging folder, which is renamed at the end (`place`). `load`: read back; `metadata`:
  `capture.json`; `kept`: exact data as bytes.
- `recipes`: how each input is made again; `inputs`: recipes fitted to tensors; `redraws`: other values for one input.
  `exchanges`: what the other ranks of a step sent. `backprint/run_sample.py` makes tensors of recipes.
- `ending`: the end of every `model.py`, which executes the sample's copy of `run_sample.py`.
- `export`: one Python file that runs a Capture and compares a compiler with eager; `exported`: its own functions.
  `rerun`, `judged`: runs and the rule of comparison, of `bench` too.
"""
