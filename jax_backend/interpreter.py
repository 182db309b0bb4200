"""Runs operations on arrays: one, or a whole relative program.

Promise: pure; the result depends on (program, arguments) only, and each output has its declared shape and dtype.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ir.errors import DTypeError, IrError, ShapeError
from ir.op import Op, Role, values
from ir.ops.control import Custom
from ir.stream import RelativeGraph, start_slots
from ir.tensor import TensorIr
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.dtypes import jax_dtype
from jax_backend.lowering import lowering_of
from jax_backend.ops.quantize import run_quantized, touches_quantized

Array: TypeAlias = jax.Array
Start: TypeAlias = "int | Array"
NextKey: TypeAlias = Callable[[], Array]


class OperationError(IrError):
    """An operation failed; `position` is its place in the program, `reason` the error itself."""

    def __init__(self, position: int, total: int, op: Op, reason: Exception) -> None:
        self.position = position
        self.reason = reason
        super().__init__(f"op {position + 1} of {total}: {op}: {reason}")


def run_op(
    op: Op,
    lookup: Callable[[TensorIr], Any],
    scalars: Iterator[Array],
    starts: Iterator[Start],
    next_key: NextKey,
    custom_ops: CustomOpRegistry,
) -> tuple[Any, ...]:
    """Run one operation and return its outputs, one per declared output tensor.

    Args:
        op: the operation, in canonical form.
        lookup: the value of an input tensor.
        scalars: the traced scalars, as 0-d arrays in the dtype of their slots.
        starts: the slice starts.
        next_key: a fresh random key at each call.
        custom_ops: what `Custom` may run.

    Raises:
        ShapeError, DTypeError: an output is not what the operation declares.
    """
    if touches_quantized(op):
        return run_quantized(
            op, lookup, lambda plain, values_of: run_op(plain, values_of, scalars, starts, next_key, custom_ops)
        )
    operands: list[Any] = [next_key()] if op.uses_random else []
    for field, value in values(op):
        if field.is_input:
            operands.append(
                None if value is None else tuple(map(lookup, value)) if isinstance(value, tuple) else lookup(value)
            )
        elif field.is_lifted:
            lift: Any = field.role
            static, numbers = lift.split(value)
            taken = tuple(next(scalars) for _ in numbers)
            operands.append(taken if not isinstance(static, bool | None) else taken[0] if taken else None)
        elif field.role is Role.RANGES:
            operands.append(tuple(next(starts) for _ in start_slots(op)))
    function = custom_ops.handler(op) if isinstance(op, Custom) else lowering_of(type(op))
    result = function(op, *operands)
    outputs = result if isinstance(result, tuple) else (result,)
    declared = op.outputs
    if len(outputs) != len(declared):
        raise ShapeError(f"{op.kind}: expected {len(declared)} outputs, got {len(outputs)}")
    for tensor, array in zip(declared, outputs, strict=True):
        check_output(op, tensor, array)
    return outputs


def check_output(op: Op, tensor: TensorIr, array: Any) -> None:
    """Compare an output with its declaration.

    Raises:
        ShapeError, DTypeError: they differ.
    """
    if tensor.dtype.is_quantized:
        return
    if tuple(array.shape) != tensor.shape.dims:
        raise ShapeError(f"{op.kind}.out: declared shape {tensor.shape.dims}, computed {tuple(array.shape)}")
    if array.dtype != jax_dtype(tensor.dtype):
        raise DTypeError(f"{op.kind}.out: declared dtype {tensor.dtype.short}, computed {array.dtype}")


def run_graph(
    graph: RelativeGraph,
    inputs: Sequence[Any],
    scalars: Sequence[Array],
    starts: Sequence[Start],
    key: Array | None,
    custom_ops: CustomOpRegistry,
) -> tuple[Any, ...]:
    """Run a relative program and return its outputs, in the order of `graph.outputs`.

    `key` is uint32[4]: two words of a threefry key, and the low and high word of the number of draws before this
    program. Draw k of the session folds k into the key, so that the numbers do not depend on where the stream is cut.

    Raises:
        OperationError: an operation failed; it names the operation and its place.
    """
    env: dict[int, Any] = dict(zip(graph.inputs, inputs, strict=True))
    next_scalar, next_start, draws = iter(scalars), iter(starts), count()

    def next_key() -> Array:
        assert key is not None
        return draw_key(key, next(draws))

    for position, op in enumerate(graph.ops):
        try:
            with jax.named_scope(scope(op, position)):
                outputs = run_op(op, lambda t: env[t.id.value], next_scalar, next_start, next_key, custom_ops)
        except Exception as reason:
            raise OperationError(position, len(graph.ops), op, reason) from reason
        env.update(zip((t.id.value for t in op.outputs), outputs, strict=True))
    return tuple(env[value] for value in graph.outputs)


def scope(op: Op, position: int) -> str:
    """What the instructions of an operation are named in its program's HLO."""
    return f"{op.kind}.{position}"


def draw_key(key: Array, offset: int) -> Array:
    """The key of draw `key[2:] + offset`: see `run_graph` for the layout of `key`."""
    base = jax.random.wrap_key_data(key[:2], impl="threefry2x32")
    low = key[2] + jnp.uint32(offset)
    high = key[3] + (low < key[2]).astype(jnp.uint32)
    return jax.random.fold_in(jax.random.fold_in(base, high), low)
