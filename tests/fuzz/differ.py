"""What Backprint reads of a text against what Python runs of it: mutated texts of graphs.

    python tests/fuzz/differ.py --count 1000000 --seed 1

A text that the reader takes is run by Python, with a stand-in for torch that records each call. The calls, in their
order and with their arguments, are those of the Graph that was read; anything else is a finding, and so is an error of
the reader that is none of Backprint's. No torch is loaded, and nothing of a text that is refused runs.
"""

from __future__ import annotations

import argparse
import builtins
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from backprint.errors import GraphError
from backprint.graph.nouns import (
    ATOMS,
    Atom,
    Device,
    Dict,
    Echo,
    Graph,
    List,
    Op,
    Port,
    Ref,
    Slice,
    Source,
    Step,
    Sub,
    Symbol,
    TensorSpec,
)
from backprint.graph.text import emit, parse, show, show_step

# ------------------------------------------------------------------ texts

SPEC = TensorSpec("float32", (2, 3))


def flat_graph() -> Graph:
    """A graph that has some of everything."""
    x, y = Ref("x"), Ref("y")
    rows: list[tuple[str, str, tuple[Any, ...], tuple[tuple[str, Any], ...]]] = [
        ("relu", "aten.relu.default", (x,), ()),
        ("add", "aten.add.Tensor", (Ref("relu"), 2), (("alpha", -1),)),
        ("norm", "aten.native_layer_norm.default", (Ref("add"), List((3,)), None, y, 1e-05), ()),
        ("item", "operator.getitem", (Ref("norm"), 0), ()),
        ("view", "aten.view.default", (Ref("item"), List((3, 2))), ()),
        (
            "full",
            "aten.full.default",
            (List((2, 3)), float("-inf")),
            (("dtype", Atom("float32")), ("pin_memory", False)),
        ),
        ("drawn", "aten.random.from", (Ref("full"), 0, 9), ()),
        ("clamp", "aten.clamp.default", (Ref("drawn"), -0.0, float("nan")), ()),
        ("power", "aten.mul.Scalar", (Ref("clamp"), complex(0.0, -1.0)), ()),
        ("to", "aten._to_copy.default", (Ref("power"),), (("device", Device("cpu")),)),
    ]
    source = Source("model.py", 12, "forward", "y = f(x)", "layer.0")
    steps = [
        Step(name, target, args, kwargs, SPEC if place % 3 else None, source if place % 2 else None)
        for place, (name, target, args, kwargs) in enumerate(rows)
    ]
    steps.insert(4, Step("guard_0", "assert_shape", (Ref("item"), (2, 3))))
    steps.insert(5, Step("guard_1", "assert_equal", (Ref("item"), 3)))
    inner = Graph(
        (Port("a", "input", SPEC, "a"),),
        (Step("sin", "aten.sin.default", (Ref("a"),), (), SPEC, None, Echo("recomputes", ("relu",))),),
        (Port("o", "output", SPEC),),
        (Ref("sin"),),
    )
    steps.append(Step("cond", "torch.ops.higher_order.cond", (Ref("to"), Sub("branch"), Sub("branch"), (Ref("view"),))))
    ports = (Port("x", "input", SPEC, "x"), Port("layer.y", "parameter", SPEC, "y"))
    outputs = (Port("out", "output", SPEC), Port("view", "saved", SPEC))
    symbols = (Symbol("s0", 4, "2", "inf"),)
    return Graph(ports, tuple(steps), outputs, (Ref("cond"), Ref("view")), (("branch", inner),), symbols, "mixed")


def deep_graph(count: int = 12) -> Graph:
    """A graph of layers: a carried value, saved ones, an odd layer."""
    steps, saved, last = [], [], "x"
    for place in range(count):
        end = f"_{place}" if place else ""
        source = Source("model.py", 3, "forward", "return f(x)", f"layers.{place}.mlp")
        alpha = 0.5 if place == 7 else 1e-05
        steps += [
            Step(f"t{end}", "aten.t.default", (Ref(f"w_{place}"),), (), SPEC, source),
            Step(
                f"addmm{end}",
                "aten.addmm.default",
                (Ref(last), Ref(f"t{end}"), place),
                (("beta", alpha),),
                SPEC,
                source,
            ),
            Step(f"split{end}", "aten.split.Tensor", (Ref(f"addmm{end}"), 1), (), None, source),
            Step(f"getitem{end}", "operator.getitem", (Ref(f"split{end}"), 1), (), SPEC, source),
            Step(f"sin{end}", "aten.sin.default", (Ref(f"getitem{end}"),), (), SPEC, source),
            Step(
                f"addmm_{count + place}", "aten.addmm.default", (Ref(f"sin{end}"), Ref(f"t{end}"), 1), (), SPEC, source
            ),
        ]
        last = f"addmm_{count + place}"
        saved.append(f"sin{end}")
    ports = [Port("x", "input", SPEC, "x")]
    ports += [Port(f"layers.{place}.w", "parameter", SPEC, f"w_{place}") for place in range(count)]
    outputs = [Port("out", "output", SPEC), *(Port(name, "saved", SPEC) for name in saved)]
    return Graph(tuple(ports), tuple(steps), tuple(outputs), (Ref(last), *map(Ref, saved)), title="deep")


def texts() -> dict[str, str]:
    """The texts that are mutated."""
    small = Graph(
        (Port("x", "input", SPEC, "x"),),
        (Step("y", "aten.add.Tensor", (Ref("x"), 1), (), SPEC), Step("z", "aten.mul.Tensor", (Ref("y"), Ref("x")), ())),
        (Port("z", "output", SPEC),),
        (Ref("z"),),
    )
    return {
        "small": emit(small),
        "mixed": emit(flat_graph()),
        "deep": emit(deep_graph()),
    }


# ------------------------------------------------------------------ mutations

NAMES = (
    "torch aten prims operator math self inf nan slice complex getattr device range dict zip tuple v i j given port "
    "inputs outputs params saved zeros GraphModule forward True None print len eval __class__ __name__ a b ｉｎｆ ﬁ"
).split()
NUMBERS = (
    "0 1 -1 1_0 0x10 0b1 0o7 1e400 -0.0 0.0 1e-05 1j True 10**2 9223372036854775808 00 .5 3. -nan -inf +1 ~1".split()
)
LINES = [
    "x = aten.neg.default(x)",
    "del x",
    "global x",
    "pass",
    "x: 'f32[2, 3]' = 1",
    "torch = x",
    "aten = prims",
    "return (x,)",
    "import torch",
    "from torch import inf, nan",
    "import math as torch",
    "x += 1",
    "x = y = 3",
    "(x := 3)",
    "assert x",
    "assert x == 1 == 1",
    "if True: x = 1",
    "for i in range(2): x = 1",
    "lambda: 1",
    "with x: pass",
    "def aten(): pass",
    "class torch: pass",
    "@print",
    "x, y = 1, 2",
    "*x, = y",
    "x.a = 1",
    "x[0] = 1",
    "exec('1')",
    "'''",
    '"""',
    "# -",
    "# coding: latin-1",
    "\\",
    "async def f(): pass",
    "raise x",
    "inf = 3",
    "x = aten.neg.default(aten.neg.default(x))",
    "x = aten.add.Tensor(x, y := 1)",
    "x = aten.add.Tensor(*x)",
    "x = aten.add.Tensor(**x)",
    "assert x != x",
    "x = x",
    "x = v['x']",
    "v['x'] = x",
    "nonlocal x",
    "yield x",
]
MARKS = [
    ";",
    "\\\n",
    "\f",
    "\r",
    "\t",
    "\u2028",
    "\x85",
    "\v",
    "\0",
    "#",
    "(",
    ")",
    ",",
    ":",
    "*",
    "**",
    "=",
    "'",
    '"',
    '"""',
    "\n",
    " ",
    "f",
    "b",
    "r",
    "u",
    "{",
    "}",
    "[",
    "]",
    "@",
    ".",
    "if 1 else",
    "and",
    "not ",
    "-",
    "\ufeff",
]
WORD = re.compile(r"[A-Za-z_]\w*")
NUMBER = re.compile(r"-?\b\d[\w.]*")


def replaced(rng: random.Random, text: str, pattern: re.Pattern[str], values: Sequence[str]) -> str:
    """The text with one place of a pattern, or all that say the same, as something else."""
    places = list(pattern.finditer(text))
    if not places:
        return text
    place, value = rng.choice(places), rng.choice(values)
    if rng.random() < 0.3:
        return re.sub(rf"(?<!\w){re.escape(place[0])}(?!\w)", lambda _: value, text)
    return text[: place.start()] + value + text[place.end() :]


def mutated(rng: random.Random, text: str) -> str:
    """The text with a change or some."""
    for _ in range(1 if rng.random() < 0.7 else rng.randint(2, 4)):
        lines = text.split("\n")
        one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(10):
            case 0:
                text = replaced(rng, text, WORD, NAMES)
            case 1:
                text = replaced(rng, text, WORD, WORD.findall(text))
            case 2:
                text = replaced(rng, text, NUMBER, NUMBERS)
            case 3:
                at = rng.randrange(len(text))
                text = text[:at] + rng.choice(MARKS) + text[at + rng.randrange(2) :]
            case 4:
                indent = lines[one][: len(lines[one]) - len(lines[one].lstrip())]
                lines.insert(one, indent + rng.choice(LINES))
                text = "\n".join(lines)
            case 5:
                lines[one] += rng.choice([";", "  # a=5", "  # as x", ",", " + 1", " \\", "; " + rng.choice(LINES)])
                text = "\n".join(lines)
            case 6:
                lines[one], lines[two] = lines[two], lines[one]
                text = "\n".join(lines)
            case 7:
                lines.insert(one, lines[two])
                text = "\n".join(lines)
            case 8:
                del lines[one]
                text = "\n".join(lines)
            case _:
                lines[one] = rng.choice(["    ", "        ", ""]) + lines[one].lstrip()
                text = "\n".join(lines)
    return text


# ------------------------------------------------------------------ Python, with a stand-in for torch


class Differs(Exception):
    """Python runs something else than what was read."""


class Stand:
    """The base of the classes of a text."""


@dataclass(eq=False)
class Called:
    """An operator, or a namespace of some."""

    run: Run
    path: str

    def __getattr__(self, name: str) -> Any:
        if self.path == "torch" and name in ("inf", "nan"):
            return float(name)
        if self.path == "torch.nn" and name == "Module":
            return Stand
        if self.path == "torch.ops" and name in ("aten", "prims"):
            return Called(self.run, name)
        return Called(self.run, f"{self.path}.{name}")

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self.path == "torch.device":
            return Device(*args)
        return self.run.step(self.path, args, kwargs)


@dataclass(eq=False)
class Tensor:
    """A value of the graph."""

    run: Run
    name: str

    def __getitem__(self, index: Any) -> Any:
        return self.run.step("operator.getitem", (self, index), {})

    def __eq__(self, other: object) -> bool:
        self.run.step("assert_equal", (self, other), {})
        return True

    def __ne__(self, other: object) -> bool:
        self.run.step("assert_nan", (self,) if other is self else (self, other), {})
        return True

    __hash__ = object.__hash__

    @property
    def shape(self) -> Shape:
        return Shape(self)


@dataclass(eq=False)
class Shape:
    of: Tensor

    def __eq__(self, other: object) -> bool:
        self.of.run.step("assert_shape", (self.of, other), {})
        return True

    __hash__ = object.__hash__


class Run:
    """A run of a text, held against a Graph step by step."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.place = graph, 0

    def step(self, target: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
        if self.place >= len(self.graph.steps):
            raise Differs(f"a call more: {target}")
        wanted = self.graph.steps[self.place]
        self.place += 1
        own = show_step(
            Step("_", target, tuple(map(value_of, args)), tuple((key, value_of(item)) for key, item in kwargs.items()))
        )
        other = show_step(Step("_", wanted.target, wanted.args, wanted.kwargs))
        if own != other:
            raise Differs(f"Python runs {own!r}, and {other!r} was read")
        return Tensor(self, wanted.name)


def value_of(given: Any) -> Any:
    """What Python passes, as a Value of a graph."""
    match given:
        case Tensor():
            return Ref(given.name)
        case Called(path=path):
            return Atom(path.removeprefix("torch.")) if path.removeprefix("torch.") in ATOMS else Op(path)
        case Stand():
            return Sub(type(given).__name__)
        case list():
            return List(tuple(map(value_of, given)))
        case tuple():
            return tuple(map(value_of, given))
        case dict():
            return Dict(tuple((value_of(key), value_of(item)) for key, item in given.items()))
        case slice():
            return Slice(value_of(given.start), value_of(given.stop), value_of(given.step))
    return given


def run_text(text: str, graph: Graph) -> None:
    """Run a text as Python does; raise Differs unless it does what the graph says."""
    run = Run(graph)
    modules = {name: Called(run, name) for name in ("torch", "math", "operator")}
    known = {**vars(builtins), "__import__": lambda name, *_: modules[name]}
    for name in ("open", "exec", "eval", "compile", "input", "breakpoint", "exit", "quit"):
        del known[name]  # no text that is read has them
    space = {"__builtins__": known, "__name__": "text"}
    exec(compile(text, "<text>", "exec", dont_inherit=True), space)
    run_class(space["GraphModule"], graph, run)


def run_class(made: Any, graph: Graph, run: Run) -> None:
    for name, sub in graph.subgraphs:
        around, run.graph, run.place = (run.graph, run.place), sub, 0
        run_class(type(getattr(made, name)), sub, run)
        run.graph, run.place = around
    run.graph, run.place = graph, 0
    results = made().forward(*[Tensor(run, port.local) for port in graph.inputs])
    if run.place != len(graph.steps):
        raise Differs(f"{run.place} calls where {len(graph.steps)} were read")
    own, other = [show(value_of(each)) for each in results], [show(each) for each in graph.results]
    if own != other or type(results) is not tuple:
        raise Differs(f"Python returns {own}, and {other} was read")


# ------------------------------------------------------------------ many


def tried(text: str, read: Callable[[str], Graph] = parse) -> tuple[str, str]:
    """What becomes of a text, and what is wrong with that."""
    try:
        graph = read(text)
    except GraphError:
        return "refused", ""
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"
    try:
        run_text(text, graph)
    except Exception as error:
        return "differs", f"{type(error).__name__}: {error}"
    return "the same", ""


def fuzz(count: int, seed: int, read: Callable[[str], Graph] = parse) -> tuple[Counter[str], list[str]]:
    """What became of so many texts, and the first findings."""
    known = texts()
    for name, text in known.items():
        assert tried(text) == ("the same", ""), (name, tried(text))
    names, counts, findings = sorted(known, key=len), Counter[str](), []
    longest = 0.0
    for number in range(count):
        rng = random.Random(f"{seed}:{number}")
        name = names[0] if number % 8 == 0 else rng.choices(["small", "mixed", "deep"], [8, 4, 2])[0]
        text = mutated(rng, known[name])
        began = time.process_time()
        outcome, why = tried(text, read)
        longest = max(longest, time.process_time() - began)
        counts[f"{name}: {outcome}"] += 1
        if why and len(findings) < 20:
            findings.append(f"{seed}:{number} of {name}: {why}\n{text}")
    counts["longest, in ms"] = round(longest * 1000)
    return counts, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    counts, findings = fuzz(given.count, given.seed)
    for finding in findings:
        print(finding, "\n" + "-" * 80)
    print(f"{given.count:,} texts in {time.monotonic() - began:,.0f} s: {dict(sorted(counts.items()))}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
