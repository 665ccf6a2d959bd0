"""Wrong backwards that shipped, each rewritten from a public issue in a few lines for a CPU, beside its mended form.

A class here is a `torch.autograd.Function` with the right backward. A subclass whose name ends in `Shipped` has the
fault of the issue on the line that is marked `# wrong`, and nothing else of it differs; the two forwards are equal bit
for bit. `ROWS` is the table of them. Where the fault was in a kernel, in a compiler or in a formula of C++, what it
computes is rewritten, not its code; memory that a kernel takes for what it is not is read by `table.read`.

`plain` of a row is the same function without a Function: what autograd makes of it is the gradient. `inputs` are such
that the fault shows, for tangents of the kind `tangents`; `shows` says in words when it does, and with the inputs
`ordinary`, where a row has them, it does not. `tests/test_wrong_backwards.py` proves all of this, and
`benchmarks/wrong_backwards.py` shows which checks find them.
"""

from subjects.wrong_backwards import attention, functions, losses, norms, pieces, scans, second
from subjects.wrong_backwards.table import ROWS, TANGENTS, Row, as_dtype, draw, gradients, tangents_for, tensors_of

AREAS = (losses, norms, functions, attention, scans, pieces, second)
"""The modules with the Functions; importing them enters their rows."""

ROWS.sort(key=lambda row: [area.__name__ for area in AREAS].index(row.function.__module__))

__all__ = ["ROWS", "TANGENTS", "Row", "as_dtype", "draw", "gradients", "tangents_for", "tensors_of"]
