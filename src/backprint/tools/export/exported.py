"""The functions of an exported file (`export`) that only such a file has: its runs, and the command line.

A file has the functions that it needs of this module, and of those that this one imports, each with its text as it is
there. Names in capital letters, `make_inputs` and `prepare` are the file's own. Results are judged by `judged`, as in
`bench` and `minify`. These modules import torch, the standard library and each other.

Words of this file:

- A graph is a class whose `forward` has an annotation for each port. `ports` returns (spec, role, name) of each.
  GRAPHS has them by their titles (`pair_0 forward`), SHOWN those that are compared, and LINKS, where there are several
  Pairs, what joins them.
- `made` has the inputs by name, those of backwards as `tangent NAME`; `saved` what the forward has saved, by role and
  name.
- An EagerRun is a graph that ran in eager, with all that is needed to run it again: its class, copies of its inputs,
  the generators' state before, the role and name of each output, and its results. `rebuilt` returns the class of a
  text. `Eager` has more runs of it, by which a backend's results are judged.
- `given` are the values that a graph runs on, `found` what a backend returns, `wanted` what eager returned.
- Inductor's `fallback_random` makes it draw as eager does.
"""

import argparse
import base64
import difflib
import importlib
import inspect
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from backprint.run_sample import number_or_tensor, ports, printed_line, read_safetensors
from backprint.tools.export.judged import Eager, first_line, judged, strided
from backprint.tools.export.rerun import EagerRun, Program, copies, rebuilt

BACKEND: str | None = None
GRAPHS: Mapping[str, Any] = {}
LINKS: Mapping[str, Any] = {}
SHOWN: Sequence[str] = ()
SEED = 0
NAME = ""


def make_inputs() -> dict[str, Any]:
    """Return the inputs of the graphs by name."""
    return {}


def prepare() -> None:
    """Check that the machine has what the graphs need, and make the settings of the capture."""


# ------------------------------------------------------------------ inputs


def need_operator(name: str) -> None:
    """End the program if an operator is not registered."""
    library, operator, *_ = name.split(".")
    if not hasattr(getattr(torch.ops, library), operator):
        stop(f"{name} is not an operator of PyTorch: import the library that registers it at the top of this file")


def need_device(device: str) -> None:
    """End the program if a device is not here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        stop(f"the inputs are on {device}, which is not here: {first_line(error)}")


def data_beside(name: str) -> dict[str, Any]:
    """Return the exact data of the inputs, which are in a file beside this one."""
    place = Path(__file__).resolve().parent / name
    if not place.exists():
        stop(f"{place} is not there: it has the exact data of this file's inputs, and belongs beside it")
    return read_safetensors(place)


def tensor_of(dtype: Any, shape: Sequence[int], text: str) -> Any:
    """Return the tensor of these bytes, given as base64."""
    raw = bytearray(base64.b64decode(text))
    flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


def stop(text: str) -> NoReturn:
    """End the program with the exit code of wrong usage."""
    print(text, file=sys.stderr)
    raise SystemExit(2)


# ------------------------------------------------------------------ runs


def run_graphs(made: Mapping[str, Any]) -> dict[str, EagerRun]:
    """Run the graphs in eager, the backward on what the forward saved; return the runs by title."""
    runs: dict[str, EagerRun] = {}
    saved: dict[tuple[str, str], Any] = {}
    for title, graph in GRAPHS.items():
        hints = dict(graph.forward.__annotations__)
        outputs = [(role, name) for _, role, name in ports(hints.pop("return"))]
        keys = [(role, f"tangent {name}" if role == "tangent" else name) for _, role, name in ports(hints.values())]
        given = [saved[key] if key[0] == "saved" else made[key[1]] for key in keys]
        given = list(map(number_or_tensor, hints.values(), given))
        random = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
        kept = copies(given)
        results = graph()(*given)
        runs[title] = EagerRun(rebuilt(graph, inspect.getsource(graph)), kept, random, outputs, results)
        saved |= dict(zip(outputs, results, strict=True))
    return runs


def run_linked_graphs(made: Mapping[str, Any]) -> dict[str, EagerRun]:
    """Run the graphs of several Pairs in eager, with the values and gradients that links pass; return the runs by
    title."""
    return Program(LINKS, GRAPHS, made, True).play()


# ------------------------------------------------------------------ the command line


def backend_named(name: str) -> Any:
    """Return a backend of torch.compile, or the function of file.py:function or module:function."""
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
        stop(f"backend {name!r}: {type(error).__name__}: {error}")


def compiled_run(run: EagerRun, graph: Any, backend: Any) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return a compiled graph and its results; where Dynamo splits the graph, a line says so."""
    given = {"backend": backend, "options": {"fallback_random": True} if backend == "inductor" else None}
    torch.compiler.reset()
    try:
        compiled = torch.compile(graph(), fullgraph=True, dynamic=False, **given)
        return compiled, run.again(compiled)
    except torch._dynamo.exc.Unsupported as error:
        print(f"# Dynamo cuts this graph, so parts of it may run in eager: {first_line(error)}")
        torch.compiler.reset()
        compiled = torch.compile(graph(), dynamic=False, **given)
        return compiled, run.again(compiled)


def verdict_of(eager: Eager, index: int, found: Any) -> str:
    """Return the word for one result of a backend, with the reason; of a wrong one, with the element that is farthest
    from eager's."""
    word, reason = judged(eager, index, found)
    wanted = eager.run.results[index]
    if word == "wrong" and isinstance(found, torch.Tensor) and isinstance(wanted, torch.Tensor):
        found, wanted = strided(found)[-1], strided(wanted)[-1]
        if found.shape == wanted.shape and found.dtype == wanted.dtype:
            off = (found.to(torch.complex128) - wanted.to(torch.complex128)).abs().nan_to_num(torch.inf, torch.inf)
            place = int(off.argmax())
            reason += f"; at {place}: {wanted.flatten()[place]} expected, {found.flatten()[place]} came"
    return f"{word} ({reason})" if reason else word


def main(run_all: Callable[[Mapping[str, Any]], Mapping[str, EagerRun]]) -> None:
    """Run every graph in eager, and compare what a backend makes of it; exit with 1 where that is wrong."""
    reader = argparse.ArgumentParser()
    reader.add_argument("--backend", default=BACKEND, help="NAME, package.module:function or file.py:function")
    name = reader.parse_args().backend
    backend = name and backend_named(name)
    prepare()
    print(f"# {NAME}, runs with torch {torch.__version__}")
    made = make_inputs()
    counts: Counter[str] = Counter()
    torch.manual_seed(SEED)
    for title, run in run_all(made).items():
        if title not in SHOWN:
            continue
        print(f"# {title}")
        verdicts, failed = [""] * len(run.results), []
        try:
            found = None
            if name:
                compiled, found = compiled_run(run, GRAPHS[title], backend)
        except Exception as error:  # whatever a backend raises is a result of its graph, and is shown
            traceback.print_exc()
            cause = getattr(error, "inner_exception", error)
            failed = [f"failed: {name} raised {type(cause).__name__}: {first_line(cause)}"]
        if found is not None:
            eager = Eager(run, compiled)
            verdicts = [verdict_of(eager, index, value) for index, value in enumerate(found)]
        lines = zip(run.outputs, run.results, verdicts, strict=True)
        texts = [f"{printed_line(*port, value)} {verdict}".rstrip() for port, value, verdict in lines]
        print("\n".join(texts + failed), flush=True)
        counts.update(verdict.split()[0].rstrip(":") for verdict in [*verdicts, *failed] if verdict)
    if counts:
        print("#", ", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    raise SystemExit(1 if counts["wrong"] or counts["failed"] else 0)
