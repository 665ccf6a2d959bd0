"""Whether a backward is the derivative of its forward, for a captured Pair.

- `duals`: the derivative of a graph along a direction, by forward-mode AD of its own steps, in float64.
- `setting`: a Pair in float64 on inputs near the captured ones, and the two products that must agree.
- `check`: the verdict of a whole Capture. `locate`: where a backward is wrong. `echoes`: the first steps for which it
  goes wrong, by its echoes. `marks`: gradients that are equal in any layout. `hostile`: tangents of other kinds, and
  inputs at which a backward may go wrong. `live`: the program itself with other tangents, and called again. `alone`:
  each custom Function by itself. `reads`: numbers that a program reads out of its inputs. `kept`: the word of a sample.
- `beside`: its word beside that of a Verdict. `forms`: operators written with common ones.
- `function`: a function alone against a reference (`bp.check`). `called`: its call, run on other values. `compared`:
  its results beside the reference's. `otherwise`: how far other rounding moves the reference's. `unusual`: other
  tangents and inputs. `usage`: other ways to call it. `masks`: NaN where a mask hides it. `differences`: the
  derivative of a function that cannot be captured. `checked`: the rows, and their table. `reproduced`: a fault as a
  file.
"""
