"""Graphs in JSON and msgpack, as serde lays out the types of `graph.rs`.

Enums are tagged outside: `"MatMul"`, `{"RmsNorm": {"eps": 1e-5}}`. In msgpack records are arrays, as rmp-serde writes
them; maps are read too. Numbers are f32 on both ways: JSON has the shortest decimal that gives the f32 back, msgpack
four bytes. JSON has no NaN and no infinity.

Meganeura 0.2 derives no serialization for graphs; this is the layout that deriving it gives.
"""

import math
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Meta, Struct

from ir.errors import IrError, WireError
from ir.meganeura.node import Node, attribute_fields, attributes_of, make_op, out_tensor, reading, rounded
from ir.meganeura.ops.attention import AttentionGrad
from ir.meganeura.ops.records import U32Value, kinds
from ir.meganeura.rules import verify_node
from ir.meganeura.types import DerivedParam, NodeId, TensorType
from ir.op import Op

_OneEntry = Annotated[dict[str, dict[str, Any]], Meta(min_length=1, max_length=1)]


class NodeRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A node as it is written: its kind alone, or its kind with the attributes by name."""

    id: U32Value
    op: str | _OneEntry
    inputs: tuple[U32Value, ...]
    ty: TensorType

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.op if isinstance(self.op, str) else next(iter(self.op))

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What the op holds."""
        return {} if isinstance(self.op, str) else self.op[self.kind]


class GraphRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A graph as it is written."""

    nodes: tuple[NodeRecord, ...]
    outputs: tuple[U32Value, ...]
    derived_params: tuple[DerivedParam, ...]


def op_name(op: Op) -> str | dict[str, dict[str, Any]]:
    """An op as serde tags it, with its attributes."""
    attributes = attributes_of(op)
    return {op.kind: attributes} if attributes else op.kind


def decode_json(text: bytes | str) -> GraphRecord:
    """The record that a JSON text holds.

    Raises:
        WireError: it holds none; the message names the place.
    """
    try:
        return _typed(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise WireError("", f"no JSON: {error}") from None


def decode_msgpack(data: bytes) -> GraphRecord:
    """The record that msgpack bytes hold, with records as arrays or as maps.

    Raises:
        WireError: they hold none; the message names the place.
    """
    try:
        return _typed(msgspec.msgpack.decode(data))
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError("", f"no msgpack: {error}") from None


def _typed(value: Any) -> GraphRecord:
    graph = _named(value, GraphRecord.__struct_fields__)
    if isinstance(graph, dict):
        graph = cast("dict[str, Any]", graph)
        for key, made in (("nodes", _node), ("derived_params", _derived)):
            if isinstance(items := graph.get(key), list):
                graph[key] = [made(item) for item in cast("list[Any]", items)]
    try:
        return msgspec.convert(graph, GraphRecord)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise WireError(path.strip("`.") or "graph", reason[:1].lower() + reason[1:]) from None


def _named(value: Any, names: Sequence[str]) -> Any:
    """A record by name, whichever way it was written; anything else as it is."""
    return dict(zip(names, cast("list[Any]", value), strict=True)) if _is_record(value, len(names)) else value


def _is_record(value: Any, size: int) -> bool:
    return isinstance(value, list) and len(cast("list[Any]", value)) == size


def _derived(value: Any) -> Any:
    return _named(value, DerivedParam.__struct_fields__)


def _node(value: Any) -> Any:
    node = _named(value, NodeRecord.__struct_fields__)
    if not isinstance(node, dict):
        return node
    node = cast("dict[str, Any]", node)
    op = node.get("op")
    if isinstance(op, dict) and len(op := cast("dict[str, Any]", op)) == 1:
        ((name, attributes),) = op.items()
        names = [f.path for f in attribute_fields(kinds()[name])] if name in kinds() else []
        node = node | {"op": {name: _named(attributes, names)}}
    return node | ({"ty": _named(node["ty"], TensorType.__struct_fields__)} if "ty" in node else {})


def ops_of(record: GraphRecord) -> list[Op]:
    """The nodes of a record as operations, each checked by itself. A node may read one of a larger id.

    Raises:
        WireError: an id is not the node's place, a kind or an attribute is unknown or missing, a node does not exist.
        StreamError, ShapeError, DTypeError: a node does not have the inputs that its kind needs.
    """
    made: dict[NodeId, Op] = {}
    for later in (False, True):  # the gradients of attention look at the operations of forward nodes
        for place, node in enumerate(record.nodes):
            kind = _kind_of(place, node)
            if issubclass(kind, AttentionGrad) is later:
                try:
                    made[place] = _op(record, node, kind, made)
                    verify_node(made[place])
                except IrError as error:
                    raise _placed(place, error) from None
    for place, id in enumerate(record.outputs):
        if id >= len(made):
            raise WireError(f"outputs[{place}]", f"node %{id} does not exist; the graph has {len(made)} nodes")
    return [made[place] for place in range(len(made))]


def _kind_of(place: int, node: NodeRecord) -> type[Op]:
    if node.id != place:
        raise WireError(f"nodes[{place}].id", f"expected {place}, the node's place, got {node.id}")
    if node.kind not in kinds():
        raise WireError(f"nodes[{place}].op", f"unknown operation {node.kind!r}; `burn-xla coverage` lists all")
    return kinds()[node.kind]


def _op(record: GraphRecord, node: NodeRecord, kind: type[Op], made: Mapping[NodeId, Op]) -> Op:
    def tensor(id: NodeId) -> Any:
        if id >= len(record.nodes):
            raise WireError(
                f"{node.kind}.inputs", f"node %{id} does not exist; the graph has {len(record.nodes)} nodes"
            )
        return reading(out_tensor(id, record.nodes[id].ty))

    def op_at(id: NodeId) -> Op:
        if id not in made:
            raise WireError(f"{node.kind}.fwd_node", f"expected a node with an attention, got %{id}")
        return made[id]

    return make_op(kind, [tensor(id) for id in node.inputs], out_tensor(node.id, node.ty), node.attributes, op_at)


def _placed(place: int, error: IrError) -> IrError:
    if isinstance(error, WireError):
        return WireError(f"nodes[{place}].{error.path}", error.reason)
    return type(error)(f"nodes[{place}].{error}")


def encode_json(ops: Sequence[Op], outputs: Sequence[NodeId], derived: Sequence[DerivedParam]) -> bytes:
    """A graph as JSON.

    Raises:
        WireError: an attribute or an element is NaN or infinite.
    """

    def tagged(op: Op) -> Any:
        name = op_name(op)
        if isinstance(name, str):
            return name
        return {op.kind: {key: _json_value(op, key, value) for key, value in name[op.kind].items()}}

    nodes = [{"id": n.id, "op": tagged(n.op), "inputs": n.inputs, "ty": n.ty} for n in map(Node, ops)]
    return msgspec.json.encode({"nodes": nodes, "outputs": outputs, "derived_params": derived})


def _json_value(op: Op, key: str, value: Any) -> Any:
    if isinstance(value, array):
        elements = cast("array[float]", value)
        if len(set(elements[:2])) == 1 and getattr(op, "is_uniform", False):
            return [_json_value(op, key, elements[0])] * len(elements)
        return [_json_value(op, key, element) for element in elements]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        where = f"nodes[{op.outputs[0].id.value}].{op.kind}.{key}"
        raise WireError(where, f"JSON has no {value}; write msgpack instead")
    return float(shortest(value))


def shortest(value: float) -> str:
    """The fewest digits that give the f32 nearest to a finite `value` back, as `d.ddde-7`.

    >>> shortest(0.1), shortest(2.0), shortest(4096193.25)
    ('1e-1', '2e+0', '4.0961933e+6')
    """
    value = rounded(value)
    exact = Decimal(value)
    # Half goes up, as in Rust; Python's own formatting takes the even digit.
    texts = (f"{Context(n + 1, ROUND_HALF_UP).plus(exact):.{n}e}" for n in range(9))
    return next(text for text in texts if rounded(float(text)) == value)


def encode_msgpack(ops: Sequence[Op], outputs: Sequence[NodeId], derived: Sequence[DerivedParam]) -> bytes:
    """A graph as msgpack, byte for byte what rmp-serde writes."""

    def tagged(op: Op) -> Any:
        name = op_name(op)
        return name if isinstance(name, str) else {op.kind: [_packed_value(v) for v in name[op.kind].values()]}

    nodes = [[n.id, tagged(n.op), n.inputs, [n.ty.shape, n.ty.dtype]] for n in map(Node, ops)]
    return msgspec.msgpack.encode([nodes, outputs, [[d.name, d.sources, d.rows] for d in derived]])


_F32: Final = b"\xca"


def _packed_value(value: Any) -> Any:
    if isinstance(value, array):
        elements = cast("array[float]", value)[:]
        if sys.byteorder == "little":
            elements.byteswap()
        data = elements.tobytes()
        items = b"".join([_F32 + data[n : n + 4] for n in range(0, len(data), 4)])
        return msgspec.Raw(_array_head(len(elements)) + items)
    return msgspec.Raw(_F32 + struct.pack(">f", value)) if isinstance(value, float) else value


def _array_head(size: int) -> bytes:
    if size < 16:
        return bytes([0x90 | size])
    return struct.pack(">BH", 0xDC, size) if size < 1 << 16 else struct.pack(">BI", 0xDD, size)
