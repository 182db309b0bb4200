"""Plans of activations."""

import ir
from ir.dtype import DType
from ir.op import Op
from tests.burn.draw import Draw, broadcastable, dims, finite, number
from tests.burn.generators import EXACT, Later, Operand, Plan, Slack, plans

SUMMED = Slack(ulps=8, terms=8)
"""Functions in which terms of about 1 may cancel."""


@plans(ir.Relu, ir.Gelu, ir.Sigmoid, ir.LogSigmoid)
def unary(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any value."""
    return Plan(kind, (Operand(dims(draw), dtype),), slack=EXACT if kind is ir.Relu else SUMMED)


@plans(ir.ReluBackward, ir.PRelu, ir.GeluBackward, ir.SigmoidBackward, ir.LogSigmoidBackward)
def binary(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Both broadcast."""
    shape = dims(draw)
    operands = (Operand(broadcastable(draw, shape), dtype), Operand(broadcastable(draw, shape), dtype))
    return Plan(kind, operands, slack=EXACT if kind in (ir.ReluBackward, ir.PRelu) else SUMMED)


@plans(ir.LeakyRelu)
def leaky_relu(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any slope. Burn keeps that of halves in f32, ours rounds it."""
    static = {"rhs": Later(lambda later: number(later, dtype))}
    return Plan(kind, (Operand(dims(draw), dtype),), static, slack=Slack(ulps=2 if dtype in (ir.F16, ir.BF16) else 0))


@plans(ir.HardSigmoid)
def hard_sigmoid(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any slope and offset."""
    static = {name: Later(lambda later: number(later, dtype)) for name in ("alpha", "beta")}
    slack = Slack(ulps=8, terms=4, accumulator=dtype)
    return Plan(kind, (Operand(dims(draw), dtype),), static, slack=slack)


@plans(ir.Softmax, ir.LogSoftmax, ir.Softmin)
def softmax(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axis."""
    shape = dims(draw)
    axis = draw.below(len(shape))
    content = finite if draw.below(2) else Operand((), dtype).content
    # Burn rounds halves between the steps of a LogSoftmax.
    slack = Slack(ulps=16, terms=shape[axis], accumulator=dtype if kind is ir.LogSoftmax else None)
    return Plan(kind, (Operand(shape, dtype, content),), {"axis": axis}, slack=slack)
