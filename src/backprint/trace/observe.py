"""The dispatch mode under which a program is observed: it makes a record of each operator call, for its observers.

A dispatch mode also sees what is no operator call of the program. The mode asks the same questions of everything that
it sees, once, and in this order; an observer gets only what is left.

1. *Is it a call on wrappers (a DTensor)?* Then the wrapper runs it, by operators on the tensors inside, which come here
   again. This is first, because the other questions are about the tensors of operators, and a wrapper is none: opened
   too late, the wrapper would be decomposed, or recorded, as if it were the tensor inside.
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

    `kept` has, by observer, what the observer remembers of the call from its `before` to its `after`. An observer
    cannot remember it in an attribute of its own: autograd runs a backward on several devices in several threads.
    """

    __slots__ = ("args", "func", "kept", "kwargs")

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.kept: dict[Observer, Any] = {}

    def tensors(self) -> list[Tensor]:
        """Return the tensors among the arguments."""
        return [leaf for leaf in plain_leaves(self.args, self.kwargs) if isinstance(leaf, Tensor)]


class Observer:
    """A plain object that is told about a run of a program. Its methods do nothing unless a subclass defines them."""

    def begin(self, named: Mapping[str, Tensor]) -> None:
        """The run begins. `named` has the program's own tensors (parameters, buffers, arguments). A run that has failed
        may begin again."""

    def before(self, call: Call) -> None:
        """A call of the program is about to run. An error that is raised here is raised in the program."""

    def after(self, call: Call, result: Any) -> None:
        """The call has run."""

    def failed(self, call: Call, error: Exception) -> None:
        """The call has raised an error. The error goes on, unless another one is raised here."""

    def end(self, outputs: Mapping[str, Tensor], wrapper_nodes: list[Any]) -> None:
        """The run has ended. `outputs` are its outputs by name, `wrapper_nodes` the autograd nodes behind these that
        wrap a tensor or open a wrapper. Nothing that the run changed is restored yet."""


class ObservingMode(TorchDispatchMode):
    """Tells observers about each operator call of a run. A higher-order operator is one call: its body runs unseen.

    With `opens`, calls on wrappers, and collectives that write into their arguments, run as the operators that they are
    made of. With `without_grad`, the operators of such a collective run with gradients off, because autograd records
    nothing of a collective, so they are opaque edges. `world` is the FakeWorld of a program without values. With
    `lets_dynamo_in`, Dynamo, which runs higher-order operators in eager mode, may run under this mode. With
    `skips_dynamo`, Dynamo passes over the frames of this mode; this loads Dynamo.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would load Dynamo at the first call; see `skips_dynamo`

    def ignore_compile_internals(self) -> bool:
        """Whether torch disables this mode while Dynamo compiles, so that Dynamo may run under it."""
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
        """`observers` are told about each call, in this order. The class describes the options."""
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
        with DisableTorchFunction():  # the functions by which observers read tensors are not called by the program
            return self._observe(func, types, args, kwargs or {})

    def _observe(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Ask the questions of this module's docstring about a call, run it, and return its result; NotImplemented for
        a call on wrappers, which then run it. `types` has the classes of the tensors among its arguments that are not
        exactly `Tensor`."""
        if types:
            if self._opens and not PLAIN.issuperset(types):
                return NotImplemented
            if func is DEVICE and isinstance(args[0], FakeTensor):  # half of all calls of a run without values
                return device_of_fake(args[0])
            if self._is_of_other_fakes(types, args, kwargs):
                return for_program(func, *args, **kwargs)
        facts = facts_of(func)
        if facts.special:  # of one of the three kinds of question 3, for some arguments at least
            if is_number_read(func, args):  # the argument is the number itself
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
            # Torch does not bump the versions of the tensors that such an operator writes to, if a mode is active. From
            # then on the views of these tensors are new autograd nodes, so gradients depend on the versions.
            torch.autograd.graph.increment_version(call.args[0])
        for observer in self._observers:
            observer.after(call, result)
        return result

    def _is_of_other_fakes(self, types: Any, args: Any, kwargs: Any) -> bool:
        """Whether a call has fake tensors that are no values of the program: any fake tensors in a run with values, or
        those of another FakeTensorMode in a run without."""
        if self._world is None:
            return FakeTensor in types
        mode = self._world.mode
        return any(isinstance(leaf, FakeTensor) and leaf.fake_mode is not mode for leaf in plain_leaves(args, kwargs))


@functools.cache
def _skipped_by_dynamo() -> Any:
    """Return `ObservingMode.__torch_dispatch__` as a function whose frame Dynamo passes over, with all frames that it
    calls. This loads Dynamo."""
    return torch.compiler.disable(ObservingMode.__torch_dispatch__)
