"""Cut a Capture into parts, each a Capture of its own that is proven, and link the parts again.

`pieces` says where a forward is cut (`sequences` finds operators that follow each other), `forwards` cuts it there, and
`borders` names the values that cross. `flow` runs the whole and finds which values of its backward are the gradients at
each border; `backwards` takes the steps between those. `pairs` makes a Pair of a part, `derived` captures a part again
whose backward does not separate, `captures` makes a Capture of the Pair, `origin` is its program and `proof` its
verdict. `split` does all of it, and `linked` joins the parts. `pieces`, `forwards` and everything that only cuts graphs
need no torch.
"""
