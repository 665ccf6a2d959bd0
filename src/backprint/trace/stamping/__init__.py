"""Graphs of deep models, continued from captures with a few of their equal layers.

- `stamp`: the plan (which lists of layers are equal), the captures with four and five of them, and the check of the
  continuation against a run of the whole model.
- `rows`: rows of a log or of a Joint, continued from two depths to any.
"""
