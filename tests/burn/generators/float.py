"""Plans of functions of floats, products and casts between families."""

import ir
from ir.dtype import DType
from ir.op import Op
from ir.scalar import scalar
from ir.shapes import Given
from tests.burn.draw import BOOLS, FLOATS, INTS, Draw, anything, broadcastable, dims, tame
from tests.burn.generators import EXACT, FUNCTION, Again, Operand, Plan, Slack, plans

LOOSE: dict[type[Op], Slack] = {
    # XLA puts the factor 1/2 into the exponent and rounds it there: |x| / 2 ulp, and |x| is 710 at most.
    ir.Sinh: Slack(ulps=512),
    ir.Cosh: Slack(ulps=512),
    # XLA's series for f64 is off by 120 ulp where it ends, at 1 - sqrt 2.
    ir.Log1p: Slack(ulps=160),
    ir.ArcTanh: Slack(ulps=160),
}


@plans(
    ir.Exp,
    ir.Log,
    ir.Log1p,
    ir.Erf,
    ir.Sqrt,
    ir.Recip,
    ir.Sin,
    ir.Cos,
    ir.Tan,
    ir.Sinh,
    ir.Cosh,
    ir.Tanh,
    ir.ArcSin,
    ir.ArcCos,
    ir.ArcTan,
    ir.ArcSinh,
    ir.ArcCosh,
    ir.ArcTanh,
)
def function(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any value."""
    return Plan(kind, (Operand(dims(draw), dtype),), slack=LOOSE.get(kind, FUNCTION))


@plans(ir.Round, ir.Floor, ir.Ceil, ir.Trunc)
def rounding(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any value."""
    return Plan(kind, (Operand(dims(draw), dtype),))


@plans(ir.IsNan, ir.IsInf)
def predicate(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any value, any store of the answer."""
    return Plan(kind, (Operand(dims(draw), dtype),), given=Given(dtype=draw.pick(BOOLS)))


@plans(ir.PowfScalar)
def powf_scalar(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Fractions and whole exponents."""
    exponent = scalar(draw.pick((2.0, 0.5, 1.5, -0.5, 3, 0, 1, -1, -2, 0.71, 7, 1e3, float("inf"), float("nan"))))
    return Plan(kind, (Operand(dims(draw), dtype),), {"rhs": exponent}, slack=Slack(ulps=16))


@plans(ir.Powf, ir.ArcTan2, ir.Hypot)
def binary(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Both broadcast; now and then a tensor meets itself."""
    shape = dims(draw)
    # A power magnifies the rounding of its logarithm by its size.
    slack = Slack(ulps=64) if kind is ir.Powf else FUNCTION
    if draw.one_in(8):
        return Plan(kind, (Operand(shape, dtype), Again(0)), slack=slack)
    operands = (Operand(broadcastable(draw, shape), dtype), Operand(broadcastable(draw, shape), dtype))
    return Plan(kind, operands, slack=slack)


@plans(ir.Matmul)
def matmul(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Batches that broadcast, sums of nothing. Flex rounds the products of halves in batches."""
    batch = dims(draw, 0, 3)
    m, k, n = (0 if draw.one_in(20) else draw.pick((2, 3, 1, 5, 7)) for _ in range(3))
    content = tame if dtype.is_float else anything
    lhs = Operand((*broadcastable(draw, batch), m, k), dtype, content)
    rhs = Operand((*broadcastable(draw, batch), k, n), dtype, content)
    return Plan(kind, (lhs, rhs), slack=Slack(ulps=1, terms=k, accumulator=dtype) if dtype.is_float else EXACT)


@plans(ir.Cross)
def cross(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """The axis of three, the others broadcast."""
    shape = dims(draw)
    axis = draw.below(len(shape))

    def side() -> Operand:
        part = broadcastable(draw, shape)
        return Operand((*part[:axis], 3, *part[axis + 1 :]), dtype, tame)

    return Plan(kind, (side(), side()), {"dim": axis}, slack=Slack(ulps=1, terms=2, accumulator=dtype))


@plans(ir.IntoInt)
def into_int(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """To every int dtype."""
    return Plan(kind, (Operand(dims(draw), dtype),), given=Given(dtype=draw.pick(INTS)))


@plans(ir.IntoFloat)
def into_float(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """To every float dtype."""
    return Plan(kind, (Operand(dims(draw), dtype),), given=Given(dtype=draw.pick(FLOATS)))
