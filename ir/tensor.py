"""Tensors as the IR describes them, and their data as it travels.

Source: burn-ir `tensor.rs`, burn-std `tensor/data.rs`.
"""

import math
from typing import Annotated

from msgspec import Meta, Struct

from ir.dtype import Dim, DType, StrEnum
from ir.errors import ShapeError

Id = Annotated[int, Meta(ge=0)]


class TensorId(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Name of a tensor, unique within a session."""

    value: Id


class Shape(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Sizes of the axes, outermost first."""

    dims: tuple[Dim, ...]


class TensorStatus(StrEnum):
    """What an operation does with a tensor: keep it, use it for the last time, or make it."""

    ReadOnly = "ReadOnly"
    ReadWrite = "ReadWrite"
    NotInit = "NotInit"


READ_ONLY, READ_WRITE, NOT_INIT = TensorStatus.ReadOnly, TensorStatus.ReadWrite, TensorStatus.NotInit


class TensorIr(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """One use of a tensor in an operation."""

    id: TensorId
    shape: Shape
    status: TensorStatus
    dtype: DType

    def __str__(self) -> str:
        return f"t{self.id.value} {self.dtype.short}[{','.join(map(str, self.shape.dims))}]"


def tensor(id: int, dims: tuple[int, ...], dtype: DType, status: TensorStatus = READ_ONLY) -> TensorIr:
    """A `TensorIr` from plain values.

    >>> from ir.dtype import F32
    >>> str(tensor(3, (32, 784), F32))
    't3 f32[32,784]'
    """
    return TensorIr(TensorId(id), Shape(dims), status, dtype)


class TensorData(Struct, frozen=True, array_like=True, gc=False, eq=False, forbid_unknown_fields=True):
    """Elements of a tensor: little-endian, contiguous, row-major. `bytes` is a view of the message, not a copy.

    Raises:
        ShapeError: the byte count is not the product of the dims times the element size (quantized data is exempt:
            its length depends on the scheme).
    """

    bytes: memoryview
    shape: tuple[Dim, ...]
    dtype: DType

    def __post_init__(self) -> None:
        if self.dtype.is_quantized:
            return
        expected = math.prod(self.shape) * self.dtype.size_bytes
        if (got := memoryview(self.bytes).nbytes) != expected:
            dims = ",".join(map(str, self.shape))
            raise ShapeError(f"TensorData.bytes: expected {expected} bytes for {self.dtype.short}[{dims}], got {got}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorData):
            return NotImplemented
        same = self.shape == other.shape and self.dtype == other.dtype
        return same and memoryview(self.bytes).cast("B") == memoryview(other.bytes).cast("B")
