"""The program's own names behind GraphNet's.

`L_self_modules_stem_modules_conv1_parameters_weight_` is `stem.conv1.weight`. Dynamo mangles the whole path of a tensor
into one identifier, in which `_` may also be part of a name: `parameters_` and `buffers_` end a path for sure, a plain
attribute (`..._layernorm_eps`) does not. An ambiguous path stays unsplit, and no two tensors get the same name.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from backprint.graphnet.code import ForwardArgument
from backprint.graphnet.meta import Meta

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
    """An input of a sample: its name in the code, its own name, its role, and why it has that role."""

    raw: str
    name: str
    role: str
    why: str


_PREFIX = re.compile(r"^(?:object_getattribute_|dict_getitem_|getattr_)+(?=[Ll]_)")
_STATE = re.compile(r"^[Ll]_(?:self|instance)_(.+)$")
_END = re.compile(r"^(?:(.*)_)?(parameters|buffers)_(.+?)_?$")
_LABEL = re.compile(r"[^0-9A-Za-z_.]")


def name_inputs(
    arguments: Sequence[ForwardArgument], metas: Mapping[str, Meta], roles: Mapping[str, tuple[str, str]] | None = None
) -> tuple[NamedInput, ...]:
    """Give every argument its own name. Names are unique, and no tensor has the name of a module.

    `roles` has the role of each argument and the reason for it, where names and annotations do not have to tell.
    """
    children = modules_in_names([argument.name for argument in arguments])
    found: list[NamedInput] = []
    taken: dict[str, bool] = {}
    inner: set[str] = set()
    for argument in arguments:
        meta = metas.get(argument.name)
        name, role, why = name_and_role(argument, children)
        role, why = (roles or {}).get(argument.name, (role, why))
        if meta is not None and meta.original_name:
            name = _LABEL.sub("_", meta.original_name)
        if role == "input" and (not name.isidentifier() or keyword.iskeyword(name) or name == "self"):
            name = re.sub(r"\W", "_", name)
            name = name if name.isidentifier() and not keyword.iskeyword(name) and name != "self" else f"input_{name}"
        state = role != "input"
        if not is_free(name, state, taken, inner):
            name = argument.name if is_free(argument.name, state, taken, inner) else f"{argument.name}_{len(taken)}"
        taken[name] = state
        inner |= set(enclosing_modules(name)) if state else set()
        found.append(NamedInput(argument.name, name, role, why))
    return tuple(found)


def is_free(name: str, state: bool, taken: Mapping[str, bool], inner: Collection[str]) -> bool:
    """Whether a name is free for a tensor; that of a module's tensor is neither a module's nor below a tensor's."""
    steps = name.split(".")
    if (
        not all(steps)
        or name in taken
        or (state and (MEMBERS.intersection(steps) or any("__" in s[:2] for s in steps)))
    ):
        return False
    return not state or (name not in inner and not any(taken.get(each) for each in enclosing_modules(name)))


def enclosing_modules(name: str) -> list[str]:
    """The modules that enclose a tensor: `a` and `a.b` of `a.b.weight`."""
    steps = name.split(".")
    return [".".join(steps[:count]) for count in range(1, len(steps))]


def name_and_role(
    argument: ForwardArgument, children: Mapping[tuple[str, ...], Collection[str]]
) -> tuple[str, str, str]:
    """The own name of an argument, its role, and why."""
    raw = _PREFIX.sub("", argument.name)
    number = argument.kind.startswith("Sym")
    state = _STATE.match(raw)
    if state is None or number:
        role, why = ("parameter", "a Parameter by its annotation") if argument.kind == "Parameter" else ("input", "")
        if raw.startswith("G_"):
            role, why = "buffer", "a global of the program"
        return call_argument_name(raw, state), role, why
    *path, last = module_path(state[1])
    end = _END.match(last)
    if end is not None:
        name = ".".join([*path, *([end[1]] if end[1] else []), end[3]])
        if end[2] == "parameters" or argument.kind == "Parameter":
            return name, "parameter", "a parameter by its name"
        return name, "buffer", "a buffer by its name"
    if argument.kind == "Parameter":
        return ".".join([*path, last.rstrip("_")]), "parameter", "a Parameter by its annotation"
    return ".".join([*path, *attribute_path(path, last.rstrip("_"), children)]), "buffer", "an attribute of a module"


def call_argument_name(raw: str, state: re.Match[str] | None) -> str:
    """The name of an argument of the call: `L_kwargs_input_ids_` is `input_ids`."""
    name = state[1] if state else re.sub(r"^[Ll]_", "", raw)
    name = re.sub(r"^(?:kwargs|args)_(?=[A-Za-z])", "", name).rstrip("_")
    return name or raw


def module_path(text: str) -> list[str]:
    """`modules_a_modules_0_modules_b_eps` as `a`, `0`, `b_eps`."""
    if not text.startswith("modules_"):
        return [text]
    return text.removeprefix("modules_").split("_modules_")


def modules_in_names(names: Sequence[str]) -> dict[tuple[str, ...], set[str]]:
    """The modules that the names spell unambiguously, by the path of the enclosing module."""
    found: dict[tuple[str, ...], set[str]] = {}
    for raw in names:
        state = _STATE.match(_PREFIX.sub("", raw))
        if state is None or not state[1].startswith("modules_"):
            continue
        *path, last = module_path(state[1])
        end = _END.match(last)
        steps = [*path, *([end[1]] if end and end[1] else [])]
        for depth, step in enumerate(steps):
            found.setdefault(tuple(steps[:depth]), set()).add(step)
    return found


def attribute_path(path: Sequence[str], last: str, children: Mapping[tuple[str, ...], Collection[str]]) -> list[str]:
    """`self_attn_scaling` as `self_attn`, `scaling`, where a module of that name is known or the attribute is."""
    known = [child for child in children.get(tuple(path), ()) if last.startswith(f"{child}_")]
    if known:
        child = max(known, key=len)
        return [child, last.removeprefix(f"{child}_")]
    if found := re.match(r"^(\d+)_(\D.*)$", last):
        return [found[1], found[2]]
    ends = [word for word in ATTRIBUTES if last.endswith(f"_{word}")]
    if ends and path:
        word = max(ends, key=len)
        return [last.removesuffix(f"_{word}"), word]
    return [last]


def name_meaning(name: str) -> str:
    """The use of a tensor that the words of its name say: a mask, an index, a position; else ''."""
    words = re.split(r"[._]+|(?<=[a-z])(?=[A-Z])", name)
    return next((WORDS[word.lower()] for word in reversed(words) if word.lower() in WORDS), "")
