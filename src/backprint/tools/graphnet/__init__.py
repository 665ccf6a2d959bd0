"""GraphNet samples, in and out.

- `code`: `model.py` read with `ast` alone. `metas`: the files beside it. `growth`: lines that could exhaust memory.
- `read`: the whole sample: names, roles, which inputs require grad; nothing of it is executed.
- `build`: a module that can be captured, with inputs. `emit`: its code, in training or eval mode.
- `write`: GraphNet's files and trees, from a Capture.
- `scores`: its scores of compilers, and its levels of tolerance. `tolerances`: which an output is within. `log`: the
  log of its benchmark, and its scores as tables.
"""

from backprint.tools.graphnet.read import GraphNetSample, read_graphnet

__all__ = ["GraphNetSample", "read_graphnet"]
