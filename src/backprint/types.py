"""The classes of everything that Backprint's functions return, for annotations and `isinstance`.

Importing this module loads torch.
"""

from backprint.common.web_page import WebPage
from backprint.derive.checked import CheckReport, CheckRow
from backprint.graph.folding.nouns import FoldedGraph
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Capture, Graph, Guard, Link, Pair, Port, Rank, Signature, Step, TensorSpec
from backprint.graph.verdicts import Derivative, PortVerdict, Power, Trial, Verdict, WrongGradient
from backprint.prove.whole import Replayed
from backprint.tools.bench.cells import BenchCell, BenchOutput, BenchTiming
from backprint.tools.bench.minify_sample import MinifiedSample
from backprint.tools.bench.runs import BenchRun
from backprint.tools.corpus.graphs_file import Exported
from backprint.tools.diff.nouns import Diff
from backprint.tools.jobs import CorpusRun
from backprint.tools.kernels.fused.lowered import LoweredGraph
from backprint.tools.kernels.loops.lowered import LoweredLoop
from backprint.tools.kernels.loops.traffic import Traffic
from backprint.tools.kernels.lowered import Lowered
from backprint.tools.kernels.lowered_build import BuiltFunction
from backprint.tools.kernels.lowered_check import LoweredCheck, LoweredRow
from backprint.tools.kernels.nouns import CaptureKernels, Kernel
from backprint.tools.ranks.whole import AgainstWhole
from backprint.tools.ranks.world import World
from backprint.tools.regions.context import Region
from backprint.tools.swap.gain import SwapGain
from backprint.tools.swap.places import SwappedPlace
from backprint.tools.swap.proved import SwapProof
from backprint.tools.swap.swapped import Swapped
from backprint.tools.tasks.nouns import Task, TaskReport, TaskSet

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
