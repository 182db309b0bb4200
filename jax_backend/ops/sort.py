"""Lowerings of `ir.ops.sort`: sorts of integer keys whose order is the IEEE total order of the values.

`lax.sort` on floats would take -0.0 for 0.0 and a negative NaN for a positive one. A sort of one operand is also far
faster than one that carries a second: on [1024, 1024] f32, CPU, the floats take 124 ms, their keys 22 ms; with indices,
a sort of two operands takes 127 ms (as does argsort + gather), of keys and indices packed into one i64 22 ms.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

import ir
from ir.errors import ShapeError
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, out_dtype

SELECTION_RATIO = 8
"""`lax.top_k` is used while k times this is at most the length of the axis.

On lines of 1024 f32, CPU: 2 ms for k = 5, 18 ms for 100, 59 ms for 512; a whole sort takes 22 ms.
"""


def to_key(x: Array, descending: bool) -> Array:
    """Integers of the width of x that ascend as x does, in total order, or as it descends. See `from_key`."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        x = _ordered(lax.bitcast_convert_type(x, jnp.dtype(f"int{x.dtype.itemsize * 8}")))
    return ~x if descending else x


def from_key(key: Array, dtype: np.dtype, descending: bool) -> Array:
    """The values of `dtype` that gave these keys."""
    key = ~key if descending else key
    return lax.bitcast_convert_type(_ordered(key), dtype) if jnp.issubdtype(dtype, jnp.floating) else key


def _ordered(bits: Array) -> Array:
    """Bits of negative floats reversed in order; its own inverse."""
    info = jnp.iinfo(bits.dtype)
    sign = lax.shift_right_arithmetic(bits, jnp.full_like(bits, info.bits - 1))
    return bits ^ (sign & jnp.asarray(info.max, bits.dtype))


def sort_keys(keys: Array) -> Array:
    """Keys sorted along the last axis. `is_stable` does not change the result; without it CPU takes 33 ms, not 22."""
    return lax.sort(keys, dimension=-1, is_stable=True)


def sort_with_places(keys: Array) -> tuple[Array, Array]:
    """Keys sorted along the last axis, and where each came from; equals keep their order.

    Packing suits CPU alone: an H200 takes 95 us packed, 66 with two operands on [1024, 1024], 2.2 and 1.0 ms on
    [64, 131072].
    """
    if keys.dtype.itemsize > 4 or keys.shape[-1] > 2**31:
        return sort_two(keys)
    return lax.platform_dependent(keys, cpu=sort_packed, default=sort_two)


def sort_two(keys: Array) -> tuple[Array, Array]:
    """`sort_with_places` as one sort of two operands."""
    index = jnp.int32 if keys.shape[-1] <= 2**31 else jnp.int64
    places = lax.broadcasted_iota(index, keys.shape, keys.ndim - 1)
    ordered, places = lax.sort((keys, places), dimension=-1, is_stable=True, num_keys=1)
    return ordered, places.astype(jnp.int64)


def sort_packed(keys: Array) -> tuple[Array, Array]:
    """`sort_with_places` as one sort of 64-bit words: a key of up to 32 bits above, its place below."""
    wide = jnp.int64 if jnp.issubdtype(keys.dtype, jnp.signedinteger) else jnp.uint64
    places = lax.broadcasted_iota(wide, keys.shape, keys.ndim - 1)
    packed = sort_keys((keys.astype(wide) * jnp.asarray(2**32, wide)) | places)
    places = packed & jnp.asarray(2**32 - 1, wide)
    return (packed >> jnp.asarray(32, wide)).astype(keys.dtype), places.astype(jnp.int64)


@lower(ir.Sort)
def sort(op: ir.Sort, x: Array) -> Array:
    """Values in order. The axis goes last first: XLA sorts an outer axis in 70 ms, a transposed one in 47."""
    keys = sort_keys(to_key(jnp.swapaxes(x, op.dim, -1), op.descending))
    return jnp.swapaxes(from_key(keys, x.dtype, op.descending), op.dim, -1)


def sorted_pair(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Values in order along `dim`, and where each came from."""
    keys, places = sort_with_places(to_key(jnp.swapaxes(x, dim, -1), descending))
    return jnp.swapaxes(from_key(keys, x.dtype, descending), dim, -1), jnp.swapaxes(places, dim, -1)


@lower(ir.ArgSort)
def arg_sort(op: ir.ArgSort, x: Array) -> Array:
    """Where the values in order come from."""
    return sorted_pair(x, op.dim, op.descending)[1].astype(out_dtype(op.out))


@lower(ir.SortWithIndices)
def sort_with_indices(op: ir.SortWithIndices, x: Array) -> tuple[Array, Array]:
    """Values in order, and where each came from."""
    values, places = sorted_pair(x, op.dim, op.descending)
    return values, places.astype(out_dtype(op.out_indices))


def largest(name: str, x: Array, dim: int, k: int) -> tuple[Array, Array]:
    """The k largest along `dim` in descending total order, lower places first among equals, and their places.

    Raises:
        ShapeError: there are fewer than k.
    """
    size = x.shape[dim]
    if k > size:
        raise ShapeError(f"{name}: expected at most {size}, the size of axis {dim}, got {k}")
    if k * SELECTION_RATIO > size or not fits_f32(x.dtype):
        values, places = sorted_pair(x, dim, descending=True)
        return lax.slice_in_dim(values, 0, k, axis=dim), lax.slice_in_dim(places, 0, k, axis=dim)
    values, places = lax.top_k(jnp.swapaxes(x, dim, -1).astype(jnp.float32), k)
    return jnp.swapaxes(values.astype(x.dtype), dim, -1), jnp.swapaxes(places, dim, -1)


def fits_f32(dtype: np.dtype) -> bool:
    """Whether every value of `dtype` is a float32: XLA has a selection, which is in total order, for these only."""
    return dtype.itemsize < 4 or dtype == jnp.float32


@lower(ir.TopK)
def top_k(op: ir.TopK, x: Array) -> Array:
    """The k largest.

    Raises:
        ShapeError: there are fewer than k.
    """
    return largest("TopK.accumulator_len", x, op.axis, op.accumulator_len)[0]


@lower(ir.ArgTopK)
def arg_top_k(op: ir.ArgTopK, x: Array) -> Array:
    """Where the k largest are.

    Raises:
        ShapeError: there are fewer than k.
    """
    return largest("ArgTopK.accumulator_len", x, op.axis, op.accumulator_len)[1].astype(out_dtype(op.out))


@lower(ir.TopKWithIndices)
def top_k_with_indices(op: ir.TopKWithIndices, x: Array) -> tuple[Array, Array]:
    """The k largest, and where they are.

    Raises:
        ShapeError: there are fewer than k.
    """
    values, places = largest("TopKWithIndices.k", x, op.dim, op.k)
    return values, places.astype(out_dtype(op.out_indices))
