"""The classes of everything that Backprint's functions return, for annotations and `isinstance`.

Importing this module loads torch.
"""

from backprint.bench.cells import BenchCell, BenchOutput, BenchTiming
from backprint.bench.minify_sample import MinifiedSample
from backprint.bench.runs import BenchRun
from backprint.common.web_page import WebPage
from backprint.corpus.graphs_file import Exported
from backprint.derivatives.checked import CheckReport, CheckRow
from backprint.diff.nouns import Diff
from backprint.graph.folding.nouns import FoldedGraph
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Capture, Graph, Guard, Link, Pair, Port, Rank, Signature, Step, TensorSpec
from backprint.graph.verdicts import Derivative, PortVerdict, Power, Trial, Verdict, WrongGradient
from backprint.jobs import CorpusRun
from backprint.kernels.fused.lowered import LoweredGraph
from backprint.kernels.loops.lowered import LoweredLoop
from backprint.kernels.loops.traffic import Traffic
from backprint.kernels.lowered import Lowered
from backprint.kernels.lowered_build import BuiltFunction
from backprint.kernels.lowered_check import LoweredCheck, LoweredRow
from backprint.kernels.nouns import CaptureKernels, Kernel
from backprint.ranks.whole import AgainstWhole
from backprint.ranks.world import World
from backprint.regions.context import Region
from backprint.replaying.whole import Replayed
from backprint.swapping.gain import SwapGain
from backprint.swapping.places import SwappedPlace
from backprint.swapping.proved import SwapProof
from backprint.swapping.swapped import Swapped
from backprint.tasks.nouns import Task, TaskReport, TaskSet

__all__ = [
    "AgainstWhole",
    "BenchCell",
    "BenchOutput",
    "BenchRun",
    "BenchTiming",
    "BuiltFunction",
    "Capture",
    "CaptureKernels",
    "CheckReport",
    "CheckRow",
    "CorpusRun",
    "Derivative",
    "Diff",
    "Exported",
    "FoldedGraph",
    "Graph",
    "Guard",
    "Kernel",
    "Link",
    "Lowered",
    "LoweredCheck",
    "LoweredGraph",
    "LoweredLoop",
    "LoweredRow",
    "MinifiedSample",
    "Pair",
    "Port",
    "PortKey",
    "PortVerdict",
    "Power",
    "Rank",
    "Region",
    "Replayed",
    "Signature",
    "Step",
    "SwapGain",
    "SwapProof",
    "Swapped",
    "SwappedPlace",
    "Task",
    "TaskReport",
    "TaskSet",
    "TensorSpec",
    "Traffic",
    "Trial",
    "Verdict",
    "WebPage",
    "World",
    "WrongGradient",
]
