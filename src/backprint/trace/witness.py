"""One run of the untouched program: the witness, the run with whose results a proof compares the results of graphs.

`run_forward` is also how engines run a program that they record or trace, under their modes.

A Staged (`stage`) is a program that is ready to run: `unwrapped` are its tensors by name, `passed` the same as the
program takes them (DTensors), `leaves` those whose gradients autograd computes, and `reached_tensors` the tensors that
modules and containers held before the run. `unwrap` returns the tensor inside of a DTensor.

A CalledProgram is a callable with the named tensors of one call, and an Outcome has the results of one run by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch.tensors import storage_id
from backprint.errors import CaptureError
from backprint.trace.program import A_TENSOR, CalledProgram, NamedTensor, Outcome
from backprint.trace.refusals import refuse_without_memory
from backprint.trace.running import (
    Staged,
    call_program,
    named_outputs,
    reads_grad_attribute,
    result_of,
    result_with_loss,
    run_backward,
    staged,
)
from backprint.values.results import ResultTree
from backprint.values.settings import preserving_random_states
from backprint.values.tree import strided_parts
from backprint.values.wrappers import unwrap, wait_for_collectives


@dataclass(frozen=True, slots=True)
class Effects:
    """The side effects of a forward.

    `made` are tensors that modules and containers hold now and did not hold before, `left` are gradients and optimizer
    states that the forward has set and left behind, and `new` has both. All are by name. `changed` names the program's
    tensors that were written to.
    """

    made: dict[str, Tensor]
    left: dict[str, Tensor]
    new: dict[str, Tensor]
    changed: frozenset[str]


@dataclass(frozen=True, slots=True)
class ForwardRun:
    """A forward that has run: the Staged program, the leaves of its result by name (`named`), the structure of the
    result (`tree`), and the tensors among the leaves by name."""

    stage: Staged
    named: tuple[tuple[str, Any], ...]
    tree: ResultTree
    tensors: dict[str, Tensor]

    @property
    def leaves(self) -> tuple[Any, ...]:
        """The result's leaves, with `A_TENSOR` in the place of each tensor."""
        return tuple(A_TENSOR if isinstance(leaf, Tensor) else leaf for _, leaf in self.named)

    def effects(self, outside: Mapping[str, Tensor] | None = None, had: Collection[str] = ()) -> Effects:
        """Return the effects of the forward, also on the external tensors in `outside`, which are given by name. Those
        named in `had` still have the `.grad` that they had before the forward: it is not left behind by it."""
        outside = outside or {}
        left = self.stage.new_gradients({name: tensor for name, tensor in outside.items() if name not in had})
        # A tensor in the place where an external tensor was has that tensor's name, and not the name of the place.
        names = {id(tensor): name for name, tensor in outside.items()}
        new = {
            names.get(id(self.stage.reached_tensors.get(name)), name): tensor
            for name, tensor in self.stage.new_tensors(outside).items()
        }
        made = {name: tensor for name, tensor in new.items() if name not in left}
        return Effects(made, left, new={**new, **left}, changed=frozenset(self.stage.changed_names(made)))

    def mutations(self, effects: Effects) -> dict[str, Tensor]:
        """Return copies of the tensors that the forward wrote to, made or left behind (`Effects`), by name. Refuse a
        tensor that has no values."""
        written = {name: tensor for name, tensor in self.stage.unwrapped.items() if name in effects.changed}
        tensors = {**written, **effects.made, **effects.left}
        refuse_without_memory(self.stage.program, tensors, "leaves")
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def outcome(self, effects: Effects, mutations: dict[str, Tensor], gradients: dict[str, Tensor | None]) -> Outcome:
        """Return all results of the step as an Outcome. `effects` and `mutations` are those of the forward, and
        `gradients` those of the backward that ran after it, by name; empty if none ran."""
        ready = self.stage.unwrapped
        return Outcome(
            outputs={name: _detached_result(tensor, self.stage) for name, tensor in self.tensors.items()},
            gradients=gradients,
            mutations=mutations,
            written_with_grad=frozenset(
                name for name in effects.changed if ready[name].requires_grad and name not in effects.made
            ),
            new_state=frozenset(effects.made) - set(ready),
            left_behind=frozenset(effects.left),
            leaves=self.leaves,
            tree=self.tree,
        )


def run_forward(
    stage: Staged, modes: Callable[[dict[str, Tensor]], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
) -> ForwardRun:
    """Run one eager forward of a staged program; its backward may run after it, while the program is still staged.
    Refuse a program that returns a tensor without values.

    `modes` takes the program's tensors by name, and returns a context manager that is entered while the forward runs:
    the modes under which it is recorded or observed.
    """
    with torch.enable_grad(), modes(stage.unwrapped):
        result = result_of(stage.program, stage.passed)
        named, tree = named_outputs(stage.program, result)
        tensors = {name: leaf for name, leaf in named if isinstance(leaf, Tensor)}
        for tensor in tensors.values():
            # A collective may still be running: its result is there only after the wait.
            wait_for_collectives(tensor)
    refuse_without_memory(stage.program, {name: unwrap(tensor) for name, tensor in tensors.items()}, "returns")
    return ForwardRun(stage, tuple(named), tree, tensors)


def run_step(
    program: CalledProgram,
    values: Mapping[str, Tensor] | None = None,
    tangents: Mapping[str, Tensor | None] | None = None,
    anew: bool = False,
) -> Outcome:
    """Run one eager step (a forward and its backward), the reference of every proof, and restore everything afterwards.

    `values` are by name (None: as captured). Without `tangents`, the backward starts from ones. With `anew`, other
    tensors replace the caller's arguments.
    """
    with preserving_random_states(), staged(program, values, anew) as stage:
        forward = run_forward(stage)
        # Read before the backward runs: what the backward writes is not an effect of the forward.
        effects = forward.effects()
        mutations = forward.mutations(effects)
        with torch.enable_grad():
            gradients = run_backward(program, stage.leaves, forward.tensors, tangents)
        # Gradients that were read from `.grad`: hooks may have put other tensors there, in memory that is restored at
        # the end of this block. Gradients that are reduced are copies already (`run_backward`).
        read_from_grad = reads_grad_attribute(program, stage.leaves.values())
        if read_from_grad and not program.reduces_gradients:
            gradients = {name: None if value is None else value.clone() for name, value in gradients.items()}
        return forward.outcome(effects, mutations, gradients)


def _detached_result(tensor: Tensor, stage: Staged) -> Tensor:
    """Return a tensor of the result, or the one inside of a wrapper, detached from autograd. It is a copy if it uses
    the memory of the program's tensors, which are restored after the run."""
    tensor = unwrap(tensor)
    memories = {
        storage_id(part.untyped_storage()) for tensor_ in stage.unwrapped.values() for part in strided_parts(tensor_)
    }
    if tensor.layout is torch.strided and storage_id(tensor.untyped_storage()) not in memories:
        return tensor.detach()
    return tensor.detach().clone()


def second_order(program: CalledProgram) -> CalledProgram:
    """Return the program of order=2, which returns the gradients of a program besides its outputs. The tangents of
    these outputs, `tangent.NAME`, are inputs of that program, with random values. The forward runs once, to know which
    outputs require grad; if none does, raise a CaptureError."""
    # A program without values runs under its FakeTensorMode.
    fake_mode: Any = contextlib.nullcontext() if program.world is None else program.world.running()
    with preserving_random_states(), staged(program) as stage, torch.enable_grad(), fake_mode:
        named, _ = named_outputs(program, result_with_loss(program, call_program(program, stage.unwrapped)))
        roots = {name: leaf for name, leaf in named if isinstance(leaf, Tensor) and leaf.requires_grad}
        values = {f"tangent.{name}": drawn_like(tensor, seed) for seed, (name, tensor) in enumerate(roots.items())}
    if not roots:
        raise CaptureError(f"order=2 needs gradients, and no output of {program.title} requires grad")
    return replace(
        program,
        tensors=(*program.tensors, *(NamedTensor(name, "input", requires_grad=True) for name in values)),
        values=program.values | values,
        tangents=tuple(roots),
        grad_by_default=False,
        runs_post_accumulate_hooks=False,  # the gradients are results, and not put into `.grad`, where such hooks run
    )


def drawn_like(tensor: Tensor, seed: int) -> Tensor:
    """Return a random tangent for an output, drawn with this seed; ones if the output has no values (is fake), or is
    sparse. No element is near 0, so that a product by the tangent differs from a quotient by it."""
    tangent = torch.ones_like(tensor).detach()
    # A FakeTensor has its mode in this attribute.
    if hasattr(tensor, "fake_mode") or tensor.layout is not torch.strided:
        return tangent
    dtype = torch.complex128 if tensor.is_complex() else torch.float64
    drawn = torch.randn(tensor.shape, generator=torch.Generator("cpu").manual_seed(seed), dtype=dtype)
    return tangent.copy_(drawn + 0.5 * drawn.sgn())
