"""Run the graphs of an exported file in the order and under the seed of a verdict's replay.

The forwards run in order, then the backwards, the last first. The gradient of a value is the sum of the tangents of the
results and of the gradients from later graphs. Each graph can be run again from its inputs and its random state.

Exported files (`export`) have the functions of it that they need, with their text as it is here, so it imports only
torch and the standard library.

Words of this file:

- A graph is a class whose `forward` has an annotation for each port. `ports` returns (spec, role, name) of each, and
  its title is `pair_0 forward`. Its *results* are what `forward` returns, and its `outputs` the (role, name) of each.
- `EagerRun.module` is the class of a graph (a changed one has its text as `changed`), `random` the state of the CPU's
  generator and those of the GPUs' from which it ran.
- `Program.content` is what `export.content_of` returns: `links`, each [source, role, port, target, name] by the numbers
  of Pairs, a target None for a result of the whole Capture; `differentiable`, the results that take a tangent;
  `strides`, which a backward expects of a tangent, by `INDEX NAME`. `made` has the inputs by name, tangents as
  `tangent NAME`. With `copies`, what the graphs need to run again is kept.
- While a Program runs, `values` has for each Pair that has begun the inputs of its forward by name, `given` what
  forwards returned, by Pair, role and name, and `gradients` what backwards returned, by Pair and name. A backward may
  run before later forwards, which a link passes its gradient to: Pairs that have not begun add nothing to its tangents.
  `find` returns the value of an input of the graph that runs, by role and name.
- A stride of 0 is one of an expanded tensor: all elements of the dimension are one in memory.
- In texts of graphs, the type of a tensor has a `[`, and that of a number none.
"""

import ast
import copy
import functools
import inspect
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backprint.run_sample import number_or_tensor, ports


@dataclass(frozen=True)
class EagerRun:
    """A graph that ran in eager, and everything to run it again: its class without guards, inputs, random state."""

    module: Any
    inputs: list[Any]
    random: tuple[Any, Any]
    outputs: list[tuple[str, str]]
    results: tuple[Any, ...]

    def again(self, function: Callable[..., Any], inputs: Sequence[Any] | None = None, seed: int | None = None) -> Any:
        """Run a function on copies of the inputs, from the same random state or from a seed."""
        values = copies(self.inputs if inputs is None else inputs)
        torch.set_rng_state(self.random[0])
        if self.random[1]:
            torch.cuda.set_rng_state_all(self.random[1])
        if seed is not None:
            torch.manual_seed(seed)
        return function(*values)


class Program:
    """The graphs while they run, with the values and gradients that links pass between them."""

    def __init__(self, content: Mapping[str, Any], graphs: Mapping[str, Any], made: Mapping[str, Any], copies: bool):
        self.content, self.graphs, self.made, self.copies = content, graphs, made, copies
        self.values: list[Mapping[str, Any]] = []
        self.given: dict[tuple[int, str, str], Any] = {}
        self.gradients: dict[int, dict[str, Any]] = {}
        self.runs: dict[str, EagerRun] = {}

    def play(self) -> dict[str, EagerRun]:
        """Run every graph; return the runs by title."""
        for index in range(len(self.content["pairs"])):
            fed = {name for _, _, _, target, name in self.content["links"] if target == index}
            self.values.append({**self.made, **{name: self.fed(index, name) for name in fed}})
            found = self.graph(index, "forward", lambda role, name: self.values[-1][name])
            self.given |= {(index, role, name): value for role, name, value in found}
        for index in reversed(range(len(self.content["pairs"]))):
            self.backward(index)
        return self.runs

    def graph(self, index: int, side: str, find: Callable[[str, str], Any]) -> list[tuple[str, str, Any]]:
        """Run one graph; return (role, name, value) of each output."""
        title = f"{self.content['pairs'][index]} {side}"
        module = self.graphs[title]
        annotations = dict(module.forward.__annotations__)
        outputs = [(role, name) for _, role, name in ports(annotations.pop("return"))]
        inputs = [number_or_tensor(spec, find(role, name)) for spec, role, name in ports(annotations.values())]
        kept = copies(inputs) if self.copies else []
        random = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
        results = module()(*inputs)
        free = rebuilt(module, unguarded(inspect.getsource(module))) if self.copies else module
        self.runs[title] = EagerRun(free, kept, random, outputs, results)
        return [(role, name, value) for (role, name), value in zip(outputs, results, strict=True)]

    def fed(self, index: int, name: str) -> Any:
        """Return the value that links pass to an input; gradients are added up, the latest graph's first."""
        links = [link for link in self.content["links"] if link[3:] == [index, name]]
        source, role, port, _, _ = links[0]
        if role != "gradient":
            return self.given[source, role, port]
        ends = sorted(((source, port) for source, _, port, _, _ in links), reverse=True)
        return total(self.backward(source)[port] for source, port in ends)

    def backward(self, index: int) -> dict[str, Any]:
        """Run one backward, after the later ones that it depends on; return its gradients by name."""
        if index in self.gradients:
            return self.gradients[index]
        self.gradients[index] = {}
        if f"{self.content['pairs'][index]} backward" not in self.graphs:
            return {}

        def find(role: str, name: str) -> Any:
            if role == "tangent":
                return self.tangent(index, name)
            return self.given[index, "saved", name] if role == "saved" else self.values[index][name]

        found = self.graph(index, "backward", find)
        self.gradients[index] = {name: value for _, name, value in found}
        return self.gradients[index]

    def tangent(self, index: int, name: str) -> Any:
        """Return the gradient of an output: the tangents of its results plus the gradients from later graphs."""
        output, links = self.given[index, "output", name], self.content["links"]
        taken = [link for link in links if link[:3] == [index, "output", name]]
        terms = [self.made[f"tangent {link[4]}"] for link in taken if link[3] is None and self.asks(link[4])]
        later = sorted((link for link in taken if link[3] is not None), key=lambda link: -link[3])
        terms += [self.backward(link[3]).get(link[4]) for link in later if link[3] < len(self.values)]
        found = total(terms)
        found = torch.zeros_like(output) if found is None else found
        if output.layout is not torch.strided:
            return found
        return laid(found, self.content["strides"].get(f"{index} {name}") or torch.empty_like(output).stride())

    def asks(self, result: str) -> bool:
        """Whether a result takes a tangent."""
        return result in self.content["differentiable"]


def copies(values: Sequence[Any]) -> list[Any]:
    """Copy the inputs of a graph; copies share memory where the originals do."""
    memory: dict[int, Any] = {}
    pointers = [memory_of(value) for value in values]
    return [
        value.clone() if compressed(value) or is_plain(value, pointers) else copy.deepcopy(value, memory)
        for value in values
    ]


def memory_of(value: Any) -> int:
    """Return where a tensor's memory begins; 0 if it has none of its own."""
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage().data_ptr() if strided else 0


def is_plain(value: Any, pointers: Sequence[int]) -> bool:
    """Whether a clone of a value is what `deepcopy` makes of it in ten times the time: it fills memory that no other of
    these values has."""
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and not (value.requires_grad or value.is_conj() or value.is_neg() or value.is_quantized)
        and value.is_contiguous()
        and value.untyped_storage().nbytes() == value.nbytes > 0
        and pointers.count(value.untyped_storage().data_ptr()) == 1
    )


def compressed(value: Any) -> bool:
    """Whether a value is a sparse tensor that `deepcopy` does not support."""
    return isinstance(value, torch.Tensor) and value.layout not in (torch.strided, torch.sparse_coo)


def total(terms: Any) -> Any:
    """Return the sum of the terms that are not None, from the left; None without any."""
    there = [term for term in terms if term is not None]
    return functools.reduce(lambda left, right: left + right, there) if there else None


def laid(tensor: Any, stride: Sequence[int]) -> Any:
    """Return the tensor with the strides that a backward expects."""
    sides = list(zip(tensor.shape, tensor.stride(), stride, strict=True))
    as_asked = tensor.numel() == 0 or all(size <= 1 or now == then for size, now, then in sides)
    if as_asked or any(then == 0 and size > 1 for size, _, then in sides):
        return tensor
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def laid_as_saved(tensor: Any, stride: Sequence[int]) -> Any:
    """Return a saved value with the strides that its backward was compiled for.

    A stride is 0 where the forward expanded the value, so that its first element there stands for all.
    """
    shape, kept = tensor.shape, tensor
    for dim, (size, step) in enumerate(zip(shape, stride, strict=True)):
        if step == 0 and size > 1:
            kept = kept.narrow(dim, 0, 1)
    return laid(tensor, stride) if kept is tensor else laid(kept, stride).expand(shape)


# ---------------------------------------------------------------------------------------- another form of a graph


def unguarded(text: str) -> str:
    """Return the text of a graph's class without its guards, which hold on these inputs, and their reads."""
    if "assert " not in text:
        return text
    tree = ast.parse(text)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        function.body = [node for node in function.body if not isinstance(node, ast.Assert)]
        while unread := [node for node in function.body if reads_in_vain(node, function)]:
            function.body = [node for node in function.body if node not in unread]
    return ast.unparse(tree)


def reads_in_vain(node: ast.stmt, function: ast.FunctionDef) -> bool:
    """Whether a step computes a number that no other step uses."""
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Constant(value=str(spec))):
            used = {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and each is not node.target}
            return "[" not in spec and name not in used
    return False


def rebuilt(module: Any, text: str) -> Any:
    """Return the class of a changed text, executed with the names of the original's file."""
    place = f"<{module.__name__}, changed>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    space = dict(vars(sys.modules[module.__module__]))
    exec(compile(text, place, "exec"), space)
    space[module.__name__].changed = text
    return space[module.__name__]
