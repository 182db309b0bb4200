"""Plans of reductions."""

import math
from dataclasses import replace

import ir
from ir.dtype import DType
from ir.op import Op
from ir.shapes import Given
from tests.burn.draw import INTS, Content, Draw, anything, dims, tame
from tests.burn.generators import EXACT, Operand, Plan, Slack, plans


def _summed(kind: type[Op], dtype: DType, terms: int) -> tuple[Content, Slack]:
    """Elements and tolerance of a sum, mean or product of `terms` floats; everything else is exact."""
    if not dtype.is_float:
        return anything, EXACT
    degree = terms if kind in (ir.Prod, ir.ProdDim) else 1
    return tame, Slack(ulps=2, terms=2 * terms, degree=degree)


@plans(ir.Sum, ir.Mean, ir.Prod)
def total(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Of everything, of nothing."""
    shape = dims(draw, 1, 3) if kind is ir.Prod else dims(draw)
    content, slack = _summed(kind, dtype, math.prod(shape))
    return Plan(kind, (Operand(shape, dtype, content),), slack=slack)


@plans(ir.Max, ir.Min, ir.MaxAbs)
def extreme(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Of everything."""
    return Plan(kind, (Operand(dims(draw), dtype),))


@plans(ir.SumDim, ir.MeanDim, ir.ProdDim)
def total_dim(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axis."""
    shape = dims(draw)
    axis = draw.below(len(shape))
    content, slack = _summed(kind, dtype, shape[axis])
    return Plan(kind, (Operand(shape, dtype, content),), {"axis": axis}, slack=slack)


@plans(ir.SumDims)
def sum_dims(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axes, none and twice the same included."""
    shape = dims(draw)
    axes = tuple(draw.below(len(shape)) for _ in range(draw.between(0, len(shape))))
    content, slack = _summed(kind, dtype, math.prod(shape))
    # Burn rounds halves after each axis, ours once.
    return Plan(kind, (Operand(shape, dtype, content),), {"axes": axes}, slack=replace(slack, accumulator=dtype))


@plans(ir.MaxDim, ir.MinDim, ir.MaxAbsDim)
def extreme_dim(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axis."""
    shape = dims(draw)
    return Plan(kind, (Operand(shape, dtype),), {"axis": draw.below(len(shape))})


@plans(ir.ArgMax, ir.ArgMin)
def arg_extreme(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axis, the answer in any int dtype."""
    shape = dims(draw)
    return Plan(kind, (Operand(shape, dtype),), {"axis": draw.below(len(shape))}, Given(dtype=draw.pick(INTS)))


@plans(ir.MaxDimWithIndices, ir.MinDimWithIndices)
def with_indices(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axis, the indices in any int dtype."""
    shape = dims(draw)
    return Plan(kind, (Operand(shape, dtype),), {"dim": draw.below(len(shape))}, Given(dtype=draw.pick(INTS)))
