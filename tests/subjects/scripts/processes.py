"""A subprocess, arguments, logging, `__file__`, exit handlers."""

import argparse
import atexit
import logging
import pathlib
import subprocess
import sys

import torch
from shown import show

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("-o", "--output", default="nowhere")
options = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(name)s %(filename)s:%(lineno)d %(message)s", stream=sys.stdout)
log = logging.getLogger(__name__)
atexit.register(lambda: print("the end", sys.argv, sys.modules["__main__"].__dict__ is globals(), flush=True))

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(options.steps):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 3)).square().mean()
    loss.backward()
    optimizer.step()
    log.info("step %d loss %s", step, loss.item())
    code = "import sys; print('torch' in sys.modules, sys.argv)"
    print(subprocess.run([sys.executable, "-c", code, "x"], capture_output=True, text=True).stdout)
print(options, pathlib.Path(__file__).name, sys.argv, sys.orig_argv[1:], parser.prog)
show(model)
