"""Losses: cross entropy, fused with a linear layer or not, and total scores."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from subjects.wrong_backwards.table import dense, leaf, row


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
