"""What `inference_graph` and `forward_backward_graphs` return: fx.Graphs that run and show themselves.

A KernelGraph is an fx.Graph, and a KernelPair is the tuple of two, so whatever takes those takes these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from backprint._torch import pytree
from backprint.errors import UsageError
from backprint.fx.convert import Names, Side, spec_of
from backprint.graph.costing.storages import each_storage, held_storages, storages_of
from backprint.graph.nouns import Graph, Port
from backprint.tracing.aot.from_fx import note_of


class KernelGraph(fx.Graph):
    """An fx.Graph of ATen operators. `graph(*inputs)` runs it; `print(graph)` shows it as code, with shapes and lines.

    `own` has the tensors that the program brings along, such as parameters, by the names of inputs: a call may leave
    them out.
    """

    title: str = "program"
    roles: tuple[str, ...] = ()
    own: Mapping[str, Tensor] = {}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(node.name for node in self.find_nodes(op="placeholder"))

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the results, in order; of one that is no tensor, its text."""
        return tuple(map(str, self.returned))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results that are the program's own."""
        return self.by_role("output")

    @property
    def returned(self) -> tuple[Any, ...]:
        """The results: nodes, or values that are no tensors."""
        found = self.output_node().args[0]
        assert isinstance(found, (tuple, list))
        return tuple(found)

    def by_role(self, role: str) -> tuple[str, ...]:
        """Return the names of the results with a role: `output`, `mutation`, `saved` or `gradient`."""
        return tuple(name for name, each in zip(self.results, self.roles, strict=True) if each == role)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the results for the tensors in these inputs, in whatever containers they are."""
        results: tuple[Any, ...] = self.module()(*self.arguments(inputs))
        return results

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> KernelGraph:
        made = super().__deepcopy__(memo)
        made.__class__ = KernelGraph
        made.title, made.roles, made.own = self.title, self.roles, dict(self.own)
        made.owning_module = self.owning_module
        return made

    def module(self) -> fx.GraphModule:
        """Return a GraphModule that runs the graph."""
        return fx.GraphModule(self.owning_module or nn.Module(), self)

    def arguments(self, inputs: Sequence[Any]) -> list[Tensor]:
        """Return a tensor for each input: those of a call, and the program's own where it leaves them out."""
        given = pytree.tree_leaves(list(inputs))
        for leaf in given:
            if not isinstance(leaf, Tensor):
                raise UsageError(
                    f"{self.title}: {leaf!r:.80} is no tensor: pass tensors for {', '.join(self.inputs)}; other "
                    "arguments are constants of the graph"
                )
        asked = [name for name in self.inputs if name not in self.own]
        once = list({id(leaf): leaf for leaf in given}.values())
        wanted = (len(self.inputs), len(asked))
        if len(given) not in wanted and len(once) in wanted:  # a tensor that was passed twice is one input
            given = once
        names = self.inputs if len(given) == len(self.inputs) else asked
        if len(given) != len(names):
            own = f", with or without its own {', '.join(self.own)}" if self.own else ""
            raise UsageError(f"{self.title}: {len(given)} tensors for the inputs {', '.join(asked)}{own}")
        found = {**self.own, **dict(zip(names, given, strict=True))}
        return [found[name] for name in self.inputs]

    def as_graph(self) -> Graph:
        """Return the same as a Graph of Backprint's, which has a text."""
        side = Side(self.module(), Names())
        inputs, saved = [], "saved" if "gradient" in self.roles else "input"
        for node in self.find_nodes(op="placeholder"):
            local = side.locals[node.name] = side.names.free(node.name)
            role = "tangent" if saved == "saved" and node.name.startswith("tangent_") else saved
            inputs.append(Port(str(node.target), role, spec_of(node.meta.get("val")), local))
        steps = side.steps(self.nodes, {node.name: (note_of(node), None) for node in self.nodes})
        inputs += [Port(name, "constant", spec_of(tensor), name) for name, (_, tensor) in side.constants.items()]
        outputs = tuple(
            Port(name, role, spec_of(each.meta.get("val")) if isinstance(each, fx.Node) else None)
            for name, role, each in zip(self.results, self.roles, self.returned, strict=True)
        )
        results = tuple(map(side.pack, self.returned))
        return Graph(tuple(inputs), tuple(steps), outputs, results, tuple(side.subgraphs.items()), title=self.title)

    def __str__(self) -> str:
        return str(self.as_graph())

    def __repr__(self) -> str:
        return (
            f"KernelGraph({self.title}: {self.steps()} steps, {len(self.inputs)} inputs, {len(self.results)} results)"
        )

    def steps(self) -> int:
        """Return how many operators it calls."""
        return sum(node.op == "call_function" for node in self.nodes)


class KernelPair(tuple[KernelGraph, KernelGraph]):
    """The forward and the backward as fx.Graphs: `forward, backward = pair`. `pair(*inputs)` runs the forward, and
    `pair.run(*inputs).backward(*tangents)` both; `print(pair)` shows both as code."""

    __slots__ = ()

    def __new__(cls, forward: KernelGraph, backward: KernelGraph) -> KernelPair:
        return super().__new__(cls, (forward, backward))

    def __getnewargs__(self) -> tuple[KernelGraph, KernelGraph]:
        return self.forward, self.backward

    @property
    def forward(self) -> KernelGraph:
        """The forward: it returns outputs, mutations, and what it saves."""
        return self[0]

    @property
    def backward(self) -> KernelGraph:
        """The backward: it takes what is saved, then a tangent for each differentiable output."""
        return self[1]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the program's own results."""
        return self.forward.outputs

    @property
    def saved(self) -> tuple[str, ...]:
        """The names of the values that the forward saves for the backward: the same in both graphs."""
        return self.forward.by_role("saved")

    @property
    def saved_bytes(self) -> int:
        """The bytes that live from the forward to the backward: storages of intermediate values, each once."""
        graph = self.forward.as_graph()
        storages, sizes = storages_of(graph)
        saved = {key for name in self.saved for key in each_storage(storages[name])}
        return sum(sizes[key] for key in saved - held_storages(graph, storages))

    def run(self, *inputs: Any) -> KernelRun:
        """Run the forward, and keep what it saves for the backward."""
        arguments = [tensor.detach() for tensor in self.forward.arguments(inputs)]
        with torch.enable_grad():  # some kernels compute what their backward needs only then
            values = self.forward(*arguments)
        found: dict[str, list[Any]] = {role: [] for role in ("output", "mutation", "saved")}
        for role, value in zip(self.forward.roles, values, strict=True):
            found[role].append(value)
        saved = dict(zip(self.saved, found["saved"], strict=True))
        return KernelRun(self, tuple(found["output"]), tuple(found["mutation"]), saved)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the program's own results for these inputs."""
        return self.run(*inputs).outputs

    def __str__(self) -> str:
        return f"{self.forward}\n\n{self.backward}"

    def __repr__(self) -> str:
        steps = f"{self.forward.steps()} steps forward, {self.backward.steps()} backward"
        return f"KernelPair({self.forward.title}: {steps}, {len(self.saved)} saved, {self.saved_bytes:,} bytes)"


@dataclass(frozen=True, slots=True, eq=False)
class KernelRun:
    """One run of a KernelPair's forward. `saved` has the saved tensors by name."""

    pair: KernelPair
    outputs: tuple[Any, ...]
    mutations: tuple[Any, ...]
    saved: Mapping[str, Any]

    def backward(self, *tangents: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of each input that requires grad, for the tangents of the differentiable outputs; without
        tangents, for ones."""
        graph = self.pair.backward
        wanted = [node for node in graph.find_nodes(op="placeholder") if node.name not in self.saved]
        given = tangents or tuple(ones(node.meta["val"]) for node in wanted)
        if len(given) != len(wanted):
            names = ", ".join(node.name for node in wanted)
            raise UsageError(f"{graph.title}: {len(given)} tangents for {len(wanted)} differentiable outputs ({names})")
        values = {**self.saved, **{node.name: value for node, value in zip(wanted, given, strict=True)}}
        gradients: tuple[Tensor | None, ...] = graph(*(values[name] for name in graph.inputs))
        return gradients

    def __repr__(self) -> str:
        return f"KernelRun({self.pair.forward.title}: {len(self.outputs)} outputs, {len(self.saved)} saved)"


def ones(example: Tensor) -> Tensor:
    """Return ones of the size of a fake tensor."""
    return torch.ones(example.shape, dtype=example.dtype, device=example.device)
