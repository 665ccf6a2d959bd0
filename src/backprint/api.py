"""The face: what users call. The only place that joins rooms; torch and the rooms are imported when first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backprint.graph.nouns import Capture, Graph

UNSET: Any = object()


def capture(
    target: Callable[..., Any],
    *args: Any,
    engine: str = "auto",
    partition: str | Callable[..., Any] = "min-cut",
    decompose: Mapping[Any, Callable[..., Any]] | None = None,
    mode: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    requires_grad: Any = None,
    specialise: bool = False,
    name: str | None = None,
    **kwargs: Any,
) -> Capture:
    """Capture the forward and backward graphs of `target(*args, **kwargs)`.

    `bp.capture(model, args=(x,), kwargs={"name": n})` is always unambiguous. Everything of the caller's (tensors,
    gradients, buffers, random states, modes) is as it was afterwards.
    """
    from dataclasses import replace

    from backprint.capture.entry import capture_call
    from backprint.sample.inputs import fit_inputs

    options = dict(
        engine=engine, partition=partition, decompose=decompose, mode=mode, loss=loss,
        requires_grad=requires_grad, specialise=specialise, name=name,
    )  # fmt: skip
    args, kwargs = call_of(target, args, kwargs, options)
    made = capture_call(target, args, kwargs, **options)
    return replace(made, recipes=fit_inputs(made, made.origin.values()))


def call_of(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's own arguments; a name that is both an option of ours and a parameter of the target's raises."""
    import inspect

    from backprint.errors import UsageError

    if not args and set(kwargs) <= {"args", "kwargs"} and isinstance(kwargs.get("args", ()), (tuple, list)):
        if kwargs:
            return tuple(kwargs.get("args", ())), dict(kwargs.get("kwargs") or {})
    try:
        parameters = inspect.signature(getattr(target, "forward", target)).parameters
    except (TypeError, ValueError):
        return args, kwargs
    both = [key for key, value in options.items() if key in parameters and value != _DEFAULTS[key]]
    if both:
        raise UsageError(
            f"{both[0]!r} is an option of bp.capture and a parameter of the captured function: "
            f"write bp.capture(f, args=(...), kwargs={{{both[0]!r}: ...}})"
        )
    return args, kwargs


_DEFAULTS: dict[str, Any] = {
    "engine": "auto", "partition": "min-cut", "decompose": None, "mode": None, "loss": None,
    "requires_grad": None, "specialise": False, "name": None,
}  # fmt: skip


def replay(
    capture: Capture,
    *args: Any,
    state: Mapping[str, Any] | None = None,
    tangents: Sequence[Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Run a Capture on new arguments: `.outputs` as the model gives them, `.gradients`, `.mutations` by name."""
    from backprint.replay.whole import replay as whole

    return whole(capture, args, kwargs, state, tangents)


def run(graph: Graph, inputs: Mapping[str, Any] | Sequence[Any]) -> tuple[Any, ...]:
    """Run one direction alone, on inputs by port name or in port order."""
    from backprint.replay.run import run as run_graph

    return run_graph(graph, inputs)


def verify(capture: Capture, draws: tuple[str, ...] | None = None) -> list[Any]:
    """Prove every Pair against the original program: a list of Verdicts."""
    from backprint.replay.verify import DRAWS, verify as prove

    return prove(capture, draws or DRAWS)


def save(capture: Capture, path: Any, data: str = "seed", allow: Sequence[str] = (), overwrite: bool = False) -> Any:
    """Write a Capture as a sample: readable, self-contained, with its verdict."""
    from backprint.sample.save import save as write

    return write(capture, path, data, allow, overwrite)


def load(path: Any, allow: Sequence[str] = ()) -> Capture:
    """Read a sample. Runs none of its code; a graph is parsed and checked when first asked for."""
    from backprint.sample.load import load as read

    return read(path, allow)


def _to_fx(graph: Graph) -> Any:
    """A torch.fx.GraphModule that computes the same."""
    from backprint.replay.run import to_fx

    return to_fx(graph)


Graph.to_fx = _to_fx  # type: ignore[method-assign]  # the face binds verbs of higher floors to the nouns
Capture.save = save  # type: ignore[method-assign]  # as above
Capture.verify = verify  # type: ignore[method-assign]  # as above
