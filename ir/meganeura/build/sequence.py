"""Builder methods for rows by index, positions, caches, attention and the norms of rows."""

from typing import TypedDict

from ir.meganeura.core import GraphCore
from ir.meganeura.ops import attention as attn
from ir.meganeura.ops import indexing, norm
from ir.meganeura.types import NodeId


class _Heads(TypedDict):
    num_heads: int
    num_kv_heads: int
    head_dim: int


class SequenceBuilder(GraphCore):
    """Every method appends one node, checks it and returns its id."""

    __slots__ = ()

    def embedding(self, indices: NodeId, table: NodeId) -> NodeId:
        """Rows of a table [V, H] by U32 indices [n] -> [n, H]."""
        return self.append(indexing.Embedding, [indices, table])

    def scatter_add(self, indices: NodeId, src: NodeId, vocab_size: int) -> NodeId:
        """Rows of src [n, H] added up by index -> [vocab_size, H]."""
        return self.append(indexing.ScatterAdd, [indices, src], vocab_size=vocab_size)

    def rope(self, x: NodeId, theta: float, head_dim: int) -> NodeId:
        """Rotary positions from 0 on."""
        return self.rope_with_offset(x, theta, 0, head_dim)

    def rope_with_offset(self, x: NodeId, theta: float, pos_offset: int, head_dim: int) -> NodeId:
        """Rotary positions from `pos_offset` on."""
        return self.append(indexing.RoPE, [x], theta=theta, pos_offset=pos_offset, head_dim=head_dim)

    def rope_dynamic_offset(self, x: NodeId, theta: float, offset_input: NodeId, head_dim: int) -> NodeId:
        """Rotary positions from element 0 of a U32 input on."""
        return self.append(indexing.RoPE, [x, offset_input], theta=theta, pos_offset=0, head_dim=head_dim)

    def rope_grad(self, grad_output: NodeId, theta: float, pos_offset: int, head_dim: int) -> NodeId:
        """The inverse rotation."""
        return self.append(indexing.RoPEGrad, [grad_output], theta=theta, pos_offset=pos_offset, head_dim=head_dim)

    def cache_write(self, new_kv: NodeId, cache: NodeId, kv_pos: NodeId) -> NodeId:
        """Write new_kv [1, D] into row kv_pos[0] of a cache [S, D]: whoever reads the cache later sees it."""
        return self.append(indexing.CacheWrite, [new_kv, cache, kv_pos])

    def cached_attention(
        self,
        q: NodeId,
        k_cache: NodeId,
        v_cache: NodeId,
        kv_pos: NodeId,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
    ) -> NodeId:
        """Attention of one row to rows 0 to kv_pos[0] of the caches."""
        heads = _Heads(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
        return self.append(indexing.CachedAttention, [q, k_cache, v_cache, kv_pos], **heads)

    def causal_attention(
        self, q: NodeId, k: NodeId, v: NodeId, num_heads: int, num_kv_heads: int, head_dim: int
    ) -> NodeId:
        """Attention to a row and those before it."""
        heads = _Heads(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
        return self.append(attn.CausalAttention, [q, k, v], **heads)

    def sliding_window_attention(
        self, q: NodeId, k: NodeId, v: NodeId, num_heads: int, num_kv_heads: int, head_dim: int, window_size: int
    ) -> NodeId:
        """Attention to a row and the window_size - 1 before it."""
        heads = _Heads(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
        return self.append(attn.SlidingWindowAttention, [q, k, v], **heads, window_size=window_size)

    def full_attention(
        self, q: NodeId, k: NodeId, v: NodeId, num_heads: int, num_kv_heads: int, head_dim: int
    ) -> NodeId:
        """Attention to every row."""
        heads = _Heads(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
        return self.append(attn.FullAttention, [q, k, v], **heads)

    def cross_attention(
        self, q: NodeId, k: NodeId, v: NodeId, num_heads: int, num_kv_heads: int, head_dim: int
    ) -> NodeId:
        """Attention to every row of another sequence."""
        heads = _Heads(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
        return self.append(attn.CrossAttention, [q, k, v], **heads)

    def multi_head_attn(
        self, q: NodeId, k: NodeId, v: NodeId, num_heads: int, num_kv_heads: int, head_dim: int, is_cross: bool
    ) -> NodeId:
        """Attention to every row of k and v, whatever `is_cross` says."""
        heads = _Heads(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
        return self.append(attn.MultiHeadAttn, [q, k, v], **heads, is_cross=is_cross)

    def rms_norm(self, x: NodeId, weight: NodeId, eps: float) -> NodeId:
        """Rows of x [rows, cols] over their root mean square, times weight [cols]."""
        return self.append(norm.RmsNorm, [x, weight], eps=eps)

    def rms_norm_grad_w(self, dy: NodeId, x: NodeId, w: NodeId, eps: float) -> NodeId:
        """Gradient of `rms_norm` for its weight, of the type of w."""
        return self.append(norm.RmsNormGradW, [dy, x, w], self.ty(w), eps=eps)

    def rms_norm_grad_x(self, dy: NodeId, x: NodeId, w: NodeId, eps: float) -> NodeId:
        """Gradient of `rms_norm` for x."""
        return self.append(norm.RmsNormGradX, [dy, x, w], self.ty(x), eps=eps)

    def layer_norm(self, x: NodeId, weight: NodeId, bias: NodeId, eps: float) -> NodeId:
        """Rows of x [rows, cols] with mean 0 and variance 1, times weight [cols], plus bias [cols]."""
        return self.append(norm.LayerNorm, [x, weight, bias], eps=eps)

    def layer_norm_grad_wb(self, dy: NodeId, x: NodeId, w: NodeId, eps: float) -> NodeId:
        """Gradient of `layer_norm` for its weight, of the type of w; that of the bias is `sum_rows`."""
        return self.append(norm.LayerNormGradWB, [dy, x, w], self.ty(w), eps=eps)

    def layer_norm_grad_x(self, dy: NodeId, x: NodeId, w: NodeId, eps: float) -> NodeId:
        """Gradient of `layer_norm` for x."""
        return self.append(norm.LayerNormGradX, [dy, x, w], self.ty(x), eps=eps)
