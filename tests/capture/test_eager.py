"""Engine eager: what one real step ran is the graph, and nothing of the caller's has moved."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch._dynamo  # it wraps torch.manual_seed when it is first imported
from programs import PROGRAMS
from steps import STEPS
from torch import Tensor, nn

import backprint as bp
from backprint.graph.nouns import Graph
from backprint.graph.text import parse

QUIET = pytest.mark.filterwarnings(
    "ignore:.*jit.*:DeprecationWarning",
    "ignore:.*nested tensors.*:UserWarning",
    "ignore:None of the inputs have requires_grad:UserWarning",
)


def of_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """A tensor's identity, content, version and gradient."""
    gradient = tensor.grad if tensor.is_leaf else None
    return (
        id(tensor),
        tensor.detach().tolist(),
        tensor._version,
        tensor.requires_grad,
        None if gradient is None else (id(gradient), gradient.tolist(), gradient._version),
    )


def of_kept(thing: Any) -> Any:
    """Everything that a run could change in a module, an optimizer or a tensor."""
    match thing:
        case Tensor():
            return of_tensor(thing)
        case nn.Module():
            tensors = [*thing.named_parameters(), *thing.named_buffers()]
            flags = [(name, module.training, sorted(vars(module))) for name, module in thing.named_modules()]
            return [(name, of_tensor(tensor)) for name, tensor in tensors], flags
        case torch.optim.Optimizer():
            state = [
                (id(key), name, of_tensor(value) if isinstance(value, Tensor) else repr(value))
                for key, found in thing.state.items()
                for name, value in found.items()
            ]
            groups = [{key: value for key, value in group.items() if key != "params"} for group in thing.param_groups]
            return state, repr(groups)
    raise TypeError(type(thing))


def of_process() -> dict[str, Any]:
    """Everything of the process that a run could change."""
    numbers = numpy.random.get_state()
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": (numbers[0], numbers[1].tolist(), *numbers[2:]),
        "python": random.getstate(),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "seeding": torch.manual_seed,
        "has_torch_function": torch.autograd.has_torch_function,
    }


def picture(*things: Any) -> Any:
    return [of_kept(thing) for thing in things], of_process()


def graphs(capture: bp.Capture) -> list[Graph]:
    return [graph for pair in capture.pairs for graph in (pair.forward, pair.backward) if graph is not None]


def proved(capture: bp.Capture) -> str:
    """The verdict; of one without a backward, its forward's ports all bitwise."""
    (verdict,) = capture.verify()
    if verdict.verdict == "undifferentiable":
        assert "the forward is bitwise" in verdict.detail
    else:
        assert verdict.verdict == "bitwise", verdict.detail
    return verdict.verdict


# ------------------------------------------------------------------ hard programs


@QUIET
@pytest.mark.parametrize("name", STEPS)
def test_step_is_captured_right(name: str, tmp_path: Path) -> None:
    target, args, kept = STEPS[name]()
    before = picture(*kept, *args)
    capture = bp.capture(target, args=args, engine="eager")
    assert picture(*kept, *args) == before
    for graph in graphs(capture):
        assert parse(graph.code) == graph
        assert parse(graph.code).hash() == graph.hash()
    verdict = proved(capture)
    assert picture(*kept, *args) == before
    capture.save(tmp_path / "sample")
    assert picture(*kept, *args) == before
    assert proved(bp.load(tmp_path / "sample")) == verdict
    assert (capture.pairs[0].backward is None) == (verdict == "undifferentiable")


@QUIET
@pytest.mark.parametrize("name", STEPS)
def test_step_is_taken_by_auto(name: str) -> None:
    target, args, _ = STEPS[name]()
    capture = bp.capture(target, args=args)
    assert proved(capture)
    assert bool(capture.why) == (capture.engine != "aot")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_captured_right_by_eager(name: str) -> None:
    target, args, kwargs = PROGRAMS[name]()
    capture = bp.capture(target, args=args, kwargs=kwargs, engine="eager")
    assert all(parse(graph.code) == graph for graph in graphs(capture))
    proved(capture)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_captured_right_with_its_updates_in_place(name: str) -> None:
    target, args, kwargs = PROGRAMS[name]()
    try:
        capture = bp.capture(target, args=args, kwargs=kwargs, engine="eager", functional=False)
    except bp.CaptureError as error:
        assert "leave functional=True" in str(error)  # noqa: PT017  # the one reason for which this form is refused
        return
    proved(capture)
