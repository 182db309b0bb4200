"""Pools as loops over windows and their elements, in float64."""

from collections.abc import Iterator, Sequence

import numpy as np

Dims = Sequence[int]
Place = tuple[int, ...]


def out_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Windows of an axis; in ceil mode none that starts in the end padding."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - ((count - 1) * stride >= size + padding)


def counts(size: Dims, kernel: Dims, stride: Dims, padding: Dims, dilation: Dims, ceil: bool) -> Place:
    return tuple(out_size(*axis, ceil) for axis in zip(size, kernel, stride, padding, dilation, strict=True))


def _elements(place: Place, kernel: Dims, stride: Dims, padding: Dims, dilation: Dims) -> Iterator[Place]:
    """Coordinates that a window covers, row-major, outside ones included."""
    for tap in np.ndindex(*kernel):
        yield tuple(p * s - pad + t * d for p, t, s, pad, d in zip(place, tap, stride, padding, dilation, strict=True))


def _inside(element: Place, size: Dims, padding: int | Dims = 0) -> bool:
    pads = [padding] * len(size) if isinstance(padding, int) else padding
    return all(-p <= e < n + p for e, n, p in zip(element, size, pads, strict=True))


def max_pool(
    x: np.ndarray, *, kernel: Dims, stride: Dims, padding: Dims, dilation: Dims, ceil: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Values and flat indices."""
    size = x.shape[2:]
    count = counts(size, kernel, stride, padding, dilation, ceil)
    values, indices = np.full((*x.shape[:2], *count), -np.inf), np.full((*x.shape[:2], *count), -1)
    for n, c, *place in np.ndindex(*values.shape):
        at = (n, c, *place)
        for element in _elements(tuple(place), kernel, stride, padding, dilation):
            if _inside(element, size):
                value = float(x[(n, c, *element)])
                if indices[at] < 0 or np.isnan(value) or value > values[at]:
                    values[at], indices[at] = value, int(np.ravel_multi_index(element, size))
    return values, indices


def max_pool_grad(shape: Dims, grad: np.ndarray, indices: np.ndarray) -> np.ndarray:
    total = np.zeros((*shape[:2], int(np.prod(shape[2:]))))
    for n, c, *place in np.ndindex(*grad.shape):
        at = (n, c, *place)
        if indices[at] >= 0:
            total[n, c, indices[at]] += float(grad[at])
    return total.reshape(shape)


def avg_pool(
    x: np.ndarray, *, kernel: Dims, stride: Dims, padding: Dims, include_pad: bool, ceil: bool = False
) -> np.ndarray:
    size, ones = x.shape[2:], (1,) * len(kernel)
    y = np.zeros((*x.shape[:2], *counts(size, kernel, stride, padding, ones, ceil)))
    for n, c, *place in np.ndindex(*y.shape):
        covered = list(_elements(tuple(place), kernel, stride, padding, ones))
        inside = [float(x[(n, c, *e)]) for e in covered if _inside(e, size)]
        counted = sum(_inside(e, size, padding if include_pad else 0) for e in covered)
        y[(n, c, *place)] = sum(inside) / max(counted, 1)
    return y


def avg_pool_grad(
    x: np.ndarray, grad: np.ndarray, *, kernel: Dims, stride: Dims, padding: Dims, include_pad: bool
) -> np.ndarray:
    size, ones = x.shape[2:], (1,) * len(kernel)
    total = np.zeros(x.shape)
    for n, c, *place in np.ndindex(*grad.shape):
        covered = list(_elements(tuple(place), kernel, stride, padding, ones))
        counted = sum(_inside(e, size, padding if include_pad else 0) for e in covered)
        for e in covered:
            if _inside(e, size):
                total[(n, c, *e)] += float(grad[(n, c, *place)]) / counted
    return total


def _adaptive_windows(size: Dims, count: Dims) -> Iterator[tuple[Place, tuple[slice, ...]]]:
    for place in np.ndindex(*count):
        axes = zip(place, size, count, strict=True)
        yield place, tuple(slice(p * n // m, -((-(p + 1) * n) // m)) for p, n, m in axes)


def adaptive_avg_pool(x: np.ndarray, size: Dims) -> np.ndarray:
    y = np.zeros((*x.shape[:2], *size))
    for place, where in _adaptive_windows(x.shape[2:], size):
        window = x[(slice(None), slice(None), *where)].astype(np.float64)
        y[(slice(None), slice(None), *place)] = window.mean(axis=tuple(range(2, x.ndim)))
    return y


def adaptive_avg_pool_grad(x: np.ndarray, grad: np.ndarray) -> np.ndarray:
    total = np.zeros(x.shape)
    for place, where in _adaptive_windows(x.shape[2:], grad.shape[2:]):
        part = total[(slice(None), slice(None), *where)]
        spread = grad[(slice(None), slice(None), *place)].astype(np.float64) / np.prod(part.shape[2:])
        part += spread.reshape(*spread.shape, *[1] * (x.ndim - 2))
    return total
