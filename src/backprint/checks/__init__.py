"""Checks that make the operators of an untrusted graph safe to call.

An untrusted graph needs no code of its own to write to arbitrary memory: some kernels accept an int as a dtype, and
some do not check indices and sizes.

- `schema`: each argument against the operator's schema, then against the operator's row in the table.
- `table`: the operators whose kernels trust their arguments, and the check that each needs.
- `arguments`: those checks, by families of operators.
- `asserting`: asserts that a kernel makes, evaluated before it is called.
- `sizes`: how large a result would be, and how far numbers and lists may grow.

Calls that no check makes safe are marked `isolated` in `graph/operators.txt`.
"""
