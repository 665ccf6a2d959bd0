"""Functions of a folded graph as lines of Python, and the names in them.

    def linear_backward(x, view, t, size, size_1):
        view_1: "bf16[4096, {size}]" = aten.view.default(x, [4096, size])  # as view_{a}: gradient of unsafe_view_{b}
        ...
        return view_2, t_1

Sizes are arguments. `a` and `b` are numbers in names: each call says them in a comment.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backprint.graph.folding.functions import Finder, Function, sizes_written, with_sizes
from backprint.graph.folding.names import BUILTINS, MARKS, RESERVED, FoldedNames, Leaf, base_of, name_leaves, new_name
from backprint.graph.folding.patterns import braced
from backprint.graph.folding.places import places_of, with_places
from backprint.graph.folding.series import Series
from backprint.graph.nouns import Ref, Source, Step
from backprint.graph.text import quote, show_comment, show_spec, show_step

MODULE = "{module}"
"""Stands for the module of the call in the lines of a function."""

NAMED_AFTER = ("mm", "convolution", "attention", "norm", "softmax", "embedding", "einsum", "rnn", "loss")
"""What an operator's name has in it that names a function; the first counts most."""


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """A function, and the names in its text."""

    function: Function
    name: str
    values: tuple[str, ...]
    sizes: tuple[str, ...]
    locals: tuple[str, ...]
    """Of each step."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One call of a function."""

    named: NamedFunction
    number: int


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """The functions of a folded graph, and their calls."""

    functions: tuple[NamedFunction, ...]
    calls: dict[int, FunctionCall]
    """Leaf at which a call begins -> the call."""
    inside: frozenset[int]
    """The leaves of all calls."""
    finder: Finder


def planned_functions(names: FoldedNames) -> FunctionPlan:
    """Return the functions of a folded graph; choose all short names."""
    finder = Finder(names)
    called = {*RESERVED, *BUILTINS}
    named = [(function, new_name(function_name(function, names), called, {})) for function in finder.functions()]
    taken = {*RESERVED, *(name for _, name in named)}
    functions = [with_own_names(function, name, names, taken) for function, name in named]
    calls = {
        start: FunctionCall(function, count)
        for function in functions
        for count, start in enumerate(function.function.calls)
    }
    inside = {start + place for start, call in calls.items() for place in range(call.named.function.length)}
    results = {start + place for start, call in calls.items() for place in call.named.function.results}
    name_leaves(names, inside - results, taken)
    return FunctionPlan(tuple(functions), calls, frozenset(inside), finder)


def with_own_names(function: Function, name: str, names: FoldedNames, taken: Iterable[str]) -> NamedFunction:
    """Choose the names in a function."""
    own, used = {*taken, *MARKS}, dict[str, int]()
    values = tuple(new_name(value_base(function, names, at), own, used) for at in function.given_values)
    sizes = tuple(new_name("size", own, used) for _ in function.given_sizes)
    steps = steps_of_call(function, names, 0)
    return NamedFunction(function, name, values, sizes, tuple(new_name(local_base(each), own, used) for each in steps))


def local_base(step: Step) -> str:
    """Return a short name for a step of a function: a gradient is that of no one layer there."""
    base = base_of(step)
    if not any(letter.isdecimal() for letter in base):
        return base
    return f"grad_{base.rpartition('_')[2]}" if base.startswith("grad_") else step.target.split(".")[1].strip("_")


def steps_of_call(function: Function, names: FoldedNames, number: int) -> list[Step]:
    """Return the steps of a call, each of its first iteration."""
    start = function.calls[number]
    return [leaf.step.step for leaf in names.leaves[start : start + function.length]]


def function_name(function: Function, names: FoldedNames) -> str:
    """Return a name for a function: of its module, if all calls agree, or of its operator."""
    steps = steps_of_call(function, names, 0)
    sources = [names.leaves[start].step.step.source for start in function.calls]
    modules = [re.sub(r"\.\d+(?=\.|$)", "", source.module if source else "") for source in sources]
    base = common_end([module.rpartition(".")[2] for module in modules])
    if not base:
        operators = [step.target.split(".")[1].strip("_") for step in steps if step.target.count(".") > 1]
        base = next((name for part in NAMED_AFTER for name in operators if part in name), [*operators, "part"][0])
    backwards = [step.echo is not None and "gradient" in step.echo.kind for step in steps]
    if 2 * sum(backwards) >= len(steps) and not base.endswith("_backward"):
        base += "_backward"
    return base if base.isidentifier() and base.isascii() else "part"


def value_base(function: Function, names: FoldedNames, at: tuple[int, str]) -> str:
    """Return a name for what the calls give at one place."""
    step, place = at
    given = [dict(places_of(names.leaves[start + step].step.step))[place] for start in function.calls]
    words = {str(name).rstrip("0123456789_").rpartition("_")[2] for name in given}
    base = words.pop()
    return base if not words and base.isidentifier() else "x"


def common_end(texts: Sequence[str]) -> str:
    """Return what all names end with, if that is one of them or has four letters: `norm`."""
    columns = itertools.takewhile(lambda column: len({*column}) == 1, zip(*map(reversed, texts), strict=False))
    end = "".join(column[0] for column in columns)[::-1].lstrip("_0123456789")
    return end if len(end) >= 4 or end in texts else ""


# ------------------------------------------------------------------ lines


def function_lines(plan: FunctionPlan, each: NamedFunction) -> Iterator[str]:
    """Yield the lines of a function."""
    yield f"def {each.name}({', '.join((*each.values, *each.sizes))}):"
    last_line = ""
    for place in range(each.function.length):
        leaf = plan.finder.names.leaves[each.function.calls[0] + place]
        if each.function.has_lines and leaf.step.step.source is not None:
            line = line_pattern(leaf.step.step.source)
            if line != last_line:
                yield f"    {line}"
                last_line = line
        yield f"    {step_line(plan, each, place, leaf)}"
    yield f"    return {', '.join(each.locals[place] for place in each.function.results)}"


def line_pattern(source: Source) -> str:
    """Return the comment of a line of the program; its module is that of the call."""
    line = braced(show_comment(replace(source, module=""), None))
    return f"# [{MODULE}] {line.removeprefix('# ')}" if source.module else line


def step_line(plan: FunctionPlan, each: NamedFunction, place: int, leaf: Leaf) -> str:
    """Return a step of a function as a line."""
    function, start = each.function, each.function.calls[0]
    given: dict[str, Any] = {}
    for name, value in places_of(leaf.step.step):
        if (place, name) in function.values:
            given[name] = each.values[function.values[place, name]]
        elif (place, name) in function.sizes:
            given[name] = Ref(each.sizes[function.sizes[place, name]])
        elif name.startswith(("args.", "kwargs.")) and isinstance(value, str):
            given[name] = each.locals[plan.finder.computed_by(leaf, name, value) - start]
    step = with_places(leaf.step.step, given)
    call = show_step(replace(step, name="_", spec=None)).removeprefix("_ = ")
    known = f"as {marked(each, place, 'name', plan.finder.name(leaf))}"
    echo = plan.finder.echo(leaf)
    behind = show_behind(known, marked(each, place, "echo", echo) if echo else "", step.source is None)
    spec = spec_of_function(each, place, leaf)
    return f"{each.locals[place]}{f': {quote(spec)}' if spec else ''} = {call}{behind}"


def show_behind(known: str, echo: str, unseen: bool) -> str:
    """Return the comment behind a step: its name, its echo, and whether the program has no line for it."""
    text = ": ".join(part for part in (known, echo) if part) + (";" if unseen else "")
    return f"  # {text}" if text else ""


def marked(each: NamedFunction, place: int, what: str, series: Series) -> str:
    """Return a name or an echo as a pattern of the numbers that calls give."""
    pieces = [braced(series.parts[0])]
    for number, (growth, part) in enumerate(zip(series.numbers, series.parts[1:], strict=True)):
        if (place, what, number) in each.function.marks:
            mark, more = each.function.marks[place, what, number]
            pieces.append(f"{{{MARKS[mark]}{f'{more:+}' if more else ''}}}")
        else:
            pieces.append(str(growth.start))
        pieces.append(braced(part))
    return "".join(pieces)


def spec_of_function(each: NamedFunction, place: int, leaf: Leaf) -> str:
    """Return the type of a step, with its sizes as the calls give them."""
    sizes = each.function.sizes
    spec = leaf.step.step.spec
    if spec is None:
        return ""
    given = [
        f"SIZE_{sizes[place, f'spec.{count}']}_" if (place, f"spec.{count}") in sizes else int(text)
        for count, text in enumerate(sizes_written(leaf))
    ]
    text = braced(show_spec(with_sizes(spec, iter(given))))
    return re.sub(r"SIZE_(\d+)_", lambda size: f"{{{each.sizes[int(size[1])]}}}", text)
