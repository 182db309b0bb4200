"""A node as Meganeura sees it, and the operation that holds it."""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from ir.errors import ShapeError, StreamError, WireError
from ir.meganeura.ops.attention import (
    AttentionGrad,
    CausalAttention,
    CausalAttentionRoPE,
    QueryKeyValue,
    SlidingWindowAttention,
)
from ir.meganeura.ops.leaf import Constant, Nop, elements, packed
from ir.meganeura.ops.records import Mark, U32Value
from ir.meganeura.types import NodeId, TensorType
from ir.op import Field, Op, Role, fields
from ir.tensor import NOT_INIT, READ_ONLY, Shape, TensorId, TensorIr


def has_mark(field: Field, mark: Mark) -> bool:
    """Whether a field is declared with `mark`."""
    return mark in getattr(field.type, "__metadata__", ())


@cache
def operand_fields(kind: type[Op]) -> tuple[Field, ...]:
    """The fields that a node lists as its inputs, in order."""
    return tuple(f for f in fields(kind) if f.is_input and not has_mark(f, Mark.NODE_REF))


@cache
def attribute_fields(kind: type[Op]) -> tuple[Field, ...]:
    """The fields that a node writes inside its op, in order."""
    return tuple(
        f for f in fields(kind) if has_mark(f, Mark.NODE_REF) or (f.role is None and not has_mark(f, Mark.DERIVED))
    )


@cache
def attributes_type(kind: type[Op]) -> type[Struct]:
    """A record of the attributes of `kind` as a node writes them: node ids for nodes, a list for the data."""

    def written(field: Field) -> Any:
        if has_mark(field, Mark.NODE_REF):
            return U32Value
        return tuple[float, ...] if kind is Constant else field.type

    return msgspec.defstruct(
        kind.__name__,
        [(f.path, written(f)) for f in attribute_fields(kind)],
        frozen=True,
        forbid_unknown_fields=True,
    )


def attributes_of(op: Op) -> dict[str, Any]:
    """The attributes of an operation by name; `fwd_node` is a node id, `data` an array of all elements."""
    found = {f.path: getattr(op, f.path) for f in attribute_fields(type(op))}
    if isinstance(op, Constant):
        found["data"] = op.values
    return {name: v.id.value if isinstance(v, TensorIr) else v for name, v in found.items()}


class Node(Struct, frozen=True):
    """A view of an operation as one node of a graph."""

    op: Op

    @property
    def id(self) -> NodeId:
        """Its place in the graph."""
        return self._out.id.value

    @property
    def inputs(self) -> tuple[NodeId, ...]:
        """The nodes it reads; one that it reads twice stands twice."""
        return tuple(t.id.value for t in inputs_of(self.op))

    @property
    def ty(self) -> TensorType:
        """Shape and dtype of its result."""
        return TensorType.of(self._out)

    @property
    def _out(self) -> TensorIr:
        return self.op.outputs[0]


def inputs_of(op: Op) -> list[TensorIr]:
    """The operands that a node lists as its inputs."""
    if isinstance(op, Nop):
        return list(op.sources)
    found: list[TensorIr | None] = [getattr(op, field.path) for field in operand_fields(type(op))]
    return [t for t in found if t is not None]


def out_tensor(id: NodeId, ty: TensorType) -> TensorIr:
    """The result of node `id`, as an operation declares it."""
    return TensorIr(TensorId(id), Shape(ty.shape), NOT_INIT, ty.dtype.plain)


def make_op(
    kind: type[Op],
    inputs: Sequence[TensorIr],
    out: TensorIr,
    attributes: Mapping[str, Any],
    op_at: Callable[[NodeId], Op],
) -> Op:
    """The operation of a node.

    Args:
        kind: the class.
        inputs: the results it reads, in the order of the node's inputs.
        out: its own result.
        attributes: as a node writes them; floats are rounded to f32.
        op_at: the operation of another node, which `fwd_node` names.

    Raises:
        StreamError: the number of inputs is not that of the kind, or `fwd_node` is no attention.
        ShapeError: a constant has not as many elements as its shape.
        WireError: an attribute is missing, unknown, or has a value of another type.
    """
    record: dict[str, Any] = {"out": out, **_operands(kind, [reading(t) for t in inputs])}
    record |= _data(attributes, out) if kind is Constant else _attributes(kind, attributes)
    if issubclass(kind, AttentionGrad):
        forward = op_at(record["fwd_node"])
        record["window"] = _window(kind, forward)
        record["fwd_node"] = reading(forward.outputs[0])
    return kind(**record)


def reading(tensor: TensorIr) -> TensorIr:
    """A use of a result as an operand."""
    return msgspec.structs.replace(tensor, status=READ_ONLY)


def _operands(kind: type[Op], inputs: Sequence[TensorIr]) -> dict[str, Any]:
    if kind is Nop:
        return {"sources": tuple(inputs)}
    named = operand_fields(kind)
    required = sum(f.role is not Role.OPT_IN for f in named)
    if not required <= len(inputs) <= len(named):
        expected = str(required) if required == len(named) else f"{required} or {len(named)}"
        names = ", ".join(f.path for f in named) or "none"
        raise StreamError(f"{kind.__name__}.inputs: expected {expected} ({names}), got {len(inputs)}")
    given = [*inputs, *[None] * (len(named) - len(inputs))]
    return {f.path: t for f, t in zip(named, given, strict=True)}


def _data(attributes: Mapping[str, Any], out: TensorIr) -> dict[str, bytes]:
    if isinstance(data := attributes.get("data"), bytes):
        return {"data": data}
    if isinstance(data, array):
        found = cast("array[float]", data)
    else:
        found = elements(_attributes(Constant, attributes)["data"])
    expected = math.prod(out.shape.dims)
    if len(found) != expected:
        raise ShapeError(f"Constant.data: expected {expected} elements for {TensorType.of(out)}, got {len(found)}")
    return {"data": packed(found)}


def _attributes(kind: type[Op], attributes: Mapping[str, Any]) -> dict[str, Any]:
    try:
        checked = msgspec.convert(attributes, attributes_type(kind))
    except msgspec.ValidationError as error:
        text = str(error)
        raise WireError(kind.__name__, text[:1].lower() + text[1:]) from None
    return {
        f.path: rounded(value) if isinstance(value := getattr(checked, f.path), float) else value
        for f in attribute_fields(kind)
    }


def rounded(value: float) -> float:
    """The f32 nearest to `value`, infinite beyond the range."""
    return array("f", [value])[0]


_CAUSAL: Final = (CausalAttention, CausalAttentionRoPE)


def _window(kind: type[Op], forward: Op) -> int | None:
    if not isinstance(forward, QueryKeyValue):
        raise StreamError(
            f"{kind.__name__}.fwd_node: expected a node with an attention, got %{forward.outputs[0].id.value} "
            f"({forward.kind}); node ids inside an op must be renumbered with the graph"
        )
    if isinstance(forward, SlidingWindowAttention):
        return forward.window_size
    return forward.out.shape.dims[0] if isinstance(forward, _CAUSAL) else None
