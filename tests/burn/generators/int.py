"""Plans of bitwise operations."""

import ir
from ir.dtype import DType
from ir.op import Op
from tests.burn.draw import Draw, broadcastable, dims, number
from tests.burn.generators import Again, Later, Operand, Plan, plans


@plans(ir.BitwiseAnd, ir.BitwiseOr, ir.BitwiseXor, ir.BitwiseLeftShift, ir.BitwiseRightShift)
def binary(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Both broadcast; amounts of a shift beyond the width and below 0 among them."""
    shape = dims(draw)
    if draw.one_in(8):
        return Plan(kind, (Operand(shape, dtype), Again(0)))
    return Plan(kind, (Operand(broadcastable(draw, shape), dtype), Operand(broadcastable(draw, shape), dtype)))


@plans(
    ir.BitwiseAndScalar,
    ir.BitwiseOrScalar,
    ir.BitwiseXorScalar,
    ir.BitwiseLeftShiftScalar,
    ir.BitwiseRightShiftScalar,
)
def with_scalar(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """A scalar of any kind."""
    return Plan(kind, (Operand(dims(draw), dtype),), {"rhs": Later(lambda later: number(later, dtype))})


@plans(ir.BitwiseNot)
def not_(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any shape."""
    return Plan(kind, (Operand(dims(draw), dtype),))
