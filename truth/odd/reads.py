"""Values of tensors that a program reads: in its forward, in its backward, and below what a dispatcher sees."""

import copy
import ctypes
import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from case import Call, Case, attributes, bare, ints, leaf, many, module, program, rand, randn
from torch import Tensor, nn
from torch.nn import functional as F

SCORES = {0: 2.0, 1: 3.0, 2: 5.0}


def by(condition: Any, x: Any = None) -> Case:
    """Twice or three times x, as a condition on x says; also on the negated x, and on one that takes the same way."""
    x = rand(3, 4) if x is None else x
    return Case(lambda x: x * 2 if condition(x) else x * 3, x, others=[-x, x * 1.5, x.t().contiguous().t()])


def scaled(read: Any, x: Any = None, **more: Any) -> Case:
    """x times what is read from it."""
    x = rand(3, 4) if x is None else x
    return Case(lambda x: x * read(x.detach()), x, others=[-x, x * 1.5, x.flip(0)], **more)


many(
    __name__,
    branch_on_sum=lambda: by(lambda x: x.sum() > 0),
    branch_on_item=lambda: by(lambda x: x.sum().item() > 0),
    branch_on_float=lambda: by(lambda x: float(x.sum()) > 0),
    branch_on_int=lambda: by(lambda x: int(x.sum()) > 0),
    branch_on_bool=lambda: by(lambda x: bool((x > 0).all())),
    branch_on_any=lambda: by(lambda x: (x < 0).any()),
    branch_on_not=lambda: by(lambda x: not (x < 0).any()),
    branch_on_and=lambda: by(lambda x: (x > 0).all() and (x < 5).all()),
    branch_on_equal=lambda: by(lambda x: torch.equal(x, x.abs())),
    branch_on_allclose=lambda: by(lambda x: torch.allclose(x, x.abs())),
    branch_on_tensor_equal_method=lambda: by(lambda x: x.equal(x.abs())),
    branch_on_isclose_all=lambda: by(lambda x: torch.isclose(x, x.abs()).all().item()),
    branch_on_tolist=lambda: by(lambda x: x.tolist()[0][0] > 0),
    branch_on_numpy=lambda: by(lambda x: x.detach().numpy().min() > 0),
    branch_on_numpy_array=lambda: by(lambda x: np.asarray(x.detach()).min() > 0),
    branch_on_dlpack=lambda: by(lambda x: np.from_dlpack(x.detach()).min() > 0),
    branch_on_text=lambda: by(lambda x: "-" in str(x.detach())),
    branch_on_repr=lambda: by(lambda x: "-" in repr(x)),
    branch_on_fstring=lambda: by(lambda x: f"{x.sum():.1f}".startswith("-")),
    branch_on_format_of_tensor=lambda: by(lambda x: "-" in f"{x.detach()}"),
    branch_on_percent_text=lambda: by(lambda x: "-" in "%s" % x.detach()),  # noqa: UP031
    branch_on_nonzero_count=lambda: by(lambda x: len(torch.nonzero(x > 0)) > 3),
    branch_on_count_nonzero=lambda: by(lambda x: torch.count_nonzero(x > 0) > 3),
    branch_on_masked_select=lambda: by(lambda x: x[x > 0].numel() > 3),
    branch_on_where_shape=lambda: by(lambda x: torch.where(x > 0)[0].shape[0] > 3),
    branch_on_unique=lambda: by(lambda x: torch.unique(x.sign()).numel() == 1 and x.max() > 0),
    branch_on_membership=lambda: by(lambda x: 1.0 in x.sign()),
    branch_on_min_of_python=lambda: by(lambda x: min(x[0].tolist()) > 0),
    branch_on_python_max=lambda: by(lambda x: max(x[0]) > 0),
    branch_on_sorted=lambda: by(lambda x: sorted(x[0])[0] > 0),
    branch_on_python_sum=lambda: by(lambda x: sum(x[0]) > 0),
    branch_on_python_any=lambda: by(lambda x: any(v < 0 for v in x[0])),
    branch_on_iteration=lambda: by(lambda x: all(v > 0 for row in x for v in row)),
    branch_on_data=lambda: by(lambda x: x.data.sum().item() > 0),
    branch_on_detached_in_no_grad=lambda: by(lambda x: torch.no_grad()(lambda: x.sum())() > 0),
    branch_on_isnan=lambda: by(lambda x: torch.isnan(x.log()).any()),
    branch_on_is_nonzero=lambda: by(lambda x: torch.is_nonzero((x > 0).all())),
    branch_on_signbit=lambda: by(lambda x: x.signbit().any()),
    branch_on_determinant=lambda: by(lambda x: torch.linalg.det(x[:3, :3] * 0 + torch.eye(3) * x[0, 0]) > 0),
    branch_on_stride=lambda: by(lambda x: x.stride(0) == 4),
    branch_on_contiguous=lambda: by(lambda x: x.is_contiguous()),
    branch_on_contiguous_of_result=lambda: by(lambda x: (x * 2).is_contiguous()),
    branch_on_storage_offset=lambda: Case(
        lambda x: x * 2 if x.storage_offset() == 0 else x * 3, rand(3, 4), others=[rand(4, 4)[1:]]
    ),
    branch_on_storage_size=lambda: Case(
        lambda x: x * 2 if x.untyped_storage().nbytes() == 48 else x * 3,
        rand(3, 4),
        others=[rand(4, 4)[1:], rand(4, 4)[:3]],
    ),
    branch_on_is_view=lambda: Case(lambda x: x * 2 if x._is_view() else x * 3, rand(3, 4), others=[rand(4, 4)[1:]]),
    branch_on_base=lambda: Case(
        lambda x: x * 2 if x._base is None else x._base.sum() * x, rand(3, 4), others=[rand(4, 4)[1:]]
    ),
    branch_on_memory_format=lambda: Case(
        lambda x: x * 2 if x.is_contiguous(memory_format=torch.channels_last) else x * 3,
        randn(2, 3, 4, 4),
        others=[randn(2, 3, 4, 4).to(memory_format=torch.channels_last)],
    ),
    branch_on_dtype=lambda: Case(
        lambda x: x * 2 if x.dtype is torch.float32 else x * 3, rand(3, 4), others=[rand(3, 4).double()]
    ),
    branch_on_device=lambda: by(lambda x: x.device.type == "cpu"),
    branch_on_shape=lambda: Case(lambda x: x * 2 if x.shape[0] > 2 else x * 3, rand(3, 4), others=[rand(2, 4)]),
    branch_on_len=lambda: Case(lambda x: x * len(x), rand(3, 4), others=[rand(2, 4)]),
    branch_on_same_memory=lambda: Case(
        lambda a, b: a * 2 if a.data_ptr() == b.data_ptr() else a * 3,
        (rand(3), rand(3, seed=2)),
        others=[(lambda t: (t, t))(rand(3)), (lambda t: (t, t.view(3)))(rand(3))],
    ),
    branch_on_same_object=lambda: Case(
        lambda a, b: a * 2 if a is b else a * 3,
        (lambda t: (t, t))(rand(3)),
        others=[(rand(3), rand(3)), (rand(3), rand(3, seed=2))],
    ),
    branch_on_conj_bit=lambda: Case(
        lambda x: x * 2 if x.is_conj() else x * 3,
        randn(3, dtype=torch.complex64),
        others=[randn(3, dtype=torch.complex64).conj()],
    ),
    branch_on_neg_bit=lambda: Case(
        lambda x: x * 2 if x.is_neg() else x * 3, randn(3), others=[torch.imag(randn(3, dtype=torch.complex64).conj())]
    ),
    branch_on_hash_table=lambda: Case(
        lambda i: torch.ones(2) * SCORES[int(i)], torch.tensor(1), others=[torch.tensor(2), torch.tensor(1)]
    ),
    branch_on_grad_mode=lambda: by(lambda x: torch.is_grad_enabled()),
    branch_on_inference=lambda: by(lambda x: torch.is_inference_mode_enabled()),
    branch_on_tracing=lambda: by(lambda x: torch.jit.is_tracing()),
    branch_on_compiling=lambda: by(lambda x: torch.compiler.is_compiling()),
    branch_on_scripting=lambda: by(lambda x: torch.jit.is_scripting()),
    branch_on_exporting=lambda: by(lambda x: torch.compiler.is_exporting()),
    branch_on_type_of_result=lambda: by(lambda x: type(x * 2) is Tensor),
    branch_on_class_name_of_result=lambda: by(lambda x: type(x * 2).__name__ == "Tensor"),
    branch_on_grad_fn_name=lambda: Case(lambda x: x * 2 if "Mul" in (x * 2).grad_fn.name() else x * 3, leaf(3)),
    branch_on_requires_grad_of_result=lambda: Case(lambda x: x * 2 if (x * 2).requires_grad else x * 3, leaf(3)),
    branch_on_autocast=lambda: by(lambda x: torch.is_autocast_enabled("cpu")),
    branch_on_default_dtype=lambda: by(lambda x: torch.get_default_dtype() is torch.float32),
    branch_on_function_modes=lambda: by(lambda x: torch._C._len_torch_function_stack() == 0),
    branch_on_dispatch_modes=lambda: by(lambda x: torch._C._len_torch_dispatch_stack() == 0),
    item_scales=lambda: scaled(lambda x: x.sum().item()),
    tolist_scales=lambda: scaled(lambda x: x.tolist()[1][1]),
    numpy_scales=lambda: scaled(lambda x: float(x.numpy().sum())),
    numpy_back_and_forth=lambda: scaled(lambda x: torch.from_numpy(np.sin(x.numpy()))),
    numpy_function_on_tensor=lambda: scaled(lambda x: torch.as_tensor(np.tanh(x))),
    dlpack_scales=lambda: scaled(lambda x: float(np.from_dlpack(x).sum())),
    dlpack_round=lambda: scaled(lambda x: torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))),
    pointer_read=lambda: scaled(lambda x: ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))[0]),
    typed_storage_read=lambda: scaled(lambda x: float(x.storage()[0])),
    storage_read=lambda: scaled(lambda x: x.untyped_storage()[3] * 0.1),
    storage_tolist=lambda: scaled(lambda x: sum(x.untyped_storage().tolist()) * 0.01),
    text_length_scales=lambda: scaled(lambda x: float(len(str(x)))),
    text_parsed=lambda: scaled(lambda x: float(str(x[0, 0].item()))),
    deep_copied=lambda: scaled(lambda x: copy.deepcopy(x)),
    shallow_copied=lambda: scaled(lambda x: copy.copy(x)),
    pickled=lambda: scaled(lambda x: pickle.loads(pickle.dumps(x))),
    saved_and_loaded=lambda: scaled(_saved_and_loaded),
    argmax_as_index=lambda: Case(
        lambda x: x[int(x[:, 0].argmax())] * x, rand(3, 4), others=[-rand(3, 4), rand(3, 4).flip(0)]
    ),
    argmax_as_tensor_index=lambda: Case(
        lambda x: x[x[:, 0].argmax()] * x, rand(3, 4), others=[-rand(3, 4), rand(3, 4).flip(0)]
    ),
    argsort_as_list=lambda: Case(
        lambda x: x[x[:, 0].argsort().tolist()], rand(3, 4), others=[-rand(3, 4), rand(3, 4).flip(0)]
    ),
    topk_item=lambda: Case(lambda x: x * x.flatten().topk(2).indices[0].item(), rand(3, 4), others=[-rand(3, 4)]),
    mask_selects=lambda: Case(lambda x: x[x > 0.5].sum() * x, rand(3, 4), others=[-rand(3, 4), rand(3, 4) + 1]),
    mask_assigns=lambda: Case(_mask_assigns, randn(3, 4), others=[-randn(3, 4)]),
    nonzero_gathers=lambda: Case(lambda x: x[(x > 0).nonzero(as_tuple=True)], randn(3, 4), others=[-randn(3, 4)]),
    unique_counts=lambda: Case(
        lambda x: x * torch.unique(x.round(), return_counts=True)[1].max(),
        randn(3, 4),
        others=[-randn(3, 4), rand(3, 4)],
    ),
    slice_by_value=lambda: Case(
        lambda x, n: x[: int(n)] * 2, (rand(5), torch.tensor(3)), others=[(rand(5), torch.tensor(2))]
    ),
    slice_by_tensor=lambda: Case(
        lambda x, n: x[:n].sum() * x, (rand(5), torch.tensor(3)), others=[(rand(5), torch.tensor(2))]
    ),
    range_by_tensor=lambda: Case(
        lambda x, n: sum(x * i for i in range(n)), (rand(5), torch.tensor(3)), others=[(rand(5), torch.tensor(2))]
    ),
    arange_by_tensor=lambda: Case(
        lambda x, n: x.sum() * torch.arange(n), (rand(5), torch.tensor(3)), others=[(rand(5), torch.tensor(4))]
    ),
    arange_by_value=lambda: Case(
        lambda x, n: x.sum() * torch.arange(0, n.item(), 0.5),
        (rand(5), torch.tensor(3.0)),
        others=[(rand(5), torch.tensor(2.0))],
    ),
    zeros_by_value=lambda: Case(
        lambda x, n: torch.ones(int(n), 5) * x, (rand(5), torch.tensor(3)), others=[(rand(5), torch.tensor(2))]
    ),
    full_by_value=lambda: Case(
        lambda x, n: torch.full((5,), n.item()) * x, (rand(5), torch.tensor(0.2)), others=[(rand(5), torch.tensor(0.7))]
    ),
    tensor_of_tensors=lambda: Case(
        lambda x, a: torch.tensor([a, a * 2]).sum() * x,
        (rand(5), torch.tensor(0.2)),
        others=[(rand(5), torch.tensor(0.7))],
    ),
    tensor_of_items=lambda: Case(
        lambda x, a: torch.tensor([a.item(), 1.0]).sum() * x,
        (rand(5), torch.tensor(0.2)),
        others=[(rand(5), torch.tensor(0.7))],
    ),
    tensor_split_by_tensor=lambda: Case(
        lambda x, i: torch.tensor_split(x, i, dim=1)[0].sum() * x,
        (randn(3, 4), torch.tensor([1])),
        others=[(randn(3, 4), torch.tensor([3]))],
    ),
    repeat_interleave_by_tensor=lambda: Case(
        lambda x, n: torch.repeat_interleave(x, n, dim=0),
        (randn(3, 4), torch.tensor([1, 2, 1])),
        others=[(randn(3, 4), torch.tensor([2, 1, 1])), (randn(3, 4), torch.tensor([1, 1, 1]))],
    ),
    repeat_by_item=lambda: Case(
        lambda x, n: x.repeat(n.item(), 1), (randn(3, 4), torch.tensor(2)), others=[(randn(3, 4), torch.tensor(3))]
    ),
    bincount_of_indices=lambda: Case(
        lambda x, i: x.sum() * torch.bincount(i),
        (randn(3, 4), torch.tensor([0, 2, 2])),
        others=[(randn(3, 4), torch.tensor([0, 1, 1])), (randn(3, 4), torch.tensor([2, 1, 1]))],
    ),
    one_hot_by_largest=lambda: Case(
        lambda x, i: x.sum() * F.one_hot(i),
        (randn(3, 4), torch.tensor([0, 2, 2])),
        others=[(randn(3, 4), torch.tensor([0, 1, 1])), (randn(3, 4), torch.tensor([2, 1, 1]))],
    ),
    histogram_with_its_own_range=lambda: Case(lambda x: x * torch.histc(x, 4).max(), randn(3, 4), others=[rand(3, 4)]),
    split_by_list_of_items=lambda: Case(
        lambda x, n: [p * 2 for p in x.split(n.tolist())],
        (randn(4), torch.tensor([1, 3])),
        others=[(randn(4), torch.tensor([2, 2]))],
    ),
    embedding_bag_offsets=lambda: Case(
        lambda w, i, o: F.embedding_bag(i, w, o),
        (randn(5, 3), torch.tensor([0, 1, 4, 2]), torch.tensor([0, 2])),
        others=[(randn(5, 3), torch.tensor([0, 1, 4, 2]), torch.tensor([0, 3]))],
    ),
    ctc_with_lengths=lambda: Case(
        lambda lp, t, a, b: F.ctc_loss(lp, t, a, b),
        (randn(8, 2, 5).log_softmax(-1), ints(2, 4, high=4) + 1, torch.tensor([8, 6]), torch.tensor([4, 3])),
        others=[(randn(8, 2, 5).log_softmax(-1), ints(2, 4, high=4) + 1, torch.tensor([7, 8]), torch.tensor([2, 4]))],
    ),
    ctc_with_list_lengths=lambda: Case(
        lambda lp, t: F.ctc_loss(lp, t, (8, 6), (4, 3)), (randn(8, 2, 5).log_softmax(-1), ints(2, 4, high=4) + 1)
    ),
    index_select_by_list=lambda: Case(
        lambda x, i: x[[int(v) for v in i]],
        (randn(5, 2), torch.tensor([0, 3])),
        others=[(randn(5, 2), torch.tensor([4, 1]))],
    ),
    dictionary_by_item=lambda: Case(
        lambda x, i: x * SCORES[i.item()], (randn(3), torch.tensor(1)), others=[(randn(3), torch.tensor(2))]
    ),
    match_on_item=lambda: Case(
        _match, (randn(3), torch.tensor(1)), others=[(randn(3), torch.tensor(2)), (randn(3), torch.tensor(9))]
    ),
    while_on_value=lambda: Case(_halve, (randn(3) * 8,), others=[randn(3), randn(3) * 100]),
    newton_until_it_stands_still=lambda: Case(
        _newton, torch.tensor(3.0), others=[torch.tensor(700.0), torch.tensor(2.9)]
    ),
    early_exit=lambda: Case(_early_exit, rand(5), others=[-rand(5), rand(5) * 3]),
    python_list_index=lambda: Case(
        lambda x, i: [x, x * 2, x * 3][i], (randn(3), torch.tensor(1)), others=[(randn(3), torch.tensor(2))]
    ),
    power_by_tensor_value=lambda: Case(
        lambda x, n: x ** int(n), (randn(3), torch.tensor(2)), others=[(randn(3), torch.tensor(3))]
    ),
    dropout_by_value=lambda: Case(
        lambda x, p: F.dropout(x, p.item()), (randn(3, 4), torch.tensor(0.5)), others=[(randn(3, 4), torch.tensor(0.2))]
    ),
    scalar_alpha=lambda: Case(
        lambda x, a: x.add(x, alpha=a.item()), (randn(3), torch.tensor(2.0)), others=[(randn(3), torch.tensor(0.5))]
    ),
    clamp_by_items=lambda: Case(
        lambda x, a: x.clamp(-a.item(), a.item()), (randn(3), torch.tensor(0.5)), others=[(randn(3), torch.tensor(0.1))]
    ),
    zero_dim_as_size=lambda: Case(
        lambda x, n: x.view(n, -1), (randn(6), torch.tensor(2)), others=[(randn(6), torch.tensor(3))]
    ),
    linspace_by_tensors=lambda: Case(
        lambda x, a: x * torch.linspace(a, 1, 3), (randn(3), torch.tensor(0.0)), others=[(randn(3), torch.tensor(0.5))]
    ),
    quantile_by_item=lambda: Case(lambda x: x * x.quantile(x[0].sigmoid().item()), randn(5), others=[-randn(5)]),
    combinations_by_value=lambda: Case(lambda x: torch.combinations(x[x > 0]), randn(5), others=[-randn(5)]),
    scripted_function_inside=lambda: scaled(_scripted_sum()),
    scripted_tolist_inside=lambda: scaled(_scripted_tolist()),
    thread_computes=lambda: scaled(_in_thread),
    pool_computes=lambda: scaled(lambda x: ThreadPoolExecutor(1).submit(lambda: x.sin()).result()),
    thread_reads=lambda: scaled(lambda x: ThreadPoolExecutor(1).submit(lambda: x.sum().item()).result()),
    file_and_back=lambda: scaled(_by_file),
    memory_view=lambda: scaled(lambda x: float(memoryview(x.numpy())[0, 0])),
    bytes_of_tensor=lambda: scaled(lambda x: float(len(x.numpy().tobytes().strip(b"\x00")))),
    write_through_numpy=lambda: scaled(_write_through_numpy),
    complex_item=lambda: Case(
        lambda x: x * x.sum().item(), randn(3, dtype=torch.complex64), others=[randn(3, seed=4, dtype=torch.complex64)]
    ),
    index_method=lambda: Case(
        lambda x, i: x * [2, 3, 5][i.__index__()], (randn(3), torch.tensor(1)), others=[(randn(3), torch.tensor(2))]
    ),
    divmod_of_items=lambda: Case(
        lambda x, i: x * (int(i) // 2 + int(i) % 3), (randn(3), torch.tensor(5)), others=[(randn(3), torch.tensor(7))]
    ),
    round_of_item=lambda: Case(lambda x: x * round(x.sum().item(), 1), randn(3), others=[-randn(3)]),
    parameter_value_branch=lambda: Case(module(None, lambda s, x: x @ s.w * (2 if s.w.sum() > 0 else 3)), randn(3, 4)),
    parameter_item_scales=lambda: Case(module(None, lambda s, x: x @ s.w * s.w[0, 0].item()), randn(3, 4)),
    buffer_counter_branch=lambda: Case(
        bare(lambda s: s.register_buffer("n", torch.tensor(3)), lambda s, x: x * (2 if s.n > 2 else 3)), randn(3, 4)
    ),
)


def _saved_and_loaded(x: Any) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


def _mask_assigns(x: Any) -> Any:
    y = x * 2
    y[y > 1] = 0.5
    return y


def _match(x: Any, i: Any) -> Any:
    match i.item():
        case 1:
            return x * 2
        case 2:
            return x * 3
    return x


def _halve(x: Any) -> Any:
    while x.abs().max() > 1:
        x = x / 2
    return x


def _newton(x: Any) -> Any:
    root = x.detach().clone()
    for _ in range(50):
        new = (root + x.detach() / root) / 2
        if abs(new - root) < 1e-6:
            break
        root = new
    return x * root


def _early_exit(x: Any) -> Any:
    for i in range(5):
        if x[i] < 0.5:
            return x * i
    return x * 10


def _scripted_sum() -> Any:
    @torch.jit.script
    def scripted(x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x.sin()
        return x.cos()

    return scripted


def _scripted_tolist() -> Any:
    @torch.jit.script
    def scripted(x: torch.Tensor) -> float:
        values: list[float] = x[0].tolist()
        return values[0]

    return scripted


def _in_thread(x: Any) -> Any:
    found = []
    thread = threading.Thread(target=lambda: found.append(x.cos() * 2))
    thread.start()
    thread.join()
    return found[0]


def _by_file(x: Any) -> Any:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        np.save(file.name + ".npy", x.numpy())
        found = torch.from_numpy(np.load(file.name + ".npy"))
        import os

        os.remove(file.name + ".npy")
    return found


def _write_through_numpy(x: Any) -> Any:
    y = x.clone()
    y.numpy()[:] += 1
    return y


class BranchBackward(torch.autograd.Function):
    """A branch on the gradient's value."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """As it is."""
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Twice or three times."""
        return g * 2 if g.sum() > 0 else g * 3


class ItemBackward(torch.autograd.Function):
    """A value of the forward's input, read in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Squares."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """By what the input's first value is."""
        (x,) = ctx.saved_tensors
        return g * 2 * x if x.flatten()[0].item() > 0 else g * 5


class ClippedBackward(torch.autograd.Function):
    """The gradient's norm as a number."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """As it is."""
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Normalised."""
        return g / float(g.norm())


class NumpyFunction(torch.autograd.Function):
    """Forward and backward in numpy."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """The sine."""
        ctx.values = x.detach().numpy().copy()
        return torch.from_numpy(np.sin(ctx.values))

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """The cosine."""
        return torch.from_numpy(np.cos(ctx.values) * g.numpy())


class StashedNumber(torch.autograd.Function):
    """A number of the forward, kept on the context."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Scaled by its own largest value."""
        ctx.top = x.abs().max().item()
        return x / ctx.top

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """As if it were constant."""
        return g / ctx.top


def functioned(function: Any) -> Case:
    """A custom Function on positive numbers; also on negative ones."""
    return Case(lambda x: function.apply(x) * 2, rand(3, 4), others=[-rand(3, 4), rand(3, 4, seed=5)])


many(
    __name__,
    backward_branches_on_gradient=lambda: functioned(BranchBackward),
    backward_reads_input=lambda: functioned(ItemBackward),
    backward_reads_norm=lambda: functioned(ClippedBackward),
    function_in_numpy=lambda: functioned(NumpyFunction),
    function_keeps_a_number=lambda: functioned(StashedNumber),
    tensor_hook_branches=lambda: Case(
        lambda x: _with_hook(x * 1, lambda g: g * 2 if g.sum() > 0 else g * 3) * 2, rand(3, 4), others=[-rand(3, 4)]
    ),
    tensor_hook_item=lambda: Case(
        lambda x: _with_hook(x * 1, lambda g: g / g.norm().item()) * 2, rand(3, 4), others=[-rand(3, 4)]
    ),
    tensor_hook_reads_forward=lambda: Case(
        lambda x: _with_hook(x * 1, lambda g: g * float(x.detach().sum())) * 2, rand(3, 4), others=[-rand(3, 4)]
    ),
    tensor_hook_numpy=lambda: Case(
        lambda x: _with_hook(x * 1, lambda g: torch.from_numpy(g.numpy() * 2)) * 2, rand(3, 4), others=[-rand(3, 4)]
    ),
    module_hook_branches=lambda: Case(_hooked_linear(), randn(3, 4), others=[-randn(3, 4)]),
    saved_tensors_in_numpy=lambda: Case(_saved_in_numpy, randn(3, 4), others=[-randn(3, 4)]),
    cholesky_or_else=lambda: Case(
        _cholesky_or_else,
        (torch.eye(2) * 2, torch.ones(2)),
        others=[(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.ones(2))],
    ),
    inverse_or_else=lambda: Case(
        _inverse_or_else, (torch.eye(2) * 2, torch.ones(2)), others=[(torch.ones(2, 2), torch.ones(2))]
    ),
    assertion_on_value=lambda: Case(_asserts, rand(3), others=[-rand(3), rand(3) * 2]),
    torch_check_on_value=lambda: Case(_checks, rand(3), others=[-rand(3), rand(3) * 2]),
    raises_on_negative=lambda: Case(_raises, rand(3), others=[-rand(3), rand(3) * 2]),
    index_error_as_end=lambda: Case(
        _until_index_error,
        (randn(4), torch.tensor([0, 2, 9])),
        others=[(randn(4), torch.tensor([0, 9, 1])), (randn(4), torch.tensor([1, 3, 8]))],
    ),
    key_error_by_value=lambda: Case(_key_or_else, (randn(4), torch.tensor(1)), others=[(randn(4), torch.tensor(7))]),
    value_error_of_a_conversion=lambda: Case(_convert_or_else, torch.ones(1), others=[torch.ones(2)]),
    out_of_range_embedding=lambda: Case(
        lambda w, i: F.embedding(i, w),
        (randn(4, 2), torch.tensor([1, 2])),
        others=[(randn(4, 2), torch.tensor([1, 7]))],
    ),
    nan_check_in_loop=lambda: Case(_nan_check, rand(3), others=[-rand(3), torch.zeros(3)]),
    stop_iteration_by_value=lambda: Case(
        lambda x: x * next(v for v in x.tolist() if v > 0.3), rand(5), others=[-rand(5), rand(5).flip(0)]
    ),
    anomaly_mode_inside=lambda: Case(_anomaly, randn(3)),
    profile_inside=lambda: Case(_profiled, randn(3)),
    record_function_inside=lambda: Case(_recorded, randn(3)),
    packed_lengths=lambda: _packed(True),
    packed_sorted=lambda: _packed(False),
    padded_by_list=lambda: Case(
        lambda a, b: nn.utils.rnn.pad_sequence([a, b], batch_first=True),
        (randn(3, 2), randn(5, 2)),
        others=[(randn(5, 2), randn(3, 2))],
    ),
    several_reads_of_one=lambda: Case(lambda x: x * x.sum().item() + float(x.sum()), randn(3), others=[-randn(3)]),
    read_after_change=lambda: Case(_read_after_change, randn(3), others=[-randn(3)]),
    read_of_random=lambda: Case(lambda x: x * (2 if torch.rand(()).item() > 0.5 else 3), randn(3)),
    read_of_constant=lambda: Case(lambda x: x * torch.ones(3).sum().item(), randn(3)),
    read_of_closure_tensor=lambda: _closure_read(),
    call_with_keyword_index=lambda: Case(
        lambda x, *, i: x[i.item()],
        randn(3),
        dict(i=torch.tensor(1)),
        others=[Call((randn(3),), dict(i=torch.tensor(2)))],
    ),
)


def _with_hook(y: Any, hook: Any) -> Any:
    y.register_hook(hook)
    return y


def _hooked_linear() -> Any:
    net = nn.Linear(4, 4)
    net.register_full_backward_hook(lambda m, gi, go: tuple(g if g is None or g.sum() > 0 else g * 3 for g in gi))
    return nn.Sequential(nn.Linear(4, 4), net)


def _saved_in_numpy(x: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), torch.from_numpy):
        return x.sin() * x.exp()


def _cholesky_or_else(a: Any, x: Any) -> Any:
    try:
        torch.linalg.cholesky(a)
    except torch.linalg.LinAlgError:
        return x * 3
    return x * 2


def _inverse_or_else(a: Any, x: Any) -> Any:
    try:
        return torch.linalg.inv(a) @ x
    except RuntimeError:
        return torch.linalg.pinv(a) @ x


def _asserts(x: Any) -> Any:
    assert x.min() > 0
    return x * 2


def _checks(x: Any) -> Any:
    torch._assert_async(x.min() > 0)
    return x * 2


def _raises(x: Any) -> Any:
    if x.min() < 0:
        raise ValueError("negative")
    return x * 2


def _until_index_error(x: Any, order: Any) -> Any:
    total = x * 0
    try:
        for i in order:
            total = total + x[i]
    except IndexError:
        pass
    return total


def _key_or_else(x: Any, i: Any) -> Any:
    try:
        return x * SCORES[i.item()]
    except KeyError:
        return x


def _convert_or_else(x: Any) -> Any:
    try:
        return x * float(x.detach())
    except (RuntimeError, ValueError):
        return x * 5


def _nan_check(x: Any) -> Any:
    y = x.log()
    if torch.isnan(y).any() or torch.isinf(y).any():
        return x * 3
    return y


def _anomaly(x: Any) -> Any:
    with torch.autograd.detect_anomaly(check_nan=False):
        return x.sin()


def _profiled(x: Any) -> Any:
    with torch.profiler.profile():
        return x.sin()


def _recorded(x: Any) -> Any:
    with torch.profiler.record_function("block"):
        return x.sin()


def _packed(unsorted: bool) -> Case:
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=not unsorted)
        return nn.utils.rnn.pad_packed_sequence(self.r(packed)[0], batch_first=True, total_length=4)[0]

    net = bare(lambda s: attributes(s, r=nn.LSTM(3, 4, batch_first=True)), forward)
    x = randn(3, 4, 3)
    return Case(net, (x, torch.tensor([4, 2, 2])), others=[(x, torch.tensor([4, 3, 1])), (x, torch.tensor([4, 4, 3]))])


def _read_after_change(x: Any) -> Any:
    y = x.detach().clone()
    y.add_(1)
    a = y.sum().item()
    y.mul_(2)
    return x * a + y.sum().item()


def _closure_read() -> Case:
    c = randn(4, seed=6)
    return Case(lambda x: x * (2 if c.sum() > 0 else 3), randn(4))


@program
def backward_hook_counts() -> Case:
    seen: list[int] = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(1) or g * len(seen))
        return y * 3

    return Case(f, randn(3))
