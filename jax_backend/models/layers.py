"""What the models need beyond single operations: the IR has no masks, no erf, and adds equal shapes only."""

import math
from typing import Final

from ir.meganeura import Graph

HIDDEN: Final = -1e9
"""Added to the score of a key that is to have no weight at all."""

# erfc(|x| / sqrt(2)) = t (a1 + t (a2 + ...)) exp(-x^2 / 2) with t = 1 / (1 + p |x| / sqrt(2)); absolute error 1.5e-7.
# Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
_P: Final = 0.3275911
_A: Final = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def gelu(graph: Graph, x: int) -> int:
    """The exact GELU, x Phi(x), that BERT and Whisper were trained with; the IR has the form with tanh.

    relu(x) - |x| Phi(-|x|), where exp(-z) is sigmoid(-z) / sigmoid(z) for want of an exponential; off by 2e-7 at most.
    """
    shape = tuple(graph.ty(x).shape)

    def scaled(value: int, factor: float) -> int:
        return graph.mul(value, graph.full(factor, shape))

    size = graph.abs(x)
    t = graph.recip(graph.add(scaled(size, _P / math.sqrt(2)), graph.full(1.0, shape)))
    z = scaled(graph.mul(x, x), 0.5)
    exponential = graph.div(graph.sigmoid(graph.neg(z)), graph.sigmoid(z))
    series = scaled(t, _A[-1] / 2)
    for a in reversed(_A[:-1]):
        series = graph.mul(t, graph.add(series, graph.full(a / 2, shape)))
    tail = graph.mul(size, graph.mul(series, exponential))
    return graph.add(graph.relu(x), graph.neg(tail))


def masked_attention(graph: Graph, q: int, k: int, v: int, hidden: int, num_heads: int, head_dim: int) -> int:
    """Attention to the keys that are not hidden; q, k, v (rows, heads x head_dim) -> as q.

    Every head gets one more coordinate: 1 in each query, `hidden` in each key, so that the product of the two is the
    usual score plus `hidden`. The scale of `full_attention` sees a wider head; q makes up for it.

    Args:
        graph: where the nodes go.
        q: queries.
        k: keys.
        v: values.
        hidden: (rows, 1), 0 where a key is seen and `HIDDEN` where not.
        num_heads: of q, k and v alike.
        head_dim: of q, k and v alike.
    """
    rows = graph.ty(q).shape[0]
    shape, count = (rows, num_heads * head_dim), rows * num_heads

    def widened(x: int, column: int) -> int:
        joined = graph.concat(graph.reshape(x, (rows * shape[1],)), column, count, head_dim, 1, 1)
        return graph.reshape(joined, (rows, num_heads * (head_dim + 1)))

    per_head = graph.reshape(graph.matmul(hidden, graph.full(1.0, (1, num_heads))), (count,))
    q = graph.mul(q, graph.full(math.sqrt((head_dim + 1) / head_dim), shape))
    wide_q = widened(q, graph.full(1.0, (count,)))
    wide_v = widened(v, graph.full(0.0, (count,)))
    found = graph.full_attention(wide_q, widened(k, per_head), wide_v, num_heads, num_heads, head_dim + 1)
    narrow = graph.split_a(graph.reshape(found, (count * (head_dim + 1),)), count, head_dim, 1, 1)
    return graph.reshape(narrow, shape)
