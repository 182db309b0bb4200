"""Plans of logic."""

import ir
from ir.dtype import DType
from ir.op import Op
from tests.burn.draw import Draw, broadcastable, dims
from tests.burn.generators import Again, Operand, Plan, plans


@plans(ir.Not)
def not_(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any shape."""
    return Plan(kind, (Operand(dims(draw), dtype),))


@plans(ir.And, ir.Or, ir.Xor)
def binary(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Both broadcast; now and then a tensor meets itself."""
    shape = dims(draw)
    if draw.one_in(8):
        return Plan(kind, (Operand(shape, dtype), Again(0)))
    return Plan(kind, (Operand(broadcastable(draw, shape), dtype), Operand(broadcastable(draw, shape), dtype)))
