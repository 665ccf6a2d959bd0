"""Whether a backward is the derivative of its forward, for a captured Pair.

A replay that is `bitwise` says that the capture is the program's backward. It does not say that the program's backward
is right. A custom `autograd.Function` returns what its author wrote, and a wrong gradient trains, a little worse, and
tells nobody. This room asks mathematics.

For a function f, tangents g of its outputs and a direction v of its inputs, a backward is the derivative if

    ⟨g, J·v⟩ = ⟨Jᵀ·g, v⟩

The left side needs the forward alone: J·v is how its results move along v, which forward-mode AD computes step by step
(`duals`). The right side needs the backward alone: Jᵀ·g is what it returns for g. One number on each side, for any
number of parameters, and no step size to choose as with finite differences. Both graphs run in float64, near the
captured inputs, so that what is left over is a fault and not rounding.

>>> import torch
>>> import backprint as bp
>>> class Square(torch.autograd.Function):
...     @staticmethod
...     def forward(ctx, x):
...         ctx.save_for_backward(x)
...         return x * x
...     @staticmethod
...     def backward(ctx, grad):
...         (x,) = ctx.saved_tensors
...         return grad * x  # 2 is forgotten
>>> x = torch.linspace(1, 2, 4, requires_grad=True)
>>> [answer] = bp.derivative(bp.capture(Square.apply, x))
>>> answer.word, [place.function for place in answer.wrong]
('not the derivative', ['Square'])

A number for the whole is not enough for a person: where is it wrong? `locate` asks each call of the forward by itself,
and names the Function and the lines. One tangent is not enough either: a backward may be right for ones and wrong for
the tangents of a scaled loss, or right in the first call and wrong in the second. `live`, `usage` and `unusual` call
the program in the ways that training does.

Some backwards are meant to differ, such as the surrogate of a spike or a straight-through estimator. Their author
names them (`meant=`), and the answer is `derivative but for …`, about everything else. Where nothing can be said, as at
a kink or with results that are random, the answer is `cannot tell`, with the reason, and never `derivative`.

- `duals`: the derivative of a graph along a direction, by forward-mode AD of its own steps, in float64.
- `setting`: a Pair in float64 on inputs near the captured ones, and the two products that must agree.
- `check`: the verdict of a whole Capture. `locate`: the calls whose gradients are wrong. `hostile`: tangents of other
  kinds, and inputs at which a backward may go wrong. `live`: the program itself with other tangents, and called again.
  `alone`: each custom Function by itself. `reads`: numbers that a program reads out of its inputs. `kept`: the word of
  a sample.
- `beside`: its word beside that of a Verdict. `forms`: operators written with common ones.
- `function`: a function alone against a reference (`bp.check`). `called`: its call, run on other values. `compared`:
  its results beside the reference's. `otherwise`: how far other rounding moves the reference's. `unusual`: other
  tangents and inputs. `usage`: other ways to call it. `masks`: NaN where a mask hides it. `differences`: the
  derivative of a function that cannot be captured. `checked`: the rows, and their table. `reproduced`: a fault as a
  file.
"""
