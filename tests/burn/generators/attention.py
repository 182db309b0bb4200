"""Plans of attention and normalisation."""

import ir
from ir.dtype import DType
from ir.op import Op
from ir.scalar import scalar
from tests.burn.draw import BOOLS, Draw, broadcastable, dims, finite, real, tame
from tests.burn.generators import Later, Operand, Plan, Slack, plans


@plans(ir.Attention)
def attention(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Every option: fewer heads of keys, masks and biases that broadcast, soft caps, causal in both directions."""
    batch, kv_heads, group = draw.pick((1, 2)), draw.pick((1, 2)), draw.pick((1, 2, 3))
    queries, keys, depth, width = (
        draw.pick((2, 3, 1, 5)),
        draw.pick((3, 2, 1, 5)),
        draw.pick((2, 1, 4)),
        draw.pick((3, 1)),
    )
    heads = kv_heads * group
    scores = (batch, heads, queries, keys)
    mask = Operand(broadcastable(draw, scores), draw.pick(BOOLS)) if draw.below(2) else None
    bias = Operand(broadcastable(draw, scores), dtype, tame) if draw.below(2) else None
    static: dict[str, object] = {"is_causal": draw.below(2) == 1}
    if draw.below(2):
        static["scale"] = Later(lambda later: scalar(later.pick((1.0, 0.5, 0.125))))
    if draw.below(2):
        static["softcap"] = Later(lambda later: scalar(later.pick((1.0, 0.5, 20.0))))
    operands = (
        Operand((batch, heads, queries, depth), dtype, tame),
        Operand((batch, kv_heads, keys, depth), dtype, tame),
        Operand((batch, kv_heads, keys, width), dtype, tame),
        mask,
        bias,
    )
    return Plan(kind, operands, static, slack=Slack(ulps=16, terms=4 * (keys + depth)))


@plans(ir.LayerNorm)
def layer_norm(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """With and without beta. Where all elements agree, what is left is rounding over the root of epsilon."""
    shape = dims(draw)
    size = shape[-1]
    beta = Operand((size,), dtype, tame) if draw.below(2) else None
    static = {"epsilon": Later(lambda later: scalar(later.pick((1e-5, 1.0, 1e-3))))}
    operands = (Operand(shape, dtype, finite), Operand((size,), dtype, tame), beta)
    return Plan(kind, operands, static, slack=Slack(ulps=16, terms=500))


@plans(ir.BatchNorm)
def batch_norm(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any number of spatial axes."""
    shape = dims(draw, 2, 5)
    channels = (shape[1],)
    static = {"epsilon": Later(lambda later: scalar(later.pick((1e-5, 1.0, 1e-3))))}
    operands = (
        Operand(shape, dtype, tame),
        Operand(channels, dtype, tame),
        Operand(channels, dtype, tame),
        Operand(channels, dtype, tame),
        Operand(channels, dtype, real(0.25, 4)),
    )
    return Plan(kind, operands, static, slack=Slack(ulps=16, terms=8, accumulator=dtype))
