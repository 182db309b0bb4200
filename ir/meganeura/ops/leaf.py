"""Leaves and structure. Source: meganeura `graph.rs`."""

import math
from array import array
from collections.abc import Iterable

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
    the full-size constants of a differentiated graph cost nothing (see `packed`).
    """

    data: bytes

    @property
    def is_uniform(self) -> bool:
        """Every element has the same bits; `data` holds one."""
        return len(self.data) == 4

    @property
    def values(self) -> "array[float]":
        """The elements, as many as the shape says."""
        elements = array("f")
        elements.frombytes(self.data)
        return elements * math.prod(self.out.shape.dims) if self.is_uniform else elements


def packed(values: Iterable[float]) -> bytes:
    """The `data` of a constant of these elements, each rounded to f32.

    >>> packed([1.0, 1.0, 1.0]) == packed([1.0]), len(packed([1.0, 2.0]))
    (True, 8)
    """
    data = array("f", values).tobytes()
    return data[:4] if data == data[:4] * (len(data) // 4) else data


@node_kind
class Identity(Unary):
    """The same flat data under another shape; an alias of `x`, not a copy."""


@node_kind
class Nop(Op):
    """A deleted node: nothing runs, nobody may read it."""

    sources: InList
    out: Out
