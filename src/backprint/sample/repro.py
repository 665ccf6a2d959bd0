"""The command line of an exported file: run its graphs in eager and through a backend of torch.compile, and compare.

With a backend, each compiled graph gets the inputs and the random state that the same graph had in the eager run. So a
difference in its results comes from this graph, and not from an earlier one.

`export` copies the code of this module, without this docstring, to the end of every exported file. So it imports only
torch, the standard library and modules that are copied in the same way.
"""

import argparse
import base64
import contextlib
import difflib
import importlib
import importlib.util
import platform
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from backprint.sample.alone import make_inputs, printed_line, read_safetensors
from backprint.sample.judged import Eager, first_line, judged
from backprint.sample.rerun import EagerRun, Program

BAD = ("wrong", "failed")


def backend_named(name: str) -> Any:
    """Return a name that torch.compile knows, or the function of `module:function` or `file.py:function`."""
    place, colon, function = name.rpartition(":")
    if not colon:
        known = torch.compiler.list_backends(exclude_tags=())
        if name in known:
            return name
        near = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
        return stop(f"torch.compile has no backend {name!r}: {meant} A function of yours is file.py:function.")
    try:
        if not place.endswith(".py"):
            return getattr(importlib.import_module(place), function)
        spec: Any = importlib.util.spec_from_file_location(Path(place).stem, place)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, function)
    except (ImportError, OSError, AttributeError) as error:
        return stop(f"backend {name!r}: {type(error).__name__}: {error}")


def stop(text: str) -> Any:
    """End the program with the exit code of wrong usage."""
    print(text, file=sys.stderr)
    raise SystemExit(2)


def compiled_by(run: EagerRun, backend: Any) -> tuple[Callable[..., Any], Any]:
    """Compile a graph and run it; return both. If Dynamo splits the graph, print that."""
    options = {"options": {"fallback_random": True}} if backend == "inductor" else {}
    torch.compiler.reset()
    try:
        compiled = torch.compile(run.module(), backend=backend, fullgraph=True, dynamic=False, **options)
        return compiled, run.again(compiled)
    except torch._dynamo.exc.Unsupported as error:
        print(f"# Dynamo cuts this graph, so parts of it may run in eager: {first_line(error)}")
        torch.compiler.reset()
        compiled = torch.compile(run.module(), backend=backend, dynamic=False, **options)
        return compiled, run.again(compiled)


def compared(run: EagerRun, name: str, backend: Any) -> Iterator[tuple[str, str]]:
    """Yield a word for each output of a graph, and its reason; one `failed` if the backend raises."""
    try:
        compiled, found = compiled_by(run, backend)
    except Exception as error:
        traceback.print_exc()
        cause = getattr(error, "inner_exception", error)
        yield "failed", f"{name} raised {type(cause).__name__}: {first_line(cause)}"
        return
    eager = Eager(run, compiled)
    for index, value in enumerate(found):
        yield judged(eager, index, value)


SETTINGS: Mapping[str, Callable[[str], object]] = {
    "default_dtype": lambda text: torch.set_default_dtype(getattr(torch, text)),
    "threads": lambda text: torch.set_num_threads(int(text)),
    "deterministic": lambda text: torch.use_deterministic_algorithms(text != "False", warn_only=text == "warn"),
    "flush_denormal": lambda text: torch.set_flush_denormal(text == "True"),
    "float32_matmul_precision": torch.set_float32_matmul_precision,
    "flash_sdp": lambda text: torch.backends.cuda.enable_flash_sdp(text == "True"),
    "math_sdp": lambda text: torch.backends.cuda.enable_math_sdp(text == "True"),
    "efficient_sdp": lambda text: torch.backends.cuda.enable_mem_efficient_sdp(text == "True"),
    "cudnn_deterministic": lambda text: setattr(torch.backends.cudnn, "deterministic", text == "True"),
    "mkldnn": lambda text: torch.backends.mkldnn.set_flags(text == "True"),
}


def prepare(content: Mapping[str, Any], here: Path, data: Any) -> dict[str, Any]:
    """Restore the settings of the capture, and make the inputs."""
    for name in content["requires"]:
        library, operator, *_ = name.split(".")
        if not hasattr(getattr(torch.ops, library), operator):
            stop(f"{name} is not an operator of PyTorch: import the library that registers it at the top of this file")
    for name, text in content["environment"].items():
        with contextlib.suppress(ValueError, RuntimeError, TypeError, AttributeError):
            SETTINGS.get(name, str)(text)
    for device in {row["device"] for row in content["recipes"].values()}:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            stop(f"the inputs are on {device}, which is not here: {first_line(error)}")
    if isinstance(data, str):
        if not (here / data).exists():
            stop(f"{here / data} is not there: it has the exact data of this file's inputs, and belongs beside it")
        exact = read_safetensors(here / data)
    else:
        exact = {name: tensor_of(*row) for name, row in data.items()}
    return make_inputs(content["recipes"], list(content["recipes"]), exact)


def tensor_of(dtype: str, shape: Sequence[int], text: str) -> Any:
    """Return the tensor of these bytes, given as base64."""
    raw = bytearray(base64.b64decode(text))
    flat = torch.frombuffer(raw, dtype=getattr(torch, dtype)) if raw else torch.empty(0, dtype=getattr(torch, dtype))
    return flat.reshape(tuple(shape))


def run_file(content: Mapping[str, Any], graphs: Mapping[str, Any], data: Any, asked: str | None, file: str) -> None:
    """Run every graph and print a line for each output, with a backend its word; exit with 1 if one is wrong."""
    reader = argparse.ArgumentParser(description="Run these graphs in eager, and through a backend of torch.compile.")
    reader.add_argument("--backend", default=asked, help="NAME, package.module:function or file.py:function")
    name = reader.parse_args().backend
    backend = backend_named(name) if name else None
    made = prepare(content, Path(file).resolve().parent, data)
    print(f"# {content['name']}: captured with torch {content['torch']}, runs with torch {torch.__version__}")
    if name:
        machine = f"Python {platform.python_version()}, {platform.machine()}, {torch.get_num_threads()} threads"
        print(f"# eager against torch.compile(backend={name!r}), {machine}")
    torch.manual_seed(content["seed"])
    runs = Program(content, graphs, made, bool(name)).play()
    counts: Counter[str] = Counter()
    for title in content["shown"]:
        print(f"# {title}")
        counts.update(print_graph(runs[title], name, backend))
    if name:
        print(f"# {', '.join(f'{count} {word}' for word, count in sorted(counts.items())) or 'no outputs'}")
    raise SystemExit(1 if any(word in BAD for word in counts) else 0)


def print_graph(run: EagerRun, name: str | None, backend: Any) -> list[str]:
    """Print a line for each output of a graph; return the words."""
    lines = [printed_line(*port, value) for port, value in zip(run.outputs, run.results, strict=True)]
    verdicts = list(compared(run, name, backend)) if name else []
    if [word for word, _ in verdicts] == ["failed"]:
        print("\n".join((*lines, f"failed: {verdicts[0][1]}")), flush=True)
        return ["failed"]
    for line, (word, why) in zip(lines, verdicts or [("", "")] * len(lines), strict=True):
        print(" ".join(filter(None, (line, word, f"({why})" if why else ""))), flush=True)
    return [word for word, _ in verdicts]
