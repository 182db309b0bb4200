"""Rules of products. Source: burn-ir `builder.rs`, burn-backend `calculate_matmul_output`."""

from ir.dtype import F32, DType
from ir.errors import DTypeError, ShapeError
from ir.ops.float import Cross, Matmul
from ir.shapes.formulas import axis_in, broadcast_dims, matmul_dims, show
from ir.shapes.rules import Given, Outputs, one, same_dtype, shape_rule


@shape_rule(Matmul)
def matmul(op: Matmul, given: Given) -> Outputs:
    """(.., m, k) · (.., k, n) -> (.., m, n)."""
    return one(matmul_dims(op.lhs.shape.dims, op.rhs.shape.dims), _product_dtype(op, given))


def _product_dtype(op: Matmul, given: Given) -> DType:
    """That of lhs; with a quantized operand what is asked for, by default the float one's or f32."""
    dtypes = op.lhs.dtype, op.rhs.dtype
    if any(d.is_quantized for d in dtypes):
        if given.dtype is not None and given.dtype.is_quantized:
            return given.dtype
        if not all(d.is_quantized or d.is_float for d in dtypes):
            raise DTypeError(
                f"rhs: expected a float or quantized dtype for lhs {dtypes[0].short}, got {dtypes[1].short}"
            )
        return given.float_dtype(next((d for d in dtypes if d.is_float), F32))
    if all(d.is_float for d in dtypes):  # Burn's builder lets float dtypes differ here, and only here
        return dtypes[0]
    return same_dtype(op, "lhs", "rhs")


@shape_rule(Cross)
def cross(op: Cross, given: Given) -> Outputs:
    """Both broadcast; `dim` has size 3 in each."""
    dims = op.lhs.shape.dims
    axis = axis_in("dim", op.dim, len(dims))
    out = broadcast_dims("rhs", dims, op.rhs.shape.dims)
    for name, tensor in (("lhs", op.lhs), ("rhs", op.rhs)):
        if tensor.shape.dims[axis] != 3:
            raise ShapeError(f"{name}: expected size 3 along dim {axis}, got {show(tensor.shape.dims)}")
    return one(out, same_dtype(op, "lhs", "rhs"))
