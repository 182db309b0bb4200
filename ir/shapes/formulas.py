"""Sizes and shapes as plain numbers: what a window, a product or a slice makes of an axis.

Every formula raises a `ShapeError` that starts with the name of the argument; `infer` puts the kind before it.
Source: burn-std `shape.rs`, burn-backend `ops/modules/conv.rs`, `ops/modules/unfold.rs`.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

from ir.errors import ShapeError
from ir.slices import SliceRange, windows

Dims: TypeAlias = tuple[int, ...]


def show(dims: Sequence[int | str]) -> str:
    """A shape as messages write it, named axes included.

    >>> show((8, 3, "kH", "kW")), show((5,))
    ('(8, 3, kH, kW)', '(5,)')
    """
    return f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"


def axis_in(name: str, axis: int, rank: int) -> int:
    """`axis`, if it is one of `rank` axes; none is counted from the end.

    Raises:
        ShapeError: it is not.
    """
    if not 0 <= axis < rank:
        raise ShapeError(f"{name}: expected an axis within 0..{rank - 1}, got {axis}")
    return axis


def with_axis(dims: Dims, axis: int, size: int) -> Dims:
    """`dims` with the size of one axis replaced.

    >>> with_axis((2, 3, 5), 1, 7)
    (2, 7, 5)
    """
    return (*dims[:axis], size, *dims[axis + 1 :])


def broadcast_dims(name: str, *shapes: Dims) -> Dims:
    """Shapes of equal rank against each other: per axis equal, or one of them 1 (1 and 0 give 0).

    >>> broadcast_dims("rhs", (2, 1, 5), (1, 3, 5)), broadcast_dims("rhs", (2, 0), (2, 1))
    ((2, 3, 5), (2, 0))

    Raises:
        ShapeError: ranks differ, or an axis has two sizes other than 1.
    """
    first = shapes[0]
    out = list(first)
    for other in shapes[1:]:
        if len(other) != len(first):
            raise ShapeError(
                f"{name}: expected rank {len(first)}, that of {show(first)}, got {show(other)}; reshape one of them"
            )
        for axis, size in enumerate(other):
            if out[axis] == 1:
                out[axis] = size
            elif size not in (1, out[axis]):
                raise ShapeError(f"{name}: expected a shape that broadcasts with {show(out)}, got {show(other)}")
    return tuple(out)


def expand_dims(dims: Dims, wanted: Dims) -> Dims:
    """`dims` broadcast to `wanted`, aligned at the innermost axis: each source size is 1 or equal.

    >>> expand_dims((3, 1), (2, 3, 5))
    (2, 3, 5)

    Raises:
        ShapeError: it does not broadcast.
    """
    tail = wanted[len(wanted) - len(dims) :] if len(wanted) >= len(dims) else None
    if tail is None or any(size not in (1, goal) for size, goal in zip(dims, tail, strict=True)):
        raise ShapeError(f"out: expected a shape that {show(dims)} broadcasts to, got {show(wanted)}")
    return wanted


def reshape_dims(dims: Dims, wanted: Dims) -> Dims:
    """`wanted`, if it holds as many elements as `dims`.

    >>> reshape_dims((2, 6), (3, 4)), reshape_dims((0, 3), (3, 0, 7))
    ((3, 4), (3, 0, 7))

    Raises:
        ShapeError: the element counts differ.
    """
    if (count := math.prod(dims)) != math.prod(wanted):
        raise ShapeError(f"out: expected {count} elements, those of {show(dims)}, got {show(wanted)}")
    return wanted


def permute_dims(dims: Dims, axes: Dims) -> Dims:
    """Axis i of the result is axis `axes[i]` of `dims`.

    >>> permute_dims((2, 3, 5), (2, 0, 1))
    (5, 2, 3)

    Raises:
        ShapeError: `axes` is no permutation of all axes.
    """
    if sorted(axes) != list(range(len(dims))):
        raise ShapeError(f"axes: expected a permutation of the {len(dims)} axes of {show(dims)}, got {show(axes)}")
    return tuple(dims[axis] for axis in axes)


def swapped_axes(rank: int, first: int, second: int) -> Dims:
    """The permutation that exchanges two axes.

    >>> swapped_axes(3, 0, 2)
    (2, 1, 0)
    """
    axes = list(range(rank))
    axes[first], axes[second] = axes[second], axes[first]
    return tuple(axes)


def slice_dims(dims: Dims, ranges: Sequence[SliceRange]) -> Dims:
    """What `ranges` selects of `dims`; axes beyond the list are taken whole.

    >>> slice_dims((10, 5), (SliceRange(1, 8, -3),))
    (3, 5)

    Raises:
        ShapeError: there are more ranges than axes, or a step is 0.
    """
    if len(ranges) > len(dims):
        raise ShapeError(f"ranges: expected at most {len(dims)} ranges for {show(dims)}, got {len(ranges)}")
    if any(item.step == 0 for item in ranges):
        raise ShapeError("ranges: expected steps other than 0, got 0")
    return tuple(laid.count for laid in windows(tuple(ranges), dims))


def matmul_dims(lhs: Dims, rhs: Dims) -> Dims:
    """`lhs` (.., m, k) · rhs (.., k, n) -> (.., m, n); equal ranks of at least 2, the leading axes broadcast.

    >>> matmul_dims((1, 2, 3), (5, 3, 7))
    (5, 2, 7)

    Raises:
        ShapeError: ranks, k or the leading axes do not fit.
    """
    if len(lhs) < 2:
        raise ShapeError(f"lhs: expected rank 2 or more, got {show(lhs)}")
    if len(rhs) != len(lhs) or lhs[-1] != rhs[-2]:
        leading = ("..",) * (len(lhs) > 2)
        raise ShapeError(f"rhs: expected shape {show((*leading, lhs[-1], 'n'))} for lhs {show(lhs)}, got {show(rhs)}")
    return (*broadcast_dims("rhs", lhs[:-2], rhs[:-2]), lhs[-2], rhs[-1])


def unfold_windows(size: int, window: int, step: int) -> int:
    """Number of whole windows along an axis, 0 where the window is larger.

    >>> unfold_windows(7, 3, 2), unfold_windows(2, 3, 1)
    (3, 0)

    Raises:
        ShapeError: the step is 0.
    """
    if step < 1:
        raise ShapeError(f"step: expected at least 1, got {step}")
    return 0 if size < window else (size - window) // step + 1


def window_extent(kernel: int, dilation: int) -> int:
    """Elements from the first tap of a window to the last.

    >>> window_extent(3, 2)
    5

    Raises:
        ShapeError: the kernel is empty or the dilation is 0.
    """
    if kernel < 1:
        raise ShapeError(f"kernel_size: expected at least 1, got {kernel}")
    if dilation < 1:
        raise ShapeError(f"dilation: expected at least 1, got {dilation}")
    return dilation * (kernel - 1) + 1


def conv_out(size: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int) -> int:
    """Output length of one convolved axis; `padding` is (before, after), all in elements.

    `(size + before + after - dilation * (kernel - 1) - 1) // stride + 1`.

    >>> conv_out(10, 4, 4, (0, 0), 1), conv_out(5, 3, 2, (2, 1), 1)
    (2, 3)

    Raises:
        ShapeError: the window is larger than the padded axis, or the stride is 0.
    """
    if stride < 1:
        raise ShapeError(f"stride: expected at least 1, got {stride}")
    padded, extent = size + sum(padding), window_extent(kernel, dilation)
    if extent > padded:
        raise ShapeError(f"kernel_size: expected a window within the padded axis of {padded}, got one of {extent}")
    return (padded - extent) // stride + 1


def conv_transpose_out(size: int, kernel: int, stride: int, padding: int, padding_out: int, dilation: int) -> int:
    """Output length of one axis of a transposed convolution.

    `(size - 1) * stride + dilation * (kernel - 1) + 1 + padding_out - 2 * padding`.

    >>> conv_transpose_out(4, 3, 2, 1, 1, 1)
    8

    Raises:
        ShapeError: the axis is empty, the padding cuts off more than there is, or the stride is 0.
    """
    if stride < 1:
        raise ShapeError(f"stride: expected at least 1, got {stride}")
    if size < 1:
        raise ShapeError("x: expected at least 1 element along each spatial axis, got 0")
    whole = (size - 1) * stride + window_extent(kernel, dilation) + padding_out
    if whole < 2 * padding:
        raise ShapeError(
            f"padding: expected at most {whole // 2} for an output of {whole} before padding, got {padding}"
        )
    return whole - 2 * padding


def pool_out(size: int, kernel: int, stride: int, padding: int, dilation: int, *, ceil: bool) -> int:
    """Output length of one pooled axis: as a convolution, rounded up with `ceil`.

    Rounded up, a window that would start in the padding at the end or beyond is dropped.

    >>> pool_out(6, 3, 2, 1, 1, ceil=True), pool_out(5, 2, 2, 1, 1, ceil=True), pool_out(2, 3, 2, 0, 1, ceil=True)
    (4, 3, 1)

    Raises:
        ShapeError: no window fits, or the stride is 0.
    """
    if not ceil:
        return conv_out(size, kernel, stride, (padding, padding), dilation)
    count = pool_out_undropped(size, kernel, stride, padding, dilation)
    return count - 1 if (count - 1) * stride >= size + padding else count


def pool_out_undropped(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """`pool_out` with `ceil` as Burn 0.22.0-pre.2 counts: no window is dropped.

    >>> pool_out_undropped(5, 2, 2, 1, 1)
    4
    """
    # A window that sticks out by less than a stride still fits when rounding up.
    return conv_out(size, kernel, stride, (padding, padding + max(stride - 1, 0)), dilation)


def block_grid(dims: Dims, block: Dims) -> Dims:
    """Number of quantization blocks along each axis; `block` is aligned at the innermost axis, missing sizes are 1.

    >>> block_grid((2, 64, 96), (32, 32))
    (2, 2, 3)

    Raises:
        ShapeError: the block has more axes, or does not divide the tensor.
    """
    if len(block) > len(dims):
        raise ShapeError(f"scheme: expected a block of at most {len(dims)} axes for {show(dims)}, got {show(block)}")
    sizes = (1,) * (len(dims) - len(block)) + block
    if any(size < 1 or dim % size for dim, size in zip(dims, sizes, strict=True)):
        raise ShapeError(f"scheme: expected a block that divides {show(dims)}, got {show(block)}")
    return tuple(dim // size for dim, size in zip(dims, sizes, strict=True))
