"""Convolutions as the loops that define them, in float64; every padding value takes part in the arithmetic."""

from collections.abc import Iterator, Sequence

import numpy as np

Dims = Sequence[int]
Pairs = Sequence[tuple[int, int]]


def _padded(x: np.ndarray, pads: Pairs) -> np.ndarray:
    return np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads])


def _windows(
    count: Dims, kernel: Dims, stride: Dims, dilation: Dims
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each window's index and where its elements lie in the padded axes."""
    for place in np.ndindex(*count):
        axes = zip(place, kernel, stride, dilation, strict=True)
        yield place, tuple(slice(p * s, p * s + d * (k - 1) + 1, d) for p, k, s, d in axes)


def _count(size: Dims, kernel: Dims, stride: Dims, dilation: Dims) -> tuple[int, ...]:
    axes = zip(size, kernel, stride, dilation, strict=True)
    return tuple((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in axes)


def _blocks(channels: int, groups: int) -> list[slice]:
    width = channels // groups
    return [slice(g * width, (g + 1) * width) for g in range(groups)]


def conv(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Dims,
    pads: Pairs,
    dilation: Dims,
    groups: int = 1,
) -> np.ndarray:
    padded, weight = _padded(x, pads), weight.astype(np.float64)
    kernel = weight.shape[2:]
    count = _count(padded.shape[2:], kernel, stride, dilation)
    y = np.zeros((x.shape[0], weight.shape[0], *count))
    for place, where in _windows(count, kernel, stride, dilation):
        for ins, outs in zip(_blocks(x.shape[1], groups), _blocks(weight.shape[0], groups), strict=True):
            window = padded[(slice(None), ins, *where)]
            products = window[:, None] * weight[outs][None]
            y[(slice(None), outs, *place)] = products.sum(axis=tuple(range(2, products.ndim)))
    return y if bias is None else y + bias.astype(np.float64).reshape(1, -1, *[1] * len(kernel))


def conv_x_grad(
    x: np.ndarray,
    weight: np.ndarray,
    grad: np.ndarray,
    *,
    stride: Dims,
    pads: Pairs,
    dilation: Dims,
    groups: int = 1,
) -> np.ndarray:
    total = np.zeros_like(_padded(x, pads))
    for place, where in _windows(grad.shape[2:], weight.shape[2:], stride, dilation):
        for ins, outs in zip(_blocks(x.shape[1], groups), _blocks(weight.shape[0], groups), strict=True):
            part = grad[(slice(None), outs, *place)].astype(np.float64)
            total[(slice(None), ins, *where)] += np.tensordot(part, weight[outs].astype(np.float64), 1)
    inner = [slice(before, before + n) for (before, _), n in zip(pads, x.shape[2:], strict=True)]
    return total[(slice(None), slice(None), *inner)]


def conv_weight_grad(
    x: np.ndarray,
    weight: np.ndarray,
    grad: np.ndarray,
    *,
    stride: Dims,
    pads: Pairs,
    dilation: Dims,
    groups: int = 1,
) -> np.ndarray:
    padded, total = _padded(x, pads), np.zeros(weight.shape)
    for place, where in _windows(grad.shape[2:], weight.shape[2:], stride, dilation):
        for ins, outs in zip(_blocks(x.shape[1], groups), _blocks(weight.shape[0], groups), strict=True):
            part = grad[(slice(None), outs, *place)].astype(np.float64)
            total[outs] += np.tensordot(part.T, padded[(slice(None), ins, *where)], 1)
    return total


def bias_grad(grad: np.ndarray) -> np.ndarray:
    return grad.astype(np.float64).sum(axis=(0, *range(2, grad.ndim)))


def _transposed_canvas(
    x: np.ndarray, weight: np.ndarray, stride: Dims, padding_out: Dims, dilation: Dims, channels: int
) -> np.ndarray:
    axes = zip(x.shape[2:], weight.shape[2:], stride, padding_out, dilation, strict=True)
    size = [max(n - 1, 0) * s + d * (k - 1) + 1 + more for n, k, s, more, d in axes]
    return np.zeros((x.shape[0], channels, *size))


def conv_transpose(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Dims,
    padding: Dims,
    padding_out: Dims,
    dilation: Dims,
    groups: int = 1,
) -> np.ndarray:
    """Every input element adds its kernel to the canvas; the padding is cut off, `padding_out` widens the end."""
    channels = weight.shape[1] * groups
    canvas = _transposed_canvas(x, weight, stride, padding_out, dilation, channels)
    for place, where in _windows(x.shape[2:], weight.shape[2:], stride, dilation):
        for ins, outs in zip(_blocks(x.shape[1], groups), _blocks(channels, groups), strict=True):
            part = x[(slice(None), ins, *place)].astype(np.float64)
            canvas[(slice(None), outs, *where)] += np.tensordot(part, weight[ins].astype(np.float64), 1)
    inner = [slice(p, n - p) for p, n in zip(padding, canvas.shape[2:], strict=True)]
    y = canvas[(slice(None), slice(None), *inner)]
    return y if bias is None else y + bias.astype(np.float64).reshape(1, -1, *[1] * len(stride))


def conv_transpose_weight_grad(
    x: np.ndarray,
    weight: np.ndarray,
    grad: np.ndarray,
    *,
    stride: Dims,
    padding: Dims,
    padding_out: Dims,
    dilation: Dims,
    groups: int = 1,
) -> np.ndarray:
    total, canvas = np.zeros(weight.shape), _padded(grad, [(p, p) for p in padding])
    for place, where in _windows(x.shape[2:], weight.shape[2:], stride, dilation):
        for ins, outs in zip(_blocks(x.shape[1], groups), _blocks(grad.shape[1], groups), strict=True):
            part = x[(slice(None), ins, *place)].astype(np.float64)
            total[ins] += np.tensordot(part.T, canvas[(slice(None), outs, *where)], 1)
    return total


def deformable_conv(
    x: np.ndarray,
    offset: np.ndarray,
    weight: np.ndarray,
    mask: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    stride: Dims,
    padding: Dims,
    dilation: Dims,
    weight_groups: int = 1,
    offset_groups: int = 1,
) -> np.ndarray:
    """One tap at a time: where it points, the bilinear sample there, times mask, times weight."""
    x, offset, weight = (a.astype(np.float64) for a in (x, offset, weight))
    kernel, places = weight.shape[2:], offset.shape[2:]
    y = np.zeros((x.shape[0], weight.shape[0], *places))
    ins, outs = x.shape[1] // weight_groups, weight.shape[0] // weight_groups
    for n, c, i, j, p, q in np.ndindex(x.shape[0], x.shape[1], *kernel, *places):
        tap = (c // (x.shape[1] // offset_groups) * kernel[0] + i) * kernel[1] + j
        row = p * stride[0] - padding[0] + i * dilation[0] + offset[n, 2 * tap, p, q]
        column = q * stride[1] - padding[1] + j * dilation[1] + offset[n, 2 * tap + 1, p, q]
        sample = bilinear(x[n, c], row, column) * (1.0 if mask is None else float(mask[n, tap, p, q]))
        block = slice(c // ins * outs, (c // ins + 1) * outs)
        y[n, block, p, q] += weight[block, c % ins, i, j] * sample
    return y if bias is None else y + bias.astype(np.float64).reshape(1, -1, 1, 1)


def bilinear(plane: np.ndarray, row: float, column: float) -> float:
    """Sample of a plane; what lies outside is 0."""
    if not (-1 < row < plane.shape[0] and -1 < column < plane.shape[1]):
        return 0.0
    total = 0.0
    for r in (int(np.floor(row)), int(np.floor(row)) + 1):
        for c in (int(np.floor(column)), int(np.floor(column)) + 1):
            if 0 <= r < plane.shape[0] and 0 <= c < plane.shape[1]:
                total += plane[r, c] * (1 - abs(row - r)) * (1 - abs(column - c))
    return total


def numeric_grads(function, grad: np.ndarray, *arrays: np.ndarray, step: float = 1e-6) -> tuple[np.ndarray, ...]:  # type: ignore[no-untyped-def]
    """Central differences of `sum(function(*arrays) * grad)` by each array."""
    arrays = tuple(a.astype(np.float64) for a in arrays)
    grads = tuple(np.zeros_like(a) for a in arrays)
    for array, total in zip(arrays, grads, strict=True):
        for place in np.ndindex(*array.shape):
            kept = array[place]
            array[place] = kept + step
            up = function(*arrays)
            array[place] = kept - step
            down = function(*arrays)
            array[place] = kept
            total[place] = ((up - down) * grad).sum() / (2 * step)
    return grads


def unfold4d(x: np.ndarray, *, kernel: Dims, stride: Dims, padding: Dims, dilation: Dims) -> np.ndarray:
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    count = _count(padded.shape[2:], kernel, stride, dilation)
    columns = [
        padded[(slice(None), slice(None), *where)].reshape(x.shape[0], x.shape[1] * kernel[0] * kernel[1])
        for _, where in _windows(count, kernel, stride, dilation)
    ]
    return np.stack(columns, axis=-1)
