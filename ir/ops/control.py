"""Init, Custom, Drop, and the collectives. Source: burn-ir `OperationIr`, `DistributedOperationIr`."""

from typing import Annotated

from msgspec import Meta

from ir.dtype import StrEnum
from ir.op import In, InList, Op, Out, OutList
from ir.records import Record
from ir.registry import DISTRIBUTED, kind
from ir.scalar import ScalarIr

U16Value = Annotated[int, Meta(ge=0, le=65_535)]


@kind("Init")
class Init(Op):
    """Announces a tensor whose data was registered apart. Runs nothing."""

    out: Out


@kind("Custom")
class Custom(Op):
    """An operation that the custom registry knows by `id`. Its scalars are static: they may decide shapes."""

    id: str
    # Burn's names; they say what the properties of `Op` would derive.
    inputs: InList  # pyright: ignore[reportIncompatibleMethodOverride]
    outputs: OutList  # pyright: ignore[reportIncompatibleMethodOverride]
    scalars: tuple[ScalarIr, ...]


@kind("Drop")
class Drop(Op):
    """Forgets a tensor; one that is gone already is no error. On the wire the payload is the tensor itself."""

    tensor: In


class ReduceOperation(StrEnum):
    """How the parts of a collective are joined."""

    Sum = "Sum"
    Mean = "Mean"


class DeviceId(Record):
    """A device by type and position in the server's list."""

    type_id: U16Value
    index_id: U16Value


@kind(*DISTRIBUTED)
class AllReduce(Op):
    """`tensor` joined with the tensors of all `device_ids`, the same result on each."""

    tensor: In
    out: Out
    op: ReduceOperation
    device_ids: tuple[DeviceId, ...]


@kind(*DISTRIBUTED)
class SyncCollective(Op):
    """Waits for the collectives that are under way. On the wire a bare name."""
