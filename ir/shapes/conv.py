"""Rules of convolutions, their transposes and gradients. Source: burn-ir `builder.rs`, burn-backend `conv.rs`.

x (N, Cin, *spatial) · weight (Cout, Cin / groups, *kernel) · bias (Cout,) -> (N, Cout, *out spatial). A transposed
weight is (Cin, Cout / groups, *kernel).
"""

from ir.errors import ShapeError
from ir.ops.conv import (
    BiasBackward,
    Conv1d,
    Conv1dBackward,
    Conv1dBiasBackward,
    Conv1dOptions,
    Conv1dWeightBackward,
    Conv1dXBackward,
    Conv2d,
    Conv2dBackward,
    Conv2dBiasBackward,
    Conv2dOptions,
    Conv2dWeightBackward,
    Conv2dXBackward,
    Conv3d,
    Conv3dBackward,
    Conv3dBiasBackward,
    Conv3dOptions,
    Conv3dWeightBackward,
    Conv3dXBackward,
    ConvTranspose1d,
    ConvTranspose1dBiasBackward,
    ConvTranspose1dOptions,
    ConvTranspose1dWeightBackward,
    ConvTranspose2d,
    ConvTranspose2dBiasBackward,
    ConvTranspose2dOptions,
    ConvTranspose2dWeightBackward,
    ConvTranspose3d,
    ConvTranspose3dBiasBackward,
    ConvTranspose3dOptions,
    ConvTranspose3dWeightBackward,
    DeformableConv2d,
    DeformableConv2dBackward,
    Unfold4d,
)
from ir.shapes.formulas import Dims, conv_out, conv_transpose_out, show
from ir.shapes.rules import Given, Outputs, TensorType, one, same_dtype, shape_rule, want_dims
from ir.tensor import TensorIr

Conv = Conv1d | Conv2d | Conv3d
ConvBackward = Conv1dBackward | Conv2dBackward | Conv3dBackward
ConvOptions = Conv1dOptions | Conv2dOptions | Conv3dOptions
ConvTranspose = ConvTranspose1d | ConvTranspose2d | ConvTranspose3d
ConvTransposeOptions = ConvTranspose1dOptions | ConvTranspose2dOptions | ConvTranspose3dOptions
ConvTransposeWeightBackward = (
    ConvTranspose1dWeightBackward | ConvTranspose2dWeightBackward | ConvTranspose3dWeightBackward
)

SPATIAL = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
KERNEL = {1: ("k",), 2: ("kH", "kW"), 3: ("kD", "kH", "kW")}
Pair = tuple[int, int]


def _pairs(padding: tuple[int | Pair, ...]) -> tuple[Pair, ...]:
    """(before, after) per axis; the 3-d options have one number for both sides."""
    return tuple((p, p) if isinstance(p, int) else p for p in padding)


def _divides(groups: int, channels: int, name: str) -> None:
    if groups < 1 or channels % groups:
        raise ShapeError(f"options.groups: expected a divisor of {channels}, the channels of {name}, got {groups}")


def conv_dims(x: TensorIr, weight: TensorIr, options: ConvOptions) -> Dims:
    """Shape of the cross-correlation of x with weight.

    Raises:
        ShapeError: weight does not fit x and the groups, or a window does not fit the padded axes.
    """
    rank = len(options.stride)
    want_dims("x", x, ("N", "Cin", *SPATIAL[rank]))
    dims, groups = x.shape.dims, options.groups
    _divides(groups, dims[1], "x")
    given = weight.shape.dims
    outer = given[0] if len(given) == rank + 2 else "Cout"
    context = f"x {show(dims)} with groups={groups}"
    want_dims("weight", weight, (outer, dims[1] // groups, *KERNEL[rank]), context)
    _divides(groups, given[0], "the output")
    padding = _pairs(options.padding)
    spatial = map(conv_out, dims[2:], given[2:], options.stride, padding, options.dilation)
    return (dims[0], given[0], *spatial)


@shape_rule(Conv1d, Conv2d, Conv3d)
def conv(op: Conv, given: Given) -> Outputs:
    """(N, Cout, *out spatial)."""
    dims = conv_dims(op.x, op.weight, op.options)
    want_dims("bias", op.bias, (dims[1],), f"weight {show(op.weight.shape.dims)}")
    return one(dims, same_dtype(op, "x", "weight", "bias"))


def _check_conv_backward(op: ConvBackward) -> None:
    wanted = conv_dims(op.x, op.weight, op.options)
    context = f"x {show(op.x.shape.dims)} and weight {show(op.weight.shape.dims)}"
    want_dims("output_grad", op.output_grad, wanted, context)
    same_dtype(op, "output_grad", "x", "weight")


@shape_rule(Conv1dXBackward, Conv2dXBackward, Conv3dXBackward)
def conv_x_backward(op: ConvBackward, given: Given) -> Outputs:
    """The shape of x."""
    _check_conv_backward(op)
    return one(op.x.shape.dims, op.output_grad.dtype)


@shape_rule(Conv1dWeightBackward, Conv2dWeightBackward, Conv3dWeightBackward)
def conv_weight_backward(op: ConvBackward, given: Given) -> Outputs:
    """The shape of the weight."""
    _check_conv_backward(op)
    return one(op.weight.shape.dims, op.output_grad.dtype)


@shape_rule(
    Conv1dBiasBackward,
    Conv2dBiasBackward,
    Conv3dBiasBackward,
    ConvTranspose1dBiasBackward,
    ConvTranspose2dBiasBackward,
    ConvTranspose3dBiasBackward,
)
def bias_backward(op: BiasBackward, given: Given) -> Outputs:
    """The shape of the bias."""
    rank = int(op.kind.removesuffix("dBiasBackward")[-1])
    want_dims("bias", op.bias, ("Cout",))
    (channels,) = op.bias.shape.dims
    pattern = ("N", channels, *SPATIAL[rank])
    want_dims("output_grad", op.output_grad, pattern, f"bias {show(op.bias.shape.dims)}")
    same_dtype(op, "output_grad", "x", "bias")
    return one(op.bias.shape.dims, op.output_grad.dtype)


def conv_transpose_dims(x: TensorIr, weight: TensorIr, options: ConvTransposeOptions) -> Dims:
    """Shape of the transposed convolution of x with weight.

    Raises:
        ShapeError: weight does not fit x and the groups, or the padding cuts off too much.
    """
    rank = len(options.stride)
    want_dims("x", x, ("N", "Cin", *SPATIAL[rank]))
    dims = x.shape.dims
    _divides(options.groups, dims[1], "x")
    want_dims("weight", weight, (dims[1], "Cout/groups", *KERNEL[rank]), f"x {show(dims)}")
    kernel = weight.shape.dims[2:]
    spatial = map(
        conv_transpose_out,
        dims[2:],
        kernel,
        options.stride,
        options.padding,
        options.padding_out,
        options.dilation,
    )
    return (dims[0], weight.shape.dims[1] * options.groups, *spatial)


@shape_rule(ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
def conv_transpose(op: ConvTranspose, given: Given) -> Outputs:
    """(N, Cout, *out spatial)."""
    dims = conv_transpose_dims(op.x, op.weight, op.options)
    context = f"weight {show(op.weight.shape.dims)} with groups={op.options.groups}"
    want_dims("bias", op.bias, (dims[1],), context)
    return one(dims, same_dtype(op, "x", "weight", "bias"))


@shape_rule(ConvTranspose1dWeightBackward, ConvTranspose2dWeightBackward, ConvTranspose3dWeightBackward)
def conv_transpose_weight_backward(op: ConvTransposeWeightBackward, given: Given) -> Outputs:
    """The shape of the weight."""
    wanted = conv_transpose_dims(op.x, op.weight, op.options)
    context = f"x {show(op.x.shape.dims)} and weight {show(op.weight.shape.dims)}"
    want_dims("output_grad", op.output_grad, wanted, context)
    same_dtype(op, "output_grad", "x", "weight")
    return one(op.weight.shape.dims, op.output_grad.dtype)


def deform_dims(op: DeformableConv2d | DeformableConv2dBackward) -> Dims:
    """Shape of a deformable convolution, after checking its operands.

    offset (N, 2 * offset_groups * kH * kW, oH, oW) · mask (N, offset_groups * kH * kW, oH, oW).

    Raises:
        ShapeError: an operand does not fit.
    """
    options = op.options
    high, wide = options.padding
    plain = Conv2dOptions(options.stride, ((high, high), (wide, wide)), options.dilation, options.weight_groups)
    dims = conv_dims(op.x, op.weight, plain)
    channels = op.x.shape.dims[1]
    if options.offset_groups < 1 or channels % options.offset_groups:
        raise ShapeError(
            f"options.offset_groups: expected a divisor of {channels}, the channels of x, got {options.offset_groups}"
        )
    _, _, kernel_h, kernel_w = op.weight.shape.dims
    taps = options.offset_groups * kernel_h * kernel_w
    context = f"output {show(dims)} and offset_groups={options.offset_groups}"
    want_dims("offset", op.offset, (dims[0], 2 * taps, *dims[2:]), context)
    want_dims("mask", op.mask, (dims[0], taps, *dims[2:]), context)
    want_dims("bias", op.bias, (dims[1],), f"weight {show(op.weight.shape.dims)}")
    return dims


@shape_rule(DeformableConv2d)
def deformable_conv2d(op: DeformableConv2d, given: Given) -> Outputs:
    """(N, Cout, oH, oW)."""
    return one(deform_dims(op), same_dtype(op, "x", "offset", "weight", "mask", "bias"))


@shape_rule(DeformableConv2dBackward)
def deformable_conv2d_backward(op: DeformableConv2dBackward, given: Given) -> Outputs:
    """A gradient per operand; of mask and bias where they are present."""
    want_dims("out_grad", op.out_grad, deform_dims(op), "the output of the convolution")
    dtype = same_dtype(op, "x", "offset", "weight", "mask", "bias", "out_grad")
    operands = (op.x, op.offset, op.weight, op.mask, op.bias)
    return tuple(None if t is None else TensorType(t.shape.dims, dtype) for t in operands)


@shape_rule(Unfold4d)
def unfold4d(op: Unfold4d, given: Given) -> Outputs:
    """(N, C * kH * kW, oH * oW)."""
    want_dims("x", op.x, ("N", "C", "H", "W"))
    batch, channels, *spatial = op.x.shape.dims
    options = op.options
    padding = [(p, p) for p in options.padding]
    high, wide = map(conv_out, spatial, op.kernel_size, options.stride, padding, options.dilation)
    return one((batch, channels * op.kernel_size[0] * op.kernel_size[1], high * wide), op.x.dtype)
