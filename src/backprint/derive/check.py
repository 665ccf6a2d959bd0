"""The question for a whole Capture: is each backward the derivative of its forward?

Words and parameters that mean the same in every function:

- the *gap*: how far ⟨g, J·v⟩ and ⟨Jᵀ·g, v⟩ are apart, relative to the sizes of their terms. The first, the *forward
  side*, is the Setting's tangents g times the forward's derivative along its direction v; the second, the *backward
  side*, is the backward's gradients times v;
- `setting`: a Setting, a Pair in float64 with inputs near the captured ones, tangents, gradients and a direction;
- `verdict`: a Derivative, the verdict so far, which a function returns with more in it;
- `opaque`: the Capture's OpaqueEdges: its custom autograd.Functions, hooks, and `no_grad` blocks;
- `meant`: the names of those of them that are meant to differ from the derivative;
- a *place*: forward steps whose gradients are wrong, as steps and tensors (`WrongPlace`) or in words (`WrongGradient`);
- a Try: what the running program returned for tangents or calls of one kind, with a fault or without (`live`);
- `program_seed`: the seed of the program's own draws;
- the `echo` of a step of the backward names the values of the forward whose gradients it computes (`locate`); a port's
  `name` is the program's, its `local` that in the graph.

CannotTell says that nothing can be said, NotFinite that a gradient has NaN or Inf; BackprintError and RuntimeError mean
that a graph does not run on the numbers that were tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint.derive.alone import (
    REST_IS_RIGHT,
    is_fault_of_meant,
    may_be_fault_of_meant,
    program_tries,
    verdict_except_meant,
)
from backprint.derive.duals import CORRECTED
from backprint.derive.hostile import InputFault, input_faults
from backprint.derive.kept import with_kept_verdict
from backprint.derive.live import Try, faults_of
from backprint.derive.locate import (
    DETACH,
    NEAR,
    Located,
    WrongPlace,
    differing_from_autograd,
    locate,
    locate_formulas,
    run_backward,
    values_taken_by,
)
from backprint.derive.reads import check_reads
from backprint.derive.setting import (
    OF_ANOTHER_FORWARD,
    CannotTell,
    InnerProduct,
    NotFinite,
    Setting,
    backward_product,
    changes_along,
    forward_product,
    gap_by_accuracy,
    gap_of,
    has_finite_derivative,
    inner_product,
    is_inexact,
    make_setting,
    move_by_rounding,
    output_of,
    own_source,
    product_by_differences,
    product_with,
    results_at,
    to_float64,
    with_one_name,
    with_tangents,
)
from backprint.errors import BackprintError, GuardError, UsageError
from backprint.graph.nouns import COLLECTIVES, NO_FUNCTIONS, Capture, OpaqueEdge, Pair, Source, Step, left_out_of
from backprint.graph.verdicts import (
    CANNOT_TELL,
    DERIVATIVE,
    NOT_THE_DERIVATIVE,
    Derivative,
    WrongGradient,
)
from backprint.prove.draws import draws_of
from backprint.prove.power import capture_in_float64 as widened_capture
from backprint.prove.whole import CaptureRun
from backprint.values.settings import ONE_AT_A_TIME, preserving_random_states, with_settings
from backprint.values.tree import plain_leaves

MAX_DRAWS = 3
"""How often inputs, tangents and directions are drawn at most. The least gap counts: a draw may be ill-conditioned."""

LIMIT, LIMIT_BY_DIFFERENCES = 1e-12, 1e-8
"""The largest gap that is rounding: of formulas, and where the tangent of an operator is from differences."""

ROUNDING = 100.0
"""A gap up to so many times what rounding of the inputs changes is no proof of an error."""


DRAWS_BY_REJECTION = ("aten._standard_gamma.default", "aten._sample_dirichlet.default")
"""Draws by rejection, which have no derivative for fixed random numbers."""

CONVENTIONS: Mapping[str, str] = {
    "aten._ctc_loss.Tensor": "PyTorch's gradient of ctc_loss is that of log_softmax of the inputs",
    "aten._ctc_loss.default": "PyTorch's gradient of ctc_loss is that of log_softmax of the inputs",
    **dict.fromkeys(
        (
            *("aten.max_unpool2d.default", "aten.max_unpool3d.default", "aten.index_put.default", "aten.put.default"),
            *("aten.scatter.src", "aten.index_copy.default"),
        ),
        "several values are put at one place, and PyTorch leaves open which one counts",
    ),
    **dict.fromkeys(
        (
            "aten.fake_quantize_per_tensor_affine_cachemask.default",
            "aten.fake_quantize_per_channel_affine_cachemask.default",
            "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
            "aten._fake_quantize_learnable_per_tensor_affine.default",
            "aten._fake_quantize_learnable_per_channel_affine.default",
        ),
        "PyTorch's gradient of a quantization passes through its rounding",
    ),
    "aten.cholesky_inverse.default": "PyTorch's gradient is that of a whole matrix, of which one triangle is read",
    "aten.cholesky.default": "PyTorch's gradient is that of a symmetric matrix",
    "aten.linalg_cholesky_ex.default": "PyTorch's gradient is that of a symmetric matrix",
    "aten._linalg_eigh.default": "PyTorch's gradient is that of a symmetric matrix",
    **dict.fromkeys(DRAWS_BY_REJECTION, "PyTorch's gradient of a draw is that along its distribution"),
    "embedding": "PyTorch's gradient of the row of padding_idx is 0",
}
"""Operators whose gradient PyTorch defines in another way than as the derivative of the result."""


CAPTURED_FIRST, RECIPE_FIRST = ("captured", "recipe"), ("recipe", "captured")
"""The inputs near which a Derivative is computed: first of the capture, or first of the recipes that a sample has."""


def derivatives_of(
    capture: Capture, meant: Sequence[str] = (), hostile: bool | None = None, draws: Sequence[str] = CAPTURED_FIRST
) -> list[Derivative]:
    """Return for each Pair with a backward whether this is the derivative of the forward.

    `meant` names custom autograd.Functions, or `detach`, whose backward is meant to differ. With `hostile`, tangents in
    other memory and inputs with zeros and ties are tried too; None tries them if the program has a custom
    autograd.Function, a hook or a custom operator. `draws` says near which inputs (CAPTURED_FIRST). UsageError says
    that `meant` names nothing of the program.
    """
    known_names = dict.fromkeys([*(edge.function for edge in capture.opaque if edge.function), *NO_FUNCTIONS])
    if unknown := [name for name in meant if name not in known_names]:
        raise UsageError(
            f"meant={unknown[0]!r} is no custom autograd.Function that {capture.name} calls: it may be one of "
            f"{', '.join(known_names)}"
        )
    meant, original = (*capture.meant, *meant), capture
    # A tensor that was passed under two names, as tied weights are, is one input with one gradient.
    pairs = tuple(with_one_name(pair, capture.signature.same) for pair in capture.pairs)
    # Functions may have lines in common, which count for the first of them: for one that is meant to differ.
    opaque = sorted(capture.opaque, key=lambda edge: edge.function not in meant)  # False comes first
    capture = replace(capture, pairs=pairs, opaque=tuple(opaque))
    if hostile is None:
        hostile = bool(capture.requires) or any(edge.kind in ("function", "hook") for edge in capture.opaque)
    with ONE_AT_A_TIME, preserving_random_states(), with_settings(dict(capture.environment)):
        results = check_reads(capture, list(_check_pairs(capture, tuple(meant), draws)), meant)
        if hostile:
            results = list(_with_unusual_runs(capture, results, tuple(meant), draws))
    results = with_kept_verdict(original, results, meant, hostile)
    left_out_notes = left_out_of(capture.notes)
    return [replace(result, detail="; ".join(filter(None, (result.detail, *left_out_notes)))) for result in results]


def _with_unusual_runs(
    capture: Capture, results: Sequence[Derivative], meant: tuple[str, ...], draws: Sequence[str]
) -> Iterator[Derivative]:
    """Yield `results`, one for each Pair with a backward. A result that names no fault is changed if unusual tangents
    or inputs show one, in the running program or in the graphs; one whose fault must be in a Function that is meant to
    differ is cleared."""
    is_wanted = any(_may_be_wrong(verdict) or may_be_fault_of_meant(verdict, capture, meant) for verdict in results)
    tries = program_tries(capture, meant) if is_wanted else []
    faults = faults_of(tries)
    functions = tuple(dict.fromkeys(edge.function for edge in capture.opaque if edge.function))
    try:
        inputs = inputs_of_pairs(capture, draws)
    except CannotTell:
        inputs = []  # without inputs, `pairs` is empty, and the graphs are not tried
    # As `results`: the Pairs with a backward, in order.
    pairs = [(pair, values) for pair, values in zip(capture.pairs, inputs, strict=False) if pair.backward is not None]
    for index, result in enumerate(results):
        if is_fault_of_meant(result, tries, capture, meant):
            result = verdict_except_meant(result, capture, meant)
        if not _may_be_wrong(result):
            yield result
            continue
        result = _with_tries(result, tries)
        if faults:
            yield _verdict_on_program(result, faults, functions, capture)
        elif result.good and index < len(pairs):
            pair, values = pairs[index]
            yield _first_change_by_inputs(result, pair, values, tries, capture, meant) or result
        else:
            yield result


def _first_change_by_inputs(
    result: Derivative,
    pair: Pair,
    values: Mapping[str, Any],
    tries: Sequence[Try],
    capture: Capture,
    meant: tuple[str, ...],
) -> Derivative | None:
    """Return the first verdict for unusual inputs or tangents of the graphs that has another word than `result`, and is
    not the fault of a Function that is meant to differ; None if there is none."""
    for fault in input_faults(pair, values, capture.seed):
        verdict = _verdict_for_inputs(result, fault, pair, values, capture, meant)
        if verdict is None or verdict.word == result.word:
            continue
        if not is_fault_of_meant(verdict, tries, capture, meant):
            return verdict
    return None


def _may_be_wrong(result: Derivative) -> bool:
    """Whether a fault that unusual tangents or inputs show would change the verdict: it names no fault yet."""
    return result.good or result.word == CANNOT_TELL


def _with_tries(result: Derivative, tries: Sequence[Try]) -> Derivative:
    """Return the verdict with the tangents and calls that the program was tried with, and those that could not be
    tried."""
    not_tried = tuple((try_.name, try_.why_not) for try_ in tries if try_.why_not)
    tried = tuple(try_.name for try_ in tries if not try_.why_not)
    names_by_reason: dict[str, list[str]] = {}
    for name, why_not in not_tried:
        names_by_reason.setdefault(why_not, []).append(name)
    sentences = [f"not tried: {', '.join(group)}: {why_not}" for why_not, group in names_by_reason.items()]
    detail = "; ".join(filter(None, [result.detail, *sentences]))
    return replace(result, detail=detail, tried=tried, not_tried=not_tried)


def _verdict_on_program(
    result: Derivative, faults: Sequence[Try], functions: Sequence[str], capture: Capture
) -> Derivative:
    """Return the verdict on a backward that is wrong when the program itself runs, for some tangents or calls. `faults`
    are the Tries with a fault, `functions` all custom autograd.Functions of the program."""
    tries_by_sentence: dict[tuple[str, str], list[Try]] = {}
    for try_ in faults:
        assert try_.fault is not None
        tries_by_sentence.setdefault((try_.word, try_.fault.compared), []).append(try_)
    details = []
    for (word, compared), group in tries_by_sentence.items():
        fault = group[0].fault
        assert fault is not None
        gradient = "gradient" if group[0].function else "program's own gradient"
        details.append(
            f"{word} {', '.join(try_.name for try_ in group)} the {gradient} of {fault.port} differs by "
            f"{fault.error:.1e} from {compared}"
        )
    first_fault = faults[0].fault
    assert first_fault is not None
    # These are wrong when they are called alone. If none is, any Function of the program may be to blame.
    functions_to_blame = {try_.function for try_ in faults if try_.function}
    if not functions_to_blame:
        functions_to_blame = set(functions)
        if len(functions) > 1:
            details.append(f"one of {', '.join(functions)} is wrong")
    wrong = []
    port = first_fault.port
    for edge in {edge.function: edge for edge in capture.opaque if edge.function in functions_to_blame}.values():
        at, code = line_text(edge.source), "" if edge.source is None else edge.source.code
        gradients = ((port, first_fault.error),)
        # Which operator is wrong is not known: the program ran, and no graph.
        wrong.append(WrongGradient((), at, code, lines=(at,), gradients=gradients, function=edge.function))
    return replace(result, word=NOT_THE_DERIVATIVE, detail="; ".join(details), ports=(port,), wrong=tuple(wrong))


def _verdict_for_inputs(
    result: Derivative,
    fault: InputFault,
    pair: Pair,
    values: Mapping[str, Any],
    capture: Capture,
    meant: tuple[str, ...],
) -> Derivative | None:
    """Return the verdict on a backward that is wrong for some inputs or tangents only (`fault`); None if it is no fault
    of a Function or an operator of the program, or is one that is meant, or if nothing can be told."""
    setting = fault.setting
    if math.isinf(fault.gap):  # a gradient is NaN or Inf
        return _verdict_for_not_finite_input(result, fault, pair, capture.opaque)
    result_with_gap = replace(result, word=DERIVATIVE, gap=fault.gap)
    reason = f"it is wrong for {fault.kind}"
    if fault.by_values:
        if "embedding" in result.meant:  # `with_padding` has named it
            return None  # differences of the values move the row of padding too
        # Differences name no step. [], as no place is known: the only Function is blamed, if there is one.
        places = _with_only_function([], tuple(setting.gradients), capture.opaque)
        if fault.invented and not places:
            return None  # the caller did not pass such inputs, and no Function of the program is to blame
        if any(place.function in meant for place in places):
            return None
        detail = f"{reason}; gap {fault.gap:.1e}, by differences of the forward's values"
        return replace(result_with_gap, word=NOT_THE_DERIVATIVE, detail=detail, wrong=tuple(places))
    forward_side, _ = forward_product(setting)
    if not math.isfinite(forward_side.value):  # forward-mode AD returns NaN, with which no places can be found
        detail = f"{reason}; gap {fault.gap:.1e}, by differences of the whole forward"
        return replace(result_with_gap, word=NOT_THE_DERIVATIVE, detail=detail)
    verdict = explain_gap(
        result_with_gap, pair, values, setting, capture.seed, capture.opaque, meant, reason, fault.at_kinks
    )
    if fault.of_tangents and any(place.function in meant for place in verdict.wrong):
        return None  # what is meant need not be linear
    return None if verdict.word == CANNOT_TELL else verdict


def _verdict_for_not_finite_input(
    result: Derivative, fault: InputFault, pair: Pair, opaque: Sequence[OpaqueEdge]
) -> Derivative | None:
    """Return the verdict on a backward that has NaN or Inf for some inputs or tangents, where the derivative is finite;
    None if the caller did not pass these inputs, and the backward is PyTorch's."""
    wrong = _first_not_finite(fault.setting, opaque)
    if fault.invented and not any(is_backward_of_program(place, pair) for place in wrong):
        return None  # PyTorch's own backwards return NaN at 0 too, and nobody need pass 0 here
    ports = _not_finite_ports(fault.setting)
    detail = f"for {fault.kind} the gradient of {', '.join(ports)} has NaN or Inf, where the derivative is finite"
    return replace(result, word=NOT_THE_DERIVATIVE, detail=detail, draws=1, ports=ports, wrong=wrong)


def is_backward_of_program(place: WrongGradient, pair: Pair) -> bool:
    """Whether the program wrote the backward at a place: a Function, a hook or an operator of its own. A backward of
    PyTorch has the lines of its forward."""
    return bool(place.function) or place.at not in {line_text(step.source) for step in pair.forward.steps}


def _not_finite_ports(setting: Setting) -> tuple[str, ...]:
    """Return the inputs whose gradients have NaN or Inf."""
    return tuple(port for port, gradient in setting.gradients.items() if not bool(gradient.isfinite().all()))


def _why_needs_all_ranks(pairs: Sequence[Pair]) -> str:
    """Return why nothing is said of these Pairs alone: they are a part of a step of all ranks; '' if they are not."""
    graphs = [graph for pair in pairs for graph in pair.graphs]
    if any(step.target in COLLECTIVES for graph in graphs for step in graph.steps):
        return OF_ALL_RANKS
    return OF_SHARDS if any(port.shard for graph in graphs for port in (*graph.inputs, *graph.outputs)) else ""


def _check_pairs(capture: Capture, meant: tuple[str, ...], draws: Sequence[str]) -> Iterator[Derivative]:
    """Yield the Derivative of each Pair with a backward; one that cannot tell, if no Pair has one."""
    pairs = [pair for pair in capture.pairs if pair.backward is not None]
    if not pairs:
        yield Derivative(CANNOT_TELL, capture.name, "it has no backward")
        return
    if why := _why_needs_all_ranks(pairs):
        for pair in pairs:
            yield Derivative(CANNOT_TELL, name_of(capture, pair), why)
        return
    try:
        values = inputs_of_pairs(capture, draws)
    except CannotTell as error:
        for pair in pairs:
            yield Derivative(CANNOT_TELL, name_of(capture, pair), str(error))
        return
    for pair, inputs in zip(capture.pairs, values, strict=True):
        if pair.backward is not None:
            result = check_pair(pair, inputs, capture.seed, capture.opaque, meant, name_of(capture, pair))
            # `left_out` has the inputs whose gradients were not compared, with the reasons.
            of_others = any(reason == OF_ANOTHER_FORWARD for _, reason in result.left_out)
            if of_others and len(capture.pairs) > 1 and result.word == NOT_THE_DERIVATIVE:
                detail = "its backward goes through the forwards of other pairs too"
                result = Derivative(CANNOT_TELL, result.name, detail, left_out=result.left_out)
            yield result


OF_SHARDS = "its tensors are shards, a part of a step of all ranks: World.against_whole says of that"

OF_ALL_RANKS = "its collectives make it a part of a step of all ranks: World.against_whole says of that"
"""Why the backward of one rank alone is compared with no derivative."""


def name_of(capture: Capture, pair: Pair) -> str:
    """Return the name of a Derivative: the Capture's, and the Pair's if there are several."""
    return capture.name if len(capture.pairs) == 1 else f"{capture.name} {pair.name}"


def inputs_of_pairs(capture: Capture, names: Sequence[str] = CAPTURED_FIRST) -> list[Mapping[str, Any]]:
    """Return the inputs of each Pair by name, from the first set of inputs that there is of these (CAPTURED_FIRST). The
    inputs of a later Pair are results of the earlier Pairs, in float64. Raise CannotTell if there are no inputs, or the
    Pairs do not run on them."""
    if capture.fake:
        raise CannotTell("it was captured without values")
    # `draws_of` yields the sets of inputs of each kind that is asked for, none if the Capture has none of the kind.
    draw = next((draw for name in names for draws in draws_of(capture, (name,)) for draw in draws), None)
    if draw is None:
        raise CannotTell("its program is gone, and the sample keeps no recipes for its inputs")
    if len(capture.pairs) == 1:
        return [draw.values]
    values = {name: to_float64(value) for name, value in draw.values.items()}
    run = CaptureRun(widened_capture(capture), values, tangents=None)
    torch.manual_seed(capture.seed)
    try:
        run.forward()
    except BackprintError as error:
        raise CannotTell(str(error)) from error
    return [pair_run.values for pair_run in run.runs]


class _Draw(NamedTuple):
    """A draw of inputs and tangents, and the gap of its two sides."""

    gap: float
    setting: Setting


class _Draws(NamedTuple):
    """The draws of one Pair, the gap from which on they differ by more than rounding (`limit`), and the operators whose
    tangent did not come from PyTorch's formula, by where it came from (`duals`)."""

    draws: list[_Draw]
    limit: float
    by_second_derivative: set[str]
    by_differences: set[str]


def check_pair(
    pair: Pair,
    values: Mapping[str, Any],
    program_seed: int,
    opaque: Sequence[OpaqueEdge] = (),
    meant: tuple[str, ...] = (),
    name: str = "",
) -> Derivative:
    """Return the verdict on one Pair: whether its backward is the derivative of its forward, on inputs near these
    values. If its graphs do not run in float64, the verdict is that it cannot be told."""
    name = name or pair.name
    try:
        drawn = _draw_settings(pair, values, program_seed)
        if isinstance(drawn, Setting):
            return _by_whole_differences(name, drawn)
    except NotFinite as error:
        return _verdict_on_not_finite(name, error, opaque)
    except (CannotTell, BackprintError, RuntimeError) as error:
        return Derivative(CANNOT_TELL, name, str(error))
    # A draw may be ill-conditioned, so the least gap counts.
    gap, setting = min(drawn.draws, key=lambda draw: draw.gap)
    largest = max(drawn.draws, key=lambda draw: draw.gap)
    if largest.gap > NO_ROUNDING:  # no draw is so ill-conditioned: the backward is right for some tangents only
        gap, setting = largest
    verdict = Derivative(
        DERIVATIVE,
        name,
        gap=gap,
        draws=len(drawn.draws),
        by_second_derivative=tuple(sorted(drawn.by_second_derivative)),
        by_differences=tuple(sorted(drawn.by_differences)),
        left_out=tuple(setting.left_out.items()),
    )
    if gap >= drawn.limit:
        return with_padding(explain_gap(verdict, pair, values, setting, program_seed, opaque, meant), setting)
    # Right for one size of tangents: it may clip others, or flip a sign.
    setting_scaled = _with_other_tangents(setting)
    if setting_scaled is not None:
        forward_side, _ = forward_product(setting_scaled)
        verdict = replace(verdict, gap=gap_of(forward_side, backward_product(setting_scaled)))
        return explain_gap(
            verdict, pair, values, setting_scaled, program_seed, opaque, meant, "it is not linear in its tangents"
        )
    return with_padding(replace(verdict, detail=method_text(verdict, setting)), setting)


def _draw_settings(pair: Pair, values: Mapping[str, Any], program_seed: int) -> _Draws | Setting:
    """Draw up to MAX_DRAWS Settings near these values, until one has a gap that is rounding. If forward-mode AD returns
    NaN for one, return this Setting alone. Raise CannotTell if everything is 0, and what `make_setting` raises."""
    draws: list[_Draw] = []
    by_second_derivative, by_differences = set[str](), set[str]()
    limit = LIMIT
    for seed in range(MAX_DRAWS):
        setting = make_setting(pair, values, seed, program_seed)
        forward_side, run = forward_product(setting)
        if not math.isfinite(forward_side.value):
            return setting
        by_second_derivative |= run.by_second_derivative
        by_differences |= run.by_differences
        limit = LIMIT_BY_DIFFERENCES if by_differences else LIMIT
        backward_side = backward_product(setting)
        # Products of zeros agree, and say nothing.
        if forward_side.size == backward_side.size == 0 and _results_change(setting):
            raise CannotTell("all tangents and all gradients are 0, and the results change along the direction")
        gap = gap_of(forward_side, backward_side)
        if gap >= limit:
            # A gradient that is 0 but for rounding had the weight of a large one: now its accuracy decides its weight.
            gap, setting = gap_by_accuracy(setting)
        draws.append(_Draw(gap, setting))
        if gap < limit:
            break  # the draws that are left are for a gap that may be rounding
    return _Draws(draws, limit, by_second_derivative, by_differences)


def with_padding(verdict: Derivative, setting: Setting) -> Derivative:
    """Return the verdict, with the embeddings named if the results depend on a row of padding: it has no gradient."""
    padded = [step for step in setting.forward.steps if _has_padding(step)]
    if not verdict.good or not padded:
        return verdict
    # Autograd gives a row of padding no gradient. So the backward is right if it has the product without these rows;
    # they matter if the product with them is another one. Under `derivative but for …` the backward differs in another
    # place as well, so the forward's own product stands for it.
    product_without_padding = backward_product(setting) if verdict.word == DERIVATIVE else forward_product(setting)[0]
    # `padding=False`: rows of padding have a tangent, as any other row.
    changes_by_port, _ = changes_along(setting, padding=False)
    product_with_padding = product_with(changes_by_port, setting.tangents)
    if not gap_of(product_with_padding, product_without_padding) > LIMIT_BY_DIFFERENCES:
        return verdict
    places = []
    for source in dict.fromkeys(step.source for step in padded):
        at = line_text(source)
        code = "" if source is None else source.code
        places.append(WrongGradient((EMBEDDING,), at, code, lines=(at,), gradients=(), function="embedding"))
    names = sorted({*verdict.meant, "embedding"})
    return replace(
        verdict,
        word=f"{DERIVATIVE} but for {', '.join(names)}",
        detail="; ".join(filter(None, [CONVENTIONS["embedding"], verdict.detail])),
        wrong=(*verdict.wrong, *places),
        meant=tuple(names),
        rest_is_right=True,
    )


EMBEDDING = "aten.embedding.default"


def _has_padding(step: Step) -> bool:
    """Whether a step looks up rows of which one is padding."""
    # `embedding(weight, indices, padding_idx=-1, …)`: -1 is for none.
    padding = step.args[2] if len(step.args) > 2 else dict(step.kwargs).get("padding_idx", -1)
    return step.target == EMBEDDING and (not isinstance(padding, int) or padding >= 0)


def _results_change(setting: Setting) -> bool:
    """Whether the results that have a tangent change if the inputs are moved a little along the direction."""
    results = results_at(setting, SMALL_STEP)
    # 1e-12 is more than rounding of float64, and less than what SMALL_STEP changes.
    return any(
        not torch.allclose(
            output_of(results, name), output_of(setting.results, name), rtol=1e-12, atol=0, equal_nan=True
        )
        for name in setting.tangents
    )


SMALL_STEP = 1e-6
"""How far inputs are moved to see whether a result changes."""

NO_ROUNDING = 1e-6
"""A gap that no rounding makes, however ill-conditioned the draw."""

SCALE = -1024.0
"""A power of two: a gradient for tangents that are multiplied by it is multiplied by it, to the bit or nearly so."""


def _with_other_tangents(setting: Setting) -> Setting | None:
    """Return a Setting with scaled tangents for which the gradients are not scaled by the same factor, as by a backward
    that clips; None if they are, for all factors that are tried."""
    extremes = EXTREMES_OF_HALF if setting.is_half else EXTREMES
    # A custom operator might compute with fewer bits, and be right all the same.
    is_plain = all(step.is_guard or step.target.startswith(("aten.", "operator.")) for step in setting.backward.steps)
    for scale in (SCALE, -1.0, *(extremes if is_plain else ())):
        try:
            scaled = with_tangents(setting, {name: tangent * scale for name, tangent in setting.tangents.items()})
        except GuardError:
            continue  # the backward takes another branch for these tangents, and the program itself is run with others
        for name, gradient in setting.gradients.items():
            expected, actual = gradient * scale, scaled.gradients[name]
            # Multiplied by a power of two, most gradients are equal to the bit, and need no closer look.
            if gradient.numel() and not torch.equal(actual, expected):
                size = max(float(expected.abs().max()), float(actual.abs().max()))
                rounding = LEFT_OVER * float(gradient.abs().max())
                if float((actual - expected).abs().max()) > NOT_LINEAR * size + rounding:
                    return scaled
    return None


NOT_LINEAR = 1e-9
"""The relative difference of a gradient from the scaled one that is no rounding."""

LEFT_OVER = 1e-14
"""Values that cancel leave so much of a gradient, whatever its tangents are."""

EXTREMES = (2.0**24, 2.0**-24)
"""Tangents multiplied by these are beyond a limit at which a backward clips them, or takes them for 0."""


EXTREMES_OF_HALF = (2.0**12, 2.0**-10)
"""The same where values have float16: no tangent is beyond 65504, and a clamp to it changes none."""


WHOLE_FORWARD = "the whole forward"


LIMIT_OF_WHOLE = 1e-6
"""The largest gap that is the error of differences of the whole forward."""


def _by_whole_differences(name: str, setting: Setting) -> Derivative:
    """Return the verdict where forward-mode AD returns NaN, though the gradients are finite: differences of the whole
    forward stand for its derivative. It cannot be told if the forward returns NaN or Inf too. CannotTell of the
    differences comes through."""
    if not all(bool(output_of(setting.results, port).isfinite().all()) for port in setting.tangents):
        return Derivative(CANNOT_TELL, name, "the forward returns NaN or Inf, and so does its derivative")
    gap = gap_of(product_by_differences(setting), backward_product(setting))
    verdict = Derivative(DERIVATIVE, name, gap=gap, draws=1, by_differences=(WHOLE_FORWARD,))
    if gap < LIMIT_OF_WHOLE:
        return replace(verdict, detail=method_text(verdict, setting))
    ports = []
    for port, gradient in setting.gradients.items():
        # Along one input at a time, to find those whose gradients are wrong.
        setting_of_port = replace(setting, direction={port: setting.direction[port]})
        backward_side = backward_product(setting_of_port, {port: gradient})
        if gap_of(product_by_differences(setting_of_port), backward_side) >= LIMIT_OF_WHOLE:
            ports.append(port)
    detail = f"gap {gap:.1e}; wrong: the gradient of {', '.join(ports)}; by differences of the whole forward"
    return replace(verdict, word=NOT_THE_DERIVATIVE, detail=detail, ports=tuple(ports))


def _first_not_finite(setting: Setting, opaque: Sequence[OpaqueEdge]) -> tuple[WrongGradient, ...]:
    """Return the step of the backward that makes the first NaN of values without one, as a wrong place; if none makes
    NaN, the first that makes Inf, which alone may be right. Empty if no step does."""
    values = run_backward(setting)
    for is_bad in (torch.isnan, torch.isinf):
        for step in setting.backward.steps:
            arguments = [values.get(name) for name in values_taken_by(step)]
            makes_it = _has_element(values.get(step.name), is_bad) and not _has_element(arguments, is_bad)
            if not step.is_guard and makes_it:
                line = line_text(step.source)
                edge = _edge_of_line(step.source, opaque)
                code = "" if step.source is None else step.source.code
                gradients = ((step.name, 1.0),)  # 1 is the relative error of a gradient that is missing
                function = edge.function if edge else ""
                names = step.echo.names if step.echo else ()
                place = WrongGradient(
                    (step.target,), line, code, lines=(line,), gradients=gradients, function=function, names=names
                )
                return (place,)
    return ()


def _has_element(value: Any, is_bad: Callable[[Tensor], Tensor]) -> bool:
    """Whether a tensor in a value has an element for which `is_bad` is true: `torch.isnan` or `torch.isinf`."""
    leaves = [leaf for leaf in plain_leaves(value) if isinstance(leaf, Tensor)]
    return any(bool(is_bad(leaf).any()) for leaf in leaves if is_inexact(leaf))


def _edge_of_line(source: Source | None, opaque: Sequence[OpaqueEdge]) -> OpaqueEdge | None:
    """Return the custom autograd.Function that a line belongs to: one that called an operator there; else, for a line
    in a function named `backward`, the one whose backward begins last before the line. None if there is none."""
    if source is None:
        return None
    for edge in opaque:
        if line_text(source) in edge.lines:
            return edge

    backwards_before = [
        edge
        for edge in opaque
        if edge.function and edge.source and edge.source.file == source.file and edge.source.line <= source.line
    ]
    if source.function != "backward" or not backwards_before:
        return None
    return max(backwards_before, key=lambda edge: edge.source.line if edge.source else 0)


def _verdict_on_not_finite(name: str, error: NotFinite, opaque: Sequence[OpaqueEdge]) -> Derivative:
    """Return the verdict on a backward that returns NaN or Inf: it is wrong where the forward has a derivative."""
    setting = error.setting
    ports = _not_finite_ports(setting)
    if has_finite_derivative(setting):
        detail = f"{error}, where the derivative of the forward is finite"
        wrong = _wrong_places(setting, opaque) or _first_not_finite(setting, opaque)
        return Derivative(NOT_THE_DERIVATIVE, name, detail, draws=1, ports=ports, wrong=wrong)
    return Derivative(CANNOT_TELL, name, str(error))


def _wrong_places(setting: Setting, opaque: Sequence[OpaqueEdge]) -> tuple[WrongGradient, ...]:
    """Return where a backward that makes NaN or Inf is wrong, as far as its values tell."""
    try:
        located = _locate(setting, opaque)
    except (BackprintError, RuntimeError):  # an operator that does not take NaN; the first NaN is named instead
        return ()
    return tuple(
        merge_repeated_places([describe_place(place, setting, opaque, by_formula=False) for place in located.places])
    )


def _with_refuted(verdict: Derivative, setting: Setting, refuted: frozenset[str]) -> tuple[Derivative, Setting, float]:
    """Return the verdict, the Setting and the limit of its gap, where the tangents of the operators in `refuted` come
    from differences, because differences have shown that PyTorch's formulas for their tangents are wrong."""
    setting = replace(setting, refuted=refuted)
    forward_side, run = forward_product(setting)
    verdict = replace(
        verdict,
        gap=gap_of(forward_side, backward_product(setting)),
        by_second_derivative=tuple(sorted(run.by_second_derivative)),
        by_differences=tuple(sorted(run.by_differences)),
    )
    return verdict, setting, LIMIT_BY_DIFFERENCES if run.by_differences else LIMIT


def method_text(verdict: Derivative, setting: Setting) -> str:
    """Return in one line how the check with this verdict was made."""
    words = [f"gap {verdict.gap:.0e}"]
    if setting.nudge == 0:
        words.append("on the captured inputs, because the program does not run on inputs near them")
    if setting.absolute:
        words.append("on absolute values of the inputs, because the captured ones give NaN or Inf")
    if setting.refuted:
        words.append(
            f"PyTorch's forward-mode formula of {', '.join(sorted(setting.refuted))} is wrong and was not used"
        )
    if verdict.by_differences:
        words.append(f"{', '.join(verdict.by_differences)} by differences")
    if verdict.left_out:
        words.append("left out: " + "; ".join(f"{port}: {why}" for port, why in verdict.left_out))
    return "; ".join(words)


def explain_gap(
    verdict: Derivative,
    pair: Pair,
    values: Mapping[str, Any],
    setting: Setting,
    program_seed: int,
    opaque: Sequence[OpaqueEdge],
    meant: tuple[str, ...],
    reason: str = "",
    at_kinks: bool = False,
) -> Derivative:
    """Return the verdict where the two sides differ: where the backward is wrong, or that it cannot be told.

    `setting` is the draw with the gap, near `values`. `reason` says for which tangents or inputs it is wrong, if not
    for all. With `at_kinks`, rounding moves inputs off kinks, so it does not explain a gap.

    A backward that differs from autograd of the captured forward is at fault itself. One that is what autograd returns
    shows that a formula of PyTorch is wrong: that of a gradient, or the one for tangents that it was compared with.
    """
    gap = verdict.gap or 0.0
    why = "" if at_kinks else _why_rounding(pair, values, setting, program_seed, gap)
    if why:
        return replace(verdict, word=CANNOT_TELL, detail=why)
    try:
        located = _locate(setting, opaque)
    except (BackprintError, RuntimeError) as error:
        return replace(verdict, word=NOT_THE_DERIVATIVE, detail=f"gap {gap:.1e}; where was not found: {error}")
    by_formula = not located.wrong
    if by_formula:
        located = locate_formulas(setting)
        # `refuted` operators have a wrong formula for tangents: without it, the two sides may agree.
        if located.refuted:
            verdict, setting, limit = _with_refuted(verdict, setting, located.refuted)
            if (verdict.gap or 0.0) < limit and _with_other_tangents(setting) is None:
                return replace(verdict, detail=method_text(verdict, setting))
        if not located.places:
            return _verdict_without_place(verdict, setting, located, gap)
    wrong = merge_repeated_places([describe_place(place, setting, opaque, by_formula) for place in located.places])
    # Where a formula of PyTorch is wrong for all inputs and tangents, no Function is to blame.
    if not by_formula or reason:
        wrong = _with_only_function(wrong, located.wrong, opaque)
    is_rest_right = located.complete and _is_rest_right(setting, located)
    gap_for_ones = _gap_for_ones(pair, values, program_seed)
    verdict = replace(verdict, wrong=tuple(wrong), ports=located.wrong, rest_is_right=is_rest_right, ones=gap_for_ones)
    not_meant = [place for place in wrong if place.function not in meant and place.function not in CONVENTIONS]
    if wrong and not not_meant and is_rest_right:
        return _verdict_meant(verdict)
    return replace(verdict, word=NOT_THE_DERIVATIVE, detail=_fault_text(verdict, gap, reason))


def _why_rounding(pair: Pair, values: Mapping[str, Any], setting: Setting, program_seed: int, gap: float) -> str:
    """Return in words that rounding explains a gap: rounding of the inputs that have gradients, or of those that have
    none; '' if neither does."""
    if gap <= ROUNDING * rounding_of_product(setting):
        return f"gap {gap:.0e}, and rounding of the inputs alone changes as much"
    inputs_rounded = _inputs_whose_rounding_explains(pair, values, program_seed, gap)
    if not inputs_rounded:
        return ""
    return (
        f"gap {gap:.0e}, and as much by rounding of {inputs_rounded}, of which the backward may use what holds to "
        "rounding"
    )


def _locate(setting: Setting, opaque: Sequence[OpaqueEdge]) -> Located:
    """Return where a backward is wrong; a custom autograd.Function of the program is one call."""
    cut_values = {name for name, kinds in _cuts_before(setting, opaque).items() if kinds}
    return locate(setting, [edge.lines for edge in opaque if edge.lines], cut_values)


def _verdict_without_place(verdict: Derivative, setting: Setting, located: Located, gap: float) -> Derivative:
    """Return the verdict where no call and no formula is wrong alone: gradients that differ from those of autograd are
    wrong all the same, else it cannot be told."""
    wrong_ports = {} if verdict.by_differences else differing_from_autograd(setting, LIMIT)
    if not wrong_ports:
        return replace(verdict, word=CANNOT_TELL, detail=_why_no_operator(gap, located))
    port, difference = next(iter(wrong_ports.items()))
    detail = (
        f"gap {gap:.1e}; the gradient of {port} differs by {difference:.0e} from that of autograd, which "
        "has the tangents' product; too little to find where"
    )
    return replace(verdict, word=NOT_THE_DERIVATIVE, ports=tuple(wrong_ports), detail=detail)


def _verdict_meant(verdict: Derivative) -> Derivative:
    """Return the verdict on a backward all of whose wrong places are meant to differ: `the derivative but for Clip`."""
    names = sorted({place.function for place in verdict.wrong})
    conventions = dict.fromkeys(CONVENTIONS[name] for name in names if name in CONVENTIONS)
    return replace(
        verdict,
        word=f"{DERIVATIVE} but for {', '.join(names)}",
        detail="; ".join([*conventions, REST_IS_RIGHT]),
        meant=tuple(names),
    )


def _fault_text(verdict: Derivative, gap: float, reason: str) -> str:
    """Return in one line what is wrong, and what does not show it: `gap 3.2e-01; wrong: the gradient of x; tangents of
    ones do not show it; everything else is the derivative`, after the `reason`, if there is one (`explain_gap`). `gap`
    is the one that was found first. Everything else is what is left if the wrong places are taken to be right."""
    words = [reason] if reason else []
    words.append(f"gap {gap:.1e}")
    if verdict.ports:
        words.append(
            f"wrong: the gradient of {', '.join(verdict.ports[:4])}" + (" …" if len(verdict.ports) > 4 else "")
        )
    if verdict.ones is not None and verdict.ones < LIMIT:
        words.append("tangents of ones do not show it")
    if verdict.rest_is_right:
        words.append(REST_IS_RIGHT)
    return "; ".join(words)


def _with_only_function(
    wrong: Sequence[WrongGradient], ports: Sequence[str], opaque: Sequence[OpaqueEdge]
) -> list[WrongGradient]:
    """Return the wrong places, blamed on the program's only custom autograd.Function if they name none: a Function that
    writes over its tangents, or over what it saved, spoils the gradients of other operators. `ports` have the wrong
    gradients."""
    edges = {edge.function: edge for edge in opaque if edge.function and edge.source is not None}
    if len(edges) != 1 or any(place.function for place in wrong) or any(edge.kind == "hook" for edge in opaque):
        return list(wrong)
    ((function, edge),) = edges.items()
    if wrong:
        return [replace(place, function=function) for place in wrong]
    assert edge.source is not None
    line = line_text(edge.source)
    gradients = tuple((port, 1.0) for port in ports)  # how wrong each is at this place is not known
    return [WrongGradient((), line, edge.source.code, lines=(line,), gradients=gradients, function=function)]


def _why_no_operator(gap: float, located: Located) -> str:
    """Return why nothing can be said of a backward that is what autograd of the forward returns, though tangents by
    forward mode have another product."""
    why = f"gap {gap:.0e}, which autograd of the forward has too"
    if located.undecided:
        names = ", ".join(sorted(located.undecided))
        return f"{why}: the gradient of {names} or its formula for tangents is wrong, and differences do not settle"
    return f"{why}, and each operator alone has the gradient that its tangents have"


def rounding_of_product(setting: Setting) -> float:
    """Return how far ⟨g, J·v⟩ moves, relative to its terms, if the inputs are rounded otherwise."""
    generator = own_source(1)
    rounded_inputs = {
        name: move_by_rounding(value, generator) if name in setting.gradients else value
        for name, value in setting.inputs.items()
    }
    before, _ = forward_product(setting)
    after, _ = forward_product(replace(setting, inputs=rounded_inputs))
    size = max(before.size, backward_product(setting).size, 1e-300)  # no division by 0
    return abs(before.value - after.value) / size


def _inputs_whose_rounding_explains(pair: Pair, values: Mapping[str, Any], program_seed: int, gap: float) -> str:
    """Return the names of the inputs without gradients, if rounding them in their own dtype makes a gap of the same
    size; '' if it does not, or there are none.

    The backward of a product with an orthogonal matrix may take its transpose for its inverse, and probabilities may
    be taken to sum up to 1: that holds to rounding in the dtype that they are captured in.
    """
    with_gradient = set() if pair.backward is None else {port.name for port in pair.backward.outputs}
    inputs_without_gradient = {
        port.name: value
        for port in pair.forward.inputs
        if port.name not in with_gradient and isinstance(value := values.get(port.name), Tensor) and is_inexact(value)
        if value.layout is torch.strided and value.dtype not in (torch.float64, torch.complex128)
    }
    if not inputs_without_gradient:
        return ""
    coarsest = max(torch.finfo(value.dtype).eps for value in inputs_without_gradient.values())
    if gap > MOST_ROUNDINGS * coarsest:
        return ""
    generator = own_source(1)
    other_gaps = []
    for _ in range(ROUNDED_DRAWS):
        rounded_inputs = {}
        for name, value in inputs_without_gradient.items():
            # By up to two units in the last place of its dtype.
            noise = 2 * torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.device) - 1
            rounded_inputs[name] = (to_float64(value) * (1 + 2 * torch.finfo(value.dtype).eps * noise)).to(value)
        try:
            setting = make_setting(pair, {**values, **rounded_inputs}, seed=0, program_seed=program_seed)
            forward_side, _ = forward_product(setting)
            other_gaps.append(gap_of(forward_side, backward_product(setting)))
        except (NotFinite, CannotTell, BackprintError, RuntimeError):
            return ""
    movement = max(abs(other_gap - gap) for other_gap in other_gaps)
    return ", ".join(inputs_without_gradient) if gap <= MOST_MOVEMENTS * movement else ""


MOST_ROUNDINGS = 100.0
"""Rounding of inputs without gradients explains no gap that is more than this times the rounding of their dtype."""

ROUNDED_DRAWS, MOST_MOVEMENTS = 3, 4.0
"""How often these inputs are rounded otherwise; and rounding explains no gap that is more than the second number times
how far the gap then moves."""


def _gap_for_ones(pair: Pair, values: Mapping[str, Any], program_seed: int) -> float | None:
    """Return the gap for tangents of ones, with which most tests of backwards begin: infinite if a gradient is NaN or
    Inf, None if the graphs do not run."""
    try:
        setting = make_setting(pair, values, seed=0, program_seed=program_seed, ones=True)
        forward_side, _ = forward_product(setting)
    except NotFinite:  # such a test sees NaN
        return math.inf
    except (CannotTell, BackprintError, RuntimeError):
        return None
    return gap_of(forward_side, backward_product(setting))


def _is_rest_right(setting: Setting, located: Located) -> bool:
    """Whether the two sides agree if what the backward returned at the wrong places is taken for given.

    The steps of a place pass no tangent on. What they would have passed to the forward side is the inner product of
    what the backward returned there with the tangents of the values that the steps take.
    """
    returned_by_name: dict[str, list[Tensor]] = {}
    for place in located.places:
        for name, gradient in zip(place.inputs, place.returned, strict=True):
            if gradient is not None:
                returned_by_name.setdefault(name, []).append(gradient)
    passed_on: list[InnerProduct] = []

    def watch(name: str, value: Any, tangent: Any) -> None:
        """Note what the places would have passed on for the value of this name, if they take it. It is called with each
        step's value and tangent, None for no tangent."""
        if isinstance(tangent, Tensor):
            passed_on.extend(inner_product(gradient, tangent) for gradient in returned_by_name.get(name, ()))

    constant = {step.name for place in located.places for step in place.steps}
    forward_side, run = forward_product(setting, constant, watch)
    for port in setting.forward.inputs:  # the inputs, which no step computes: their tangents are the direction
        watch(port.local, value=None, tangent=setting.direction.get(port.name))
    whole_side = InnerProduct(
        forward_side.value + sum(part.value for part in passed_on),
        forward_side.size + sum(part.size for part in passed_on),
    )
    limit = LIMIT_BY_DIFFERENCES if run.by_differences else LIMIT
    gap = gap_of(whole_side, backward_product(setting))

    return gap < max(100 * limit, ROUNDING * rounding_of_product(setting))


# ---- Wrong places in words


def describe_place(
    place: WrongPlace, setting: Setting, opaque: Sequence[OpaqueEdge], by_formula: bool
) -> WrongGradient:
    """Return a wrong place as plain text and numbers: `at` is its line in the forward, `lines` are the backward's. The
    operator itself is to blame `by_formula`, if autograd is wrong there, and where it draws by rejection, whose
    gradient PyTorch defines. An input of the graph has the name of its port, another value its name in the graph."""
    port_of = {port.local: port.name for port in setting.forward.inputs}
    source = next((step.source for step in reversed(place.steps) if step.source is not None), None)
    lines = _lines_of(place)
    target = place.steps[0].target
    return WrongGradient(
        operators=tuple(step.target for step in place.steps),
        at=line_text(source),
        code="" if source is None else source.code,
        lines=lines,
        gradients=tuple(
            (port_of.get(name, name), error)
            for name, error in zip(place.inputs, place.errors, strict=True)
            if error > NEAR
        ),
        function=target if by_formula or target in DRAWS_BY_REJECTION else function_of(place, setting, opaque),
        modules=(source.module,) if source is not None and source.module else (),
        names=tuple(step.name for step in place.steps),
    )


def line_text(source: Source | None) -> str:
    """Return the file and the line of a source, `model.py:12`, or words for none."""
    return "a line that is not known" if source is None else source.at


def _lines_of(place: WrongPlace) -> tuple[str, ...]:
    """Return the lines of the backward that computed the gradients of a place: those in the `backward` of a Function,
    if there are any."""
    sources = [step.source for step in place.backward_steps if step.source is not None]
    in_backward = [source for source in sources if source.function == "backward"]
    return tuple(dict.fromkeys(map(line_text, in_backward or sources)))


def function_of(place: WrongPlace, setting: Setting, opaque: Sequence[OpaqueEdge]) -> str:
    """Return what a place is to be blamed on: the name of the custom autograd.Function that it is in, `hook`, `detach`
    or `no_grad` where that is why a gradient is missing, an operator whose own gradient is known to be wrong
    (CORRECTED), or ''."""
    names_without_gradient = [
        name
        for name, gradient, error in zip(place.inputs, place.returned, place.errors, strict=True)
        if error > NEAR and gradient is None
    ]
    if place.steps[0].target == DETACH:
        return "detach"
    cuts = _cuts_before(setting, opaque)
    # What cuts a missing gradient off lies before the place, or at its last step.
    kinds = [cuts[name] or cuts[place.steps[-1].name] for name in names_without_gradient]
    if kinds and all(kind == {"detach"} for kind in kinds):
        return "detach"
    is_hook = any(edge.is_hook for edge in opaque) and _has_step_of_hook(place, setting)
    for step in (*place.backward_steps, *place.steps):
        if (edge := _edge_of_line(step.source, opaque)) is not None:
            # With a hook, the Function is blamed only for a place that has nothing else.
            is_only_function = all(step.source is None or line_text(step.source) in edge.lines for step in place.steps)
            return edge.function if is_only_function or not is_hook else "hook"
    if is_hook:
        return "hook"
    if len(place.steps) == 1 and place.steps[0].target in CORRECTED:
        return place.steps[0].target
    return "no_grad" if kinds and all(kinds) else ""


def _has_step_of_hook(place: WrongPlace, setting: Setting) -> bool:
    """Whether a step of the backward at a place has a line that no step of the forward has: the line of a hook, or of
    the backward of a custom autograd.Function. A step of autograd's own has the line of the forward's call."""
    forward_lines = {
        (s.source.file, s.source.line, s.source.function) for s in setting.forward.steps if s.source is not None
    }
    sources = [step.source for step in place.backward_steps if step.source is not None]
    return any((source.file, source.line, source.function) not in forward_lines for source in sources)


def _cuts_before(setting: Setting, opaque: Sequence[OpaqueEdge]) -> dict[str, frozenset[str]]:
    """Return for each value of the forward what cuts all ways from inputs with gradients to it: `detach`, `no_grad`, or
    both. The set is empty if a way is open, or if no input with a gradient leads to the value. A `no_grad` in a custom
    autograd.Function does not count: its forward always runs so."""
    lines_of_functions = {line for edge in opaque if edge.kind == "function" for line in edge.lines}
    without_grad = {
        (edge.source.file, edge.source.line)
        for edge in opaque
        if edge.kind == "no_grad" and edge.source and line_text(edge.source) not in lines_of_functions
    }
    nothing = frozenset[str]()
    cuts = {port.local: nothing for port in setting.forward.inputs}
    connected = {port.local for port in setting.forward.inputs if port.name in setting.gradients}
    for step in setting.forward.steps:
        names = values_taken_by(step)
        cuts_of_arguments = nothing.union(*(cuts[name] for name in names))
        is_connected = bool(connected.intersection(names))
        place = None if step.source is None else (step.source.file, step.source.line)
        cut = "detach" if step.target == DETACH else "no_grad" if place in without_grad else ""
        if cut and (cuts_of_arguments or is_connected):
            cuts[step.name] = cuts_of_arguments | {cut}
        elif is_connected:
            cuts[step.name] = nothing
            connected.add(step.name)
        else:
            cuts[step.name] = cuts_of_arguments
    return cuts


def merge_repeated_places(places: Sequence[WrongGradient]) -> list[WrongGradient]:
    """Return the places, with places of the same operators and lines as one, as a loop or a repeated layer has them."""
    groups: dict[tuple[Any, ...], list[WrongGradient]] = {}
    for place in places:
        groups.setdefault((place.operators, place.at, place.lines, place.function), []).append(place)
    return [
        replace(
            group[0], times=len(group), modules=tuple(dict.fromkeys(path for place in group for path in place.modules))
        )
        for group in groups.values()
    ]
