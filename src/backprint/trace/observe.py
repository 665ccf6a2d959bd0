"""The dispatch mode under which a program is observed: it makes a record of each operator call, for its observers.

A dispatch mode also sees what is no operator call of the program. The mode asks the same questions of everything that
it sees, once, and in this order; an observer gets only what is left.

1. *Is it a call on wrappers (a DTensor)?* Then the wrapper runs it, by operators on the tensors inside, which come here
   again. This is first, because the other questions are about the tensors of operators, and a wrapper is none: opened
   too late, it would be decomposed, or recorded, as if it were the tensor inside.
2. *Are its tensors values of the program?* Torch, and DTensor, run operators on fake tensors to learn shapes; torch
   also asks a fake tensor for its device by an operator. This is before the questions about the operator, because
   nothing about such a call matters: it runs as it is.
3. *Is it answered, or opened into other calls?* A number that TorchScript keeps in a tensor is answered. A composite
   operator, and a collective that writes into its arguments, run as the operators that they are made of, which come
   here again. These are three kinds of operators, and none is of two kinds, so their order does not matter.

What is left is a call of the program: `before` and `after` of each observer, in the order in which they were given.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from backprint._torch.fake import FakeTensor, device_of_fake
from backprint._torch.modes import DisableTorchFunction, TorchDispatchMode
from backprint._torch.operators import HigherOrderOperator
from backprint.errors import for_program
from backprint.trace.custom import decompose_under_mode, is_composite
from backprint.trace.fake import FakeWorld
from backprint.trace.watch import facts_of, is_number_read
from backprint.values.tree import plain_leaves
from backprint.values.wrappers import PLAIN

DEVICE = torch.ops.prim.device.default


class Call:
    """One operator call of the program. `before` of an observer may replace the arguments that the operator runs on.

    `kept` has what each observer keeps of the call from `before` to `after`. An observer cannot keep it in itself:
    autograd runs a backward on several devices in several threads.
    """

    __slots__ = ("args", "func", "kept", "kwargs")

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.kept: dict[Observer, Any] = {}

    def tensors(self) -> list[Tensor]:
        """Return the tensors among the arguments."""
        return [leaf for leaf in plain_leaves(self.args, self.kwargs) if isinstance(leaf, Tensor)]


class Observer:
    """A plain object that is told about a run."""

    def begin(self, named: Mapping[str, Tensor]) -> None:
        """The run begins, with the program's own tensors under their names. A run may begin again."""

    def before(self, call: Call) -> None:
        """A call of the program is about to run. An error that is raised here is raised in the program."""

    def after(self, call: Call, result: Any) -> None:
        """The call has run."""

    def failed(self, call: Call, error: Exception) -> None:
        """The call has raised an error. The error goes on, unless another one is raised here."""

    def end(self, outputs: Mapping[str, Tensor], wrapper_nodes: list[Any]) -> None:
        """The run has ended, with these outputs and autograd nodes of wrappers. Nothing is restored yet."""


class ObservingMode(TorchDispatchMode):
    """Tells observers about each operator call of a run. A higher-order operator is one call: its body runs unseen.

    Calls on wrappers, and collectives that write into their arguments, are opened if `opens`. The operators of such a
    collective run with gradients off if `without_grad`: autograd knows nothing of it, so they are opaque edges. `world`
    is that of a program without values. Dynamo, which runs higher-order operators in eager mode, may run if
    `lets_dynamo_in`; then it must pass over the frames of this mode (`skips_dynamo`), which loads it.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would load Dynamo at the first call; see `skips_dynamo`

    def ignore_compile_internals(self) -> bool:
        """Whether this mode is off while Dynamo compiles, so that Dynamo may run under it."""
        return self._lets_dynamo_in

    def __init__(
        self,
        *observers: Observer,
        world: FakeWorld | None = None,
        opens: bool = True,
        without_grad: bool = False,
        lets_dynamo_in: bool = True,
        skips_dynamo: bool = False,
    ) -> None:
        super().__init__()
        self._observers = observers
        self._world, self._opens, self._without_grad = world, opens, without_grad
        self._lets_dynamo_in = lets_dynamo_in
        if skips_dynamo:
            # Torch finds this attribute before the method of the class.
            self.__dict__["__torch_dispatch__"] = MethodType(_skipped_by_dynamo(), self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):
            return self._observe(func, types, args, kwargs or {})  # its body is the program's
        with DisableTorchFunction():  # what observers read of tensors is no function of the program
            return self._observe(func, types, args, kwargs or {})

    def _observe(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Ask the questions of this module about a call, and run it."""
        # `types` has the classes of those tensors that are not plain.
        if types:
            if self._opens and not PLAIN.issuperset(types):
                return NotImplemented
            if func is DEVICE and isinstance(args[0], FakeTensor):  # half of all calls of a run without values
                return device_of_fake(args[0])
            if self._is_of_other_fakes(types, args, kwargs):
                return for_program(func, *args, **kwargs)
        facts = facts_of(func)
        if facts.special:
            if is_number_read(func, args):
                return args[0]
            if is_composite(func, args, kwargs):
                return decompose_under_mode(self, func, args, kwargs)
            if self._opens and facts.form is not None:
                # torch disables a mode while it handles a call, and the operators of the form are to be seen
                with self, torch.no_grad() if self._without_grad else contextlib.nullcontext():
                    return facts.form(*args, **kwargs)
        call = Call(func, args, kwargs)
        for observer in self._observers:
            observer.before(call)
        try:
            result = for_program(func, *call.args, **call.kwargs)
        except Exception as error:
            for observer in self._observers:
                observer.failed(call, error)
            raise
        if facts.counts_no_writes:
            # Views of these tensors are new autograd nodes from then on, so gradients depend on it.
            torch.autograd.graph.increment_version(call.args[0])
        for observer in self._observers:
            observer.after(call, result)
        return result

    def _is_of_other_fakes(self, types: Any, args: Any, kwargs: Any) -> bool:
        """Whether a call is on fake tensors that are no values of the program: any, or those of another world."""
        if self._world is None:
            return FakeTensor in types
        mode = self._world.mode
        return any(isinstance(leaf, FakeTensor) and leaf.fake_mode is not mode for leaf in plain_leaves(args, kwargs))


@functools.cache
def _skipped_by_dynamo() -> Any:
    """Return the method of the mode, over whose frames, and those that it calls, Dynamo passes. This loads Dynamo."""
    return torch.compiler.disable(ObservingMode.__torch_dispatch__)
