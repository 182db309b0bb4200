"""Convolutions, transposed convolutions and their gradients, over one to three spatial axes, and window extraction.

All of them are one relation of an input x (N, Cin, *size), a weight (Cout, Cin / groups, *kernel) and an output
y (N, Cout, *count):

    y[n, o, p] = sum over c and t of x[n, c, p * stride + t * dilation - before] * weight[o, c, t]

`output_of`, `input_of` and `weight_of` compute each of the three from the other two. A transposed convolution is
`input_of`: what it calls x is y here, and its weight has the same layout.

Padding is zeros that take part: an infinite weight that meets one gives NaN, as in Burn. XLA leaves
the products with padding out on most paths, so `poisoned` adds that NaN; zeros that a copy puts there make a CPU take
three times as long (150 for 45 ms: x (16, 64, 56, 56), 64 channels out, kernel 3), and CUDA folds them away again.
Halves are summed in float32 and rounded once.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

import ir
from ir.ops.conv import BiasBackward, Conv1dBackward, Conv2dBackward, Conv3dBackward
from ir.tensor import TensorIr
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, dot_precision, is_half, out_dtype, widen_half
from jax_backend.ops._windows import Window, pad_before_transposing

Dims: TypeAlias = tuple[int, ...]
Pair: TypeAlias = tuple[int, int]
Conv: TypeAlias = ir.Conv1d | ir.Conv2d | ir.Conv3d
ConvBackward: TypeAlias = Conv1dBackward | Conv2dBackward | Conv3dBackward
ConvTranspose: TypeAlias = ir.ConvTranspose1d | ir.ConvTranspose2d | ir.ConvTranspose3d
ConvTransposeWeightBackward: TypeAlias = (
    ir.ConvTranspose1dWeightBackward | ir.ConvTranspose2dWeightBackward | ir.ConvTranspose3dWeightBackward
)

LARGE: Final = 2**18
"""Elements of an operand from which on the convolution itself is trusted with padding, on CUDA and, but for float64, on
a CPU: there it multiplies the zeros (a test holds it to that), and a pass over the result costs up to a third."""


class Options(Protocol):
    """What the options of all convolutions have."""

    @property
    def stride(self) -> Dims:
        """Step between windows, per axis."""
        ...

    @property
    def padding(self) -> tuple[int | Pair, ...]:
        """Zeros on both sides, or (before, after), per axis."""
        ...

    @property
    def dilation(self) -> Dims:
        """Step between the taps of a window, per axis."""
        ...

    @property
    def groups(self) -> int:
        """Blocks of channels that do not mix."""
        ...


class Geometry(NamedTuple):
    """Which elements meet; numbers per spatial axis. `before` is the padding in front."""

    stride: Dims
    before: Dims
    dilation: Dims
    groups: int
    precision: lax.Precision

    def spread(self, count: Sequence[int]) -> Dims:
        """Places from the start of the first of `count` windows to that of the last."""
        return tuple(max((n - 1) * s + 1, 0) for n, s in zip(count, self.stride, strict=True))

    def reach(self, kernel: Sequence[int]) -> Dims:
        """Places from the first tap of a window to its last."""
        return tuple(d * (k - 1) for k, d in zip(kernel, self.dilation, strict=True))

    def outside(self, size: Sequence[int], kernel: Sequence[int], count: Sequence[int]) -> list[np.ndarray]:
        """Per axis, whether a tap (rows) of a window (columns) lies in the padding."""
        tables: list[np.ndarray] = []
        for n, k, o, s, before, d in zip(size, kernel, count, self.stride, self.before, self.dilation, strict=True):
            places = np.arange(k)[:, None] * d + np.arange(o) * s - before
            tables.append((places < 0) | (places >= n))
        return tables


def geometry(options: Options, out: TensorIr) -> Geometry:
    """The geometry that `options` describe; the dtype of `out` decides the precision."""
    before = tuple(p if isinstance(p, int) else p[0] for p in options.padding)
    return Geometry(options.stride, before, options.dilation, options.groups, dot_precision(out.dtype))


@lower(ir.Conv1d, ir.Conv2d, ir.Conv3d)
def conv(op: Conv, x: Array, weight: Array, bias: Array | None) -> Array:
    """Cross-correlation."""
    g = geometry(op.options, op.out)
    pads = [(p, p) if isinstance(p, int) else p for p in op.options.padding]
    return _with_bias(lambda x, w, accumulator: output_of(x, w, pads, g, accumulator), x, weight, bias)


@lower(ir.Conv1dXBackward, ir.Conv2dXBackward, ir.Conv3dXBackward)
def conv_x_backward(op: ConvBackward, x: Array, weight: Array, output_grad: Array) -> Array:
    """The adjoint by x, of which only the shape counts; inputs that no window reaches get 0."""
    return input_of(output_grad, weight, x.shape[2:], geometry(op.options, op.out))


@lower(ir.Conv1dWeightBackward, ir.Conv2dWeightBackward, ir.Conv3dWeightBackward)
def conv_weight_backward(op: ConvBackward, x: Array, weight: Array, output_grad: Array) -> Array:
    """The adjoint by the weight, of which only the shape counts."""
    return weight_of(x, output_grad, weight.shape[2:], geometry(op.options, op.out))


@lower(ir.ConvTranspose1d, ir.ConvTranspose2d, ir.ConvTranspose3d)
def conv_transpose(op: ConvTranspose, x: Array, weight: Array, bias: Array | None) -> Array:
    """The adjoint of a convolution; `padding_out` is in the declared shape."""
    g, size = geometry(op.options, op.out), transposed_size(x, weight, op.options)
    return _with_bias(lambda x, w, accumulator: input_of(x, w, size, g, accumulator), x, weight, bias)


@lower(ir.ConvTranspose1dWeightBackward, ir.ConvTranspose2dWeightBackward, ir.ConvTranspose3dWeightBackward)
def conv_transpose_weight_backward(
    op: ConvTransposeWeightBackward, x: Array, weight: Array, output_grad: Array
) -> Array:
    """That of a convolution with input and output exchanged."""
    return weight_of(output_grad, x, weight.shape[2:], geometry(op.options, op.out))


@lower(
    ir.Conv1dBiasBackward,
    ir.Conv2dBiasBackward,
    ir.Conv3dBiasBackward,
    ir.ConvTranspose1dBiasBackward,
    ir.ConvTranspose2dBiasBackward,
    ir.ConvTranspose3dBiasBackward,
)
def bias_backward(op: BiasBackward, x: Array, bias: Array, output_grad: Array) -> Array:
    """Sum over all but the channels."""
    axes = (0, *range(2, output_grad.ndim))
    return jnp.sum(widen_half(output_grad), axis=axes).astype(out_dtype(op.out))


def transposed_size(
    x: Array,
    weight: Array,
    options: ir.ConvTranspose1dOptions | ir.ConvTranspose2dOptions | ir.ConvTranspose3dOptions,
) -> Dims:
    """Spatial sizes of the output: (L - 1) * stride + dilation * (k - 1) + 1 + padding_out - 2 * padding.

    >>> import jax.numpy as jnp
    >>> o = ir.ConvTranspose1dOptions(stride=(2,), padding=(1,), padding_out=(1,), dilation=(1,), groups=1)
    >>> transposed_size(jnp.zeros((1, 2, 4)), jnp.zeros((2, 2, 3)), o)
    (8,)
    """
    axes = zip(
        x.shape[2:],
        weight.shape[2:],
        options.stride,
        options.padding,
        options.padding_out,
        options.dilation,
        strict=True,
    )
    return tuple((n - 1) * s + d * (k - 1) + 1 + more - 2 * p for n, k, s, p, more, d in axes)


def output_of(x: Array, weight: Array, pads: Sequence[Pair], g: Geometry, accumulator: np.dtype | None = None) -> Array:
    """The output y (N, Cout, *count) from x, padded by `pads`, and weight; in `accumulator`, or the dtype of x."""
    plain = tuple(range(x.ndim))
    lhs, rhs = unmasked(x, 1, weight, 1, g.groups)
    lhs, pads = pad_before_transposing(lhs, weight.shape[2:], g.stride, g.dilation, pads)
    y = lax.conv_general_dilated(
        lhs,
        rhs,
        g.stride,
        pads,
        rhs_dilation=g.dilation,
        dimension_numbers=lax.ConvDimensionNumbers(plain, plain, plain),
        feature_group_count=g.groups,
        precision=g.precision,
        preferred_element_type=accumulator,
    )
    outside = g.outside(x.shape[2:], weight.shape[2:], y.shape[2:])
    return poisoned(y, weight, 1, outside)


def input_of(y: Array, weight: Array, size: Sequence[int], g: Geometry, accumulator: np.dtype | None = None) -> Array:
    """The input x (N, Cin, *size) from y (N, Cout, *count) and weight: what `output_of` does, transposed."""
    out_channels, per_group, *kernel = weight.shape
    weight = weight.reshape(g.groups, out_channels // g.groups, per_group, *kernel).swapaxes(0, 1)
    weight = weight.reshape(out_channels // g.groups, g.groups * per_group, *kernel)
    plain = tuple(range(y.ndim))
    pads = [
        (reach - before, length + before - spread)
        for reach, before, length, spread in zip(g.reach(kernel), g.before, size, g.spread(y.shape[2:]), strict=True)
    ]
    # An axis as in `pad_before_transposing`: it gets some padding, whose results are cut off.
    steps = zip(pads, kernel, g.stride, g.dilation, strict=True)
    more = [int((pad, k, s, d) == ((0, 0), 2, 2, 1)) for pad, k, s, d in steps]
    y, weight = unmasked(y, 1, lax.rev(weight, plain[2:]), 0, g.groups)
    x = lax.conv_general_dilated(
        y,
        weight,
        (1,) * len(kernel),
        [(low + n, high + n) for (low, high), n in zip(pads, more, strict=True)],
        lhs_dilation=g.stride,
        rhs_dilation=g.dilation,
        dimension_numbers=lax.ConvDimensionNumbers(plain, (1, 0, *plain[2:]), plain),
        feature_group_count=g.groups,
        precision=g.precision,
        preferred_element_type=accumulator,
    )
    for axis, n in enumerate(more, 2):
        x = lax.slice_in_dim(x, n, x.shape[axis] - n, axis=axis) if n else x
    return x


def weight_of(x: Array, y: Array, kernel: Sequence[int], g: Geometry) -> Array:
    """Weight (Cout, Cin / groups, *kernel) from x (N, Cin, *size) and y (N, Cout, *count).

    A convolution in which batch and channels have changed places, and so have stride and dilation. Groups are a batch
    group count, which cuDNN knows. On a CPU, XLA makes dense products of it and masks them, unless there is one channel
    per group on both sides: 94 ms where feature groups take 2.6 ms (x (8, 32, 28, 28), 64 channels out, kernel 3,
    4 groups), and an infinity in one group is NaN in the others.
    """
    ends = zip(x.shape[2:], g.before, g.spread(y.shape[2:]), g.reach(kernel), strict=True)
    pads = [(before, spread + reach - size - before) for size, before, spread, reach in ends]
    outside = [table.T for table in g.outside(x.shape[2:], kernel, y.shape[2:])]

    def by_batch_groups(x: Array, y: Array) -> Array:
        return _correlate(x, y, pads, g, batch_group_count=g.groups)

    def by_feature_groups(x: Array, y: Array) -> Array:
        batch, channels, *size = x.shape
        x = x.reshape(batch, g.groups, channels // g.groups, *size).swapaxes(0, 1)
        x, y = unmasked(x.reshape(g.groups * batch, channels // g.groups, *size), 0, y, 0, g.groups)
        return _correlate(x, y, pads, g, feature_group_count=g.groups)

    if g.groups > 1 and (x.shape[1], y.shape[1]) != (g.groups, g.groups):
        out: Array = lax.platform_dependent(x, y, cpu=by_feature_groups, default=by_batch_groups)
    else:
        out = by_batch_groups(x, y)
    return poisoned(out.swapaxes(0, 1), y, 0, outside).swapaxes(0, 1)


def _correlate(
    x: Array, y: Array, pads: Sequence[Pair], g: Geometry, feature_group_count: int = 1, batch_group_count: int = 1
) -> Array:
    swapped = (1, 0, *range(2, x.ndim))
    return lax.conv_general_dilated(
        x,
        y,
        g.dilation,
        pads,
        rhs_dilation=g.stride,
        dimension_numbers=lax.ConvDimensionNumbers(swapped, swapped, swapped),
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        precision=g.precision,
    )


def unmasked(lhs: Array, lhs_axis: int, rhs: Array, rhs_axis: int, groups: int) -> tuple[Array, Array]:
    """The factors of a convolution with a second channel per group, of zeros, if they are float64 and have one.

    XLA makes a dense convolution with a mask of the depthwise one of float64 on a CPU, where an infinity in one channel
    is NaN in the others. Of two channels per group it does not.
    """
    if groups == 1 or lhs.dtype != jnp.float64 or rhs.shape[rhs_axis] != 1:
        return lhs, rhs

    def padded(x: Array, axis: int, between: int) -> Array:
        return lax.pad(x, jnp.zeros((), x.dtype), [(0, 1, between) if n == axis else (0, 0, 0) for n in range(x.ndim)])

    return padded(lhs, lhs_axis, 1), padded(rhs, rhs_axis, 0)


def poisoned(products: Array, factor: Array, axis_summed: int, outside: Sequence[np.ndarray]) -> Array:
    """`products` with NaN where an infinity or NaN in `factor` meets a padding zero.

    Args:
        products: (batch, channels, *results).
        factor: channels and places, in this order without `axis_summed`.
        axis_summed: the axis of `factor` of which one such element is enough.
        outside: per axis, which of its places meet padding in which result: (places, results).
    """
    bad = jnp.any(~jnp.isfinite(factor), axis=axis_summed)
    hit_axes = [axis for axis, table in enumerate(outside) if table.any()]
    # A tap is outside if it is so along any axis, so one axis at a time will do.
    nans = [_nans(bad, axis, outside[axis], products.dtype) for axis in hit_axes]
    if not nans:
        return products

    def everywhere(products: Array, *nans: Array) -> Array:
        for nan in nans:
            products = products + nan
        return products

    def as_they_are(products: Array, *nans: Array) -> Array:
        return products

    is_large = max(products.size, factor.size) >= LARGE
    out: Array = lax.platform_dependent(
        products,
        *nans,
        cuda=as_they_are if is_large else everywhere,
        cpu=as_they_are if is_large and products.dtype != jnp.float64 else everywhere,
        default=everywhere,
    )
    return out


def _nans(bad: Array, axis: int, table: np.ndarray, dtype: np.dtype) -> Array:
    """What one axis adds: NaN or 0, (1, channels, ..., results, ...)."""
    along = jnp.any(bad, axis=tuple(other for other in range(1, bad.ndim) if other != axis + 1))
    met = jnp.any(along[:, :, None] & table[None], axis=1)
    shape = [1] * (bad.ndim + 1)
    shape[1], shape[axis + 2] = met.shape
    return jnp.where(met.reshape(shape), jnp.asarray(np.nan, dtype), jnp.zeros((), dtype))


def _with_bias(
    product: Callable[[Array, Array, np.dtype | None], Array], x: Array, weight: Array, bias: Array | None
) -> Array:
    """`product(x, weight, accumulator)` plus a bias per channel, in the dtype of x, rounded once.

    cuDNN has no convolution from halves to float32: XLA would widen the operands, which takes ten times as long. It
    sums in float32 inside, so that without a bias the rounding is the only one; with one, CUDA rounds before adding.
    """
    if bias is None:
        return product(x, weight, None)
    row = bias.reshape(1, -1, *(1,) * (x.ndim - 2))
    if not is_half(x):
        return product(x, weight, None) + row

    def rounded_once(x: Array, weight: Array, row: Array) -> Array:
        return (product(x, weight, np.dtype(np.float32)) + widen_half(row)).astype(x.dtype)

    def by_cudnn(x: Array, weight: Array, row: Array) -> Array:
        return product(x, weight, None) + row

    out: Array = lax.platform_dependent(x, weight, row, cuda=by_cudnn, default=rounded_once)
    return out


@lower(ir.Unfold4d)
def unfold_4d(op: ir.Unfold4d, x: Array) -> Array:
    """A copy: a convolution with a one-hot kernel would spread an infinity over its neighbours as NaN."""
    o, counts = op.options, unfold_counts(op, x.shape[2:])
    for n, kernel in enumerate(op.kernel_size):
        # Axis n of the window is inserted after the axes of the kernel that are there already: N, C, kH, kW, oH, oW.
        window = Window(2 + 2 * n, x.shape[2 + 2 * n], counts[n], kernel, o.stride[n], o.padding[n], o.dilation[n])
        padded = window.pad(x, np.zeros((), x.dtype))
        x = jnp.stack([window.tap(padded, tap) for tap in range(kernel)], axis=2 + n)
    batch, channels = x.shape[:2]
    return x.reshape(batch, channels * op.kernel_size[0] * op.kernel_size[1], counts[0] * counts[1])


def unfold_counts(op: ir.Unfold4d, size: Sequence[int]) -> Dims:
    """Number of windows along height and width."""
    o = op.options
    axes = zip(size, op.kernel_size, o.stride, o.padding, o.dilation, strict=True)
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)
