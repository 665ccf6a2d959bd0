"""Backprint captures the forward and backward graphs that PyTorch really runs, keeps, replays and proves them.

    import backprint as bp

    capture = bp.capture(model, x)             # runs the model's step, and records its two graphs
    print(capture.pairs[0].backward)           # the backward as readable code
    print(capture.verify())                    # compared with the model itself, bit for bit

Importing this package loads nothing but its list of names: `bp.bench`, say, and torch itself, are loaded when they are
first asked for, so that the command line answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backprint import errors, types
    from backprint.api import (
        capture,
        check,
        export,
        fake,
        load,
        parse,
        replay,
        run,
        save,
    )
    from backprint.graph.nouns import Capture
    from backprint.tools import bench, corpus, diff, draw, kernels, regions, tasks
    from backprint.tools.jobs.by_path import derivative, power, verify
    from backprint.tools.kernel_graphs import forward_backward_graphs, inference_graph
    from backprint.tools.kernels import lower
    from backprint.tools.parts.split import split
    from backprint.tools.ranks.world import load_world
    from backprint.tools.record import record
    from backprint.tools.regions import region
    from backprint.tools.swap import swap
    from backprint.tools.watch import watch
    from backprint.version import __version__

__all__ = [
    "Capture",
    "__version__",
    "bench",
    "capture",
    "check",
    "corpus",
    "derivative",
    "diff",
    "draw",
    "errors",
    "export",
    "fake",
    "forward_backward_graphs",
    "inference_graph",
    "kernels",
    "load",
    "load_world",
    "lower",
    "parse",
    "power",
    "record",
    "region",
    "regions",
    "replay",
    "run",
    "save",
    "split",
    "swap",
    "tasks",
    "types",
    "verify",
    "watch",
]

_MODULES = ("errors", "types")

_TOOLS = ("bench", "corpus", "diff", "draw", "kernels", "regions", "tasks")

_MODULE_OF = {
    "Capture": "graph.nouns",
    "__version__": "version",
    "derivative": "tools.jobs.by_path",
    "forward_backward_graphs": "tools.kernel_graphs",
    "inference_graph": "tools.kernel_graphs",
    "load_world": "tools.ranks.world",
    "lower": "tools.kernels",
    "power": "tools.jobs.by_path",
    "record": "tools.record",
    "region": "tools.regions",
    "split": "tools.parts.split",
    "swap": "tools.swap",
    "verify": "tools.jobs.by_path",
    "watch": "tools.watch",
}
"""The modules of the names that are neither modules themselves nor functions of `backprint.api`."""


def __getattr__(name: str) -> Any:
    """Import what has this name when it is first asked for."""
    if name in _MODULES:
        return importlib.import_module(f"backprint.{name}")
    if name in _TOOLS:
        return importlib.import_module(f"backprint.tools.{name}")
    if name in __all__:
        value = getattr(importlib.import_module(f"backprint.{_MODULE_OF.get(name, 'api')}"), name)
        globals()[name] = value
        return value
    if name.endswith("Error"):
        raise AttributeError(f"module 'backprint' has no attribute {name!r}; errors are in bp.errors")
    place = "; classes are in bp.types" if name[:1].isupper() else ""
    raise AttributeError(f"module 'backprint' has no attribute {name!r}{place}")


def __dir__() -> list[str]:
    return __all__
