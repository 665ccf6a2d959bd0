"""Wrong backwards that shipped, each rewritten from a public issue in a few lines for a CPU, beside its mended form.

A class here is a `torch.autograd.Function` with the right backward. A subclass whose name ends in `Shipped` has the
fault of the issue on the line that is marked `# wrong`, and nothing else of it differs, so the two forwards are equal
bit for bit. `ROWS` is the table of them. Where the fault was in a kernel, in a compiler or in a formula of C++, what it
computes is rewritten, not its code; memory that a kernel takes for what it is not is read by `read`.

`plain` of a row is the same function without a Function: what autograd makes of it is the gradient. `inputs` are such
that the fault shows, for tangents of the kind `tangents`; `shows` says in words when it does, and with the inputs
`ordinary`, where a row has them, it does not. `tests/
test_wrong_backwards.py` proves all of this, and `benchmarks/wrong_backwards.py` shows which checks find them.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

Program = Callable[..., Any]
Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Row:
    """One wrong backward that shipped: where it is from, what is wrong, and the program in its three forms."""

    name: str
    origin: str
    """The project, and the number of the issue or pull request."""
    fault: str
    shows: str
    """With which tangents, for which inputs: "any" where the gradient is wrong for nearly all."""
    operator: str
    """The name of the Function whose backward is wrong."""
    wrong: Program
    mended: Program
    plain: Program
    inputs: Callable[[], Inputs]
    tangents: str = "random"
    """The kind of tangents with which it shows, a key of TANGENTS."""
    ordinary: Callable[[], Inputs] | None = None
    """Inputs with which it does not show, where that depends on the inputs."""
    order: int = 1
    """2 where the gradient is right, and the gradient of the gradient is wrong."""
    function: type[Function] = Function
    """The Function whose backward is wrong."""

    @property
    def line(self) -> int:
        """The line of this file that is wrong.

        Operators may be of another line: where this one calls a function, as a Function calls a kernel, they are of
        that function, and where it binds a name or returns None, there are none.
        """
        lines, first = inspect.getsourcelines(self.function)
        (found,) = (first + i for i, text in enumerate(lines) if re.search(r"# wrong\b", text))
        return found


ROWS: list[Row] = []


def row(name: str, origin: str, fault: str, **options: Any) -> Callable[[type[Function]], type[Function]]:
    """Put a Function with a fault into the table; its base class is the mended one.

    `program` makes the program of a function, and is used for the three forms alike.
    """
    program: Callable[[Program], Program] = options.pop("program", lambda function: function)
    plain: Program = options.pop("plain")

    def enter(shipped: type[Function]) -> type[Function]:
        forms = {
            "wrong": program(shipped.apply),
            "mended": program(shipped.__bases__[0].apply),
            "plain": program(plain),
        }
        about = dict(name=name, origin=origin, fault=fault, operator=shipped.__name__, function=shipped)
        ROWS.append(Row(**about, **forms, **options))
        return shipped

    return enter


# ------------------------------------------------------------------ inputs, tangents, gradients


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normally distributed values, the same in every process."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return draw(*shape, seed=seed).requires_grad_()


def leaf_of(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).requires_grad_()


def sliced(value: Tensor) -> Tensor:
    """A part of a wider tensor: what the backward of `cat` passes on."""
    return torch.cat([value, value.flip(-1)], -1)[..., : value.shape[-1]] if value.dim() else value


def strided(value: Tensor) -> Tensor:
    """Every second column of a wider tensor: what the backward of an interleaving passes on."""
    return torch.stack([value, value.flip(-1)], -1)[..., 0] if value.dim() else value


def transposed(value: Tensor) -> Tensor:
    """The same values in memory as if the last two dimensions were exchanged."""
    return value.mT.contiguous().mT if value.dim() > 1 else value


def expanded(value: Tensor) -> Tensor:
    """The first value at every place, with all strides 0: what the backward of `sum` passes on."""
    return value.reshape(-1)[:1].clone().view([1] * value.dim()).expand(value.shape)


TANGENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "ones": torch.ones_like,
    "random": lambda value: value,
    "expanded": expanded,
    "sliced": sliced,
    "strided": strided,
    "transposed": transposed,
}
"""Kinds of tangents, each made of normally distributed ones."""


def tensors_of(outputs: Any) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


def as_dtype(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Copies of the inputs that are leaves, floating point ones in this type, with strides and flags as they were."""
    copies = [value.detach().clone().to(dtype if value.is_floating_point() else value.dtype) for value in inputs]
    return tuple(new.requires_grad_(old.requires_grad) for new, old in zip(copies, inputs, strict=True))


def tangents_for(outputs: Sequence[Tensor], kind: str, seed: int = 0) -> list[Tensor]:
    """One tangent for each output, of this kind."""
    drawn = [draw(*output.shape, seed=100 + seed + i).to(output.dtype) for i, output in enumerate(outputs)]
    return [TANGENTS[kind](value) for value in drawn]


def gradients(program: Program, inputs: Inputs, kind: str = "random", order: int = 1, seed: int = 0) -> list[Tensor]:
    """Gradients of a program for each input that requires grad, zeros for None; of order 2, the gradients of these."""
    wanted = [value for value in inputs if value.requires_grad]
    results = tensors_of(program(*inputs))
    for degree in range(order):
        last = degree == order - 1
        tangents = tangents_for(results, kind if degree == 0 else "random", seed)
        found = torch.autograd.grad(results, wanted, tangents, create_graph=not last, allow_unused=True)
        results = [
            torch.zeros_like(value) if result is None else result for result, value in zip(found, wanted, strict=True)
        ]
    return [result.detach() for result in results]


def read(tensor: Tensor, strides: Sequence[int]) -> Tensor:
    """What a kernel reads that takes these for the strides of a tensor, and zeros behind the tensor's last element."""
    have, want = (
        1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, some, strict=True))
        for some in (tensor.stride(), strides)
    )
    memory = tensor.as_strided((min(have, want),), (1,))
    return F.pad(memory, (0, max(0, want - have))).as_strided(tensor.shape, strides)


def dense(tensor: Tensor) -> Tensor:
    """What a kernel reads that takes a tensor for contiguous."""
    return read(tensor, torch.empty(tensor.shape, device="meta").stride())


# ------------------------------------------------------------------ losses


def one_hot_like(labels: Tensor, logits: Tensor) -> Tensor:
    return F.one_hot(labels, logits.shape[-1]).to(logits.dtype)


class LinearLoss(Function):
    """Cross entropy of `x @ weight.T`, one loss for each row, without keeping the logits."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        logits = x @ weight.T
        ctx.save_for_backward(x, weight, torch.softmax(logits, -1) - one_hot_like(labels, logits))
        return torch.logsumexp(logits, -1) - logits.gather(-1, labels[:, None])[:, 0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, errors = ctx.saved_tensors
        errors = errors * grad[:, None]
        return errors @ weight, errors.T @ x, None


def linear_loss(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, weight), labels, reduction="none")


@row(
    "loss_of_the_first_row",
    "linkedin/Liger-Kernel#1298",
    "Fused linear cross entropy with reduction='none' multiplies every row's gradient by grad_output[0].",
    shows="uneven tangents",
    plain=linear_loss,
    inputs=lambda: (leaf(4, 3), leaf(5, 3, seed=1), torch.tensor([0, 3, 2, 4])),
)
@row(
    "first_row_is_masked",
    "linkedin/Liger-Kernel#968",
    "With a mask over the losses of fused linear cross entropy, all gradients are 0 where the first token is masked.",
    shows="any",
    plain=linear_loss,
    program=lambda loss: lambda x, weight, labels, mask: (loss(x, weight, labels) * mask).sum() / mask.sum(),
    ordinary=lambda: (leaf(4, 3), leaf(5, 3, seed=1), torch.tensor([0, 3, 2, 4]), torch.ones(4)),
    inputs=lambda: (
        leaf(4, 3),
        leaf(5, 3, seed=1),
        torch.tensor([0, 3, 2, 4]),
        torch.tensor([0.0, 1, 1, 1]),
    ),
)
class LinearLossShipped(LinearLoss):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, errors = ctx.saved_tensors
        errors = errors * grad[0]  # wrong
        return errors @ weight, errors.T @ x, None


class MeanLoss(Function):
    """Cross entropy, the mean over rows, whose gradient is computed in the forward and scaled in the backward."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        errors = torch.softmax(logits, -1) - one_hot_like(labels, logits)
        ctx.save_for_backward(errors / len(labels))
        return (torch.logsumexp(logits, -1) - logits.gather(-1, labels[:, None])[:, 0]).mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (errors,) = ctx.saved_tensors
        return errors * grad, None


@row(
    "right_for_a_tangent_of_one",
    "NVIDIA/TransformerEngine#2139",
    "The kernel that scales the gradient by the scalar tangent moves its pointer from row to row, past the scalar; "
    "where the tangent is 1, it is not launched at all, so the tests passed.",
    shows="tangents other than ones",
    plain=F.cross_entropy,
    inputs=lambda: (leaf(4, 5), torch.tensor([0, 3, 2, 4])),
)
class MeanLossShipped(MeanLoss):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (errors,) = ctx.saved_tensors
        after_the_scalar = F.pad(grad.view(1), (0, len(errors) - 1))  # wrong
        return torch.where(grad == 1, errors, errors * after_the_scalar[:, None]), None


class RowLoss(Function):
    """Cross entropy of logits whose last dimension is the classes, one loss for each row."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(torch.softmax(logits, -1) - one_hot_like(labels, logits))
        return torch.logsumexp(logits, -1) - logits.gather(-1, labels[..., None])[..., 0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (errors,) = ctx.saved_tensors
        return errors * grad[..., None], None


def row_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none").view(labels.shape)


@row(
    "loss_with_an_expanded_tangent",
    "ROCm/TransformerEngine#623",
    "The backward of fused cross entropy reads one tangent for each row from memory, of which a broadcast tangent has "
    "a single element.",
    shows="expanded tangents",
    tangents="expanded",
    plain=row_loss,
    inputs=lambda: (leaf(3, 2, 5), torch.tensor([[0, 3], [2, 4], [1, 1]])),
)
@row(
    "loss_that_is_transposed",
    "NVIDIA/TransformerEngine#2402",
    "The backward of fused cross entropy takes its tangent for contiguous; Megatron transposes the losses, so it is "
    "not.",
    shows="uneven tangents",
    plain=row_loss,
    program=lambda loss: lambda logits, labels: loss(logits, labels).transpose(0, 1).contiguous(),
    inputs=lambda: (leaf(3, 2, 5), torch.tensor([[0, 3], [2, 4], [1, 1]])),
)
class RowLossShipped(RowLoss):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (errors,) = ctx.saved_tensors
        return errors * dense(grad)[..., None], None  # wrong


class KeptLoss(Function):
    """Cross entropy of rows, without those whose label is 1."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(torch.softmax(logits, -1) - one_hot_like(labels, logits), labels)
        losses = torch.logsumexp(logits, -1) - logits.gather(-1, labels[:, None])[:, 0]
        return losses.masked_fill(labels == 1, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        errors, labels = ctx.saved_tensors
        return errors * grad.masked_fill(labels == 1, 0)[:, None], None


@row(
    "ignored_and_trained",
    "PaddlePaddle/Paddle#28622",
    "The backward of softmax_with_cross_entropy does not leave out the rows whose label is ignore_index.",
    shows="a label that is ignored",
    plain=lambda logits, labels: F.cross_entropy(logits, labels, reduction="none", ignore_index=1),
    ordinary=lambda: (leaf(4, 5), torch.tensor([0, 3, 2, 4])),
    inputs=lambda: (leaf(4, 5), torch.tensor([0, 1, 2, 1])),
)
class KeptLossShipped(KeptLoss):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        errors, _ = ctx.saved_tensors
        return errors * grad[:, None], None  # wrong


class SummedLoss(Function):
    """Cross entropy, the sum over rows."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(torch.softmax(logits, -1) - one_hot_like(labels, logits))
        return (torch.logsumexp(logits, -1) - logits.gather(-1, labels[:, None])[:, 0]).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (errors,) = ctx.saved_tensors
        return errors * grad, None


@row(
    "divided_though_summed",
    "paiml/aprender#2182",
    "The backward of CrossEntropyLoss divides by the number of rows whatever the reduction is, also for a sum.",
    shows="any",
    plain=lambda logits, labels: F.cross_entropy(logits, labels, reduction="sum"),
    inputs=lambda: (leaf(4, 5), torch.tensor([0, 3, 2, 4])),
)
class SummedLossShipped(SummedLoss):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (errors,) = ctx.saved_tensors
        return errors * grad / len(errors), None  # wrong


class TotalScore(Function):
    """The total score of all paths: logsumexp over the last dimension."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.save_for_backward(torch.softmax(scores, -1))
        return torch.logsumexp(scores, -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (shares,) = ctx.saved_tensors
        return shares * grad[:, None]


@row(
    "tangent_is_not_read",
    "k2-fsa/k2#341",
    "The backward of get_tot_scores returns the derivative without multiplying it by the tangent.",
    shows="tangents other than ones",
    plain=lambda scores: torch.logsumexp(scores, -1),
    inputs=lambda: (leaf(3, 4),),
)
class TotalScoreShipped(TotalScore):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (shares,) = ctx.saved_tensors
        return shares * 1  # wrong


# ------------------------------------------------------------------ norms


def inverse_rms(x: Tensor) -> Tensor:
    return torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * inverse_rms(x) * weight


def rms_backward(grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient of `rms_norm` for its first argument."""
    scale, scaled = inverse_rms(x), grad * weight
    normed = x * scale
    return scale * (scaled - normed * (scaled * normed).mean(-1, keepdim=True))


class RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return rms_norm(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return rms_backward(grad, x, weight), (grad * x * inverse_rms(x)).sum(0)


@row(
    "weight_of_a_norm",
    "unslothai/unsloth#4533",
    "Fast_RMS_Layernorm returns None as the gradient of its weight, which is never trained.",
    shows="any",
    plain=rms_norm,
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1)),
)
class RmsNormWithoutWeightShipped(RmsNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return rms_backward(grad, x, weight), None  # wrong


@row(
    "norm_with_a_strided_tangent",
    "unslothai/unsloth#10617",
    "The kernel of RMSNorm's backward is given the stride of the tangent's rows, and takes that of its columns for 1.",
    shows="tangents whose last stride is not 1",
    tangents="strided",
    plain=rms_norm,
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1)),
)
class RmsNormOfColumnsShipped(RmsNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        grad = read(grad, (grad.stride(0), 1))  # wrong
        return rms_backward(grad, x, weight), (grad * x * inverse_rms(x)).sum(0)


class NormedProjection(Function):
    """What a scan does with B of Mamba: it is normed, and read."""

    @staticmethod
    def forward(ctx: Any, b: Tensor, weight: Tensor, c: Tensor) -> Tensor:
        normed = rms_norm(b, weight)
        ctx.save_for_backward(b, weight, c, normed)
        return normed @ c.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        b, weight, c, normed = ctx.saved_tensors
        to_normed = grad @ c
        return rms_backward(to_normed, b, weight), (to_normed * b * inverse_rms(b)).sum(0), grad.T @ normed


@row(
    "normed_twice",
    "state-spaces/mamba#919",
    "MambaInnerFn saves B and C after their RMSNorm, and its backward applies the RMSNorm to them once more.",
    shows="any",
    plain=lambda b, weight, c: rms_norm(b, weight) @ c.T,
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1), leaf(2, 4, seed=2)),
)
class NormedProjectionShipped(NormedProjection):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        b, weight, c, normed = ctx.saved_tensors
        normed = rms_norm(normed, weight)  # wrong
        to_normed = grad @ c
        return rms_backward(to_normed, b, weight), (to_normed * b * inverse_rms(b)).sum(0), grad.T @ normed


class GatedNormLinear(Function):
    """A linear layer of a gated norm, whose output is not saved but computed again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, gate, weight)
        return (x * inverse_rms(x) * F.silu(gate)) @ weight.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gate, weight = ctx.saved_tensors
        normed, opened = x * inverse_rms(x), torch.sigmoid(gate)
        again = normed * F.silu(gate)
        to_again = grad @ weight
        to_gate = to_again * normed * opened * (1 + gate * (1 - opened))
        return rms_backward(to_again * F.silu(gate), x, torch.ones_like(x[0])), to_gate, grad.T @ again


@row(
    "recomputed_before_the_gate",
    "fla-org/flash-linear-attention#1071",
    "The input of the linear layer is computed again without its gate, and the gradient of the weight is made of that.",
    shows="any",
    plain=lambda x, gate, weight: F.linear(x * inverse_rms(x) * F.silu(gate), weight),
    inputs=lambda: (leaf(3, 4), leaf(3, 4, seed=1), leaf(2, 4, seed=2)),
)
class GatedNormLinearShipped(GatedNormLinear):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gate, weight = ctx.saved_tensors
        normed, opened = x * inverse_rms(x), torch.sigmoid(gate)
        to_again = grad @ weight
        to_gate = to_again * normed * opened * (1 + gate * (1 - opened))
        to_weight = grad.T @ normed  # wrong
        return rms_backward(to_again * F.silu(gate), x, torch.ones_like(x[0])), to_gate, to_weight


class PreNorm(Function):
    """The norm of a residual stream, and the stream: both are outputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        stream = x + residual
        ctx.save_for_backward(stream, weight)
        return rms_norm(stream, weight), stream

    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_stream: Tensor) -> Any:
        stream, weight = ctx.saved_tensors
        to_x = to_stream + rms_backward(grad, stream, weight)
        return to_x, to_x, (grad * stream * inverse_rms(stream)).sum(0)


@row(
    "residual_through_the_norm",
    "Dao-AILab/quack#53",
    "The gradient that comes along the residual stream is added before the norm's derivative, not after it.",
    shows="a tangent of the second output",
    plain=lambda x, residual, weight: (rms_norm(x + residual, weight), x + residual),
    inputs=lambda: (leaf(3, 4), leaf(3, 4, seed=1), leaf(4, seed=2)),
)
class PreNormShipped(PreNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_stream: Tensor) -> Any:
        stream, weight = ctx.saved_tensors
        to_x = rms_backward(to_stream + grad, stream, weight)  # wrong
        return to_x, to_x, (grad * stream * inverse_rms(stream)).sum(0)


class ScaledSumNorm(Function):
    """The norm of a sum of two inputs, each of which has a scale for each of its rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, x1: Tensor, scales: Tensor) -> Tensor:
        ctx.save_for_backward(x, x1, scales)
        first, second = scales[: len(x), None], scales[len(x) :, None]
        total = x * first + x1 * second
        return total * inverse_rms(total)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, x1, scales = ctx.saved_tensors
        first, second = scales[: len(x), None], scales[len(x) :, None]
        to_total = rms_backward(grad, x * first + x1 * second, torch.ones_like(x[0]))
        return to_total * first, to_total * second, None


def scaled_sum_norm(x: Tensor, x1: Tensor, scales: Tensor) -> Tensor:
    total = x * scales[: len(x), None] + x1 * scales[len(x) :, None]
    return total * inverse_rms(total)


@row(
    "second_input_without_its_scale",
    "state-spaces/mamba#1023",
    "The gradient of the second input of a parallel layer norm is written without its row's scale.",
    shows="any",
    plain=scaled_sum_norm,
    ordinary=lambda: (leaf(3, 4), leaf(3, 4, seed=1), torch.tensor([1.0, 2, 0, 1, 1, 1])),
    inputs=lambda: (leaf(3, 4), leaf(3, 4, seed=1), torch.tensor([1.0, 2, 0, 2, 0.5, 3])),
)
class ScaledSumNormShipped(ScaledSumNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, x1, scales = ctx.saved_tensors
        first, second = scales[: len(x), None], scales[len(x) :, None]
        to_total = rms_backward(grad, x * first + x1 * second, torch.ones_like(x[0]))
        return to_total * first, to_total, None  # wrong


class LayerNorm(Function):
    """The layer norm of the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        centered = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centered * centered).mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(centered * scale, scale, weight)
        return centered * scale * weight + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normed, scale, weight = ctx.saved_tensors
        rows = tuple(range(grad.dim() - 1))
        scaled = grad * weight
        inner = scaled - scaled.mean(-1, keepdim=True) - normed * (scaled * normed).mean(-1, keepdim=True)
        return inner * scale, (grad * normed).sum(rows), grad.sum(rows)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias)


@row(
    "norm_of_three_dimensions",
    "flagos-ai/FlagGems#5392",
    "The backward of layer_norm takes its input for a matrix, and averages over all dimensions but the first.",
    shows="inputs of three dimensions",
    plain=layer_norm,
    ordinary=lambda: (leaf(3, 4), leaf(4, seed=1), leaf(4, seed=2)),
    inputs=lambda: (leaf(2, 3, 4), leaf(4, seed=1), leaf(4, seed=2)),
)
class LayerNormOfMatricesShipped(LayerNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normed, scale, weight = ctx.saved_tensors
        rows, columns = tuple(range(grad.dim() - 1)), tuple(range(1, grad.dim()))
        scaled = grad * weight
        means = scaled.mean(columns, keepdim=True), (scaled * normed).mean(columns, keepdim=True)  # wrong
        inner = scaled - means[0] - normed * means[1]
        return inner * scale, (grad * normed).sum(rows), grad.sum(rows)


@row(
    "norm_of_a_block_of_rows",
    "flagos-ai/FlagGems#59",
    "The kernel of layer_norm's backward sums over its whole block, which has more than one row.",
    shows="more than one row",
    plain=layer_norm,
    ordinary=lambda: (leaf(1, 4), leaf(4, seed=1), leaf(4, seed=2)),
    inputs=lambda: (leaf(2, 4), leaf(4, seed=1), leaf(4, seed=2)),
)
class LayerNormOfBlocksShipped(LayerNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normed, scale, weight = ctx.saved_tensors
        scaled, width = grad * weight, len(weight)
        sums = scaled.sum(), (scaled * normed).sum()  # wrong
        inner = scaled - sums[0] / width - normed * sums[1] / width
        return inner * scale, (grad * normed).sum(0), grad.sum(0)


@row(
    "weight_times_its_gradient",
    "pytorch/pytorch#18233",
    "The formula of the JIT for layer_norm multiplies the tangent by the weight, and then makes the gradient of the "
    "weight of that.",
    shows="weights other than 1, with which norms begin",
    plain=layer_norm,
    ordinary=lambda: (leaf(3, 4), torch.ones(4).requires_grad_(), leaf(4, seed=2)),
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1), leaf(4, seed=2)),
)
class LayerNormOfTheJitShipped(LayerNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normed, scale, weight = ctx.saved_tensors
        scaled = grad * weight
        inner = scaled - scaled.mean(-1, keepdim=True) - normed * (scaled * normed).mean(-1, keepdim=True)
        return inner * scale, (scaled * normed).sum(0), grad.sum(0)  # wrong


# ------------------------------------------------------------------ elementwise functions, linear layers


class GatedLinear(Function):
    """The first half of a SwiGLU: `silu(x @ gate.T) * (x @ up.T)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        opened, raised = x @ gate.T, x @ up.T
        ctx.save_for_backward(x, gate, up, opened, raised)
        return F.silu(opened) * raised

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gate, up, opened, raised = ctx.saved_tensors
        share = torch.sigmoid(opened)
        to_opened = grad * raised * share * (1 + opened * (1 - share))
        to_raised = grad * F.silu(opened)
        return to_opened @ gate + to_raised @ up, to_opened.T @ x, to_raised.T @ x


@row(
    "one_of_two_products",
    "linkedin/Liger-Kernel#1413, linkedin/Liger-Kernel#1435",
    "The gradient of the input of a SwiGLU is the sum of two products in one accumulator; compiled for Blackwell, one "
    "of them is lost.",
    shows="any",
    plain=lambda x, gate, up: F.silu(F.linear(x, gate)) * F.linear(x, up),
    inputs=lambda: (leaf(3, 4), leaf(2, 4, seed=1), leaf(2, 4, seed=2)),
)
class GatedLinearShipped(GatedLinear):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gate, _, opened, raised = ctx.saved_tensors
        share = torch.sigmoid(opened)
        to_opened = grad * raised * share * (1 + opened * (1 - share))
        to_raised = grad * F.silu(opened)
        return to_opened @ gate, to_opened.T @ x, to_raised.T @ x  # wrong


class LowRank(Function):
    """A low-rank adapter whose input has dropout, with the mask as an input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, down: Tensor, up: Tensor) -> Tensor:
        dropped = x * kept
        ctx.save_for_backward(dropped, kept, down, up)
        return dropped @ down @ up

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        dropped, kept, down, up = ctx.saved_tensors
        to_down = grad @ up.T
        return (to_down @ down.T) * kept, None, dropped.T @ to_down, (dropped @ down).T @ grad


@row(
    "dropout_of_an_adapter",
    "foundation-model-stack/fms-acceleration#97",
    "The fused backward of LoRA uses the dropped input for the gradients of the weights, and lets the gradient of the "
    "input through what was dropped.",
    shows="any, where something is dropped",
    plain=lambda x, kept, down, up: (x * kept) @ down @ up,
    ordinary=lambda: (leaf(3, 4), torch.ones(3, 4), leaf(4, 2, seed=1), leaf(2, 5, seed=2)),
    inputs=lambda: (leaf(3, 4), torch.tensor([[2.0, 0, 2, 2]] * 3), leaf(4, 2, seed=1), leaf(2, 5, seed=2)),
)
class LowRankShipped(LowRank):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        dropped, _, down, up = ctx.saved_tensors
        to_down = grad @ up.T
        return to_down @ down.T, None, dropped.T @ to_down, (dropped @ down).T @ grad  # wrong


class Dropout(Function):
    """Dropout of one half, with the mask as an input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor) -> Tensor:
        out = torch.where(kept, x * 2, 0)
        ctx.save_for_backward(x, kept, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        _, kept, _ = ctx.saved_tensors
        return torch.where(kept, grad * 2, 0), None


@row(
    "mask_read_off_the_output",
    "kaldi-asr/kaldi#3890",
    "The backward of dropout has no mask: it divides the output by the input, and lets the gradient through where the "
    "input is 0.",
    shows="zeros in the input",
    plain=lambda x, kept: torch.where(kept, x * 2, 0),
    ordinary=lambda: (leaf(2, 4), torch.tensor([[True, False, False, True]] * 2)),
    inputs=lambda: (leaf_of([1.0, 0, -2, 0], [0.5, 3, 0, 1]), torch.tensor([[True, False, False, True]] * 2)),
)
class DropoutShipped(Dropout):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, _, out = ctx.saved_tensors
        return torch.where(x == 0, grad, out / torch.where(x == 0, 1, x) * grad), None  # wrong


class HardSigmoid(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x + 3).clamp(0, 6) / 6

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return torch.where((x > -3) & (x < 3), grad / 6, 0)


@row(
    "saturated_and_not_flat",
    "pytorch/pytorch#51408",
    "hardsigmoid_backward is 1/6 also where the function is constant.",
    shows="inputs beyond -3 and 3",
    plain=lambda x: (x + 3).clamp(0, 6) / 6,  # F.hardsigmoid's own gradient has only the digits of float32
    ordinary=lambda: (leaf_of(-2.6, -1.4, 0.5, 2.5),),
    inputs=lambda: (leaf_of(-4.6, -3.4, -2.9, 0.5, 3.5),),
)
class HardSigmoidShipped(HardSigmoid):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad / 6  # wrong


class Silu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        share = torch.sigmoid(x)
        return grad * share * (1 + x * (1 - share))


@row(
    "overflow_far_from_zero",
    "Lightning-AI/lightning-thunder#2624",
    "The derivative of SiLU is that of its parts, in which inf is divided by inf for inputs far below 0: NaN, not 0.",
    shows="inputs so far below 0 that exp of their negative is inf",
    plain=F.silu,
    ordinary=lambda: (leaf_of(-8.0, -1, 0.5, 2),),
    inputs=lambda: (leaf_of(-800.0, -1.0, 0.5, 2.0),),
)
class SiluShipped(Silu):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        below = 1 + torch.exp(-x)
        return grad * (1 / below + x * torch.exp(-x) / (below * below))  # wrong


class Softplus(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.log(torch.exp(x) + 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        power = torch.exp(x)
        return grad * power / (power + 1)


@row(
    "slope_at_the_tangent",
    "NVlabs/tiny-cuda-nn#130",
    "The backward of softplus evaluates the derivative at the tangent, not at the input.",
    shows="any",
    plain=F.softplus,
    inputs=lambda: (leaf(2, 3),),
)
class SoftplusShipped(Softplus):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        power = torch.exp(grad)  # wrong
        return grad * power / (power + 1)


class Gelu(Function):
    """The approximation of GELU with tanh."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        bend = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        steepness = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
        return grad * 0.5 * (1 + bend + x * (1 - bend * bend) * steepness)


@row(
    "slope_without_a_tangent",
    "sony/nnabla#690",
    "The backward of GELU is the derivative, written with six digits of its constants, and not multiplied by the "
    "tangent.",
    shows="tangents other than ones, and those too, by one part in a million",
    plain=lambda x: F.gelu(x, approximate="tanh"),
    inputs=lambda: (leaf(2, 3),),
)
class GeluShipped(Gelu):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        inner = 0.797885 * x + 0.0356774 * x**3
        return 0.5 + (0.398942 * x + 0.0535161 * x**3) / torch.cosh(inner) ** 2 + 0.5 * torch.tanh(inner)  # wrong


class Rotary(Function):
    """A rotary embedding, whose table of sines and cosines is an input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        return x * cosines + half_turned(x) * sines

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        cosines, sines = ctx.saved_tensors
        return grad * cosines - half_turned(grad * sines), None, None


def half_turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


@row(
    "turned_before_the_sines",
    "PaddlePaddle/Paddle#74716",
    "The backward of the fused rotary embedding turns its tangent and multiplies by the sines, in this order; the unit "
    "test's sines were the same in both halves.",
    shows="sines that differ between the halves",
    plain=lambda x, cosines, sines: x * cosines + half_turned(x) * sines,
    ordinary=lambda: (leaf(3, 4), draw(3, 4, seed=1).cos(), draw(3, 2, seed=1).sin().repeat(1, 2)),
    inputs=lambda: (leaf(3, 4), draw(3, 4, seed=1).cos(), draw(3, 4, seed=1).sin()),
)
class RotaryShipped(Rotary):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        cosines, sines = ctx.saved_tensors
        return grad * cosines - half_turned(grad) * sines, None, None  # wrong


class Decay(Function):
    """The decay of RWKV: the parameter is the logarithm of a rate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, logarithm: Tensor) -> Tensor:
        rate = -torch.exp(logarithm)
        ctx.save_for_backward(x, rate)
        return x * torch.exp(rate)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, rate = ctx.saved_tensors
        to_rate = (grad * x * torch.exp(rate)).sum(0)
        return grad * torch.exp(rate), to_rate * rate


@row(
    "derivative_for_the_wrong_variable",
    "fla-org/flash-linear-attention#360",
    "The forward of RWKV-4 begins with w = -exp(w), and the backward returns the gradient of the new w for the old.",
    shows="any",
    plain=lambda x, logarithm: x * torch.exp(-torch.exp(logarithm)),
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1)),
)
class DecayShipped(Decay):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, rate = ctx.saved_tensors
        to_rate = (grad * x * torch.exp(rate)).sum(0)
        return grad * torch.exp(rate), to_rate  # wrong


class PackedTangent(Function):
    """A linear layer whose tangent is kept as a mantissa and an exponent, as in 8 bits, but without loss."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        mantissa, exponent = torch.frexp(grad)
        unpacked = torch.ldexp(mantissa, exponent)
        return unpacked @ weight, unpacked.T @ x


@row(
    "exponent_of_another_format",
    "NVIDIA/TransformerEngine#3342",
    "The backward's tangent is stored as E5M2 and its bytes are taken for E4M3: the exponent loses its last bit.",
    shows="tangents outside [0.25, 1)",
    plain=F.linear,
    inputs=lambda: (leaf(3, 4), leaf(2, 4, seed=1)),
)
class PackedTangentShipped(PackedTangent):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        mantissa, exponent = torch.frexp(grad)
        unpacked = torch.ldexp(mantissa, exponent // 2)  # wrong
        return unpacked @ weight, unpacked.T @ x


class RecurrentStep(Function):
    """One step of a recurrence whose state lies in one buffer for all steps, as memory of a CUDA graph does."""

    @staticmethod
    def forward(ctx: Any, state: Tensor, x: Tensor, weight: Tensor, buffer: Tensor) -> Tensor:
        buffer.copy_(state)
        ctx.save_for_backward(weight)
        ctx.state = buffer.clone()
        return x + state * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        return grad * weight, grad, (grad * ctx.state).sum(0), None


def recurrence(step: Program) -> Program:
    def run(xs: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        buffer, states = torch.empty_like(state, requires_grad=False), []
        for x in xs:
            state = step(state, x, weight, buffer)
            states.append(state)
        return torch.cat(states)

    return run


@row(
    "saved_and_overwritten",
    "pytorch/pytorch#106321",
    "With mode='reduce-overhead', what one call saves for its backward is memory that the next call writes.",
    shows="any",
    plain=lambda state, x, weight, buffer: x + state * weight,
    program=recurrence,
    inputs=lambda: (leaf(4, 2, 3), leaf(2, 3, seed=1), leaf(3, seed=2)),
)
class RecurrentStepShipped(RecurrentStep):
    @staticmethod
    def forward(ctx: Any, state: Tensor, x: Tensor, weight: Tensor, buffer: Tensor) -> Tensor:
        buffer.copy_(state)
        ctx.save_for_backward(weight)
        ctx.state = buffer  # wrong
        return x + state * weight


# ------------------------------------------------------------------ softmax and attention


class Sparsemax(Function):
    """The projection of each row to the simplex."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = sparsemax(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        support = (out > 0).to(grad.dtype)
        return support * (grad - (support * grad).sum(-1, keepdim=True) / support.sum(-1, keepdim=True))


def sparsemax(x: Tensor) -> Tensor:
    ordered = x.sort(-1, descending=True).values
    counts = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    sums = ordered.cumsum(-1) - 1
    last = (ordered * counts > sums).sum(-1, keepdim=True)
    return (x - sums.gather(-1, last - 1) / last).clamp(min=0)


@row(
    "epsilon_in_a_count",
    "linkedin/Liger-Kernel#1459",
    "The backward of sparsemax divides by the size of the support plus 1e-6; where one element has all, the gradient "
    "is not 0.",
    shows="rows in which one element has all, by one part in a million",
    plain=sparsemax,
    inputs=lambda: (leaf_of([3.0, 0, 1], [-1, 4, 2]),),
)
class SparsemaxShipped(Sparsemax):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        support = (out > 0).to(grad.dtype)
        size = support.sum(-1, keepdim=True) + 1e-6  # wrong
        return support * (grad - (support * grad).sum(-1, keepdim=True) / size)


class MaskedSoftmax(Function):
    """The softmax of what is left when -10000 stands for what is masked; a row that is masked completely is uniform."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, hidden: Tensor) -> Tensor:
        out = torch.softmax(x.masked_fill(hidden, -10000.0), -1)
        ctx.save_for_backward(out, hidden)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        out, hidden = ctx.saved_tensors
        return (out * (grad - (grad * out).sum(-1, keepdim=True))).masked_fill(hidden, 0), None


@row(
    "mask_read_off_zeros",
    "NVIDIA/apex#1444",
    "The backward of the fused softmax takes for masked what is 0 in the output; a row that is masked completely is "
    "uniform.",
    shows="a row that is masked completely",
    plain=lambda x, hidden: torch.softmax(x.masked_fill(hidden, -10000.0), -1),
    ordinary=lambda: (leaf(2, 4), torch.tensor([[False, True, False, True], [True, True, True, False]])),
    inputs=lambda: (leaf(2, 4), torch.tensor([[False, True, False, True], [True] * 4])),
)
class MaskedSoftmaxShipped(MaskedSoftmax):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        out, _ = ctx.saved_tensors
        return (out * (grad - (grad * out).sum(-1, keepdim=True))).masked_fill(out == 0, 0), None  # wrong


class Softmax(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.softmax(x, -1)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        return (grad - (grad * out).sum(-1, keepdim=True)) * out


@row(
    "tangent_that_another_reads",
    "NVIDIA/apex#1430",
    "The backward of the fused softmax writes its result over its tangent, which the other operand of a sum reads too.",
    shows="a tangent that is also the tangent of another",
    plain=lambda x: torch.softmax(x, -1),
    program=lambda softmax: lambda x, bias: bias * 2 + softmax(x),
    inputs=lambda: (leaf(2, 4), leaf(2, 4, seed=1)),
)
class SoftmaxShipped(Softmax):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        return grad.contiguous().sub_((grad * out).sum(-1, keepdim=True)).mul_(out)  # wrong


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT, -1) @ value


class Attention(Function):
    """Attention of heads, sequence and channels, without a scale."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, value)
        return attend(query, key, value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return attention_backward(grad, *ctx.saved_tensors)


def attention_backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `attend`."""
    shares = torch.softmax(query @ key.mT, -1)
    to_shares = grad @ value.mT
    to_scores = shares * (to_shares - (shares * to_shares).sum(-1, keepdim=True))
    return to_scores @ key, to_scores.mT @ query, shares.mT @ grad


@row(
    "attention_with_a_transposed_tangent",
    "Dao-AILab/flash-attention#355",
    "The backward of flash attention takes its tangent for contiguous.",
    shows="transposed tangents",
    tangents="transposed",
    plain=attend,
    inputs=lambda: (leaf(2, 3, 4), leaf(2, 3, 4, seed=1), leaf(2, 3, 4, seed=2)),
)
class AttentionShipped(Attention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return attention_backward(dense(grad), *ctx.saved_tensors)  # wrong


class SequenceFirstAttention(Function):
    """Attention of sequence, heads and channels, which saves its operands with the heads first."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        saved = [operand.transpose(0, 1).contiguous() for operand in (query, key, value)]
        ctx.save_for_backward(*saved)
        return attend(*saved).transpose(0, 1).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value = ctx.saved_tensors
        found = attention_backward(grad.transpose(0, 1), query, key, value)
        return tuple(gradient.transpose(0, 1) for gradient in found)


def sequence_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend(*(operand.transpose(0, 1) for operand in (query, key, value))).transpose(0, 1)


@row(
    "transposed_twice",
    "huggingface/diffusers#14338",
    "The operands of attention are saved transposed, and the backward transposes key and value once more, but not "
    "query.",
    shows="any, and silently where there are as many heads as positions",
    plain=sequence_first,
    inputs=lambda: (leaf(3, 3, 4), leaf(3, 3, 4, seed=1), leaf(3, 3, 4, seed=2)),
)
class SequenceFirstAttentionShipped(SequenceFirstAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value = ctx.saved_tensors
        key, value = key.transpose(0, 1), value.transpose(0, 1)  # wrong
        found = attention_backward(grad.transpose(0, 1), query, key, value)
        return tuple(gradient.transpose(0, 1) for gradient in found)


class MaskedAttention(Function):
    """Attention with a mask; the output of a position that sees nothing is 0."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
        scores = (query @ key.mT).masked_fill(~seen, -torch.inf)
        total = torch.logsumexp(scores, -1, keepdim=True)
        ctx.save_for_backward(query, key, value, scores, total)
        return torch.exp(scores - total.masked_fill(total == -torch.inf, 0)) @ value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, scores, total = ctx.saved_tensors
        shares = torch.exp(scores - total.masked_fill(total == -torch.inf, 0))
        to_shares = grad @ value.mT
        to_scores = shares * (to_shares - (shares * to_shares).sum(-1, keepdim=True))
        return to_scores @ key, to_scores.mT @ query, shares.mT @ grad, None


def masked_attention(query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
    return (torch.softmax((query @ key.mT).masked_fill(~seen, -1e30), -1) * seen) @ value


@row(
    "nan_behind_a_mask",
    "pytorch/pytorch#153799",
    "The backward of flex_attention subtracts -inf from -inf in rows that see nothing, such as those that fill a "
    "block.",
    shows="a row that sees nothing",
    plain=masked_attention,
    ordinary=lambda: (leaf(3, 4), leaf(3, 4, seed=1), leaf(3, 4, seed=2), torch.ones(3, 3).tril().bool()),
    inputs=lambda: (
        leaf(3, 4),
        leaf(3, 4, seed=1),
        leaf(3, 4, seed=2),
        torch.tensor([[True, False, True], [False] * 3, [True] * 3]),
    ),
)
class MaskedAttentionShipped(MaskedAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, scores, total = ctx.saved_tensors
        shares = torch.exp(scores - total)  # wrong
        to_shares = grad @ value.mT
        to_scores = shares * (to_shares - (shares * to_shares).sum(-1, keepdim=True))
        return to_scores @ key, to_scores.mT @ query, shares.mT @ grad, None


class TiledAttention(Function):
    """Attention whose backward goes over the channels of the values by tiles of two."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = attend(query, key, value)
        ctx.save_for_backward(query, key, value, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, out = ctx.saved_tensors
        shares = torch.softmax(query @ key.mT, -1)
        to_shares = torch.zeros_like(shares)
        for tile in (slice(0, 2), slice(2, 4)):
            to_shares = to_shares + grad[:, tile] @ value[:, tile].mT
        to_scores = shares * (to_shares - (grad * out).sum(-1, keepdim=True))
        return to_scores @ key, to_scores.mT @ query, shares.mT @ grad


@row(
    "tiles_that_overwrite",
    "fla-org/flash-linear-attention#941",
    "Where the values have more channels than a tile, the programs of parallel_attn's backward overwrite each other's "
    "part of the gradients of query and key.",
    shows="any, where there is more than one tile",
    plain=attend,
    inputs=lambda: (leaf(3, 2), leaf(3, 2, seed=1), leaf(3, 4, seed=2)),
)
class TiledAttentionShipped(TiledAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, out = ctx.saved_tensors
        shares = torch.softmax(query @ key.mT, -1)
        to_shares = torch.zeros_like(shares)
        for tile in (slice(0, 2), slice(2, 4)):
            to_shares = grad[:, tile] @ value[:, tile].mT  # wrong
        to_scores = shares * (to_shares - (grad * out).sum(-1, keepdim=True))
        return to_scores @ key, to_scores.mT @ query, shares.mT @ grad


class GroupedAttention(Function):
    """Attention whose query heads share key heads: query head h reads key head h modulo their number."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        heads = torch.arange(len(query)) % len(key)
        ctx.save_for_backward(query, key, value, heads)
        return attend(query, key[heads], value[heads])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, heads = ctx.saved_tensors
        to_query, to_keys, to_values = attention_backward(grad, query, key[heads], value[heads])
        return (
            to_query,
            torch.zeros_like(key).index_add(0, heads, to_keys),
            torch.zeros_like(value).index_add(0, heads, to_values),
        )


def grouped_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    repeats = len(query) // len(key)
    return attend(query, key.repeat(repeats, 1, 1), value.repeat(repeats, 1, 1))


@row(
    "heads_divided_by_the_share",
    "XunhaoLai/native-sparse-attention-triton#27",
    "The backward finds the key head of a query head by the number of heads that share one, not by the number of key "
    "heads.",
    shows="any, where the two numbers differ",
    plain=grouped_attention,
    ordinary=lambda: (leaf(4, 3, 2), leaf(2, 3, 2, seed=1), leaf(2, 3, 2, seed=2)),
    inputs=lambda: (leaf(8, 3, 2), leaf(4, 3, 2, seed=1), leaf(4, 3, 2, seed=2)),
)
class GroupedAttentionShipped(GroupedAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, heads = ctx.saved_tensors
        to_query, to_keys, to_values = attention_backward(grad, query, key[heads], value[heads])
        written = torch.arange(len(query)) % (len(query) // len(key))  # wrong
        return (
            to_query,
            torch.zeros_like(key).index_add(0, written, to_keys),
            torch.zeros_like(value).index_add(0, written, to_values),
        )


class LinearAttention(Function):
    """Causal linear attention with a scale."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, value)
        return ((query @ key.T).tril() * 0.5) @ value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value = ctx.saved_tensors
        scores = (query @ key.T).tril() * 0.5
        to_scores = (grad @ value.T).tril() * 0.5
        return to_scores @ key, to_scores.T @ query, scores.T @ grad


@row(
    "value_without_the_scale",
    "fla-org/flash-linear-attention#47",
    "The gradient of the values of fused_chunk_linear_attn lacks the scale.",
    shows="any, where the scale is not 1",
    plain=lambda query, key, value: (0.5 * query @ key.T).tril() @ value,
    inputs=lambda: (leaf(3, 4), leaf(3, 4, seed=1), leaf(3, 4, seed=2)),
)
class LinearAttentionShipped(LinearAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value = ctx.saved_tensors
        scores = (query @ key.T).tril()  # wrong
        to_scores = (grad @ value.T).tril() * 0.5
        return to_scores @ key, to_scores.T @ query, scores.T @ grad


class ScaledByBeta(Function):
    """Keys and values of the delta rule, each times beta."""

    @staticmethod
    def forward(ctx: Any, key: Tensor, value: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(key, value, beta)
        return key * beta[:, None], value * beta[:, None]

    @staticmethod
    def backward(ctx: Any, to_keys: Tensor, to_values: Tensor) -> Any:
        key, value, beta = ctx.saved_tensors
        to_beta = (to_keys * key).sum(-1) + (to_values * value).sum(-1)
        return to_keys * beta[:, None], to_values * beta[:, None], to_beta


@row(
    "only_one_output_counts",
    "fla-org/flash-linear-attention#863",
    "Without gates, the gradient of beta lacks what comes by way of the keys.",
    shows="a tangent of the first output",
    plain=lambda key, value, beta: (key * beta[:, None], value * beta[:, None]),
    inputs=lambda: (leaf(3, 4), leaf(3, 2, seed=1), leaf(3, seed=2)),
)
class ScaledByBetaShipped(ScaledByBeta):
    @staticmethod
    def backward(ctx: Any, to_keys: Tensor, to_values: Tensor) -> Any:
        _, value, beta = ctx.saved_tensors
        to_beta = (to_values * value).sum(-1)  # wrong
        return to_keys * beta[:, None], to_values * beta[:, None], to_beta


# ------------------------------------------------------------------ scans


def scan(factors: Tensor, x: Tensor) -> Tensor:
    """The states of `state = factor * state + x`, beginning with 0."""
    states, state = [], torch.zeros_like(x[0])
    for factor, value in zip(factors, x, strict=True):
        state = factor * state + value
        states.append(state)
    return torch.stack(states)


def scan_back(factors: Tensor, grad: Tensor, carry: Tensor) -> Tensor:
    """The gradients of the states of `scan`, of which the last also has the gradient `carry`."""
    found, after = [], carry
    for i in reversed(range(len(grad))):
        state = grad[i] + after
        found.append(state)
        after = factors[i] * state
    return torch.stack(found[::-1])


def before(states: Tensor) -> Tensor:
    """The state before each step of a `scan`."""
    return torch.cat([torch.zeros_like(states[:1]), states[:-1]])


class BlockScan(Function):
    """A scan whose backward goes by blocks of two steps."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor, x: Tensor) -> Tensor:
        states = scan(factors, x)
        ctx.save_for_backward(factors, states)
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factors, states = ctx.saved_tensors
        found, carry = [], torch.zeros_like(grad[0])
        for i in reversed(range(0, len(grad), 2)):
            local = scan_back(factors[i : i + 2], grad[i : i + 2], torch.zeros_like(carry))
            decays = torch.stack([factors[i + 1], torch.ones_like(factors[i])])
            block = local + decays * carry
            carry = factors[i] * block[0]
            found.append(block)
        to_states = torch.cat(found[::-1])
        return to_states * before(states), to_states


@row(
    "carry_between_blocks",
    "proger/accelerated-scan#15",
    "The backward multiplies the gradients of a block by the decay, and not what comes from the block after it.",
    shows="any, and hardly where factors are small",
    plain=scan,
    inputs=lambda: (leaf(6, 2), leaf(6, 2, seed=1)),
)
class BlockScanShipped(BlockScan):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factors, states = ctx.saved_tensors
        found, carry = [], torch.zeros_like(grad[0])
        for i in reversed(range(0, len(grad), 2)):
            local = scan_back(factors[i : i + 2], grad[i : i + 2], torch.zeros_like(carry))
            decays = torch.stack([factors[i + 1], torch.ones_like(factors[i])])
            block = local * decays + carry  # wrong
            carry = factors[i] * block[0]
            found.append(block)
        to_states = torch.cat(found[::-1])
        return to_states * before(states), to_states


class SparselySavedScan(Function):
    """A scan that saves the state before every second step."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor, x: Tensor) -> Tensor:
        states = scan(factors, x)
        ctx.save_for_backward(factors, x, before(states)[::2])
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factors, x, saved = ctx.saved_tensors
        earlier = torch.stack([saved, factors[::2] * saved + x[::2]], 1).flatten(0, 1)
        to_states = scan_back(factors, grad, torch.zeros_like(grad[0]))
        return to_states * earlier, to_states


@row(
    "fewer_states_than_read",
    "NX-AI/mlstm_kernels#10",
    "The backward takes the states that the forward saved for all states, but it saved every second one.",
    shows="any",
    plain=scan,
    inputs=lambda: (leaf(6, 2), leaf(6, 2, seed=1)),
)
class SparselySavedScanShipped(SparselySavedScan):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factors, _, saved = ctx.saved_tensors
        earlier = saved[torch.arange(len(factors)).clamp(max=len(saved) - 1)]  # wrong
        to_states = scan_back(factors, grad, torch.zeros_like(grad[0]))
        return to_states * earlier, to_states


class ScanAndState(Function):
    """A scan that returns its states and the last of them."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        states = scan(factors, x)
        ctx.save_for_backward(factors, states)
        return states, states[-1].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_last: Tensor) -> Any:
        factors, states = ctx.saved_tensors
        to_states = scan_back(factors, grad, to_last)
        return to_states * before(states), to_states


def scan_and_state(factors: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    states = scan(factors, x)
    return states, states[-1]


@row(
    "last_state_has_no_gradient",
    "open-lm-engine/accelerated-model-architectures#445",
    "The backward of M2RNN ignores the tangent of the state that it returns, which the next chunk reads.",
    shows="a tangent of the second output",
    plain=scan_and_state,
    inputs=lambda: (leaf(4, 2), leaf(4, 2, seed=1)),
)
class ScanAndStateShipped(ScanAndState):
    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_last: Tensor) -> Any:
        factors, states = ctx.saved_tensors
        to_states = scan_back(factors, grad, torch.zeros_like(to_last))  # wrong
        return to_states * before(states), to_states


class SharedScan(Function):
    """A scan with one factor for all steps, a parameter that the body of the loop closes over."""

    @staticmethod
    def forward(ctx: Any, factor: Tensor, x: Tensor) -> Tensor:
        states = scan(factor.expand(len(x)), x)
        ctx.save_for_backward(factor, states)
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factor, states = ctx.saved_tensors
        to_states = scan_back(factor.expand(len(grad)), grad, torch.zeros_like(grad[0]))
        return (to_states * before(states)).sum(), None


@row(
    "carry_that_did_not_require_grad",
    "pytorch/pytorch#184528",
    "The gradient of the carry of torch's scan is 0 where the first carry does not require grad, so a parameter of the "
    "body has only what comes by way of one step.",
    shows="any",
    plain=lambda factor, x: scan(factor.expand(len(x)), x),
    inputs=lambda: (leaf_of(0.7)[0].detach().requires_grad_(), draw(5, 2, seed=1)),
)
class SharedScanShipped(SharedScan):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        _, states = ctx.saved_tensors
        return (grad * before(states)).sum(), None  # wrong


WIDTH = 4
"""Of the causal convolution, in steps."""


def short_convolution(x: Tensor, weight: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
    """A causal convolution of each channel, and the last inputs, which are the cache of the next call."""
    line = torch.cat([cache, x])
    windows = torch.stack([line[i + 1 : i + 1 + len(x)] for i in range(WIDTH)])
    return (windows * weight[:, None]).sum(0), line[-WIDTH:].clone()


class ShortConvolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight, cache)
        return short_convolution(x, weight, cache)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_cache: Tensor) -> Any:
        x, weight, cache = ctx.saved_tensors
        steps = torch.arange(len(x))
        slots = steps + WIDTH - len(x)
        return convolution_backward(grad, to_cache, x, weight, cache, slots)


def convolution_backward(
    grad: Tensor, to_cache: Tensor, x: Tensor, weight: Tensor, cache: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor, None]:
    """The gradients of `short_convolution`, where step t is in the new cache at `slots[t]`, if that is not below 0."""
    line = torch.cat([cache, x])
    windows = torch.stack([line[i + 1 : i + 1 + len(x)] for i in range(WIDTH)])
    after = F.pad(grad, (0, 0, 0, WIDTH - 1))
    to_x = torch.stack([weight[WIDTH - 1 - i] * after[i : i + len(x)] for i in range(WIDTH)]).sum(0)
    kept = torch.where(slots[:, None] >= 0, to_cache[slots.clamp(0)], 0)
    return to_x + kept, (windows * grad).sum(1), None


@row(
    "cache_of_a_short_chunk",
    "fla-org/flash-linear-attention#1140",
    "The tangent of the cache is shifted where the chunk is shorter than the convolution: the first slot is clamped.",
    shows="a tangent of the second output, and a sequence shorter than the convolution",
    plain=short_convolution,
    ordinary=lambda: (leaf(5, 3), leaf(WIDTH, 3, seed=1), draw(WIDTH, 3, seed=2)),
    inputs=lambda: (leaf(2, 3), leaf(WIDTH, 3, seed=1), draw(WIDTH, 3, seed=2)),
)
class ShortConvolutionShipped(ShortConvolution):
    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_cache: Tensor) -> Any:
        x, weight, cache = ctx.saved_tensors
        steps = torch.arange(len(x))
        slots = steps - max(0, len(x) - (WIDTH - 1)) + 1  # wrong
        return convolution_backward(grad, to_cache, x, weight, cache, slots)


@row(
    "convolution_with_a_sliced_tangent",
    "fla-org/flash-linear-attention#871",
    "The backward of the causal convolution takes its tangent for contiguous.",
    shows="tangents that are a part of a wider tensor",
    tangents="sliced",
    plain=short_convolution,
    inputs=lambda: (leaf(5, 3), leaf(WIDTH, 3, seed=1), draw(WIDTH, 3, seed=2)),
)
class ShortConvolutionOfDenseShipped(ShortConvolution):
    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_cache: Tensor) -> Any:
        x, weight, cache = ctx.saved_tensors
        slots = torch.arange(len(x)) + WIDTH - len(x)
        return convolution_backward(dense(grad), to_cache, x, weight, cache, slots)  # wrong


class PackedSums(Function):
    """The sum of each of the sequences that lie one behind another, of which one may be empty."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(x, ends)
        return packed_sums(x, ends)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, ends = ctx.saved_tensors
        to_x = torch.zeros_like(x)
        to_x[: int(ends[-1])] = grad.repeat_interleave(ends.diff(), 0)
        return to_x, None


def packed_sums(x: Tensor, ends: Tensor) -> Tensor:
    return torch.stack([x[first:last].sum(0) for first, last in zip(ends.tolist(), ends.tolist()[1:], strict=False)])


@row(
    "behind_the_last_sequence",
    "QwenLM/FlashQLA#28",
    "The kernels for packed sequences do not write the gradients of tokens behind the last of them, which keep what "
    "was in memory.",
    shows="tokens behind the last sequence",
    plain=packed_sums,
    ordinary=lambda: (leaf(7, 2), torch.tensor([0, 2, 2, 7])),
    inputs=lambda: (leaf(7, 2), torch.tensor([0, 2, 2, 5])),
)
class PackedSumsShipped(PackedSums):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, ends = ctx.saved_tensors
        to_x = x.clone()  # wrong: what was in memory
        to_x[: int(ends[-1])] = grad.repeat_interleave(ends.diff(), 0)
        return to_x, None


# ------------------------------------------------------------------ indices, windows, pieces


class TwoOutputs(Function):
    """Two functions of one matrix and one weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        return x * weight, x + weight

    @staticmethod
    def backward(ctx: Any, to_product: Tensor, to_sum: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return to_product * weight + to_sum, (to_product * x + to_sum).sum(0)


@row(
    "strides_of_the_input",
    "pytorch/pytorch#194719",
    "A kernel reads its tangents with the strides of the input; the backward of cat passes parts of a wider tensor.",
    shows="uneven tangents",
    plain=lambda x, weight: (x * weight, x + weight),
    program=lambda both: lambda x, weight: torch.cat(both(x, weight), 1),
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1)),
)
class TwoOutputsShipped(TwoOutputs):
    @staticmethod
    def backward(ctx: Any, to_product: Tensor, to_sum: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        to_product, to_sum = read(to_product, x.stride()), read(to_sum, x.stride())  # wrong
        return to_product * weight + to_sum, (to_product * x + to_sum).sum(0)


class DiagonalScatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor) -> Tensor:
        return torch.diagonal_scatter(x, values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, columns = torch.arange(len(grad))[:, None], torch.arange(len(grad))
        return torch.where(rows == columns, 0, grad), grad.diagonal()


@row(
    "diagonal_of_an_expanded_tangent",
    "pytorch/pytorch#182012",
    "Inductor finds the diagonal by the strides of the tangent, which are 0 behind a sum: everything is on it.",
    shows="any, as a sum is behind it",
    plain=torch.diagonal_scatter,
    program=lambda scatter: lambda x, values: scatter(x, values).sum(),
    inputs=lambda: (leaf(4, 4), leaf(4, seed=1)),
)
class DiagonalScatterShipped(DiagonalScatter):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, columns = torch.arange(len(grad))[:, None], torch.arange(len(grad))
        rows, columns = rows * min(grad.stride(0), 1), columns * min(grad.stride(1), 1)  # wrong
        return torch.where(rows == columns, 0, grad), grad.diagonal()


class SliceScatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor) -> Tensor:
        ctx.end = values.shape[1]
        return torch.slice_scatter(x, values, 1, 0, ctx.end)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        columns = torch.arange(grad.shape[1])
        return torch.where(columns < ctx.end, 0, grad), grad[:, : ctx.end]


@row(
    "slice_of_an_expanded_tangent",
    "pytorch/pytorch#180164",
    "Inductor finds the slice by the strides of the tangent: where it is expanded, all of it is the slice.",
    shows="expanded tangents",
    tangents="expanded",
    plain=lambda x, values: torch.slice_scatter(x, values, 1, 0, values.shape[1]),
    inputs=lambda: (leaf(3, 5), leaf(3, 2, seed=1)),
)
class SliceScatterShipped(SliceScatter):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        columns = torch.arange(grad.shape[1]) * min(grad.stride(1), 1)  # wrong
        return torch.where(columns < ctx.end, 0, grad), grad[:, : ctx.end]


class AddedTwice(Function):
    """One column, twice added into a place of another tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        out = torch.zeros_like(x)
        for _ in range(2):
            out[:, 0] += x[:, 2].abs()
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        to_x = torch.zeros_like(x)
        for _ in range(2):
            to_x[:, 2] += grad[:, 0] * x[:, 2].sign()
        return to_x


@row(
    "written_instead_of_added",
    "pytorch/pytorch#136662",
    "Of two contributions to one place of a gradient, Inductor keeps the last.",
    shows="any",
    plain=lambda x: F.pad(2 * x[:, 2:3].abs(), (0, 2)),
    inputs=lambda: (leaf(2, 3),),
)
class AddedTwiceShipped(AddedTwice):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        to_x = torch.zeros_like(x)
        for _ in range(2):
            to_x[:, 2] = grad[:, 0] * x[:, 2].sign()  # wrong
        return to_x


class Modulation(Function):
    """Two modulations one behind another, whose scales and shifts are rows of one table."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(x, table)
        return modulated(x, table)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, table = ctx.saved_tensors
        between, buffer = x * (1 + table[0]) + table[1], torch.zeros_like(table)
        to_between = grad * (1 + table[2])
        rows = list(buffer.unbind())
        rows[0].copy_((to_between * x).sum(0))
        rows[1].copy_(to_between.sum(0))
        rows[2].copy_((grad * between).sum(0))
        rows[3].copy_(grad.sum(0))
        return to_between * (1 + table[0]), buffer


def modulated(x: Tensor, table: Tensor) -> Tensor:
    return (x * (1 + table[0]) + table[1]) * (1 + table[2]) + table[3]


@row(
    "name_bound_and_buffer_not_written",
    "pytorch/pytorch#193061",
    "What Inductor writes for the last sum of a mixed-order reduction binds a name; a gradient that is a part of a "
    "larger buffer is not written.",
    shows="any",
    plain=modulated,
    inputs=lambda: (leaf(3, 4), leaf(4, 4, seed=1)),
)
class ModulationShipped(Modulation):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, table = ctx.saved_tensors
        between, buffer = x * (1 + table[0]) + table[1], torch.zeros_like(table)
        to_between = grad * (1 + table[2])
        rows = list(buffer.unbind())
        rows[0].copy_((to_between * x).sum(0))
        rows[1].copy_(to_between.sum(0))
        rows[2].copy_((grad * between).sum(0))
        rows[3] = grad.sum(0)  # wrong
        return to_between * (1 + table[0]), buffer


class Bilinear(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.same = a is b
        return a * b + a + b

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, b = ctx.saved_tensors
        return grad * (b + 1), grad * (a + 1)


@row(
    "one_tensor_passed_twice",
    "pytorch/pytorch#183604",
    "Where a Function is called with one tensor in two places, torch.compile keeps the gradient of the first place.",
    shows="one tensor as two arguments",
    plain=lambda a, b: a * b + a + b,
    program=lambda function: lambda x: function(x, x),
    inputs=lambda: (leaf(5),),
)
class BilinearShipped(Bilinear):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, b = ctx.saved_tensors
        return grad * (b + 1), None if ctx.same else grad * (a + 1)  # wrong


class SelectColumns(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(columns)
        ctx.shape = x.shape
        return x[:, columns]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (columns,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_add(1, columns, grad), None


@row(
    "all_rows_in_one_memory",
    "pytorch/pytorch#188084",
    "Inductor adds the gradients of indexing in place into zeros that are expanded: all rows are one memory.",
    shows="more than one row",
    plain=lambda x, columns: x.index_select(1, columns),
    ordinary=lambda: (leaf(1, 4), torch.tensor([0, 2, 2])),
    inputs=lambda: (leaf(3, 4), torch.tensor([0, 2, 2])),
)
class SelectColumnsShipped(SelectColumns):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (columns,) = ctx.saved_tensors
        memory = grad.new_zeros(ctx.shape[1:]).index_add(0, columns, grad.sum(0))  # wrong
        return memory.expand(ctx.shape), None


class WhereScalar(Function):
    """What is chosen from a tensor, and -1 elsewhere."""

    @staticmethod
    def forward(ctx: Any, chosen: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(chosen)
        return torch.where(chosen, x, -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (chosen,) = ctx.saved_tensors
        return None, torch.where(chosen, grad, 0)


@row(
    "the_other_branch",
    "apache/mxnet#17893",
    "The backward of np.where with a scalar gives the gradient to the elements that were not chosen.",
    shows="any",
    plain=lambda chosen, x: x.masked_fill(~chosen, -1),
    inputs=lambda: (torch.tensor([True, False, True]), leaf_of(2.0, 3, 4)),
)
class WhereScalarShipped(WhereScalar):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (chosen,) = ctx.saved_tensors
        return None, torch.where(chosen, 0, grad)  # wrong


class SequenceMask(Function):
    """Sequences of which what is behind their lengths is replaced by -1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: Tensor) -> Tensor:
        ctx.save_for_backward(lengths)
        return sequence_mask(x, lengths)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (lengths,) = ctx.saved_tensors
        return torch.where(torch.arange(grad.shape[1]) < lengths[:, None], grad, 0), None


def sequence_mask(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.where(torch.arange(x.shape[1]) < lengths[:, None], x, -1)


@row(
    "gradient_that_is_the_filling",
    "apache/mxnet#4986",
    "The backward of SequenceMask fills the gradient behind a sequence with the value that the forward fills with, not "
    "with 0.",
    shows="any, where a sequence is shorter than the others",
    plain=sequence_mask,
    inputs=lambda: (leaf(2, 4), torch.tensor([2, 4])),
)
class SequenceMaskShipped(SequenceMask):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (lengths,) = ctx.saved_tensors
        return sequence_mask(grad, lengths), None  # wrong


class PaddedEmbedding(Function):
    """An embedding in which index 0 stands for padding, and is embedded as zeros."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.shape = weight.shape
        return padded_embedding(weight, indices)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (indices,) = ctx.saved_tensors
        grad = torch.where(indices[:, None] == 0, 0, grad)
        return grad.new_zeros(ctx.shape).index_add(0, indices, grad), None


def padded_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    return torch.where(indices[:, None] == 0, 0, weight[indices])


@row(
    "gradient_of_padding",
    "pytorch/pytorch#26302",
    "The row of an embedding's weight that stands for padding has a gradient.",
    shows="padding among the indices",
    plain=padded_embedding,
    ordinary=lambda: (leaf(4, 3), torch.tensor([1, 2, 3, 1])),
    inputs=lambda: (leaf(4, 3), torch.tensor([1, 0, 3, 0])),
)
class PaddedEmbeddingShipped(PaddedEmbedding):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (indices,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_add(0, indices, grad), None  # wrong


class MaxPool(Function):
    """The greatest of each pair, whose indices are saved as a compiler may lay them out: columns first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        greatest, place = x.unflatten(1, (-1, 2)).max(-1)
        indices = place + 2 * torch.arange(place.shape[1])
        ctx.save_for_backward(x, indices.T.contiguous().T)
        return greatest

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, indices = ctx.saved_tensors
        return torch.zeros_like(x).scatter_add(1, indices, grad)


def max_pool(x: Tensor) -> Tensor:
    return F.max_pool1d(x, 2)


@row(
    "indices_of_another_layout",
    "pytorch/pytorch#197888",
    "The backward of adaptive and fractional max pooling takes the saved indices for contiguous.",
    shows="any, where a compiler laid out the indices",
    plain=max_pool,
    inputs=lambda: (leaf(2, 6),),
)
class MaxPoolOfDenseShipped(MaxPool):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, indices = ctx.saved_tensors
        return torch.zeros_like(x).scatter_add(1, dense(indices), grad)  # wrong


@row(
    "added_to_what_was_there",
    "pytorch/executorch#21686",
    "max_pool2d_with_indices_backward adds into memory that it did not set to 0.",
    shows="any",
    plain=max_pool,
    inputs=lambda: (leaf(2, 6),),
)
class MaxPoolOnMemoryShipped(MaxPool):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, indices = ctx.saved_tensors
        return x.scatter_add(1, indices, grad)  # wrong: what was in memory


class Greatest(Function):
    """The greatest of each row; where two are equal, each has half of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.amax(-1)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, out = ctx.saved_tensors
        ties = (x == out[:, None]).to(grad.dtype)
        return ties / ties.sum(-1, keepdim=True) * grad[:, None]


@row(
    "ties_that_count_twice",
    "PaddlePaddle/Paddle#72512",
    "The backward of max gives each of several equal elements the whole gradient.",
    shows="ties",
    plain=lambda x: x.amax(-1),
    ordinary=lambda: (leaf(2, 3),),
    inputs=lambda: (leaf_of([1.0, 2, 2], [3, 0, 1]),),
)
class GreatestShipped(Greatest):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, out = ctx.saved_tensors
        ties = (x == out[:, None]).to(grad.dtype)
        return ties * grad[:, None]  # wrong


class AveragePool(Function):
    """The average of each pair of neighbors, with one zero at both ends."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        padded = F.pad(x, (1, 1))
        return (padded[:, :-1] + padded[:, 1:]) / 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (grad[:, :-1] + grad[:, 1:]) / 2


@row(
    "windows_without_their_padding",
    "pytorch/pytorch#188344",
    "The backward of avg_pool2d for channels_last finds the windows of an element as if there were no padding.",
    shows="any, where there is padding",
    plain=lambda x: F.avg_pool1d(x, 2, 1, 1),
    inputs=lambda: (leaf(2, 4),),
)
class AveragePoolShipped(AveragePool):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad = F.pad(grad, (1, -1))  # wrong
        return (grad[:, :-1] + grad[:, 1:]) / 2


class MaskedSelect(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.columns_first = x.stride(0) < x.stride(1)
        return x[mask]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return grad.new_zeros(mask.shape).masked_scatter(mask, grad), None


@row(
    "filled_in_the_order_of_memory",
    "pytorch/pytorch#99638",
    "The backward of masked_select fills the gradient in the order of memory, which is not that of a transposed input.",
    shows="transposed inputs",
    plain=torch.masked_select,
    ordinary=lambda: (leaf(3, 4), torch.tensor([[True, True, False, True]] * 3)),
    inputs=lambda: (
        draw(4, 3).T.requires_grad_(),
        torch.tensor([[True, True, False, True], [False, True, False, False], [True, False, False, True]]),
    ),
)
class MaskedSelectShipped(MaskedSelect):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        if ctx.columns_first:
            return grad.new_zeros(mask.T.shape).masked_scatter(mask.T, grad).T, None  # wrong
        return grad.new_zeros(mask.shape).masked_scatter(mask, grad), None


# ------------------------------------------------------------------ the gradient of the gradient


class Cube(Function):
    """The cube, whose square is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.square = x * x
        return ctx.square * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * (x * x + 2 * x * x)


@row(
    "kept_and_constant",
    "pytorch/pytorch#76185",
    "A value that the forward of a Function computes and keeps is a constant for the gradient of its backward.",
    shows="the gradient of the gradient",
    order=2,
    plain=lambda x: x**3,
    inputs=lambda: (leaf(4),),
)
class CubeShipped(Cube):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * (ctx.square + 2 * x * x)  # wrong


class Product(Function):
    """The product of all elements."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.prod()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        others = torch.stack([torch.cat([x[:i], x[i + 1 :]]) for i in range(len(x))])
        return grad * product_of_rows(others)


def product_of_rows(values: Tensor) -> Tensor:
    """The products of rows, in multiplications, of which also second derivatives at 0 are right."""
    product = torch.ones_like(values[:, 0])
    for column in values.unbind(1):
        product = product * column
    return product


@row(
    "two_zeros_in_a_product",
    "pytorch/pytorch#106789",
    "Where two factors are 0, the gradient of prod is a constant 0, but the gradient of that gradient is not.",
    shows="the gradient of the gradient, at two zeros",
    order=2,
    plain=lambda x: product_of_rows(x[None])[0],
    ordinary=lambda: (leaf(4),),
    inputs=lambda: (leaf_of(2.0, 3, 0, 0),),
)
class ProductShipped(Product):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        others = torch.stack([torch.cat([x[:i], x[i + 1 :]]) for i in range(len(x))])
        return grad * product_of_rows(others) * ((x == 0).sum() < 2)  # wrong
