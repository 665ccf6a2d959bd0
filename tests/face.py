"""Names that tests use of the inside of Backprint, in one place.

What users rely on is `import backprint as bp`, and most tests need nothing more. A test of a part alone takes it from
here, so that a part that moves or is renamed changes one line of this file, and this list says what has a test of its
own. Programs in `subjects/`, which run as scripts, name what they need themselves.

Each name is loaded when a test first asks for it: all of them together load every room, which takes two seconds.
"""

# ruff: noqa: F401
from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backprint import run_sample
    from backprint._torch import (
        aot,
        autograd,
        dynamo,
        fake,
        functorch,
        graphs,
        inductor,
        modes,
        modules,
        private,
        pytree,
        shapes,
        tensors,
    )
    from backprint._torch import operators as torch_operators
    from backprint._torch.fake import FakeTensorMode
    from backprint._torch.private import FEATURES, Private, look_up, stopped_by
    from backprint._torch.probes import PROBES, broken_probes, stopped_features
    from backprint.child import processes
    from backprint.child import tensors as child_tensors
    from backprint.child.answering import Answering, serve
    from backprint.child.child import KEPT, MESSAGE, Child, Line, in_child, run_command, start_by_fork
    from backprint.child.ends import ChildDied, ChildEnd
    from backprint.child.limits import Limits, limited
    from backprint.child.tensors import SharedMemory, TensorChild, put_results, read_inputs
    from backprint.cli import COMMANDS, QUESTIONS, main, options, say, show
    from backprint.cli.bench import write_page
    from backprint.cli.doctor import CHECKS
    from backprint.cli.verify import rows_of_sample
    from backprint.common import at_work, memory, words
    from backprint.common import tried as common_tried
    from backprint.common.collector import collector_paused
    from backprint.common.files import from_plain, read_bytes
    from backprint.common.folders import SUFFIX, unfinished_folder
    from backprint.common.formats import has_graphnet
    from backprint.common.memory import GIB
    from backprint.common.names import free_name
    from backprint.common.text import amount, parse_json, printable
    from backprint.common.words import CHOICES
    from backprint.derive import beside, duals
    from backprint.derive.check import LIMIT, check_pair
    from backprint.derive.forms import OWN, lstm_layer, lstm_layer_backward
    from backprint.derive.setting import make_setting
    from backprint.errors import (
        OURS,
        BackprintError,
        CaptureError,
        CheckError,
        DataDependentError,
        GraphError,
        PlaceError,
        PrivateApiError,
        RanksError,
        RefusedError,
        ReplayError,
        SampleError,
        SeveralError,
        UsageError,
        is_defect,
    )
    from backprint.graph import text
    from backprint.graph.capture_options import DEFAULTS, GRAD_ROLES, OF_SOME_ENGINES, CaptureOptions
    from backprint.graph.depends import dependence
    from backprint.graph.folding.find import DEEPEST
    from backprint.graph.folding.listing import MOST, in_braces
    from backprint.graph.folding.nouns import (
        FoldedGraph,
        FoldedStep,
        Item,
        Loop,
        Only,
        series_of,
        unfolded_once,
    )
    from backprint.graph.fx.asserting import check_on_gpu, gpu_assert_complaint
    from backprint.graph.fx.schema import bound_by_schema
    from backprint.graph.fx.to_fx import to_fx
    from backprint.graph.fx.values import check_call, checked_function, resolve
    from backprint.graph.keys import PortKey, tangent_name, with_tangents, without_tangents
    from backprint.graph.links import claims_of, contradictions
    from backprint.graph.nouns import (
        COLLECTIVES,
        DTYPES,
        GONE,
        IN_FULL,
        PLAIN_TARGETS,
        ROLES,
        STAMPED,
        UNFITTED,
        WAIT,
        WITHOUT_CHECKPOINTS,
        Atom,
        Capture,
        Device,
        Dict,
        Echo,
        Graph,
        Guard,
        Link,
        List,
        Op,
        Origin,
        Pair,
        Port,
        Ref,
        ScalarSpec,
        Slice,
        Source,
        Step,
        Sub,
        Symbol,
        TensorSpec,
        Value,
        refs,
    )
    from backprint.graph.operators import operators as graph_operators
    from backprint.graph.sizes import (
        at_example_sizes,
        evaluate,
        implied_sizes,
        in_general_form,
        new_devices,
        on_device,
        spec_at,
        symbol_out_of_range,
        unguarded_graph,
        with_constant_sizes,
        with_symbols,
        with_tensor_results_only,
        without_saved,
    )
    from backprint.graph.steps import mapped, names_behind, operator_name, specs_of, used
    from backprint.graph.text import (
        HEADER,
        MAX_CHARACTERS,
        MAX_TOKENS,
        count_tokens,
        emit,
        parse,
        read_spec,
        scan,
        show_spec,
    )
    from backprint.graph.together import guard_texts, names_together
    from backprint.graph.verdicts import (
        CANNOT_TELL,
        DERIVATIVE,
        GOOD,
        KERNELS_EAGER,
        NOT_THE_DERIVATIVE,
        VERDICTS,
        Derivative,
        PortVerdict,
        Power,
        Verdict,
        WrongGradient,
        derivative_json,
        has_proof,
        proofs,
        reasons_of_derivative,
        verdict_text,
        why_no_proof,
        worst,
        worst_derivative,
    )
    from backprint.judge import VERSION as JUDGE_VERSION
    from backprint.judge import timing as clocks
    from backprint.judge.closeness import TOLERANCE
    from backprint.judge.closeness import compare as closeness_of
    from backprint.judge.closeness import same_bits as closeness_same_bits
    from backprint.judge.timing import STAGES, TimingChange, compare_in_stages, compare_timings
    from backprint.prove.capturing import OTHER_ENGINE, Candidate, choose, other_engine
    from backprint.prove.draws import DRAWS as DRAWS_OF_PROOFS
    from backprint.prove.draws import Draw, draw_from_recipes
    from backprint.prove.observed import observed_values
    from backprint.prove.power import power_of
    from backprint.prove.references import forgive_rounding, gradients_by_autograd, largest_values
    from backprint.prove.results import Results, compare
    from backprint.prove.results import compare_results as results_against
    from backprint.prove.run import feed, perform_steps, run_graph, subgraphs
    from backprint.prove.verify import checked_run
    from backprint.prove.whole import replay_values
    from backprint.run_sample import Recipe, printed_line, received_by
    from backprint.run_sample import digest as generator_digest
    from backprint.sample import metadata
    from backprint.sample import save as sample_save
    from backprint.sample.ending import MARKER, ending
    from backprint.sample.inputs import Inputs, exact_data, fit, fit_all, recipe_at
    from backprint.sample.metadata import read_json
    from backprint.sample.recipes import KINDS, PARTS_OF, from_json, make, make_all, redraw, to_json
    from backprint.sample.redraws import disturb, nudge_floats, other_values_of_unit, units
    from backprint.table import pictures
    from backprint.table.files import BATCH, GROUP, batches, csv_lines, format_of, json_lines, write_report
    from backprint.table.notebook import html_of
    from backprint.table.nouns import KINDS as KINDS_OF_CELLS
    from backprint.table.nouns import Picture, Report, Table, cell_text
    from backprint.table.page import page_of
    from backprint.table.shared import shared, without_paths
    from backprint.table.terminal import print_report, print_table
    from backprint.tools import target, torch_backend
    from backprint.tools.bench.calls import CompiledCalls, changed_places, contents_that_fit
    from backprint.tools.bench.cells import (
        ANSWERS,
        OUTCOMES,
        RIGHT,
        UNTIMED,
        BenchCell,
        BenchDerivative,
        BenchOutput,
        cell_from_json,
    )
    from backprint.tools.bench.compare import KINDS as CHANGES
    from backprint.tools.bench.compare import BenchComparison, BenchHistory, compare_runs, history_of, history_report
    from backprint.tools.bench.compilers import xla
    from backprint.tools.bench.compilers.exchange import compile_core, core_of, exchanged
    from backprint.tools.bench.compilers.table import (
        COMPILERS,
        GRAPH,
        PAIR,
        SOLUTION,
        Compiler,
        check_installed,
        compiled_by,
        compiler_named,
        has_module,
        loaded_build,
        versions_of,
    )
    from backprint.tools.bench.compilers.timed import CACHE, compile_timed, remarks_on
    from backprint.tools.bench.cuts import ITEM, FaultTrial, RecordedGraph, UnitSearch, eager_run, record_values
    from backprint.tools.bench.judge import moving_outputs, notes_of_outputs, outcome_of_outputs, redrawn_graphs
    from backprint.tools.bench.reports import bench_report
    from backprint.tools.bench.runs import read_lines, read_meta, read_run
    from backprint.tools.bench.scored import scored_cell, scored_samples, size_class, write_run_log
    from backprint.tools.bench.shrinking import MinifiedGraph, UnminifiedGraph, minify_graph, shows_fault
    from backprint.tools.bench.timing import TimingWithheld, stages_within
    from backprint.tools.bench.trial import TrialPlan, append, read_cells, write_end_of_process
    from backprint.tools.bench.trial import row_of as trial_row_of
    from backprint.tools.bench.trial import try_compiler as trial_tried
    from backprint.tools.bench.widened import derivative_of
    from backprint.tools.bench.wrong_backward import SmallestPart, has_fault, smallest_part, write_part
    from backprint.tools.corpus import duplicates
    from backprint.tools.corpus.duplicates import Dedup, dedup, load_to_compare
    from backprint.tools.corpus.graphs_file import FIELDS as GRAPHS_FILE_FIELDS
    from backprint.tools.corpus.report import report
    from backprint.tools.cost import costs as cost
    from backprint.tools.cost.costs import (
        FLOPS,
        FREE,
        PICKED,
        UNREAD,
        LiveSpan,
        MemoryLine,
        StepCost,
        flops_of,
        is_view,
        memory_line,
        memory_line_of_step,
        operator_calls,
        step_costs,
        storage_bytes,
        storages_of,
        summarize,
        total_cost,
        uses_first,
    )
    from backprint.tools.cost.fits import needs_of
    from backprint.tools.cost.stretches import StretchGraphs, part_costs, stretches_of
    from backprint.tools.cost.traffic import Rates, bytes_by_group, sizes_of_groups, timeline, traffic_of, traffic_texts
    from backprint.tools.cost.work import CAUSAL, Work, graph_flops, least_flops, least_step_work, least_work
    from backprint.tools.diff.differences import compare_captures
    from backprint.tools.diff.nouns import Diff, GraphDiff
    from backprint.tools.diff.page import diff_data, page_of_diff
    from backprint.tools.diff.words import answer_line, diff_json
    from backprint.tools.draw.layout import WIDE, drawn_pair
    from backprint.tools.draw.page import page_data, page_facts, page_html
    from backprint.tools.draw.picture import (
        WIDEST,
        Area,
        DrawnBox,
        PairPicture,
        area_of,
        boxes_and_titles,
        curves_of,
        frames_to_open,
        labels_of,
        picture_of,
        point_on,
    )
    from backprint.tools.draw.scene import Frame, Scene, frame_unit, frames_of, scene_of
    from backprint.tools.draw.svg import svg_of
    from backprint.tools.draw.write import FORMATS
    from backprint.tools.export.judged import Eager, apart, judged
    from backprint.tools.export.rerun import EagerRun, copies, rebuilt, unguarded
    from backprint.tools.export.saving import write_layout as saving_write_layout
    from backprint.tools.graphnet import read, read_graphnet, write
    from backprint.tools.graphnet.build import build_sample, recipe_notes, recipes_from_metas
    from backprint.tools.graphnet.code import ModelProgram, callables, read_code
    from backprint.tools.graphnet.emit import compile_program, torch_callable
    from backprint.tools.graphnet.log import log_text, parse_log, read_log, report_of_logs, write_log
    from backprint.tools.graphnet.metas import USES, KnownInput, Meta, Use
    from backprint.tools.graphnet.read import (
        MEMBERS,
        name_inputs,
        plan_of,
        sample_identity,
        uses_of,
    )
    from backprint.tools.graphnet.scores import (
        EXPONENTS,
        LEVELS,
        TOLERANCES,
        OutputForm,
        ScoredOutput,
        ScoredSample,
        ScoreTerms,
        Tolerance,
        compared_outcome,
        geometric_mean,
        mean_speedup,
        score_curve,
        tolerance_at,
        tolerance_named,
    )
    from backprint.tools.graphnet.tolerances import within as within_tolerances
    from backprint.tools.graphnet.write import TREES as WRITE_TREES
    from backprint.tools.graphnet.write import copy_sample, draw_like_graphnet
    from backprint.tools.jobs import merge as merge_module
    from backprint.tools.jobs import progress, ray
    from backprint.tools.jobs.apart import result_of, run_apart
    from backprint.tools.jobs.find import MOST_BYTES, Job, Shard, families, find, source_hash
    from backprint.tools.jobs.ledger import (
        COLUMNS,
        LONGEST,
        NAME,
        Ledger,
        check_row,
        open_run,
        place_of,
        row_or_failure,
        source_of,
    )
    from backprint.tools.jobs.ledger import LARGEST as LEDGER_LARGEST
    from backprint.tools.jobs.merge import merge_runs
    from backprint.tools.jobs.parts import PARTS, PartRow, all_parts, parts_of
    from backprint.tools.jobs.places import RESULT, WORK, log_of
    from backprint.tools.jobs.pool import Event, Pool, Stage
    from backprint.tools.jobs.progress import Bars, ProgressLines
    from backprint.tools.jobs.ray import Cluster, connect, limits_on
    from backprint.tools.jobs.run import Begun, RunPlan, Stopped, Written, run_plan
    from backprint.tools.jobs.split import split_sample
    from backprint.tools.jobs.task import TREE_FILES, TREE_NAMES, Task, on_cpu
    from backprint.tools.jobs.turns import GraphClock, Turns, turns_folder
    from backprint.tools.jobs.verbs import capture_and_prove, resolve_verb, sample_row
    from backprint.tools.kernels import build_triton, winners
    from backprint.tools.kernels import save as kernels_save
    from backprint.tools.kernels.alone import helper_definitions, standalone_text
    from backprint.tools.kernels.alone_file import argument_bytes, minimum_bytes, template
    from backprint.tools.kernels.checking.check import derivatives_of_pairs, with_derivatives
    from backprint.tools.kernels.checking.memory import BandedMemory, OutsideMemoryError
    from backprint.tools.kernels.extraction import RefusedGraph, extract_graphs, extract_kernels
    from backprint.tools.kernels.inductor import lower_with_inductor, lowering_for
    from backprint.tools.kernels.loops import limits
    from backprint.tools.kernels.loops import lower as loops_lower
    from backprint.tools.kernels.loops.lower import SUMS, lower_loop
    from backprint.tools.kernels.loops.words import CALLS, FORMULAS, NEEDS
    from backprint.tools.kernels.lowered_check import Case, case_of_function, compare_port
    from backprint.tools.kernels.nouns import (
        CaptureKernels,
        ExtractedGraph,
        FusedOperator,
        Kernel,
        KernelArgument,
        KernelCall,
        KernelConfiguration,
        known_targets,
        target_named,
    )
    from backprint.tools.kernels.prepare import PortLayout, in_canonical_order, prepare_graph, use_captured_sizes
    from backprint.tools.kernels.rows import KernelRow, read_rows
    from backprint.tools.kernels.work import column_of_derivatives
    from backprint.tools.lowering import operators as lowering_operators
    from backprint.tools.lowering.operators import decompositions_of, replace_views
    from backprint.tools.lowering.operators import lower as operators_lower
    from backprint.tools.lowering.subjects import (
        BenchGraph,
        bench_graphs,
        draws,
        seed_generators,
        state_of,
        take_out_draws,
    )
    from backprint.tools.named.families import architecture_of
    from backprint.tools.named.make import make_named
    from backprint.tools.named.names import is_named, parse_name
    from backprint.tools.parts import split
    from backprint.tools.parts.cuts import Split, cut_forward, operator, part_of_each_value, plan, weighty
    from backprint.tools.parts.flow import names_at_borders
    from backprint.tools.parts.split import DERIVED, SLICED, split_capture
    from backprint.tools.ranks.causes import families_of
    from backprint.tools.ranks.kept import Kept, put_back, with_values
    from backprint.tools.ranks.reached import assigned_in
    from backprint.tools.ranks.whole import OutputNumber
    from backprint.tools.ranks.world import replay_together, results_of
    from backprint.tools.record import recording, steps
    from backprint.tools.record.script import traceback_of_script
    from backprint.tools.record.steps import LiveRecorder
    from backprint.tools.regions import watch
    from backprint.tools.regions.comparing import compare_passes
    from backprint.tools.regions.context import PassBounds, PassCount, Region
    from backprint.tools.regions.dumps import (
        begin_of_pass,
        pass_as_json,
        read_gradients,
        read_graph_json,
        read_pass,
        read_passes,
        runs_of,
    )
    from backprint.tools.regions.nouns import LEVELS as LEVELS_OF_GRADIENTS
    from backprint.tools.regions.nouns import Edge, Node, NonfiniteOrigin, Pass
    from backprint.tools.regions.pictures import drawn_pass
    from backprint.tools.target import capture_target, read_target
    from backprint.tools.tasks.folder import read_facts, read_task
    from backprint.tools.tasks.judge import judge_together
    from backprint.tools.tasks.nouns import Task as TaskFacts
    from backprint.tools.tasks.nouns import TaskReport
    from backprint.tools.tasks.program import program_of
    from backprint.tools.tasks.solver import solution_of_text
    from backprint.tools.tasks.solving import digest as solving_digest
    from backprint.tools.tasks.solving import same_bits as solving_same_bits
    from backprint.tools.tasks.timing import Beside as TimedBeside
    from backprint.tools.tasks.timing import Rounds
    from backprint.tools.torch_backend import backend as torch_backend_function
    from backprint.trace import custom, non_operator_effects, observe
    from backprint.trace.aot import trace
    from backprint.trace.assembly import Joint, assemble
    from backprint.trace.captured import LiveProgram
    from backprint.trace.dynamo import backend as dynamo_backend
    from backprint.trace.dynamo import frontend
    from backprint.trace.eager import tape
    from backprint.trace.eager.writer import Writer
    from backprint.trace.entry import ENGINES, LOSSES, Engine
    from backprint.trace.partition import PARTITIONS
    from backprint.trace.program import A_TENSOR, CalledProgram
    from backprint.trace.request import Doubt, EngineResult
    from backprint.trace.stamping import stamp
    from backprint.trace.stamping.rows import Row
    from backprint.values import settings
    from backprint.values.bounds import MOST_ITEMS, why_outgrown
    from backprint.values.exchanges import Call, Exchange, Peers, received_without_others
    from backprint.values.fingerprint import DescribeState, describe_value
    from backprint.values.geometry import are_contiguous, contiguous_strides, is_dense, overlaps_itself, span
    from backprint.values.memory import bits_of, memory_spans, overlapping_pairs
    from backprint.values.objects import Globals, Items
    from backprint.values.results import outputs_of
    from backprint.values.settings import changed_state, default_dtype, process_state, read_settings, with_settings
    from backprint.values.statistics import stats_of
    from backprint.values.tensor_files import CODES, write_safetensors
    from backprint.version import __version__


def _places_of(text: str) -> dict[str, tuple[str, str]]:
    """Return for each name that a module's text imports from Backprint the module it is in, and its name there."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module]
    return {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in imports
        if str(node.module).startswith("backprint")
        for alias in node.names
    }


PLACES = _places_of(Path(__file__).read_text(encoding="utf-8"))


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"tests/face.py has no {name}: say there which module it is in")
    module, own = PLACES[name]
    found = importlib.import_module(module)
    return getattr(found, own) if hasattr(found, own) else importlib.import_module(f"{module}.{own}")
