"""The nouns: plain frozen data, valid by construction, without torch. Each family has a file; this module has them all.

A Graph is one direction of one program. Its steps are calls of tensor operators on named values; its ports are its
inputs and outputs under the program's own names. A Pair ties a forward to its backward by the saved ports; a Capture is
the result of one capture call.
"""

from backprint.graph.captures import Argument, Capture, Deferred, Guard, Link, OpaqueEdge, Pair, Signature
from backprint.graph.graphs import (
    ECHOES,
    IN_ROLES,
    OUT_ROLES,
    ROLES,
    Echo,
    Graph,
    Port,
    Source,
    Step,
    Symbol,
    custom_operators,
)
from backprint.graph.legal import (
    BUILT_IN,
    DEVICES,
    HIGHER,
    MATHS,
    MAX_INTEGER,
    OPERATORS,
    PLAIN_TARGETS,
    RESERVED,
    SYMS,
    Size,
    allowed,
    check_expression,
    check_local,
    is_custom,
)
from backprint.graph.specs import ATOMS, DTYPES, LAYOUTS, SCALARS, ScalarSpec, Spec, TensorSpec
from backprint.graph.values import MAX_DEPTH, Atom, Device, Dict, List, Op, Ref, Slice, Sub, Value, leaves, refs

__all__ = [
    "ATOMS", "Argument", "Atom", "BUILT_IN", "Capture", "DEVICES", "DTYPES", "Device", "Dict", "ECHOES", "Echo",
    "Graph", "Guard", "HIGHER", "IN_ROLES", "LAYOUTS", "Deferred", "Link", "List", "MATHS", "MAX_DEPTH", "MAX_INTEGER",
    "OPERATORS", "OUT_ROLES", "Op", "OpaqueEdge", "PLAIN_TARGETS", "Pair", "Port", "RESERVED", "ROLES", "Ref",
    "SCALARS", "SYMS", "ScalarSpec", "Signature", "Size", "Slice", "Source", "Spec", "Step", "Sub", "Symbol",
    "TensorSpec", "Value", "allowed", "check_expression", "check_local", "custom_operators", "is_custom", "leaves",
    "refs",
]  # fmt: skip
