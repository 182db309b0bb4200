"""Gather, scatter, select.

An index out of range, negative ones included, reads the nearest element and writes nothing: `verify` reports it where
it is asked to, and XLA must do something. Jax's own default fills with NaN in some functions and wraps negative ones.
"""

from typing import TypeAlias

import jax.numpy as jnp
from jax import lax

import ir
from ir.ops.indexing import IndexingUpdateOp
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, const, widen_half

Place: TypeAlias = "tuple[Array, ...]"

_BOUNDS = {IndexingUpdateOp.Min: float("inf"), IndexingUpdateOp.Max: float("-inf")}
_ON_BOOL = {
    IndexingUpdateOp.Add: IndexingUpdateOp.Max,
    IndexingUpdateOp.Max: IndexingUpdateOp.Max,
    IndexingUpdateOp.Mul: IndexingUpdateOp.Min,
    IndexingUpdateOp.Min: IndexingUpdateOp.Min,
}
"""Sums of bools are "or", products "and"; XLA adds no bools."""


@lower(ir.Select)
def select(op: ir.Select, x: Array, indices: Array) -> Array:
    """Slices of one axis by index."""
    return jnp.take(x, _wide(indices, x), axis=op.dim, mode="clip")


@lower(ir.SelectAssign)
def select_assign(op: ir.SelectAssign, x: Array, indices: Array, value: Array) -> Array:
    """Slices of one axis updated by index."""
    front = jnp.moveaxis(x, op.dim, 0)
    updated = _update(front, (_wide(indices, x),), jnp.moveaxis(value, op.dim, 0), op.update)
    return jnp.moveaxis(updated, 0, op.dim)


@lower(ir.Gather)
def gather(op: ir.Gather, x: Array, indices: Array) -> Array:
    """Elements by index along one axis, everything else in its place."""
    indices = _wide(indices, x)
    last = const(max(x.shape[op.dim] - 1, 0), indices)
    return jnp.take_along_axis(x, lax.clamp(const(0, indices), indices, last), axis=op.dim, mode="promise_in_bounds")


@lower(ir.Scatter)
def scatter(op: ir.Scatter, x: Array, indices: Array, value: Array) -> Array:
    """Elements updated by index along one axis, everything else in its place."""
    indices = _wide(indices, x)
    place = [lax.broadcasted_iota(indices.dtype, indices.shape, axis) for axis in range(x.ndim)]
    place[op.dim] = indices
    return _update(x, tuple(place), value, op.update)


@lower(ir.GatherNd)
def gather_nd(op: ir.GatherNd, x: Array, indices: Array) -> Array:
    """Blocks at the coordinates that the innermost axis of `indices` holds; none of them means the whole tensor."""
    if indices.shape[-1] == 0:
        return jnp.broadcast_to(x, op.out.shape.dims)
    return x.at[_coordinates(indices, x)].get(mode="clip", wrap_negative_indices=False)


@lower(ir.ScatterNd)
def scatter_nd(op: ir.ScatterNd, x: Array, indices: Array, values: Array) -> Array:
    """Blocks updated at the coordinates that the innermost axis of `indices` holds."""
    if indices.shape[-1] == 0:  # every update meets the whole tensor: give it an axis to be the one place on
        place = jnp.zeros(indices.shape[:-1], jnp.int32)
        return _update(x[None], (place,), values, op.reduction)[0]
    return _update(x, _coordinates(indices, x), values, op.reduction)


def _wide(indices: Array, x: Array) -> Array:
    """Indices in a dtype that can name every element of an axis: an int8 index on a longer axis fails in jax."""
    return indices.astype(jnp.int64 if max(x.shape, default=0) >= 2**31 else jnp.int32)


def _coordinates(indices: Array, x: Array) -> Place:
    """Index arrays, one per axis that `indices` addresses."""
    return tuple(jnp.moveaxis(_wide(indices, x), -1, 0))


def _update(x: Array, place: Place, value: Array, update: IndexingUpdateOp) -> Array:
    """`x` with `value` applied at `place`, whose arrays index the outermost axes of `x`; what remains are blocks."""
    if value.size == 0 or x.size == 0:
        return x
    if update is IndexingUpdateOp.Assign:
        return _assign(x, place, value)
    if x.dtype == jnp.bool_:
        return _scattered(x, place, value, _ON_BOOL[update])
    if update in _BOUNDS and jnp.issubdtype(x.dtype, jnp.floating):
        # An update replaces only what it is smaller (larger) than: a NaN update never does, and nothing replaces a NaN.
        value = jnp.where(jnp.isnan(value), const(_BOUNDS[update], value), value)
        return jnp.where(jnp.isnan(x), x, _scattered(x, place, value, update))
    return _scattered(widen_half(x), place, widen_half(value), update).astype(x.dtype)


def _scattered(x: Array, place: Place, value: Array, update: IndexingUpdateOp) -> Array:
    at = x.at[place]
    apply = {
        IndexingUpdateOp.Add: at.add,
        IndexingUpdateOp.Mul: at.multiply,
        IndexingUpdateOp.Min: at.min,
        IndexingUpdateOp.Max: at.max,
    }[update]
    return apply(value, mode="drop", wrap_negative_indices=False)


def _assign(x: Array, place: Place, value: Array) -> Array:
    """The last update in row-major order wins.

    XLA leaves the order of updates open, so they are numbered, and each place takes the value of its highest number.
    """
    num_updates = place[0].size
    numbers = lax.iota(place[0].dtype, num_updates).reshape(place[0].shape)
    nobody = jnp.full(x.shape[: len(place)], -1, numbers.dtype)
    winner = _scattered(nobody, place, numbers, IndexingUpdateOp.Max)
    block = x.shape[len(place) :]
    latest = jnp.take(value.reshape((num_updates, *block)), winner, axis=0, mode="clip")
    return jnp.where((winner >= 0).reshape(winner.shape + (1,) * len(block)), latest, x)
