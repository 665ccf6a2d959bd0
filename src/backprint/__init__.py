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
    from backprint import bench, corpus, diff, draw, errors, kernels, regions, tasks, types
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
    from backprint.jobs.by_path import derivative, power, verify
    from backprint.kernel_graphs import forward_backward_graphs, inference_graph
    from backprint.kernels import lower
    from backprint.parts.split import split
    from backprint.ranks.world import load_world
    from backprint.recorded import record
    from backprint.regions import region
    from backprint.swapping import swap
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
]

_MODULES = ("bench", "corpus", "diff", "draw", "errors", "kernels", "regions", "tasks", "types")

_MODULE_OF = {
    "Capture": "graph.nouns",
    "__version__": "version",
    "derivative": "jobs.by_path",
    "forward_backward_graphs": "kernel_graphs",
    "inference_graph": "kernel_graphs",
    "load_world": "ranks.world",
    "lower": "kernels",
    "power": "jobs.by_path",
    "record": "recorded",
    "region": "regions",
    "split": "parts.split",
    "swap": "swapping",
    "verify": "jobs.by_path",
}
"""The modules of the names that are neither modules themselves nor functions of `backprint.api`."""


def __getattr__(name: str) -> Any:
    """Import what has this name when it is first asked for."""
    if name in _MODULES:
        return importlib.import_module(f"backprint.{name}")
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
