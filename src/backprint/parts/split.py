"""Cut a Capture into parts, each a Capture with values of its own, proven against the whole.

The steps of the whole's backward between a part's borders are the part's backward (`SLICED`). If they do not separate,
or are not what autograd computes on fresh inputs, the part's forward is captured again (`DERIVED`), and the `why` of
its Capture has the reason. A part with an opaque edge cannot be captured again, and is refused by name.
"""

from __future__ import annotations

from dataclasses import replace

from backprint import settings
from backprint.choices import check_choice
from backprint.errors import BackprintError, RefusedError
from backprint.graph.fixed import at_capture, held_constant
from backprint.graph.nouns import Capture, Pair
from backprint.graph.verdicts import Verdict
from backprint.parts.backwards import Tangled, backward_of, with_saved
from backprint.parts.borders import borders_of
from backprint.parts.captures import PartOfWhole, capture_of_part
from backprint.parts.derived import derived
from backprint.parts.flow import played_pairs, runs_of_parts
from backprint.parts.linked import DividedPair, linked
from backprint.parts.nouns import Split, SplitPart
from backprint.parts.pairs import pair_of
from backprint.parts.pieces import kind_of, plan
from backprint.parts.proof import verdict_of_part
from backprint.sample.inputs import without_data

SLICED = "its backward is the whole's own steps"
DERIVED = "its backward is captured again from its forward"


def split_capture(capture: Capture, by: str, data: str = "seed") -> Split:
    """Cut a Capture. `data` says how a part keeps its inputs: recipes fitted to the values that the whole had at the
    borders (`"seed"`), these values (`"exact"`), or neither (`"none"`)."""
    kind_of(by)
    check_choice("data", data)
    if capture.fake:
        raise RefusedError(f"{capture.name} was captured without values, and a split proves its parts with them")
    whole = replace(capture, pairs=tuple(map(fixed_pair, capture.pairs)))
    cuts = [plan(pair.forward, by) for pair in whole.pairs]
    with settings.ONE_AT_A_TIME, settings.quiet_random(), settings.restored(dict(capture.environment)):
        played = played_pairs(whole)
        borders = [borders_of(whole, number, pieces) for number, pieces in enumerate(cuts)]
        runs = [runs_of_parts(*each) for each in zip(whole.pairs, borders, played, strict=True)]
        found = [
            [
                proven_part(PartOfWhole(whole, number, piece, part, edges, ran, data == "exact"))
                for piece, part, ran in zip(cuts[number], edges.parts, runs[number], strict=True)
            ]
            for number, edges in enumerate(borders)
        ]
    divided = [
        DividedPair(edges, tuple(part.capture.pairs[0] for part in parts))
        for edges, parts in zip(borders, found, strict=True)
    ]
    parts = tuple(part if data != "none" else without_recipes(part) for parts in found for part in parts)
    return Split(parts, linked(whole, divided))


def without_recipes(part: SplitPart) -> SplitPart:
    """Return a part without recipes for its inputs."""
    return replace(part, capture=replace(part.capture, recipes=without_data(part.capture.recipes)))


def fixed_pair(pair: Pair) -> Pair:
    """Return a Pair at its captured sizes, with numbers that guards fix as constants."""
    return Pair(
        pair.name,
        held_constant(at_capture(pair.forward)),
        at_capture(pair.backward) if pair.backward is not None else None,
    )


def proven_part(of: PartOfWhole) -> SplitPart:
    """Return one part as a Capture with its verdict."""
    if not of.part.gives and not of.part.results:
        made = capture_of_part(of, forward_alone(of), "it returns no tensor")
        return replace(judged_part(of, made, Verdict("undifferentiable", made.name, "returns no tensor")), wanted=False)
    whole_steps, why = tried_slice(of)
    if whole_steps is not None:
        return whole_steps
    check_opaque(of, why)
    try:
        pair = derived(of.pair.forward, of.borders, of.part, of.ran, of.piece.label)
    except BackprintError as error:
        said = f"{why}; and its forward alone cannot be captured: {error}"
        made = capture_of_part(of, forward_alone(of), said)
        return judged_part(of, made, Verdict("failed", made.name, said))
    made = capture_of_part(of, pair, f"{DERIVED}: {why}")
    return judged_part(of, made, verdict_of_part(of, made))


def judged_part(of: PartOfWhole, made: Capture, verdict: Verdict) -> SplitPart:
    return SplitPart(of.number, of.part.index, of.piece.label, of.piece.wanted, made, verdict, of.piece.count)


def forward_alone(of: PartOfWhole) -> Pair:
    """Return a part as a Pair without a backward."""
    return pair_of(of.pair, of.part, of.borders.names, of.piece.label)


def tried_slice(of: PartOfWhole) -> tuple[SplitPart | None, str]:
    """Return the part with the whole's own backward steps if that is proven; else why not."""
    if of.ran.why:
        return None, of.ran.why
    try:
        pair = sliced(of)
    except Tangled as error:
        return None, str(error)
    made = capture_of_part(of, pair, SLICED)
    verdict = verdict_of_part(of, made)
    if verdict.good:
        return judged_part(of, made, verdict), ""
    return None, f"as the whole's own steps it is {verdict.verdict}: {verdict.detail}"


def sliced(of: PartOfWhole) -> Pair:
    """Return a part as a Pair with the whole's own backward steps; raise Tangled if they cannot be separated."""
    pair, flow = of.pair, of.ran.flow
    if pair.backward is None or flow is None or not flow.gradients:
        return forward_alone(of)
    cut = backward_of(pair, of.part, of.borders.home, flow)
    part = with_saved(pair, of.part, cut.saved, of.borders)
    return pair_of(pair, part, of.borders.names, of.piece.label, flow, cut)


def check_opaque(of: PartOfWhole, why: str) -> None:
    """Refuse to capture a part again if autograd of its forward is not the program's gradient."""
    edges = of.opaque or (of.whole.opaque if of.ran.why else ())
    if not edges and not of.ran.astray:
        return
    unseen = f"would not see {edges[0].text} ({edges[0].kind})" if edges else ANOTHER.format(of.ran.astray)
    raise RefusedError(
        f"{of.whole.name}, {of.piece.label}: the backward cannot be separated here ({why}), and autograd of the "
        f"forward {unseen}: cut elsewhere, or leave that part whole"
    )


ANOTHER = "computes another gradient of {!r} than the program, which stops it somewhere (a detach, for example)"
