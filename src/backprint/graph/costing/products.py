"""FLOPs of matrix products, convolutions and attentions, as `torch.utils.flop_counter.FlopCounterMode` counts them: two
for each multiply-add.

Two numbers of torch's are more than what is computed, and are kept so that both tools say the same: attention that is
causal counts in full, and the weight gradient of a grouped convolution counts as if there were one group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from backprint.graph.nouns import Graph, List, Ref, Spec, Step, TensorSpec, Value, refs

Shape = tuple[int, ...]
Specs = Mapping[str, Spec]


def specs_of(graph: Graph) -> dict[str, Spec]:
    """Return the spec of each value."""
    return {port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps}


def flops_of_steps(steps: Iterable[Step], specs: Mapping[str, Spec]) -> int:
    """Return the FLOPs of the products among some steps, where the types of their values are given."""
    total = 0
    for step in steps:
        name = step.target.split(".")[1] if step.target.startswith("aten.") else ""
        if name in FLOPS:
            total += FLOPS[name](step, specs)
    return min(total, MOST_FLOPS)


MOST_FLOPS = 2**63 - 1
"""As many as a column of a table can count; sizes next to a size of 0 may be any."""


def argument(step: Step, index: int) -> Value:
    """Return an argument by its position; None if the call has fewer: arguments are checked when calls run."""
    return step.args[index] if index < len(step.args) else None


def shape(value: Value, specs: Mapping[str, Spec]) -> Shape:
    """Return the shape of an argument; symbolic sizes count as one."""
    spec = specs.get(value.name) if isinstance(value, Ref) else None
    return tuple(s if isinstance(s, int) else 1 for s in spec.shape) if isinstance(spec, TensorSpec) else ()


def operator_name(target: str) -> str:
    """Return an operator's name without its namespace and overload, the same for its in-place form and for lists."""
    space, _, rest = target.partition(".")
    if space in ("operator", "math"):
        return rest
    if target.startswith("torch.ops."):
        return target
    name = rest.split(".")[0].removeprefix("special_").removeprefix("_foreach_")
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def arguments_of(step: Step) -> Iterator[Value]:
    """Yield the arguments, by position and by keyword."""
    yield from step.args
    yield from (value for _, value in step.kwargs)


def tensors_in(spec: Spec) -> Iterator[TensorSpec]:
    """Yield the tensors of a spec."""
    if isinstance(spec, TensorSpec):
        yield spec
    elif isinstance(spec, tuple):
        for part in spec:
            yield from tensors_in(part)


def shapes_taken(step: Step, specs: Specs) -> Iterator[Shape]:
    """Yield the shapes of the tensors that a step takes, in order."""
    for value in arguments_of(step):
        for name in refs(value):
            if isinstance(specs.get(name), TensorSpec):
                yield shape(Ref(name), specs)


def dtype_of(step: Step, specs: Specs) -> str:
    """Return the floating-point dtype of the results, else of the arguments; '' where all are integers."""
    taken = (specs.get(name) for value in arguments_of(step) for name in refs(value))
    dtypes = (tensor.dtype for spec in (step.spec, *taken) for tensor in tensors_in(spec))
    return next((dtype for dtype in dtypes if dtype.startswith(("float", "bfloat", "complex"))), "")


def numel_of(value: Value, specs: Specs) -> int:
    """Return the number of elements of an argument, or of a list of arguments."""
    return sum(spec.numel for name in refs(value) for spec in tensors_in(specs.get(name)))


def int_of(size: int | str) -> int:
    return size if isinstance(size, int) else 1


def product(left: int, right: int) -> Callable[[Step, Mapping[str, Spec]], int]:
    """Return a function for the FLOPs of a matrix product of these arguments."""

    def cost(step: Step, specs: Mapping[str, Spec]) -> int:
        a, b = shape(argument(step, left), specs), shape(argument(step, right), specs)
        return 2 * math.prod(a) * b[-1] if a and b else 0

    return cost


def convolution(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count a row of the weight for each output element."""
    weight, spec = shape(argument(step, 1), specs), step.spec
    out = tuple(s if isinstance(s, int) else 1 for s in spec.shape) if isinstance(spec, TensorSpec) else ()
    if argument(step, 6) is True:  # transposed
        return 2 * math.prod(shape(step.args[0], specs)) * math.prod(weight[1:])
    return 2 * math.prod(out) * math.prod(weight[1:])


def convolution_backward(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count the FLOPs of the gradients that are computed: the input's as many as the forward's, the weight's as many as
    without groups."""
    gradient, taken, weight = (shape(argument(step, place), specs) for place in range(3))
    mask = step.args[-1] if step.args else None
    if not isinstance(mask, List) or not (len(gradient) > 1 and len(taken) > 1):
        return 0
    positions = math.prod((taken if argument(step, 7) is True else gradient)[2:]) * gradient[0] * math.prod(weight[2:])
    channels = (math.prod(weight[:2]), taken[1] * gradient[1])
    return sum(2 * positions * each for each, wanted in zip(channels, mask.items, strict=False) if wanted is True)


def attention(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count two matrix products: of queries with keys, and of what they weigh with values."""
    q, k, v = (shape(argument(step, place), specs) for place in range(3))
    return 2 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1]) if q and v and len(k) > 1 else 0


def attention_backward(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count five matrix products, of which the first is the forward's again."""
    q, k, v = (shape(argument(step, place), specs) for place in range(1, 4))
    return 2 * math.prod(q[:-1]) * k[-2] * (3 * q[-1] + 2 * v[-1]) if q and v and len(k) > 1 else 0


ATTENTIONS = tuple(
    f"_scaled_dot_product_{kind}"
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
)

FLOPS: Mapping[str, Callable[[Step, Mapping[str, Spec]], int]] = {
    "mm": product(0, 1),
    "bmm": product(0, 1),
    "addmm": product(1, 2),
    "baddbmm": product(1, 2),
    "_scaled_mm": product(0, 1),
    **dict.fromkeys("convolution _convolution cudnn_convolution convolution_overrideable".split(), convolution),
    "convolution_backward": convolution_backward,
    **dict.fromkeys((*ATTENTIONS, "_flash_attention_forward", "_efficient_attention_forward"), attention),
    **{f"{name}_backward": attention_backward for name in ATTENTIONS},
    **dict.fromkeys(["_flash_attention_backward", "_efficient_attention_backward"], attention_backward),
}
"""What counts as arithmetic, as PyTorch's own FLOP counter counts it."""
