"""Burn releases that differ on the wire, each as a table of differences from the records of `ir`.

The records of `ir` have the layout of protocol 2 (Burn 0.22.0 and 0.22.1). Another release lists the types it writes
otherwise: its own record, and how to come from it to ours (`up`) and back (`down`). Fields of such a record are in our
layout already when `up` sees them, and still are when `down` leaves them, so a change states one level only.

Source: the published crates; samples in `tests/golden`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec import field as renamed

from ir.dtype import BlockScale, BlockSize, Dim, QuantMode, QuantScheme, QuantStore, QuantValue, ScaleDtype, StrEnum
from ir.errors import WireError
from ir.ops.conv import Conv1dOptions, Conv2dOptions
from ir.ops.quantize import QuantizationParameters
from ir.records import Record
from ir.serde import Tagged
from ir.tensor import TensorIr
from ir.wire.values import ExecutionError, Reason

Ours = TypeVar("Ours", bound=Struct)
Theirs = TypeVar("Theirs", bound=Struct)


@dataclass(frozen=True)
class Change(Generic[Ours, Theirs]):
    """How a release writes the type `ours`: as `theirs`."""

    ours: type[Ours]
    theirs: type[Theirs]
    up: Callable[[Theirs], Ours]
    down: Callable[[Ours], Theirs]


@dataclass(frozen=True, eq=False)
class Release:
    """One layout of the wire: `protocol` is its number in the handshake.

    `absent` names the kinds and messages that the release does not know; they are refused in both directions.
    """

    name: str
    protocol: int
    absent: frozenset[str] = frozenset()
    changes: Mapping[type[Struct], Change[Any, Any]] = field(default_factory=dict[type[Struct], Change[Any, Any]])

    def __repr__(self) -> str:
        return f"Release({self.name!r})"


class _WholeTensor(StrEnum):
    Tensor = "Tensor"


class _TwoLevels(Record):
    block: BlockSize
    global_: ScaleDtype = renamed(name="global")


class _Blocks(Tagged):
    Block: BlockSize | UnsetType = UNSET
    BlockTensor: _TwoLevels | UnsetType = UNSET


class _SymmetricOnly(StrEnum):
    Symmetric = "Symmetric"


class _QuantScheme(Record):
    value: QuantValue
    param: ScaleDtype
    store: QuantStore
    level: _WholeTensor | _Blocks
    mode: _SymmetricOnly


def _scheme_up(old: _QuantScheme) -> QuantScheme:
    tensor, block = None, None
    if isinstance(old.level, _WholeTensor):
        tensor = old.param
    elif isinstance(old.level.BlockTensor, _TwoLevels):
        tensor, block = old.level.BlockTensor.global_, BlockScale(old.level.BlockTensor.block, old.param)
    else:
        block = BlockScale(old.level.payload, old.param)
    return QuantScheme(old.value, old.store, QuantMode.Symmetric, tensor, block)


def _scheme_down(new: QuantScheme) -> _QuantScheme:
    if new.mode is not QuantMode.Symmetric:
        raise WireError("QuantScheme.mode", f"0.22.0-pre.2 knows Symmetric only, got {new.mode.value}")
    if new.block is None:
        param, level = new.tensor or ScaleDtype.F32, _WholeTensor.Tensor
    elif new.tensor is None:
        param, level = new.block.dtype, _Blocks(Block=new.block.size)
    else:
        param, level = new.block.dtype, _Blocks(BlockTensor=_TwoLevels(new.block.size, new.tensor))
    return _QuantScheme(new.value, param, new.store, level, _SymmetricOnly.Symmetric)


class _QuantizationParameters(Record):
    scales: TensorIr


def _qparams_down(new: QuantizationParameters) -> _QuantizationParameters:
    if new.global_ is not None:
        raise WireError("QuantizationParameters.global", "0.22.0-pre.2 has no second scale; expected nil")
    return _QuantizationParameters(new.scales)


class _Conv1dOptions(Record):
    stride: tuple[Dim]
    padding: tuple[Dim]
    dilation: tuple[Dim]
    groups: Dim


class _Conv2dOptions(Record):
    stride: tuple[Dim, Dim]
    padding: tuple[Dim, Dim]
    dilation: tuple[Dim, Dim]
    groups: Dim


def _even(kind: str, padding: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    for before, after in padding:
        if before != after:
            raise WireError(f"{kind}.padding", f"0.22.0-pre.2 pads both sides alike, got ({before}, {after})")
    return tuple(before for before, _ in padding)


def _conv1d_down(new: Conv1dOptions) -> _Conv1dOptions:
    (pad,) = _even("Conv1dOptions", new.padding)
    return _Conv1dOptions(new.stride, (pad,), new.dilation, new.groups)


def _conv2d_down(new: Conv2dOptions) -> _Conv2dOptions:
    top, left = _even("Conv2dOptions", new.padding)
    return _Conv2dOptions(new.stride, (top, left), new.dilation, new.groups)


def _conv1d_up(old: _Conv1dOptions) -> Conv1dOptions:
    return Conv1dOptions(old.stride, ((old.padding[0], old.padding[0]),), old.dilation, old.groups)


def _conv2d_up(old: _Conv2dOptions) -> Conv2dOptions:
    top, left = old.padding
    return Conv2dOptions(old.stride, ((top, top), (left, left)), old.dilation, old.groups)


class _ExecutionError(Tagged):
    WithContext: Reason | UnsetType = UNSET
    Generic: Reason | UnsetType = UNSET


def _error_down(new: ExecutionError) -> _ExecutionError:
    # A lost device has no name there; the reason still reaches the user.
    return _ExecutionError(**{"Generic" if new.variant == "DevicePoisoned" else new.variant: new.payload})


_PROTOCOL_1_CHANGES: tuple[Change[Any, Any], ...] = (
    Change(QuantScheme, _QuantScheme, _scheme_up, _scheme_down),
    Change(
        QuantizationParameters,
        _QuantizationParameters,
        lambda old: QuantizationParameters(old.scales, None),
        _qparams_down,
    ),
    Change(Conv1dOptions, _Conv1dOptions, _conv1d_up, _conv1d_down),
    Change(Conv2dOptions, _Conv2dOptions, _conv2d_up, _conv2d_down),
    Change(ExecutionError, _ExecutionError, lambda old: ExecutionError(**{old.variant: old.payload}), _error_down),
)

PROTOCOL_2 = Release("0.22.1", 2, absent=frozenset({"Rfft", "IRfft"}))
"""Burn 0.22.0 and 0.22.1: the layout of our own records."""

PROTOCOL_1 = Release(
    "0.22.0-pre.2",
    1,
    absent=frozenset(
        {"SumDims", "Pad", "BatchNorm", "ProfileStart", "ProfileEnd", "ProfileAbandon", "InitRefused", "DevicePoisoned"}
    ),
    changes={change.ours: change for change in _PROTOCOL_1_CHANGES},
)
"""Burn 0.22.0-pre.2, the only one with `Rfft` and `IRfft`."""

UNION = Release("union", 2)
"""The layout of protocol 2 with every kind of both releases: for streams of our own."""
