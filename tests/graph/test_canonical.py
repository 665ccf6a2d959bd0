"""Two graphs hash alike exactly when they are the same program.

Both ways, on random programs. What may change without changing the program must not change the hash: names, and the
order of steps that do not touch each other. And a second opinion, `meaning`, which runs a graph over terms with a
memory, so knows nothing of walks: where it says that two graphs differ, the hashes must.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects.random_graphs import PURE, VIEWS, WRITES, anything, programs, with_step

from face import (
    Dict,
    Graph,
    List,
    Op,
    Port,
    Ref,
    ScalarSpec,
    Slice,
    Source,
    Step,
    Sub,
    Symbol,
    TensorSpec,
    Value,
    parse,
    refs,
)

F32 = TensorSpec("float32", (2, 3))
NUMBERS = st.integers(0, 2**30)

# ------------------------------------------------------------------ the second opinion


class Meaning:
    """What a graph computes, as numbers for terms: outputs, what it leaves in its inputs, its draws and its guards.

    A value is a cell of memory and a path of views into it. Reading gives the term of what the cell holds, seen through
    the path; writing puts a new term in the cell. Equal terms have equal numbers, across all graphs that share `terms`.
    """

    def __init__(self, graph: Graph, terms: dict[object, int]) -> None:
        self.terms, self.graph = terms, graph
        self.cells: list[int] = []
        self.values = {port.local: self.fresh("input", index) for index, port in enumerate(graph.inputs)}
        self.log: list[int] = []
        for step in graph.steps:
            self.run(step)
        ports = [(port.role, port.spec) for port in (*graph.inputs, *graph.outputs)]
        left = self.cells[: len(graph.inputs)]
        self.all = (ports, left, self.log, [self.read(result) for result in graph.results])

    def term(self, *parts: object) -> int:
        return self.terms.setdefault(parts, len(self.terms))

    def fresh(self, *parts: object) -> tuple[int, tuple[object, ...]]:
        self.cells.append(self.term(*parts))
        return len(self.cells) - 1, ()

    def read(self, value: Value) -> int:
        match value:
            case Ref(name):
                cell, path = self.values[name]
                return self.term("read", self.cells[cell], path)
            case tuple() | List():
                items = value.items if isinstance(value, List) else value
                return self.term(type(value), tuple(self.read(item) for item in items))
        return self.term("constant", repr(value))

    def run(self, step: Step) -> None:
        read = (tuple(map(self.read, step.args)), tuple((key, self.read(value)) for key, value in step.kwargs))
        spec = repr(step.spec)
        if step.is_guard:
            self.log.append(self.term(step.target, read))
        elif step.target in VIEWS:
            cell, path = self.values[step.args[0].name]
            self.values[step.name] = cell, (*path, step.target, spec, *map(repr, step.args[1:]))
        elif step.target in WRITES:
            changed = step.kwargs[0][1] if step.kwargs else step.args[0]
            cell, path = self.values[changed.name]
            self.cells[cell] = self.term("write", self.cells[cell], path, step.target, read, spec)
            self.values[step.name] = cell, path
        elif step.target in PURE:
            self.values[step.name] = self.fresh(step.target, read, spec)
        else:
            self.log.append(self.term("draw", len(self.log), step.target, read, spec))
            self.values[step.name] = self.fresh("drawn", self.log[-1])


def same(one: Graph, other: Graph) -> bool:
    terms: dict[object, int] = {}
    return Meaning(one, terms).all == Meaning(other, terms).all


# ------------------------------------------------------------------ what may change


def renamed_value(value: Value, names: dict[str, str]) -> Value:
    match value:
        case Ref(name):
            return Ref(names[name])
        case tuple():
            return tuple(renamed_value(item, names) for item in value)
        case List(items):
            return List(tuple(renamed_value(item, names) for item in items))
        case Slice(start, stop, step):
            return Slice(*(renamed_value(part, names) for part in (start, stop, step)))
        case Dict(pairs):
            return Dict(tuple((renamed_value(key, names), renamed_value(item, names)) for key, item in pairs))
    return value


def renamed(graph: Graph, chance: random.Random) -> Graph:
    """The graph with other names for all its values and ports, and other places in the user's program."""
    old = [*(port.local for port in graph.inputs), *(step.name for step in graph.steps)]
    new = [f"{chance.choice('abz')}{number}" for number in chance.sample(range(10**6), len(old))]
    names = dict(zip(old, new, strict=True))
    steps = [
        replace(
            step,
            name=names[step.name],
            args=renamed_value(step.args, names),
            kwargs=tuple((key, renamed_value(value, names)) for key, value in step.kwargs),
            source=Source("b.py", chance.randrange(9), "g"),
            echo=None,
        )
        for step in graph.steps
    ]
    inputs = tuple(replace(port, name=f"p{index}", local=names[port.local]) for index, port in enumerate(graph.inputs))
    outputs = tuple(replace(port, name=chance.choice("xyz")) for port in graph.outputs)
    return replace(
        graph,
        inputs=inputs,
        steps=tuple(steps),
        outputs=outputs,
        results=renamed_value(graph.results, names),
        title="t",
    )


def reordered(graph: Graph, chance: random.Random) -> Graph:
    """The steps in another order: definitions still before uses, effects as they ran, writes as before with reads."""
    memory: dict[str, str] = {port.local: port.local for port in graph.inputs}
    touched: list[set[str]] = []
    for step in graph.steps:
        used = list(refs((step.args, *(value for _, value in step.kwargs))))
        touched.append({memory[name] for name in used})
        shares = step.target in VIEWS or step.target in WRITES
        memory[step.name] = memory[used[-1 if step.kwargs else 0]] if shares else step.name

    def effect(step: Step) -> bool:
        return step.target not in PURE and step.target not in VIEWS

    before: dict[int, set[int]] = {}
    for later, step in enumerate(graph.steps):
        used = set(refs((step.args, *(value for _, value in step.kwargs))))
        before[later] = {
            earlier
            for earlier, first in enumerate(graph.steps[:later])
            if first.name in used
            or (effect(first) and effect(step))
            or (touched[earlier] & touched[later] and (first.target in WRITES or step.target in WRITES))
        }
    order: list[int] = []
    while len(order) < len(graph.steps):
        ready = [index for index in before if index not in order and before[index] <= set(order)]
        order.append(chance.choice(ready))
    return replace(graph, steps=tuple(graph.steps[index] for index in order))


@pytest.mark.slow
@given(programs(), NUMBERS)
@settings(deadline=None, max_examples=150)
def test_names_and_order_do_not_count(graph: Graph, seed: int) -> None:
    other = renamed(reordered(graph, random.Random(seed)), random.Random(seed + 1))
    assert same(graph, other), "the test's own change is wrong"
    assert other.canonical() == graph.canonical()
    assert other.hash() == graph.hash()
    assert other.hash(sizes=False) == graph.hash(sizes=False)


@pytest.mark.slow
@given(anything(), NUMBERS)
@settings(deadline=None, max_examples=30)
def test_names_do_not_count_whatever_the_values_are(graph: Graph, seed: int) -> None:
    assert renamed(graph, random.Random(seed)).hash() == graph.hash()
    assert parse(graph.code).hash() == graph.hash()


# ------------------------------------------------------------------ what must not


def rewired(graph: Graph, chance: random.Random) -> Graph | None:
    """One argument of one step taken from elsewhere."""
    index = chance.randrange(len(graph.steps))
    earlier = [port.local for port in graph.inputs] + [s.name for s in graph.steps[:index] if not s.is_guard]
    step = graph.steps[index]
    places = [place for place, value in enumerate(step.args) if type(value) is Ref]
    if not places:
        return None
    place = chance.choice(places)
    args = (*step.args[:place], Ref(chance.choice(earlier)), *step.args[place + 1 :])
    return with_step(graph, index, args=args)


def swapped_steps(graph: Graph, chance: random.Random) -> Graph | None:
    """Two neighbouring steps the other way round."""
    if len(graph.steps) < 2:
        return None
    index = chance.randrange(len(graph.steps) - 1)
    first, second = graph.steps[index : index + 2]
    if first.name in refs((second.args, *(value for _, value in second.kwargs))):
        return None
    return replace(graph, steps=(*graph.steps[:index], second, first, *graph.steps[index + 2 :]))


def swapped_inputs(graph: Graph, chance: random.Random) -> Graph | None:
    return replace(graph, inputs=tuple(chance.sample(graph.inputs, len(graph.inputs))))


def swapped_results(graph: Graph, chance: random.Random) -> Graph | None:
    return replace(graph, results=tuple(chance.sample(graph.results, len(graph.results))))


def retargeted(graph: Graph, chance: random.Random) -> Graph | None:
    index = chance.randrange(len(graph.steps))
    other = {"aten.add.Tensor": "aten.sub.Tensor", "aten.add_.Tensor": "aten.mul_.Tensor"}
    target = other.get(graph.steps[index].target)
    return with_step(graph, index, target=target) if target else None


def other_constant(graph: Graph, chance: random.Random) -> Graph | None:
    index = chance.randrange(len(graph.steps))
    args = graph.steps[index].args
    return with_step(graph, index, args=(*args[:-1], args[-1] + 1)) if type(args[-1]) in (int, float) else None


CHANGES = [rewired, swapped_steps, swapped_inputs, swapped_results, retargeted, other_constant]


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@given(graph=programs(), seed=NUMBERS)
@settings(deadline=None, max_examples=60)
def test_other_programs_hash_otherwise(change: Callable[..., Graph | None], graph: Graph, seed: int) -> None:
    other = change(graph, random.Random(seed))
    if other is not None and other.hash() == graph.hash():
        assert same(graph, other), f"one hash, two programs:\n{graph}\n{other}"


def test_the_second_opinion_can_tell() -> None:
    """The test above proves nothing if `same` always says yes, or if the changes never change a program."""
    chance, told = random.Random(0), set()
    x = Port("x", "input", F32, "x")
    y = Port("y", "input", F32, "y")
    steps = (
        step("v", "aten.view.default", "x", List((6,))),
        step("r", "aten.rand.default", List((2, 3))),
        step("w", "aten.add_.Tensor", "v", "y"),
        step("z", "aten.add.Tensor", "x", "r"),
        step("c", "aten.mul.Scalar", "z", 2),
    )
    graph = Graph((x, y), steps, (Port("a", "output"), Port("b", "output")), (Ref("z"), Ref("c")))
    for change in CHANGES * 20:
        other = change(graph, chance)
        if other is not None and not same(graph, other):
            assert other.hash() != graph.hash()
            told.add(change)
    assert told == set(CHANGES)


@pytest.mark.slow
@given(programs(kinds=PURE), NUMBERS)
@settings(deadline=None, max_examples=100)
def test_every_step_counts(graph: Graph, seed: int) -> None:
    """Even of a step that nothing needs: its operator, its constants, its shape and dtype."""
    index = random.Random(seed).randrange(len(graph.steps))
    was = graph.steps[index]
    changes: list[dict[str, object]] = [
        {"target": "aten.exp.default"},
        {"args": (*was.args, 7)},
        {"args": (*was.args, None)},
        {"args": (*was.args, 7.0)},
        {"kwargs": (("alpha", 7),)},
        {"kwargs": (("beta", 7),)},
        {"spec": None},
        {"spec": TensorSpec("float16", (2, 3))},
        {"spec": TensorSpec("float32", (3, 2))},
        {"spec": TensorSpec("float32", (3, 2), (1, 3))},
        {"spec": TensorSpec("float32", (3, 2), (1, 3), 4)},
        {"spec": TensorSpec("float32", (3, 2), device="cuda")},
        {"spec": ScalarSpec("int")},
    ]
    graphs = [graph, *(with_step(graph, index, **change) for change in changes)]
    assert len({other.hash() for other in graphs}) == len(graphs)
    assert len({str(other.canonical()) for other in graphs}) == len(graphs)


# ------------------------------------------------------------------ by hand


def step(name: str, target: str, *args: Value, **kwargs: Value) -> Step:
    """A step; a short string is a name."""

    def named(value: Value) -> Value:
        return Ref(value) if type(value) is str else value

    return Step(name, target, tuple(map(named, args)), tuple((key, named(value)) for key, value in kwargs.items()), F32)


def graph_of(*steps: Step, results: str = "", inputs: str = "x y", **kwargs: object) -> Graph:
    ports = tuple(Port(name, "input", F32, name) for name in inputs.split())
    outputs = tuple(Port(f"out_{name}", "output", F32) for name in results.split())
    return Graph(ports, steps, outputs, tuple(map(Ref, results.split())), **kwargs)


ADD, RELU, NEG, RAND = "aten.add.Tensor", "aten.relu.default", "aten.neg.default", "aten.rand.default"
SIZE = List((2, 3))
ONCE = graph_of(step("a", RELU, "x"), step("b", ADD, "a", "a"), results="b")
VIEWED = (step("v", "aten.view.default", "x", SIZE), step("w", "aten.t.default", "x"))
SPLIT = (step("s", "aten.split.Tensor", "x", 1), step("v", "operator.getitem", "s", 0))
BODY = graph_of(step("r", RAND, SIZE), results="r", inputs="x")
QUIET = graph_of(step("r", RELU, "x"), results="r", inputs="x")


def branch(name: str) -> Step:
    return step(name, "torch.ops.higher_order.cond", True, Sub("body"), Sub("body"), List((Ref("x"),)))


KEPT_DRAW = step("d", "torch.ops.higher_order.run_with_rng_state", "y", Op("aten.bernoulli_.float"), "x")

FROM_ONE_GENERATOR = tuple(
    step(name, "torch.ops.higher_order.graphsafe_run_with_rng_state", Op(operator), "x", rng_state="y")
    for name, operator in (("a", "aten.rand_like.default"), ("b", "aten.randn_like.default"))
)

DIFFERENT: dict[str, tuple[Graph, Graph]] = {
    "draws from one generator swapped": (
        graph_of(*FROM_ONE_GENERATOR, results="a b"),
        graph_of(*reversed(FROM_ONE_GENERATOR), results="a b"),
    ),
    "a read before or after a draw into its memory with a kept state": (
        graph_of(step("a", RELU, "x"), KEPT_DRAW, step("b", ADD, "a", "d"), results="b"),
        graph_of(KEPT_DRAW, step("a", RELU, "x"), step("b", ADD, "a", "d"), results="b"),
    ),
    "shared, or computed twice": (
        ONCE,
        graph_of(step("a", RELU, "x"), step("c", RELU, "x"), step("b", ADD, "a", "c"), results="b"),
    ),
    "draws swapped": (
        graph_of(step("a", RAND, SIZE), step("b", "aten.bernoulli.p", "x", 0.5), results="a b"),
        graph_of(step("b", "aten.bernoulli.p", "x", 0.5), step("a", RAND, SIZE), results="a b"),
    ),
    "equal draws, used the other way round": (
        graph_of(step("a", RAND, SIZE), step("b", RAND, SIZE), results="a b"),
        graph_of(step("b", RAND, SIZE), step("a", RAND, SIZE), results="a b"),
    ),
    "writes through two views swapped": (
        graph_of(
            *VIEWED, step("a", "aten.add_.Tensor", "v", "y"), step("b", "aten.mul_.Tensor", "w", "y"), results="x"
        ),
        graph_of(
            *VIEWED, step("b", "aten.mul_.Tensor", "w", "y"), step("a", "aten.add_.Tensor", "v", "y"), results="x"
        ),
    ),
    "read before or after a write through a view": (
        graph_of(*VIEWED, step("a", "aten.add_.Tensor", "v", "y"), step("r", RELU, "w"), results="r"),
        graph_of(*VIEWED, step("r", RELU, "w"), step("a", "aten.add_.Tensor", "v", "y"), results="r"),
    ),
    "read before or after a write through an item": (
        graph_of(*SPLIT, step("a", "aten.add_.Tensor", "v", "y"), step("r", RELU, "x"), results="r"),
        graph_of(*SPLIT, step("r", RELU, "x"), step("a", "aten.add_.Tensor", "v", "y"), results="r"),
    ),
    "read before or after out=": (
        graph_of(step("a", "aten.add.out", "x", "x", out="y"), step("r", RELU, "y"), results="r"),
        graph_of(step("r", RELU, "y"), step("a", "aten.add.out", "x", "x", out="y"), results="r"),
    ),
    "read before or after a write to the second of a list": (
        graph_of(
            step("a", "aten._foreach_add_.Scalar", List((Ref("x"), Ref("y"))), 1), step("r", RELU, "y"), results="r"
        ),
        graph_of(
            step("r", RELU, "y"), step("a", "aten._foreach_add_.Scalar", List((Ref("x"), Ref("y"))), 1), results="r"
        ),
    ),
    "read before or after running statistics are updated": (
        graph_of(
            step("a", "aten._native_batch_norm_legit.default", "x", None, None, "y"), step("r", NEG, "y"), results="r"
        ),
        graph_of(
            step("r", NEG, "y"), step("a", "aten._native_batch_norm_legit.default", "x", None, None, "y"), results="r"
        ),
    ),
    "read before or after a custom operator": (
        graph_of(step("a", "torch.ops.mylib.twice_.default", "y"), step("r", RELU, "y"), results="r"),
        graph_of(step("r", RELU, "y"), step("a", "torch.ops.mylib.twice_.default", "y"), results="r"),
    ),
    "guards": (
        graph_of(Step("guard_0", "assert_equal", (Ref("x"), 1)), Step("guard_1", "assert_nan", (Ref("y"),))),
        graph_of(Step("guard_0", "assert_equal", (Ref("x"), 1))),
    ),
    "guards of one name": (
        graph_of(Step("g", "assert_equal", (Ref("x"), 1)), Step("g", "assert_equal", (Ref("x"), 2))),
        graph_of(Step("g", "assert_equal", (Ref("x"), 1)), Step("g", "assert_equal", (Ref("x"), 3))),
    ),
    "a guard named as a value": (
        graph_of(step("g", RELU, "x"), Step("g", "assert_equal", (Ref("g"), 1)), results="g"),
        graph_of(step("g", RELU, "x"), results="g"),
    ),
    "draws within branches swapped": (
        graph_of(branch("a"), step("b", RAND, SIZE), results="a b", subgraphs=(("body", BODY),)),
        graph_of(step("b", RAND, SIZE), branch("a"), results="a b", subgraphs=(("body", BODY),)),
    ),
    "subgraphs": (
        graph_of(branch("a"), results="a", subgraphs=(("body", BODY),)),
        graph_of(branch("a"), results="a", subgraphs=(("body", QUIET),)),
    ),
    "input ports permuted": (
        graph_of(step("a", "aten.sub.Tensor", "x", "y"), results="a", inputs="x y"),
        graph_of(step("a", "aten.sub.Tensor", "x", "y"), results="a", inputs="y x"),
    ),
    "output ports permuted": (
        graph_of(step("a", RELU, "x"), step("b", NEG, "x"), results="a b"),
        graph_of(step("a", RELU, "x"), step("b", NEG, "x"), results="b a"),
    ),
    "an input unused": (graph_of(results="x", inputs="x y"), graph_of(results="x", inputs="x")),
    "a port's role": (ONCE, replace(ONCE, inputs=(replace(ONCE.inputs[0], role="parameter"), ONCE.inputs[1]))),
    "an output's role": (ONCE, replace(ONCE, outputs=(replace(ONCE.outputs[0], role="mutation"),))),
    "a port's spec": (ONCE, replace(ONCE, outputs=(replace(ONCE.outputs[0], spec=TensorSpec("float64", (2, 3))),))),
    "an operator as data": (
        graph_of(step("a", ADD, Op("aten.add.Tensor"))),
        graph_of(step("a", ADD, Op("operator.add"))),
    ),
    "a list or a tuple": (graph_of(step("a", ADD, List((1,)))), graph_of(step("a", ADD, (1,)))),
    "true or one": (graph_of(step("a", ADD, True)), graph_of(step("a", ADD, 1))),
    "one or one point nought": (graph_of(step("a", ADD, 1)), graph_of(step("a", ADD, 1.0))),
    "zero or minus zero": (graph_of(step("a", ADD, 0.0)), graph_of(step("a", ADD, -0.0))),
    "two symbols or one": (
        Graph(
            (Port("x", "input", TensorSpec("float32", ("s", "t")), "x"),),
            (),
            (),
            (),
            symbols=(Symbol("s", 2), Symbol("t", 2)),
        ),
        Graph((Port("x", "input", TensorSpec("float32", ("s", "s")), "x"),), (), (), (), symbols=(Symbol("s", 2),)),
    ),
    "a symbol that is called like a dtype": (
        Graph((Port("x", "input", TensorSpec("float32", ("f32",)), "x"),), (), (), (), symbols=(Symbol("f32", 2),)),
        Graph((Port("x", "input", TensorSpec("int64", ("i64",)), "x"),), (), (), (), symbols=(Symbol("i64", 2),)),
    ),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_different_programs_hash_differently(one: Graph, other: Graph) -> None:
    assert one.hash() != other.hash()
    assert one.canonical() != other.canonical()


def test_symbols_have_no_names() -> None:
    def sized(one: str, two: str, local: str) -> Graph:
        port = Port("x", "input", TensorSpec("float32", (one, f"2*{two} + 1")), "x")
        size = Port("size", "input", ScalarSpec("SymInt", one), local)
        symbols = (Symbol(two, 4), Symbol(one, 3))
        return Graph(
            (port, size), (step("v", "operator.add", local, 1),), (Port("o", "output"),), (Ref("v"),), symbols=symbols
        )

    assert sized("s0", "s1", "n").hash() == sized("u7", "s2", "m").hash()
    assert sized("s0", "s1", "s0").hash() == sized("s0", "s1", "n").hash(), "an input may be called as its symbol is"


def test_dead_steps_have_no_order() -> None:
    dead = [
        step("a", RELU, "x"),
        step("b", NEG, "a"),
        step("c", RELU, "x"),
        step("d", NEG, "y"),
        step("e", ADD, "b", "d"),
    ]
    orders = [dead, [dead[3], dead[2], *dead[:2], dead[4]]]
    one, other = (graph_of(*steps, results="x") for steps in orders)
    assert one.hash() == other.hash() != graph_of(*dead[:4], results="x").hash()


def test_a_deep_graph_needs_no_deep_stack() -> None:
    steps = [step("v0", RELU, "x"), *(step(f"v{i}", ADD, f"v{i - 1}", f"v{i - 1}") for i in range(1, 20_000))]
    assert len(graph_of(*steps, results="v19999").canonical().lines) == 20_003


# ------------------------------------------------------------------ without sizes


def scaled(graph: Graph, factor: int) -> Graph:
    """The graph for other sizes: in all specs, and in what view, expand and split are told."""

    def spec(was: object) -> object:
        return replace(was, shape=tuple(size * factor for size in was.shape)) if isinstance(was, TensorSpec) else was

    def steps() -> Iterator[Step]:
        for was in graph.steps:
            args = was.args
            if was.target in ("aten.view.default", "aten.expand.default", "aten.rand.default"):
                args = (*args[:-1], List(tuple(size * factor for size in args[-1].items)))
            elif was.target == "aten.split.Tensor":
                args = (args[0], args[1] * factor)
            yield replace(was, args=args, spec=spec(was.spec))

    ports = [tuple(replace(port, spec=spec(port.spec)) for port in side) for side in (graph.inputs, graph.outputs)]
    return replace(graph, inputs=ports[0], outputs=ports[1], steps=tuple(steps()))


@given(programs(), st.integers(2, 5))
@settings(deadline=None, max_examples=100)
def test_without_sizes_graphs_of_other_sizes_hash_alike(graph: Graph, factor: int) -> None:
    other = scaled(graph, factor)
    assert other.hash(sizes=False) == graph.hash(sizes=False)
    assert other.hash() != graph.hash()


@given(programs(kinds=(*PURE, "aten.view.default")), NUMBERS)
@settings(deadline=None, max_examples=50)
def test_without_sizes_all_else_counts(graph: Graph, seed: int) -> None:
    index = random.Random(seed).randrange(len(graph.steps))
    was = graph.steps[index]
    others = [
        with_step(graph, index, target="aten.exp.default"),
        with_step(graph, index, args=(*was.args, 0.5)),
        with_step(graph, index, args=(*was.args, None)),
        with_step(graph, index, spec=TensorSpec("int64", (2, 3))),
        with_step(graph, index, spec=TensorSpec("float32", (2, 3, 1))),
        with_step(graph, index, spec=None if was.spec else F32),
        replace(graph, results=(*graph.results, None), outputs=(*graph.outputs, Port("o", "output"))),
    ]
    without = {other.hash(sizes=False) for other in (graph, *others)}
    assert len(without) == len(others) + 1


def test_without_sizes_a_number_that_is_no_size_counts() -> None:
    def times(number: int) -> Graph:
        return graph_of(step("a", "aten.mul.Scalar", "x", number), results="a")

    assert times(2).hash(sizes=False) != times(3).hash(sizes=False)
