"""What may stand in a call of a tensor operator: what fits the types of its schema, and what its kernel may be given.

A graph of a stranger needs no code to write where it likes: kernels take an int for a dtype, and some take indices and
sizes as they are given. `schema.wrong` holds the arguments of each operator against its schema, then against its row in
`table.CHECKS`, which has the operators whose kernels trust what they get. The other files hold those checks by families
of operators. What no check makes safe is `isolated` in `graph/operators.txt`.
"""
