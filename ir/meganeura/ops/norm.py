"""Normalisation. Source: meganeura `graph.rs`.

Two-dimensional kinds: x (rows, cols), each row by itself. `GroupNorm` kinds: x is flat (N C S), C `channels` in
`num_groups` groups, S = `spatial`.
"""

from ir.meganeura.ops.records import F32Value, U32Value, node_kind
from ir.op import In, Op, Out


class NormGrad(Op):
    """Gradient of a norm: dy (rows, cols) · x (rows, cols) · w (cols,)."""

    dy: In
    x: In
    w: In
    out: Out
    eps: F32Value


class GroupNormShape(Op):
    """x flat (N C S) · weight (C,) · bias (C,) -> out of the type of x."""

    x: In
    weight: In
    bias: In
    out: Out
    num_groups: U32Value
    eps: F32Value
    channels: U32Value
    spatial: U32Value


@node_kind
class RmsNorm(Op):
    """x r weight, r = (mean(x^2) + eps)^-1/2 per row. x (rows, cols) · weight (cols,)."""

    x: In
    weight: In
    out: Out
    eps: F32Value


@node_kind
class RmsNormGradW(NormGrad):
    """Gradient of `RmsNorm` for its weight: sum over rows of dy x r -> out (cols,)."""


@node_kind
class RmsNormGradX(NormGrad):
    """Gradient of `RmsNorm` for x: r (dy w - x (r^2 / cols) sum(dy w x)) -> out (rows, cols)."""


@node_kind
class LayerNorm(Op):
    """(x - mean) (var + eps)^-1/2 weight + bias, biased variance. x (rows, cols) · weight (cols,) · bias (cols,)."""

    x: In
    weight: In
    bias: In
    out: Out
    eps: F32Value


@node_kind
class LayerNormGradWB(NormGrad):
    """Gradient of `LayerNorm` for its weight alone: sum over rows of dy xhat -> out (cols,).

    The name and the comments of `graph.rs` promise the bias too; its kernel never wrote it.
    """


@node_kind
class LayerNormGradX(NormGrad):
    """Gradient of `LayerNorm` for x: rstd (g - mean(g) - xhat mean(g xhat)), g = dy w -> out (rows, cols)."""


@node_kind
class GroupNorm(GroupNormShape):
    """Per image and group: (x - mean) (var + eps)^-1/2, biased; then weight and bias per channel."""


@node_kind
class GroupNormSilu(GroupNormShape):
    """`GroupNorm`, then silu."""


@node_kind
class GroupNormGradInput(Op):
    """Gradient of `GroupNorm` for x. grad_out flat (N C S) · x flat (N C S) · weight (C,) -> out flat (N C S)."""

    grad_out: In
    x: In
    weight: In
    out: Out
    num_groups: U32Value
    eps: F32Value
    channels: U32Value
    spatial: U32Value


@node_kind
class GroupNormGradWeightBias(Op):
    """Gradient of `GroupNorm` for weight, then bias -> out (2C,). grad_out flat (N C S) · x flat (N C S)."""

    grad_out: In
    x: In
    out: Out
    num_groups: U32Value
    eps: F32Value
    channels: U32Value
    spatial: U32Value
