"""Write one Step for one call of a tape, with the generator states that random draws start from.

A draw that continues the one before it is an ordinary step: a replay draws from its caller's generator alike. Any other
draw has its start state as an argument: saved by an earlier draw, or a port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch.operators import schema_if_any
from backprint.fx.convert import pack, target_name
from backprint.graph.nouns import Ref, Step, TensorSpec
from backprint.graph.steps import SAVING
from backprint.tracing.eager.forms import BUILTINS, stem, without_generator
from backprint.tracing.eager.page import Page
from backprint.tracing.eager.placement import placement_of, placement_spec
from backprint.tracing.eager.tape import GeneratorState, TapedCall
from backprint.tracing.facts import CHECKS


class CallSteps:
    """Writes calls as Steps, and tracks the caller's stream of random numbers through them.

    `stream` is the state of each device's own generator after the steps so far, `states` the name of each state that a
    later draw needs, by the draw that saved it or by its bytes, and `fixed` those that are ports.
    """

    def __init__(self, page: Page, start: Mapping[str, bytes]) -> None:
        self.page, self.stream = page, dict(start)
        self.draws: dict[GeneratorState, tuple[str, Any, list[Step]]] = {}
        self.states: dict[str, str] = {}
        self.fixed: dict[str, Tensor] = {}

    def put_call(self, call: TapedCall, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Write the step of a call, with this operator on these values; return the name of its result."""
        page = self.page
        named = {key: value for key, value in kwargs.items() if not isinstance(value, torch.Generator)}
        page.last = name = page.names.free(stem(func), avoid=BUILTINS)
        packed = tuple([pack(v) for v in args if not isinstance(v, torch.Generator)])
        spec = placement_spec(call.result) if func is call.func else None
        values = tuple((key, pack(value)) for key, value in (named | dtype_taken(func, named, spec)).items())
        step = Step(name, target_name(func), packed, values, spec)
        if call.state is None:
            page.put(step)
            if func in CHECKS:
                page.mark(name, stays=True)
        elif not call.own and call.state.state == self.stream.get(call.state.device):
            if call.after is not None:
                self.stream[call.after.device] = call.after.state
            page.put(step)
            page.mark(name, draws=True)
            self.draws.setdefault(call.state, (name, func, page.steps))
        else:
            drawn = (self.state_before(call), pack(without_generator(func)), *packed)
            page.put(Step(name, "torch.ops.higher_order.run_with_rng_state", drawn, values, spec))
        return name

    def state_before(self, call: TapedCall) -> Ref:
        """Return the generator's state before a draw: saved by an earlier draw, or a port."""
        assert call.state is not None
        first = self.draws.get(call.state)
        if first is not None and not call.own:
            return Ref(self.state_kept_by(len(call.state.state), *first))
        key = call.state.state.hex()
        if key not in self.states:
            local = self.page.names.free(f"rng_{len(self.fixed)}")
            self.states[key] = local
            self.fixed[local] = torch.frombuffer(bytearray(call.state.state), dtype=torch.uint8).clone()
            self.page.places[local] = placement_of(self.fixed[local])
        return Ref(self.states[key])

    def state_kept_by(self, length: int, name: str, func: Any, steps: list[Step]) -> str:
        """Return the name under which a draw among these steps saves its start state, of `length` bytes."""
        if name not in self.states:
            at = next(index for index, each in enumerate(steps) if each.name == name)
            both, state = self.page.names.free("drawn"), self.page.names.free("rng_state")
            args = (pack(func), *steps[at].args)
            draw = replace(steps[at], name=both, target=SAVING, args=args, spec=None)
            spec = TensorSpec("uint8", (length,))
            item = replace(steps[at], target="operator.getitem", args=(Ref(both), 1), kwargs=())
            steps[at : at + 1] = [draw, Step(state, "operator.getitem", (Ref(both), 0), (), spec), item]
            self.page.notes[both] = self.page.notes.pop(name)
            self.states[name] = state
            self.page.places[state] = placement_of(torch.empty(length, dtype=torch.uint8, device="meta"))
        return self.states[name]


def dtype_taken(func: Any, kwargs: Mapping[str, Any], spec: Any) -> dict[str, torch.dtype]:
    """Return the dtype that a factory took from a default dtype which the program had set: a graph that runs alone has
    the usual one."""
    arguments = getattr(schema_if_any(func), "arguments", ())
    if not isinstance(spec, TensorSpec) or any("Tensor" in str(argument.type) for argument in arguments):
        return {}
    if kwargs.get("dtype") is not None or all(argument.name != "dtype" for argument in arguments):
        return {}
    made: torch.dtype = getattr(torch, spec.dtype.removeprefix("torch."))
    usual = torch.get_default_dtype()
    plain = made in (usual, usual.to_complex()) or not (made.is_floating_point or made.is_complex)
    return {} if plain else {"dtype": made}
