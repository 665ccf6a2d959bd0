import sys

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(5, 3)).square().mean().backward()
    optimizer.step()
show(model)
kind = sys.argv[1]
if kind == "raise":
    try:
        {}["missing"]
    except KeyError as error:
        raise RuntimeError("no more") from error
elif kind == "interrupt":
    raise KeyboardInterrupt
elif kind == "os":
    import os

    os._exit(5)
elif kind == "click":
    import click

    raise click.ClickException("a script may use click too")
elif kind == "ours":
    import backprint

    raise backprint.errors.UsageError("or backprint")
elif kind == "hook":
    sys.excepthook = lambda *found: print("hooked", found[0], found[1], flush=True)
    raise OSError(32, "a broken pipe")
elif kind == "assert":
    assert model.weight.isnan().all(), "it is a number"
else:
    sys.exit(int(kind) if kind.isdigit() else kind)
