"""Element types: Burn's `DType` with its bool stores and quantization schemes.

`DType` is `PlainDType | ParamDType`; both answer the same questions (`is_float`, `size_bytes`, ...).
Source: burn-std `tensor/dtype.rs`, `tensor/quantization/scheme.rs`.
"""

import enum
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from ir.serde import Tagged

U8Value = Annotated[int, Meta(ge=0, le=255)]
Dim = Annotated[int, Meta(ge=0)]


class StrEnum(enum.StrEnum):
    """An enum of names whose hash runs in C: `Enum.__hash__` is a Python call per operand of every operation."""

    __hash__ = str.__hash__


class DTypeInfo:
    """What a dtype can be asked, whichever of the two forms it has."""

    __slots__ = ()

    @property
    def short(self) -> str:
        """The dtype as messages write it: `f32`, `bool`, `bool.u8`, `q8s`."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in tensor data; packed quantized values count as one byte or less, so 0 for QFloat."""
        raise NotImplementedError

    @property
    def is_float(self) -> bool:
        """A float that is not quantized."""
        return False

    @property
    def is_int(self) -> bool:
        """An integer, signed or not."""
        return False

    @property
    def is_signed(self) -> bool:
        """A signed integer."""
        return False

    @property
    def is_bool(self) -> bool:
        """A bool, whatever its store."""
        return False

    @property
    def is_quantized(self) -> bool:
        """A quantized float."""
        return False


class PlainDType(DTypeInfo, StrEnum):
    """The dtypes without a parameter, named as in Burn. `Flex32` is stored as f32 and may be computed faster."""

    F64 = "F64"
    F32 = "F32"
    Flex32 = "Flex32"
    F16 = "F16"
    BF16 = "BF16"
    I64 = "I64"
    I32 = "I32"
    I16 = "I16"
    I8 = "I8"
    U64 = "U64"
    U32 = "U32"
    U16 = "U16"
    U8 = "U8"

    @property
    def short(self) -> str:  # noqa: D102
        return self.value.lower()

    @property
    def bits(self) -> int:
        """Width of one element in bits."""
        return int(self.value.lstrip("FlexBIU"))

    @property
    def size_bytes(self) -> int:  # noqa: D102
        return self.bits // 8

    @property
    def is_float(self) -> bool:  # noqa: D102
        return "F" in self.value

    @property
    def is_int(self) -> bool:  # noqa: D102
        return "F" not in self.value

    @property
    def is_signed(self) -> bool:  # noqa: D102
        return self.value[0] == "I"


class BoolStore(StrEnum):
    """How a bool is stored: 1, 1 and 4 bytes."""

    Native = "Native"
    U8 = "U8"
    U32 = "U32"


class QuantValue(StrEnum):
    """Kind of a quantized value: bits and format; `F` uses the full range, `S` the symmetric one."""

    Q8F = "Q8F"
    E5M2 = "E5M2"
    E4M3 = "E4M3"
    Q4F = "Q4F"
    E2M1 = "E2M1"
    Q2F = "Q2F"
    Q8S = "Q8S"
    Q4S = "Q4S"
    Q2S = "Q2S"

    @property
    def bits(self) -> int:
        """Width of one value in bits."""
        return {"E5M2": 8, "E4M3": 8, "E2M1": 4}.get(self.value) or int(self.value[1])


class ScaleDtype(StrEnum):
    """Dtype of a quantization scale."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    UE8M0 = "UE8M0"
    UE4M3 = "UE4M3"


class QuantMode(StrEnum):
    """How a value is mapped."""

    Symmetric = "Symmetric"
    Lookup = "Lookup"


class NativeStore(StrEnum):
    """The store without a parameter: one value per native element."""

    Native = "Native"


class PackedStore(Tagged):
    """Several values per element, packed along an axis that is counted from the innermost."""

    PackedNative: Dim | UnsetType = UNSET
    PackedU32: Dim | UnsetType = UNSET


QuantStore: TypeAlias = NativeStore | PackedStore


class BlockSize(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Sizes of a quantization block: `len` dims first in `storage`, the rest filled with 1."""

    storage: tuple[U8Value, U8Value, U8Value, U8Value, U8Value]
    len: U8Value

    @property
    def dims(self) -> tuple[int, ...]:
        """The block sizes, outermost first."""
        return self.storage[: self.len]


class BlockScale(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """One scale of `dtype` per block."""

    size: BlockSize
    dtype: ScaleDtype


class QuantScheme(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """How a float tensor is quantized.

    `tensor` is the dtype of a scale for the whole tensor, `block` of one per block; both make a two-level scheme,
    neither means one f32 scale.
    """

    value: QuantValue
    store: QuantStore
    mode: QuantMode
    tensor: ScaleDtype | None
    block: BlockScale | None


class ParamDType(DTypeInfo, Tagged, frozen=True):
    """The dtypes with a parameter: `Bool(store)` and `QFloat(scheme)`."""

    Bool: BoolStore | UnsetType = UNSET
    QFloat: QuantScheme | UnsetType = UNSET

    @property
    def short(self) -> str:  # noqa: D102
        if self.Bool is UNSET:
            return self.scheme.value.value.lower()
        return "bool" if self.Bool is BoolStore.Native else f"bool.{self.store.value.lower()}"

    @property
    def store(self) -> BoolStore:
        """Store of a bool.

        Raises:
            TypeError: the dtype is no bool.
        """
        if isinstance(self.Bool, UnsetType):
            raise TypeError(f"{self.short} has no bool store")
        return self.Bool

    @property
    def scheme(self) -> QuantScheme:
        """Scheme of a quantized float.

        Raises:
            TypeError: the dtype is not quantized.
        """
        if isinstance(self.QFloat, UnsetType):
            raise TypeError(f"{self.short} has no quantization scheme")
        return self.QFloat

    @property
    def size_bytes(self) -> int:  # noqa: D102
        if self.Bool is UNSET:
            return 0
        return 4 if self.Bool is BoolStore.U32 else 1

    @property
    def is_bool(self) -> bool:  # noqa: D102
        return self.Bool is not UNSET

    @property
    def is_quantized(self) -> bool:  # noqa: D102
        return self.QFloat is not UNSET


DType: TypeAlias = PlainDType | ParamDType

F64, F32, FLEX32, F16, BF16 = (PlainDType(n) for n in ("F64", "F32", "Flex32", "F16", "BF16"))
I64, I32, I16, I8 = (PlainDType(n) for n in ("I64", "I32", "I16", "I8"))
U64, U32, U16, U8 = (PlainDType(n) for n in ("U64", "U32", "U16", "U8"))
BOOL = ParamDType(Bool=BoolStore.Native)
BOOL_U8 = ParamDType(Bool=BoolStore.U8)
BOOL_U32 = ParamDType(Bool=BoolStore.U32)


def qfloat(scheme: QuantScheme) -> ParamDType:
    """The dtype `QFloat(scheme)`."""
    return ParamDType(QFloat=scheme)
