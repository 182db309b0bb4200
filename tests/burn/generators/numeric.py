"""Plans of arithmetic, comparisons, powers, clamps, scans, padding and random numbers."""

import numpy as np

import ir
from ir.dtype import DType
from ir.op import Op
from ir.ops.numeric import DefaultDistribution, DistributionParams, PadBorder, PadConstant
from ir.scalar import scalar
from ir.shapes import Given
from tests.burn.draw import BOOLS, Content, Dims, Draw, anything, broadcastable, dims, number, tame
from tests.burn.generators import EXACT, FUNCTION, MOVED, Again, Later, Operand, Plan, Slack, plans
from tests.opcase import DTYPES


def _pair(draw: Draw, kind: type[Op], dtype: DType, **static: object) -> Plan:
    """Two tensors that broadcast; now and then a tensor meets itself."""
    shape = dims(draw)
    given = Given(dtype=draw.pick(BOOLS)) if kind in COMPARISONS else Given()
    slack = Slack(ulps=64) if kind is ir.Powi and dtype.is_float else EXACT
    if draw.one_in(8):
        return Plan(kind, (Operand(shape, dtype), Again(0)), given=given, slack=slack)
    rhs = divisor if kind in (ir.Div, ir.Rem) and dtype.is_int else anything
    operands = (Operand(broadcastable(draw, shape), dtype), Operand(broadcastable(draw, shape), dtype, rhs))
    return Plan(kind, operands, given=given, slack=slack)


def divisor(draw: Draw, dims: Dims, dtype: DType) -> np.ndarray:
    """Any value, 0 once in a while only: Burn panics there."""
    made = anything(draw, dims, dtype)
    return made if draw.one_in(12) else np.where(made == 0, DTYPES[dtype].type(1), made)


COMPARISONS = (
    ir.Greater,
    ir.GreaterEqual,
    ir.Lower,
    ir.LowerEqual,
    ir.GreaterElem,
    ir.GreaterEqualElem,
    ir.LowerElem,
    ir.LowerEqualElem,
)


@plans(ir.Add, ir.Sub, ir.Mul, ir.Div, ir.Rem, ir.Powi, ir.Greater, ir.GreaterEqual, ir.Lower, ir.LowerEqual)
def binary(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any values."""
    return _pair(draw, kind, dtype)


@plans(
    ir.AddScalar,
    ir.SubScalar,
    ir.MulScalar,
    ir.DivScalar,
    ir.RemScalar,
    ir.GreaterElem,
    ir.GreaterEqualElem,
    ir.LowerElem,
    ir.LowerEqualElem,
    ir.ClampMin,
    ir.ClampMax,
)
def with_scalar(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """A scalar of any kind."""
    given = Given(dtype=draw.pick(BOOLS)) if kind in COMPARISONS else Given()
    return Plan(kind, (Operand(dims(draw), dtype),), {"rhs": Later(lambda later: number(later, dtype))}, given)


@plans(ir.Clamp)
def clamp(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Bounds of any kind, now and then the wrong way round."""
    static = {name: Later(lambda later: number(later, dtype)) for name in ("min", "max")}
    return Plan(kind, (Operand(dims(draw), dtype),), static)


@plans(ir.PowiScalar)
def powi_scalar(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Whole exponents, as clients send them: as Int or as Float."""
    exponent = draw.pick((2, 3, 0, 1, -1, -2, 5, 10, 31, 40, -3))
    value = scalar(float(exponent) if draw.below(2) else exponent)
    return Plan(kind, (Operand(dims(draw), dtype),), {"rhs": value}, slack=Slack(ulps=64) if dtype.is_float else EXACT)


@plans(ir.Abs, ir.Neg, ir.Sign)
def unary(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any value."""
    return Plan(kind, (Operand(dims(draw), dtype),), slack=MOVED)


@plans(ir.Full)
def full(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """A scalar of any kind."""
    static = {"value": Later(lambda later: number(later, dtype))}
    return Plan(kind, (), static, Given(dims(draw), dtype), slack=MOVED)


@plans(ir.CumSum, ir.CumProd, ir.CumMin, ir.CumMax)
def scan(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axis."""
    shape = dims(draw)
    axis = draw.below(len(shape))
    is_sum = kind in (ir.CumSum, ir.CumProd) and dtype.is_float
    content: Content = tame if is_sum else anything
    slack = Slack(ulps=4, terms=2 * shape[axis], degree=1 if kind is ir.CumSum else shape[axis]) if is_sum else EXACT
    return Plan(kind, (Operand(shape, dtype, content),), {"axis": axis}, slack=slack)


@plans(ir.Pad)
def pad(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Every mode; mirrored axes have more elements than they are padded by."""
    shape = dims(draw)
    mode = draw.pick(("constant", PadBorder.Reflect, PadBorder.Edge))
    most = [max(0, size - 1) if mode is PadBorder.Reflect else 3 if size or mode == "constant" else 0 for size in shape]
    padding = tuple((draw.between(0, m), draw.between(0, m)) for m in most)
    filled = Later(lambda later: PadConstant(Constant=number(later, dtype))) if mode == "constant" else mode
    return Plan(kind, (Operand(shape, dtype),), {"padding": padding, "mode": filled}, slack=MOVED)


def _distribution(draw: Draw, *, whole: bool) -> object:
    """A distribution whose parameters no dtype rounds."""
    name = draw.pick(("Uniform", "Bernoulli", "Normal", "Default"))
    if name == "Default":
        return DefaultDistribution.Default
    if name == "Bernoulli":
        return DistributionParams(Bernoulli=draw.pick((0.25, 0.5, 0.0, 1.0)))
    if name == "Uniform":
        return DistributionParams(Uniform=draw.pick(((0.0, 100.0), (2.0, 10.0), (0.0, 8.0))))
    return DistributionParams(Normal=(64.0, 8.0) if whole else draw.pick(((0.0, 1.0), (4.0, 0.5))))


@plans(ir.Random, ir.IntRandom)
def random(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Enough numbers to tell a distribution by."""
    static = {"distribution": _distribution(draw, whole=dtype.is_int)}
    return Plan(kind, (), static, Given((16, 256), dtype), slack=FUNCTION, compare="draws")
