"""Pools over one, two or three spatial axes of x (N, C, *size), and their gradients.

Sums and maxima go axis by axis: kernel + kernel elements per window and not kernel * kernel. The number of windows is
that of the declared output, so that Burn's releases may disagree on the last window of ceil mode.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

import ir
from ir.ops.pool import AdaptiveBackward
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, const, out_dtype, widen_half
from jax_backend.ops._windows import Window

Dims: TypeAlias = tuple[int, ...]
AvgPool: TypeAlias = ir.AvgPool1d | ir.AvgPool2d
AvgPoolBackward: TypeAlias = ir.AvgPool1dBackward | ir.AvgPool2dBackward
MaxPool: TypeAlias = ir.MaxPool1d | ir.MaxPool2d
MaxPoolWithIndices: TypeAlias = ir.MaxPool1dWithIndices | ir.MaxPool2dWithIndices
MaxPoolBackward: TypeAlias = ir.MaxPool1dWithIndicesBackward | ir.MaxPool2dWithIndicesBackward
AdaptiveAvgPool: TypeAlias = ir.AdaptiveAvgPool1d | ir.AdaptiveAvgPool2d | ir.AdaptiveAvgPool3d


class Pool(Protocol):
    """What all pools with windows have: a number per axis, or a bare one in the 1-d kinds."""

    @property
    def kernel_size(self) -> int | Dims:
        """Elements of a window."""
        ...

    @property
    def stride(self) -> int | Dims:
        """Step between windows."""
        ...

    @property
    def padding(self) -> int | Dims:
        """Padding on both sides."""
        ...


def windows_of(op: Pool, dilation: int | Dims, size: Sequence[int], count: Sequence[int]) -> tuple[Window, ...]:
    """The windows of a pool, one `Window` per spatial axis of `size` elements and `count` windows."""
    per_axis = (_tuple(v, len(size)) for v in (op.kernel_size, op.stride, op.padding, dilation))
    return tuple(map(Window, range(2, 2 + len(size)), size, count, *per_axis))


def _tuple(value: int | Dims, ndim: int) -> Dims:
    return (value,) * ndim if isinstance(value, int) else value


@lower(ir.AvgPool1d, ir.AvgPool2d)
def avg_pool(op: AvgPool, x: Array) -> Array:
    """Sum by count; a window without anything to count gives 0."""
    windows = windows_of(op, 1, x.shape[2:], op.out.shape.dims[2:])
    total = _pooled(widen_half(x), windows, 0.0, lax.add)
    return (total / _counts(windows, op.count_include_pad, total)).astype(out_dtype(op.out))


@lower(ir.AvgPool1dBackward, ir.AvgPool2dBackward)
def avg_pool_backward(op: AvgPoolBackward, x: Array, grad: Array) -> Array:
    """Each gradient, by its count, added to the elements of its window; `x` gives the shape only."""
    windows = windows_of(op, 1, x.shape[2:], grad.shape[2:])
    grad = widen_half(grad)
    grad = grad / _counts(windows, op.count_include_pad, grad)
    spread = lax.platform_dependent(
        grad, cuda=partial(_spread_at_once, windows=windows), default=partial(_spread_by_axis, windows=windows)
    )
    return spread.astype(out_dtype(op.out))


def _pooled(x: Array, windows: Sequence[Window], start: float, reducer: Callable[[Any, Any], Any]) -> Array:
    """Each window reduced, one axis after the other; on a GPU windows of a few elements at once, in one kernel."""

    def by_axis(x: Array) -> Array:
        for window in windows:
            x = _reduce_windows(x, [window], start, reducer)
        return x

    def at_once(x: Array) -> Array:
        return _reduce_windows(x, windows, start, reducer)

    is_small = math.prod(window.kernel for window in windows) <= 16
    out: Array = lax.platform_dependent(x, cuda=at_once if is_small else by_axis, default=by_axis)
    return out


def _reduce_windows(x: Array, windows: Sequence[Window], start: float, reducer: Callable[[Any, Any], Any]) -> Array:
    by_axis = {window.axis: window for window in windows}

    def along(value: Callable[[Window], int]) -> Dims:
        return tuple(value(by_axis[axis]) if axis in by_axis else 1 for axis in range(x.ndim))

    pads = [(by_axis[n].padding, by_axis[n].after) if n in by_axis else (0, 0) for n in range(x.ndim)]
    return lax.reduce_window(
        x,
        np.asarray(start, x.dtype),
        reducer,
        along(lambda window: window.kernel),
        along(lambda window: window.stride),
        pads,
        window_dilation=along(lambda window: window.dilation),
    )


def _spread_by_axis(grad: Array, *, windows: Sequence[Window]) -> Array:
    """Each window's value added to all of its elements: the adjoint of a sum over windows without dilation.

    The barrier keeps XLA from computing the places between the windows anew per element (on a CPU 1.4 ms, not 0.4, for
    (8, 32, 28, 28) to (8, 32, 56, 56) with kernel 3).
    """
    for window in windows:
        spread = lax.optimization_barrier(lax.pad(grad, const(0, grad), _spread_widths(grad.ndim, [window])))
        every = Window(window.axis, spread.shape[window.axis], window.size, window.kernel, 1, 0, 1)
        grad = _reduce_windows(spread, [every], 0.0, lax.add)
    return grad


def _spread_at_once(grad: Array, *, windows: Sequence[Window]) -> Array:
    """As `_spread_by_axis`, in one kernel: a GPU pays for launches, not for kernel * kernel additions."""
    spread = lax.pad(grad, const(0, grad), _spread_widths(grad.ndim, windows))
    kernel = (1, 1, *(w.kernel for w in windows))
    return lax.reduce_window(spread, np.asarray(0, grad.dtype), lax.add, kernel, (1,) * grad.ndim, "VALID")


def _spread_widths(ndim: int, windows: Sequence[Window]) -> list[tuple[int, int, int]]:
    """Low, high and inner padding that lays the windows' values where each element meets those of its windows."""
    widths = [(0, 0, 0)] * ndim
    for w in windows:
        covered = max((w.num_windows - 1) * w.stride + 1, 0)
        widths[w.axis] = (w.kernel - 1 - w.padding, w.size + w.padding - covered, w.stride - 1)
    return widths


def _counts(windows: Sequence[Window], include_pad: bool, like: Array) -> np.ndarray:
    """What each window is divided by, with a leading axis each for batch and channels.

    Padding counts where the pool says so; places that ceil mode alone adds never do.
    """
    counts = np.ones((1, 1), like.dtype)
    for w in windows:
        first = np.arange(w.num_windows) * w.stride - w.padding
        low, high = (-w.padding, w.size + w.padding) if include_pad else (0, w.size)
        inside = np.minimum(first + w.kernel, high) - np.maximum(first, low)
        counts = counts[..., None] * np.maximum(inside, 0).astype(like.dtype)
    return np.maximum(counts, np.ones((), like.dtype))


@lower(ir.MaxPool1d, ir.MaxPool2d)
def max_pool(op: MaxPool, x: Array) -> Array:
    """Maximum; padding is below everything, NaN above."""
    return _pooled(x, windows_of(op, op.dilation, x.shape[2:], op.out.shape.dims[2:]), -np.inf, lax.max)


@lower(ir.MaxPool1dWithIndices, ir.MaxPool2dWithIndices)
def max_pool_with_indices(op: MaxPoolWithIndices, x: Array) -> tuple[Array, Array]:
    """Maximum and its place in the plane: of ties the first, of NaNs the last, -1 in a window without elements.

    A running comparison of shifted slices: with two arrays `lax.reduce_window` takes four times as long on a CPU.
    """
    places = np.arange(np.prod(x.shape[2:]), dtype=np.int32).reshape(1, 1, *x.shape[2:])
    best, index = x, jnp.broadcast_to(places, x.shape)
    # The innermost axis first: the first of its ties is then the first in row-major order, and so on outwards.
    for window in reversed(windows_of(op, op.dilation, x.shape[2:], op.out.shape.dims[2:])):
        values = window.pad(best, np.asarray(-np.inf, x.dtype))
        indices = window.pad(index, np.asarray(-1, np.int32))
        best, index = window.tap(values, 0), window.tap(indices, 0)
        for tap in range(1, window.kernel):
            value, place = window.tap(values, tap), window.tap(indices, tap)
            is_better = (index < 0) | (value > best) | jnp.isnan(value)
            wins = (place >= 0) & is_better
            best, index = jnp.where(wins, value, best), jnp.where(wins, place, index)
        best, index = _kept_apart(best, index, window.kernel)
    return best, index.astype(out_dtype(op.out_indices))


def _kept_apart(best: Array, index: Array, kernel: int) -> tuple[Array, Array]:
    """A barrier between the axes: without it XLA repeats one axis per tap of the next, 92 ms for a kernel of 31, not 6.

    On a GPU a few taps are repeated sooner than written and read again (kernel of 3: 43 for 52 us).
    """

    def as_it_is(*pair: Array) -> tuple[Array, ...]:
        return pair

    def barred(*pair: Array) -> tuple[Array, ...]:
        return lax.optimization_barrier(pair)

    best, index = lax.platform_dependent(best, index, cuda=as_it_is if kernel <= 4 else barred, default=barred)
    return best, index


@lower(ir.MaxPool1dWithIndicesBackward, ir.MaxPool2dWithIndicesBackward)
def max_pool_backward(op: MaxPoolBackward, x: Array, grad: Array, indices: Array) -> Array:
    """Each gradient added at its index; -1 is left out. `x` gives the shape only."""
    planes = x.shape[0] * x.shape[1]
    size = int(np.prod(x.shape[2:]))
    windows = int(np.prod(grad.shape[2:]))
    places = indices.astype(jnp.int64).reshape(planes, windows)
    places = jnp.where(places < 0, size, places)  # jax would count a negative index from the end
    rows = lax.broadcasted_iota(jnp.int64, places.shape, 0)
    grad = widen_half(grad).reshape(planes, windows)
    flat = jnp.zeros((planes, size), grad.dtype).at[rows, places].add(grad, mode="drop")
    return flat.reshape(x.shape).astype(out_dtype(op.out))


class Spans(NamedTuple):
    """Per place of an axis, the first of a run of elements and how many there are."""

    first: np.ndarray
    length: np.ndarray


def adaptive_spans(size: int, count: int) -> Spans:
    """The windows that cut an axis of `size` elements into `count`: i has i * size / count .. (i + 1) * size / count.

    Rounded outwards, so that neighbours may share an element.

    >>> adaptive_spans(5, 3)
    Spans(first=array([0, 1, 3]), length=array([2, 3, 2]))
    """
    places = np.arange(count)
    first = places * size // count
    return Spans(first, -(-(places + 1) * size // count) - first)


def covering_spans(size: int, count: int) -> Spans:
    """Per element of the axis, the adaptive windows that hold it.

    >>> covering_spans(5, 3)
    Spans(first=array([0, 0, 1, 1, 2]), length=array([1, 2, 1, 2, 1]))
    """
    spans, places = adaptive_spans(size, count), np.arange(size)
    first = np.searchsorted(spans.first + spans.length, places, side="right")
    return Spans(first, np.searchsorted(spans.first, places, side="right") - first)


@lower(ir.AdaptiveAvgPool1d, ir.AdaptiveAvgPool2d, ir.AdaptiveAvgPool3d)
def adaptive_avg_pool(op: AdaptiveAvgPool, x: Array) -> Array:
    """Sum by count, in windows of nearly equal size."""
    total = widen_half(x)
    axes = list(enumerate(zip(x.shape[2:], op.out.shape.dims[2:], strict=True), start=2))
    for axis, (size, count) in axes:
        total = _span_sums(total, axis, adaptive_spans(size, count))
    return (total / _adaptive_counts(x.shape, total)).astype(out_dtype(op.out))


@lower(ir.AdaptiveAvgPool1dBackward, ir.AdaptiveAvgPool2dBackward, ir.AdaptiveAvgPool3dBackward)
def adaptive_avg_pool_backward(op: AdaptiveBackward, x: Array, grad: Array) -> Array:
    """Each element collects from the windows that hold it; `x` gives the shape only."""
    total = widen_half(grad)
    total = total / _adaptive_counts(x.shape, total)
    for axis, (size, count) in enumerate(zip(x.shape[2:], grad.shape[2:], strict=True), start=2):
        total = _span_sums(total, axis, covering_spans(size, count))
    return total.astype(out_dtype(op.out))


def _adaptive_counts(shape: Dims, pooled: Array) -> np.ndarray:
    counts = np.ones((1, 1), pooled.dtype)
    for size, count in zip(shape[2:], pooled.shape[2:], strict=True):
        counts = counts[..., None] * adaptive_spans(size, count).length.astype(pooled.dtype)
    return counts


def _span_sums(x: Array, axis: int, spans: Spans) -> Array:
    """Sums of runs of elements: gathered, since running sums or a 0/1 matrix would spread an infinity."""
    size, longest = x.shape[axis], int(spans.length.max(initial=1))
    places, taps = spans.first[:, None] + np.arange(longest), np.arange(longest)
    split = (*x.shape[:axis], len(spans.first), longest, *x.shape[axis + 1 :])
    if np.array_equal(places.ravel(), np.arange(size)):
        return jnp.sum(x.reshape(split), axis=axis + 1)
    counts = (taps < spans.length[:, None]).reshape(*split[axis : axis + 2], *(1,) * (x.ndim - 1 - axis))
    samples = jnp.take(x, places, axis=axis, mode="clip")
    return jnp.sum(jnp.where(np.broadcast_to(counts, split), samples, const(0, samples)), axis=axis + 1)
