"""Small random networks with a loss.

They hold operations whose gradients Meganeura 0.2 gets right, in the patterns that its optimizer looks for: products
with a sum, gates, gated products, group norms before a silu.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ir.meganeura.types import NodeId
from tests.meganeura.making import Maker, distribution, normal, positive
from tests.meganeura.operations import EPS, HEAD_DIM

Block: TypeAlias = Callable[[Maker, NodeId], NodeId]


def sequence_network(m: Maker) -> NodeId:
    """Up to nine rows through some blocks, then one of four losses."""
    width = HEAD_DIM * m.number(1, 2)
    x = m.input(m.number(2, 9), width)
    for _ in range(m.number(3, 6)):
        x = m.pick(BLOCKS)(m, x)
    return m.pick(LOSSES)(m, x)


def linear(m: Maker, x: NodeId, columns: int) -> NodeId:
    """A product with weights that keep the variance."""
    inner = m.dims(x)[1]
    return m.graph.matmul(x, m.tensor(inner, columns, content=lambda rng, shape: normal(rng, shape) * inner**-0.5))


def dense(m: Maker, x: NodeId) -> NodeId:
    width = m.dims(x)[1]
    made = m.graph.bias_add(linear(m, x, width), m.tensor(width))
    return getattr(m.graph, m.pick(("relu", "sigmoid", "tanh", "silu", "neg", "abs")))(made)


def residual(m: Maker, x: NodeId) -> NodeId:
    """A product and its addend, on either side."""
    made = linear(m, m.graph.relu(linear(m, x, 33)), m.dims(x)[1])
    return m.graph.add(made, x) if m.pick((True, False)) else m.graph.add(x, made)


def gate(m: Maker, x: NodeId) -> NodeId:
    """A silu, spelled out."""
    return m.graph.mul(x, m.graph.sigmoid(x))


def gated(m: Maker, x: NodeId) -> NodeId:
    """Two products of one tensor, one the gate of the other, and back."""
    g = m.graph
    made = linear(m, x, 40), linear(m, x, 40)
    both = g.swiglu(*made) if m.pick((True, False)) else g.mul(g.silu(made[0]), made[1])
    return linear(m, both, m.dims(x)[1])


def normed(m: Maker, x: NodeId) -> NodeId:
    width = m.dims(x)[1]
    weight = m.tensor(width, content=positive)
    if m.pick((True, False)):
        return m.graph.rms_norm(x, weight, m.pick(EPS))
    return m.graph.layer_norm(x, weight, m.tensor(width), m.pick(EPS))


def attended(m: Maker, x: NodeId) -> NodeId:
    """Attention to itself, with or without rotary positions."""
    g, (_, width) = m.graph, m.dims(x)
    q, k, v = linear(m, x, width), linear(m, x, HEAD_DIM), linear(m, x, HEAD_DIM)
    if m.pick((True, False)):
        q, k = g.rope(q, 10000.0, HEAD_DIM), g.rope(k, 10000.0, HEAD_DIM)
    heads = width // HEAD_DIM, 1, HEAD_DIM
    match m.number(0, 3):
        case 0:
            made = g.causal_attention(q, k, v, *heads)
        case 1:
            made = g.sliding_window_attention(q, k, v, *heads, m.number(1, 5))
        case 2:
            made = g.full_attention(q, k, v, *heads)
        case _:
            made = g.multi_head_attn(q, k, v, *heads, is_cross=False)
    return g.add(linear(m, made, width), x)


def moved(m: Maker, x: NodeId) -> NodeId:
    """There and back: the same data under other shapes."""
    dims = m.dims(x)
    turned = m.graph.transpose(x)
    return m.graph.reshape(m.graph.reshape(m.graph.transpose(turned), [dims[0] * dims[1]]), dims)


def squared(m: Maker, x: NodeId) -> NodeId:
    """A node that reads another twice; see `square-of-a-silu` for why that is never a silu."""
    turned = m.graph.neg(x)
    return m.graph.tanh(m.graph.mul(turned, turned))


def broadcast(m: Maker, x: NodeId) -> NodeId:
    return m.graph.broadcast_add(m.graph.mul(x, m.constant(*m.dims(x))), m.tensor(1, m.dims(x)[1]))


BLOCKS: Final[Sequence[Block]] = (dense, residual, gate, gated, normed, attended, moved, squared, broadcast)


def classified(m: Maker, x: NodeId) -> NodeId:
    labels = m.input(m.dims(x)[0], 7, content=distribution)
    return m.graph.cross_entropy_loss(linear(m, x, 7), labels)


def probable(m: Maker, x: NodeId) -> NodeId:
    pred = m.graph.sigmoid(linear(m, x, 5))
    return m.graph.bce_loss(pred, m.input(*m.dims(pred), content=positive))


LOSSES: Final[Sequence[Block]] = (
    classified,
    probable,
    lambda m, x: m.graph.mse_loss(x, m.input(*m.dims(x))),
    lambda m, x: m.graph.l1_loss(x, m.input(*m.dims(x))),
)


def image_network(m: Maker) -> NodeId:
    """Images of 6 by 8 down, up, joined with where they came from, pooled and classified."""
    g, batch, channels = m.graph, m.number(1, 3), 4
    x = _norm_silu(m, _conv(m, m.input(batch * 3 * 48), batch, 3, channels, 6, 8, stride=1), batch, channels, 48)
    down = _norm_silu(m, _conv(m, x, batch, channels, 6, 6, 8, stride=2), batch, 6, 12)
    up = g.upsample_2x(down, batch, 6, 3, 4)
    x = _conv(m, g.concat(x, up, batch, channels, 6, 48), batch, channels + 6, 5, 6, 8, stride=1)
    return classified(m, g.global_avg_pool(g.relu(x), batch, 5, 48))


def _conv(
    m: Maker, x: NodeId, batch: int, in_channels: int, out_channels: int, height: int, width: int, *, stride: int
) -> NodeId:
    """Of 3 by 3 with padding 1, and a bias of the size of the result, as Meganeura's image models have it."""
    inner = in_channels * 9
    kernel = m.tensor(out_channels * inner, content=lambda rng, shape: normal(rng, shape) * inner**-0.5)
    made = m.graph.conv2d(x, kernel, batch, in_channels, height, width, out_channels, 3, 3, stride, 1)
    return m.graph.add(made, m.tensor(*m.dims(made)))


def _norm_silu(m: Maker, x: NodeId, batch: int, channels: int, spatial: int) -> NodeId:
    weight = m.tensor(channels, content=positive)
    return m.graph.silu(m.graph.group_norm(x, weight, m.tensor(channels), batch, channels, spatial, 2, m.pick(EPS)))
