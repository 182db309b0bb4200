"""Lowerings of `ir.meganeura.ops.norm`. Variances in two passes: E[x²] - E[x]² loses large means."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from ir.errors import ShapeError
from ir.meganeura.ops.linear import FusedRmsNormMatMul
from ir.meganeura.ops.norm import (
    GroupNorm,
    GroupNormGradInput,
    GroupNormGradWeightBias,
    GroupNormShape,
    GroupNormSilu,
    LayerNorm,
    LayerNormGradWB,
    LayerNormGradX,
    RmsNorm,
    RmsNormGradW,
    RmsNormGradX,
)
from ir.op import Op
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, const
from jax_backend.ops.meganeura._shared import declared, two_dims, viewed


def _row(op: Op, field: str, weight: Array, x: Array) -> Array:
    """A weight per column of x, as (1, cols)."""
    return viewed(weight, (1, two_dims(x, f"{op.kind}.x").shape[1]), f"{op.kind}.{field}")


def _mean(x: Array, axis: int | tuple[int, ...]) -> Array:
    return x.mean(axis, keepdims=True)


def rms_scale(x: Array, eps: float) -> Array:
    """(mean(x²) + eps)^-1/2 of each row, (rows, 1)."""
    return const(1, x) / jnp.sqrt(_mean(jnp.square(x), 1) + const(eps, x))


def rms_normalised(op: RmsNorm | FusedRmsNormMatMul, x: Array, weight: Array) -> Array:
    """Rows over their root mean square, times a weight per column."""
    weight = _row(op, "weight" if isinstance(op, RmsNorm) else "w_norm", weight, x)
    return x * rms_scale(x, op.eps) * weight


@lower(RmsNorm)
@declared
def rms_norm(op: RmsNorm, x: Array, weight: Array) -> Array:
    """Rows over their root mean square, times the weight."""
    return rms_normalised(op, x, weight)


@lower(RmsNormGradW)
@declared
def rms_norm_grad_w(op: RmsNormGradW, dy: Array, x: Array, w: Array) -> Array:
    """Column sums of dy x r."""
    dy = viewed(dy, two_dims(x, "RmsNormGradW.x").shape, "RmsNormGradW.dy")
    return jnp.sum(dy * x * rms_scale(x, op.eps), axis=0)


@lower(RmsNormGradX)
@declared
def rms_norm_grad_x(op: RmsNormGradX, dy: Array, x: Array, w: Array) -> Array:
    """With g = dy w: r (g - x r² mean(g x))."""
    w = _row(op, "w", w, x)
    g, r = viewed(dy, x.shape, "RmsNormGradX.dy") * w, rms_scale(x, op.eps)
    return r * (g - x * jnp.square(r) * _mean(g * x, 1))


class _Normalised(NamedTuple):
    """(x - mean) rstd, and rstd = (var + eps)^-1/2."""

    xhat: Array
    rstd: Array


def _normalise(x: Array, axis: int | tuple[int, ...], eps: float) -> _Normalised:
    centred = x - _mean(x, axis)
    rstd = const(1, x) / jnp.sqrt(_mean(jnp.square(centred), axis) + const(eps, x))
    return _Normalised(centred * rstd, rstd)


def _normalised_grad(g: Array, n: _Normalised, axis: int | tuple[int, ...]) -> Array:
    """Gradient for x where `g` is that for xhat: both means that x also moves are taken out."""
    return n.rstd * (g - _mean(g, axis) - n.xhat * _mean(g * n.xhat, axis))


@lower(LayerNorm)
@declared
def layer_norm(op: LayerNorm, x: Array, weight: Array, bias: Array) -> Array:
    """Row by row: xhat weight + bias."""
    weight, bias = _row(op, "weight", weight, x), _row(op, "bias", bias, x)
    return _normalise(x, 1, op.eps).xhat * weight + bias


@lower(LayerNormGradWB)
@declared
def layer_norm_grad_wb(op: LayerNormGradWB, dy: Array, x: Array, w: Array) -> Array:
    """Column sums of dy xhat."""
    dy = viewed(dy, two_dims(x, "LayerNormGradWB.x").shape, "LayerNormGradWB.dy")
    return jnp.sum(dy * _normalise(x, 1, op.eps).xhat, axis=0)


@lower(LayerNormGradX)
@declared
def layer_norm_grad_x(op: LayerNormGradX, dy: Array, x: Array, w: Array) -> Array:
    """The gradient through mean and variance."""
    w = _row(op, "w", w, x)
    return _normalised_grad(viewed(dy, x.shape, "LayerNormGradX.dy") * w, _normalise(x, 1, op.eps), 1)


class _Groups:
    """A flat (N C S) array as (N, groups, C / groups, S), with statistics per image and group.

    Raises:
        ShapeError: the groups do not divide the channels.
    """

    axes = (2, 3)

    def __init__(self, op: GroupNormShape | GroupNormGradInput | GroupNormGradWeightBias) -> None:
        if not op.num_groups or op.channels % op.num_groups:
            raise ShapeError(f"{op.kind}.num_groups: expected a divisor of {op.channels} channels, got {op.num_groups}")
        self._op = op
        self._shape = (op.num_groups, op.channels // op.num_groups)

    def split(self, x: Array, field: str) -> Array:
        """(N, groups, C / groups, S)."""
        return viewed(x, (-1, *self._shape, self._op.spatial), f"{self._op.kind}.{field}")

    def per_channel(self, x: Array, field: str) -> Array:
        """(1, groups, C / groups, 1)."""
        return viewed(x, (1, *self._shape, 1), f"{self._op.kind}.{field}")


def group_normalised(op: GroupNormShape, x: Array, weight: Array, bias: Array) -> Array:
    """The norm, scaled and shifted, as (N, groups, C / groups, S)."""
    groups = _Groups(op)
    xhat = _normalise(groups.split(x, "x"), groups.axes, op.eps).xhat
    return xhat * groups.per_channel(weight, "weight") + groups.per_channel(bias, "bias")


@lower(GroupNorm)
@declared
def group_norm(op: GroupNorm, x: Array, weight: Array, bias: Array) -> Array:
    """Normalised per image and group, scaled and shifted per channel."""
    return group_normalised(op, x, weight, bias)


@lower(GroupNormSilu)
@declared
def group_norm_silu(op: GroupNormSilu, x: Array, weight: Array, bias: Array) -> Array:
    """The norm, then silu."""
    normed = group_normalised(op, x, weight, bias)
    return normed * lax.logistic(normed)


@lower(GroupNormGradInput)
@declared
def group_norm_grad_input(op: GroupNormGradInput, grad_out: Array, x: Array, weight: Array) -> Array:
    """The gradient through mean and variance of each group."""
    groups = _Groups(op)
    g = groups.split(grad_out, "grad_out") * groups.per_channel(weight, "weight")
    return _normalised_grad(g, _normalise(groups.split(x, "x"), groups.axes, op.eps), groups.axes)


@lower(GroupNormGradWeightBias)
@declared
def group_norm_grad_weight_bias(op: GroupNormGradWeightBias, grad_out: Array, x: Array) -> Array:
    """Sums per channel over images and places: of grad_out xhat, then of grad_out."""
    groups = _Groups(op)
    g = groups.split(grad_out, "grad_out")
    xhat = _normalise(groups.split(x, "x"), groups.axes, op.eps).xhat
    return jnp.concatenate([jnp.sum(part, axis=(0, 3)).reshape(-1) for part in (g * xhat, g)])
