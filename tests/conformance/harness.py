"""One sample of PyTorch's own databases, captured, replayed and compared with eager autograd: an outcome in a word.

Each is compared twice: by Backprint's own `verify`, and with gradients that `torch.autograd.grad` gives this harness
for the same call, so that a fault that capture and `verify` share is seen.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import backprint as bp
from backprint.graph.text import parse
from backprint.values import settings

OUTCOMES = ("bitwise", "close", "undifferentiable", "refused", "unproven", "wrong", "failed", "crashed", "text")
LETTERS = dict(zip(OUTCOMES, "bcnrpwfxt", strict=True))
"""From good to bad. `refused` names the reason; `crashed` is an error that is none of ours; `text` a text that does not
parse back."""


def check(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any) -> tuple[str, str]:
    """Capture a call, replay it, compare: the outcome, and what there is to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            capture = bp.capture(target, args=args, kwargs=kwargs, **options)
        except bp.errors.BackprintError as error:
            return "refused", f"{type(error).__name__}: {error}"
        except Exception as error:
            return "crashed", f"{type(error).__name__}: {error}"
        for pair in capture.pairs:
            for graph in (pair.forward, pair.backward):
                if graph is not None and parse(graph.code) != graph:
                    return "text", "the text does not parse back to the graph"
        verdict = worst(bp.verify(capture, ("captured",)))
        if verdict.verdict not in ("bitwise", "close"):
            return verdict.verdict, verdict.detail
        said = verdict.verdict, verdict.detail
        if any_sparse(capture):
            return said  # the second oracle is for strided tensors: its tangents are dense
        return max(said, against_autograd(capture, target, args, kwargs), key=badness)


def worst(verdicts: Sequence[Any]) -> Any:
    """The worst of the verdicts on a Capture's Pairs; a Pair without gradients does not make all of it so."""
    proper = [one for one in verdicts if one.verdict != "undifferentiable"]
    return max(proper or verdicts, key=lambda one: OUTCOMES.index(one.verdict))


def badness(outcome: tuple[str, str]) -> int:
    """Where an outcome stands from good to bad."""
    return OUTCOMES.index(outcome[0])


# ------------------------------------------------------------------ the second oracle


@dataclass(frozen=True, slots=True)
class Eager:
    """What a call gives in eager: tensors in the order of the result, gradients in that of parameters and inputs."""

    outputs: list[Tensor]
    gradients: list[Tensor | None]
    changed: list[Tensor]
    tangents: list[Tensor]


def any_sparse(capture: bp.Capture) -> bool:
    """Whether sparse tensors go in or come out."""
    ports = [port for pair in capture.pairs for port in (*pair.forward.inputs, *pair.forward.outputs)]
    return any(getattr(port.spec, "layout", "strided") != "strided" for port in ports)


def against_autograd(capture: Any, target: Any, args: Any, kwargs: Any) -> tuple[str, str]:
    """A replay of the call under random tangents, against the call itself."""
    reads = any(name.startswith("tangent ") for guard in capture.guards for name in guard.inputs)
    given = ones_for_tangents() if reads else contextlib.nullcontext()  # a guard holds those it was recorded with
    with (
        settings.preserving_random_states(),
        given,
    ):  # a replay where numpy's and Python's generators stand elsewhere is refused
        wanted = eagerly(target, args, kwargs, capture.seed)
    torch.manual_seed(capture.seed)
    found = bp.replay(capture, *args, tangents=wanted.tangents, **kwargs)
    twins = {right for _, right in capture.signature.same}
    outputs = tensors_of(found.outputs)
    gradients = [gradient for name, gradient in found.gradients.items() if name not in twins]
    if len(outputs) != len(wanted.outputs) or len(gradients) < len(wanted.gradients):
        counts = f"{len(wanted.outputs)} and {len(wanted.gradients)} in eager, {len(outputs)} and {len(gradients)} here"
        return "wrong", f"outputs and gradients: {counts}"
    errors = {f"output {n}": apart(*pair) for n, pair in enumerate(zip(outputs, wanted.outputs, strict=True))}
    errors |= {f"gradient {n}": apart(*pair) for n, pair in enumerate(zip(gradients, wanted.gradients, strict=False))}
    errors |= {
        f"change {n}": min((apart(left, right) for left in found.mutations.values()), default=math.inf)
        for n, right in enumerate(wanted.changed)
    }
    place, error = max(errors.items(), key=lambda item: item[1], default=("", 0.0))
    if error and not repeats(wanted, eagerly(target, args, kwargs, capture.seed)):
        return "bitwise", ""  # eager does not repeat itself: there is nothing to compare with
    outcome = "bitwise" if not error else "close" if error <= 1 else "wrong"
    return outcome, f"{place} is {error:.2g} tolerances from autograd" if error else ""


def eagerly(target: Any, args: Any, kwargs: Any, seed: int) -> Eager:
    """The call in eager, on copies of its tensors, and with the target's own state as it was afterwards."""
    module = target if isinstance(target, nn.Module) else nn.Module()
    state = {name: tensor.detach().clone() for name, tensor in module.state_dict(keep_vars=True).items()}
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        return stepped(target, copied(args, kwargs, parameters, False), parameters, seed)
    except RuntimeError as error:
        if "leaf Variable" not in str(error):
            raise
        return stepped(target, copied(args, kwargs, parameters, True), parameters, seed)
    finally:
        with torch.no_grad():
            for name, tensor in module.state_dict(keep_vars=True).items():
                tensor.copy_(state[name])


@dataclass(frozen=True, slots=True)
class Copies:
    """A call's arguments with leaves of their own: `leaves` ask for gradients, `all` is every tensor, as given."""

    args: Any
    kwargs: Any
    leaves: list[Tensor]
    all: list[Tensor]


def copied(args: Any, kwargs: Any, own: Sequence[Tensor], behind: bool) -> Copies:
    """Arguments in memory of their own, shared among them as among the given; `behind` a copy, they may be changed."""
    mine = {id(tensor) for tensor in own}
    given = {id(leaf): leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
    given = {key: leaf for key, leaf in given.items() if key not in mine}
    made = dict(zip(given, copy.deepcopy([leaf.detach() for leaf in given.values()]), strict=True))
    asked = bool(own) or any(leaf.requires_grad for leaf in given.values())
    asking = {
        key
        for key, leaf in given.items()
        if (leaf.requires_grad if asked else leaf.is_floating_point() or leaf.is_complex())
    }
    leaves = [made[key].requires_grad_() for key in made if key in asking]
    passed = {key: leaf.clone() if behind and key in asking else leaf for key, leaf in made.items()}
    args, kwargs = pytree.tree_map(lambda leaf: passed.get(id(leaf), leaf), (args, kwargs))
    return Copies(args, kwargs, leaves, list(passed.values()))


@contextlib.contextmanager
def ones_for_tangents() -> Iterator[None]:
    """Tangents are ones here."""
    PULL.append(torch.ones_like)
    try:
        yield
    finally:
        PULL.pop()


PULL: list[Any] = []


def stepped(target: Any, given: Copies, parameters: list[Tensor], seed: int) -> Eager:
    """One forward and backward, with random tangents."""
    buffers = list(target.buffers()) if isinstance(target, nn.Module) else []
    watched = [*parameters, *buffers, *given.all]
    before = [tensor.detach().clone() for tensor in watched]
    torch.manual_seed(seed)
    result = target(*given.args, **given.kwargs)
    outputs = tensors_of(result)
    roots = [output for output in outputs if output.requires_grad]
    other = torch.Generator().manual_seed(seed)  # the backward goes on with the program's own random numbers
    tangents = [torch.randn(root.shape, dtype=root.dtype, generator=other).to(root.device) for root in roots]
    tangents = [PULL[-1](root) for root in roots] if PULL else tangents
    leaves = [*parameters, *given.leaves]
    gradients = pulled(roots, leaves, tangents) if roots and leaves else ()
    changed = [new.detach().clone() for old, new in zip(before, watched, strict=True) if apart(new, old)]
    return Eager([output.detach() for output in outputs], list(gradients), changed, tangents)


def tensors_of(result: Any) -> list[Tensor]:
    """The tensors of a result, in pytree's order; an object gives those of its attributes."""
    found: list[Tensor] = []
    for leaf in pytree.tree_leaves(result):
        within = [leaf] if isinstance(leaf, Tensor) else pytree.tree_leaves(getattr(leaf, "__dict__", ()))
        found += [each for each in within if isinstance(each, Tensor)]
    return found


def pulled(roots: list[Tensor], leaves: list[Tensor], tangents: list[Tensor]) -> list[Tensor | None]:
    """Autograd's gradients; a reentrant checkpoint gives them on its leaves alone."""
    queue, seen = [root.grad_fn for root in roots], set()
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen.add(node)
            queue += [following for following, _ in node.next_functions]
    if all(node.name() != "CheckpointFunctionBackward" for node in seen):
        return list(torch.autograd.grad(roots, leaves, tangents, allow_unused=True))
    for leaf in leaves:
        leaf.grad = None
    torch.autograd.backward(roots, tangents)
    return [leaf.grad for leaf in leaves]


def repeats(first: Eager, second: Eager) -> bool:
    """Whether two runs gave the same."""
    pairs = zip([*first.outputs, *first.gradients], [*second.outputs, *second.gradients], strict=True)
    return not any(apart(left, right) for left, right in pairs)


TOLERANCES = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.bfloat16: 4e-2,
}


def apart(found: Tensor | None, wanted: Tensor | None) -> float:
    """The largest difference over the largest value, in tolerances; 0 only where every number is the same."""
    if found is None or wanted is None:
        return 0.0 if found is wanted else math.inf
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return math.inf
    left, right = (tensor.detach().resolve_conj().resolve_neg() for tensor in (found, wanted))
    same = (left == right) | (left.isnan() & right.isnan())
    if bool(same.all()):
        return 0.0
    if right.dtype not in TOLERANCES:
        return math.inf
    difference = (left - right).abs().double().masked_fill(same, 0)
    scale = right.abs().double().nan_to_num(0, 0, 0).max().clamp(min=1e-30)
    error = float((difference / scale).max()) / TOLERANCES[right.dtype]
    return error if math.isfinite(error) else math.inf


def unseeded() -> None:
    """Take out the seed that the database sets inside its random operators: a graph draws from its caller's."""
    from torch.testing._internal import common_methods_invocations
    from torch.testing._internal.opinfo import core, definitions

    def plain(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    for module in (common_methods_invocations, core, *vars(definitions).values()):
        if hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = plain


def device() -> str:
    """Where the databases' inputs are made: the CPU, or what BACKPRINT_TEST_DEVICE names."""
    return os.environ.get("BACKPRINT_TEST_DEVICE", "cpu")


def differentiable_ops(dtype: torch.dtype) -> list[Any]:
    """PyTorch's operators that have gradients in this dtype, by full name."""
    from torch.testing._internal.common_methods_invocations import op_db

    unseeded()
    return [op for op in op_db if op.supports_autograd and dtype in op.supported_backward_dtypes(device())]


def full_name(op: Any) -> str:
    """An operator's name with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def samples(op: Any, dtype: torch.dtype, most: int | None = None) -> Iterator[Any]:
    """An operator's sample inputs, the same in every run."""
    torch.manual_seed(0)
    for index, sample in enumerate(op.sample_inputs(device(), dtype, requires_grad=True)):
        if most is not None and index >= most:
            return
        yield sample


def calling(op: Any, sample: Any) -> Callable[..., Any]:
    """The operator as a plain function with named arguments; what the database does to its output belongs to it."""

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        return sample.output_process_fn_grad(op(input, *args, **kwargs))

    call.__name__ = full_name(op).replace(".", "_")
    return call


def check_op(op: Any, dtype: torch.dtype, most: int | None = None, **options: Any) -> tuple[str, dict[str, str]]:
    """A letter for each of an operator's samples, and one detail for each outcome that is not bitwise."""
    letters, details = "", {}
    for sample in samples(op, dtype, most):
        torch.manual_seed(1)
        outcome, detail = check(calling(op, sample), (sample.input, *sample.args), dict(sample.kwargs), **options)
        letters += LETTERS[outcome]
        if outcome not in ("bitwise", "undifferentiable"):
            details.setdefault(outcome, detail[:300])
    return letters, details


def autograd_functions() -> list[Any]:
    """PyTorch's custom autograd Functions."""
    from torch.testing._internal.autograd_function_db import autograd_function_db

    return list(autograd_function_db)


def higher_order() -> list[Any]:
    """PyTorch's operators that take functions, those without gradients too, as far as they run on a CPU in eager."""
    from torch.testing._internal.hop_db import hop_db

    return [op for op in hop_db if full_name(op) not in ("flex_attention.simple", "inline_asm_elementwise.simple")]


def check_higher_order(op: Any, most: int | None = None) -> tuple[str, dict[str, str]]:
    """`check_op` for one of them, which does not always have gradients."""
    asks = op.supports_autograd or op.name == "register_hook"  # whose hook is on a gradient
    return check_op(op, torch.float32, most, engine="auto", requires_grad=None if asks else False)


def export_examples() -> list[Any]:
    """The examples that PyTorch documents its export with: what it takes, and what it does not."""
    from torch._export.db.examples import all_examples

    return list(all_examples().values())


def check_example(case: Any, most: int | None = None) -> tuple[str, dict[str, str]]:
    """One example whose floating-point inputs require grad."""
    torch.manual_seed(1)
    args, kwargs = pytree.tree_map(asking, (tuple(case.example_args), dict(case.example_kwargs)))
    return lettered(check(case.model, args, kwargs, engine="auto"))


def asking(value: Any) -> Any:
    """A floating-point tensor as a leaf that requires grad; anything else as it is."""
    able = isinstance(value, Tensor) and value.is_floating_point()
    return value.detach().clone().requires_grad_() if able else value


@dataclass(frozen=True, slots=True)
class Edge:
    """A hand-written program, by name."""

    name: str
    make: Callable[[], Any]


def edges() -> list[Edge]:
    """The hand-written programs at the edges of autograd."""
    from subjects.edges import EDGES

    return [Edge(name, make) for name, make in EDGES.items()]


def check_edge(edge: Edge, most: int | None = None) -> tuple[str, dict[str, str]]:
    """One hand-written program."""
    torch.manual_seed(1)
    target, args, kwargs = edge.make()
    return lettered(check(target, args, kwargs, engine="auto"))


def lettered(outcome: tuple[str, str]) -> tuple[str, dict[str, str]]:
    """One outcome as a row of the table."""
    name, detail = outcome
    return LETTERS[name], {} if name in ("bitwise", "undifferentiable") else {name: detail[:300]}


def modules() -> list[Any]:
    """PyTorch's module database."""
    from torch.testing._internal.common_modules import module_db

    return list(module_db)


def check_module(info: Any, training: bool, most: int | None = None) -> tuple[str, dict[str, str]]:
    """`check_op` for a module; masks that it reads values of are specialized on."""
    letters, details = "", {}
    torch.manual_seed(0)
    inputs = info.module_inputs_func(info, device=device(), dtype=torch.float32, requires_grad=True, training=training)
    for sample in list(inputs)[:most]:
        if sample.forward_input is None:
            continue
        torch.manual_seed(1)
        given = sample.forward_input
        outcome, detail = check(made(info, sample, training), tuple(given.args), dict(given.kwargs), specialize=True)
        letters += LETTERS[outcome]
        if outcome not in ("bitwise", "undifferentiable"):
            details.setdefault(outcome, detail[:300])
    return letters, details


def made(info: Any, sample: Any, training: bool) -> nn.Module:
    """The module of a sample."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
        module: nn.Module = info.module_cls(*args, **kwargs).to(device(), torch.float32).train(training)
        if isinstance(module, nn.modules.lazy.LazyModuleMixin):
            module(*sample.forward_input.args, **sample.forward_input.kwargs)  # it has no parameters before
        return module


# ------------------------------------------------------------------ the table

TABLE = Path(__file__).with_name("table.json")


@dataclass(frozen=True)
class Section:
    """One part of the table: a database, how it is captured, how many samples of an entry a plain test run takes."""

    entries: Callable[[], list[Any]]
    check: Callable[[Any, int | None], tuple[str, dict[str, str]]]
    most: int | None = None
    part: int = 2


READING = frozenset(
    (
        "__getitem__ combinations cov index_fill index_put linalg.lstsq linalg.lstsq.grad_oriented masked_select "
        "narrow nn.functional.ctc_loss nn.functional.gaussian_nll_loss repeat_interleave tensor_split sparse.mm.reduce "
        "sparse.sampled_addmm to_sparse"
    ).split()
)
"""Operators of which plain `aot` refuses some samples: the only ones for which `specialize` makes a difference."""

SECTIONS: dict[str, Section] = {
    "ops float32": Section(
        lambda: differentiable_ops(torch.float32), lambda op, n: check_op(op, torch.float32, n, engine="aot")
    ),
    "ops float32 specialize": Section(
        lambda: [op for op in differentiable_ops(torch.float32) if full_name(op) in READING],
        lambda op, n: check_op(op, torch.float32, n, engine="aot", specialize=True),
    ),
    "ops float64": Section(
        lambda: differentiable_ops(torch.float64), lambda op, n: check_op(op, torch.float64, n), 1, 1
    ),
    "ops bfloat16": Section(
        lambda: differentiable_ops(torch.bfloat16), lambda op, n: check_op(op, torch.bfloat16, n), 1, 1
    ),
    "ops float32 eager": Section(
        lambda: differentiable_ops(torch.float32), lambda op, n: check_op(op, torch.float32, n, engine="eager")
    ),
    "ops float32 auto": Section(
        lambda: differentiable_ops(torch.float32), lambda op, n: check_op(op, torch.float32, n, engine="auto")
    ),
    "autograd functions": Section(autograd_functions, lambda op, n: check_op(op, torch.float32, n, engine="auto")),
    "higher-order operators": Section(higher_order, check_higher_order),
    "exportdb": Section(export_examples, check_example),
    "edges": Section(edges, check_edge),
    "modules train": Section(modules, lambda info, n: check_module(info, True, n), None, 1),
    "modules eval": Section(modules, lambda info, n: check_module(info, False, n), None, 1),
}


def name_of(entry: Any) -> str:
    """The name of an operator or a module in the table."""
    return full_name(entry) if hasattr(entry, "variant_test_name") else str(entry.name)


def read_table() -> dict[str, Any]:
    """The expected outcomes: section -> entry -> a letter for each sample."""
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table


# ------------------------------------------------------------------ the table, for the docs


COLUMNS = {
    "bitwise": "b",
    "close": "c",
    "nothing to differentiate": "n",
    "refused by name": "r",
    "unproven": "p",
    "wrong": "wt",
    "failed": "fx",
}
"""What the docs tell apart, and the letters of each."""


def markdown(table: dict[str, Any]) -> str:
    """How many samples of each section came to what."""
    lines = ["| " + " | ".join(("section", "samples", "captured", *COLUMNS)) + " |", "|" + "---|" * (3 + len(COLUMNS))]
    for section in SECTIONS:
        letters = "".join(table.get(section, {}).values())
        if letters:
            counts = [sum(letters.count(letter) for letter in group) for group in COLUMNS.values()]
            captured = f"{100 * sum(counts[:3]) / len(letters):.1f}%"
            lines.append(
                "| " + " | ".join((section, f"{len(letters):,}", captured, *(f"{n:,}" for n in counts))) + " |"
            )
    return "\n".join(lines)
