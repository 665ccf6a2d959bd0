"""One call of a tape as Steps: which arguments it changes, its functional form, its echo, and the Steps themselves.

A functional form of an operator returns the new values of the arguments that the operator changes: `add` of `add_`. An
echo is how a step of the backward relates to the forward: `gradient of mm_3`. A `place` is the StorageView of a tensor:
the number of its storage (`memory`) and its geometry there. In a TapedCall (`tape.py`), StorageViews stand for the
tensors; `node` is the number of the autograd node in whose backward the call ran, and `seq` the number that autograd
would have given its next node.

A value of the graph has a name, and `Ref(name)` stands for it among the arguments of a Step. `pack` makes the argument
of a Step from that of a call. `schema_of(func)` is the operator's schema.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from backprint._torch.dynamo import not_loading
from backprint._torch.operators import overload_name_of, schema_of
from backprint.errors import CaptureError
from backprint.graph.fx.convert import Names, pack, target_name
from backprint.graph.nouns import Echo, Ref, Source, Step, Value
from backprint.graph.operators import operators
from backprint.trace.assembly import Note
from backprint.trace.eager.tape import (
    CPU,
    NoFunctionalForm,
    StorageView,
    TapedCall,
    iter_leaves,
    meta_tensor,
    placement_spec,
    placement_tree,
    with_device_index,
)
from backprint.trace.watch import SILENT_WRITERS

aten = torch.ops.aten


# ---- The arguments that a call changes


def changes_arguments(call: TapedCall) -> bool:
    """Whether a call changes some of its arguments."""
    return bool(schema_of(call.func).is_mutable) or _changes_statistics(call)


def _changes_statistics(call: TapedCall) -> bool:
    """Whether a call is a batch norm in training: it changes running statistics that its schema does not mark as
    written."""
    return schema_of(call.func).name in SILENT_WRITERS and bool(_argument_named(call, "training"))


def _argument_named(call: TapedCall, name: str) -> Any:
    """Return an argument by its name in the schema, or its default; None if the operator has no such argument."""
    for index, argument in enumerate(schema_of(call.func).arguments):
        if argument.name == name:
            if name in call.kwargs:
                return call.kwargs[name]
            return call.args[index] if index < len(call.args) else argument.default_value
    return None


def changed_arguments(call: TapedCall) -> Iterator[Any]:
    """Yield the StorageViews of the tensors that a call writes to; None for an optional one that was left out."""
    # Written by a batch norm in training, although its schema does not mark them.
    unmarked = ("running_mean", "running_var") if _changes_statistics(call) else ()
    for index, argument in enumerate(schema_of(call.func).arguments):
        if argument.name in unmarked or (argument.alias_info is not None and argument.alias_info.is_write):
            value = call.kwargs.get(argument.name, call.args[index] if index < len(call.args) else None)
            # A StorageView is a tuple too, and stands for one tensor.
            yield from value if isinstance(value, (list, tuple)) and type(value) is not StorageView else [value]


def has_out(call: TapedCall) -> bool:
    """Whether a call has `out=` arguments."""
    return any(argument.is_out for argument in schema_of(call.func).arguments)


def is_foreach(call: TapedCall) -> bool:
    """Whether a call does the same for each tensor of its lists."""
    return schema_of(call.func).name.startswith("aten::_foreach_")


def split_foreach_call(call: TapedCall) -> Iterator[TapedCall]:
    """Divide a `_foreach_` call whose tensors share memory: yield one such call for each of its tensors, so that each
    sees the updates before it. Refuse any other call that changes several tensors."""
    count = len(call.args[0]) if call.args and type(call.args[0]) is list else 0
    if count < 2 or not is_foreach(call):
        raise CaptureError(f"{call.func} changes several tensors that share memory: keep that part outside")
    for index in range(count):
        # A list with as many items as there are tensors has one for each; any other argument is for all tensors.
        args = [[item[index]] if type(item) is list and len(item) == count else item for item in call.args]
        kwargs = {
            key: [item[index]] if type(item) is list and len(item) == count else item
            for key, item in call.kwargs.items()
        }
        yield call._replace(args=tuple(args), kwargs=kwargs)


# ---- Functional forms of operators


RENAMED: dict[Any, Any] = {aten.bernoulli_.float: aten.bernoulli.p}
"""In-place operators whose functional form has another name."""


def functional_form(call: TapedCall) -> Any:
    """Return the operator that returns the new values of the arguments that a call writes to, or None."""
    if not _changes_statistics(call):
        return _functional_of(call.func)
    # Arguments 3 and 4 are the running statistics: the functional form takes both, and neither may be None.
    if call.func is aten.native_batch_norm.default and all(type(place) is StorageView for place in call.args[3:5]):
        return aten._native_batch_norm_legit_functional.default
    return None


def view_form(call: TapedCall) -> Any:
    """Return the operator that returns the view into which a call turns its argument, such as `t` for `t_`, or None."""
    return _functional_of(call.func) or _view_function_of(call.func)


@functools.cache
def _functional_of(func: Any) -> Any:
    """Return the operator that returns the new values of the arguments that an operator writes to, or None."""
    if func in RENAMED:
        return RENAMED[func]
    schema = schema_of(func)
    space, name = schema.name.split("::")
    parameters = [(argument.name, str(argument.type)) for argument in schema.arguments if not argument.is_out]
    # A functional form has the same parameters without the outputs, and a name that PyTorch makes in one of these ways.
    candidates = [name.removesuffix("_"), name, f"{name}_functional", f"{name.removesuffix('_')}_functional"]
    for candidate in dict.fromkeys(candidates):
        packet = getattr(getattr(torch.ops, space), candidate, None)
        for overload_name in packet.overloads() if packet is not None else ():
            overload = getattr(packet, overload_name)
            candidate_parameters = [(argument.name, str(argument.type)) for argument in schema_of(overload).arguments]
            # `operators()` has the targets that a graph may call.
            if (
                candidate_parameters == parameters
                and not schema_of(overload).is_mutable
                and str(overload) in operators()
            ):
                return overload
    return None


def _view_function_of(func: Any) -> Any:
    """Return the out-of-place form of an operator that turns a tensor into a view of itself, `t` for `t_`, found by its
    name alone; None if there is none."""
    name = schema_of(func).name.split("::")[1].removesuffix("_")
    return getattr(getattr(aten, name, None), overload_name_of(func) or "default", None)


def without_generator(func: Any) -> Any:
    """Return the overload of a random operator without a generator argument: `randperm.default` for
    `randperm.generator`."""
    kind = overload_name_of(func).replace("generator_with_", "").replace("_generator", "").replace("generator", "")
    return func if "generator" not in overload_name_of(func) else getattr(func.overloadpacket, kind or "default")


BUILTINS = frozenset(dir(builtins))
"""Names that no step has, as in torch.fx: the result of `aten.sum` is `sum_1`."""


def name_of_result(func: Any) -> str:
    """Return the preferred name of an operator's result."""
    return str(schema_of(func).name.split("::")[1]).strip("_")


# ---- The geometry of results


class _ResultGeometry:
    """Computes the StorageViews of a step's results by running the operator on meta tensors; their `memory` is -1.

    `places` has the StorageView of each value by name: it is the Page's, which adds to it. In the arguments, a Ref
    stands for each tensor, by the name of its value. The results are cached by the geometry of the arguments.
    """

    def __init__(self, places: Mapping[str, StorageView]) -> None:
        self.places = places
        self.cache: dict[Any, Any] = {}

    def placement(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> StorageView:
        """Return the StorageView of the result of a step that returns one tensor."""
        placement = self.results(func, tuple(args), kwargs)
        assert type(placement) is StorageView
        return placement

    def results(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return the results of a step as StorageViews; raise NoFunctionalForm where the operator has no meta kernel
        for the arguments."""
        kwargs = {key: value for key, value in kwargs.items() if not isinstance(value, torch.Generator)}
        key = (func, self.key(args), self.key(kwargs))
        if key not in self.cache:
            meta_args, meta_kwargs = self.with_meta_tensors(tuple(args)), self.with_meta_tensors(kwargs)
            try:
                with not_loading():  # a meta kernel in Python may import Dynamo, which takes seconds
                    results = func(*meta_args, **meta_kwargs)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:  # whatever a meta kernel raises
                raise NoFunctionalForm(
                    f"{func} cannot be foreseen: {type(error).__name__}: {str(error)[:300]}"
                ) from error
            self.cache[key] = placement_tree(results, self.device(args, kwargs))
        return self.cache[key]

    def device(self, args: Any, kwargs: Mapping[str, Any]) -> torch.device:
        """Return the device of a step's results: its `device` argument, or the device of its values, where a GPU counts
        before the CPU."""
        if kwargs.get("device") is not None:
            return with_device_index(torch.device(kwargs["device"]))
        devices = [self.places[leaf.name].device for leaf in iter_leaves(args, kwargs) if type(leaf) is Ref]
        return next((device for device in devices if device.type != "cpu"), CPU)

    def key(self, value: Any) -> Any:
        """Return arguments as a key of the cache: tensors by geometry without their memory, numbers with their type."""
        match value:
            case Ref(name):
                return self.places[name]._replace(memory=-1)
            case tuple() | list():
                return tuple([self.key(item) for item in value])
            case dict():
                return tuple([(key, self.key(item)) for key, item in value.items()])
        # As dict keys, 1, 1.0 and True are equal, and no NaN equals itself.
        return type(value), repr(value)

    def with_meta_tensors(self, value: Any) -> Any:
        """Replace values by meta tensors in arguments, and the `device` argument by `meta`."""
        match value:
            case Ref(name):
                return meta_tensor(self.places[name])
            case tuple():
                return tuple([self.with_meta_tensors(item) for item in value])
            case list():
                return [self.with_meta_tensors(item) for item in value]
            case dict():
                return {key: "meta" if key == "device" else self.with_meta_tensors(item) for key, item in value.items()}
        return value


# ---- Echoes: what each call of a backward computes of the forward


class _WrittenCall(NamedTuple):
    """A call, and the name of the value that was written for it."""

    name: str
    call: TapedCall


class _Addend(NamedTuple):
    """One term of a sum of gradients: the autograd node that made it, and the tensors that the forward call of this
    node took."""

    node: int
    arguments: set[StorageView]


class Echoes:
    """Finds the echo of each call of a backward: a gradient of a forward value, a sum of gradients, or a recomputation.

    `latest` returns the latest name of the tensor with a StorageView, or ''. `calls_by_node` has the call that made
    each autograd node, by the node's sequence number, and `node_of_value`, by the name of a value, the node in whose
    backward it was made.

    A recomputation is a call that a checkpoint repeats. It has other memory than the call of the forward, so both are
    compared by a key, in which each memory is described by the call that made its content. `contents` has these
    descriptions, and `keys` numbers the keys, in order to keep descriptions short. Values that were computed alike have
    equal descriptions, also those that each layer of the forward computes, such as a mask.
    """

    def __init__(self, latest: Callable[[StorageView], str]) -> None:
        """`latest` returns the latest name of the tensor with a StorageView, or ''."""
        self.latest = latest
        self.in_backward = False
        self.calls_by_node: dict[int, _WrittenCall] = {}
        self.forward_calls: list[_WrittenCall] = []
        self.forward_calls_by_key: dict[str, list[_WrittenCall]] = {}
        self.keys: dict[str, int] = {}
        self.contents: dict[int, str] = {}
        self.node_of_value: dict[str, int | None] = {}

    def note_node_of_value(self, name: str, call: TapedCall | None) -> None:
        """Note the autograd node in whose backward a value was made."""
        self.node_of_value[name] = None if call is None else call.node

    def begin_backward(self) -> None:
        """Count the calls that follow as the backward's."""
        self.in_backward = True

    def note_call(self, call: TapedCall, name: str) -> None:
        """Remember a call that has been written, with the name of its value; in the place of a call that a checkpoint
        repeats, the name of the forward's value."""
        if not self.in_backward:
            self.forward_calls.append(_WrittenCall(name, call))
        elif call.grad:
            name = name if (original := self.repeated_call(call)) is None else original.name
            self.note_contents(call, self.call_key(call))
        # The node of a call was made just before the call ran, so its number is the one before `seq`. Calls that make
        # no node follow with the same `seq`: the first call counts.
        self.calls_by_node.setdefault(call.seq - 1, _WrittenCall(name, call))

    # ---- The echo of a call

    def source_and_echo(self, call: TapedCall) -> tuple[Source | None, Echo | None]:
        """Return the line and the echo of a call. A call of autograd's own backward has the line of the forward's call
        whose node runs."""
        echo = self.echo(call)
        if echo is not None and call.source is None:  # autograd's engine runs a node in C++, below no line of Python
            return self.calls_by_node[call.node or 0].call.source, echo  # an echo says that the call has a node
        return self.source_with_module(call), echo

    def source_with_module(self, call: TapedCall) -> Source | None:
        """Return the line of a call. A line in the backward of a custom autograd.Function is below no module's forward,
        so it gets the module of the forward's call whose node runs."""
        source = call.source
        of_forward = self.calls_by_node[call.node].call.source if call.node in self.calls_by_node else None
        if source is None or source.module or of_forward is None or not self.in_backward:
            return source
        return replace(source, module=of_forward.module)

    def echo(self, call: TapedCall) -> Echo | None:
        """Return the echo of a call of the backward; None for a call of the forward, or one that no node makes."""
        if (original := self.repeated_call(call)) is not None:
            return Echo("recomputes", (original.name,))
        if call.node is None or call.node not in self.calls_by_node:
            return None
        if call.func in (aten.add.Tensor, aten.add_.Tensor) and (value := self.summed_gradients_of(call)):
            return Echo("sum of gradients of", (value,))
        return Echo("gradient of", (self.calls_by_node[call.node].name,))

    def repeated_call(self, call: TapedCall) -> _WrittenCall | None:
        """Return the forward's call that a call of the backward repeats, as a checkpoint does, or None. Of several
        calls that compute the same, one from the same line is preferred."""
        # A checkpoint recomputes in grad mode; autograd's own backward runs without.
        if not self.in_backward or not call.grad:
            return None
        if not self.forward_calls_by_key:
            self.index_forward_calls()
        same = self.forward_calls_by_key.get(self.call_key(call), [])
        return next((written for written in same if written.call.source == call.source), next(iter(same), None))

    def index_forward_calls(self) -> None:
        """Group the forward's calls by their keys, and note the content of memory that they make."""
        for name, call in self.forward_calls:
            key = self.call_key(call)
            self.forward_calls_by_key.setdefault(key, []).append(_WrittenCall(name, call))
            self.note_contents(call, key)

    def note_contents(self, call: TapedCall, key: str) -> None:
        """Note the new content of the memory of a call's results, and of the arguments that it changes; `key` is the
        call's key.

        Memory that no call has made, such as a parameter's, keeps its number as its content, whatever is written to it:
        a batch norm that is repeated reads running statistics that its first run has changed.
        """
        number = self.keys.setdefault(key, len(self.keys))
        taken = {leaf.memory for leaf in iter_leaves((call.args, call.kwargs)) if type(leaf) is StorageView}
        changed = list(iter_leaves(list(changed_arguments(call)))) if changes_arguments(call) else []
        for index, leaf in enumerate([*iter_leaves(call.result), *changed]):
            if type(leaf) is not StorageView:
                continue
            # Results in new memory, and updates of memory that a call has made. A view of an argument has its content
            # already.
            if leaf.memory not in taken or (leaf in changed and leaf.memory in self.contents):
                self.contents[leaf.memory] = f"{index} of call {number}"

    def call_key(self, call: TapedCall) -> str:
        """Return a call as text, with the content of its arguments in the place of their memory: calls with equal texts
        compute the same."""
        return repr((call.func, self.with_contents(call.args), self.with_contents(call.kwargs), call.state))

    def with_contents(self, value: Any) -> Any:
        """Replace the memory, the first field, of StorageViews among nested arguments by the text of its content."""
        if type(value) is StorageView:
            return (self.contents.get(value.memory, value.memory), *value[1:])
        if isinstance(value, (tuple, list)):
            return [self.with_contents(item) for item in value]
        return {key: self.with_contents(item) for key, item in value.items()} if isinstance(value, dict) else value

    def summed_gradients_of(self, call: TapedCall) -> str:
        """Return the name of the forward value whose gradients from two autograd nodes a call of `add` adds; '' if the
        call adds something else.

        Both addends were made in nodes of forward calls that took that value. So it is an argument that both calls have
        in common, of the shape of the sum.
        """
        addends = []
        for place in call.args[:2]:
            if type(place) is not StorageView:  # a number is added
                return ""
            node = self.node_of_value.get(self.latest(place))
            if node is None or node not in self.calls_by_node:
                return ""
            arguments = iter_leaves(self.calls_by_node[node].call.args)
            addends.append(_Addend(node, {argument for argument in arguments if type(argument) is StorageView}))
        first, second = addends
        # Both made by one node, in which the sum does not run: not gradients from two nodes.
        if first.node == second.node and first.node != call.node:
            return ""
        common = [place for place in first.arguments & second.arguments if place.shape == call.args[0].shape]
        # A sum without a line is autograd's own. A node that passes its gradient on unchanged, as that of `add` does,
        # leaves it to the node that made it, so the calls need have nothing in common: then the value is the one
        # argument of this shape of the call in whose node the sum runs.
        if not common and call.source is None:
            own = [addend.arguments for addend in addends if addend.node == call.node]
            common = [place for places in own for place in places if place.shape == call.args[0].shape]
            common = common if len(common) == 1 else []
        return next((name for name in sorted(map(self.latest, common)) if name), "")


# ---- Steps: each under a free name, with the line and the echo of its call


class ResultItem(NamedTuple):
    """One result of a step: the name of its value and its StorageView; '' and None for a result that is no tensor."""

    name: str
    place: Any


class Page:
    """Writes Steps, for one call of the tape after another.

    `steps` is the list that new steps are appended to (the forward's, then the backward's), `call` the call that they
    are written for, and `last` the name that `CallSteps.write_call_as` last gave to a result of this call, or ''. All
    three change while a tape is written. `names` are the names in use: `names.free(wanted)` returns one like `wanted`
    that no value has yet. `places` has the StorageView of every value by name, and `notes` the facts (Note) that the
    text of a step does not show.
    """

    def __init__(self, names: Names, echoes: Echoes) -> None:
        """Begin an empty page. `names` are the names in use, and `echoes` finds the echo of each call."""
        self.names, self.echoes = names, echoes
        self.steps: list[Step] = []
        self.notes: dict[str, Note] = {}
        self.places: dict[str, StorageView] = {}
        self.geometry = _ResultGeometry(self.places)
        self.call: TapedCall | None = None
        self.last = ""

    def set_call(self, call: TapedCall | None) -> None:
        """Attribute the steps that follow to this call; to none, with None."""
        self.call, self.last = call, ""

    def append_step(self, step: Step) -> None:
        """Append a step, with the line and the echo of the call that steps are written for now, unless it has its
        own."""
        if self.call is not None and step.source is None and step.echo is None:
            source, echo = self.echoes.source_and_echo(self.call)
            if source is not None or echo is not None:
                step = replace(step, source=source, echo=echo)
        self.echoes.note_node_of_value(step.name, self.call)
        self.steps.append(step)

    def append_call(
        self, func: Any, args: Sequence[Any], kwargs: Sequence[tuple[str, Any]] = (), place: StorageView | None = None
    ) -> str:
        """Append a step for which the tape has no call, and return its name. `kwargs` has keys and values. `place` is
        the StorageView of its one result; without it, the geometry is computed on meta tensors."""
        place = place or self.geometry.placement(func, args, dict(kwargs))
        name = self.names.free(name_of_result(func), avoid=BUILTINS)
        packed_args = tuple([pack(value) for value in args])
        packed_kwargs = tuple([(key, pack(value)) for key, value in kwargs])
        self.append_step(Step(name, target_name(func), packed_args, packed_kwargs, placement_spec(place)))
        self.places[name] = place
        return name

    def append_getitem(self, name: str, index: int, item: Any) -> str:
        """Append a step that takes an item of another step's tuple, and return its name; `item` is the StorageView of
        the item, or a tuple of them."""
        local = self.names.free(f"{name}_{index}")
        self.append_step(Step(local, "operator.getitem", (Ref(name), index), (), placement_spec(item)))
        if type(item) is StorageView:
            self.places[local] = item
        return local

    def append_getitems(self, name: str, results: Any) -> list[ResultItem]:
        """Return the tensors among the results of the step `name`, and append a step that takes each from the tuple.
        Those of a tuple inside of the tuple follow one another. A result that is no tensor has no name."""
        if type(results) is StorageView:
            return [ResultItem(name, results)]
        items: list[ResultItem] = []
        for index, item in enumerate(results):
            if type(item) is StorageView:
                items.append(ResultItem(self.append_getitem(name, index, item), item))
            elif isinstance(item, tuple):
                inner_tuple = self.append_getitem(name, index, item)
                items += [
                    ResultItem(self.append_getitem(inner_tuple, i, inner_item), inner_item)
                    for i, inner_item in enumerate(item)
                ]
            else:
                items.append(ResultItem("", None))
        return items

    def append_guard(self, target: str, *args: Value, structure: bool = False) -> None:
        """Append a guard: a step such as `assert_equal`, on a value and what it must be. `structure` says that it is
        about how a sparse tensor is built."""
        name = self.names.free("guard")
        self.append_step(Step(name, target, args))
        if structure:
            self.set_note(name, structure=True)

    def set_note(self, name: str, **fields: Any) -> None:
        """Set fields of the Note of a step."""
        self.notes[name] = replace(self.notes.get(name, Note()), **fields)

    def replace_last_step(self, **fields: Any) -> None:
        """Replace fields of the last step."""
        self.steps[-1] = replace(self.steps[-1], **fields)

    def drop_notes_after(self, count: int) -> None:
        """Drop the notes of all steps after the first `count`, an attempt that failed: without a note that keeps them,
        assembly removes these steps as dead code."""
        for step in self.steps[count:]:
            self.notes.pop(step.name, None)
