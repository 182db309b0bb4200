"""Plans of transforms and of the CTC loss."""

import ir
from ir.dtype import DType
from ir.op import Op
from tests.burn.draw import INTS, Draw, dims, finite, real, within
from tests.burn.generators import Operand, Plan, Slack, plans


@plans(ir.Rfft)
def rfft(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axis, cut or filled up."""
    shape = tuple(max(1, size) for size in dims(draw, 1, 3))
    static = {"dim": draw.below(len(shape)), "n": draw.pick((None, 4, 7))}
    return Plan(kind, (Operand(shape, dtype, finite),), static, slack=Slack(ulps=16, terms=32))


@plans(ir.IRfft)
def irfft(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axis, cut or filled up."""
    shape = tuple(max(2, size) for size in dims(draw, 1, 3))
    static = {"dim": draw.below(len(shape)), "n": draw.pick((None, 4, 7))}
    operands = (Operand(shape, dtype, finite), Operand(shape, dtype, finite))
    return Plan(kind, operands, static, slack=Slack(ulps=16, terms=32))


@plans(ir.CtcLoss, ir.CtcLossBackward)
def ctc_loss(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Targets with repeats, of length 0, too long for their input."""
    times, batch, classes, longest = draw.pick((4, 1, 6)), draw.pick((2, 1)), draw.pick((3, 2, 5)), draw.pick((2, 1, 3))
    index = draw.pick(INTS)
    operands = [
        Operand((times, batch, classes), dtype, real(-4, -0.1)),
        Operand((batch, longest), index, within(0, classes - 1)),
        Operand((batch,), index, within(1, times)),
        Operand((batch,), index, within(0, longest)),
    ]
    if kind is ir.CtcLossBackward:
        operands.append(Operand((batch,), dtype, finite))
    # Burn rounds halves at every step; -4 is the largest logarithm.
    return Plan(kind, tuple(operands), {"blank": 0}, slack=Slack(ulps=16, terms=8 * times, accumulator=dtype))
