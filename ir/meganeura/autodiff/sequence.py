"""Gradients of rows by index, positions, norms of rows and attention."""

from ir.meganeura.autodiff.tape import Tape, gradient, node_of, refuse, type_of
from ir.meganeura.node import attributes_of
from ir.meganeura.ops import attention as attn
from ir.meganeura.ops import indexing, norm
from ir.meganeura.types import NodeId
from ir.tensor import TensorIr

gradient(indexing.CacheWrite, indexing.CachedAttention)(refuse)


@gradient(indexing.Embedding)
def embedding(t: Tape, op: indexing.Embedding, g: NodeId) -> None:
    """Rows of g added up by index."""
    t.give(op.table, t.graph.scatter_add(node_of(op.indices), g, op.table.shape.dims[0]))


@gradient(indexing.ScatterAdd)
def scatter_add(t: Tape, op: indexing.ScatterAdd, g: NodeId) -> None:
    """Rows of g by index."""
    t.give(op.src, t.graph.embedding(node_of(op.indices), g))


@gradient(indexing.RoPE)
def rope(t: Tape, op: indexing.RoPE, g: NodeId) -> None:
    """The inverse rotation.

    `RoPEGrad` knows no dynamic offset. Between two exchanges of the halves of each head, the forward rotation is its
    own inverse: (u, v) -> (v, u) -> (v cos - u sin, v sin + u cos) -> (v sin + u cos, v cos - u sin).
    """
    if op.offset is None:
        t.give(op.x, t.graph.rope_grad(g, op.theta, op.pos_offset, op.head_dim))
        return
    swapped = _swap_halves(t, g, op)
    turned = t.graph.append(indexing.RoPE, [swapped, node_of(op.offset)], type_of(op.x), **attributes_of(op))
    t.give(op.x, _swap_halves(t, turned, op))


def _swap_halves(t: Tape, x: NodeId, op: indexing.RoPE) -> NodeId:
    half = op.head_dim // 2
    heads = type_of(op.x).num_elements() // op.head_dim
    first, second = t.graph.split_a(x, heads, 1, 1, half), t.graph.split_b(x, heads, 1, 1, half)
    return t.graph.reshape(t.graph.concat(second, first, heads, 1, 1, half), op.x.shape.dims)


@gradient(norm.RmsNorm)
def rms_norm(t: Tape, op: norm.RmsNorm, g: NodeId) -> None:
    """One node each."""
    x, w = node_of(op.x), node_of(op.weight)
    for_w, for_x = t.graph.rms_norm_grad_w(g, x, w, op.eps), t.graph.rms_norm_grad_x(g, x, w, op.eps)
    t.give(op.weight, for_w)
    t.give(op.x, for_x)


@gradient(norm.LayerNorm)
def layer_norm(t: Tape, op: norm.LayerNorm, g: NodeId) -> None:
    """One node each; the bias gets the column sums of g."""
    x, w = node_of(op.x), node_of(op.weight)
    for_w, for_b = t.graph.layer_norm_grad_wb(g, x, w, op.eps), t.graph.sum_rows(g, type_of(op.bias))
    for_x = t.graph.layer_norm_grad_x(g, x, w, op.eps)
    t.give(op.weight, for_w)
    t.give(op.bias, for_b)
    t.give(op.x, for_x)


@gradient(attn.CausalAttention, attn.SlidingWindowAttention, attn.FullAttention)
def self_attention(t: Tape, op: attn.QueryKeyValue, g: NodeId) -> None:
    """One node for each of q, k and v."""
    _attention(t, op, g, is_cross=False)


@gradient(attn.CrossAttention)
def cross_attention(t: Tape, op: attn.CrossAttention, g: NodeId) -> None:
    """One node for each of q, k and v."""
    _attention(t, op, g, is_cross=True)


@gradient(attn.MultiHeadAttn)
def multi_head_attn(t: Tape, op: attn.MultiHeadAttn, g: NodeId) -> None:
    """One node for each of q, k and v."""
    _attention(t, op, g, is_cross=op.is_cross)


def _attention(t: Tape, op: attn.QueryKeyValue, g: NodeId, *, is_cross: bool) -> None:
    grads = _attention_grads(t, op, [g, node_of(op.q), node_of(op.k), node_of(op.v)], is_cross=is_cross)
    for tensor, grad in zip((op.q, op.k, op.v), grads, strict=True):
        t.give(tensor, grad)


def _attention_grads(t: Tape, op: attn.QueryKeyValue, inputs: list[NodeId], *, is_cross: bool) -> list[NodeId]:
    def made(kind: type[attn.AttentionGrad], like: TensorIr) -> NodeId:
        return t.graph.append(
            kind,
            inputs,
            type_of(like),
            fwd_node=node_of(op.out),
            num_heads=op.num_heads,
            num_kv_heads=op.num_kv_heads,
            head_dim=op.head_dim,
            is_cross=is_cross,
        )

    kinds = (attn.MultiHeadAttnGradQ, attn.MultiHeadAttnGradK, attn.MultiHeadAttnGradV)
    return [made(kind, like) for kind, like in zip(kinds, (op.q, op.k, op.v), strict=True)]


@gradient(attn.CausalAttentionRoPE)
def causal_attention_rope(t: Tape, op: attn.CausalAttentionRoPE, g: NodeId) -> None:
    """Q and k are rotated again, and their gradients back."""
    q, k = (t.graph.rope(node_of(x), op.rope_theta, op.head_dim) for x in (op.q, op.k))
    for_q, for_k, for_v = _attention_grads(t, op, [g, q, k, node_of(op.v)], is_cross=False)
    back_q, back_k = (t.graph.rope_grad(x, op.rope_theta, 0, op.head_dim) for x in (for_q, for_k))
    t.give(op.q, back_q)
    t.give(op.k, back_k)
    t.give(op.v, for_v)
