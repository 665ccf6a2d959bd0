"""Regions: the backward of one block of an eager program, with its gradients, while the program runs untouched.

`nouns` has what a pass is made of; `watch` sees nodes and operators being made inside open blocks, by what `anomaly`
replaces in torch, and keeps them as records of `nodes`; `follow` hooks the nodes that a backward call will run; `core`
is a region's state, `build` makes its passes, `names` finds the user's own names; `region` is the face. `write`, `read`
and `compare` are the dumps. Above the rooms of floor 1: of these it uses `capture.frames` and `replay.compare`.
"""
