"""What a program really does, in plain eager PyTorch, and what Backprint says it does: the two held side by side.

Nothing here knows how Backprint works. Each truth is computed on a fresh copy of the program; everything that Backprint
gives (live, saved, loaded, on other inputs, under other parameters) is compared with one.
"""

import contextlib
import copy
import enum
import re
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from case import Call, Case, Program
from picture import Picture, Roots, roots_of, signature_names, tensors, walk
from results import Callers, Part, has_modules, has_sets, in_order, leaves_in, mapped, tensors_in, tree, without
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import backprint as bp

GOOD = ("bitwise", "close", "undifferentiable")
ONES = ", tangents of one"
LITERAL = re.compile(r"(tensor_)?constant_?\d+(~\d+)?")  # what a program makes itself, of numbers in its code
PHASES = ("live", "others", "variants", "state", "seed", "exact", "picture", "aftermath")
TOLERANCE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.bfloat16: 3e-2, torch.float16: 4e-3}
SEED, OTHER_SEED = 11, 12


@dataclass
class Issue:
    """One thing that was found: where, what sort of thing, and a line about it."""

    phase: str
    sort: str  # wrong, crash, changed, told, flagged, refused, unreplayable, guarded, missing-api, note
    text: str


@dataclass
class Truth:
    """What one call of a program gave in eager mode."""

    outputs: Any = None  # a tree of `results`
    error: BaseException | None = None
    tangents: list[Tensor] = field(default_factory=list)
    ones: bool = False  # the tangents are what a replay takes where none are given
    gradients: list[tuple[tuple[str, ...], Tensor | None]] = field(default_factory=list)  # the names of a leaf, its own
    differentiated: bool = True  # gradients could be computed and are meant to be compared
    before: dict[str, Tensor] = field(default_factory=dict)  # every tensor's values before the call, by path
    forward: dict[str, Tensor] = field(default_factory=dict)  # the same after the forward
    after: dict[str, Tensor] = field(default_factory=dict)  # the same after the backward
    unasked: list[tuple[tuple[str, ...], Tensor | None]] = field(default_factory=list)  # if nothing that asks is used
    required: list[tuple[str, ...]] = field(default_factory=list)  # changes that a replay has to tell: each its names


# ------------------------------------------------------------------------------------------------- comparing values


def tolerance(tensor: Tensor) -> float:
    """The relative error that is allowed."""
    return TOLERANCE.get(tensor.dtype, 1e-4)


def plain(tensor: Tensor) -> Tensor:
    """Dense, real, detached, without lazy bits."""
    value = tensor.detach()
    if value.is_quantized:
        value = value.dequantize()
    if value.layout is not torch.strided:
        value = value.to_dense()
    value = value.resolve_conj().resolve_neg()
    return torch.view_as_real(value) if value.is_complex() else value


def different(truth: Tensor, other: Any, exact: bool = False) -> str | None:
    """How a tensor differs from the true one; None if it does not."""
    if not isinstance(other, Tensor):
        return f"a tensor is {type(other).__name__}"
    if truth.dtype != other.dtype:
        return f"dtype {other.dtype}, true {truth.dtype}"
    if truth.shape != other.shape:
        return f"shape {tuple(other.shape)}, true {tuple(truth.shape)}"
    if truth.device != other.device:
        return f"device {other.device}, true {truth.device}"
    if truth.layout != other.layout:
        return f"layout {other.layout}, true {truth.layout}"
    if truth.is_meta or truth.numel() == 0:
        return None
    a, b = plain(truth), plain(other)
    if a.numel() == 0:
        return None
    if not a.is_floating_point():
        return None if torch.equal(a, b) else f"values {_few(b)}, true {_few(a)}"
    if exact:
        same = bool(((a == b) | (a.isnan() & b.isnan())).all()) and bool((a.signbit() == b.signbit())[~a.isnan()].all())
        return None if same else f"values {_few(b)}, true {_few(a)} (to the bit)"
    finite = a[a.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    rtol = tolerance(truth)
    if torch.allclose(a.double(), b.double(), rtol=rtol, atol=rtol * 0.1 * max(scale, 1e-3), equal_nan=True):
        return None
    return f"values {_few(b)}, true {_few(a)}"


def _few(tensor: Tensor) -> str:
    values = [f"{v:.5g}" if isinstance(v, float) else str(v) for v in tensor.reshape(-1)[:3].tolist()]
    return f"[{', '.join(values)}{', …' if tensor.numel() > 3 else ''}]"


DIFFER = "and its tensors differ"


class Types(str):
    """A difference of types that are no tensors: a sample knows no classes of the program's."""


def same(truth: Any, other: Any, path: str = "output", exact: bool = False) -> str | None:
    """Where a result's tree first differs from the true one, in structure, types or values; None if nowhere."""
    if isinstance(truth, Tensor):
        found = different(truth, other, exact)
        return f"{path}: {found}" if found else None
    if isinstance(truth, Callers):
        return (
            None if isinstance(other, (Callers, Tensor)) else f"{path}: {_kind(other)}, true a tensor of the caller's"
        )
    if _kind(truth) != _kind(other):
        return Types(f"{path}: {_kind(other)}, true {_kind(truth)}")
    if isinstance(truth, Part):
        keys, others = [k for k, _ in truth.parts], [k for k, _ in other.parts]
        if keys != others:
            return f"{path}: parts {others}, true {keys}"
        for (key, a), (_, b) in zip(truth.parts, other.parts, strict=True):
            unset = truth.kind == "PackedSequence" and a is None and b is None
            if not unset and (found := same(a, b, f"{path}.{key}", exact)):
                return found
        return None
    if isinstance(truth, np.ndarray):
        fine = truth.dtype == other.dtype and truth.shape == other.shape
        fine = fine and np.array_equal(truth, other, equal_nan=truth.dtype.kind in "fc")
        return None if fine else f"{path}: array {other!r}, true {truth!r}"
    if isinstance(truth, float):
        fine = truth == other or (truth != truth and other != other) or abs(truth - other) <= 1e-5 * abs(truth)
        return None if fine else f"{path}: {other!r}, true {truth!r}"
    if isinstance(truth, enum.Enum):
        return None if truth.name == other.name else f"{path}: {other!r}, true {truth!r}"
    if isinstance(truth, (types.ModuleType, types.BuiltinFunctionType)):
        return None if truth.__name__ == other.__name__ else f"{path}: {other!r}, true {truth!r}"
    return None if truth == other else f"{path}: {other!r}, true {truth!r}"


def _kind(value: Any) -> str:
    return value.kind if isinstance(value, Part) else type(value).__qualname__


# -------------------------------------------------------------------------------------------------- the plain truth


def seed_all(seed: int) -> None:
    """Torch's, numpy's and Python's random states."""
    import random

    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def values(tensor: Tensor) -> Tensor:
    """A copy of a tensor's values."""
    if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        return torch.empty(0)
    with torch.no_grad():
        return tensor.detach().clone()


def askers(case: Case, call: Call) -> tuple[list[Tensor], bool]:
    """Which tensors require grad, and whether only by default."""
    option = case.options.get("requires_grad")
    reach = tensors(roots_of(case.fn, call.args, call.kwargs))
    reach = {p: t for p, t in reach.items() if not p.endswith(".grad") and "_hooks" not in p}
    if option is False:
        return [], False
    if isinstance(option, (list, tuple)):
        named = dict(signature_names(case.fn, call.args, call.kwargs))
        return [reach.get(name, named.get(name)).requires_grad_() for name in option], False
    asking = unique(t for t in reach.values() if t.requires_grad and (t.is_leaf or _is_argument(t, call)))
    if asking:
        return asking, False
    return floats_of(call), True


def floats_of(call: Call) -> list[Tensor]:
    """The tensors of a call that can have a gradient."""
    return unique([t for t in argument_tensors(call) if t.is_floating_point() or t.is_complex()])


def argument_tensors(call: Call) -> list[Tensor]:
    """The tensors among the arguments and in their containers."""
    return [t for t in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(t, Tensor)]


def _is_argument(tensor: Tensor, call: Call) -> bool:
    return any(tensor is t for t in argument_tensors(call))


def unique(found: Iterator[Tensor] | Sequence[Tensor]) -> list[Tensor]:
    """Each tensor once, in order."""
    return list({id(t): t for t in found}.values())


def names_of(reach: dict[str, Tensor]) -> dict[int, tuple[str, ...]]:
    """The paths of each tensor."""
    names: dict[int, list[str]] = {}
    for path, tensor in reach.items():
        names.setdefault(id(tensor), []).append(path)
    return {key: tuple(paths) for key, paths in names.items()}


def registered(roots: Roots) -> set[str]:
    """The paths of what modules register as parameters and buffers."""
    paths: set[str] = set()
    for path, value in walk(roots):
        if isinstance(value, nn.Module):
            for name in [*dict(value.named_parameters()), *dict(value.named_buffers())]:
                paths.add(f"{path}.{name}" if path else name)
    return paths


def set_state(case: Case, call: Call, state: dict[str, Tensor]) -> list[str]:
    """Copies values into what a program reaches, by path; the names that it does not reach."""
    reach = tensors(roots_of(case.fn, call.args, call.kwargs))
    unknown = []
    for name, value in state.items():
        if name not in reach or reach[name].shape != value.shape:
            unknown.append(name)
            continue
        with torch.no_grad():
            reach[name].data.copy_(value)
    return unknown


def tangents_for(outputs: Any, scale: float | None) -> tuple[list[Tensor], list[Tensor]]:
    """The differentiable outputs and random gradients for them, the same every time; ones without a scale.

    Where the order of the outputs is nobody's, as in a set, each gradient is filled with the scale.
    """
    outs = [t for t in tensors_in(outputs) if t.requires_grad]
    generator = torch.Generator("cpu").manual_seed(7)
    made = []
    for out in outs:
        base = torch.randn(out.shape, generator=generator, dtype=torch.float64, device="cpu")
        if out.is_complex():
            more = torch.randn(out.shape, generator=generator, dtype=torch.float64, device="cpu")
            base = torch.complex(base, more)
        if scale is not None and not in_order(outputs):
            base = torch.ones_like(base)
        made.append(torch.ones_like(out.detach()) if scale is None else (base * scale).to(out.device, out.dtype))
    return outs, made


def eager(
    program: Program,
    choose: Callable[[Case], Call],
    seed: int = SEED,
    prepare: Callable[[Case, Call], Any] | None = None,
    case: Case | None = None,
    scale: float | None = 1.0,
) -> Truth:
    """Runs a fresh copy of a program on one of its calls, forward and backward, and writes down what happened.

    The gradients of the outputs are random numbers times the scale; without one they are ones.
    """

    def once(how: str) -> Truth:
        used = case or program.build()
        call = choose(used)
        kept = tensors(roots_of(used.fn, call.args, call.kwargs))
        before = {path: values(t) for path, t in kept.items()}
        try:
            return _eager(used, call, seed, prepare, how, scale)
        finally:
            if case is None:  # what is global to the programs is not fresh: it is put back
                for path, tensor in kept.items():
                    if different(before[path], values(tensor), exact=True):
                        if tensor.shape == before[path].shape and 0 not in tensor.stride():
                            tensor.data.copy_(before[path])
                        else:
                            tensor.data = before[path]
                used.reset()

    truth = once("grad")
    if case is None and truth.error is None and truth.differentiated and not truth.tangents:
        truth.unasked = once("unasked").gradients
    if case is None and truth.error is not None:
        text = str(truth.error)
        if "leaf Variable" in text:  # an input that asks only because nothing else does is changed in place
            truth = once("clones")
        elif "incompatible with .grad()" in text or "torch.utils.checkpoint" in text:
            truth = once("backward")
    return truth


def _eager(
    case: Case, call: Call, seed: int, prepare: Callable[[Case, Call], Any] | None, how: str, scale: float | None
) -> Truth:
    truth = Truth(differentiated=case.gradients)
    if prepare is not None:
        prepare(case, call)
    leaves, by_rule = askers(case, call)
    if how == "unasked":  # what asks is within reach, and not used: then the inputs ask
        leaves, by_rule, scale = (floats_of(call), True, None) if leaves and not by_rule else ([], True, None)
    if by_rule and how == "clones" and _share_memory(call):
        leaves, by_rule = [], False  # clones would be another program: nothing asks, as Backprint's note says
    elif by_rule and how == "clones":
        call, leaves = _clones(call, leaves)
    elif by_rule:
        for tensor in leaves:
            tensor.requires_grad_()
    roots = roots_of(case.fn, call.args, call.kwargs)
    reach = tensors(roots)
    names = names_of(reach)
    if by_rule and how == "clones":
        arguments = unique(argument_tensors(call))
        names.update({id(a): names.get(id(b), ()) for a, b in zip(leaves, arguments, strict=False)})
    truth.before = {path: values(t) for path, t in reach.items()}
    owned = registered(roots)
    seed_all(seed)
    try:
        with case.under():
            outputs = tree(case.fn(*call.args, **call.kwargs))
    except Exception as error:
        truth.error = error.with_traceback(None)  # its frames may hold hooks in force
        return truth
    later = tensors(roots)
    truth.forward = {path: values(t) for path, t in later.items()}
    truth.outputs = mapped(without(outputs, {id(t) for t in later.values()}), values)
    outs, truth.tangents = ([], []) if has_modules(outputs) else tangents_for(outputs, scale)
    truth.differentiated &= not has_modules(outputs)
    truth.ones = scale is None
    if outs and truth.differentiated and leaves:
        try:
            with case.under():
                found = _gradients(outs, truth.tangents, leaves, how)
        except Exception as error:
            truth.error = error.with_traceback(None)
            return truth
        for leaf, gradient in zip(leaves, found, strict=True):
            truth.gradients.append((names.get(id(leaf), ()), None if gradient is None else values(gradient)))
    grads_meant = how != "backward"
    last = tensors(roots)
    truth.after = {path: values(t) for path, t in last.items() if grads_meant or not path.endswith(".grad")}
    truth.required = _required(truth, reach, later, owned, names)
    return truth


def _share_memory(call: Call) -> bool:
    """Whether two tensors of a call lie in one storage."""
    storages = [t.untyped_storage()._cdata for t in unique(argument_tensors(call))]
    return len(set(storages)) < len(storages)


def _clones(call: Call, leaves: list[Tensor]) -> tuple[Call, list[Tensor]]:
    """The call with clones of new leaves in place of its tensors; the leaves."""
    fresh = {id(t): t.detach().clone().requires_grad_() for t in leaves}
    used = {key: t.clone() for key, t in fresh.items()}
    args, kwargs = pytree.tree_map(lambda v: used.get(id(v), v), (call.args, call.kwargs))
    order = [t for t in unique(argument_tensors(call)) if id(t) in fresh]
    return Call(args, kwargs), [fresh[id(t)] for t in order]


def _gradients(outs: list[Tensor], tangents: list[Tensor], leaves: list[Tensor], how: str) -> list[Tensor | None]:
    if how != "backward":
        return list(torch.autograd.grad(outs, leaves, tangents, allow_unused=True, retain_graph=True))
    kept = [t.grad for t in leaves]
    for t in leaves:
        t.grad = None
    torch.autograd.backward(outs, tangents)
    found = [t.grad for t in leaves]
    for t, grad in zip(leaves, kept, strict=True):
        t.grad = grad
    return found


def _required(
    truth: Truth, reach: dict[str, Tensor], later: dict[str, Tensor], owned: set[str], names: dict[int, tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Changes of tensors that were there before, of registered ones by name, and of gradients of those."""
    required: dict[int, tuple[str, ...]] = {}
    for path, value in truth.forward.items():
        grad = path.endswith(".grad") and path[: -len(".grad")] in reach
        old = truth.before.get(path)
        if old is None and not grad:
            continue
        if old is not None and different(old, value, exact=True) is None:
            continue
        if later[path] is reach.get(path) or path in owned or grad:
            aliases = {*names.get(id(later[path]), ()), *(p for p, t in later.items() if t is later[path])}
            required[id(later[path])] = tuple(sorted(aliases))
    return list(required.values())


# ----------------------------------------------------------------------------------- what Backprint says, held to it


def judge(truth: Truth, result: Any, exact: bool = False, strict: bool = True) -> list[str]:
    """Everything in a replay's result that is not as it truly is."""
    wrong: list[str] = []
    given = tree(result.outputs)
    if found := same(truth.outputs, given, exact=exact):
        wrong.append(found)
        if isinstance(found, Types) and not same_tensors(truth.outputs, given, exact):
            wrong.append(DIFFER)
    if truth.differentiated:
        wrong += judge_gradients(truth, result.gradients or {}, strict)
    wrong += judge_mutations(truth, result.mutations or {})
    return wrong


def same_tensors(truth: Any, given: Any, exact: bool) -> bool:
    """Whether two trees have the same tensors in the same order; those of a set have none."""
    wanted, given_leaves = leaves_in(truth), leaves_in(given)
    if len(wanted) != len(given_leaves):
        return False
    if not has_sets(truth):
        return not any(same(a, b, exact=exact) for a, b in zip(wanted, given_leaves, strict=True))
    for leaf in wanted:
        place = next((i for i, other in enumerate(given_leaves) if not same(leaf, other, exact=exact)), None)
        if place is None:
            return False
        del given_leaves[place]
    return True


def judge_gradients(truth: Truth, given: dict[str, Tensor | None], strict: bool) -> list[str]:
    """Every true gradient by one of its leaf's names, or else by its value."""
    wrong, claimed, open_ = [], set(), []
    has_gradient = any(value is not None for value in given.values())
    for names, gradient in truth.unasked if has_gradient and not truth.gradients else truth.gradients:
        told = [n for n in names if n in given]
        if not told and gradient is not None:
            open_.append((names, gradient))
        claimed.update(told)
        for name in told:
            value = given[name]
            if gradient is None and value is not None:
                wrong.append(f"gradient of {name}: {_few(plain(value))}, true None")
            elif gradient is not None and value is None:
                wrong.append(f"gradient of {name}: None, true {_few(plain(gradient))}")
            elif gradient is not None and (found := different(gradient, value)):
                wrong.append(f"gradient of {name}: {found}")
    for names, gradient in open_:
        match = next(
            (k for k, v in given.items() if k not in claimed and v is not None and not different(gradient, v)), None
        )
        if match is None:
            wrong.append(f"gradient of {' = '.join(names[:2]) or 'a leaf'} is missing, true {_few(plain(gradient))}")
        else:
            claimed.add(match)
    if strict:
        extra = [k for k, v in given.items() if k not in claimed and v is not None]
        wrong += [f"gradient of {k}: {_few(plain(given[k]))}, where nothing has one" for k in extra]
    return wrong


def judge_mutations(truth: Truth, given: dict[str, Any]) -> list[str]:
    """Every reported change by its name or else by its value; every change that has to be told."""
    wrong, unknown = [], []
    ends = [truth.forward, truth.after]
    for name, value in given.items():
        if not isinstance(value, Tensor):
            continue
        trues = [end[name] for end in ends if name in end]
        if not trues:
            unknown.append(name)
        elif all(different(t, value) for t in trues):
            wrong.append(f"mutation of {name}: {different(trues[0], value)}")
    for name in unknown:
        if not any(not different(t, given[name]) for end in ends for t in end.values()):
            wrong.append(f"mutation of {name}: {_few(plain(given[name]))}, which nothing has afterwards")
    for names in truth.required:
        true = next(truth.forward[n] for n in names if n in truth.forward)
        told = any(n in given for n in names) or any(
            isinstance(given[k], Tensor) and not different(true, given[k]) for k in given
        )
        if not told:
            wrong.append(f"mutation of {' = '.join(names[:2])} is missing, true {_few(plain(true))}")
    return wrong


class Trial:
    """One program, tried in every phase; what was found."""

    def __init__(
        self, program: Program, phases: Sequence[str] = PHASES, alone: bool = False, engine: str | None = None
    ) -> None:
        self.program, self.phases, self.alone = program, phases, alone
        self.options = {} if engine is None else {"engine": engine}
        self.issues: list[Issue] = []
        self.verdicts: dict[str, list[str]] = {}
        self.engine = ""
        self.said: list[warnings.WarningMessage] = []  # what the capture has warned of

    def add(self, phase: str, sort: str, text: Any) -> None:
        """Notes something."""
        self.issues.append(Issue(phase, sort, re.sub(r"\s+", " ", str(text))[:300]))

    def run(self) -> str:
        """Every phase; the outcome."""
        warnings.simplefilter("ignore")
        own: Callable[[Case], Call] = lambda case: case.call  # noqa: E731
        truth = eager(self.program, own)
        if truth.error is not None:
            self.add("eager", "invalid", f"{type(truth.error).__name__}: {truth.error}")
            return "invalid"
        if unstable := disagreement(truth, eager(self.program, own)):
            self.add("eager", "nondeterministic", unstable)
            return "nondeterministic"
        self.random = any(
            disagreement(truth, eager(self.program, own, seed)) for seed in range(OTHER_SEED, OTHER_SEED + 5)
        )
        self.case = self.program.build()
        self.truth = truth
        try:
            self._tried(own)
        except bp.errors.BackprintError as error:
            self.add("capture", "refused", f"{type(error).__name__}: {error}")
        return self.outcome()

    def _picture(self, before: Picture | None, phase: str) -> Picture:
        """The picture now; what is not as it was in the one before."""
        now = Picture(roots_of(self.case.fn, self.case.args, self.case.kwargs))
        if before is not None and "picture" in self.phases:
            for line in before.changes(now):
                self.add(phase, "told" if self._told(line) else "changed", line)
            for line in before.version_changes(now):
                self.add(phase, "version", line)
        return now

    def _told(self, line: str) -> bool:
        """Whether a warning says by name that this was changed."""
        names = set(re.findall(r"[A-Za-z_]\w*", line.partition(":")[0])) - {"process"}
        said = [str(warning.message) for warning in self.said]
        return any("change" in text and names & set(re.findall(r"\w+", text)) for text in said)

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        """Keeps the warnings of a stretch."""
        with warnings.catch_warnings(record=True) as self.said:
            warnings.simplefilter("always")
            yield

    def _tried(self, own: Callable[[Case], Call]) -> None:
        case = self.case
        capture = None
        with self._heard(), case.under():
            seed_all(SEED)
            picture = self._picture(None, "")
            try:
                capture = bp.capture(case.fn, *case.args, **{**case.options, **self.options}, **case.kwargs)
            except bp.errors.BackprintError as error:
                self.add("capture", "refused", f"{type(error).__name__}: {error}")
            except Exception as error:
                self.add("capture", "crash", f"{type(error).__name__}: {error}")
            self._picture(picture, "capture")
        if capture is not None:
            self.engine = capture.engine
            with self._later():
                picture = self._picture(None, "")
                self.verdicts["live"] = self._verdicts("live", capture)
                self._picture(picture, "verify")
            try:
                self._replays(capture, own)
            except Exception as error:
                if not any(issue.sort == "changed" for issue in self.issues):
                    raise
                self.add("live", "note", f"the caller cannot be worked with any more: {_line(error)}")
        if "aftermath" in self.phases:
            self._aftermath(own)

    def _replays(self, capture: Any, own: Callable[[Case], Call]) -> None:
        self._live(capture, own)
        for data in ("seed", "exact"):
            if data in self.phases:
                with tempfile.TemporaryDirectory() as folder:
                    self._saved(capture, data, Path(folder) / "sample", own)

    def _later(self) -> contextlib.AbstractContextManager[Any]:
        """The settings of the process under which a capture is proved, saved, read and replayed."""
        return (self.case.later or self.case.under)()

    def _aftermath(self, own: Callable[[Case], Call]) -> None:
        """The program that was captured still has to do what it does."""
        try:
            again = eager(self.program, own, case=self.case)
        except Exception as error:
            self.add("aftermath", self._left(), f"the program itself now raises {_line(error)}")
            return
        if again.error is not None and ("leaf Variable" in str(again.error) or "checkpoint" in str(again.error)):
            return
        if found := disagreement(self.truth, again):
            self.add("aftermath", self._left(), f"the program itself now gives {found}")

    def _left(self) -> str:
        """Whether a warning has said that the runs of a capture left something behind."""
        warned = any("has changed what cannot be restored" in str(warning.message) for warning in self.said)
        return "told" if warned else "changed"

    def _verdicts(self, phase: str, capture: Any) -> list[str]:
        try:
            found = capture.verify()
        except bp.errors.BackprintError as error:
            self.add(phase, "flagged", f"verify refused: {type(error).__name__}: {error}")
            return ["refused"]
        except Exception as error:
            self.add(phase, "crash", f"verify: {type(error).__name__}: {error}")
            return ["crash"]
        for verdict in found:
            if verdict.verdict not in GOOD:
                self.add(phase, "flagged", f"{verdict.verdict}: {verdict.detail}")
        return [v.verdict for v in found]

    def _live(self, capture: Any, own: Callable[[Case], Call]) -> None:
        if "live" in self.phases:
            self._replayed("live", capture, own, self.truth)
            self._replayed("reseeded", capture, own, eager(self.program, own, OTHER_SEED), seed=OTHER_SEED)
            if self.truth.tangents:
                self._replayed("other tangents", capture, own, eager(self.program, own, scale=-1.7))
                self._replayed("tangents of one", capture, own, eager(self.program, own, scale=None))
        calls = others(self.case, variants="variants" in self.phases, explicit="others" in self.phases)
        for label, choose in calls:
            self._replayed(label, capture, choose, eager(self.program, choose))
        if "state" in self.phases:
            self._restated(capture, own)

    def _restated(self, capture: Any, own: Callable[[Case], Call]) -> None:
        """Other parameters: given as state, and changed in the live program."""
        reach = tensors(roots_of(self.case.fn, self.case.args, self.case.kwargs))
        arguments = {id(t) for t in argument_tensors(self.case.call)}
        params = {
            p: t
            for p, t in reach.items()
            if t.requires_grad and t.is_leaf and id(t) not in arguments and t.layout is torch.strided
        }
        ports = port_names(capture)
        passed = set(tensors(signature_names(self.case.fn, self.case.args, self.case.kwargs)))
        ports = [p for p in ports if p not in passed]
        params = {p: t for p, t in params.items() if p in ports}
        if not params:
            return
        generator = torch.Generator("cpu").manual_seed(5)
        state = {
            p: values(t)
            * (0.6 + 0.5 * torch.rand(t.shape, generator=generator, dtype=torch.float64, device="cpu")).to(t)
            for p, t in params.items()
        }
        kept = {p: values(t) for p, t in params.items()}
        old = {p: values(t) for p, t in reach.items()}
        fresh = self.program.build()  # where parameters share memory with others, they change together
        set_state(fresh, fresh.call, state)
        changed = {
            p: values(t) if t is reach.get(p) else t.detach()  # what is global is about to be put back
            for p, t in tensors(roots_of(fresh.fn, fresh.args, fresh.kwargs)).items()
        }
        given = {p: changed[p] for p in ports if p in changed and (p in params or _moved(old.get(p), changed[p]))}
        fresh.reset()
        with torch.no_grad():
            for p, t in params.items():
                t.data.copy_(kept[p])  # those that are global were changed too
        truth = eager(self.program, own, prepare=lambda case, call: set_state(case, call, state))
        storages = {t.untyped_storage()._cdata for t in params.values()}
        shared = {t.untyped_storage()._cdata for t in argument_tensors(self.case.call) if t.layout is torch.strided}
        nameless = any(p not in reach for p in ports)
        aliased = any(
            p not in params and t.layout is torch.strided and t.untyped_storage()._cdata in storages
            for p, t in reach.items()
        )
        if not storages & shared and not (nameless and aliased):
            self._replayed("state", capture, own, truth, state=given)
        with torch.no_grad():
            for p, t in params.items():
                t.data.copy_(state[p])
        self._replayed("changed parameters", capture, own, truth)
        with torch.no_grad():
            for p, t in params.items():
                t.data.copy_(kept[p])

    def _replayed(
        self,
        phase: str,
        capture: Any,
        choose: Callable[[Case], Call],
        truth: Truth,
        seed: int = SEED,
        state: Any = None,
        case: Case | None = None,
    ) -> bool:
        """One replay, compared; whether it ran and was right."""
        case = case or self.case
        call = choose(case)
        before = {p: values(t) for p, t in enumerate(argument_tensors(call))}
        before_state = {p: values(t) for p, t in state.items()} if isinstance(state, dict) else {}
        seed_all(seed)
        options = {} if state is None else {"state": state}
        if truth.tangents and truth.error is None and not truth.ones:
            options["tangents"] = truth.tangents
        own = phase.removesuffix(ONES) in ("live", "seed", "exact", "exact, own state")
        try:
            with self._later():
                result = bp.replay(capture, *call.args, **call.kwargs, **options)
        except bp.errors.BackprintError as error:
            if own and re.search(r"\d+ tangents for \d+", str(error)):
                self.add(phase, "wrong", f"{error}; true {len(truth.tangents)}")
            else:
                guard = isinstance(
                    error, bp.errors.GuardError
                )  # it may hold for other random numbers, or other tangents
                fine = not own or (guard and (self.random or (truth.tangents and not truth.ones)))
                self.add(phase, "guarded" if fine else "unreplayable", f"{type(error).__name__}: {error}")
                if own and guard and truth.tangents and not truth.ones:
                    ones = eager(self.program, choose, seed, scale=None)
                    return self._replayed(phase + ONES, capture, choose, ones, seed, state, case)
            return False
        except TypeError as error:
            if state == "recipe" and "not a mapping" in str(error):
                self.add(phase, "missing-api", error)
                return self._replayed(phase, capture, choose, truth, seed, None, case)
            self._foreign(phase, truth, error)
            return False
        except Exception as error:
            self._foreign(phase, truth, error)
            return False
        for number, tensor in enumerate(argument_tensors(call)):
            if different(before[number], values(tensor), exact=True):
                self.add(phase, "changed", f"replay changed its argument {number}")
        if truth.error is not None:
            sort = "note" if "variant" in phase else "wrong"  # a variant is drawn blindly and may be senseless
            self.add(phase, sort, f"a result, where the program raises {_line(truth.error)}")
            return False
        for name, value in before_state.items():
            if different(value, values(state[name]), exact=True):
                self.add(phase, "changed", f"replay changed the state {name} that it was given")
        return self._judged(phase, choose, seed, truth, result, own)

    def _judged(
        self, phase: str, choose: Callable[[Case], Call], seed: int, truth: Truth, result: Any, own: bool
    ) -> bool:
        """Holds a result against the truth; whether it is right."""
        wrong = judge(truth, result, self.case.exact, strict=own)
        sample = phase.startswith(("seed", "exact"))
        if sample and wrong and isinstance(wrong[0], Types) and DIFFER not in wrong:
            self.add(phase, "degraded", wrong.pop(0))
        self._confirmed(phase, choose, seed, wrong, truth)
        return not wrong

    def _foreign(self, phase: str, truth: Truth, error: Exception) -> None:
        """An exception that is not Backprint's: a crash, unless the program itself raises there."""
        if truth.error is None:
            self.add(phase, "crash", f"replay: {type(error).__name__}: {error}")
        else:
            self.add(phase, "guarded", f"as the program: {type(error).__name__}: {error}")

    def _confirmed(self, phase: str, choose: Callable[[Case], Call], seed: int, wrong: list[str], truth: Truth) -> None:
        """Notes what is wrong, unless the program itself does not know its own result there."""
        if not wrong:
            return
        if not phase.endswith(("state", "changed parameters", "recipe")) and truth.error is None:
            first, second = eager(self.program, choose, seed), eager(self.program, choose, seed)
            if first.error is not None or disagreement(first, second):
                self.add(phase, "note", "the program does not agree with itself here")
                return
        self.add(phase, "wrong", "; ".join(wrong[:3]) + (f"; {len(wrong) - 3} more" if len(wrong) > 3 else ""))

    def _saved(self, capture: Any, data: str, folder: Path, own: Callable[[Case], Call]) -> None:
        with self._later():
            sample = self._sample(capture, data, folder)
        if sample is None:
            return
        ports = port_names(sample)
        seed_all(SEED)
        fresh = self.program.build()
        reach = tensors(roots_of(fresh.fn, fresh.args, fresh.kwargs))
        passed = set(tensors(signature_names(fresh.fn, fresh.args, fresh.kwargs)))  # a state would stand in their place
        live = tensors(roots_of(self.case.fn, self.case.args, self.case.kwargs))  # what is global is in both, and moves
        state = {
            name: values(reach[name]) if reach[name] is live.get(name) else reach[name].detach()
            for name in ports
            if name in reach and name not in passed
        }
        arguments = {id(t) for t in argument_tensors(fresh.call)}
        named = all(n in state or id(t) in arguments or n.endswith(".grad") for n, t in reach.items())
        unknown = [name for name in ports if name not in reach and not (named and LITERAL.fullmatch(name))]
        if not unknown:
            self._replayed(data, sample, own, self.truth, state=state, case=fresh)
            for label, choose in others(fresh, variants="variants" in self.phases, explicit=True):
                self._replayed(f"{data}, {label}", sample, choose, eager(self.program, choose), state=state, case=fresh)
        else:
            self.add(data, "note", f"state unknown to the oracle: {unknown[:3]}")
        if data == "exact" and ports:
            self._replayed("exact, own state", sample, own, self.truth, state="recipe")
        fresh.reset()
        self._recipe(data, sample, not unknown)
        if self.alone:
            self._run_alone(data, folder)

    def _sample(self, capture: Any, data: str, folder: Path) -> Any:
        """The capture, written and read again; None where it cannot be."""
        seed_all(SEED)
        picture = self._picture(None, "")
        try:
            capture.save(folder, data=data)
        except bp.errors.BackprintError as error:
            self.add(data, "unsaved", f"{type(error).__name__}: {error}")
            self._picture(picture, f"save {data}")
            return None
        except Exception as error:
            self.add(data, "crash", f"save: {type(error).__name__}: {error}")
            self._picture(picture, f"save {data}")
            return None
        picture = self._picture(picture, f"save {data}")
        try:
            sample = bp.load(folder)
            port_names(sample)
        except Exception as error:
            self.add(data, "crash", f"saved, but cannot be read again: {type(error).__name__}: {error}")
            return None
        self.verdicts[data] = self._verdicts(data, sample)
        self._picture(picture, f"verify of the sample {data}")
        return sample

    def _recipe(self, data: str, sample: Any, complete: bool) -> None:
        """The sample on its own inputs, against the program on these."""
        phase = f"{data}, recipe"
        if not hasattr(sample, "inputs"):
            self.add(phase, "missing-api", "no inputs()")
            return
        try:
            with self._later():
                given = dict(sample.inputs())
                seed_all(SEED)
                result = bp.replay(sample)
        except bp.errors.BackprintError as error:
            missing = "is missing" in str(error)
            self.add(phase, "missing-api" if missing else "guarded", f"{type(error).__name__}: {error}")
            return
        except Exception as error:
            self.add(phase, "crash", f"{type(error).__name__}: {error}")
            return
        fresh = self.program.build()
        reach = tensors(roots_of(fresh.fn, fresh.args, fresh.kwargs))
        arguments = unique(argument_tensors(fresh.call))
        storages = [t.untyped_storage()._cdata for t in arguments if t.layout is torch.strided]
        given = {name: value for name, value in given.items() if not (name not in reach and LITERAL.fullmatch(name))}
        if len(set(storages)) != len(storages) or not complete or any(name not in reach for name in given):
            self.add(phase, "note", "not compared: inputs that the oracle cannot set")
            return
        covered = {id(reach[name]) for name in given}
        if any(id(t) not in covered for t in arguments):
            self.add(phase, "note", "not compared: an argument is not among inputs()")
            return

        def prepare(case: Case, call: Call) -> None:
            reach = tensors(roots_of(case.fn, call.args, call.kwargs))
            for name, value in given.items():
                with torch.no_grad():
                    if 0 in reach[name].stride():  # elements that share memory cannot be written
                        reach[name].data = value
                    else:
                        reach[name].data.copy_(value)

        truth = eager(self.program, lambda case: case.call, prepare=prepare)
        if truth.error is not None:
            self.add(phase, "wrong", f"the program raises on the sample's own inputs: {_line(truth.error)}")
            return
        truth.differentiated = False  # its tangents are its own
        self._judged(phase, lambda case: case.call, SEED, truth, result, False)

    def _run_alone(self, data: str, folder: Path) -> None:
        """Each direction's file runs with PyTorch alone."""
        for direction in sorted(folder.glob("pair_*/*ward")):
            done = subprocess.run(
                [sys.executable, "-I", "model.py"],
                cwd=direction,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                name = direction.relative_to(folder)
                self.add("alone", "wrong", f"{data} {name}/model.py ends with {done.returncode}: {last}")

    def outcome(self) -> str:
        """One word for everything that was found, the worst first."""
        return self.outcomes()[0]

    def outcomes(self) -> list[str]:
        """Every outcome that applies, the worst first."""
        sorts = {issue.sort for issue in self.issues}
        wrong = [issue for issue in self.issues if issue.sort == "wrong"]
        good = {phase: all(v in GOOD for v in found) for phase, found in self.verdicts.items()}
        silent = False
        for issue in wrong:
            said = issue.phase.partition(",")[0]
            silent |= good.get(said if said in ("seed", "exact") else "live", True)
        explicit = [
            i for i in self.issues if i.sort == "guarded" and i.phase.startswith(("other", "reseeded", "tangents"))
        ]
        found = [
            ("CRASH", "crash" in sorts),
            ("SILENT", silent),
            ("CHANGED", "changed" in sorts),
            ("refused", "refused" in sorts),
            ("flagged-wrong", "flagged" in sorts and bool(wrong)),
            ("flagged-right", "flagged" in sorts and not wrong),
            ("unreplayable", "unreplayable" in sorts),
            ("degraded", "degraded" in sorts),
            ("told", "told" in sorts),
            ("guarded", bool(explicit)),
            ("right", True),
        ]
        return [name for name, applies in found if applies]


def _moved(before: Tensor | None, after: Tensor) -> bool:
    return before is not None and different(before, after, exact=True) is not None


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:120]


def disagreement(first: Truth, second: Truth) -> str | None:
    """Where two truths of the same call differ."""
    if (first.error is None) != (second.error is None):
        return f"an error: {_line(first.error or second.error)}"
    if found := same(first.outputs, second.outputs):
        return found
    for (names, a), (_, b) in zip(first.gradients, second.gradients, strict=False):
        if (a is None) != (b is None) or (a is not None and different(a, b)):
            return f"gradient of {' = '.join(names[:2])}"
    return None


def port_names(capture: Any) -> list[str]:
    """The names of the state that a capture reads: parameters, buffers and constants."""
    names: dict[str, None] = {}
    for pair in capture.pairs:
        for port in pair.forward.inputs:
            if port.role in ("parameter", "buffer", "constant"):
                names[port.name] = None
    return list(names)


# ------------------------------------------------------------------------------------------------------ other inputs


def others(case: Case, variants: bool, explicit: bool) -> list[tuple[str, Callable[[Case], Call]]]:
    """Other calls to try a capture with, each chosen in a fresh case: those given, and variants of the captured."""
    found: list[tuple[str, Callable[[Case], Call]]] = []
    if explicit:
        for number in range(len(case.others)):
            found.append((f"other {number}", lambda case, number=number: case.others[number]))
    if variants and case.variants:
        for name in VARIANTS:
            if vary(case.call, name) is not None:
                found.append((f"variant {name}", lambda case, name=name: vary(case.call, name)))
    return found


def vary(call: Call, name: str) -> Call | None:
    """The call with each of its tensors made another; None where none changes."""
    made: dict[int, Tensor] = {}
    changed = False

    def one(value: Any) -> Any:
        nonlocal changed
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            return value
        if id(value) not in made:
            with torch.no_grad():
                other = VARIANTS[name](value.detach())
            if other is None:
                made[id(value)] = value
            else:
                changed = True
                other = nn.Parameter(other) if isinstance(value, nn.Parameter) else other
                asks = value.requires_grad and (other.is_floating_point() or other.is_complex())
                made[id(value)] = other.requires_grad_(asks)
        return made[id(value)]

    args, kwargs = pytree.tree_map(one, (call.args, copy.copy(call.kwargs)))
    return Call(args, kwargs) if changed else None


def _negated(value: Tensor) -> Tensor | None:
    return -value if value.is_floating_point() or value.is_complex() else None


def _redrawn(value: Tensor) -> Tensor | None:
    if value.is_floating_point() or value.is_complex():
        generator = torch.Generator("cpu").manual_seed(99)
        drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64, device="cpu")
        return (drawn * 1.5).to(value.device, value.dtype)
    if value.dtype is torch.bool:
        return ~value
    return value.flip(0) if value.dim() and value.numel() > 1 else None


def _strided(value: Tensor) -> Tensor | None:
    if value.dim() == 0 or value.numel() < 2:
        return None
    strides = torch.empty(tuple(reversed(value.shape))).stride()[::-1] if value.dim() > 1 else (2,)
    if value.stride() == strides:
        strides = torch.empty(value.shape).stride()
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)


def _double(value: Tensor) -> Tensor | None:
    return value.double() if value.dtype is torch.float32 else None


def _shorter(value: Tensor) -> Tensor | None:
    return value[:-1].clone() if value.dim() and value.shape[0] > 1 else None


VARIANTS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "negated": _negated,
    "redrawn": _redrawn,
    "strided": _strided,
    "double": _double,
    "shorter": _shorter,
}
