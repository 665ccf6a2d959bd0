"""A compiler gets tensors that it computes with; its caller gets the graph's own results."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from face import compile_core, core_of

aten = torch.ops.aten


def written(names: str, results: Any, *calls: tuple[str, Any, tuple[Any, ...]]) -> fx.GraphModule:
    """Return a graph of named inputs and calls, in whose arguments a text is an input or a call."""
    graph = fx.Graph()
    env: dict[str, fx.Node] = {name: graph.placeholder(name) for name in names.split()}

    def value(given: Any) -> Any:
        return type(given)(map(value, given)) if isinstance(given, tuple | list) else env.get(given, given)

    for name, operator, arguments in calls:
        env[name] = graph.call_function(operator, value(arguments))
    graph.output(value(results))
    return fx.GraphModule(torch.nn.Module(), graph)


ALL = written(
    "x n nothing unused",
    ("x", "y", None, 3, "y", ["zeros", "x"], "handed", "power"),
    ("y", aten.mul.Tensor, ("x", "n")),
    ("zeros", aten.zeros.default, ([2],)),
    ("handed", aten.detach.default, ("x",)),
    ("clamped", aten.clamp.default, ("x", "nothing", "n")),
    ("power", aten.pow.Tensor_Scalar, ("clamped", 2)),
)


def all_inputs() -> list[Any]:
    return [torch.arange(3.0), 2, None, torch.ones(1)]


def flat(results: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(results, is_leaf=lambda value: value is None)


def test_a_core_takes_what_is_read_and_gives_what_is_computed_once() -> None:
    core = core_of(ALL, all_inputs())
    assert core.input_places == (0,)
    assert [node.name for node in core.module.graph.nodes if node.op == "placeholder"] == ["x"]
    assert len(core.module(torch.arange(3.0))) == 2
    assert [kind for kind, _ in core.plan] == "input core constant constant core constant input input core".split()


def test_the_results_are_the_graph_s_own() -> None:
    seen: list[list[Tensor]] = []

    def build(module: fx.GraphModule, given: list[Tensor]) -> Any:
        seen.append(given)
        return module.forward

    inputs = all_inputs()
    found, wanted = compile_core(ALL, inputs, build)(*inputs), ALL(*inputs)
    assert [len(given) for given in seen] == [1]
    assert type(found) is tuple
    assert type(found[5]) is list
    assert found[0] is inputs[0]
    for left, right in zip(flat(found), flat(wanted), strict=True):
        assert torch.equal(left, right) if isinstance(right, Tensor) else left == right


def test_the_graph_itself_is_left_as_it_was() -> None:
    before = str(ALL.graph)
    core_of(ALL, all_inputs())
    assert str(ALL.graph) == before


def test_a_constant_result_is_new_at_each_call() -> None:
    module = written("x", ("zeros",), ("zeros", aten.zeros.default, ([2],)))
    call = compile_core(module, [torch.ones(2)], lambda module, given: module.forward)
    call(torch.ones(2))[0].add_(1)
    assert torch.equal(call(torch.ones(2))[0], torch.zeros(2))


def test_a_graph_that_computes_nothing_is_given_to_no_compiler() -> None:
    def refuse(module: fx.GraphModule, given: list[Tensor]) -> Any:
        raise AssertionError("there is nothing to compile")

    value = torch.ones(2)
    assert compile_core(written("x", ("x", None)), [value], refuse)(value) == (value, None)


def test_a_random_result_is_no_constant() -> None:
    module = make_fx(lambda x: (torch.rand(3),))(torch.ones(1))
    core = core_of(module, [torch.ones(1)])
    assert core.computes
    assert core.input_places == ()
