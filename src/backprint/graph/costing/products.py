"""FLOPs of matrix products, convolutions and attentions, as `torch.utils.flop_counter.FlopCounterMode` counts them: two
for each multiply-add.

Two numbers of torch's are more than what is computed, and are kept so that both tools say the same: attention that is
causal counts in full, and the weight gradient of a grouped convolution counts as if there were one group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from backprint.graph.nouns import Graph, List, Ref, Spec, Step, TensorSpec, Value

Shape = tuple[int, ...]


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
