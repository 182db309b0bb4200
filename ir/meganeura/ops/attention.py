"""Attention over one sequence. Source: meganeura `graph.rs`.

q (rows, num_heads head_dim) · k, v (kv rows, num_kv_heads head_dim) -> out of the type of q; head h in columns
h head_dim and on. Scores are scaled by head_dim^-1/2; query head h reads kv head h // (num_heads / num_kv_heads).
"""

from typing import Annotated

from ir.meganeura.ops.records import F32Value, Mark, NodeRef, U32Value, node_kind
from ir.op import In, Op, Out


class QueryKeyValue(Op):
    """The operands of every attention, and how many heads they hold."""

    q: In
    k: In
    v: In
    out: Out
    num_heads: U32Value
    num_kv_heads: U32Value
    head_dim: U32Value


class AttentionGrad(Op):
    """A gradient of the attention at `fwd_node`, whose output is an operand here.

    `window` says which rows that attention let row i see: all (None), or max(0, i + 1 - window) to i; a causal one has
    a window of its sequence length. It is found at `fwd_node` and not part of the serialized form.
    """

    grad_out: In
    q: In
    k: In
    v: In
    fwd_node: NodeRef
    out: Out
    num_heads: U32Value
    num_kv_heads: U32Value
    head_dim: U32Value
    is_cross: bool
    window: Annotated[U32Value | None, Mark.DERIVED]


@node_kind
class CausalAttention(QueryKeyValue):
    """Row i attends to rows 0 to i."""


@node_kind
class CausalAttentionRoPE(QueryKeyValue):
    """`CausalAttention` of q and k after `RoPE` at offset 0. Meganeura 0.2 does not rotate them."""

    rope_theta: F32Value


@node_kind
class SlidingWindowAttention(QueryKeyValue):
    """Row i attends to rows max(0, i + 1 - window_size) to i."""

    window_size: U32Value


@node_kind
class FullAttention(QueryKeyValue):
    """Every row attends to every row."""


@node_kind
class CrossAttention(QueryKeyValue):
    """Every row attends to every row of another sequence."""


@node_kind
class MultiHeadAttn(QueryKeyValue):
    """Every row attends to every row of k and v, whatever `is_cross` says."""

    is_cross: bool


@node_kind
class MultiHeadAttnGradQ(AttentionGrad):
    """For q -> out of the type of q."""


@node_kind
class MultiHeadAttnGradK(AttentionGrad):
    """For k -> out of the type of k."""


@node_kind
class MultiHeadAttnGradV(AttentionGrad):
    """For v -> out of the type of v."""
