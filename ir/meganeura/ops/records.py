"""What the kinds of Meganeura share: their registry, the types of their attributes, their record shapes.

A field without a role is an attribute, in the order in which `graph.rs` declares it; the operands stand before it in
the order of a node's `inputs`, then `out`.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Annotated, TypeAlias, TypeVar

from msgspec import Meta

from ir.op import In, Op, Out, Role
from ir.tensor import TensorIr

OpT = TypeVar("OpT", bound=type[Op])


class Mark(Enum):
    """Where a field differs from `graph.rs`."""

    NODE_REF = "an operand here, an attribute there: a node id that is not among the node's inputs"
    DERIVED = "not there: found at another node of the graph"
    INDEX = "a U32 operand; all others are F32"


NodeRef = Annotated[TensorIr, Role.IN, Mark.NODE_REF]
Index = Annotated[TensorIr, Role.IN, Mark.INDEX]
OptIndex = Annotated[TensorIr | None, Role.OPT_IN, Mark.INDEX]
U32Value = Annotated[int, Meta(ge=0, le=2**32 - 1)]
# A usize goes further, but msgspec bounds integers by i64 constants only, and nothing has so many elements.
USize = Annotated[int, Meta(ge=0, le=2**63 - 1)]
F32Value: TypeAlias = float
"""A number that an f32 holds exactly; the builder and the loader round to it."""

_kinds: dict[str, type[Op]] = {}


def node_kind(cls: OpT) -> OpT:
    """Register a class as a kind of Meganeura.

    Raises:
        RuntimeError: the name is taken.
    """
    if cls.__name__ in _kinds:
        raise RuntimeError(f"{cls.__name__} is registered twice")
    _kinds[cls.__name__] = cls
    return cls


def kinds() -> Mapping[str, type[Op]]:
    """Every kind of Meganeura by name, in declared order."""
    return MappingProxyType(_kinds)


class Leaf(Op):
    """A node without inputs."""

    out: Out


class Unary(Op):
    """One tensor in, one out."""

    x: In
    out: Out


class Binary(Op):
    """Two tensors in, one out."""

    a: In
    b: In
    out: Out
