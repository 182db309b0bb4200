"""Resampling, one output element at a time."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np

Kernel = Callable[[float], float]


def keys(d: float) -> float:
    """The cubic convolution kernel with a = -0.75."""
    d, a = abs(d), -0.75
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def lanczos(d: float) -> float:
    """The kernel sinc(d) sinc(d / 3) on -3..3."""
    if d == 0:
        return 1.0
    x = math.pi * d
    return 3 * math.sin(x) * math.sin(x / 3) / x**2 if abs(d) < 3 else 0.0


def interpolate(x: np.ndarray, size: tuple[int, int], mode: str, align: bool) -> np.ndarray:
    """Every sample of the image weighed for every output element."""
    out = np.zeros((*x.shape[:2], *size))
    for i, j in product(range(size[0]), range(size[1])):
        rows = weights(x.shape[2], size[0], i, mode, align)
        columns = weights(x.shape[3], size[1], j, mode, align)
        for (a, wa), (b, wb) in product(rows.items(), columns.items()):
            out[:, :, i, j] += x[:, :, a, b].astype(np.float64) * wa * wb
    return out


def weights(size: int, out_size: int, place: int, mode: str, align: bool) -> dict[int, float]:
    """Weight of each sample of an axis that counts for output element `place`."""
    last = size - 1
    if mode == "Nearest":
        return {min(int(place * (size / out_size)), last): 1.0}
    if mode == "NearestExact":
        return {min(int((place + 0.5) * size / out_size), last): 1.0}
    centre = (
        (place * last / (out_size - 1) if out_size > 1 else 0.0) if align else (place + 0.5) * size / out_size - 0.5
    )
    found: dict[int, float] = {}
    if mode == "Bilinear":
        centre = min(max(centre, 0.0), float(last))
        for tap in (int(centre), int(centre) + 1):
            found[min(tap, last)] = found.get(min(tap, last), 0.0) + max(0.0, 1 - abs(centre - tap))
    elif mode == "Bicubic":
        for tap in range(math.floor(centre) - 1, math.floor(centre) + 3):
            inside = min(max(tap, 0), last)
            found[inside] = found.get(inside, 0.0) + keys(centre - tap)
    else:
        taps = [t for t in range(math.floor(centre) - 2, math.floor(centre) + 4) if 0 <= t <= last]
        total = sum(lanczos(centre - t) for t in taps)
        found = {t: lanczos(centre - t) / total for t in taps}
    return found


def interpolate_backward(x: np.ndarray, grad: np.ndarray, size: tuple[int, int], mode: str, align: bool) -> np.ndarray:
    """Each output's gradient handed back to the samples it was made of."""
    out = np.zeros(x.shape)
    for i, j in product(range(size[0]), range(size[1])):
        rows = weights(x.shape[2], size[0], i, mode, align)
        columns = weights(x.shape[3], size[1], j, mode, align)
        for (a, wa), (b, wb) in product(rows.items(), columns.items()):
            out[:, :, a, b] += grad[:, :, i, j].astype(np.float64) * wa * wb
    return out


def reflect(c: float, size: int, align: bool) -> float:
    """Mirror `c` at the ends until it is inside."""
    low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
    if high <= low:
        return low
    while not low <= c <= high:
        c = 2 * low - c if c < low else 2 * high - c
    return c


def grid_sample(x: np.ndarray, grid: np.ndarray, mode: str, padding: str, align: bool) -> np.ndarray:
    """Point by point; coordinates must be finite."""
    batch, channels, height, width = x.shape
    out = np.zeros((batch, channels, *grid.shape[1:3]))

    def pad(c: float, size: int) -> float:
        if padding == "Border":
            return min(max(c, 0.0), size - 1.0)
        return reflect(c, size, align) if padding == "Reflection" else c

    def taps(g: float, size: int) -> list[tuple[int, float]]:
        c = (g + 1) * (size - 1) / 2 if align else ((g + 1) * size - 1) / 2
        if mode == "Nearest":
            return [(round(pad(c, size)), 1.0)]
        if mode == "NearestExact":
            return [(math.floor(pad(c, size) + 0.5), 1.0)]
        first, count, kernel = {
            "Bilinear": (0, 2, lambda d: 1 - abs(d)),
            "Bicubic": (-1, 4, keys),
            "Lanczos3": (-2, 6, lanczos),
        }[mode]
        c = pad(c, size) if mode == "Bilinear" else c
        places = [math.floor(c) + first + n for n in range(count)]
        total = sum(kernel(c - p) for p in places) if mode == "Lanczos3" else 1.0
        return [(int(p if mode == "Bilinear" else pad(p, size)), kernel(c - p) / total) for p in places]

    for n, i, j in product(range(batch), range(grid.shape[1]), range(grid.shape[2])):
        columns, rows = taps(float(grid[n, i, j, 0]), width), taps(float(grid[n, i, j, 1]), height)
        for (row, wr), (column, wc) in product(rows, columns):
            inside = 0 <= row < height and 0 <= column < width
            if inside or padding != "Zeros":
                row_in, column_in = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
                out[n, :, i, j] += x[n, :, row_in, column_in].astype(np.float64) * wr * wc
    return out
