"""Random graphs for the tests of the text and of the canonical form.

`anything` makes graphs of every kind of value, spec, port and comment, which mean nothing. `programs` makes graphs that
compute: views, mutations through them, random draws, guards.
"""

from __future__ import annotations

import math
from dataclasses import astuple, replace

from hypothesis import strategies as st

from backprint.graph.nouns import (
    ATOMS,
    DTYPES,
    ECHOES,
    IN_ROLES,
    OUT_ROLES,
    SCALARS,
    Atom,
    Device,
    Dict,
    Echo,
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
)

TARGETS = (
    "aten.add.Tensor",
    "aten.convolution.default",
    "prims.convert_element_type.default",
    "operator.getitem",
    "operator.floordiv",
    "math.ceil",
    "torch.sym_max",
    "torch.ops.higher_order.cond",
    "torch.ops.mylib.scale_.default",
)
ODD = "ab0_.,:;#'\"\\/[](){}=% \t\n\r\0\x0c\x85\u2028\u202eéﬁ層"
WORDS = st.one_of(st.just("x"), st.text(ODD, max_size=6), st.text(max_size=3))
NAMES = "a B _ _x x1 f32 s0 match case type guard_0 input saved os print v in_ out conv_1 GraphModule"
LOCALS = st.sampled_from(NAMES.split())
SIZES = st.one_of(st.integers(0, 2**15), st.sampled_from(["s0", "2*s0 + 1", "Max(1, s0)", "(s0 + 1)//2", "u0**2"]))
DEVICES = st.sampled_from(["cpu", "cuda", "cuda:0", "cuda:11", "meta"])
FLOATS = st.floats().map(lambda number: math.nan if number != number else number)  # one nan, so that == can see it


def to_the_letter(graph: Graph) -> str:
    """Return everything that a graph has: `==` alone takes 1 for True, and 0.0 for -0.0."""
    return repr(astuple(graph))


@st.composite
def tensor_specs(draw: st.DrawFn) -> TensorSpec:
    shape = tuple(draw(st.lists(SIZES, max_size=4)))
    stride = draw(st.one_of(st.none(), st.tuples(*[SIZES] * len(shape))))
    layout = draw(st.sampled_from(["strided", "strided", "sparse_coo", "jagged", "_mkldnn"]))
    return TensorSpec(draw(st.sampled_from(list(DTYPES))), shape, stride, draw(SIZES), draw(DEVICES), layout)


SCALAR_SPECS = st.builds(
    ScalarSpec, st.sampled_from(SCALARS), st.sampled_from(["", "s0", "s0 < 5", "Eq(s0, 2)", "1.5*u0"])
)
SPECS = st.one_of(
    st.none(),
    tensor_specs(),
    SCALAR_SPECS,
    st.lists(st.one_of(st.none(), tensor_specs(), SCALAR_SPECS, st.just(())), max_size=3).map(tuple),
)
PORT_NAMES = WORDS.map(lambda word: "".join(filter(str.isprintable, word)) or "p")
SOURCES = st.builds(Source, WORDS, st.integers(0, 10**9 - 1), WORDS, WORDS, WORDS)
NUMBERS = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), FLOATS, st.complex_numbers(allow_nan=False))


def values(names: list[str], subs: list[str]) -> st.SearchStrategy[object]:
    """Return any value over these names."""
    plain = [st.none(), NUMBERS, WORDS, st.builds(Op, st.sampled_from(TARGETS)), st.builds(Device, DEVICES)]
    plain.append(st.builds(Atom, st.sampled_from(sorted(ATOMS))))
    plain += [st.sampled_from(names).map(Ref)] * 3 if names else []
    plain += [st.sampled_from(subs).map(Sub)] if subs else []
    return st.recursive(
        st.one_of(plain),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda items: List(tuple(items))),
            st.lists(inner, max_size=3).map(tuple),
            st.builds(Slice, inner, inner, inner),
            st.lists(st.tuples(inner, inner), max_size=2).map(lambda items: Dict(tuple(items))),
        ),
        max_leaves=4,
    )


@st.composite
def anything(draw: st.DrawFn, depth: int = 1) -> Graph:
    """Return a graph of whatever the nouns allow."""
    fresh = draw(st.lists(LOCALS, unique=True, max_size=7))
    names, steps, guards = fresh[: draw(st.integers(0, 3))], [], 0
    inputs = tuple(Port(draw(PORT_NAMES), draw(st.sampled_from(IN_ROLES)), draw(SPECS), name) for name in names)
    members = draw(st.lists(LOCALS, unique=True, max_size=3))
    subgraphs = tuple((name, draw(anything(depth=0))) for name in members[:2]) if depth else ()
    symbols = tuple(
        Symbol(name, draw(st.integers(0, 99)), "2", draw(st.sampled_from(["inf", "7"]))) for name in members[2:]
    )
    for name in fresh[len(names) :]:
        any_value = values(names, [attribute for attribute, _ in subgraphs])
        note = {"source": draw(st.none() | SOURCES)}
        note["echo"] = draw(
            st.none() | st.builds(Echo, st.sampled_from(ECHOES), st.lists(LOCALS, min_size=1).map(tuple))
        )
        if names and draw(st.integers(0, 4)) == 0:
            target = draw(st.sampled_from(["assert_equal", "assert_shape", "assert_nan"]))
            args = (Ref(draw(st.sampled_from(names))), *([draw(any_value)] if target != "assert_nan" else []))
            steps.append(Step(f"guard_{guards}", target, args, **note))
            guards += 1
            continue
        keys = draw(st.lists(LOCALS | st.sampled_from(["from", "lambda", "self", "None"]), unique=True, max_size=2))
        steps.append(
            Step(
                name,
                draw(st.sampled_from(TARGETS)),
                tuple(draw(st.lists(any_value, max_size=3))),
                tuple((key, draw(any_value)) for key in keys),
                draw(SPECS),
                **note,
            )
        )
        names = [*names, name]
    results = tuple(draw(st.lists(values(names, []), max_size=3)))
    outputs = tuple(Port(draw(PORT_NAMES), draw(st.sampled_from(OUT_ROLES)), draw(SPECS)) for _ in results)
    return Graph(inputs, tuple(steps), outputs, results, subgraphs, symbols)


# ------------------------------------------------------------------ programs

VIEWS = ("aten.view.default", "aten.expand.default", "aten.t.default", "aten.split.Tensor", "operator.getitem")
WRITES = ("aten.add_.Tensor", "aten.mul_.Tensor", "aten.add.out")
RANDOM = ("aten.rand.default", "aten.bernoulli.p")
PURE = ("aten.relu.default", "aten.mul.Scalar", "aten.add.Tensor", "aten.sub.Tensor")
EFFECTS = (*WRITES, *RANDOM, "assert_equal")


@st.composite
def programs(draw: st.DrawFn, kinds: tuple[str, ...] = (*PURE, *PURE, *VIEWS, *EFFECTS), most: int = 10) -> Graph:
    """Return a graph that computes, with a port for each of some values, and some values that nothing needs."""
    spec = TensorSpec(draw(st.sampled_from(["float32", "float64"])), (2, draw(st.integers(3, 4))))
    names = [f"x{index}" for index in range(draw(st.integers(1, 3)))]
    inputs = tuple(Port(f"input.{name}", draw(st.sampled_from(["input", "parameter"])), spec, name) for name in names)
    steps: list[Step] = []
    for index in range(draw(st.integers(1, most))):
        target = draw(st.sampled_from(kinds))
        one, two, three = (Ref(draw(st.sampled_from(names))) for _ in range(3))
        size = draw(st.integers(1, 2))
        args: dict[str, tuple[object, ...]] = {
            "aten.relu.default": (one,),
            "aten.t.default": (one,),
            "aten.mul.Scalar": (one, size),
            "aten.view.default": (one, List((size, 2))),
            "aten.expand.default": (one, List((size, 2))),
            "aten.split.Tensor": (one, size),
            "operator.getitem": (one, size),
            "aten.rand.default": (List((2, 3)),),
            "aten.bernoulli.p": (one, size / 2),
            "assert_equal": (one, size),
        }
        kwargs = (("out", three),) if target == "aten.add.out" else ()
        made = spec if target in (*PURE, *RANDOM) else None
        steps.append(Step(f"v{index}", target, args.get(target, (one, two)), kwargs, made))
        if target != "assert_equal":
            names.append(f"v{index}")
    results = tuple(Ref(draw(st.sampled_from(names))) for _ in range(draw(st.integers(1, 3))))
    outputs = tuple(Port(f"output.{index}", draw(st.sampled_from(OUT_ROLES)), spec) for index in range(len(results)))
    return Graph(inputs, tuple(steps), outputs, results)


def with_step(graph: Graph, index: int, **changes: object) -> Graph:
    """Return the graph with one step changed."""
    changed = replace(graph.steps[index], **changes)
    return replace(graph, steps=(*graph.steps[:index], changed, *graph.steps[index + 1 :]))
