"""The seam to PyTorch: each private API that Backprint uses, under a public name, with a probe that says if it holds.

A module for each domain: `modes`, `autograd`, `tensors`, `operators`, `functorch`, `pytree`, `modules`, `fake`,
`shapes`, `graphs`, `aot`, `dynamo`, `inductor`, `pointwise`,
`process_state`, `script`, `distributed`. `private` says how their tables work, and `probes` collects their probes. No
other room says `torch._…`.
"""
