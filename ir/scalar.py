"""Scalars of the IR and their conversion to the dtype of a tensor.

Source: burn-ir `scalar.rs`; conversion rules: burn-backend `element/scalar.rs`, checked against Burn 0.22.1.
"""

import struct
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from ir.dtype import DType, ParamDType, PlainDType
from ir.serde import Tagged

I64Value = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# msgspec bounds integers by i64 constants only, so the upper bound of a u64 is the wire's own.
U64Value = Annotated[int, Meta(ge=0)]
Number: TypeAlias = float | int | bool


class ScalarIr(Tagged, eq=False):
    """A scalar as the client sent it: its kind and its value.

    Equality and hash go by kind and bits: NaN equals NaN, 0.0 differs from -0.0, `Int(1)` from `Float(1.0)`.
    The kind says nothing about the tensor it meets: see `convert`.
    """

    Float: float | UnsetType = UNSET
    Int: I64Value | UnsetType = UNSET
    UInt: U64Value | UnsetType = UNSET
    Bool: bool | UnsetType = UNSET

    @property
    def value(self) -> Number:
        """The value, as a Python number."""
        for given in (self.Float, self.Int, self.UInt, self.Bool):
            if not isinstance(given, UnsetType):
                return given
        raise AssertionError("a Tagged has one variant")

    @property
    def bits(self) -> tuple[str, int]:
        """Kind and bit pattern, which decide equality."""
        if not isinstance(self.Float, UnsetType):
            return "Float", int.from_bytes(struct.pack("<d", self.Float), "little")
        return self.variant, int(self.value)

    def __eq__(self, other: object) -> bool:
        return self.bits == other.bits if isinstance(other, ScalarIr) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.bits)


def scalar(value: Number) -> ScalarIr:
    """The scalar of a Python number: bool -> Bool, int -> Int (UInt above i64), float -> Float.

    >>> scalar(3).variant, scalar(0.5).variant, scalar(2**63).variant
    ('Int', 'Float', 'UInt')
    """
    if isinstance(value, bool):
        return ScalarIr(Bool=value)
    if isinstance(value, int):
        return ScalarIr(UInt=value) if value >= 2**63 else ScalarIr(Int=value)
    return ScalarIr(Float=float(value))


def convert(value: Number, dtype: DType) -> Number:
    """The number that `value` stands for on a tensor of `dtype`, before rounding to a float dtype.

    Floats take the value as it is. Integers truncate a float toward zero and wrap into the dtype; NaN counts as 0 and
    infinities saturate, where Burn's backends disagree or panic. Bools ask whether the value is not 0.

    >>> convert(300, PlainDType.I8), convert(-1, PlainDType.U8), convert(-2.7, PlainDType.I32)
    (44, 255, -2)

    Raises:
        TypeError: the dtype is quantized.
    """
    if isinstance(dtype, ParamDType):
        if dtype.is_bool:
            return value != 0
        raise TypeError(f"a scalar cannot take the dtype {dtype.short}")
    if dtype.is_float:
        return float(value)
    if isinstance(value, float):
        if value != value:
            return 0
        # Rust's `as i64` saturates; U64 keeps what only it can hold.
        low, high = (0, 2**64 - 1) if dtype is PlainDType.U64 and value >= 2**63 else (-(2**63), 2**63 - 1)
        value = low if value <= low else high if value >= high else int(value)
    wrapped = int(value) & (2**dtype.bits - 1)
    return wrapped - 2**dtype.bits if dtype.is_signed and wrapped >> (dtype.bits - 1) else wrapped


def widen(value: Number, dtype: DType) -> Number:
    """The bound of a clamp on a tensor of `dtype`: as `convert`, but integers do not wrap into the dtype.

    They go by i64, or by u64 on a U64 tensor, where a bound below 0 counts as 0.

    >>> widen(300, PlainDType.I8), widen(-5, PlainDType.U64)
    (300, 0)
    """
    if not dtype.is_int:
        return convert(value, dtype)
    if dtype is PlainDType.U64:
        return convert(max(value, 0), dtype)
    return convert(min(value, 2**63 - 1), PlainDType.I64)
