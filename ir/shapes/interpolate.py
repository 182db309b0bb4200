"""Rules of resampling. Source: burn-ir `builder.rs`."""

from ir.ops.interpolate import GridSample2d, Interpolate, InterpolateBackward
from ir.shapes.formulas import show
from ir.shapes.rules import Given, Outputs, one, same_dtype, shape_rule, type_of, want_dims


@shape_rule(Interpolate)
def interpolate(op: Interpolate, given: Given) -> Outputs:
    """`x` (N, C, H, W) -> (N, C, *output_size)."""
    want_dims("x", op.x, ("N", "C", "H", "W"))
    return one((*op.x.shape.dims[:2], *op.output_size), op.x.dtype)


@shape_rule(InterpolateBackward)
def interpolate_backward(op: InterpolateBackward, given: Given) -> Outputs:
    """The type of x (N, C, H, W); grad (N, C, *output_size)."""
    want_dims("x", op.x, ("N", "C", "H", "W"))
    wanted = (*op.x.shape.dims[:2], *op.output_size)
    context = f"x {show(op.x.shape.dims)} and output_size {show(op.output_size)}"
    want_dims("grad", op.grad, wanted, context)
    same_dtype(op, "x", "grad")
    return (type_of(op.x),)


@shape_rule(GridSample2d)
def grid_sample_2d(op: GridSample2d, given: Given) -> Outputs:
    """`tensor` (N, C, H, W) · grid (N, oH, oW, 2) -> (N, C, oH, oW)."""
    want_dims("tensor", op.tensor, ("N", "C", "H", "W"))
    batch, channels, _, _ = op.tensor.shape.dims
    want_dims("grid", op.grid, (batch, "oH", "oW", 2), f"tensor {show(op.tensor.shape.dims)}")
    same_dtype(op, "tensor", "grid")
    return one((batch, channels, *op.grid.shape.dims[1:3]), op.tensor.dtype)
