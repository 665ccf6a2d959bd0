"""Whether a backward is the derivative of its forward, for a captured Pair.

- `duals`: the derivative of a graph along a direction, by forward-mode AD of its own steps, in float64.
- `setting`: a Pair in float64 on inputs near the captured ones, and the two products that must agree.
- `check`: the verdict of a whole Capture. `locate`: where a backward is wrong. `hostile`: tangents in other memory, and
  inputs at which a backward may go wrong.
"""
