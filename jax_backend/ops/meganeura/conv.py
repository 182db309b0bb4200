"""Lowerings of `ir.meganeura.ops.conv`: flat images, seen as (N, C, H, W) where their axes matter."""

from collections.abc import Callable
from math import prod
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from ir.errors import ShapeError
from ir.meganeura.ops.conv import (
    Concat,
    Conv2d,
    Conv2dGradInput,
    Conv2dGradWeight,
    GlobalAvgPool,
    GlobalAvgPoolGrad,
    MaxPool2d,
    SplitA,
    SplitB,
    SplitShape,
    Upsample2x,
    Upsample2xGrad,
)
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, const, dot_precision
from jax_backend.ops._windows import pad_before_transposing
from jax_backend.ops.meganeura._shared import Dims, declared, viewed

Conv: TypeAlias = Conv2d | Conv2dGradInput | Conv2dGradWeight


def _count(op: Conv | MaxPool2d, axis: Literal["h", "w"]) -> int:
    """Number of windows along an axis.

    Raises:
        ShapeError: there is no room for one, or they do not move.
    """
    size, kernel = (op.in_h, op.kernel_h) if axis == "h" else (op.in_w, op.kernel_w)
    padding = op.padding if isinstance(op, MaxPool2d) else op.padding_h if axis == "h" else op.padding_w
    if op.stride == 0:
        raise ShapeError(f"{op.kind}.stride: expected at least 1, got 0")
    if kernel > size + 2 * padding:
        raise ShapeError(f"{op.kind}.kernel_{axis}: expected at most {size} + 2 * {padding} places, got {kernel}")
    return (size + 2 * padding - kernel) // op.stride + 1


def _out_shape(op: Conv) -> Dims:
    """(N, out_channels, out_h, out_w) with N unknown."""
    return (-1, op.out_channels, _count(op, "h"), _count(op, "w"))


def _in_shape(op: Conv) -> Dims:
    return (-1, op.in_channels, op.in_h, op.in_w)


def _kernel_shape(op: Conv) -> Dims:
    return (op.out_channels, op.in_channels, op.kernel_h, op.kernel_w)


def _correlate(op: Conv) -> Callable[[Array, Array], Array]:
    """Cross-correlation of (N, C, H, W) with (O, C, kH, kW) as `op` says.

    Unlike Burn's, its padding takes no part in products: an infinite weight that meets only padding adds nothing.
    """
    padding = [(op.padding_h, op.padding_h), (op.padding_w, op.padding_w)]
    stride = (op.stride, op.stride)

    def correlate(x: Array, kernel: Array) -> Array:
        x, pads = pad_before_transposing(x, kernel.shape[2:], stride, (1, 1), padding)
        return lax.conv_general_dilated(
            x,
            kernel,
            stride,
            pads,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
            precision=dot_precision(op.out.dtype),
        )

    return correlate


@lower(Conv2d)
@declared
def conv2d(op: Conv2d, x: Array, kernel: Array) -> Array:
    """Cross-correlation; what the last window of a row or column does not reach is left out."""
    out_shape = _out_shape(op)
    x, kernel = viewed(x, _in_shape(op), "Conv2d.x"), viewed(kernel, _kernel_shape(op), "Conv2d.kernel")
    return viewed(_correlate(op)(x, kernel), out_shape, "Conv2d.out")


@lower(Conv2dGradInput)
@declared
def conv2d_grad_input(op: Conv2dGradInput, grad_out: Array, kernel: Array) -> Array:
    """The adjoint by x; pixels that no window reaches get 0."""
    grad_out = viewed(grad_out, _out_shape(op), "Conv2dGradInput.grad_out")
    kernel = viewed(kernel, _kernel_shape(op), "Conv2dGradInput.kernel")
    x = jax.ShapeDtypeStruct((grad_out.shape[0], *_in_shape(op)[1:]), grad_out.dtype)
    return jax.linear_transpose(lambda x: _correlate(op)(x, kernel), x)(grad_out)[0]


@lower(Conv2dGradWeight)
@declared
def conv2d_grad_weight(op: Conv2dGradWeight, grad_out: Array, x: Array) -> Array:
    """The adjoint by the kernel, summed over images."""
    grad_out = viewed(grad_out, _out_shape(op), "Conv2dGradWeight.grad_out")
    x = viewed(x, (grad_out.shape[0], *_in_shape(op)[1:]), "Conv2dGradWeight.x")
    kernel = jax.ShapeDtypeStruct(_kernel_shape(op), x.dtype)
    return jax.linear_transpose(lambda kernel: _correlate(op)(x, kernel), kernel)(grad_out)[0]


@lower(MaxPool2d)
@declared
def max_pool2d(op: MaxPool2d, x: Array) -> Array:
    """The largest of each window, at least the lowest finite number, which a window of padding alone gives."""
    out_shape = (-1, op.channels, _count(op, "h"), _count(op, "w"))
    images = viewed(x, (-1, op.channels, op.in_h, op.in_w), "MaxPool2d.x")
    pads = [(0, 0), (0, 0), (op.padding, op.padding), (op.padding, op.padding)]
    window, strides = (1, 1, op.kernel_h, op.kernel_w), (1, 1, op.stride, op.stride)
    pooled = lax.reduce_window(images, -jnp.inf, lax.max, window, strides, pads)
    return viewed(jnp.maximum(pooled, const(float(jnp.finfo(x.dtype).min), x)), out_shape, "MaxPool2d.out")


@lower(GlobalAvgPool)
@declared
def global_avg_pool(op: GlobalAvgPool, x: Array) -> Array:
    """Mean of each image and channel."""
    places = viewed(x, (-1, op.channels, op.spatial), "GlobalAvgPool.x")
    return jnp.sum(places, axis=2) / const(op.spatial, x)


@lower(GlobalAvgPoolGrad)
@declared
def global_avg_pool_grad(op: GlobalAvgPoolGrad, grad_out: Array) -> Array:
    """Each element `spatial` times, divided by that; as many as the node declares, zeros beyond the last.

    Meganeura 0.2 also uses this for `MaxPool2d`, with a `spatial` that need not divide the declared size.
    """
    if op.spatial == 0:
        raise ShapeError("GlobalAvgPoolGrad.spatial: expected at least 1, got 0")
    spread = jnp.repeat(grad_out.reshape(-1) / const(op.spatial, grad_out), op.spatial)
    wanted = prod(op.out.shape.dims)
    return jnp.pad(spread[:wanted], (0, max(0, wanted - spread.size)))


@lower(Concat)
@declared
def concat(op: Concat, a: Array, b: Array) -> Array:
    """The channels of b after those of a."""
    a = viewed(a, (-1, op.channels_a, op.spatial), "Concat.a")
    b = viewed(b, (a.shape[0], op.channels_b, op.spatial), "Concat.b")
    return jnp.concatenate([a, b], axis=1)


def _channels(op: SplitShape, x: Array) -> Array:
    return viewed(x, (-1, op.channels_a + op.channels_b, op.spatial), f"{op.kind}.x")


@lower(SplitA)
@declared
def split_a(op: SplitA, x: Array) -> Array:
    """The first channels."""
    return _channels(op, x)[:, : op.channels_a]


@lower(SplitB)
@declared
def split_b(op: SplitB, x: Array) -> Array:
    """The last channels."""
    return _channels(op, x)[:, op.channels_a :]


@lower(Upsample2x)
@declared
def upsample_2x(op: Upsample2x, x: Array) -> Array:
    """Each pixel as a square of two by two."""
    images = viewed(x, (-1, op.channels, op.in_h, 1, op.in_w, 1), "Upsample2x.x")
    return jnp.broadcast_to(images, (*images.shape[:3], 2, op.in_w, 2))


@lower(Upsample2xGrad)
@declared
def upsample_2x_grad(op: Upsample2xGrad, grad_out: Array) -> Array:
    """The sum of each square."""
    images = viewed(grad_out, (-1, op.channels, op.in_h, 2, op.in_w, 2), "Upsample2xGrad.grad_out")
    return jnp.sum(images, axis=(3, 5))
