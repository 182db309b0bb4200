r"""A graph as text: what Rust's `Display` of `Graph` prints, and the way back.

    %0 = Input { name: "x" }() : F32<[2, 3]>
    %1 = Parameter { name: "w" }() : F32<[3, 4]>
    %2 = MatMul(%0, %1) : F32<[2, 4]>
    outputs: %2

The text holds everything but `derived_params`. Source: meganeura 0.2 `graph.rs`; Rust's `Debug` of f32, str and Vec.
"""

import math
import re
from array import array
from collections.abc import Iterable
from typing import Any, Final, cast
from unicodedata import category

import msgspec

from ir.errors import WireError
from ir.meganeura.node import Node, attributes_of
from ir.meganeura.serial import GraphRecord, NodeRecord, shortest
from ir.meganeura.types import NodeId
from ir.op import Op

_ESCAPES: Final = {"\t": "\\t", "\r": "\\r", "\n": "\\n", '"': '\\"', "\\": "\\\\", "\0": "\\0"}
_UNESCAPED: Final = {escape[1]: char for char, escape in _ESCAPES.items()} | {"'": "'"}
_NODE: Final = re.compile(
    r"%(\d+) = (\w+)(?: \{ (.*) \})?\(((?:%\d+(?:, |(?=\))))*)\) : (\w+)<\[((?:\d+(?:, |(?=\])))*)\]>"
)
_ATTRIBUTE: Final = re.compile(r'(\w+): ("(?:[^"\\]|\\.)*"|\[[^\]]*\]|[^,"\[\]]+)(?:, |$)')
_ESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-f]{1,6})\}|(.))")


def show_graph(ops: Iterable[Op], outputs: Iterable[NodeId]) -> str:
    """A line per node, then one for the outputs, each ended."""
    lines = [show_node(op) for op in ops]
    return "\n".join([*lines, f"outputs: {_ids(outputs)}", ""])


def show_node(op: Op) -> str:
    """One node, without its end of line."""
    node = Node(op)
    return f"%{node.id} = {show_op(op)}({_ids(node.inputs)}) : {node.ty}"


def show_op(op: Op) -> str:
    """An op with its attributes, such as `RmsNorm { eps: 1e-5 }`."""
    inside = ", ".join(f"{name}: {debug(value)}" for name, value in attributes_of(op).items())
    return f"{op.kind} {{ {inside} }}" if inside else op.kind


def _ids(ids: Iterable[NodeId]) -> str:
    return ", ".join(f"%{id}" for id in ids)


def debug(value: Any) -> str:
    """A value as Rust's `{:?}` prints it.

    >>> debug(True), debug("w"), debug(array("f", [1.0, 0.1]))
    ('true', '"w"', '[1.0, 0.1]')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return float_debug(value)
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, array):
        return f"[{', '.join(map(float_debug, cast('array[float]', value)))}]"
    return str(value)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    # A mark that joins the character before it would hide in the quote, so Rust escapes it.
    is_shown = char.isprintable() and category(char) not in ("Mn", "Me")
    return char if is_shown else f"\\u{{{ord(char):x}}}"


def float_debug(value: float) -> str:
    """An f32 as Rust's `{:?}` prints it: always with a point, or with an exponent below 1e-4 and from 1e16 on.

    >>> [float_debug(x) for x in (1e-5, 10000.0, -0.0, 1e16, float("-inf"))]
    ['1e-5', '10000.0', '-0.0', '1e16', '-inf']
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    if value == 0:
        return str(value)
    digits, _, exponent = shortest(abs(value)).partition("e")
    sign, power, figures = "-" * (value < 0), int(exponent), digits.replace(".", "")
    if not -4 <= power < 16:
        return f"{sign}{digits}e{power}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{figures}"
    return f"{sign}{figures[: power + 1].ljust(power + 1, '0')}.{figures[power + 1 :] or '0'}"


def read_graph(text: str) -> GraphRecord:
    """The record that a text holds; it has no derived parameters.

    Raises:
        WireError: a line is none of a graph.
    """
    *lines, last = text.removesuffix("\n").split("\n")
    if not last.startswith("outputs: "):
        raise WireError(f"line {len(lines) + 1}", f"expected `outputs: %id, …`, got {last[:40]!r}")
    nodes = tuple(_read_node(n, line) for n, line in enumerate(lines, 1))
    return GraphRecord(nodes, _read_ids(last.removeprefix("outputs: "), len(lines) + 1), ())


def _read_node(number: int, line: str) -> NodeRecord:
    found = _NODE.fullmatch(line)
    if found is None:
        raise WireError(f"line {number}", f"expected `%id = Op(%id, …) : F32<[…]>`, got {line[:60]!r}")
    id, kind, inside, inputs, dtype, shape = found.groups()
    attributes = _read_attributes(number, inside) if inside else None
    record = {
        "id": int(id),
        "op": {kind: attributes} if attributes else kind,
        "inputs": _read_ids(inputs, number),
        "ty": {"shape": [int(size) for size in shape.split(", ") if size], "dtype": dtype},
    }
    try:
        return msgspec.convert(record, NodeRecord)
    except msgspec.ValidationError as error:
        raise WireError(f"line {number}", str(error)) from None


def _read_ids(text: str, number: int) -> tuple[NodeId, ...]:
    ids = [item for item in text.split(", ") if item]
    if any(not re.fullmatch(r"%\d+", id) for id in ids):
        raise WireError(f"line {number}", f"expected node ids as `%0, %1`, got {text[:40]!r}")
    return tuple(int(id[1:]) for id in ids)


def _read_attributes(number: int, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    place = 0
    while place < len(text):
        item = _ATTRIBUTE.match(text, place)
        if item is None:
            raise WireError(f"line {number}", f"expected `name: value`, got {text[place : place + 40]!r}")
        found[item[1]] = _read_value(number, item[2])
        place = item.end()
    return found


def _read_value(number: int, text: str) -> Any:
    if text[0] == '"':
        return _ESCAPE.sub(lambda e: chr(int(e[1], 16)) if e[1] else _UNESCAPED.get(e[2], e[2]), text[1:-1])
    if text[0] == "[":
        return [_read_value(number, item) for item in text[1:-1].split(", ") if item]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise WireError(f"line {number}", f"expected a number, true, false, a text or a list, got {text!r}") from None
