"""The texts of a task's folder: `reference.py`, `inputs.py`, `solution.py` and `README.md`; no torch is needed.

A Graph is one direction of a program: steps, each a call of an operator, and ports, its inputs and outputs. A port has
a name, a role, a spec (dtype, shape, strides), a Python name in the text of the graph (`local`), and a `key` of role
and name, by which a saved port of the forward is found among the inputs of the backward. `wanted` are the inputs that
have a gradient. `shown` are the places, among the forward's results, of those that a solution returns: not the saved
ones.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence

from backprint import run_sample
from backprint.graph.nouns import Graph, Port, Step, TensorSpec
from backprint.graph.steps import specs_of
from backprint.graph.text import HEADER, emit_class
from backprint.judge import occasions
from backprint.run_sample import Recipe
from backprint.tools.cost.costs import is_view
from backprint.tools.tasks.nouns import Task, TaskPort, TaskWork

# ---- reference.py: the graphs as functions


def reference_text(task: Task, forward: Graph, backward: Graph, wanted: Sequence[str]) -> str:
    """Return `reference.py`: the two graphs as classes, and an autograd.Function of both, which gives the backward what
    it takes, and the gradients to the inputs."""
    shown = [
        index
        for index, port in enumerate(forward.outputs)
        if port.role in ("output", "mutation") and isinstance(port.spec, TensorSpec)
    ]
    sources = [_source_of_backward(port, forward) for port in backward.inputs]
    gradients = {port.name: place for place, port in enumerate(backward.outputs)}
    returned = [str(gradients[port.name]) if port.name in wanted else "None" for port in forward.inputs]
    without_tangent = _places_without_tangent(forward, backward, shown)
    lines = [
        f'"""The reference of the task {task.name}: PyTorch alone, as it was captured.',
        "",
        "`Forward` returns the results, followed by what its backward takes; `Backward` returns the gradients.",
        f"`Reference.apply({', '.join(port.local for port in forward.inputs)})` is both, and returns the results.",
        '"""',
        "",
        HEADER,
        "",
        *emit_class(forward, "Forward", ""),
        "",
        "",
        *emit_class(backward, "Backward", ""),
        "",
        "",
        "forward_graph, backward_graph = Forward(), Backward()",
        "",
        "",
        "class Reference(torch.autograd.Function):",
        "    @staticmethod",
        "    def forward(ctx, *inputs):",
        f"        inputs = [laid(*pair) for pair in zip(inputs, {_strides_of_inputs(forward)})]",
        "        results = forward_graph(*inputs)",
        "        ctx.values = (inputs, results)",
        f"        shown = tuple(results[place].clone() for place in {shown})",
        f"        ctx.mark_non_differentiable(*(shown[place] for place in {without_tangent}))",
        "        return shown",
        "",
        "    @staticmethod",
        "    def backward(ctx, *tangents):",
        "        inputs, results = ctx.values",
        f"        tangents = [laid(*pair) for pair in zip(tangents, {_strides_of_tangents(forward, backward, shown)})]",
        f"        gradients = backward_graph({', '.join(source_text(source, forward, shown) for source in sources)})",
        "        gradients = [dense(gradient) for gradient in gradients]",
        f"        return ({''.join(f'{_at_place(text)}, ' for text in returned).rstrip()})",
        "",
        "",
        "def laid(value, stride):",
        '    """Return a tensor in the memory that the graphs were captured for; kernels may depend on it."""',
        "    if stride is None:",
        "        return value.contiguous()",
        "    if stride in ((), value.stride()):",
        "        return value",
        "    place = torch.empty_strided(value.shape, stride, dtype=value.dtype, device=value.device)",
        "    return place.copy_(value)",
        "",
        "",
        "def dense(gradient):",
        "    is_sparse = isinstance(gradient, torch.Tensor) and gradient.layout is not torch.strided",
        "    return gradient.to_dense() if is_sparse else gradient",
        "",
        "",
        "Solution = Reference",
    ]
    return "\n".join(lines) + "\n"


def _at_place(text: str) -> str:
    """Return the expression of a gradient, from its place as text or `None`."""
    return text if text == "None" else f"gradients[{text}]"


def _places_without_tangent(forward: Graph, backward: Graph, shown: Sequence[int]) -> list[int]:
    """Return the places, among the results that are shown, of those without a tangent."""
    graded = {port.name for port in backward.by_role("tangent")}
    return [
        place
        for place, index in enumerate(shown)
        if forward.outputs[index].role != "output" or forward.outputs[index].name not in graded
    ]


def _strides_of_tangents(forward: Graph, backward: Graph, shown: Sequence[int]) -> list[tuple[int, ...] | None]:
    """Return, for each result that is shown, the strides of the tangent that the backward was captured for; None for
    contiguous ones, and for results without a tangent."""
    specs = {port.name: port.spec for port in backward.by_role("tangent")}
    ports = [forward.outputs[index] for index in shown]
    return [_stride_of(specs.get(port.name) if port.role == "output" else None) for port in ports]


def _strides_of_inputs(forward: Graph) -> list[tuple[int, ...] | None]:
    """Return the strides of the inputs that the forward was captured for: None for contiguous ones, () for those that
    stay as they are, because a stride is 0 or no number."""
    specs = [port.spec for port in forward.inputs]
    return [
        ()
        if isinstance(spec, TensorSpec) and spec.stride is not None and _stride_of(spec) is None
        else _stride_of(spec)
        for spec in specs
    ]


def _stride_of(spec: object) -> tuple[int, ...] | None:
    """Return the strides of a tensor; None for a contiguous one, and where a stride is 0 or no number."""
    stride = spec.stride if isinstance(spec, TensorSpec) else None
    known = stride is not None and all(isinstance(step, int) and step > 0 for step in stride)
    return tuple(step for step in stride or () if isinstance(step, int)) if known else None


def _source_of_backward(port: Port, forward: Graph) -> tuple[str, int]:
    """Return where an input of the backward comes from: `tangents`, or `results` or `inputs` of the forward, and the
    place there. The place of a tangent is that of its result among all results of the forward; `source_text` finds it
    among those that are shown."""
    if port.role == "tangent":
        names = [other.name if other.role == "output" else "" for other in forward.outputs]
        return "tangents", names.index(port.name)
    keys = [other.key for other in forward.outputs]
    if port.key in keys:
        return "results", keys.index(port.key)
    return "inputs", [other.name for other in forward.inputs].index(port.name)


def source_text(source: tuple[str, int], forward: Graph, shown: Sequence[int]) -> str:
    """Return the expression of an input of the backward in `reference.py`, such as `results[3]`, from its source
    (`_source_of_backward`)."""
    kind, place = source
    return f"{kind}[{shown.index(place) if kind == 'tangents' else place}]"


# ---- inputs.py: recipes as code

DRAWS: Mapping[str, str] = {
    "normal": '''
def normal(source, shape, dtype, mean, std, low, high):
    """Return normal numbers between two bounds."""
    drawn = torch.randn(shape, generator=source, dtype=torch.float64) * std + mean
    return drawn.clamp(low, high).to(dtype)
''',
    "uniform": '''
def uniform(source, shape, dtype, low, high):
    """Return even numbers between two bounds."""
    return (torch.rand(shape, generator=source, dtype=torch.float64) * (high - low) + low).to(dtype)
''',
    "integers": '''
def integers(source, shape, dtype, low, high):
    """Return whole numbers, both bounds included."""
    return torch.randint(low, high + 1, shape, generator=source).to(dtype)
''',
    "choice": '''
def choice(source, shape, dtype, values, weights):
    """Return some of a few values, as often as their weights say."""
    count = torch.Size(shape).numel()
    places = torch.multinomial(torch.tensor(weights, dtype=torch.float64), count, True, generator=source)
    return torch.tensor(values, dtype=dtype)[places].reshape(shape)
''',
    "permutation": '''
def permutation(source, shape, dtype, low):
    """Return whole numbers from a lowest on, each once."""
    return (torch.randperm(torch.Size(shape).numel(), generator=source) + low).to(dtype).reshape(shape)
''',
    "constant": '''
def constant(source, shape, dtype, value):
    """Return one value everywhere."""
    return torch.full(shape, value, dtype=dtype)
''',
    "values": '''
def values(source, shape, dtype, values):
    """Return these values."""
    return torch.tensor(values, dtype=dtype).reshape(shape)
''',
    "kept": '''
def kept(source, shape, dtype, name):
    """Return the captured tensor: no rule makes it."""
    return read_safetensors(Path(__file__).parent / "sample" / "tensors.safetensors")[name].reshape(shape)
''',
}

SHAPED = frozenset({"normal", "uniform", "integers", "choice", "permutation", "constant"})
"""Kinds of recipes that have no place in memory of their own."""

VARIANTS = (
    occasions.transposed,
    occasions.strided,
    occasions.sliced,
    occasions.expanded,
    occasions.with_edge,
)
"""The judge's own functions that `inputs.py` has."""


def inputs_text(task: Task, recipes: Mapping[str, Recipe], ports: Sequence[Port]) -> str:
    """Return `inputs.py`, which draws the inputs as their recipes do. `ports` are the inputs in order, at the captured
    sizes. It has only those functions of DRAWS that some input calls."""
    rows = [_input_row(port, recipes.get(port.name)) for port in ports]
    kinds = [kind for kind in DRAWS if any(row.startswith(f"{kind}(") for row in rows)]
    lines = [
        f'"""Inputs of the task {task.name}, drawn anew from a seed.',
        "",
        "The judge draws from the same distributions, at the same sizes and others, when it checks a solution.",
        '"""',
        "",
        *(["import json"] if "kept" in kinds else []),
        "import math",
        *(["from pathlib import Path"] if "kept" in kinds else []),
        "",
        "import torch",
        "from torch import Tensor",
        "",
        "",
        "def draw(seed=0):",
        '    """Return the inputs in the order in which a solution takes them."""',
        "    source = torch.Generator().manual_seed(seed)",
        "    return (",
        *(f"        {row},  # {port.name}" for row, port in zip(rows, ports, strict=True)),
        "    )",
        "",
    ]
    text = "\n".join(lines) + "\n" + "\n".join(DRAWS[kind].rstrip() + "\n" for kind in kinds)
    if "kept" in kinds:
        names = ", ".join(f'"{short}": "{name}"' for short, name in run_sample.SAFE_DTYPES.items())
        text += f"\n\nSAFE_DTYPES = {{{names}}}\n\n\n"
        text += inspect.getsource(run_sample.read_safetensors).replace(": Path) -> dict[str, Any]", ")")
    text += "\n\n# ---- The same inputs otherwise: in other memory, and with values that break kernels\n"
    text += "".join(f"\n\n{inspect.getsource(function)}" for function in VARIANTS)
    return f"{text}\n\nEDGES = {number(tuple(occasions.EDGES.values()))}\n"


def _input_row(port: Port, recipe: Recipe | None) -> str:
    """Return the expression that draws one input, a call of a function of DRAWS: by its recipe, of a few given values,
    or, where no rule makes it, from the sample."""
    spec = port.spec
    assert isinstance(spec, TensorSpec)
    start = f"source, {_show_shape(spec)}, torch.{spec.dtype}"
    if recipe is None:  # the program's own random numbers: of a dropout the mask, scaled
        return f"choice({start}, values=(0.0, 1.0), weights=(1, 1))"
    facts = dict(recipe.facts)
    if recipe.kind in SHAPED:
        return f"{recipe.kind}({start}, {', '.join(f'{key}={number(value)}' for key, value in facts.items())})"
    if recipe.kind == "values" and recipe.extent == spec.numel and spec.numel <= MOST_VALUES:
        return f"values({start}, values={number(facts['values'])})"
    return f"kept({start}, name={port.name!r})"


MOST_VALUES = 64
"""The most elements whose values are written into `inputs.py`."""


def number(value: object) -> str:
    """Return a fact of a recipe as an expression of Python: repr has no form for NaN and infinities."""
    if isinstance(value, tuple):
        return f"({', '.join(map(number, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


def _show_shape(spec: TensorSpec) -> str:
    """Return the shape as a tuple."""
    sizes = [str(size) for size in spec.shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


# ---- solution.py: the stub


def _identifiers(ports: Sequence[TaskPort]) -> list[str]:
    """Return a Python name for each port, no two alike."""
    names: list[str] = []
    for port in ports:
        name = re.sub(r"\W", "_", port.name)
        name = f"_{name}" if name[:1].isdigit() or keyword.iskeyword(name) else name
        while name in names or name in ("ctx", "torch"):
            name += "_"
        names.append(name)
    return names


def solution_text(task: Task) -> str:
    """Return `solution.py`, a stub: an autograd.Function with the names of the task's ports, which raises."""
    inputs, outputs = _identifiers(task.inputs), _identifiers(task.outputs)
    tangents = [
        f"tangent_{name}" if port.differentiable else f"_{name}"
        for name, port in zip(outputs, task.outputs, strict=True)
    ]
    gradients = [
        f"gradient_{name}" if port.differentiable else "None" for name, port in zip(inputs, task.inputs, strict=True)
    ]
    wrapped_inputs, wrapped_tangents = arguments(["ctx", *inputs]), arguments(["ctx", *tangents])
    return "\n".join(
        [
            f'"""Your solution of the task {task.name}: see README.md. `backprint task check` judges it."""',
            "",
            "import torch",
            "",
            "",
            "class Solution(torch.autograd.Function):",
            "    @staticmethod",
            f"    def forward({wrapped_inputs}):",
            f'        """Return {" and ".join(outputs) if len(outputs) < 3 else "the results"}. Save what you like."""',
            "        ctx.save_for_backward()",
            '        raise NotImplementedError("the forward")',
            f"        return {', '.join(outputs)}",
            "",
            "    @staticmethod",
            f"    def backward({wrapped_tangents}):",
            '        """Return a gradient for each input, None where there is none."""',
            '        raise NotImplementedError("the backward")',
            f"        return {', '.join(gradients)}",
            "",
        ]
    )


def arguments(names: Sequence[str]) -> str:
    """Return arguments on one line, or, if that is too long, on lines of their own below a `def` in a class."""
    line = ", ".join(names)
    return line if len(line) < 90 else "\n" + "".join(f"        {name},\n" for name in names) + "    "


# ---- README.md


def readme_text(task: Task, forward: Graph) -> str:
    """Return `README.md`."""
    return "\n".join(_readme_lines(task, forward)) + "\n"


def _readme_lines(task: Task, forward: Graph) -> Iterator[str]:
    """Yield the lines of `README.md`, a section after the other: what to write, its ports, what counts, the work."""
    calls = [step for step in forward.steps if not step.is_guard and step.target != "operator.getitem"]
    yield f"# {task.name}"
    yield ""
    yield (
        f"Write the forward and the backward of this part of a model as one `torch.autograd.Function`. It has "
        f"{count(len(calls), 'operator')} in its forward; `reference.py` is what it computes, in plain PyTorch."
    )
    yield ""
    yield _what_it_computes(calls, forward)
    yield from _where_in_model(forward)
    yield ""
    yield "## Ports"
    yield ""
    yield from _ports_table(task)
    yield ""
    yield "The forward takes the inputs in this order, as tensors, and returns the results in this order."
    if any(port.name.startswith("new ") for port in task.outputs):
        yield "What the model writes into a buffer is a result here: `new NAME`. No input is written to."
    if any(port.role == "rng" for port in task.inputs):
        yield "The model's own random numbers are inputs here: draw none."
    yield ""
    yield "## What counts"
    yield ""
    yield from rules(task)
    yield ""
    yield "## The least that any solution does"
    yield ""
    yield "| | operations | bytes read and written |"
    yield "|---|---|---|"
    yield _work_row("forward", task.forward)
    yield _work_row("forward and backward", task.step)
    yield ""
    yield (
        "What the forward saves for the backward counts nothing here: a solution may save much, little or nothing, and "
        "compute again what it needs."
    )
    if task.seconds:
        yield ""
        measured = ", ".join(f"{what} {1e6 * seconds:.1f} µs" for what, seconds in task.seconds)
        yield f"Measured where the task was made, a step takes: {measured}."


def _what_it_computes(calls: Sequence[Step], forward: Graph) -> str:
    """Return the different operators of these steps in a line, `**What it computes**: mm, add, tanh.`; views count only
    if there is nothing else. Beyond MOST_NAMED they are left out."""
    specs = specs_of(forward)
    computing = [step for step in calls if not is_view(step, specs)]
    operators = list(dict.fromkeys(_short_operator(step.target) for step in computing or calls))
    more = " …" if len(operators) > MOST_NAMED else ""
    return f"**What it computes**: {', '.join(operators[:MOST_NAMED])}{more}."


def _where_in_model(forward: Graph) -> Iterator[str]:
    """Yield the lines of the model that the steps come from, as a block of code of at most MOST_LINES; nothing if none
    is known."""
    lines = list(dict.fromkeys(line_of(step.source) for step in forward.steps if step.source is not None))
    if not lines:
        return
    yield ""
    yield "**Where in the model**:"
    yield ""
    yield "```"
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"… and {len(lines) - MOST_LINES} more lines"
    yield "```"


def _ports_table(task: Task) -> Iterator[str]:
    """Yield the table of inputs and results, with whether each has a gradient or a tangent."""
    yield "| | name | what | dtype | shape | gradient |"
    yield "|---|---|---|---|---|---|"
    for side, ports, differentiable in (("in", task.inputs, "yes"), ("out", task.outputs, "has a tangent")):
        for port in ports:
            gradient = differentiable if port.differentiable else "–"
            yield f"| {side} | `{port.name}` | {port.role} | {port.dtype} | [{', '.join(port.shape)}] | {gradient} |"


def rules(task: Task) -> Iterator[str]:
    """Yield what counts in a task, a point of a list each."""
    sizes = "at these sizes and at others" if task.sized else "at these sizes"
    yield (
        f"- Every result and every gradient is right {sizes}, for inputs that are drawn when a solution is checked. "
        "How far it may be off follows from float64 and from eager's own error; `task.json` has both."
    )
    yield (
        "- Tangents may be random, one-hot, zero in places, expanded (stride 0), transposed, or cut out of others: "
        "autograd passes such ones."
    )
    yield "- Inputs may be transposed, strided or sliced. Raise for memory that you do not take: that is no fault."
    yield "- Inputs may have zeros, equal values, small and large ones, ±inf and NaN where the reference takes them."
    if task.dtypes:
        yield f"- {', '.join(task.dtypes)} are tried too. Raise for a dtype that you do not take: that is no fault."
    if task.is_derivative:
        yield "- The backward is the derivative of your own forward."
    else:
        yield (
            "- The reference's backward is not the derivative of its forward, as the model's author wants it: the "
            "gradients are those of `reference.py`."
        )
    yield "- Two equal calls return the same. No input and no tangent is written to. No result is a view of an input."
    yield "- Results stay what they were: no buffer is used again, nothing is remembered from one call to the next."
    yield "- Every call is compared, those that are timed too."


MOST_NAMED = 12
"""The most operators that `README.md` names."""

MOST_LINES = 12
"""The most lines of the model that `README.md` shows."""


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _work_row(what: str, work: TaskWork) -> str:
    return f"| {what} | {work.flops:,} | {work.bytes:,} |"


def _short_operator(target: str) -> str:
    """Return an operator's name without its namespace and its overload: `aten.mm.default` -> `mm`."""
    parts = target.split(".")
    return parts[1] if len(parts) > 1 else target


def line_of(source: object) -> str:
    """Return the line of the model that a step comes from: `[MODULE] FILE:LINE  CODE`."""
    module = getattr(source, "module", "")
    text = f"{getattr(source, 'file', '')}:{getattr(source, 'line', '')}  {getattr(source, 'code', '')}"
    return f"[{module}] {text}" if module else text
