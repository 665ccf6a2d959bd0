"""Whether a compiler differentiates a forward by itself as autograd does.

A bench gives compilers the captured forward and the captured backward, each as a graph, so what AOTAutograd makes of a
forward that requires grad is not in them. Here the forward alone goes through `torch.compile`, as a user's model does,
and its gradients are compared with those of autograd on the same graph in eager.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from backprint.child.strangers import CompilerFailed, compiler_errors
from backprint.graph.fx.to_fx import to_fx
from backprint.tools.bench.compilers.table import Compiler
from backprint.tools.bench.compilers.timed import compile_to_differentiate, read_all_settings, restore_settings
from backprint.tools.bench.gradients import forward_alone, gradients_of
from backprint.tools.bench.judge import judged_output
from backprint.tools.export.judged import Eager, widened_class
from backprint.tools.export.rerun import EagerRun, copies, rebuilt
from backprint.tools.jobs.task import one_line
from backprint.tools.lowering.subjects import BenchStep, current_random_state, graph_classes, steps_that_draw


@dataclass(frozen=True, slots=True)
class _EagerGradients:
    """The gradients of a graph in eager, for an EagerRun in the place of the class of a graph: calling it, as a class
    is called, returns a function from the graph's inputs to its gradients. `module` is the class of the graph itself,
    `places` are the inputs whose gradients are wanted, and tangents are drawn from the seed."""

    module: Any
    places: tuple[int, ...]
    seed: int

    def __call__(self) -> Callable[..., Any]:
        return partial(gradients_of, self.module(), self.places, self.seed)

    def widened(self) -> _EagerGradients:
        """Return the same in float64."""
        return replace(self, module=widened_class(self.module))


def fault_of_gradients(compiler: Compiler, step: BenchStep) -> tuple[str, str]:
    """Return why a gradient that `torch.compile` computes by itself is wrong, or an empty text, and a note, which says
    why it was not compared, or that it is right ('' if it is wrong). Only what differs from autograd is a fault:
    raising is none."""
    graph = forward_alone(step.forward.graph)
    names = {port.name for port in step.backward.graph.by_role("gradient")}
    places = tuple(place for place, port in enumerate(graph.inputs) if port.name in names)
    if steps_that_draw(graph):
        return "", "how torch.compile differentiates it is not looked at: it draws random numbers"
    (module,) = graph_classes({"forward": graph}).values()
    seed = int.from_bytes(os.urandom(6), "little")
    # `rebuilt` gives the class its text, which a run in float64 changes (`judged.widened_class`).
    gradients = _EagerGradients(rebuilt(module, inspect.getsource(module)), places, seed)
    outputs = [("gradient", graph.inputs[place].name) for place in places]
    run = EagerRun(gradients, copies(step.forward.run.inputs), current_random_state(), outputs, results=())
    try:
        run = replace(run, results=run.again(run.module()))
    except Exception as error:
        # An operator without a derivative: the captured backward is then not what autograd makes of this graph.
        return "", one_line(f"how torch.compile differentiates it is not looked at: eager raises {error}")
    settings = read_all_settings()  # a compiler may change torch's own
    try:
        with compiler_errors():
            function = compile_to_differentiate(compiler, to_fx(graph))
            results = gradients_of(function, places, gradients.seed, *copies(step.forward.run.inputs))
    except CompilerFailed as error:
        return "", one_line(f"torch.compile does not differentiate it by itself: {error}")
    finally:
        restore_settings(settings)
    eager = Eager(run, gradients())  # nothing is drawn, so the second argument, the compiled form, is not called
    for place, value in enumerate(results):
        word, detail = judged_output(eager, place, value)
        if word == "wrong":
            return one_line(
                f"torch.compile, which differentiates it by itself: {' '.join(outputs[place])}: {detail}"
            ), ""
    return "", f"the gradients of torch.compile, which differentiates it by itself, are right: {len(places)}"
