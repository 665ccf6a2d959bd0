"""The end of every `model.py`: `python model.py` executes `run_sample.py`, which is in the folder of the sample.

GraphNet's tools import a `model.py` and take its class GraphModule. They give it contiguous tensors, by name, and
compare tensors with elements. So the end of a graph that takes numbers or permuted tensors, or that returns anything
else, has another class GraphModule above that, which takes and returns what these tools do. It depends on the graph
alone: a reader compares the whole end with the one that the graph has. `memory_order` returns the dimensions of a
permuted tensor from the outermost in memory to the innermost.
"""

from __future__ import annotations

import re
import textwrap

from backprint.graph.nouns import Graph, ScalarSpec, TensorSpec
from backprint.graph.sizes import memory_order

# Readers find the end by this line, so the line must never change, whatever else of the end changes.
MARKER = "# --- Below: runs this graph alone, with torch and nothing else: python model.py " + "-" * 38

RUNNER = "run_sample.py"
"""The module of Backprint of which each sample has a copy."""

_RUN = """
if __name__ == "__main__":
    from pathlib import Path

    runner = Path(__file__).resolve().parent.parent.parent / "run_sample.py"
    if not runner.exists():
        raise SystemExit(
            f"{runner} is not there: run model.py in its sample, copied as a whole, or make one file that runs "
            "anywhere:\\n    backprint export SAMPLE -o repro.py"
        )
    exec(compile(runner.read_text(encoding="utf-8"), runner, "exec"), names := {"__name__": "run_sample"})
    names["main"](GraphModule, __file__)
"""


def ending(graph: Graph) -> str:
    """Return the end of the `model.py` of a graph."""
    return "\n".join([MARKER, *_tensors_alone(graph), _RUN])


def _tensors_alone(graph: Graph) -> list[str]:
    """Return the lines of the class for GraphNet's tools; none if they can use the graph's own class. The class makes
    numbers of tensors of one element, permutes inputs, and returns only tensors with elements."""
    numbers = [port.local for port in graph.inputs if isinstance(port.spec, ScalarSpec)]
    orders = {port.local: order for port in graph.inputs if (order := memory_order(port.spec)) is not None}
    have_elements = (isinstance(port.spec, TensorSpec) and 0 not in port.spec.shape for port in graph.outputs)
    if not (numbers or orders) and all(have_elements):
        return []
    names = [port.local for port in graph.inputs]
    lines = [f"        {name} = {name}.item() if torch.is_tensor({name}) else {name}" for name in numbers]
    for name, order in orders.items():
        # Permuted to the order in memory, copied and permuted back, a contiguous tensor has the strides of the capture.
        back = sorted(range(len(order)), key=order.__getitem__)
        # A tuple as text is the arguments of a call.
        lines.append(f"        {name} = {name}.permute{order}.contiguous().permute{tuple(back)}")
    return [
        "",
        "",
        "class GraphModule(GraphModule):  # for tools that give contiguous tensors, and compare tensors with elements",
        *_with_names("    def forward", ["self", *names], ":"),
        *lines,
        *_with_names("        found = super().forward", names, ""),
        "        return (*[value for value in found if torch.is_tensor(value) and value.numel()],)",
        "",
    ]


def _with_names(head: str, names: list[str], tail: str) -> list[str]:
    """Return the lines of a call, or of a definition, that begins with `head`, has these names in parentheses, and ends
    with `tail`."""
    listed = ", ".join(names)
    if len(line := f"{head}({listed}){tail}") <= 120:
        return [line]
    indent = re.match(" *", head)[0]  # type: ignore[index]  # it matches everywhere
    inner = indent + "    "
    wrapped = textwrap.wrap(listed, 120, initial_indent=inner, subsequent_indent=inner, break_long_words=False)
    return [f"{head}(", *wrapped, f"{indent}){tail}"]
