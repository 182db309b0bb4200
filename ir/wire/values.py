"""Plain values of the protocol that no operation holds: streams, sessions, addresses, settings, errors, profiling.

Source: burn-std `device_settings.rs`, burn-backend `backend/base.rs`, burn-ir `stream.rs`; names as there.
"""

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from ir.dtype import BoolStore, QuantScheme, StrEnum, U8Value
from ir.records import Record
from ir.serde import Tagged

U64: TypeAlias = Annotated[int, Meta(ge=0)]
U32: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
U16: TypeAlias = Annotated[int, Meta(ge=0, le=2**16 - 1)]

GraphId: TypeAlias = U64
"""Number of a registered graph, unique within a client process."""

DTypeUsageSet: TypeAlias = Annotated[int, Meta(ge=0, le=7)]
"""Bit mask of what a device does with a dtype: 1 storage, 2 arithmetic, 4 accelerated."""


TransferCapability: TypeAlias = Annotated[tuple[U8Value, ...], Meta(min_length=32, max_length=32)]
"""The secret that gives a tensor out to another server."""


class StreamId(Record):
    """Thread of the client program. Tasks run in arrival order whatever their stream."""

    value: U64


class FloatDType(StrEnum):
    """Default dtype of new float tensors."""

    F64 = "F64"
    F32 = "F32"
    Flex32 = "Flex32"
    F16 = "F16"
    BF16 = "BF16"


class IntDType(StrEnum):
    """Default dtype of new int tensors."""

    I64 = "I64"
    I32 = "I32"
    I16 = "I16"
    I8 = "I8"
    U64 = "U64"
    U32 = "U32"
    U16 = "U16"
    U8 = "U8"


class QuantPropagation(StrEnum):
    """Whether results of operations on quantized tensors are quantized."""

    Propagate = "Propagate"
    Inhibit = "Inhibit"


class QuantConfig(Record):
    """Default quantization of a device."""

    scheme: QuantScheme
    propagation: QuantPropagation


class DeviceSettings(Record):
    """The dtypes that a client gives to new tensors on a device."""

    float_dtype: FloatDType
    int_dtype: IntDType
    bool_dtype: BoolStore
    quantization: QuantConfig


class Reason(Record):
    """Why something failed, for the user to read."""

    reason: str


class ExecutionError(Tagged):
    """A failure that a read or a sync reports. `DevicePoisoned` tells the client that the device is lost for good."""

    WithContext: Reason | UnsetType = UNSET
    Generic: Reason | UnsetType = UNSET
    DevicePoisoned: Reason | UnsetType = UNSET


class ProfileToken(Record):
    """A measurement under way, and the stream it was opened on."""

    id: U64
    opened_on: U64


class ProfileOptions(Record):
    """Whether work that is queued runs before the measurement ends."""

    flush: bool


class Duration(Record):
    """A span of time: whole seconds, and nanoseconds beyond them."""

    secs: U64
    nanos: U32


class Address(Record):
    """Where a server listens, as the client spelled it."""

    scheme: str
    host: str
    port: U16 | None


class PeerAddr(Tagged):
    """Address of a server."""

    WebSocket: Address | UnsetType = UNSET


class PeerId(Tagged):
    """Name of a server."""

    WebSocket: Address | UnsetType = UNSET


class TensorRemote(Record):
    """A tensor that another server exposes; `capability` is the secret that gives it out."""

    capability: TransferCapability
    peer: PeerAddr


class SessionId(Record):
    """Name of a session, drawn at random by the client."""

    id: U64
