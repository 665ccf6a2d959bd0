"""Backprint captures the forward and backward graphs that PyTorch really runs, keeps, replays and proves them."""

from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from backprint import bench, corpus, diff, draw, errors, kernels, regions, tasks
from backprint.api import (
    capture,
    check,
    derivative,
    export,
    fake,
    forward_backward_graphs,
    inference_graph,
    load,
    load_world,
    parse,
    power,
    record,
    replay,
    run,
    save,
    split,
    verify,
)
from backprint.graph.nouns import Capture
from backprint.kernels import lower
from backprint.regions import region
from backprint.swapping import swap
from backprint.version import __version__

if TYPE_CHECKING:
    from backprint import types as types

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

MOVED = {
    "minify": "bench.minify",
    "run_corpus": "corpus.run",
    "dedup": "corpus.dedup",
    "view": "draw.view",
    "compare_regions": "regions.compare",
}
"""Functions that stood here in earlier versions."""


class Tool(ModuleType):
    """A module that was a function in earlier versions: calling it says what to call instead."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = self.__name__.rpartition(".")[2]
        raise TypeError(f"bp.{name} is a module now: call bp.{name}.{CALLED[name]}")


CALLED = {"bench": "run", "kernels": "extract", "draw": "draw", "diff": "compare"}
"""Modules that were functions in earlier versions, and the function that does the same."""

for tool in (bench, kernels, draw, diff):
    tool.__class__ = Tool  # which Python's data model allows for modules


def __getattr__(name: str) -> Any:
    """Return `types`, which loads torch, when it is first asked for; say where a name of earlier versions is now."""
    if name == "types":
        import backprint.types as types

        return types
    if name in MOVED:
        raise AttributeError(f"bp.{name} is bp.{MOVED[name]} now")
    if name.endswith("Error"):
        raise AttributeError(f"module 'backprint' has no attribute {name!r}; errors are in bp.errors")
    place = "; classes are in bp.types" if name[:1].isupper() else ""
    raise AttributeError(f"module 'backprint' has no attribute {name!r}{place}")
