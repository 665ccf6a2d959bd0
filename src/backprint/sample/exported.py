"""The functions of an exported file (`export`): the runs, the comparison, and the command line.

A file has those functions that its case needs, with their text as it is here, and so without types. A line that ends
with `# if: NAME` is in the file where the case needs NAME, without this comment. Names in capital letters, and
`make_inputs`, are the file's own. What is imported from Backprint here is in the file too, as its text.

The comparison is that of `judged`, which `bench` and `minify` use, with fewer of its excuses: no result that the full
rule calls wrong is close here. It imports only torch and the standard library.
"""

import argparse
import base64
import copy
import difflib
import importlib
import inspect
import math
import re
import runpy
import sys
import traceback
from collections import Counter
from pathlib import Path

import torch
from torch import inf

from backprint.run_sample import digest, number_or_tensor, ports, printed_line, read_safetensors
from backprint.sample.judged import (
    HALVES,
    MISSED,
    TIED,
    WIDE,
    OtherRounding,
    apart,
    filled_memory,
    first_line,
    is_finite,
    strided,
    text_of_kind,
    widen,
)
from backprint.sample.rerun import Program, copies
from backprint.values.closeness import TIMES, TOLERANCE, nudge

BACKEND, GRAPHS, LINKS, SHOWN, SEED, NAME = None, {}, {}, [], 0, ""


def make_inputs():
    return {}


def prepare():
    pass


# ------------------------------------------------------------------ inputs


def need_operator(name):
    """End the program if an operator is not registered."""
    library, operator, *_ = name.split(".")
    if not hasattr(getattr(torch.ops, library), operator):
        stop(f"{name} is not an operator of PyTorch: import the library that registers it at the top of this file")


def need_device(device):
    """End the program if a device is not here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        stop(f"the inputs are on {device}, which is not here: {first_line(error)}")


def data_beside(name):
    """The exact data of the inputs, which are in a file beside this one."""
    place = Path(__file__).resolve().parent / name
    if not place.exists():
        stop(f"{place} is not there: it has the exact data of this file's inputs, and belongs beside it")
    return read_safetensors(place)


def tensor_of(dtype, shape, text):
    """The tensor of these bytes, given as base64."""
    raw = bytearray(base64.b64decode(text))
    flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


def stop(text):
    """End the program with the exit code of wrong usage."""
    print(text, file=sys.stderr)
    raise SystemExit(2)


# ------------------------------------------------------------------ runs


def run_graphs(made):
    """Run the graphs in eager, the backward on what the forward saved; return the runs by title."""
    runs, saved = {}, {}
    for title, graph in GRAPHS.items():
        hints = dict(graph.forward.__annotations__)
        outputs = [(role, name) for _, role, name in ports(hints.pop("return"))]
        keys = [(role, f"tangent {name}" if role == "tangent" else name) for _, role, name in ports(hints.values())]
        given = [saved[key] if role == "saved" else made[key] for role, key in keys]
        given = list(map(number_or_tensor, hints.values(), given))  # if: numbers
        state, kept = random_state(), copied(given)
        results = graph()(*given)
        runs[title] = Run(graph, kept, state, outputs, results)
        saved |= {name: value for (role, name), value in zip(outputs, results, strict=True) if role == "saved"}
    return runs


def run_linked_graphs(made):
    """Run the graphs of several Pairs in eager, with the values and gradients that links pass; return the runs by
    title."""
    runs = Program(LINKS, GRAPHS, made, True).play()
    return {title: Run(GRAPHS[title], run.inputs, run.random, run.outputs, run.results) for title, run in runs.items()}


def copied(values):
    """Copies of the inputs of a graph, which share memory where these do."""
    return copies(values)  # if: sparse
    return copy.deepcopy(values)  # if: dense


def random_state():
    """The state of the generators that operators draw from: of the CPU, and of the GPUs."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()


class Run:
    """A graph that ran in eager: its inputs, the random state, and its results by role and name."""

    def __init__(self, graph, given, state, outputs, results):
        self.graph, self.given, self.state, self.outputs, self.results = graph, given, state, outputs, results

    def again(self, function, change=lambda value: value, seed=None):
        """The results on the same inputs, or on changed ones, from the same random state."""
        torch.set_rng_state(self.state[0])
        if self.state[1]:
            torch.cuda.set_rng_state_all(self.state[1])
        if seed is not None:
            torch.manual_seed(seed)
        return function(*map(change, copied(self.given)))

    def run_references(self):
        """Run what results are compared with beside eager's first results."""
        source = torch.Generator().manual_seed(0)

        def nudged(value):
            if isinstance(value, torch.Tensor):
                nudge(value, source)
            return value

        self.second = self.again(self.graph())
        self.wide = all_of(1, lambda _: self.again(in_float64(self.graph)(), widen))
        self.nudged = all_of(3, lambda _: self.again(self.graph(), nudged))
        self.rounded = all_of(3, lambda seed: self.again(rounded(self.graph(), seed, 1.0)))
        self.tied = all_of(9, lambda seed: self.again(rounded(self.graph(), seed, TIED)))  # if: indices
        with filled_memory():  # if: unwritten
            self.filled = self.again(self.graph())  # if: unwritten
        self.reseeded = [self.again(self.graph(), seed=seed) for seed in range(1, 5)]  # if: draws
        self.reseeded_again = self.again(self.graph(), seed=1)  # if: draws


def all_of(count, run):
    """The results of some runs; none if one raises: not every kernel takes float64."""
    try:
        return [run(number) for number in range(count)]
    except Exception:
        return []


def rounded(graph, seed, units):
    """A graph whose operators round otherwise."""

    def run(*given):
        with OtherRounding(seed, units):
            return graph(*given)

    return run


def in_float64(graph):
    """A graph's class in which every floating-point dtype is float64."""
    text, space = inspect.getsource(graph), dict(globals())
    exec(re.sub(rf"\btorch\.({'|'.join(WIDE)})\b", lambda found: f"torch.{WIDE[found[1]]}", text), space)
    return space[graph.__name__]


# ------------------------------------------------------------------ comparison


def judged(run, index, found, compiled):
    """Whether a result is bitwise, close or wrong, and how far it is from eager's and from float64's."""
    wanted = run.results[index]
    if text_of_kind(found) != text_of_kind(wanted):
        return f"wrong ({text_of_kind(found)} where eager gives {text_of_kind(wanted)})"
    if not isinstance(wanted, torch.Tensor) or digest(found) == digest(wanted):
        return "bitwise"
    if not near(run.second[index], wanted):
        return "nondeterministic (two eager runs give different values)"
    error, close = apart(found, wanted), near(found, wanted)
    text = f"relative error {error:.3g}"
    drawn = False
    if not near(run.reseeded_again[index], run.reseeded[0][index]):  # if: draws
        return "nondeterministic (two eager runs from another seed give different values)"  # if: draws
    drawn = any(digest(other[index]) != digest(wanted) for other in run.reseeded)  # if: draws
    if drawn and not close:  # if: draws
        text += "; it depends on random numbers"  # if: draws
        if not is_finite(found) and all(is_finite(other[index]) for other in run.reseeded):  # if: draws
            return f"wrong ({text}; it has NaN or Inf, eager never has)"  # if: draws
        if not draws_alike(run, index, compiled):  # if: draws
            return f"random ({text}, which are not eager's)"  # if: draws
    if run.wide and not drawn:
        its, own = apart(found, run.wide[0][index]), apart(wanted, run.wide[0][index])
        close, text = close or its <= 4 * own, f"{text}; from float64: {its:.3g}, eager {own:.3g}"
    if close or rounds_as_far(run, index, error):
        return f"close ({text})"
    if ties_decide(run, index, found):  # if: indices
        return "close (nearly equal values decide where it differs)"  # if: indices
    if differs_where_unwritten(run, index, found):  # if: unwritten
        return "nondeterministic (it has memory that no operator writes)"  # if: unwritten
    found, wanted = strided(found)[-1], strided(wanted)[-1]
    if found.shape != wanted.shape:
        return f"wrong ({text})"
    off = (found.to(torch.complex128) - wanted.to(torch.complex128)).abs().nan_to_num(inf, inf)
    place = int(off.argmax())
    return f"wrong ({text}; at {place}: {wanted.flatten()[place]} expected, {found.flatten()[place]} came)"


def near(found, wanted):
    """Whether a result is within the tolerance of its dtype."""
    return apart(found, wanted) <= TOLERANCE.get(str(wanted.dtype)[6:], 0.0)


def rounds_as_far(run, index, error):
    """Whether eager's own results move as far where operators, or inputs, round otherwise."""
    wanted = run.results[index]
    if not wanted.is_floating_point() and not wanted.is_complex():
        return False
    others, moved = [run.rounded, run.nudged], 0.0
    others.append(run.wide)  # if: surely
    for runs in others:
        by = [apart(results[index], wanted) for results in runs]
        moved += max(filter(math.isfinite, by), default=0.0)
    return error <= (2.0 if wanted.dtype in HALVES else TIMES) * moved


def ties_decide(run, index, found):
    """Whether an index or a mask differs only where it does if nearly equal values change places."""
    wanted = run.results[index]
    if wanted.is_floating_point() or wanted.is_complex() or not run.tied or wanted.layout is not torch.strided:
        return False
    differs, unsteady = found != wanted, torch.zeros_like(wanted, dtype=torch.bool)
    for other in run.tied:
        unsteady |= other[index] != wanted
    explained = int((differs & unsteady).sum())
    return int(differs.sum()) - explained <= explained // MISSED


def differs_where_unwritten(run, index, found):
    """Whether a result differs only in memory that no operator writes."""
    wanted, filled = run.results[index], run.filled[index]
    numbers = wanted.is_floating_point() or wanted.is_complex()
    unwritten = filled.isnan() & ~wanted.isnan() if numbers else filled != wanted
    return near(found.masked_fill(unwritten, 0), wanted.masked_fill(unwritten, 0))


def draws_alike(run, index, compiled):
    """Whether the compiled graph draws eager's random numbers: from equal seeds results nearly agree."""
    wanted = [results[index] for results in run.reseeded]
    same = sum(apart(run.again(compiled, seed=1 + n)[index], each) for n, each in enumerate(wanted))
    return same < 0.1 * sum(map(apart, wanted, [*wanted[1:], wanted[0]]))


# ------------------------------------------------------------------ the command line


def backend_named(name):
    """A backend of torch.compile, or the function of file.py:function or module:function."""
    place, _, function = name.rpartition(":")
    known = torch.compiler.list_backends(exclude_tags=())
    if not place and name not in known:
        near = difflib.get_close_matches(name, known, 1)
        stop(f"torch.compile has no backend {name!r}{f': did you mean {near[0]}?' if near else ''}")
    if not place:
        return name
    try:
        loaded = runpy.run_path(place) if place.endswith(".py") else vars(importlib.import_module(place))
        return loaded[function]
    except (ImportError, OSError, KeyError) as error:
        return stop(f"backend {name!r}: {type(error).__name__}: {error}")


def compiled_run(run, backend):
    """A compiled graph and its results; where Dynamo splits the graph, a line says so."""
    given = {"backend": backend, "options": {"fallback_random": True} if backend == "inductor" else None}
    torch.compiler.reset()
    try:
        compiled = torch.compile(run.graph(), fullgraph=True, dynamic=False, **given)
        return compiled, run.again(compiled)
    except torch._dynamo.exc.Unsupported as error:
        print(f"# Dynamo cuts this graph, so parts of it may run in eager: {first_line(error)}")
        torch.compiler.reset()
        compiled = torch.compile(run.graph(), dynamic=False, **given)
        return compiled, run.again(compiled)


def main():
    """Run every graph in eager, and compare what a backend makes of it; exit with 1 where that is wrong."""
    reader = argparse.ArgumentParser()
    reader.add_argument("--backend", default=BACKEND, help="NAME, package.module:function or file.py:function")
    name = reader.parse_args().backend
    backend = name and backend_named(name)
    prepare()
    print(f"# {NAME}, runs with torch {torch.__version__}")
    made, counts = make_inputs(), Counter()
    torch.manual_seed(SEED)
    runs = run_graphs(made)  # if: single
    runs = run_linked_graphs(made)  # if: linked
    for title, run in runs.items():
        if title not in SHOWN:  # if: hidden
            continue  # if: hidden
        print(f"# {title}")
        found, verdicts, failed = [], [""] * len(run.results), []
        try:
            if name:
                compiled, found = compiled_run(run, backend)
        except Exception as error:  # whatever a backend raises is a result of its graph, and is shown
            traceback.print_exc()
            cause = getattr(error, "inner_exception", error)
            failed = [f"failed: {name} raised {type(cause).__name__}: {first_line(cause)}"]
        if found:
            run.run_references()
            verdicts = [judged(run, index, value, compiled) for index, value in enumerate(found)]
        lines = zip(run.outputs, run.results, verdicts, strict=True)
        lines = [f"{printed_line(*port, value)} {verdict}".rstrip() for port, value, verdict in lines]
        print("\n".join(lines + failed), flush=True)
        counts.update(verdict.split()[0].rstrip(":") for verdict in [*verdicts, *failed] if verdict)
    if counts:
        print("#", ", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    raise SystemExit(1 if counts["wrong"] or counts["failed"] else 0)
