"""What graphs cost, counted from their steps: nothing here runs, and nothing needs torch.

- `costs`: floating-point operations, bytes and live memory of steps and graphs. `fits`: the peak of a step.
- `traffic`: what ranks send each other, and a model of when. `work`: the least operations and bytes of a graph.
- `stretches`: the iterations of a folded graph and what stands between them, each a graph, and what they cost.
"""
