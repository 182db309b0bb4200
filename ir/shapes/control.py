"""Rules of Init, Custom, Drop, and the collectives. Source: burn-ir `operation.rs`, burn-signal, burn-linalg."""

from collections.abc import Callable
from typing import Final

from ir.dtype import F32
from ir.errors import DTypeError, ShapeError
from ir.ops.control import AllReduce, Custom, Drop, Init, SyncCollective
from ir.shapes.formulas import show
from ir.shapes.rules import Given, Outputs, TensorType, one, shape_rule, type_of
from ir.shapes.signal import irfft_dims, rfft_dims


@shape_rule(Init)
def init(op: Init, given: Given) -> Outputs:
    """As announced."""
    return one(given.shape(), given.dtype or F32)


@shape_rule(Drop, SyncCollective)
def nothing(op: Drop | SyncCollective, given: Given) -> Outputs:
    """No outputs."""
    return ()


@shape_rule(AllReduce)
def all_reduce(op: AllReduce, given: Given) -> Outputs:
    """The type of the tensor."""
    if len(set(op.device_ids)) != len(op.device_ids) or not op.device_ids:
        raise ShapeError(f"device_ids: expected one or more distinct devices, got {len(op.device_ids)} with repeats")
    return (type_of(op.tensor),)


def _numbers(op: Custom, count: int) -> tuple[int, ...]:
    if len(op.scalars) != count:
        raise ShapeError(f"scalars: expected {count} scalars for {op.id}, got {len(op.scalars)}")
    return tuple(int(s.value) for s in op.scalars)


def _tensors(op: Custom, count: int) -> None:
    if len(op.inputs) != count:
        raise ShapeError(f"inputs: expected {count} tensors for {op.id}, got {len(op.inputs)}")
    for n, tensor in enumerate(op.inputs):
        if not tensor.dtype.is_float:
            raise DTypeError(f"inputs.{n}: expected a float tensor for {op.id}, got {tensor.dtype.short}")


def _rfft(op: Custom) -> Outputs:
    _tensors(op, 1)
    dim, has_length, length = _numbers(op, 3)
    part = TensorType(rfft_dims(op.inputs[0].shape.dims, dim, length if has_length else None), op.inputs[0].dtype)
    return part, part


def _irfft(op: Custom) -> Outputs:
    _tensors(op, 2)
    dim, has_length, length = _numbers(op, 3)
    return one(irfft_dims(op.inputs[0].shape.dims, dim, length if has_length else None), op.inputs[0].dtype)


def _svd(op: Custom) -> Outputs:
    """`x` (.., m, n), m >= n -> u (.., m, n), s (.., n), vt (.., n, n); swapped: u (.., n, n), s, vt (.., n, m)."""
    _tensors(op, 1)
    _, swap = _numbers(op, 2)
    dims, dtype = op.inputs[0].shape.dims, op.inputs[0].dtype
    if len(dims) < 2 or dims[-2] < dims[-1]:
        raise ShapeError(f"inputs.0: expected shape (.., m, n) with m >= n for {op.id}, got {show(dims)}")
    *batch, rows, columns = dims
    square, singular = (*batch, columns, columns), (*batch, columns)
    tall, wide = (*batch, rows, columns), (*batch, columns, rows)
    shapes = (square, singular, wide) if swap else (tall, singular, square)
    return tuple(TensorType(shape, dtype) for shape in shapes)


_KNOWN: Final[dict[str, Callable[[Custom], Outputs]]] = {
    "signal::rfft": _rfft,
    "signal::irfft": _irfft,
    "linalg::svd": _svd,
}
"""Custom operations that Burn 0.22.1 itself sends."""


@shape_rule(Custom)
def custom(op: Custom, given: Given) -> Outputs:
    """As declared; Burn's own custom operations by their rules."""
    if known := _KNOWN.get(op.id):
        return known(op)
    if given.types is None:
        raise ShapeError(f"outputs: expected the types of the outputs of {op.id}, got none; give `out_types`")
    return given.types
