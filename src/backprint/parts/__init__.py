"""A Capture cut into parts, each a Capture of its own that is proven, and the parts linked again.

`pieces` says where a forward is cut (`sequences` finds operators that follow each other), `forwards` cuts it there, and
`borders` names what crosses. `flow` runs the whole and finds which values of its backward are the gradients at each
border; `backwards` takes the steps between those. `pairs` makes a Pair of a part, `derived` captures a part again whose
backward does not separate, `captures` makes a Capture of the Pair, `origin` is its program and `proof` its verdict.
`split` joins all of it, and `linked` joins the parts. `pieces`, `forwards` and all that only cut graphs need no torch.
"""
