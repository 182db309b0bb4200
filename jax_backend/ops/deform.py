"""Deformable convolution and its gradient. Declared in `ir.ops.conv`."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

import ir
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, const, dot_precision, widen_half


@lower(ir.DeformableConv2d)
def deformable_conv_2d(
    op: ir.DeformableConv2d, x: Array, offset: Array, weight: Array, mask: Array | None, bias: Array | None
) -> Array:
    """A sample per tap, then a grouped product; halves in float32."""
    mask, bias = (None if a is None else widen_half(a) for a in (mask, bias))
    return _deformable(op, widen_half(x), widen_half(offset), widen_half(weight), mask, bias).astype(x.dtype)


@lower(ir.DeformableConv2dBackward)
def deformable_conv_2d_backward(
    op: ir.DeformableConv2dBackward,
    x: Array,
    offset: Array,
    weight: Array,
    mask: Array | None,
    bias: Array | None,
    out_grad: Array,
) -> tuple[Array, ...]:
    """Reverse mode of the forward sum. The floor of a coordinate has no derivative, so that offsets get Burn's."""
    required, optional = [x, offset, weight], [a for a in (mask, bias) if a is not None]

    def forward(x: Array, offset: Array, weight: Array, *optional: Array) -> Array:
        rest = iter(optional)
        return _deformable(
            op, x, offset, weight, next(rest) if mask is not None else None, next(rest) if bias is not None else None
        )

    adjoint: Callable[[Array], tuple[Array, ...]]
    _, adjoint = jax.vjp(forward, *map(widen_half, required + optional))
    return tuple(grad.astype(out_grad.dtype) for grad in adjoint(widen_half(out_grad)))


def _deformable(
    op: ir.DeformableConv2d | ir.DeformableConv2dBackward,
    x: Array,
    offset: Array,
    weight: Array,
    mask: Array | None,
    bias: Array | None,
) -> Array:
    """The convolution in the dtype of its operands: (N, Cout, oH, oW)."""
    options, groups = op.options, op.options.weight_groups
    batch = x.shape[0]
    out_channels, per_group, *kernel = weight.shape
    taps, places = kernel[0] * kernel[1], offset.shape[2:]
    columns = _samples(op, x, offset, kernel)
    if mask is not None:
        columns = columns * mask.reshape(batch, options.offset_groups, *kernel, *places)[..., None]
    columns = jnp.moveaxis(columns, -1, 2).reshape(batch, groups, per_group, taps, places[0] * places[1])
    out = jnp.einsum(
        "ngctp,goct->ngop",
        columns,
        weight.reshape(groups, out_channels // groups, per_group, taps),
        precision=dot_precision(op.x.dtype),
    ).reshape(batch, out_channels, *places)
    return out if bias is None else out + bias.reshape(1, -1, 1, 1)


def _samples(
    op: ir.DeformableConv2d | ir.DeformableConv2dBackward, x: Array, offset: Array, kernel: list[int]
) -> Array:
    """Values of x at every tap, moved by its offset: (N, offset groups, kH, kW, oH, oW, C / offset groups).

    Bilinear; a corner outside the image counts 0. A tap a whole pixel or more outside is 0 with all its derivatives,
    which matters at -1 itself (Burn on Flex, and PyTorch).
    """
    o = op.options
    batch, channels, height, width = x.shape
    moved = offset.reshape(batch, o.offset_groups, *kernel, 2, *offset.shape[2:])
    planes = x.reshape(batch, o.offset_groups, channels // o.offset_groups, height * width).swapaxes(2, 3)
    at = [moved[:, :, :, :, n] + _centres(moved, n, o.stride[n], o.padding[n], o.dilation[n]) for n in (0, 1)]
    low = [jnp.floor(a) for a in at]
    high_weight = [a - floor for a, floor in zip(at, low, strict=True)]

    def corner(row: int, column: int) -> Array:
        y, x = low[0] + float(row), low[1] + float(column)
        weight = (high_weight[0] if row else 1.0 - high_weight[0]) * (
            high_weight[1] if column else 1.0 - high_weight[1]
        )
        inside = (y >= 0.0) & (y < float(height)) & (x >= 0.0) & (x < float(width))
        flat = jnp.where(inside, y * float(width) + x, const(0, y)).astype(jnp.int32)
        rows = flat.reshape(batch, o.offset_groups, math.prod(flat.shape[2:]), 1)
        values = jnp.take_along_axis(planes, rows, axis=2, mode="clip").reshape(*flat.shape, planes.shape[3])
        values = jnp.where(inside[..., None], values, const(0, values))
        return values * weight[..., None]

    reached = (at[0] > -1.0) & (at[0] < float(height)) & (at[1] > -1.0) & (at[1] < float(width))
    value = corner(0, 0) + corner(0, 1) + corner(1, 0) + corner(1, 1)
    return jnp.where(reached[..., None], value, const(0, value))


def _centres(moved: Array, axis: int, stride: int, padding: int, dilation: int) -> Array:
    """Where the taps lie before they are moved, along one axis, shaped to meet (N, groups, kH, kW, oH, oW)."""
    kernel, count = moved.shape[2 + axis], moved.shape[5 + axis]
    shape = [1] * 6
    shape[2 + axis], shape[4 + axis] = kernel, count
    taps = lax.iota(moved.dtype, kernel)[:, None] * float(dilation)
    return (taps + lax.iota(moved.dtype, count)[None] * float(stride) - float(padding)).reshape(shape)
