"""Convolutions, their transposes and gradients, and window extraction. Source: burn-ir `ModuleOperationIr`.

x (N, Cin, *spatial) · weight (Cout, Cin / groups, *kernel) · bias (Cout,) -> out (N, Cout, *out spatial). A transposed
weight is (Cin, Cout / groups, *kernel).
"""

from ir.dtype import Dim
from ir.op import In, Op, OptIn, OptOut, Out
from ir.records import Record
from ir.registry import MODULE, kind

Pair = tuple[Dim, Dim]
Triple = tuple[Dim, Dim, Dim]


class Conv1dOptions(Record):
    """Stride, (before, after) padding, dilation and groups of a 1-d convolution."""

    stride: tuple[Dim]
    padding: tuple[Pair]
    dilation: tuple[Dim]
    groups: Dim


class Conv2dOptions(Record):
    """Stride, (before, after) padding per axis, dilation and groups of a 2-d convolution."""

    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair
    groups: Dim


class Conv3dOptions(Record):
    """Stride, padding on both sides, dilation and groups of a 3-d convolution."""

    stride: Triple
    padding: Triple
    dilation: Triple
    groups: Dim


class ConvTranspose1dOptions(Record):
    """Options of a transposed 1-d convolution; `padding_out` adds to the output's end."""

    stride: tuple[Dim]
    padding: tuple[Dim]
    padding_out: tuple[Dim]
    dilation: tuple[Dim]
    groups: Dim


class ConvTranspose2dOptions(Record):
    """Options of a transposed 2-d convolution; `padding_out` adds to the output's end."""

    stride: Pair
    padding: Pair
    padding_out: Pair
    dilation: Pair
    groups: Dim


class ConvTranspose3dOptions(Record):
    """Options of a transposed 3-d convolution; `padding_out` adds to the output's end."""

    stride: Triple
    padding: Triple
    padding_out: Triple
    dilation: Triple
    groups: Dim


class DeformableConv2dOptions(Record):
    """Options of a deformable convolution."""

    stride: Pair
    padding: Pair
    dilation: Pair
    weight_groups: Dim
    offset_groups: Dim


class Unfold4dOptions(Record):
    """Stride, padding on both sides and dilation of the windows."""

    stride: Pair
    padding: Pair
    dilation: Pair


class BiasBackward(Op):
    """Gradient of a convolution by its bias: output_grad summed over all but the channels -> out (Cout,)."""

    x: In
    bias: In
    output_grad: In
    out: Out


@kind(*MODULE)
class Conv1d(Op):
    """Cross-correlate x (N, Cin, L) with weight (Cout, Cin / groups, k), then add bias (Cout,)."""

    x: In
    weight: In
    bias: OptIn
    options: Conv1dOptions
    out: Out


class Conv1dBackward(Op):
    """Record of the two gradients that need the options."""

    x: In
    weight: In
    output_grad: In
    options: Conv1dOptions
    out: Out


@kind(*MODULE)
class Conv1dXBackward(Conv1dBackward):
    """Gradient of `Conv1d` by x."""


@kind(*MODULE)
class Conv1dWeightBackward(Conv1dBackward):
    """Gradient of `Conv1d` by its weight."""


@kind(*MODULE)
class Conv1dBiasBackward(BiasBackward):
    """Gradient of `Conv1d` by its bias."""


@kind(*MODULE)
class Conv2d(Op):
    """Cross-correlate x (N, Cin, H, W) with weight (Cout, Cin / groups, kH, kW), then add bias (Cout,)."""

    x: In
    weight: In
    bias: OptIn
    options: Conv2dOptions
    out: Out


class Conv2dBackward(Op):
    """Record of the two gradients that need the options."""

    x: In
    weight: In
    output_grad: In
    options: Conv2dOptions
    out: Out


@kind(*MODULE)
class Conv2dXBackward(Conv2dBackward):
    """Gradient of `Conv2d` by x."""


@kind(*MODULE)
class Conv2dWeightBackward(Conv2dBackward):
    """Gradient of `Conv2d` by its weight."""


@kind(*MODULE)
class Conv2dBiasBackward(BiasBackward):
    """Gradient of `Conv2d` by its bias."""


@kind(*MODULE)
class Conv3d(Op):
    """Cross-correlate x (N, Cin, D, H, W) with weight (Cout, Cin / groups, kD, kH, kW), then add bias (Cout,)."""

    x: In
    weight: In
    bias: OptIn
    options: Conv3dOptions
    out: Out


class Conv3dBackward(Op):
    """Record of the two gradients that need the options."""

    x: In
    weight: In
    output_grad: In
    options: Conv3dOptions
    out: Out


@kind(*MODULE)
class Conv3dXBackward(Conv3dBackward):
    """Gradient of `Conv3d` by x."""


@kind(*MODULE)
class Conv3dWeightBackward(Conv3dBackward):
    """Gradient of `Conv3d` by its weight."""


@kind(*MODULE)
class Conv3dBiasBackward(BiasBackward):
    """Gradient of `Conv3d` by its bias."""


@kind(*MODULE)
class ConvTranspose1d(Op):
    """Transposed convolution of x (N, Cin, L) with weight (Cin, Cout / groups, k), then add bias (Cout,)."""

    x: In
    weight: In
    bias: OptIn
    options: ConvTranspose1dOptions
    out: Out


@kind(*MODULE)
class ConvTranspose1dWeightBackward(Op):
    """Gradient of `ConvTranspose1d` by its weight."""

    x: In
    weight: In
    output_grad: In
    options: ConvTranspose1dOptions
    out: Out


@kind(*MODULE)
class ConvTranspose1dBiasBackward(BiasBackward):
    """Gradient of `ConvTranspose1d` by its bias."""


@kind(*MODULE)
class ConvTranspose2d(Op):
    """Transposed convolution of x (N, Cin, H, W) with weight (Cin, Cout / groups, kH, kW), then add bias (Cout,)."""

    x: In
    weight: In
    bias: OptIn
    options: ConvTranspose2dOptions
    out: Out


@kind(*MODULE)
class ConvTranspose2dWeightBackward(Op):
    """Gradient of `ConvTranspose2d` by its weight."""

    x: In
    weight: In
    output_grad: In
    options: ConvTranspose2dOptions
    out: Out


@kind(*MODULE)
class ConvTranspose2dBiasBackward(BiasBackward):
    """Gradient of `ConvTranspose2d` by its bias."""


@kind(*MODULE)
class ConvTranspose3d(Op):
    """Transposed convolution of x (N, Cin, D, H, W) with weight (Cin, Cout / groups, kD, kH, kW), then add bias."""

    x: In
    weight: In
    bias: OptIn
    options: ConvTranspose3dOptions
    out: Out


@kind(*MODULE)
class ConvTranspose3dWeightBackward(Op):
    """Gradient of `ConvTranspose3d` by its weight."""

    x: In
    weight: In
    output_grad: In
    options: ConvTranspose3dOptions
    out: Out


@kind(*MODULE)
class ConvTranspose3dBiasBackward(BiasBackward):
    """Gradient of `ConvTranspose3d` by its bias."""


@kind(*MODULE)
class DeformableConv2d(Op):
    """Convolution whose taps are moved by `offset` and weighed by `mask`.

    offset (N, 2 * offset_groups * kH * kW, oH, oW), (y, x) pairs · mask (N, offset_groups * kH * kW, oH, oW).
    """

    x: In
    offset: In
    weight: In
    mask: OptIn
    bias: OptIn
    options: DeformableConv2dOptions
    out: Out


@kind(*MODULE)
class DeformableConv2dBackward(Op):
    """All gradients of `DeformableConv2d` at once."""

    x: In
    offset: In
    weight: In
    mask: OptIn
    bias: OptIn
    out_grad: In
    options: DeformableConv2dOptions
    input_grad: Out
    offset_grad: Out
    weight_grad: Out
    mask_grad: OptOut
    bias_grad: OptOut


@kind(*MODULE)
class Unfold4d(Op):
    """Windows of x (N, C, H, W) as columns: out (N, C * kH * kW, windows)."""

    x: In
    kernel_size: Pair
    options: Unfold4dOptions
    out: Out
