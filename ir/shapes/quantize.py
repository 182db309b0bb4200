"""Rules of quantization. Source: burn-ir `builder.rs`, burn-std `quantization/scheme.rs`."""

from ir.dtype import F32, QuantScheme, qfloat
from ir.errors import DTypeError, ShapeError
from ir.ops.quantize import Dequantize, Quantize
from ir.shapes.formulas import Dims, block_grid, show
from ir.shapes.rules import Given, Outputs, one, shape_rule, want_dims


def scale_grid(dims: Dims, scheme: QuantScheme) -> Dims:
    """Shape of the scales of a tensor of shape `dims`: one per block, or one in all.

    Raises:
        ShapeError: the block does not divide the tensor.
    """
    return (1,) if scheme.block is None else block_grid(dims, scheme.block.size.dims)


@shape_rule(Quantize)
def quantize(op: Quantize, given: Given) -> Outputs:
    """The shape of the tensor; QFloat of the scheme. A global scale goes with a two-level scheme alone."""
    dims, scheme = op.tensor.shape.dims, op.scheme
    grid = scale_grid(dims, scheme)
    want_dims("qparams.scales", op.qparams.scales, grid, f"tensor {show(dims)}")
    two_level = scheme.tensor is not None and scheme.block is not None
    if two_level != (op.qparams.global_ is not None):
        got = "none" if op.qparams.global_ is None else "one"
        expected = "one, as the scheme has two levels" if two_level else "none, as the scheme has one level"
        raise ShapeError(f"qparams.global: expected {expected}, got {got}")
    want_dims("qparams.global", op.qparams.global_, (1,))
    return one(dims, qfloat(scheme))


@shape_rule(Dequantize)
def dequantize(op: Dequantize, given: Given) -> Outputs:
    """The shape of the input; the float dtype asked for, f32 by default."""
    if not op.input.dtype.is_quantized:
        raise DTypeError(f"input: expected a quantized tensor, got {op.input.dtype.short}")
    return one(op.input.shape.dims, given.float_dtype(F32))
