"""Plans of sorts. Burn's sorts are stable up to 20 elements, ours always."""

import ir
from ir.dtype import DType
from ir.op import Op
from ir.shapes import Given
from tests.burn.draw import INTS, Draw, dims
from tests.burn.generators import MOVED, Operand, Plan, plans


@plans(ir.Sort)
def sort(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Either way, along any axis."""
    shape = dims(draw)
    static = {"dim": draw.below(len(shape)), "descending": draw.below(2) == 1}
    return Plan(kind, (Operand(shape, dtype),), static, slack=MOVED)


@plans(ir.ArgSort, ir.SortWithIndices)
def arg_sort(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """The indices in any int dtype."""
    shape = dims(draw)
    static = {"dim": draw.below(len(shape)), "descending": draw.below(2) == 1}
    return Plan(kind, (Operand(shape, dtype),), static, Given(dtype=draw.pick(INTS)), slack=MOVED)


@plans(ir.TopK, ir.ArgTopK, ir.TopKWithIndices)
def top_k(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """None to all of an axis, once in a while one too many."""
    shape = dims(draw)
    axis = draw.below(len(shape))
    count = draw.between(0, shape[axis] + draw.one_in(20))
    static = {"dim": axis, "k": count} if kind is ir.TopKWithIndices else {"axis": axis, "accumulator_len": count}
    given = Given() if kind is ir.TopK else Given(dtype=draw.pick(INTS))
    return Plan(kind, (Operand(shape, dtype),), static, given, slack=MOVED)
