"""A GraphNet folder: its program, and its inputs with names, roles, uses and whether they require grad.

Nothing of the folder is executed, and no tensor is made.

Words of this file:

- `ModelProgram`: the `forward` of a `model.py`, as `ast` lines that `code` has checked; a function or constant of torch
  is one `ast.Name` with its dots. `ForwardArgument`: an argument of `forward`; its `kind` is what its annotation says:
  `Parameter`, `Tensor`, `SymInt`, `SymFloat`, `SymBool`, or ''.
- `Meta`: the metadata of one tensor, from `weight_meta.py`: shape, dtype and statistics, or all elements (`data`).
- The *raw* name of an input is that in the code; its own name is that in the original model. Its *role* is `parameter`,
  `buffer` (both: *state*) or `input`.
- `Use`: what the program does with an input, as far as it limits the input's values: words such as `index` or `mask`
  (`kinds`), and for an index the bound that it is `below`.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from backprint.common.formats import is_direction
from backprint.errors import GraphError, RefusedError, SampleError
from backprint.graph.nouns import Graph, TensorSpec, custom_operators
from backprint.graph.sizes import contiguous_inputs, with_constant_sizes, with_tensor_results_only, without_saved
from backprint.graph.text import HEADER, parse
from backprint.sample.ending import MARKER, ending
from backprint.tools.graphnet.code import DEVICE, DEVICE_TEXT, META, ForwardArgument, ModelProgram, is_slice, read_code
from backprint.tools.graphnet.metas import (
    UNTYPED,
    Meta,
    Use,
    dtype_itemsize,
    read_sample_facts,
    read_sample_metas,
    read_sample_text,
    read_symbol_examples,
)

# ---- The program's own names behind GraphNet's
# `L_self_modules_stem_modules_conv1_parameters_weight_` is `stem.conv1.weight`. Dynamo mangles the whole path of a
# tensor into one identifier, in which `_` may also be part of a name: `parameters_` and `buffers_` end a path for sure,
# a plain attribute (`..._layernorm_eps`) does not. An ambiguous path stays unsplit, and no two tensors get the same
# name.


ATTRIBUTES = (
    "eps momentum p min_val max_val variance_epsilon num_heads scaling scale stride dropout activation_dropout "
    "attention_dropout hidden_dropout drop_prob scale_attn embed_positions epsilon lambda layer_scale temperature"
).split()
"""Usual names of the numbers and tensors that modules keep as plain attributes."""

WORDS = {
    "mask": "mask",
    "masks": "mask",
    "ids": "index",
    "index": "index",
    "indices": "index",
    "position": "position",
    "positions": "position",
    "length": "length",
    "lengths": "length",
}
"""Words in a name that say how a tensor is used."""


MEMBERS = frozenset(
    (
        "T_destination _apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl "
        "_forward_hooks _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks "
        "_forward_pre_hooks_with_kwargs _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook "
        "_load_from_state_dict _load_state_dict_post_hooks _load_state_dict_pre_hooks "
        "_maybe_warn_non_full_backward_hook _modules _named_members _non_persistent_buffers_set _parameters "
        "_register_load_state_dict_pre_hook _register_state_dict_hook _replicate_for_data_parallel "
        "_save_to_state_dict _slow_forward _state_dict_hooks _state_dict_pre_hooks _version _wrapped_call_impl "
        "add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval "
        "extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict "
        "modules mtia named_buffers named_children named_modules named_parameters parameters register_backward_hook "
        "register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook "
        "register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook "
        "register_module register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ "
        "set_extra_state set_submodule share_memory state_dict to to_empty train training type xpu zero_grad "
    ).split()
)
"""Attributes of every module (torch 2.13): torch refuses submodules and tensors of these names."""


@dataclass(frozen=True, slots=True)
class NamedInput:
    """An input of a sample: its name in the code, its own name, its role, and why it has that role ('' for `input`)."""

    raw: str
    name: str
    role: str
    why: str


# Parts of Dynamo's names: what stands before the name proper; a tensor of the module, `L_self_…`; the end of its path,
# `conv1_parameters_weight_` as module, kind and name; and what a label of ours cannot have.
_PREFIX = re.compile(r"^(?:object_getattribute_|dict_getitem_|getattr_)+(?=[Ll]_)")
_STATE = re.compile(r"^[Ll]_(?:self|instance)_(.+)$")
_END = re.compile(r"^(?:(.*)_)?(parameters|buffers)_(.+?)_?$")
_LABEL = re.compile(r"[^0-9A-Za-z_.]")


def name_inputs(
    arguments: Sequence[ForwardArgument], metas: Mapping[str, Meta], roles: Mapping[str, tuple[str, str]] | None = None
) -> tuple[NamedInput, ...]:
    """Return every argument with its own name and role, in order. Names are unique, and no tensor has the name of a
    module.

    `roles` has the role of each argument and the reason for it, where names and annotations do not have to tell.
    GraphNet's renamer calls arguments `in_0` and `w_0`, and keeps the original name in the metadata: a traced argument
    is the argument under that name, if it is one of Dynamo's.
    """
    originals = {name: meta.original_name for name, meta in metas.items() if meta.original_name}
    traced_arguments = [
        replace(argument, name=original) if _is_traced_name(original := originals.get(argument.name, "")) else argument
        for argument in arguments
    ]
    children = _modules_in_names([argument.name for argument in traced_arguments])
    named: list[NamedInput] = []
    used_names: dict[str, bool] = {}  # of each name so far, whether it is a module's tensor
    module_paths: set[str] = set()
    for argument, traced_argument in zip(arguments, traced_arguments, strict=True):
        name, role, why = _name_and_role(traced_argument, children)
        role, why = (roles or {}).get(argument.name, (role, why))
        # The original name is no name of Dynamo's, so it is taken as it is.
        if argument.name in originals and traced_argument is argument:
            name = _LABEL.sub("_", originals[argument.name])
        is_state = role != "input"
        if not is_state:
            name = _parameter_name(name)
        if not is_free(name, is_state, used_names, module_paths):
            raw_is_free = is_free(argument.name, is_state, used_names, module_paths)
            name = argument.name if raw_is_free else f"{argument.name}_{len(used_names)}"
        used_names[name] = is_state
        module_paths |= set(_enclosing_modules(name)) if is_state else set()
        named.append(NamedInput(argument.name, name, role, why))
    return tuple(named)


def _parameter_name(name: str) -> str:
    """Return the name of an input as that of a parameter of the module's `forward`: itself if it can be one, else with
    other characters replaced, and `input_` before what is still a keyword, `self` or no identifier."""
    if name.isidentifier() and not keyword.iskeyword(name) and name != "self":
        return name
    name = re.sub(r"\W", "_", name)
    return name if name.isidentifier() and not keyword.iskeyword(name) and name != "self" else f"input_{name}"


def _is_traced_name(name: str) -> bool:
    """Whether Dynamo gave this name to an argument or a global of the whole program: `L_x_`, and not `add_42`."""
    return _PREFIX.sub("", name)[:2] in ("L_", "l_", "G_")


def is_free(name: str, is_state: bool, used_names: Mapping[str, bool], module_paths: Collection[str]) -> bool:
    """Whether a name is free for a tensor. The name of a module's tensor (`is_state`) must not be that of a module
    (`module_paths`), of a member of all modules, nor have a tensor's name as a module in its path. `used_names` says of
    each name whether it is a module's tensor."""
    steps = name.split(".")
    if (
        not all(steps)
        or name in used_names
        or (is_state and (MEMBERS.intersection(steps) or any("__" in s[:2] for s in steps)))
    ):
        return False
    return not is_state or (
        name not in module_paths and not any(used_names.get(module) for module in _enclosing_modules(name))
    )


def _enclosing_modules(name: str) -> list[str]:
    """Return the modules that enclose a tensor: `a` and `a.b` of `a.b.weight`."""
    steps = name.split(".")
    return [".".join(steps[:count]) for count in range(1, len(steps))]


def _name_and_role(
    argument: ForwardArgument, children: Mapping[tuple[str, ...], Collection[str]]
) -> tuple[str, str, str]:
    """Return the own name of an argument, its role, and why it has that role, from its name by Dynamo and its
    annotation. `children` are the modules that the names of all arguments spell (`_modules_in_names`)."""
    raw = _PREFIX.sub("", argument.name)
    is_number = argument.kind.startswith("Sym")
    state_match = _STATE.match(raw)
    if state_match is None or is_number:
        role, why = ("parameter", "a Parameter by its annotation") if argument.kind == "Parameter" else ("input", "")
        if raw.startswith("G_"):
            role, why = "buffer", "a global of the program"
        return _call_argument_name(raw, state_match), role, why
    *path, last = _module_path(state_match[1])
    end_match = _END.match(last)
    if end_match is not None:
        module_name, kind, tensor_name = end_match.groups()
        name = ".".join([*path, *([module_name] if module_name else []), tensor_name])
        if kind == "parameters" or argument.kind == "Parameter":
            return name, "parameter", "a parameter by its name"
        return name, "buffer", "a buffer by its name"
    if argument.kind == "Parameter":
        return ".".join([*path, last.rstrip("_")]), "parameter", "a Parameter by its annotation"
    return ".".join([*path, *_attribute_path(path, last.rstrip("_"), children)]), "buffer", "an attribute of a module"


def _call_argument_name(raw: str, state: re.Match[str] | None) -> str:
    """Return the name of an argument of the call: `L_kwargs_input_ids_` is `input_ids`. `state` is the match of a
    number of the module, such as `L_self_eps`: what follows `L_self_`."""
    name = state[1] if state else re.sub(r"^[Ll]_", "", raw)
    name = re.sub(r"^(?:kwargs|args)_(?=[A-Za-z])", "", name).rstrip("_")
    return name or raw


def _module_path(text: str) -> list[str]:
    """Return a mangled path as its modules and the rest: `modules_a_modules_0_modules_b_eps` is `a`, `0`, `b_eps`."""
    if not text.startswith("modules_"):
        return [text]
    return text.removeprefix("modules_").split("_modules_")


def _modules_in_names(names: Sequence[str]) -> dict[tuple[str, ...], set[str]]:
    """Return the modules that the names spell unambiguously: of each enclosing module, by its path, the names of the
    modules in it. `L_self_modules_a_modules_b_parameters_weight_` spells `a` in (), and `b` in (`a`,)."""
    modules: dict[tuple[str, ...], set[str]] = {}
    for raw in names:
        state = _STATE.match(_PREFIX.sub("", raw))
        if state is None or not state[1].startswith("modules_"):
            continue
        *path, last = _module_path(state[1])
        end = _END.match(last)
        module_names = [*path, *([end[1]] if end and end[1] else [])]
        for depth, module_name in enumerate(module_names):
            modules.setdefault(tuple(module_names[:depth]), set()).add(module_name)
    return modules


def _attribute_path(path: Sequence[str], last: str, children: Mapping[tuple[str, ...], Collection[str]]) -> list[str]:
    """Return the mangled end (`last`) of the path of an attribute in a module (`path`) in parts: `self_attn_scaling` is
    `self_attn`, `scaling` where other names show such a module (`children`), or the attribute is a usual one; else it
    stays one part."""
    known = [child for child in children.get(tuple(path), ()) if last.startswith(f"{child}_")]
    if known:
        child = max(known, key=len)
        return [child, last.removeprefix(f"{child}_")]
    if match := re.match(r"^(\d+)_(\D.*)$", last):  # `0_eps`: a number is an item of a ModuleList
        return [match[1], match[2]]
    ends = [word for word in ATTRIBUTES if last.endswith(f"_{word}")]
    if ends and path:
        word = max(ends, key=len)
        return [last.removesuffix(f"_{word}"), word]
    return [last]


def _name_meaning(name: str) -> str:
    """Return the use of a tensor that the last telling word of its name says: a mask, an index, a position; else ''."""
    words = re.split(r"[._]+|(?<=[a-z])(?=[A-Z])", name)
    return next((WORDS[word.lower()] for word in reversed(words) if word.lower() in WORDS), "")


# ---- The uses of an input, as far as they limit its values
# An input is followed through operators that keep its values (views, casts, copies, slices, added numbers) to the calls
# of the table. Left out: values that are computed from several inputs, except sums that go into a softmax.


@dataclass(frozen=True, slots=True)
class _ValueSource:
    """An input whose values an expression has. `added` is the number that was added to them; `own_shape` says that the
    expression has the input's shape, `summed` that other values were added."""

    name: str
    added: float = 0.0
    own_shape: bool = True
    summed: bool = False


VALUE_PRESERVING = frozenset(
    "view reshape to long int float double half bfloat16 type type_as contiguous expand expand_as unsqueeze squeeze "
    "flatten transpose permute t clone detach repeat view_as reshape_as narrow chunk split unbind tensor_split "
    "swapaxes movedim ravel unflatten cpu requires_grad_ repeat_interleave tile select index_select "
    "swapdims flip roll masked_select requires_grad".split()
)
"""Methods whose results have only values of their first argument; likewise functions of these names."""

SHAPE_PRESERVING = frozenset("to long int float double half bfloat16 type type_as contiguous clone detach cpu".split())
"""Methods of VALUE_PRESERVING that keep the shape as well."""


class UseRule(NamedTuple):
    """What a call says of one of its arguments: the position and the keyword of the argument (`places`), its use (a
    word of USES in metas.py), and the position of the argument that it indexes, if it indexes one."""

    places: tuple[int | str, ...]
    kind: str
    indexed: int | None = None


INDEXING_CALLS: Mapping[str, tuple[int, int]] = {
    "index_select": (2, 1),
    "gather": (2, 1),
    "take_along_dim": (1, 2),
    "scatter": (2, 1),
    "scatter_add": (2, 1),
    "scatter_": (2, 1),
    "scatter_add_": (2, 1),
    "index_add": (2, 1),
    "index_add_": (2, 1),
    "index_copy_": (2, 1),
    "index_fill_": (2, 1),
    "scatter_reduce": (2, 1),
    "scatter_reduce_": (2, 1),
}
"""Calls that index their first argument: the position of the index, and of the dimension."""

USES_OF_ARGUMENTS: Mapping[str, tuple[UseRule, ...]] = {
    "embedding": (UseRule((0, "input"), "index", indexed=1),),
    "torch.embedding": (UseRule((1, "indices"), "index", indexed=0),),
    "embedding_bag": (UseRule((0, "input"), "index", indexed=1),),
    "torch.embedding_bag": (UseRule((1, "indices"), "index", indexed=0),),
    "batch_norm": (UseRule((1, "running_mean"), "average"), UseRule((2, "running_var"), "variance")),
    "instance_norm": (UseRule((1, "running_mean"), "average"), UseRule((2, "running_var"), "variance")),
    "masked_fill": (UseRule((1, "mask"), "mask"),),
    "masked_fill_": (UseRule((1, "mask"), "mask"),),
    "masked_select": (UseRule((1, "mask"), "mask"),),
    "masked_scatter": (UseRule((1, "mask"), "mask"),),
    "where": (UseRule((0, "condition"), "mask"),),
    "Tensor.where": (UseRule((1, "condition"), "mask"),),
    "multi_head_attention_forward": (UseRule(("key_padding_mask",), "mask"), UseRule(("attn_mask",), "additive")),
    "scaled_dot_product_attention": (UseRule((3, "attn_mask"), "additive"),),
    "cross_entropy": (UseRule((1, "target"), "target"),),
    "cross_entropy_loss": (UseRule((1, "target"), "target"),),
    "nll_loss": (UseRule((1, "target"), "target"),),
    "log": (UseRule((0, "input"), "positive"),),
    "log2": (UseRule((0, "input"), "positive"),),
    "log10": (UseRule((0, "input"), "positive"),),
    "sqrt": (UseRule((0, "input"), "positive"),),
    "sqrt_": (UseRule((0, "input"), "positive"),),
    "rsqrt": (UseRule((0, "input"), "positive"),),
    "reciprocal": (UseRule((0, "input"), "positive"),),
    "div": (UseRule((1, "other"), "positive"),),
    "div_": (UseRule((1, "other"), "positive"),),
    "true_divide": (UseRule((1, "other"), "positive"),),
    "item": (UseRule((0,), "read"),),
    "tolist": (UseRule((0,), "read"),),
    "_local_scalar_dense": (UseRule((0,), "read"),),
    "one_hot": (UseRule((0,), "index"),),
}
"""The uses of calls' arguments, by the last part of a function's name; a row of the full name takes precedence."""

SOFTMAX = ("softmax", "log_softmax", "_softmax")
"""Functions whose argument, if it is a sum, has a mask as an addend."""


def uses_of(program: ModelProgram, metas: Mapping[str, Meta]) -> dict[str, Use]:
    """Return what the program does with each argument, by its name in the code. Raise RefusedError if its lines show
    more inputs together than can be followed (MOST_STEPS)."""
    walk = _UseFinder([argument.name for argument in program.arguments], metas)
    for line in program.lines:
        sources = walk.visit(line.value) if line.value is not None else ()
        match line:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    walk.bind(target, value, sources)
            case ast.AugAssign(target=target, op=op, value=value):
                operation = ast.BinOp(target, op, value)  # `x += y` as `x = x + y`
                walk.note_uses(operation)
                if isinstance(target, ast.Name):
                    walk.env[target.id] = walk.sources_of(operation)
    return {argument.name: walk.use(argument.name) for argument in program.arguments}


MAX_INPUTS_OF_VALUE = 64
"""The most ValueSources of one value; beyond it, equal ones are merged, with the largest `added`."""

MOST_STEPS = 5_000_000
"""The most ValueSources of all expressions of a program together."""


def _merge_sources(sources: Iterable[_ValueSource]) -> tuple[_ValueSource, ...]:
    """Return ValueSources without duplicates; of more than MAX_INPUTS_OF_VALUE, those that differ in `added` alone
    become one. So a value that is joined to itself again and again does not grow."""
    merged = dict.fromkeys(sources)
    if len(merged) <= MAX_INPUTS_OF_VALUE:
        return tuple(merged)
    most: dict[tuple[str, bool, bool], _ValueSource] = {}
    for source in merged:
        key = (source.name, source.own_shape, source.summed)
        if key not in most or most[key].added < source.added:
            most[key] = source
    return tuple(most.values())


class _UseFinder:
    """The state of one walk through a program's lines.

    A variable or an expression *shows* an input if it has the input's values: in the input's `own_shape` or another,
    with a number `added`, or `summed` with other values (`_ValueSource`). `env` has the inputs that each variable
    shows, `kinds` and `below` what was noted of each input (`Use`), and `steps` counts what was looked at, against
    MOST_STEPS.
    """

    def __init__(self, names: Iterable[str], metas: Mapping[str, Meta]) -> None:
        self.env: dict[str, tuple[_ValueSource, ...]] = {name: (_ValueSource(name),) for name in names}
        self.metas = metas
        self.kinds: dict[str, set[str]] = {}
        self.below: dict[str, int] = {}
        self.steps = 0

    def use(self, name: str) -> Use:
        """Return the Use found for an input."""
        return Use(frozenset(self.kinds.get(name, ())), self.below.get(name))

    def bind(self, target: ast.expr, value: ast.expr, sources: tuple[_ValueSource, ...]) -> None:
        """Let the variables of a target show the inputs that a value shows (`sources`)."""
        match target, value:
            case ast.Name(id=name), _:
                self.env[name] = sources
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) | ast.List(elts=values) if len(targets) == len(values):
                for element, other in zip(targets, values, strict=True):
                    self.bind(element, other, self.sources_of(other))
            case ast.Tuple(elts=targets), _:  # each shows parts of the value, as of `x.chunk(2)`
                for element in targets:
                    self.bind(element, value, tuple(replace(source, own_shape=False) for source in sources))
            case ast.Subscript(), _:  # `x[index] = …` uses `index`, and binds no variable
                self.note_uses(target)

    def visit(self, value: ast.expr) -> tuple[_ValueSource, ...]:
        """Note what an expression does with inputs, inner expressions first; returns the inputs that it shows."""
        for part in ast.iter_child_nodes(value):
            inner = part.value if isinstance(part, ast.keyword) else part
            if isinstance(inner, ast.expr):
                self.visit(inner)
        self.note_uses(value)
        return self.sources_of(value)

    # ---- The inputs whose values an expression has

    def sources_of(self, value: ast.expr) -> tuple[_ValueSource, ...]:
        """Return the inputs whose values an expression has, merged and counted."""
        sources = self._unmerged_sources(value)
        if len(sources) > 1:
            sources = _merge_sources(sources)
        self.steps += 1 + len(sources)
        if self.steps > MOST_STEPS:
            raise RefusedError(f"following the inputs through the lines takes more than {MOST_STEPS:,} steps")
        return sources

    def _unmerged_sources(self, value: ast.expr) -> tuple[_ValueSource, ...]:
        """Return the inputs whose values an expression has, as often as they occur in it: through a method or function
        of VALUE_PRESERVING, items and padding, concatenation, a number that is added, and the mask that is added to the
        scores of an attention. () for any other expression."""
        match value:
            case ast.Name(id=name):
                return self.env.get(name, ())
            case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in VALUE_PRESERVING:
                return self._rearranged_sources(of, name)
            case ast.Call(func=ast.Name(id=target), args=[of, *_]) if _last_name(target) in VALUE_PRESERVING:
                return self._rearranged_sources(of, _last_name(target))
            case (
                ast.Subscript(value=of)
                | ast.Call(func=ast.Name(id="torch.nn.functional.pad" | "torch._C._nn.pad"), args=[of, *_])
            ):
                return tuple(replace(source, own_shape=False) for source in self.sources_of(of))
            case ast.Call(
                func=ast.Name(id="torch.cat" | "torch.stack" | "torch.concat"),
                args=[ast.Tuple(elts=items) | ast.List(elts=items), *_],
            ):
                return tuple(replace(source, own_shape=False) for item in items for source in self.sources_of(item))
            case ast.BinOp(
                left=left, op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=int() | float() as number)
            ):
                more = number if isinstance(op, ast.Add) else -number
                return tuple(replace(source, added=source.added + more) for source in self.sources_of(left))
            # The right operand alone, as the mask is in `scores + mask`: `note_uses` takes it for one if the sum goes
            # into a softmax.
            case ast.BinOp(op=ast.Add(), right=right):
                return tuple(replace(source, summed=True) for source in self.sources_of(right))
        return ()

    def _rearranged_sources(self, of: ast.expr, name: str) -> tuple[_ValueSource, ...]:
        """Return the inputs that the result of a method or function of VALUE_PRESERVING (`name`) shows: those of its
        first argument (`of`), in their own shape only if the method keeps shapes."""
        keeps_shape = name in SHAPE_PRESERVING
        return tuple(replace(source, own_shape=source.own_shape and keeps_shape) for source in self.sources_of(of))

    # ---- Calls that limit the values of an input

    def note_uses(self, value: ast.expr) -> None:
        """Note what one expression, without the expressions in it, does with the inputs that its operands show. A
        divisor and the base of a fractional power are positive, what is taken from 1 is a flag, what `~` inverts is a
        mask."""
        match value:
            case ast.Call(func=ast.Attribute(value=of, attr=name), args=args, keywords=keywords):
                self._note_call(f"Tensor.{name}", [of, *args], keywords)
            case ast.Call(func=ast.Name(id=target), args=args, keywords=keywords):
                self._note_call(target, args, keywords)
            case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod(), right=right):
                self._note_kind(right, "positive")
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=float() as power)):
                if not power.is_integer():
                    self._note_kind(left, "positive")
            case ast.BinOp(left=ast.Constant(value=1 | 1.0), op=ast.Sub(), right=right):
                self._note_kind(right, "flag")
            case ast.UnaryOp(op=ast.Invert(), operand=of):
                self._note_kind(of, "mask")
            case ast.Subscript(value=of, slice=index):
                self._note_indices(of, index)

    def _note_call(self, target: str, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> None:
        """Note what a call does with its arguments, by the tables USES_OF_ARGUMENTS and INDEXING_CALLS. The first of
        `args` is the tensor if it is a method, whose `target` is `Tensor.NAME`."""
        name = _last_name(target)
        kwargs = {str(keyword.arg): keyword.value for keyword in keywords}
        for rule in USES_OF_ARGUMENTS.get(target, USES_OF_ARGUMENTS.get(name, ())):
            for argument in _arguments_at(rule.places, args, kwargs):
                self._note_kind(argument, rule.kind)
                # An index is below the first size of what it indexes.
                if rule.indexed is not None and rule.indexed < len(args):
                    self._note_bound(argument, self.size(args[rule.indexed], dim=0))
        match name, args:
            case "one_hot", [indices, ast.Constant(value=int(classes)), *_]:
                self._note_bound(indices, classes if classes > 0 else None)  # -1: as many as the indices need
        if name in INDEXING_CALLS:
            index_place, dim_place = INDEXING_CALLS[name]
            for argument in _arguments_at((index_place, "index"), args, kwargs):
                self._note_kind(argument, "index")
                for dim in _arguments_at((dim_place, "dim"), args, kwargs):
                    if isinstance(dim, ast.Constant) and isinstance(dim.value, int):
                        self._note_bound(argument, self.size(args[0], dim.value))
        if name in SOFTMAX and args:
            for source in self.sources_of(args[0]):
                if source.summed:
                    self.kinds.setdefault(source.name, set()).add("additive")

    def _note_indices(self, of: ast.expr, index: ast.expr) -> None:
        """Note the indices in brackets, `of[index]`: each is below the size of the dimension at its place. A number or
        a slice in brackets is no input."""
        items = index.elts if isinstance(index, (ast.Tuple, ast.List)) else [index]
        for dim, item in enumerate(items):
            if not isinstance(item, ast.Constant) and not is_slice(item):
                self._note_kind(item, "index")
                self._note_bound(item, self.size(of, dim))

    def _note_kind(self, value: ast.expr, kind: str) -> None:
        """Note a use of the inputs that a value shows, except of those to which other values were added: the sum is
        what is used then."""
        for source in self.sources_of(value):
            if not source.summed:
                self.kinds.setdefault(source.name, set()).add(kind)

    def _note_bound(self, value: ast.expr, size: int | None) -> None:
        """Bound the inputs that a value shows by `size`, less what was added to them: `x + 2` is below 10 if `x` is
        below 8. Nothing if the size is not known (None)."""
        for source in self.sources_of(value):
            if size is not None and not source.summed and math.isfinite(source.added):
                most = size - int(source.added)
                self.below[source.name] = min(most, self.below.get(source.name, most))

    def size(self, value: ast.expr, dim: int) -> int | None:
        """Return the size of a dimension of a value that has the shape of one input; None for any other value, or
        without such a dimension."""
        shapes = [
            self.metas[source.name].shape
            for source in self.sources_of(value)
            if source.own_shape and source.name in self.metas
        ]
        return shapes[0][dim] if len(shapes) == 1 and -len(shapes[0]) <= dim < len(shapes[0]) else None


def _last_name(target: str) -> str:
    """Return the last part of a function's name; an operator's name without its overload."""
    *rest, name = target.split(".")
    return rest[-1] if name == "default" and rest else name


def _arguments_at(
    places: tuple[int | str, ...], args: Sequence[ast.expr], kwargs: Mapping[str, ast.expr]
) -> Iterator[ast.expr]:
    """Yield the arguments given at any of these positions and keywords."""
    for place in places:
        if isinstance(place, int) and place < len(args):
            yield args[place]
        elif place in kwargs:
            yield kwargs[str(place)]


# ---- Inputs that require grad: by roles, names, values and uses
# Parameters do. Buffers, masks, indices and positions never do. Of the other floating-point inputs, those that an
# earlier part of a larger model computed do, so that gradients flow on into that part; in a graph without Parameters,
# all do. A sample that was cut out of a model names such a value as the model's graph does (`add_42`), and the model's
# own arguments as Dynamo does (`L_x_`).

FLOATING = re.compile(r"(?:float|bfloat|complex)\d+(?!_e)")
"""A dtype that can require grad: `float16`, but not `float8_e4m3fn`."""

_STACK = re.compile(r"(?:^|_)stack\d+(?:_|$)")
"""Dynamo's name for a value on Python's stack at a graph break: an earlier part of the model computed it."""

_SUBGRAPH = re.compile(r"subgraph_(\d+)(?:_|$)")
"""The folder of a graph of a model that has several, because of graph breaks; the number is its place among them."""

_CUT = re.compile(r".*_start\d+_end\d+_\d+")
"""The name that GraphNet's `SubgraphGenerator` gives to the steps of a model from `start` to before `end`."""

CUT_BELOW, CUT_SOURCES = "_decomposed", "subgraph_sources.json"
"""The folder that GraphNet's decomposers put such samples into, and the file that says what one was cut from."""

InputReason = tuple[str, str]
"""The own name of an input, and why it requires grad, or why it does not."""


def _split_by_grad(
    inputs: Sequence[NamedInput], metas: Mapping[str, Meta], uses: Mapping[str, Use], place: Path, title: str = ""
) -> tuple[tuple[InputReason, ...], tuple[InputReason, ...]]:
    """Split the inputs into those that require grad and those that do not, by the rules above FLOATING.

    `metas` and `uses` are by raw name; a number has no Meta. `place` is the folder of the sample, and `title` its name,
    which say whether it was cut out of a model: then an input that has no name of Dynamo's is a value that the model
    computed.
    """
    place = place.resolve()
    has_parameters = any(named.role == "parameter" and can_require_grad(metas, named) for named in inputs)
    is_later_part, is_cut = _is_later_part(place), _is_cut(place, title)
    traced_names = {named.raw: metas[named.raw].original_name or named.raw for named in inputs if named.raw in metas}
    arguments = [named.raw for named in inputs if named.role == "input" and named.raw in traced_names]
    computed_by_model = {raw for raw in arguments if is_cut and not _is_traced_name(traced_names[raw])}
    # By raw name: why an input does not require grad in any graph; '' where it may.
    reasons = {
        named.raw: _why_no_grad(named, metas[named.raw], uses.get(named.raw, Use()), named.raw in computed_by_model)
        if named.raw in metas
        else "a number"
        for named in inputs
    }
    has_computed_inputs = any(not reasons[raw] for raw in computed_by_model)
    with_grad: list[InputReason] = []
    without_grad: list[InputReason] = []
    for named in inputs:
        if why := reasons[named.raw]:
            without_grad.append((named.name, why))
        elif named.role == "parameter":
            with_grad.append((named.name, named.why))
        elif is_later_part or named.raw in computed_by_model or _STACK.search(traced_names[named.raw]):
            with_grad.append((named.name, "computed by the part of the model before this graph"))
        elif has_parameters or has_computed_inputs:
            without_grad.append((named.name, "an input of the whole model, which has Parameters"))
        else:
            with_grad.append((named.name, "a float of a graph that has no Parameter"))
    return tuple(with_grad), tuple(without_grad)


def can_require_grad(metas: Mapping[str, Meta], named: NamedInput) -> bool:
    """Whether an input's dtype can require grad."""
    return named.raw in metas and FLOATING.fullmatch(metas[named.raw].dtype) is not None


def _why_no_grad(named: NamedInput, meta: Meta, use: Use, is_computed: bool = False) -> str:
    """Return why an input does not require grad in any graph: it has no floating-point dtype, is no parameter of the
    state, or is a number, mask, index or position; '' where it may. `is_computed`: the model computes it, so that its
    name is that of an operator, and tells less."""
    if FLOATING.fullmatch(meta.dtype) is None:
        return f"{meta.dtype} has no gradient"
    if named.role == "parameter":
        return ""
    if named.why:  # the reason why it is a buffer
        return named.why
    if "read" in use.kinds:
        return "read as a number"
    meaning = _name_meaning(named.name)
    if is_computed:
        # An operator may be the name (`index_select_3`), zeros the values (of a relu), and what is added to the scores
        # of an attention a learned bias.
        if meaning == "mask":
            return "a mask by its name"
        return "a mask by its values" if _is_additive_mask(meta, use) else ""
    if not {"mask", "additive"}.isdisjoint(use.kinds):
        return "a mask by its use"
    if meaning:
        return f"{'an' if meaning == 'index' else 'a'} {meaning} by its name"
    if meta.data is not None and len(meta.data) > 1 and _has_mask_values(meta.data):
        return "a mask by its values"
    return ""


def _has_mask_values(data: Sequence[float]) -> bool:
    """Whether values are those of a mask: only 0 and 1, or only 0 and one large negative number."""
    return set(data) <= {0.0, 1.0} or _has_filled_values(data)


def _has_filled_values(data: Sequence[float]) -> bool:
    """Whether values are only 0 and one large negative number, as that of a mask that is added to scores (-1e4 is what
    models use in float16)."""
    values = set(data)
    return len(values) == 2 and max(values) == 0.0 and min(values) <= -1e4


def _is_additive_mask(meta: Meta, use: Use) -> bool:
    """Whether values are those of a mask that is added to scores: 0 and large negative numbers, or only 0, of a mask
    that hides nothing, if it is used as one."""
    if meta.data is not None:
        return _has_filled_values(meta.data) or ("additive" in use.kinds and set(meta.data) == {0.0})
    mean, std = meta.mean or 0.0, meta.std or 0.0
    return "additive" in use.kinds and ((mean == 0.0 and std == 0.0) or not mean > -1e4)  # or NaN


def _is_later_part(place: Path) -> bool:
    """Whether a folder holds a part of a model behind a graph break: `subgraph_3`, or what was cut out of it, but not
    `subgraph_0`, which is before the first one."""
    match = _SUBGRAPH.match(place.name)
    return match is not None and int(match[1]) > 0


def _is_cut(place: Path, title: str) -> bool:
    """Whether a sample was cut out of a larger graph, by a graph break or by GraphNet's tools, as its folder or its
    name (`title`) says."""
    return (
        _SUBGRAPH.match(place.name) is not None
        or any(_CUT.fullmatch(name) for name in (place.name, title))
        or place.parent.name == CUT_BELOW
        or (place / CUT_SOURCES).is_file()
    )


# ---- A `model.py` that Backprint wrote: the text of a Graph
# It is another language than GraphNet's own code: steps with annotations, `aten.NAME.OVERLOAD` calls and guards.

ALIASES = HEADER.rstrip("\n").rpartition("\n")[2]
"""The line of the header that no code of GraphNet's own has."""

# A device as Backprint writes it, `torch.device('cuda:0')`, and as GraphNet's tools find it, `device(type="cuda",
# index=0)`; and the line that imports what each needs.
_DEVICE = re.compile(r"torch\.device\('([a-z]+)(?::(\d+))?'\)")
MOVABLE_DEVICE = re.compile(r'\bdevice\(type="([a-z]+)"(?:, index=(\d+))?\)')
IMPORT, MOVABLE_IMPORT = "from torch import inf, nan\n", "from torch import device, inf, nan\n"


def with_movable_devices(text: str) -> str:
    """Return the text of a graph with its devices written as GraphNet's tools find and replace them."""

    def movable(match: re.Match[str]) -> str:
        device_type, index = match[1], match[2]
        return f'device(type="{device_type}", index={index})' if index else f'device(type="{device_type}")'

    return _DEVICE.sub(movable, text).replace(IMPORT, MOVABLE_IMPORT, 1)


def without_movable_devices(text: str) -> str:
    """Return the text of a graph as it was before `with_movable_devices`."""
    if MOVABLE_IMPORT not in text:
        return text

    def plain(match: re.Match[str]) -> str:
        device_type, index = match[1], match[2]
        return f"torch.device('{device_type}:{index}')" if index else f"torch.device('{device_type}')"

    return MOVABLE_DEVICE.sub(plain, text).replace(MOVABLE_IMPORT, IMPORT, 1)


def _is_graph_text(text: str) -> bool:
    """Whether a `model.py` is the text of a Graph."""
    return f"\n{ALIASES}\n" in text


def _read_graph_text(text: str) -> Graph:
    """Parse the text of a Graph into one that takes and returns tensors alone, at the sizes of its capture. Refuse a
    text with other lines below the graph than Backprint writes there (from MARKER on), custom operators, and an input
    that is no tensor."""
    body, marker, rest = text.partition(MARKER)
    graph = parse(without_movable_devices(body))
    if marker and marker + rest != ending(graph):
        number = body.count("\n") + 1
        raise RefusedError(
            f"line {number}: the lines below the graph are not those that samples of this version end with"
        )
    for step, target in custom_operators(graph):
        name = target.removeprefix("torch.ops.")
        raise RefusedError(f"step {step.name!r} calls {name}, which is not an operator of PyTorch")
    graph = contiguous_inputs(with_tensor_results_only(for_inference(with_constant_sizes(graph))))
    for port in graph.inputs:
        if not isinstance(port.spec, TensorSpec):
            raise GraphError(f"the graph takes {port.name!r}, which is not a tensor, so no metadata can say what it is")
    return graph


def for_inference(graph: Graph) -> Graph:
    """Return a forward without the values that it saves for its backward, and without the steps that only these need;
    but a graph that returns nothing else as it is, because a sample returns something."""
    return without_saved(graph) if any(port.role != "saved" for port in graph.outputs) else graph


def _graph_arguments(graph: Graph) -> tuple[ForwardArgument, ...]:
    """Return the inputs of a Graph as arguments of a `forward` that has one line, which runs the Graph."""
    return tuple(
        ForwardArgument(port.local, "Parameter" if port.role == "parameter" else "Tensor", line=1)
        for port in graph.inputs
    )


def _with_graph_dtypes(graph: Graph, metas: Mapping[str, Meta]) -> dict[str, Meta]:
    """Return metadata that lacks dtypes, with those of the Graph's inputs."""
    dtypes = {port.local: port.spec.dtype for port in graph.inputs if isinstance(port.spec, TensorSpec)}
    return {name: replace(meta, dtype=dtypes.get(name, meta.dtype)) for name, meta in metas.items()}


ROLES: Mapping[str, tuple[str, str]] = {
    "parameter": ("parameter", "a parameter of the graph"),
    "buffer": ("buffer", "a buffer of the graph"),
    "constant": ("buffer", "a constant of the graph"),
    "saved": ("input", "an input of a backward, which has no backward of its own"),
    "tangent": ("input", "an input of a backward, which has no backward of its own"),
}
"""The role in a sample of an input of a Graph, by its role there, and why it has that role; any other is an `input`."""


def _graph_roles(graph: Graph) -> dict[str, tuple[str, str]]:
    """Return the role of each input of a Graph in a sample, by its name in the code, and why it has that role."""
    return {port.local: ROLES.get(port.role, ("input", "")) for port in graph.inputs}


# ---- The folder


@dataclass(frozen=True, slots=True)
class GraphNetSample:
    """The content of a GraphNet folder: its program, the metadata of its inputs by their names in the code, and the
    facts of `graph_net.json`, with notes for a report.

    Where Backprint wrote `model.py`, `graph` is what it says, and `program` is None. Both are None where the parser
    refuses the file and the caller trusts it: `refused` says why, and building the sample executes the file.
    """

    path: Path
    name: str
    program: ModelProgram | None
    metas: Mapping[str, Meta]
    facts: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    refused: str = ""
    graph: Graph | None = None

    @property
    def arguments(self) -> tuple[ForwardArgument, ...]:
        """The inputs in order: those of `forward`, or where it is not parsed, those that have metadata."""
        if self.program is not None:
            return self.program.arguments
        if self.graph is not None:
            return _graph_arguments(self.graph)
        return tuple(ForwardArgument(name, _guess_annotation(name, meta), line=1) for name, meta in self.metas.items())


def _guess_annotation(name: str, meta: Meta) -> str:
    """Guess the annotation of an argument of a file that was not parsed, from its name in the metadata: `s0` is a size,
    and Dynamo has `parameters` in the name of a parameter."""
    if re.fullmatch(r"[su]\d+", name) and not meta.shape:
        return "SymInt"
    return "Parameter" if re.search(r"_parameters_|^[Ll]_(?:self|instance)_parameters_", name) else "Tensor"


def read_graphnet(path: Path | str, trust: bool = False) -> GraphNetSample:
    """Read a GraphNet sample. With `trust`, a refused `model.py` is accepted, and executed when the sample is built.

    Raise SampleError for a folder that is none, RefusedError or GraphError, with the line, for a `model.py` that has
    what no graph has.
    """
    path = Path(path)
    if not (path / "model.py").is_file():
        raise SampleError(f"{path}: not a GraphNet sample: there is no model.py")
    if is_direction(path):
        raise SampleError(f"{path}: one direction of a sample of ours: the sample is {path.parent.parent}")
    facts = read_sample_facts(path)
    metas, notes = read_sample_metas(path)
    program, graph, refused = None, None, ""
    text = read_sample_text(path / "model.py")
    try:
        if _is_graph_text(text):
            graph = _read_graph_text(text)
        else:
            program = read_code(text)
    except GraphError as error:
        message = re.sub(r"^line (\d+): ", rf"{path / 'model.py'}:\1: ", str(error))  # `line 7: …` as `PATH:7: …`
        message = message if message != str(error) else f"{path / 'model.py'}: {error}"
        if not trust:
            kind = RefusedError if isinstance(error, RefusedError) else GraphError
            raise kind(f"{message}. If you trust the file, --trust (trust=True) executes it") from None
        refused = message
    if UNTYPED in notes and program is not None:
        metas = _infer_dtypes(program, metas)
    elif UNTYPED in notes and graph is not None:
        metas, notes = _with_graph_dtypes(graph, metas), ()
    sample = GraphNetSample(path, sample_name(path, facts), program, metas, facts, notes, refused, graph)
    _check_metadata(sample)
    return sample


def _check_metadata(sample: GraphNetSample) -> None:
    """Raise where an argument that is a tensor has no metadata."""
    absent = [
        argument.name
        for argument in sample.arguments
        if _needs_metadata(argument) and argument.name not in sample.metas
    ]
    if absent:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise SampleError(
            f"{sample.path}: no metadata says what {', '.join(absent[:3])}{more} are, which forward takes"
        )


def _infer_dtypes(program: ModelProgram, metas: Mapping[str, Meta]) -> dict[str, Meta]:
    """Return metadata that lacks dtypes with what they may be: an input that the graph uses as an index is int64."""
    uses = uses_of(program, metas)
    return {
        name: replace(meta, dtype="int64") if name in uses and "index" in uses[name].kinds else meta
        for name, meta in metas.items()
    }


def _needs_metadata(argument: ForwardArgument) -> bool:
    """Whether an argument is a tensor and so needs metadata."""
    return not argument.kind.startswith("Sym")


def sample_name(path: Path, facts: Mapping[str, Any]) -> str:
    """Return the sample's name from its facts, else from its folder."""
    title = facts.get("model_name")
    name = title if isinstance(title, str) and title.strip() else path.resolve().name
    return "".join(c if c.isprintable() else "_" for c in name)[:200]


# ---- The inputs: names, roles, uses, and whether they require grad


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """A sample's inputs before any tensor is allocated, with their metadata and uses by their names in the code, and
    which require grad, with the reasons."""

    inputs: tuple[NamedInput, ...]
    metas: Mapping[str, Meta]
    uses: Mapping[str, Use]
    with_grad: tuple[InputReason, ...]
    without_grad: tuple[InputReason, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all inputs."""
        return sum(tensor_bytes(meta) for meta in self.metas.values())


def plan_of(sample: GraphNetSample) -> SamplePlan:
    """Plan a sample: its inputs' names, roles and uses, and which require grad. The uses are known only where
    `model.py` was parsed; a Graph says the roles of its inputs itself."""
    inputs = name_inputs(
        sample.arguments, sample.metas, _graph_roles(sample.graph) if sample.graph is not None else None
    )
    numbers = {argument.name for argument in sample.arguments if argument.kind.startswith("Sym")}
    metas = {named.raw: sample.metas[named.raw] for named in inputs if named.raw not in numbers}
    uses = uses_of(sample.program, metas) if sample.program is not None else {}
    with_grad, without_grad = _split_by_grad(inputs, metas, uses, sample.path, sample.name)
    return SamplePlan(inputs, metas, uses, with_grad, without_grad)


def tensor_bytes(meta: Meta) -> int:
    """Return the bytes of a tensor."""
    return math.prod(meta.shape) * dtype_itemsize(meta.dtype)


# ---- The identity of a sample: its code without names, lines and devices


def sample_identity(folder: Path, exact: bool) -> tuple[str, int]:
    """Return a text that samples of the same program share, and how many elements their inputs have; with `exact`, only
    samples of the same shapes share it."""
    sample = read_graphnet(folder)
    examples = read_symbol_examples(folder)
    inputs = [(argument.name, sample.metas.get(argument.name)) for argument in sample.arguments]
    # Of a number, which has no metadata, its example value.
    shapes = [(meta.shape, meta.dtype) if meta else examples.get(argument) for argument, meta in inputs]
    if sample.program is not None:
        text = _program_text(sample.program)
    else:
        assert sample.graph is not None  # without trust, a sample that is not parsed is refused
        text = sample.graph.hash(sizes=exact)
    text += repr(shapes) if exact else ""
    return text, sum(math.prod(meta.shape) for _, meta in inputs if meta)


def _program_text(program: ModelProgram) -> str:
    """Return a program as a text without names, line numbers, devices, and the lines that only free values (`x =
    None`)."""
    renamer = _Renamer()
    lines = [f"{renamer.bind(argument.name)} {argument.kind}" for argument in program.arguments]
    for line in program.copied_lines():
        match line:
            case ast.Assign(targets=targets, value=ast.Constant(value=None)) if all(
                isinstance(target, ast.Name) for target in targets
            ):
                # What reads a freed name later reads None.
                renamer.numbers |= {target.id: "None" for target in targets if isinstance(target, ast.Name)}
            case _:
                lines.append(ast.dump(renamer.visit(line)))
    return "\n".join(lines)


class _Renamer(ast.NodeTransformer):
    """Numbers the values of a program in the order in which lines bind them; all devices have one name. `numbers` has
    what stands for each name now, and `fresh` counts."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = dict.fromkeys((DEVICE_TEXT, META), DEVICE)
        self.fresh = count()

    def bind(self, name: str) -> str:
        """Give a name the next number, `%3`, and return that; a name that is bound again gets another."""
        self.numbers[name] = f"%{next(self.fresh)}"
        return self.numbers[name]

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        node.value = self.visit(node.value)  # before the targets, which may bind a name that it reads
        node.targets = [self.visit(target) for target in node.targets]
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AugAssign:
        """Read the target instead of binding it: after an update in place, the name stands for the same value."""
        node.target.ctx = ast.Load()
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        name = self.bind(node.id) if isinstance(node.ctx, ast.Store) else self.numbers.get(node.id, node.id)
        return ast.Name(name, node.ctx)
