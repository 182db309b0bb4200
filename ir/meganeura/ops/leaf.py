"""Leaves and structure. Source: meganeura `graph.rs`."""

from array import array

from ir.meganeura.ops.records import Leaf, Unary, node_kind
from ir.op import InList, Op, Out


@node_kind
class Parameter(Leaf):
    """A buffer that training updates, addressed by `name`; zeros until it is set."""

    name: str


@node_kind
class Input(Leaf):
    """A buffer that the caller fills, addressed by `name`; zeros until it is set."""

    name: str


@node_kind
class Constant(Leaf):
    """Fixed numbers.

    `data` is little-endian f32, row-major; where all elements have the same bits it holds just one of them, so that
    the full-size constants of a differentiated graph cost nothing (see `constant_data`).
    """

    data: bytes

    @property
    def is_uniform(self) -> bool:
        """Every element has the same bits; `data` holds one."""
        return len(self.data) == 4

    @property
    def values(self) -> "array[float]":
        """The elements, as many as the shape says."""
        count = 1
        for size in self.out.shape.dims:
            count *= size
        elements = array("f")
        elements.frombytes(self.data)
        return elements * count if self.is_uniform else elements


@node_kind
class Identity(Unary):
    """The same flat data under another shape; an alias of `x`, not a copy."""


@node_kind
class Nop(Op):
    """A deleted node: nothing runs, nobody may read it."""

    sources: InList
    out: Out
