"""The normal form of a C++ kernel: its tokens, with the names that it declares as numbers, in their order.

Names of types, of functions of ATen and of macros stay. A name is the kernel's own if its first occurrence declares it;
in doubt it stays, so that two programs are rather kept apart than merged. Comments, layout and `#include` are left out,
threads and the width of vectors are in the code. Tried on the sources of Inductor 2.13.0.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from backprint.errors import RefusedError
from backprint.tools.kernels.normal_triton import SMALL, TOKENS, WORD
from backprint.tools.kernels.nouns import Kernel, NormalForm

TOKEN = re.compile(
    r"""^\#(?:\\\n|[^\n])*                            # a line of the preprocessor
      | //(?:\\\n|[^\n])* | /\*(?:(?s:.*?)\*/|(?s:.*))  # comments
      | (?:u8|[uUL])?"(?:[^"\\\n]|\\(?s:.))*"?            # texts; without an end where it is missing
      | \.?\d(?:[eEpP][+-]|'\w|[\w.])*                # numbers
      | (?:u8|[uUL])?'(?:[^'\\\n]|\\(?s:.))*'?
      | (?:::|->|\.)\s*[A-Za-z_]\w*                   # members: their names are another space
      | \w+
      | ::|->|\.\.\.|\+\+|--|&&|\|\||<<|[-+*/%&|^=!<>]=
      | \S""",
    re.VERBOSE | re.MULTILINE,
)

QUOTED = re.compile(r"""(?:u8|[uUL])?["']""")
WHOLE = re.compile(r"""(?s)(?:u8|[uUL])?(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
"""How a text or a letter begins, and one that ends."""

RAW_TEXT = re.compile(r"""(?s)\b(?:u8|[uUL])?R"([^()\\\s]{0,16})\((?:.*?\)\1"|.*)""")
INDENT = re.compile(r"\n[ \t]+")
DIGITS = re.compile(r"\b\d[\w.]*")

BINDING = "\n// Python bindings to call"
"""Where Inductor's code for calling a kernel from Python begins, in the files of its cache."""

PLAIN = frozenset("auto bool char short int long float double signed unsigned size_t".split()) | {
    f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
"""Types that no expression multiplies."""

QUALIFIERS = frozenset("const constexpr static inline volatile thread_local register extern typename".split())

NO_TYPES = frozenset(
    "return else new delete case goto throw typename sizeof operator namespace using typedef struct class enum union "
    "template if while for do switch break continue co_return co_await co_yield not and or xor public private".split()
)
"""Words after which a name is not declared."""

MARKS = ("*", "&", "&&", "const", "__restrict", "__restrict__")
"""What may stand between a type and the name that it declares."""

AFTER = frozenset(("=", ";", ",", ")", "[", "(", "{", ":", ">"))
"""What follows a name that is declared."""

FAR = 4096
"""The tokens that are looked at around a name."""

MESSAGE = '"index out of bounds'
"""How messages begin in which Inductor names variables."""

PAIRS = (("(", ")"), ("[", "]"), ("{", "}"))


def normal_cpp(kernel: Kernel) -> NormalForm:
    """Return the normal form of a C++ kernel."""
    called = kernel.name or kernel.place or "a kernel"
    tokens = _split_cpp(kernel.source.partition(BINDING)[0], called)
    names = {name: f"%{number}" for number, name in enumerate(own_names(tokens))}
    whole: dict[str, str] = {}
    bare: dict[str, str] = {}
    for token in set(tokens):
        text = _written_token(token, names, kernel.name)
        whole[token] = text
        bare[token] = _bare_token(token, text)
    apart = {token for token, text in bare.items() if text != whole[token]}
    structure = [bare[token] for token in tokens]
    if kernel.declared and not _binds_types(kernel.declared, tokens, names):
        structure.append(f"declared {kernel.declared}")
    return NormalForm("cpp", "\n".join(structure), "\n".join([whole[token] for token in tokens if token in apart]))


def _split_cpp(source: str, called: str) -> list[str]:
    """Split C++ into tokens without comments and includes; a text that ends too early raises RefusedError."""
    if "\0" in source:
        raise RefusedError(f"{called}: not text: it has a zero byte")
    if 'R"' in source:
        source = RAW_TEXT.sub(lambda match: f'"raw {hashlib.sha256(match[0].encode()).hexdigest()}"', source)
    source = INDENT.sub("\n", f"\n{source}")
    if len(source) > SMALL and (count := sum(1 for _ in TOKEN.finditer(source))) > TOKENS:
        raise RefusedError(f"{called}: {count} words and signs of code; the limit is {TOKENS}")
    tokens = TOKEN.findall(source)
    counts = Counter(tokens)
    left_out = {token for token in counts if _is_left_out(token, called)}
    tokens = [token for token in tokens if token not in left_out] if left_out else tokens
    for opening, closing in PAIRS:
        if (opened := counts[opening]) != (closed := counts[closing]):
            raise RefusedError(f"{called}: {opened} {opening} and {closed} {closing}: the source is not whole")
    if not counts["{"]:
        raise RefusedError(f"{called}: there is no function in this source")
    return tokens


def _is_left_out(token: str, called: str) -> bool:
    """Whether a token says nothing; a comment or a text without an end raises RefusedError."""
    if token.startswith("/*") and (len(token) < 4 or not token.endswith("*/")):
        raise RefusedError(f"{called}: a comment does not end")
    if QUOTED.match(token) and not WHOLE.fullmatch(token):
        raise RefusedError(f"{called}: a text does not end: {token[:40]}")
    return token.startswith(("//", "/*", "#include"))


def _written_token(token: str, names: dict[str, str], kernel: str) -> str:
    """Return a token of the normal form: numbers for the kernel's own names, also where a pragma has them."""
    if token in names:
        return names[token]
    if token.startswith("#"):
        line = re.sub(r"//.*|/\*.*?\*/|\\\n", " ", token)
        return " ".join(WORD.sub(lambda word: names.get(word[0], word[0]), line).split())
    if token.startswith(MESSAGE):
        return WORD.sub(lambda word: names.get(word[0], word[0]), token)
    if kernel and '"' in token and kernel in token:
        return token.replace(kernel, "kernel")
    return token.replace("\n", " ")


def _bare_token(token: str, text: str) -> str:
    """Return a token of the structure: without numbers."""
    if is_number(token):
        return "#"
    return DIGITS.sub("#", text) if text.startswith(("#", MESSAGE)) else text


def is_number(token: str) -> bool:
    """Whether a token is a number."""
    return token[0].isdigit() or (token[0] == "." and token[1:2].isdigit())


# ------------------------------------------------------------------ names


def own_names(tokens: Sequence[str]) -> list[str]:
    """Return the names that a source declares for itself, in the order of their declarations."""
    last = len(tokens) - 1
    first = dict(zip(reversed(tokens), range(last, -1, -1), strict=True))
    called = {token for token, after in pairwise(tokens) if after == "("}
    names: dict[str, None] = {}
    for index, token in sorted((index, token) for token, index in first.items()):
        if not (token[0].isalpha() or token[0] == "_") or token.isupper() or not 0 < index < last:
            continue
        if token in called and not _is_defined(tokens, index):
            continue
        if tokens[index + 1] in AFTER and _is_declared(tokens, index, names):
            names[token] = None
    return list(names)


def _is_defined(tokens: Sequence[str], index: int) -> bool:
    """Whether a name with parentheses is a function that has its body there."""
    if tokens[index + 1] != "(":
        return False
    end = closing(tokens, index + 1)
    return end is not None and tokens[end + 1 : end + 2] == ["{"]


def _is_declared(tokens: Sequence[str], index: int, known: dict[str, None]) -> bool:
    """Whether the name at an index is declared there; `known` are the names declared before, which are no types."""
    place = index - 1
    pointer = template = False
    while place > 0 and tokens[place] in MARKS:
        pointer |= tokens[place] != "const"
        place -= 1
    if tokens[place] == ">":
        opened = _opening_angle(tokens, place)
        if opened is None:
            return False
        template, place = True, opened - 1
    while place > 0 and tokens[place].startswith("::"):
        place -= 1
    kind = tokens[place]
    if not (kind[0].isalpha() or kind[0] == "_") or kind in NO_TYPES or kind in known or '"' in kind or "'" in kind:
        return False
    # `T name` declares. `a * b` and `a < b > c` may be expressions: they declare only where a statement or a parameter
    # begins, and a name that is not certainly declared keeps its own name.
    if kind in PLAIN or (kind not in QUALIFIERS and not pointer and not template):
        return True
    return _begins_declaration(tokens, place - 1)


def _begins_declaration(tokens: Sequence[str], place: int) -> bool:
    """Whether a statement, or a parameter of a function, begins after an index."""
    while place > 0 and tokens[place] in QUALIFIERS:
        place -= 1
    if place <= 0 or tokens[place] in (";", "{", "}") or tokens[place].startswith(("#", '"')):
        return True
    if tokens[place] not in ("(", ","):
        return False
    opened = _opening_parenthesis(tokens, place)
    if opened is None or opened == 0:
        return False
    before = tokens[opened - 1]
    if before == "for":
        return place == opened
    if before in NO_TYPES or before == "catch":
        return False
    end = closing(tokens, opened)
    return end is not None and tokens[end + 1 : end + 2] in (["{"], ["->"], ["mutable"], ["noexcept"])


def closing(tokens: Sequence[str], opened: int) -> int | None:
    """Return the index of the parenthesis that closes one."""
    depth = 0
    for index in range(opened, min(len(tokens), opened + FAR)):
        depth += (tokens[index] == "(") - (tokens[index] == ")")
        if not depth:
            return index
    return None


def _opening_parenthesis(tokens: Sequence[str], place: int) -> int | None:
    """Return the index of the parenthesis around an index, or at it."""
    depth = 0
    for index in range(place, max(-1, place - FAR), -1):
        if tokens[index] == "(":
            if not depth:
                return index
            depth -= 1
        depth += tokens[index] == ")"
        if tokens[index] in (";", "{", "}"):
            return None
    return None


def _opening_angle(tokens: Sequence[str], place: int) -> int | None:
    """Return the index of the `<` that a `>` closes, if what is between may be a template's arguments."""
    depth = 0
    for index in range(place, max(0, place - 64), -1):
        depth += (tokens[index] == ">") - (tokens[index] == "<")
        if not depth:
            return index
        if tokens[index] in (";", "{", "}", "&&", "||", "="):
            return None
    return None


def _binds_types(declared: str, tokens: Sequence[str], names: dict[str, str]) -> bool:
    """Whether the types that a binding declares are those of the function that it binds, which are hashed already."""
    try:
        types = ast.literal_eval(declared)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    if not isinstance(types, list | tuple) or not all(isinstance(kind, str) for kind in types):
        return False
    declared_tokens = [TOKEN.findall(kind) for kind in types]
    starts = [index for index, token in enumerate(tokens) if token in names and _is_defined(tokens, index)]
    for start in starts:
        end = closing(tokens, start + 1) or start + 1
        if declared_tokens == parameters(tokens[start + 2 : end], names):
            return True
    return False


def parameters(tokens: Sequence[str], names: dict[str, str]) -> list[list[str]]:
    """Return the types of a function's parameters, as tokens."""
    types: list[list[str]] = [[]] if tokens else []
    depth = 0
    for token in tokens:
        depth += (token == "<") - (token == ">")
        if token == "," and not depth:
            types.append([])
        elif token not in names:
            types[-1].append(token)
    return types
