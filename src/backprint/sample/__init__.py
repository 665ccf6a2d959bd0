"""Captures on disk. Reading a sample runs none of its code, and needs no torch until tensors are read.

- `save`: a Capture written into a staging folder, which is renamed at the end (`place`). `load`: read back; `metadata`:
  `capture.json`; `kept`: exact data as bytes.
- `recipes`: how each input is made again; `inputs`: recipes fitted to tensors; `redraws`: other values for one input.
  `exchanges`: what the other ranks of a step sent.
- `generator`, `alone`, `standalone`: the code that ends every `model.py`, so that it runs without Backprint.
- `export`: one Python file that runs a Capture and compares a compiler with eager; `exported`: its own functions.
  `rerun`, `judged`: runs and the rule of comparison, of `bench` too.
"""
