"""Indices, masks, windows, and tensors that are parts of others."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from subjects.wrong_backwards.table import dense, draw, leaf, leaf_of, read, row


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
    shows="transposed inputs, and uneven tangents",
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
