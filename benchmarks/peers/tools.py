"""Backprint and six other tools on the programs: `python tools.py TOOL FOLDER PROGRAM...` prints what a tool keeps.

`python tools.py TOOL FOLDER PROGRAM... --alone` begins with what the first left in FOLDER: in a process that cannot
import the programs, it runs what the tool kept, and compares the gradients with those of the program.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Kept:
    """What a tool keeps of one program."""

    forward: int = 0
    backward: int = 0
    """Steps of its graphs: calls of operators, or nodes of autograd."""

    saved: int | None = None
    saved_bytes: int | None = None
    more: str = ""
    """What it has beside graphs, counted."""

    seconds: float = 0.0
    size: int = 0
    error: str = ""


Alone = tuple[str, str]
"""Whether what was kept runs without the program, and how its gradients compare with those of the program."""


# ------------------------------------------------------------------ Backprint


def backprint_make(model: torch.nn.Module, inputs: tuple[Tensor, ...], place: Path) -> Kept:
    import backprint as bp

    cap = bp.capture(model, *inputs)
    cap.save(place / "sample")
    (pair,) = cap.pairs
    saved = [port for port in pair.backward.inputs if port.role == "saved"]
    own = [verdict.verdict for verdict in cap.verify()]
    return Kept(
        len(pair.forward.steps),
        len(pair.backward.steps),
        len(saved),
        sum(port.spec.nbytes for port in saved),
        f"its own verdict: {', '.join(own)}",
    )


def backprint_alone(place: Path, inputs: tuple[Tensor, ...], state: Mapping[str, Tensor]) -> Gradients:
    import backprint as bp

    return {
        name: value
        for name, value in bp.replay(bp.load(place / "sample"), *inputs, state=state).gradients.items()
        if name in state
    }


# ------------------------------------------------------------------ torch.export


def export_make(model: torch.nn.Module, inputs: tuple[Tensor, ...], place: Path) -> Kept:
    program = torch.export.export(model, inputs)
    torch.export.save(program, place / "program.pt2")
    free = torch.export.export(model, inputs, dynamic_shapes=({0: torch.export.Dim.AUTO},))
    symbolic = any(isinstance(size, torch.SymInt) for node in free.graph.nodes for size in shape_of(node))
    return Kept(calls(program.graph), more=f"the batch {'stays symbolic' if symbolic else 'is a constant'} if asked")


def export_alone(place: Path, inputs: tuple[Tensor, ...], state: Mapping[str, Tensor]) -> Gradients:
    module = torch.export.load(place / "program.pt2").module()
    module(*inputs).backward()
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def joint_make(model: torch.nn.Module, inputs: tuple[Tensor, ...], place: Path) -> Kept:
    from torch.export.experimental import _export_forward_backward

    plain = torch.export.export(model, inputs)
    joint = _export_forward_backward(plain)
    torch.export.save(joint, place / "program.pt2")
    return Kept(calls(plain.graph), calls(joint.graph) - calls(plain.run_decompositions().graph))


def joint_alone(place: Path, inputs: tuple[Tensor, ...], state: Mapping[str, Tensor]) -> Gradients:
    program = torch.export.load(place / "program.pt2")
    tensors = iter(inputs)
    names = [port.target for port in program.graph_signature.input_specs]
    values = [program.state_dict.get(name) if name else next(tensors) for name in names]
    results = program.graph_module(*values)
    kinds = torch.export.graph_signature.OutputKind
    return {
        port.target: value
        for port, value in zip(program.graph_signature.output_specs, results, strict=True)
        if port.kind is kinds.GRADIENT_TO_PARAMETER
    }


# ------------------------------------------------------------------ logs and dumps of torch.compile


def compiled_step(model: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
    torch.compile(model, backend="aot_eager")(*inputs).backward()


def logs_make(model: torch.nn.Module, inputs: tuple[Tensor, ...], place: Path) -> Kept:
    """Read what TORCH_LOGS=aot,aot_graphs writes to the file of TORCH_LOGS_OUT."""
    compiled_step(model, inputs)
    text = (place.parent / "log").read_text()
    (place / "log").write_text(text)  # so that its size is counted
    lines = [re.sub(r"^\S+ \S+ \S+ \S+\] (?:\[\S+\] )*", "", line) for line in text.splitlines()]
    parts = re.split(r"=+ (?=Forward graph|Backward graph|Joint graph)", "\n".join(lines))
    return from_texts([part for part in parts if part.startswith(("Forward", "Backward"))])


def tlparse_make(model: torch.nn.Module, inputs: tuple[Tensor, ...], place: Path) -> Kept:
    """Read what tlparse makes of the folder of TORCH_TRACE."""
    import subprocess

    compiled_step(model, inputs)
    (log,) = (place.parent / "trace").glob("*.log")
    tool = Path(sys.executable).parent / "tlparse"
    subprocess.run([tool, log, "-o", place / "report", "--no-browser", "--plain-text"], check=True, capture_output=True)
    files = [path for path in (place / "report").rglob("*") if path.is_file()]
    texts = [
        f"{name} {path.read_text()}"
        for name, word in (("Forward", "aot_forward_graph"), ("Backward", "aot_backward_graph"))
        for path in files
        if word in path.name
    ]
    return replace(from_texts(texts), more=f"{len(files)} files of its report")


def depyf_make(model: torch.nn.Module, inputs: tuple[Tensor, ...], place: Path) -> Kept:
    import depyf

    with depyf.prepare_debug(str(place / "dump")):
        compiled_step(model, inputs)
    files = list((place / "dump").rglob("*.py"))
    texts = [
        f"{name} {path.read_text()}"
        for name in ("Forward", "Backward")
        for path in files
        if f"{name} graph" in path.name or f"{name}_graph" in path.name
    ]
    code = sum(path.name.startswith(("__transformed_code", "full_code")) for path in files)
    return replace(from_texts(texts), more=f"{code} files of decompiled bytecode")


def from_texts(texts: list[str]) -> Kept:
    """Read printed graphs, each behind the word Forward or Backward."""
    steps = {"Forward": 0, "Backward": 0}
    saved: list[int] = []
    for text in texts:
        name = text.split()[0]
        steps[name] += len(re.findall(r"= torch\.ops\.", text))
        if name == "Backward":
            arguments = text.partition("def forward(")[2].partition("):")[0]
            ports = re.findall(r'(\w+): "([a-z]+\d+\[[^"]*\])[^"]*"', arguments)
            saved += [tensor_bytes(spec) for port, spec in ports if not port.startswith("tangents")]
    return Kept(steps["Forward"], steps["Backward"], len(saved), sum(saved))


# ------------------------------------------------------------------ torchlens, Model Explorer


def torchlens_make(model: torch.nn.Module, inputs: tuple[Tensor, ...], place: Path) -> Kept:
    import torchlens

    trace = torchlens.trace(model, list(inputs), capture=torchlens.options.CaptureOptions(save_grads=True))
    trace.log_backward(trace[trace.output_layers[0]].out)
    trace.save(str(place / "trace.tlspec"))
    valid = torchlens.validate(model, list(inputs), scope="backward", loss_fn=lambda loss: loss)
    return Kept(
        len(trace.layers),
        trace.num_grad_fns,
        None,
        int(trace.total_autograd_memory),
        f"{trace.num_saved_ops} activations, {trace.num_saved_grad_layers} gradients; its own validation: {valid}",
    )


def explorer_make(model: torch.nn.Module, inputs: tuple[Tensor, ...], place: Path) -> Kept:
    from model_explorer.pytorch_exported_program_adapter_impl import PytorchExportedProgramAdapterImpl

    program = torch.export.export(model, inputs)
    graphs = PytorchExportedProgramAdapterImpl(program, {"const_element_count_limit": 16}).convert()["graphs"]
    nodes = [asdict(node) for graph in graphs for node in graph.nodes]
    (place / "graph.json").write_text(json.dumps(nodes, default=str))
    modules = {node["namespace"] for node in nodes}
    return Kept(calls(program.graph), more=f"{len(nodes)} boxes in {len(modules)} layers of its picture")


# ------------------------------------------------------------------ one run

Gradients = Mapping[str, Tensor | None]
Make = Callable[[torch.nn.Module, tuple[Tensor, ...], Path], Kept]
Run = Callable[[Path, tuple[Tensor, ...], Mapping[str, Tensor]], Gradients]

TOOLS: dict[str, tuple[Make, Run | None]] = {
    "Backprint": (backprint_make, backprint_alone),
    "torch.export": (export_make, export_alone),
    "its joint graph": (joint_make, joint_alone),
    "TORCH_LOGS=aot": (logs_make, None),
    "tlparse": (tlparse_make, None),
    "depyf": (depyf_make, None),
    "torchlens": (torchlens_make, None),
    "Model Explorer": (explorer_make, None),
}


def make(tool: str, name: str, place: Path) -> Kept:
    """Run a tool on a program; keep the inputs, the state and the gradients of the program for the other process."""
    from programs import made

    place.mkdir(parents=True, exist_ok=True)
    model, inputs = made(name)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    model(*inputs).backward()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    torch.save({"inputs": inputs, "state": state, "gradients": gradients}, place / "expected.pt")
    model, inputs = made(name)
    begun = time.process_time()
    try:
        kept = TOOLS[tool][0](model, inputs, place)
    except Exception as error:  # whatever the tool raises is its answer for this program
        return Kept(error=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
    seconds = time.process_time() - begun
    files = [path for path in place.rglob("*") if path.is_file() and path.name != "expected.pt"]
    return replace(kept, seconds=seconds, size=sum(path.stat().st_size for path in files))


def alone(tool: str, place: Path) -> Alone:
    """Run what a tool kept, without the program; return whether it ran, and how its gradients compare."""
    run = TOOLS[tool][1]
    if run is None:
        return "no", ""
    kept = torch.load(place / "expected.pt")
    try:
        gradients = run(place, kept["inputs"], kept["state"])
    except Exception as error:  # the same
        return f"no: {type(error).__name__}: {str(error).strip().splitlines()[0]}", ""
    if not gradients:
        return "forward", ""
    expected = kept["gradients"]
    equal = [name for name in expected if matches(gradients.get(name), expected[name])]
    return "yes", f"{len(equal)} of {len(expected)}"


def matches(gradient: Tensor | None, expected: Tensor) -> bool:
    """Whether a gradient is the program's, up to rounding."""
    return gradient is not None and torch.allclose(gradient, expected, rtol=1e-4, atol=1e-6)


def calls(graph: torch.fx.Graph) -> int:
    return sum(node.op == "call_function" for node in graph.nodes)


def shape_of(node: torch.fx.Node) -> Iterator[Any]:
    """Yield the sizes of a node's result."""
    value = node.meta.get("val")
    yield from value.shape if isinstance(value, Tensor) else ()


SIZES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "b8": 1, "u8": 1, "i8": 1}


def tensor_bytes(spec: str) -> int:
    """The bytes of `f32[2, 3]`, as graphs are printed."""
    dtype, _, rest = spec.partition("[")
    count = 1
    for size in filter(None, rest.partition("]")[0].split(",")):
        count *= int(size)
    return count * SIZES[dtype]


def main() -> None:
    tool, folder, *names = sys.argv[1:]
    places = {name: Path(folder) / name.replace(" ", "_") for name in names if name != "--alone"}
    with contextlib.redirect_stdout(sys.stderr):
        if "--alone" in names:
            answers: dict[str, Any] = {name: alone(tool, place) for name, place in places.items()}
        else:
            answers = {name: asdict(make(tool, name, place)) for name, place in places.items()}
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
