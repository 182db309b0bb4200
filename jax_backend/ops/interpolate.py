"""Resampling of images: on a regular grid of another size, and at given points.

Every mode is a weighted sum of a few samples per axis, gathered one by one: a dense matrix would spread one infinity
over a whole row.
"""

from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ir
from ir.ops.interpolate import GridSamplePaddingMode, InterpolateMode
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, const, out_dtype, widen_half

KEYS_A = -0.75
"""Parameter of the bicubic kernel, as in Burn and PyTorch; `jax.image` uses -0.5."""

_FIRST_TAP = {InterpolateMode.Bilinear: 0, InterpolateMode.Bicubic: -1, InterpolateMode.Lanczos3: -2}
_NUM_TAPS = {InterpolateMode.Bilinear: 2, InterpolateMode.Bicubic: 4, InterpolateMode.Lanczos3: 6}


class Taps(NamedTuple):
    """Per output place (rows) and tap (columns): which sample, its weight, and whether it counts."""

    sample: np.ndarray
    weight: np.ndarray
    counts: np.ndarray


@lower(ir.Interpolate)
def interpolate(op: ir.Interpolate, x: Array) -> Array:
    """One axis after the other; halves in float32."""
    return _resample(widen_half(x), op.output_size, op.options).astype(out_dtype(op.out))


@lower(ir.InterpolateBackward)
def interpolate_backward(op: ir.InterpolateBackward, x: Array, grad: Array) -> Array:
    """The adjoint of the forward sum; `x` gives the shape only."""
    grad = widen_half(grad)
    shape = jax.ShapeDtypeStruct(x.shape, grad.dtype)
    adjoint = jax.linear_transpose(partial(_resample, size=op.output_size, options=op.options), shape)
    (out,) = adjoint(grad)
    return out.astype(out_dtype(op.out))


def _resample(x: Array, size: tuple[int, int], options: ir.InterpolateOptions) -> Array:
    """Images (N, C, H, W) -> (N, C, *size)."""
    for axis, out_size in ((2, size[0]), (3, size[1])):
        taps = taps_of(x.shape[axis], out_size, options.mode, options.align_corners)
        shape = [1] * (x.ndim + 1)
        shape[axis : axis + 2] = taps.sample.shape
        samples = jnp.take(x, taps.sample, axis=axis, mode="clip")
        if not taps.counts.all():
            samples = jnp.where(taps.counts.reshape(shape), samples, const(0, x))
        x = (samples * taps.weight.astype(x.dtype).reshape(shape)).sum(axis + 1)
    return x


@cache
def taps_of(size: int, out_size: int, mode: InterpolateMode, align_corners: bool) -> Taps:
    """The samples of an axis of `size` elements that make each of `out_size` elements.

    The source coordinate of place o is `o * (size - 1) / (out_size - 1)` with aligned corners, else
    `(o + 0.5) * size / out_size - 0.5`. Taps beyond the border are the border sample; of Lanczos3 they are left out and
    the others scaled to sum 1.
    Source: burn-flex `interpolate.rs`, checked against Burn 0.22.1.
    """
    out = np.arange(out_size)
    last = max(size - 1, 0)
    if mode is InterpolateMode.Nearest:
        # The ratio is rounded first, as in Burn: of 2 samples at 98 places, place 49 takes the first, not the second.
        return _single(np.minimum(np.floor(out * (size / max(out_size, 1))), last))
    if mode is InterpolateMode.NearestExact:
        return _single(np.minimum((2 * out + 1) * size // max(2 * out_size, 1), last))
    place = out * (size - 1) / max(out_size - 1, 1) if align_corners else (out + 0.5) * size / max(out_size, 1) - 0.5
    if mode is InterpolateMode.Bilinear:
        place = np.maximum(place, 0.0)  # past the last sample both taps are that one, so that an infinity stays one
    floor = np.floor(place)[:, None]
    index = floor + _FIRST_TAP[mode] + np.arange(_NUM_TAPS[mode])
    weight = _kernel(mode, np, place[:, None] - index)
    counts = np.full(index.shape, True)
    if mode is InterpolateMode.Lanczos3:
        counts = (index >= 0) & (index <= last)
        total = np.where(counts, weight, 0.0).sum(1, keepdims=True)
        weight = weight / np.where(total == 0, 1.0, total)
    return Taps(np.clip(index, 0, last).astype(np.int32), weight, counts)


def _single(index: np.ndarray) -> Taps:
    column = index.astype(np.int32)[:, None]
    return Taps(column, np.ones(column.shape), np.full(column.shape, True))


def _kernel(mode: InterpolateMode, xp: ModuleType, distance: Any) -> Any:
    """Weight of a sample at a signed distance from the source coordinate; `xp` is numpy, or jax.numpy in a trace."""
    d = xp.abs(distance)
    if mode is InterpolateMode.Bilinear:
        return 1.0 - d
    if mode is InterpolateMode.Bicubic:
        near = ((KEYS_A + 2.0) * d - (KEYS_A + 3.0)) * d * d + 1.0
        far = ((KEYS_A * d - 5.0 * KEYS_A) * d + 8.0 * KEYS_A) * d - 4.0 * KEYS_A
        return xp.where(d < 1.0, near, xp.where(d < 2.0, far, xp.zeros_like(d)))
    return xp.where(d < 3.0, xp.sinc(d) * xp.sinc(d / 3.0), xp.zeros_like(d))


@lower(ir.GridSample2d)
def grid_sample_2d(op: ir.GridSample2d, tensor: Array, grid: Array) -> Array:
    """Coordinates in float64, since Nearest jumps between them; samples in float32 at least.

    Burn has Bilinear and Nearest. The other modes carry on its rules: NearestExact rounds half up, Bicubic and Lanczos3
    pad each sample by itself (as PyTorch's bicubic does), and Lanczos3 scales its weights to sum 1.
    """
    options = op.options
    height, width = tensor.shape[2:]
    x, y = (
        _place(grid[..., n].astype(jnp.float64), size, options.align_corners) for n, size in ((0, width), (1, height))
    )
    if options.padding_mode is GridSamplePaddingMode.Border:
        centred = ~(jnp.isfinite(x) & jnp.isfinite(y))  # Burn sends both axes to the centre if either is not finite
        x = jnp.where(centred, const((width - 1) / 2, x), x)
        y = jnp.where(centred, const((height - 1) / 2, y), y)
    wide = widen_half(tensor)
    columns, rows = _samples(x, width, options), _samples(y, height, options)
    values = _read(wide, rows.sample, columns.sample)
    values = jnp.where((rows.inside[:, None] & columns.inside[None])[:, :, :, None], values, const(0, wide))
    weights = (rows.weight[:, None] * columns.weight[None]).astype(wide.dtype)[:, :, :, None]
    return (values * weights).sum((0, 1)).astype(out_dtype(op.out))


def _place(coordinate: Array, size: int, align_corners: bool) -> Array:
    """A coordinate in -1..1 in units of samples, sample 0 at 0."""
    if align_corners:
        return (coordinate + 1.0) * ((size - 1) / 2)
    return (coordinate + 1.0) * size / 2.0 - 0.5


class _Samples(NamedTuple):
    """The samples along one axis that make each point, (taps, N, oH, oW): which, inside the image or padded, weight."""

    sample: Array
    inside: Array
    weight: Array


def _samples(place: Array, size: int, options: ir.GridSampleOptions) -> _Samples:
    """The samples near each coordinate, (N, oH, oW) in units of samples."""
    mode, pad = options.mode, partial(_pad, size=size, options=options)
    if mode in _FIRST_TAP:
        # The wider kernels pad each sample, not the point: beyond a mirror they would look the wrong way.
        place = (pad(place) if mode is InterpolateMode.Bilinear else place)[None]
        taps = lax.broadcasted_iota(place.dtype, (_NUM_TAPS[mode], *place.shape[1:]), 0)
        index = jnp.floor(place) + taps + const(_FIRST_TAP[mode], place)
        weight = _kernel(mode, jnp, place - index)
        index = index if mode is InterpolateMode.Bilinear else pad(index)
        if mode is InterpolateMode.Lanczos3:
            weight = weight / weight.sum(0, keepdims=True)
    else:
        place = pad(place)
        index = (jnp.round(place) if mode is InterpolateMode.Nearest else jnp.floor(place + 0.5))[None]
        weight = jnp.ones_like(index)
    index = jnp.where(jnp.isnan(index), const(0, index), index)
    is_zero_padded = options.padding_mode is GridSamplePaddingMode.Zeros
    inside = (index >= 0.0) & (index < float(size)) if is_zero_padded else jnp.full(index.shape, True)
    return _Samples(jnp.clip(index, 0.0, size - 1.0).astype(jnp.int32), inside, weight)


def _pad(place: Array, size: int, options: ir.GridSampleOptions) -> Array:
    """A coordinate brought inside the image as the padding mode says; Zeros and what is not finite stay."""
    if options.padding_mode is GridSamplePaddingMode.Zeros:
        return place
    if options.padding_mode is GridSamplePaddingMode.Border:
        return jnp.clip(place, 0.0, size - 1.0)
    low, high = (0.0, size - 1.0) if options.align_corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return jnp.where(jnp.isfinite(place), const(low, place), place)
    distance = jnp.abs(place - low)
    distance = distance - jnp.floor(distance / (2 * span)) * (2 * span)
    return jnp.where(jnp.isfinite(place), span - jnp.abs(distance - span) + low, place)


def _read(x: Array, rows: Array, columns: Array) -> Array:
    """Every pair of rows (R, N, oH, oW) and columns (S, N, oH, oW) of x (N, C, H, W) -> (R, S, N, C, oH, oW)."""
    batch, num_channels, height, width = x.shape
    places = rows[:, None] * width + columns[None]
    planes = x.reshape(1, 1, batch, num_channels, height * width)
    flat = places.reshape(*places.shape[:3], 1, -1)
    return jnp.take_along_axis(planes, flat, axis=4, mode="clip").reshape(
        *places.shape[:3], num_channels, *places.shape[3:]
    )
