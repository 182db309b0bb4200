"""Shapes, casts, comparison, creation: float, int and bool tensors alike."""

from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

import ir
from ir.slices import SliceRange, Window, window
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, cast, const, is_nonzero, out_dtype

Start: TypeAlias = "int | Array"


@lower(ir.Reshape)
def reshape(op: ir.Reshape, x: Array) -> Array:
    """Row-major reinterpretation."""
    return x.reshape(op.out.shape.dims)


@lower(ir.SwapDims)
def swap_dims(op: ir.SwapDims, x: Array) -> Array:
    """Two axes exchanged; an axis with itself is the identity."""
    return jnp.swapaxes(x, op.dim1, op.dim2)


@lower(ir.Permute)
def permute(op: ir.Permute, x: Array) -> Array:
    """Axes reordered."""
    return jnp.transpose(x, op.axes)


@lower(ir.Flip)
def flip(op: ir.Flip, x: Array) -> Array:
    """Axes reversed."""
    return lax.rev(x, op.axes)


@lower(ir.Expand)
def expand(op: ir.Expand, x: Array) -> Array:
    """Broadcast, aligned at the innermost axis."""
    return jnp.broadcast_to(x, op.out.shape.dims)


@lower(ir.Unfold)
def unfold(op: ir.Unfold, x: Array) -> Array:
    """Sliding windows, appended as the innermost axis."""
    if 0 in op.out.shape.dims:  # jnp.take refuses an empty axis, whatever is taken
        return jnp.zeros(op.out.shape.dims, x.dtype)
    num_windows = op.out.shape.dims[op.dim]
    places = np.arange(num_windows, dtype=np.int32)[:, None] * np.int32(op.step) + np.arange(op.size, dtype=np.int32)
    return jnp.moveaxis(jnp.take(x, places, axis=op.dim, mode="clip"), op.dim + 1, -1)


@lower(ir.Slice)
def slice(op: ir.Slice, x: Array, starts: tuple[Start, ...]) -> Array:
    """Static windows in one strided slice, then each start that is traced."""
    fixed, moving = _laid(op.ranges, x.shape, starts)
    high = [w.start + max(0, (w.count - 1) * w.step + 1) for w in fixed]
    x = lax.slice(x, [w.start for w in fixed], high, [w.step for w in fixed])
    for axis, start in moving.items():
        x = lax.dynamic_slice_in_dim(x, start, op.out.shape.dims[axis], axis)
    return lax.rev(x, [axis for axis, w in enumerate(fixed) if w.reverse])


@lower(ir.SliceAssign)
def slice_assign(op: ir.SliceAssign, x: Array, starts: tuple[Start, ...], value: Array) -> Array:
    """One block is replaced; where the window has gaps, the block takes what is in them from the tensor."""
    if 0 in value.shape:
        return x
    fixed, moving = _laid(op.ranges, x.shape, starts)
    stepped = {axis: w for axis, w in enumerate(fixed) if w.step > 1 or w.reverse}
    corner: list[Array | np.int32] = [np.int32(0 if axis in stepped else w.start) for axis, w in enumerate(fixed)]
    for axis, start in moving.items():
        corner[axis] = start
    if stepped:
        block = [x.shape[axis] if axis in stepped else size for axis, size in enumerate(value.shape)]
        value = _spread(value, lax.dynamic_slice(x, corner, block), stepped)
    return lax.dynamic_update_slice(x, value, corner)


def _laid(
    ranges: tuple[SliceRange, ...], dims: tuple[int, ...], starts: tuple[Start, ...]
) -> tuple[list[Window], dict[int, Array]]:
    """The window of each axis, the whole axis where the start is traced, and the traced starts by axis."""
    given = iter(starts)
    fixed = [Window(0, size, 1, False) for size in dims]
    moving: dict[int, Array] = {}
    for axis, item in enumerate(ranges):
        if item.step != 1:
            fixed[axis] = window(item, dims[axis])
        elif isinstance(start := next(given), int):
            fixed[axis] = Window(start, item.end or 0, 1, False)
        else:
            moving[axis] = start
    return fixed, moving


def _spread(value: Array, block: Array, stepped: dict[int, Window]) -> Array:
    """`block` with `value` at the places that the windows visit.

    A pad and a select, since a scatter is slow on accelerators.
    """
    padding = [(0, 0, 0)] * block.ndim
    visited = np.ones((1,) * block.ndim, np.bool_)
    for axis, w in stepped.items():
        size = block.shape[axis]
        padding[axis] = (w.start, size - w.start - (w.count - 1) * w.step - 1, w.step - 1)
        here = np.zeros(size, np.bool_)
        here[w.start : w.start + w.count * w.step : w.step] = True
        visited = visited & here.reshape([-1 if a == axis else 1 for a in range(block.ndim)])
    value = lax.rev(value, [axis for axis, w in stepped.items() if w.reverse])
    return jnp.where(visited, lax.pad(value, const(0, value), padding), block)


@lower(ir.MaskWhere)
def mask_where(op: ir.MaskWhere, x: Array, mask: Array, value: Array) -> Array:
    """`value` where the mask is true."""
    return jnp.where(mask, value, x)


@lower(ir.MaskFill)
def mask_fill(op: ir.MaskFill, x: Array, mask: Array, value: Array) -> Array:
    """A scalar where the mask is true."""
    return jnp.where(mask, value, x)


@lower(ir.Equal, ir.EqualElem)
def equal(op: ir.Equal | ir.EqualElem, lhs: Array, rhs: Array) -> Array:
    """IEEE equality: NaN equals nothing, -0.0 equals 0.0."""
    return jnp.equal(lhs, rhs)


@lower(ir.NotEqual, ir.NotEqualElem)
def not_equal(op: ir.NotEqual | ir.NotEqualElem, lhs: Array, rhs: Array) -> Array:
    """IEEE inequality: NaN differs from itself."""
    return jnp.not_equal(lhs, rhs)


@lower(ir.RepeatDim)
def repeat_dim(op: ir.RepeatDim, x: Array) -> Array:
    """The whole block again and again: [a, b, a, b], not [a, a, b, b]."""
    return jnp.tile(x, [op.times if axis == op.dim else 1 for axis in range(x.ndim)])


@lower(ir.Cat)
def cat(op: ir.Cat, tensors: tuple[Array, ...]) -> Array:
    """Tensors joined along one axis."""
    return lax.concatenate(tensors, op.dim)


@lower(ir.Cast)
def cast_to(op: ir.Cast, x: Array) -> Array:
    """Another dtype of the same family: see `cast`."""
    return cast(x, out_dtype(op.out))


@lower(ir.Empty, ir.Zeros)
def zeros(op: ir.Empty | ir.Zeros) -> Array:
    """Zeros; nobody relies on what `Empty` holds."""
    return jnp.zeros(op.out.shape.dims, out_dtype(op.out))


@lower(ir.Ones)
def ones(op: ir.Ones) -> Array:
    """Ones, or true."""
    return jnp.ones(op.out.shape.dims, out_dtype(op.out))


@lower(ir.All)
def all_elements(op: ir.All, x: Array) -> Array:
    """Whether all are non-zero; NaN is."""
    return jnp.all(is_nonzero(x)).reshape(op.out.shape.dims)


@lower(ir.Any)
def any_element(op: ir.Any, x: Array) -> Array:
    """Whether one is non-zero; NaN is."""
    return jnp.any(is_nonzero(x)).reshape(op.out.shape.dims)


@lower(ir.AllDim)
def all_dim(op: ir.AllDim, x: Array) -> Array:
    """Whether all along one axis are non-zero; true for an empty axis."""
    return jnp.all(is_nonzero(x), axis=op.axis, keepdims=True)


@lower(ir.AnyDim)
def any_dim(op: ir.AnyDim, x: Array) -> Array:
    """Whether one along one axis is non-zero; false for an empty axis."""
    return jnp.any(is_nonzero(x), axis=op.axis, keepdims=True)
