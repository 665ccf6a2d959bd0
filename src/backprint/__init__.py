"""Backprint: the forward and backward graphs that PyTorch really runs, captured, kept, replayed and proved."""

# The rooms first, so that the verbs of the same names below stay what `bp.capture` and `bp.replay` mean.
import backprint.capture
import backprint.replay  # noqa: F401  # imported for its place in this order
from backprint.api import (
    capture,
    compare_regions,
    fake,
    forward_backward_graphs,
    inference_graph,
    load,
    power,
    record,
    region,
    replay,
    run,
    save,
    split,
    verify,
)
from backprint.corpora import CorpusRun, dedup, run_corpus
from backprint.errors import (
    BackprintError,
    CaptureError,
    DataDependentError,
    GraphError,
    GuardError,
    RefusedError,
    RegionError,
    ReplayError,
    SampleError,
    UsageError,
)
from backprint.graph.nouns import Capture, Graph, Guard, Pair, Port, Step
from backprint.version import __version__

__all__ = [
    "BackprintError",
    "Capture",
    "CaptureError",
    "CorpusRun",
    "DataDependentError",
    "Graph",
    "GraphError",
    "Guard",
    "GuardError",
    "Pair",
    "Port",
    "RefusedError",
    "RegionError",
    "ReplayError",
    "SampleError",
    "Step",
    "UsageError",
    "__version__",
    "capture",
    "compare_regions",
    "dedup",
    "fake",
    "forward_backward_graphs",
    "inference_graph",
    "load",
    "power",
    "record",
    "region",
    "replay",
    "run",
    "run_corpus",
    "save",
    "split",
    "verify",
]
