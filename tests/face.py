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
    from backprint import run_sample, target, torch_backend
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
    from backprint.bench import launch
    from backprint.bench.asking import CompilerProcess
    from backprint.bench.cells import ANSWERS, RIGHT, UNTIMED, BenchCell, BenchDerivative, BenchOutput, cell_from_json
    from backprint.bench.compare import BenchComparison, compare_runs, comparison_report, history_of, history_report
    from backprint.bench.compilers import xla
    from backprint.bench.compilers.exchange import compile_core, core_of, exchanged
    from backprint.bench.compilers.table import (
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
    from backprint.bench.compilers.timed import CACHE, compile_timed, remarks_on
    from backprint.bench.contents import (
        ALL,
        LARGER,
        NOT_EVERY_EIGHTH,
        NOT_FIRST,
        ONE_INPUT,
        ORDER,
        SMALLER,
        WAYS,
        Piece,
        VariedInputs,
        VariedPart,
        candidates,
        changed_places,
        fits_inputs,
        varied_pieces,
    )
    from backprint.bench.cuts import ITEM, FaultTrial, RecordedGraph, UnitSearch, eager_run, record_values
    from backprint.bench.examine import writes_of_eager
    from backprint.bench.graphnet_log import (
        log_text,
        parse_log,
        read_log,
        scored_cell,
        scored_samples,
        size_class,
        write_log,
        write_run_log,
    )
    from backprint.bench.judge import GraphJudge, movement, notes_of_outputs, outcome_of_outputs, redrawn_graphs
    from backprint.bench.pictures import pictures
    from backprint.bench.reports import FIELDS as REPORTS_FIELDS
    from backprint.bench.reports import bench_report, report_of_logs
    from backprint.bench.runs import peaks_of, read_lines, read_meta, read_run
    from backprint.bench.scores import (
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
        right_speedups,
        score_curve,
        tolerance_at,
        tolerance_named,
    )
    from backprint.bench.shrinking import MinifiedGraph, UnminifiedGraph, minify_graph, shows_fault
    from backprint.bench.timing import stages_within
    from backprint.bench.trial import TrialPlan, append, read_cells, write_ended
    from backprint.bench.trial import row_of as trial_row_of
    from backprint.bench.trial import tried as trial_tried
    from backprint.bench.widened import WideGraphs
    from backprint.bench.wrong_backward import SmallestPart, has_fault, smallest_part, write_part
    from backprint.capturing import OTHER_ENGINE, Candidate, choose, other_engine
    from backprint.cli import VERBS, main, say, show
    from backprint.cli.bench_compare import command as bench_compare_command
    from backprint.cli.bench_report import command as bench_report_command
    from backprint.cli.bench_report import write_page
    from backprint.cli.capture import command as capture_command
    from backprint.cli.corpus import command as corpus_command
    from backprint.cli.corpus_dedup import command as corpus_dedup_command
    from backprint.cli.corpus_report import command as corpus_report_command
    from backprint.cli.doctor import CHECKS
    from backprint.cli.doctor import command as doctor_command
    from backprint.cli.lower import command as lower_command
    from backprint.cli.verify import rows_of_sample
    from backprint.common import memory
    from backprint.common import tried as common_tried
    from backprint.common.collector import collector_paused
    from backprint.common.files import read_bytes
    from backprint.common.folders import SUFFIX, unfinished_folder
    from backprint.common.formats import has_graphnet
    from backprint.common.names import free_name
    from backprint.common.text import CHOICES, amount, parse_json, printable, spreadsheet_cell
    from backprint.corpus import duplicates
    from backprint.corpus.duplicates import NOTES, Dedup, all_shared_parts, dedup, load_to_compare
    from backprint.corpus.graphs_file import FIELDS as GRAPHS_FILE_FIELDS
    from backprint.corpus.report import ReportPlan, RunView, report
    from backprint.corpus.report import against as report_against
    from backprint.derivatives import beside, duals
    from backprint.derivatives.check import LIMIT, check_pair
    from backprint.derivatives.forms import OWN, lstm_layer, lstm_layer_backward
    from backprint.derivatives.setting import make_setting
    from backprint.diff.differences import compare_captures
    from backprint.diff.matching import common_places
    from backprint.diff.nouns import Diff, GraphDiff
    from backprint.diff.page import diff_data, page_of_diff
    from backprint.diff.words import answer_line, diff_json
    from backprint.draw.layout import WIDE, drawn_pair
    from backprint.draw.page import page_data, page_facts, page_html
    from backprint.draw.picture import (
        WIDEST,
        Area,
        DrawnBox,
        PairPicture,
        area_of,
        boxes_and_titles,
        curves_of,
        labels_of,
        opened_frames,
        picture_of,
        point_on,
    )
    from backprint.draw.scene import Frame, Scene, frame_unit, frames_of, scene_of
    from backprint.draw.svg import svg_of
    from backprint.draw.write import FORMATS
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
        UsageError,
        is_defect,
    )
    from backprint.fx.asserting import check_on_gpu, gpu_assert_complaint
    from backprint.fx.schema import bound_by_schema
    from backprint.fx.to_fx import to_fx
    from backprint.fx.uninitialised import uninitialized_values
    from backprint.fx.values import check_call, checked_function, resolve
    from backprint.graph import cost, text
    from backprint.graph.capture_options import DEFAULTS, OF_SOME_ENGINES, CaptureOptions
    from backprint.graph.cost import (
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
    from backprint.graph.depends import dependence
    from backprint.graph.fits import needs_of
    from backprint.graph.folding.find import DEEPEST
    from backprint.graph.folding.listing import MOST, in_braces
    from backprint.graph.folding.nouns import (
        FoldedGraph,
        FoldedStep,
        Item,
        Loop,
        Only,
        places_of,
        series_of,
        unfolded_once,
        with_places,
    )
    from backprint.graph.folding.stretches import StretchGraphs, part_costs, stretches_of
    from backprint.graph.keys import PortKey, tangent_name, with_tangents, without_tangents
    from backprint.graph.links import claims_of, contradictions
    from backprint.graph.nouns import (
        COLLECTIVES,
        DTYPES,
        GONE,
        IN_FULL,
        PLAIN_TARGETS,
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
        at,
        at_capture,
        at_example_sizes,
        evaluate,
        implied,
        in_general_form,
        new_devices,
        on_device,
        outside,
        tensors_alone,
        unguarded_graph,
        with_symbols,
        without_saved,
    )
    from backprint.graph.steps import behind, live, mapped, operator_name, specs_of, used
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
    from backprint.graph.traffic import Rates, bytes_by_group, sizes_of_groups, timeline, traffic_of, traffic_texts
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
    from backprint.graphnet import read, read_graphnet, write
    from backprint.graphnet.build import build_sample, recipe_notes, recipes_from_metas
    from backprint.graphnet.code import ModelProgram, callables, read_code
    from backprint.graphnet.emit import compile_program, torch_callable
    from backprint.graphnet.metas import USES, Known, Meta, Use
    from backprint.graphnet.read import (
        MEMBERS,
        name_inputs,
        plan_of,
        sample_identity,
        uses_of,
        with_movable_devices,
        without_movable_devices,
    )
    from backprint.graphnet.write import TREES as WRITE_TREES
    from backprint.graphnet.write import copy_sample, draw_like_graphnet
    from backprint.jobs import find as find_module
    from backprint.jobs import places, processes, progress, ray, worker
    from backprint.jobs.apart import run_apart
    from backprint.jobs.estimate import Pace, SamplePace, TimeLeft, expected
    from backprint.jobs.find import DEPTH, MOST_BYTES, Job, escape, families, find, source_hash, unescape
    from backprint.jobs.ledger import (
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
    from backprint.jobs.ledger import LARGEST as LEDGER_LARGEST
    from backprint.jobs.parts import PARTS, PartRow, all_parts, unify
    from backprint.jobs.places import RESULT, WORK, log_of, read_files, write_files
    from backprint.jobs.pool import Event, Pool, Stage
    from backprint.jobs.processes import GIB, ChildEnd, Limits
    from backprint.jobs.progress import Bars, ProgressLines, RunTally, left_text, tally_line
    from backprint.jobs.ray import Cluster, connected, ends_at_once, limits_on
    from backprint.jobs.run import Begun, RunPlan, Stopped, Written, run_plan
    from backprint.jobs.split import split_sample
    from backprint.jobs.task import TREE_FILES, TREE_NAMES, Task, on_cpu
    from backprint.jobs.task import TREES as TASK_TREES
    from backprint.jobs.turns import GraphClock, Turns, turns_folder
    from backprint.jobs.verbs import capture_and_prove, resolve_verb, sample_row
    from backprint.jobs.where import NAMES, NUMBERS, TEXTS, conditions
    from backprint.jobs.worker import MESSAGE
    from backprint.kernels import build_triton, winners
    from backprint.kernels import save as kernels_save
    from backprint.kernels.alone import alone_text, helper_definitions
    from backprint.kernels.alone_file import FLAGS, ISA_FLAGS, argument_bytes, least_bytes, template
    from backprint.kernels.checking.check import derivatives_of_pairs, with_derivatives
    from backprint.kernels.extraction import RefusedGraph, capture_kernels, extracted_graphs
    from backprint.kernels.groups import KernelGroups, grouped_kernels, vanishing_groups
    from backprint.kernels.groups import write_layout as groups_write_layout
    from backprint.kernels.index import KernelIndex, find_uses, write_ahead
    from backprint.kernels.inductor import lower_with_inductor, lowering_for
    from backprint.kernels.loops import limits
    from backprint.kernels.loops import lower as loops_lower
    from backprint.kernels.loops.keeping import Network
    from backprint.kernels.loops.lower import lower_loop
    from backprint.kernels.loops.nouns import Elements
    from backprint.kernels.loops.words import CALLS, FORMULAS, NEEDS
    from backprint.kernels.lowered_check import Case, case_of_function
    from backprint.kernels.lowered_check import row_of as lowered_check_row_of
    from backprint.kernels.normal import LARGEST as NORMAL_LARGEST
    from backprint.kernels.normal import kernel_hash, normal_form, structure_hash
    from backprint.kernels.normal_triton import MAX_HOLES, TOKENS, normal_triton
    from backprint.kernels.nouns import (
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
    from backprint.kernels.prepare import PortLayout, in_canonical_order, prepared_graph, use_captured_sizes
    from backprint.kernels.read import WRAPPER_LARGEST, ExternCalls, UnreadKernels, read_kernels
    from backprint.kernels.reports import chosen_ranks, report_of_folders
    from backprint.kernels.work import column_of_derivatives
    from backprint.lowering import operators as lowering_operators
    from backprint.lowering.operators import decompositions_of, replace_views
    from backprint.lowering.operators import lower as operators_lower
    from backprint.lowering.subjects import BenchGraph, bench_graphs, draws, seed_generators, state_of, take_out_draws
    from backprint.measuring import clocks, transfer
    from backprint.measuring.clocks import STAGES, TimingChange, TimingWithheld, compare_in_stages, compare_timings
    from backprint.measuring.peaks import SIZES, measure_peaks
    from backprint.measuring.roofline import (
        CAUSAL,
        Peaks,
        Work,
        graph_flops,
        least_flops,
        least_step_work,
        least_work,
        share_reached,
    )
    from backprint.parts import split
    from backprint.parts.cuts import Split, forwards, homes, operator, plan, typical, weighty
    from backprint.parts.flow import names_at_borders
    from backprint.parts.split import DERIVED, SLICED, split_capture
    from backprint.ranks.causes import families_of
    from backprint.ranks.kept import Kept, put_back, with_values
    from backprint.ranks.reached import assigned_in
    from backprint.ranks.whole import OutputNumber
    from backprint.ranks.world import replayed_together, results_of
    from backprint.regions import dumps, watch
    from backprint.regions.comparing import compare_passes
    from backprint.regions.context import PassBounds, PassCount, Region
    from backprint.regions.dumps import (
        begin_of_pass,
        read_gradients,
        read_graph_json,
        read_passes,
        runs_of,
        stats_from_json,
    )
    from backprint.regions.pictures import drawn_pass
    from backprint.replaying.draws import Draw, draw_from_recipes
    from backprint.replaying.observed import observed_values
    from backprint.replaying.power import power_of
    from backprint.replaying.references import rounding_forgiven, second_opinion, sizes_of
    from backprint.replaying.results import Results, compare
    from backprint.replaying.results import against as results_against
    from backprint.replaying.run import feed, perform_steps, run_graph, subgraphs
    from backprint.replaying.verify import checked_run
    from backprint.replaying.whole import replay_values
    from backprint.report import formats
    from backprint.report.formats import GROUP, SCRIPT, STYLE, batches, policy_digest, render_csv, text_of
    from backprint.report.nouns import Column, Report, cell_text
    from backprint.report.terminal import on_terminal
    from backprint.run_sample import Recipe, printed_line, received_by
    from backprint.run_sample import digest as generator_digest
    from backprint.sample import metadata
    from backprint.sample import save as sample_save
    from backprint.sample.ending import MARKER, ending
    from backprint.sample.inputs import Inputs, exact_data, fit, fit_all, recipe_at
    from backprint.sample.judged import Eager, apart, judged
    from backprint.sample.metadata import read_json
    from backprint.sample.recipes import KINDS, PARTS_OF, from_json, make, make_all, redraw, to_json
    from backprint.sample.redraws import another, disturbed, nudged, units
    from backprint.sample.rerun import EagerRun, copies, laid, rebuilt, unguarded
    from backprint.saving import write_layout as saving_write_layout
    from backprint.target import capture_target, read_target
    from backprint.tasks.edges import EDGES, MOST_INPUTS
    from backprint.tasks.folder import read_task
    from backprint.tasks.judge import judge_together
    from backprint.tasks.nouns import TaskReport
    from backprint.tasks.solver import solution_of_text
    from backprint.tasks.solving import digest as solving_digest
    from backprint.tasks.solving import same_bits as solving_same_bits
    from backprint.torch_backend import backend as torch_backend_function
    from backprint.tracing import custom, non_operator_effects
    from backprint.tracing.aot import trace
    from backprint.tracing.assembly import Joint, Note, assemble
    from backprint.tracing.captured import LiveProgram
    from backprint.tracing.dynamo import backend as dynamo_backend
    from backprint.tracing.dynamo import frontend
    from backprint.tracing.eager import tape
    from backprint.tracing.eager.writer import Writer
    from backprint.tracing.entry import ENGINES, Engine
    from backprint.tracing.program import A_TENSOR, CalledProgram
    from backprint.tracing.record import recording, steps
    from backprint.tracing.record.script import traceback_of_script
    from backprint.tracing.record.steps import LiveRecorder
    from backprint.tracing.request import Doubt, EngineResult
    from backprint.tracing.stamping import stamp
    from backprint.tracing.stamping.rows import CannotStamp, Row, continue_rows
    from backprint.values import settings
    from backprint.values.bounds import MOST_ITEMS, why_outgrown
    from backprint.values.closeness import TOLERANCE
    from backprint.values.closeness import same_bits as closeness_same_bits
    from backprint.values.exchanges import Call, Exchange, Peers, received_without
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
