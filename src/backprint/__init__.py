"""Backprint captures the forward and backward graphs that PyTorch really runs, keeps, replays and proves them."""

from typing import TYPE_CHECKING, Any

from backprint.api import (
    capture,
    export,
    fake,
    forward_backward_graphs,
    inference_graph,
    load,
    power,
    record,
    replay,
    run,
    save,
    split,
    verify,
)
from backprint.benches import bench, minify
from backprint.benching.cells import BenchCell, BenchOutput, BenchTiming
from backprint.corpora import dedup
from backprint.corpus.face import CorpusRun, run_corpus
from backprint.differences import diff
from backprint.drawings import draw, view
from backprint.errors import (
    BackprintError,
    CaptureError,
    DataDependentError,
    GraphError,
    GuardError,
    PlaceError,
    RefusedError,
    RegionError,
    ReplayError,
    SampleError,
    UsageError,
)
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Capture, Graph, Guard, Link, Pair, Port, Signature, Step, TensorSpec
from backprint.graph.power import Power, Trial
from backprint.graph.verdicts import PortVerdict, Verdict
from backprint.kernel_sets import kernels
from backprint.region_face import compare_regions, region
from backprint.version import __version__
from backprint.web_page import WebPage

if TYPE_CHECKING:
    from backprint.benching.minify_sample import MinifiedSample
    from backprint.benching.runs import BenchRun
    from backprint.differing.nouns import Diff
    from backprint.extracting.nouns import CaptureKernels, Kernel
    from backprint.graph.folding.nouns import FoldedGraph
    from backprint.regions.region import Region
    from backprint.replaying.whole import Replayed
    from backprint.tracing.kernel_values import KernelGraph, KernelPair, KernelRun

_LATER = {
    "BenchRun": "backprint.benching.runs",
    "CaptureKernels": "backprint.extracting.nouns",
    "Diff": "backprint.differing.nouns",
    "FoldedGraph": "backprint.graph.folding.nouns",
    "Kernel": "backprint.extracting.nouns",
    "KernelGraph": "backprint.tracing.kernel_values",
    "KernelPair": "backprint.tracing.kernel_values",
    "KernelRun": "backprint.tracing.kernel_values",
    "MinifiedSample": "backprint.benching.minify_sample",
    "Region": "backprint.regions.region",
    "Replayed": "backprint.replaying.whole",
}
"""Types of the face whose modules load torch or much else, and are imported when first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'backprint' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)


__all__ = [
    "BackprintError",
    "BenchCell",
    "BenchOutput",
    "BenchRun",
    "BenchTiming",
    "Capture",
    "CaptureError",
    "CaptureKernels",
    "CorpusRun",
    "DataDependentError",
    "Diff",
    "FoldedGraph",
    "Graph",
    "GraphError",
    "Guard",
    "GuardError",
    "Kernel",
    "KernelGraph",
    "KernelPair",
    "KernelRun",
    "Link",
    "MinifiedSample",
    "Pair",
    "Port",
    "PortKey",
    "PortVerdict",
    "Power",
    "RefusedError",
    "Region",
    "PlaceError",
    "RegionError",
    "ReplayError",
    "Replayed",
    "SampleError",
    "Signature",
    "Step",
    "TensorSpec",
    "Trial",
    "UsageError",
    "Verdict",
    "WebPage",
    "__version__",
    "bench",
    "capture",
    "compare_regions",
    "dedup",
    "diff",
    "draw",
    "export",
    "fake",
    "forward_backward_graphs",
    "inference_graph",
    "kernels",
    "load",
    "minify",
    "power",
    "record",
    "region",
    "replay",
    "run",
    "run_corpus",
    "save",
    "split",
    "verify",
    "view",
]
