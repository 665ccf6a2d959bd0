"""Which engine `auto` asks next, and which of their captures it uses: decided without a program."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import backprint as bp
from face import (
    ENGINES,
    OTHER_ENGINE,
    Candidate,
    Capture,
    CaptureError,
    DataDependentError,
    Doubt,
    RefusedError,
    choose,
    other_engine,
)

UNSUPPORTED, REFUSED, DEFECT = "unsupported", "refused", "defect"
CONTROL_FLOW, VIEW_UPDATE, WRONG, OTHER_INPUTS = "control flow", "view update", "wrong", "other inputs"


def made(engine: str, cause: str = "") -> Candidate:
    """The Candidate of an engine that made a capture, with a doubt or none."""
    doubts = (Doubt(cause, f"{cause} of {engine}"),) if cause else ()
    return Candidate(engine, Capture("f", engine, ()), doubts=doubts)


def failed(engine: str, cause: str = REFUSED, error: Exception | None = None) -> Candidate:
    """The Candidate of an engine that made none."""
    return Candidate(engine, doubts=(Doubt(cause, f"{cause} by {engine}"),), error=error or CaptureError("no"))


def test_a_capture_without_doubts_is_used() -> None:
    assert choose("f", [made("eager")]) == made("eager").capture
    capture = choose("f", [made("eager", VIEW_UPDATE), made("aot")])
    assert (capture.engine, capture.why) == ("aot", ("eager: view update of eager",))


@pytest.mark.parametrize("cause", [CONTROL_FLOW, VIEW_UPDATE])
@pytest.mark.parametrize("other", [failed("aot"), failed("aot", DEFECT, KeyError()), made("aot", WRONG)])
def test_a_part_that_no_engine_expresses_better_is_captured_as_it_ran(cause: str, other: Candidate) -> None:
    capture = choose("f", [made("eager", cause), other])
    assert (capture.engine, capture.why) == ("eager", ())


def test_a_capture_that_is_right_on_the_captured_inputs_only_is_the_last_that_is_used() -> None:
    for first, second in itertools.permutations([made("eager", OTHER_INPUTS), made("aot", VIEW_UPDATE)]):
        assert choose("f", [first, second]).engine == "aot"
    assert choose("f", [made("eager", OTHER_INPUTS), made("aot", OTHER_INPUTS)]).engine == "eager"
    assert choose("f", [made("eager", WRONG), made("aot", OTHER_INPUTS)]).engine == "aot"


def test_a_wrong_capture_is_never_used() -> None:
    with pytest.raises(CaptureError, match=r"no engine captures f: wrong of eager"):
        choose("f", [made("eager", WRONG)])
    with pytest.raises(
        CaptureError, match=r"no engine captures f:\n  eager: refused by eager\n  aot: wrong of aot\nCapture a part"
    ):
        choose("f", [failed("eager"), made("aot", WRONG)])


def test_an_option_that_an_engine_lacks_is_a_reason_and_no_failure() -> None:
    lacking = Candidate("eager", doubts=(Doubt(UNSUPPORTED, "does not take fake=True"),))
    assert choose("f", [lacking, made("aot")]).why == ("eager: does not take fake=True",)
    with pytest.raises(CaptureError, match=r"^no engine captures f: refused by aot$"):
        choose("f", [lacking, failed("aot")])


def test_where_no_capture_is_used_the_gravest_error_is_raised() -> None:
    defect = KeyError("absent")
    with pytest.raises(KeyError, match="absent"):
        choose("f", [failed("eager"), failed("aot", DEFECT, defect)])
    with pytest.raises(RefusedError, match="qint8"):
        choose("f", [failed("eager", REFUSED, RefusedError("qint8")), failed("aot")])
    reads = [failed(engine, REFUSED, DataDependentError("reads")) for engine in ("eager", "aot")]
    with pytest.raises(DataDependentError, match=r"^no engine captures f: refused by eager$"):
        choose("f", reads)
    with pytest.raises(DataDependentError, match=r"^no engine captures f: refused by eager$"):
        choose("f", [failed("aot", "checkpoints"), *reads])  # no reason why there is no capture


def test_another_engine_is_asked_by_the_cause() -> None:
    assert other_engine([made("eager")], ()) == ""
    assert other_engine([made("eager", CONTROL_FLOW)], ()) == "dynamo"
    wrong = replace(made("eager", WRONG), doubts=(Doubt(WRONG, "differs"), Doubt(CONTROL_FLOW, "cond")))
    assert other_engine([wrong], ()) == "dynamo"  # which keeps the body that did not run, and its gradients
    compiled = replace(made("eager", WRONG), doubts=(Doubt(WRONG, "differs"), Doubt("compiled", "f")))
    assert other_engine([compiled], ()) == "dynamo"  # `aot` cannot trace a compiled function
    assert other_engine([made("eager", VIEW_UPDATE)], ()) == "aot"
    assert other_engine([failed("eager")], ()) == "aot"
    assert other_engine([failed("eager", "program", ValueError())], ()) == ""
    assert other_engine([failed("eager")], ("aot",)) == ""  # which lacks an option of the call
    assert other_engine([failed("eager"), failed("aot")], ()) == ""
    assert other_engine([failed("eager", UNSUPPORTED), failed("aot")], ("eager",)) == "dynamo"


def test_a_fake_program_that_checkpoints_goes_to_eager_and_back_if_it_cannot_be_recorded() -> None:
    lacking = "eager", "dynamo"
    candidates = [failed("eager", UNSUPPORTED), failed("aot", "checkpoints")]
    assert other_engine(candidates, lacking) == "eager"
    assert other_engine([*candidates, made("eager")], lacking) == ""
    assert other_engine([*candidates, failed("eager")], lacking) == "aot"
    assert other_engine([*candidates, failed("eager"), failed("aot")], lacking) == ""


def test_no_other_engine_is_asked_where_the_program_itself_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def asking(engine: str) -> Callable[..., Any]:
        make = ENGINES[engine].make

        def made_by(*args: Any) -> Any:
            asked.append(engine)
            return make(*args)

        return made_by

    for name, engine in ENGINES.items():
        monkeypatch.setitem(ENGINES, name, replace(engine, make=asking(name)))
    with pytest.raises(IndexError):
        bp.capture(lambda x: (x,)[1], torch.ones(2))
    assert asked == ["eager"]


def test_every_search_ends() -> None:
    causes = {cause for _, cause in OTHER_ENGINE} - {"checkpoints"}
    for first, cause, second in itertools.product(ENGINES, causes, causes):
        candidates = [failed(first, cause)]
        while (engine := other_engine(candidates, ())) and len(candidates) < 9:
            candidates.append(failed(engine, second))
        assert len(candidates) <= 2
