"""How far the reference's own result moves if its operators round otherwise.

For some inputs the reference is exact by accident: a softmax that has saturated at 1 in float32 leaves gradients of
exactly 0, where any other order of the same operations leaves rounding, times what it is multiplied with. What the
reference is off by from float64 does not show this; the reference with other rounding does. It takes several runs, so
only a row that is wrong without it is judged by it.

A Fault says which result of which call was found wrong. A Subject has the function that is checked, its reference, and
`times`, how many times as far off as rounding explains a result may be.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from backprint.derive.called import run_forward
from backprint.derive.checked import OK, WRONG
from backprint.derive.compared import Result, Subject, reference_gradients
from backprint.derive.reproduced import Fault
from backprint.judge.closeness import MEASURES, NUDGES, off_by, precise
from backprint.values.rounding import OtherRounding

DETAIL = "the reference moves as far if its operators round otherwise"


def excuse_rounding(subject: Subject, results: Iterator[Result]) -> Iterator[Result]:
    """Yield the rows; a wrong row becomes OK if its error is no larger than the distance by which the reference's own
    result moves when its operators round otherwise."""
    for row, fault in results:
        if row.verdict == WRONG and fault is not None and row.error is not None and math.isfinite(row.error):
            # The detail of a row says which measure its error is in, if it is not the largest difference.
            allowed = _moved_by_rounding(subject, fault, row.detail if row.detail in MEASURES else "")
            if row.error <= allowed:
                row = replace(row, allowed=allowed, verdict=OK, detail=DETAIL)
        yield Result(row, fault)


def _moved_by_rounding(subject: Subject, fault: Fault, measure: str) -> float:
    """Return how far the result that a Fault names may be from the reference's: `subject.times` as far as the
    reference's own moves if its operators round otherwise, in the largest difference, or in the norm where `measure` is
    it. 0 if the reference has no result in its own dtype."""
    own = reference_result(subject, fault, contextlib.nullcontext())
    if own is None:
        return 0.0
    # At most one unit in the last place for each operator, and more where it adds up.
    others = [reference_result(subject, fault, OtherRounding(seed, units=1.0)) for seed in range(NUDGES)]
    right = precise(own).flatten()
    offs = [off_by(precise(other).flatten(), right, unit=1.0) for other in others if other is not None]
    apart = (off.most if not measure else off.norm for off in offs)
    return subject.times * max(filter(math.isfinite, apart), default=0.0)


def reference_result(subject: Subject, fault: Fault, mode: contextlib.AbstractContextManager[object]) -> Tensor | None:
    """Return the reference's output or gradient that a Fault is about, on its values and in their dtype, computed under
    `mode`; None if the reference does not run so."""
    try:
        with mode:
            forward = run_forward(subject.reference.without_cache or subject.reference, fault.call, fault.values)
            gradients = reference_gradients(forward, fault.tangents) if fault.tangents else None
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return forward.outputs[fault.name] if gradients is None else gradients[fault.name]
