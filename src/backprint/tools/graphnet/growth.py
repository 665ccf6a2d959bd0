"""Arithmetic, lists and texts of a GraphNet program that could grow without end: each has a limit.

`t = (t, t)`, forty times, is a tuple of a million million items. So `bounded_lines` puts a call of a function below
where a line makes a list, or computes what could be a number, a list or a text of any size; whether it is one is seen
when the line runs. A tensor passes through. Tracers and tracebacks still see the line of `model.py`, because its frame
makes the call.

A program's lines are `ast` nodes in which a function is one `ast.Name` with its dots: `call_node("bounded.add", x, y)`
is the call `bounded.add(x, y)`. BOUNDED has the functions by these names. `growth_complaint(target, operands)` says
what would be too large about the result of an operator, and '' if nothing is.
"""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from backprint.errors import ReplayError
from backprint.tools.graphnet.code import ModelProgram, Statement, call_node, is_slice, set_line
from backprint.values.bounds import MOST_ITEMS, growth_complaint, tree_size

# ---- Where a program is changed

OPERATORS = {ast.Add: "add", ast.Mult: "mul", ast.Pow: "pow", ast.LShift: "lshift", ast.Mod: "mod"}
"""Arithmetic that may grow without end; `%` also formats texts."""

BOUNDED_OPERATORS = {kind: f"bounded.{name}" for kind, name in OPERATORS.items()}
BOUNDED_IN_PLACE = {kind: f"bounded.i{name}" for kind, name in OPERATORS.items()}
"""The names of the functions in the place of `x + y` and of `x += y`, by the class of the operator's node."""

TIMES, ITEMS, REQUIRE_TENSOR, TOLIST = "bounded.times", "bounded.items", "bounded.tensor", "bounded.tolist"
FLAT_SLICE = "bounded.slice"
"""The names of the other functions: a product with a small number, a list that is made, a tensor that is required,
`tolist`, and a slice without others in it."""


def bounded_lines(program: ModelProgram) -> list[Statement]:
    """Return a copy of a program's lines in which what may grow without end is a call of a function of BOUNDED."""
    return [set_line(_BoundCalls().visit(line), line.lineno) for line in program.copied_lines()]


class _BoundCalls(ast.NodeTransformer):
    """Puts the calls into a line, inner ones first."""

    def visit_Tuple(self, node: ast.Tuple | ast.List | ast.Dict) -> ast.expr:
        """Bound a tuple, list or dictionary where it is made, if an item may itself be one; the targets of an
        assignment make none."""
        items = node.values if isinstance(node, ast.Dict) else node.elts
        is_target = not isinstance(node, ast.Dict) and isinstance(node.ctx, ast.Store)
        is_flat = all(isinstance(item, ast.Constant) or is_slice(item) for item in items)
        self.generic_visit(node)
        return node if is_target or is_flat else call_node(ITEMS, node)

    visit_List = visit_Dict = visit_Tuple

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """Turn `target += value`, where it may grow without end, into `target = bounded.iadd(target, value)`."""
        if type(node.op) not in BOUNDED_IN_PLACE:
            self.generic_visit(node)
            return node
        before = copy.deepcopy(node.target)  # a second node, as one that is read has another context
        before.ctx = ast.Load()
        assignment = ast.Assign([node.target], call_node(BOUNDED_IN_PLACE[type(node.op)], before, node.value))
        self.generic_visit(assignment)
        return assignment

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Turn `left + right`, where it may grow without end, into `bounded.add(left, right)`, and a product with a
        small number into `bounded.times(left, right)`."""
        self.generic_visit(node)
        if type(node.op) not in BOUNDED_OPERATORS:
            return node
        by_constant = isinstance(node.op, ast.Mult) and any(map(_is_small_number, (node.left, node.right)))
        return call_node(TIMES if by_constant else BOUNDED_OPERATORS[type(node.op)], node.left, node.right)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Require a tensor where an item is written to, because a list could come to hold itself."""
        self.generic_visit(node)
        node.value = call_node(REQUIRE_TENSOR, node.value) if isinstance(node.ctx, ast.Store) else node.value
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Require a tensor for a method that is arithmetic (`x.__add__`), bound the list that `tolist` returns, and
        refuse slices of slices."""
        self.generic_visit(node)
        if is_slice(node) and not all(isinstance(bound, ast.Constant) for bound in node.args):
            return call_node(FLAT_SLICE, *node.args)
        # A Name is a function of torch, an Attribute a method. `__getitem__` of a list is as harmless as brackets.
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr="tolist"), args=[], keywords=[]):
                return call_node(TOLIST, of)
            case ast.Call(func=ast.Attribute(value=of, attr=name) as method):
                if name.startswith("__") and name != "__getitem__":
                    method.value = call_node(REQUIRE_TENSOR, of)
        return node


def _is_small_number(node: ast.expr) -> bool:
    """Whether a node is a number of up to 64: a product with it has few more bits, which need no bound."""
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and abs(node.value) <= 64


# ---- What bounds a value where it runs
# Dynamo reads these functions as it reads the program: on a symbolic size they must ask for nothing that would fix it.


SEQUENCES = (str, list, tuple)
"""What `+` and `*` make longer."""


def _bounded_operator(name: str) -> Callable[[Any, Any], Any]:
    """Return the function of this name of the module `operator`, but one that refuses a result which would pass a
    limit, and a list or text together with a tensor."""
    function: Callable[[Any, Any], Any] = getattr(operator, name)
    target = f"operator.{name.removeprefix('i')}"  # `iadd` has the limit of `add`

    def call(left: Any, right: Any) -> Any:
        """Return the operator's result, or raise ReplayError before anything large is made."""
        if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
            # Python repeats a list as often as a tensor of one integer says.
            if isinstance(left, SEQUENCES) or isinstance(right, SEQUENCES):
                raise ReplayError(f"a list or a text and a tensor are operands of {target}; no graph needs that")
            return function(left, right)
        if complaint := growth_complaint(target, (left, right)):
            raise ReplayError(complaint)
        return _bounded_items(function(left, right))  # `t += [t]` makes a list that holds itself

    return call


_product = _bounded_operator("mul")


def _bounded_times(left: Any, right: Any) -> Any:
    """Return `left * right`, of which one is a small constant: only a list or a text needs a bound."""
    return _product(left, right) if isinstance(left, SEQUENCES) or isinstance(right, SEQUENCES) else left * right


def _bounded_items(items: Any) -> Any:
    """Return a value; refuse a tuple, list or dictionary that the lists in it make too long."""
    if isinstance(items, (tuple, list, dict)) and tree_size(items) > MOST_ITEMS:
        raise ReplayError(f"a list of more than {MOST_ITEMS:,} items, with those of its lists; no graph needs one")
    return items


def _flat_slice(start: Any, stop: Any, step: Any) -> slice:
    """Return a slice; refuse a bound that could hold others: two slices of slices of slices are compared bound by
    bound, which may never end."""
    for bound in (start, stop, step):
        if isinstance(bound, (slice, dict, *SEQUENCES)):
            raise ReplayError(f"a {type(bound).__name__} is a bound of a slice; no graph needs that")
    return slice(start, stop, step)


def _require_tensor(value: Any) -> Any:
    """Return a tensor, and refuse any other value: a list that is written to could come to hold itself."""
    if not isinstance(value, torch.Tensor):
        raise ReplayError(f"a {type(value).__name__} where a graph has a tensor")
    return value


def _bounded_tolist(tensor: Any) -> Any:
    """Return `tensor.tolist()`; refuse a list that would be too long."""
    if _require_tensor(tensor).numel() > MOST_ITEMS:
        raise ReplayError(f"a list of {tensor.numel():,} items; a graph may make one of {MOST_ITEMS:,}")
    return tensor.tolist()


BOUNDED: Mapping[str, Callable[..., Any]] = {
    TIMES: _bounded_times,
    ITEMS: _bounded_items,
    REQUIRE_TENSOR: _require_tensor,
    TOLIST: _bounded_tolist,
    FLAT_SLICE: _flat_slice,
    **{
        name: _bounded_operator(name.removeprefix("bounded."))
        for name in (*BOUNDED_OPERATORS.values(), *BOUNDED_IN_PLACE.values())
    },
}
"""The functions that the changed lines call, by their names there."""
