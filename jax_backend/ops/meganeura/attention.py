"""Lowerings of `ir.meganeura.ops.attention`: the attention of Burn's lowering, on one sequence and masks of its own.

cuDNN's fused attention takes halves alone, and Meganeura's numbers are float32.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ir.errors import ShapeError
from ir.meganeura.ops.attention import (
    AttentionGrad,
    CausalAttention,
    CausalAttentionRoPE,
    CrossAttention,
    FullAttention,
    MultiHeadAttn,
    MultiHeadAttnGradK,
    MultiHeadAttnGradQ,
    MultiHeadAttnGradV,
    QueryKeyValue,
    SlidingWindowAttention,
)
from ir.op import Op
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, dot_precision
from jax_backend.ops.attention import scaled_attention
from jax_backend.ops.meganeura._shared import declared, rotated, viewed


class Heads(NamedTuple):
    """How many heads a matrix of queries and one of keys hold side by side, and how wide they are."""

    query: int
    key: int
    width: int


def attend(op: Op, heads: Heads, q: Array, k: Array, v: Array, hidden: Array | None) -> Array:
    """softmax(q k^T width^-1/2) v per head, (rows, H width), (kv rows, Hkv width) twice -> (rows, H width).

    `hidden` (rows or 1, kv rows) is true where a row does not see a row of k.

    Raises:
        ShapeError: the heads do not fit the matrices, or each other.
    """
    if not heads.key or heads.query % heads.key:
        raise ShapeError(f"{op.kind}.num_kv_heads: expected a divisor of {heads.query} heads, got {heads.key}")

    def by_head(x: Array, count: int, field: str) -> Array:
        return viewed(x, (x.shape[0], count, heads.width), f"{op.kind}.{field}").swapaxes(0, 1)[None]

    attended = scaled_attention(
        by_head(q, heads.query, "q"),
        by_head(k, heads.key, "k"),
        by_head(v, heads.key, "v"),
        mask=None if hidden is None else hidden[None, None],
        precision=dot_precision(op.outputs[0].dtype),
    )
    return attended[0].swapaxes(0, 1).reshape(q.shape[0], heads.query * heads.width)


def outside(window: int | None, rows: int, kv_rows: int) -> Array | None:
    """Which rows of k row i does not see: those after i and those before i + 1 - window, or none without a window.

    Raises:
        ShapeError: a window needs as many rows of k as of q.
    """
    if window is None:
        return None
    place = jnp.arange(kv_rows, dtype=jnp.int32)[None, :] - jnp.arange(rows, dtype=jnp.int32)[:, None]
    after = place > 0
    return after if window >= rows else after | (place <= -window)


def window_of(op: QueryKeyValue) -> int | None:
    """How many rows, itself included, a row of a causal attention sees; None where it sees all."""
    if isinstance(op, SlidingWindowAttention):
        return op.window_size
    return op.q.shape.dims[0] if isinstance(op, CausalAttention | CausalAttentionRoPE) else None


def windowed(op: QueryKeyValue | AttentionGrad, window: int | None, q: Array, k: Array, v: Array) -> Array:
    """`attend` where each row sees `window` rows up to itself, or all."""
    if k.shape[0] != v.shape[0] or (window is not None and k.shape[0] != q.shape[0]):
        wanted = k.shape[0] if window is None else q.shape[0]
        raise ShapeError(f"{op.kind}.v: expected {wanted} rows in k and v, got {k.shape[0]} and {v.shape[0]}")
    heads = Heads(op.num_heads, op.num_kv_heads, op.head_dim)
    return attend(op, heads, q, k, v, outside(window, q.shape[0], k.shape[0]))


@lower(CausalAttention, SlidingWindowAttention, FullAttention, CrossAttention, MultiHeadAttn)
@declared
def attention(op: QueryKeyValue, q: Array, k: Array, v: Array) -> Array:
    """Causal, in a window, or to everything, as the kind says."""
    return windowed(op, window_of(op), q, k, v)


@lower(CausalAttentionRoPE)
@declared
def causal_attention_rope(op: CausalAttentionRoPE, q: Array, k: Array, v: Array) -> Array:
    """Causal, after a rotation of q and k."""
    q, k = (rotated(op, x, op.head_dim, op.rope_theta, 0).reshape(x.shape) for x in (q, k))
    return windowed(op, window_of(op), q, k, v)


@lower(MultiHeadAttnGradQ, MultiHeadAttnGradK, MultiHeadAttnGradV)
@declared
def attention_grad(op: AttentionGrad, grad_out: Array, q: Array, k: Array, v: Array, fwd_node: Array) -> Array:
    """Reverse mode of the attention for one of its operands; what the three gradients share, XLA computes once."""
    _, adjoint = jax.vjp(partial(windowed, op, op.window), q, k, v)
    grads = adjoint(viewed(grad_out, (q.shape[0], op.num_heads * op.head_dim), f"{op.kind}.grad_out"))
    return grads[(MultiHeadAttnGradQ, MultiHeadAttnGradK, MultiHeadAttnGradV).index(type(op))]
