"""What a node's result looks like, and parameters that the optimizer makes of others. Source: meganeura `graph.rs`."""

import math
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ir.dtype import PlainDType, StrEnum
from ir.meganeura.ops.records import USize
from ir.tensor import TensorIr

NodeId: TypeAlias = int
Compat: TypeAlias = Literal["0.2"] | None
"""None: what an operation is meant to do. `"0.2"`: what Meganeura 0.2 does where that differs."""


class DType(StrEnum):
    """The element types: numbers, and indices."""

    F32 = "F32"
    U32 = "U32"

    def size_bytes(self) -> int:
        """Bytes of one element."""
        return 4

    @property
    def plain(self) -> PlainDType:
        """The same as a dtype of the tensors of operations."""
        return PlainDType(self.value)


class TensorType(Struct, frozen=True, forbid_unknown_fields=True):
    """Shape, outermost axis first, and dtype of a node's result.

    >>> str(TensorType.f32([4, 128])), TensorType.f32([32, 784]).size_bytes()
    ('F32<[4, 128]>', 100352)
    """

    shape: tuple[USize, ...]
    dtype: DType

    @classmethod
    def new(cls, shape: Sequence[int], dtype: DType) -> "TensorType":
        """A type of any dtype."""
        return cls(tuple(shape), dtype)

    @classmethod
    def f32(cls, shape: Sequence[int]) -> "TensorType":
        """A type of numbers."""
        return cls(tuple(shape), DType.F32)

    @classmethod
    def of(cls, tensor: TensorIr) -> "TensorType":
        """The type of an operand."""
        return cls(tensor.shape.dims, DType(tensor.dtype.short.upper()))

    def num_elements(self) -> int:
        """The product of the sizes."""
        return math.prod(self.shape)

    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return self.num_elements() * self.dtype.size_bytes()

    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.value}<{list(self.shape)}>"


class DerivedParam(Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter that is others side by side: `derived[r, :] = [source0[r, :] | source1[r, :] ...]`.

    `sources` are names with their columns, `rows` is the number of rows of each.
    """

    name: str
    sources: tuple[tuple[str, USize], ...]
    rows: USize


F32: Final = DType.F32
U32: Final = DType.U32
