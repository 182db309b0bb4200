"""Leaves and structure. Source: meganeura `graph.rs`."""

import math
from array import array
from itertools import chain
from typing import Any

from ir.errors import WireError
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
        found = array("f")
        found.frombytes(self.data)
        return found * math.prod(self.out.shape.dims) if self.is_uniform else found


def elements(values: Any) -> "array[float]":
    """Numbers as f32: of a list or another iterable, or of a NumPy array of any shape, row-major.

    Raises:
        WireError: an element is no number.
    """
    items: Any = values
    try:
        view = memoryview(values)
        items = view.tolist()
    except (TypeError, ValueError, NotImplementedError):  # no buffer, or of a format that only its owner knows
        view = None
    for _ in range(view.ndim - 1 if view is not None else 0):
        items = chain.from_iterable(items)
    try:
        return array("f", items)
    except TypeError as error:
        raise WireError("Constant.data", str(error)) from None


def packed(values: "array[float]") -> bytes:
    """The `data` of a constant of these elements.

    >>> packed(elements([1.0, 1.0, 1.0])) == packed(elements([1.0])), len(packed(elements([1.0, 2.0])))
    (True, 8)
    """
    data = values.tobytes()
    return data[:4] if data == data[:4] * (len(data) // 4) else data


@node_kind
class Identity(Unary):
    """The same flat data under another shape; an alias of `x`, not a copy."""


@node_kind
class Nop(Op):
    """A deleted node: nothing runs, nobody may read it."""

    sources: InList
    out: Out
