"""Regions: the backward of one block of an eager program, with its gradients, while the program runs untouched.

`nouns` says what a pass is; `watch` sees nodes and operators being made inside open blocks; `follow` walks what a
backward call will run and hooks it; `names` gives things the user's own names; `region` is the face. `write`, `read`
and `compare` are the dumps. Above the rooms of floor 1: of these it uses `capture.frames` and `replay.compare`.
"""
