"""Check the arguments of tensor operators: against the types of the schema, and against what the kernel can be trusted
with.

An untrusted graph needs no code of its own to write to arbitrary memory: kernels accept an int as a dtype, and some do
not check indices and sizes. `schema.wrong` checks the arguments of each operator against its schema, then against its
row in `table.CHECKS`, which has the operators whose kernels trust their arguments. The other files have those checks by
families of operators. Calls that no check makes safe are `isolated` in `graph/operators.txt`.
"""
