"""Plans of linear layers and embeddings."""

import math

import ir
from ir.dtype import DType
from ir.op import Op
from tests.burn.draw import INTS, Draw, anything, dims, tame, within
from tests.burn.generators import MOVED, Operand, Plan, Slack, plans


def _sizes(draw: Draw) -> tuple[tuple[int, ...], int, int]:
    """Leading axes, size in, size out."""
    return dims(draw, 1, 3), draw.pick((2, 3, 1, 5)), draw.pick((3, 2, 1, 7))


@plans(ir.Linear)
def linear(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """With and without a bias."""
    lead, size_in, size_out = _sizes(draw)
    bias = Operand((size_out,), dtype, tame) if draw.below(2) else None
    operands = (Operand((*lead, size_in), dtype, tame), Operand((size_in, size_out), dtype, tame), bias)
    return Plan(kind, operands, slack=_rounded(dtype, size_in + 1))


def _rounded(dtype: DType, terms: float) -> Slack:
    """Burn rounds the products and sums of halves."""
    return Slack(ulps=2, terms=terms, accumulator=dtype)


@plans(ir.LinearXBackward)
def x_backward(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any leading axes."""
    lead, size_in, size_out = _sizes(draw)
    operands = (Operand((size_in, size_out), dtype, tame), Operand((*lead, size_out), dtype, tame))
    return Plan(kind, operands, slack=_rounded(dtype, size_out))


@plans(ir.LinearWeightBackward)
def weight_backward(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any leading axes."""
    lead, size_in, size_out = _sizes(draw)
    operands = (Operand((*lead, size_in), dtype, tame), Operand((*lead, size_out), dtype, tame))
    return Plan(kind, operands, slack=_rounded(dtype, math.prod(lead)))


@plans(ir.LinearBiasBackward)
def bias_backward(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any leading axes."""
    lead, _, size_out = _sizes(draw)
    return Plan(kind, (Operand((*lead, size_out), dtype, tame),), slack=_rounded(dtype, math.prod(lead)))


@plans(ir.Embedding)
def embedding(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Rows picked, often the same."""
    rows, size = draw.pick((3, 2, 1, 7)), draw.pick((2, 3, 1))
    indices = Operand(dims(draw, 2, 2), draw.pick(INTS), within(0, rows - 1))
    return Plan(kind, (Operand((rows, size), dtype, anything), indices), slack=MOVED)


@plans(ir.EmbeddingBackward)
def embedding_backward(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Rows summed, often at the same place."""
    rows, size, lead = draw.pick((3, 2, 1, 7)), draw.pick((2, 3, 1)), dims(draw, 2, 2)
    indices = Operand(lead, draw.pick(INTS), within(0, rows - 1))
    operands = (Operand((rows, size), dtype, tame), Operand((*lead, size), dtype, tame), indices)
    return Plan(kind, operands, slack=_rounded(dtype, math.prod(lead)))
