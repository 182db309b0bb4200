"""Rules of rows by index, positions, caches and attention."""

from collections.abc import Sequence
from typing import Any

from ir.meganeura.ops import attention as attn
from ir.meganeura.ops import indexing
from ir.meganeura.rules.checks import count, elements, equal, f32, fail, like, rank, rule, same_shape
from ir.meganeura.types import TensorType
from ir.op import Op


@rule(indexing.Embedding)
def embedding(op: indexing.Embedding) -> TensorType:
    """A row of the table per index."""
    (number,) = rank(op, "indices", 1, "embedding indices must be 1D")
    return f32(number, rank(op, "table", 2, "embedding table must be 2D")[1])


@rule(indexing.ScatterAdd)
def scatter_add(op: indexing.ScatterAdd) -> TensorType:
    """vocab_size rows."""
    rows, cols = rank(op, "src", 2, "scatter_add requires 2D src")
    elements(op, "indices", rows, "one per row of src")
    return f32(op.vocab_size, cols)


def _check_heads(op: Op, field: str, head_dim: int) -> None:
    _, dim = rank(op, field, 2, "rope requires 2D input")
    equal(op, field, 0, dim % 2, "rope requires even last dim")
    if head_dim == 0 or dim % head_dim:
        remainder = dim % head_dim if head_dim else dim
        fail(op, field, f"rope: dim must be divisible by head_dim: expected {dim} % {head_dim} = 0, got {remainder}")
    equal(op, "head_dim", 0, head_dim % 2, "rope: head_dim must be even")


@rule(indexing.RoPE)
def rope(op: indexing.RoPE) -> TensorType:
    """The type of x."""
    _check_heads(op, "x", op.head_dim)
    if op.offset is not None and count(op.offset) == 0:
        fail(op, "offset", "expected at least 1 element, got 0")
    return like(op.x)


@rule(indexing.RoPEGrad)
def rope_grad(op: indexing.RoPEGrad) -> TensorType:
    """The type of grad_out."""
    _check_heads(op, "grad_out", op.head_dim)
    return like(op.grad_out)


def _check_position(op: Any) -> None:
    if count(op.kv_pos) == 0:
        fail(op, "kv_pos", "expected at least 1 element, got 0")


@rule(indexing.CacheWrite)
def cache_write(op: indexing.CacheWrite) -> TensorType:
    """The type of the cache."""
    new = rank(op, "new_kv", 2, "new_kv must be 2D")
    equal(op, "new_kv", 1, new[0], "new_kv must have seq_len=1")
    equal(op, "new_kv", rank(op, "cache", 2, "cache must be 2D")[1], new[1], "dim must match")
    _check_position(op)
    return like(op.cache)


@rule(indexing.CachedAttention)
def cached_attention(op: indexing.CachedAttention) -> TensorType:
    """One row."""
    q = rank(op, "q", 2, "q must be 2D")
    equal(op, "q", 1, q[0], "q must have seq_len=1 for cached attention")
    equal(op, "q", op.num_heads * op.head_dim, q[1], "q dim mismatch")
    k = rank(op, "k_cache", 2, "k_cache must be 2D")
    equal(op, "k_cache", op.num_kv_heads * op.head_dim, k[1], "k_cache dim mismatch")
    same_shape(op, "v_cache", "k_cache", "caches must match")
    _check_groups(op)
    _check_position(op)
    return f32(*q)


def _check_groups(op: Any) -> None:
    if op.num_kv_heads == 0 or op.num_heads % op.num_kv_heads:
        fail(op, "num_kv_heads", f"expected a divisor of num_heads={op.num_heads}, got {op.num_kv_heads}")


@rule(attn.CausalAttention, attn.CausalAttentionRoPE, attn.FullAttention, attn.SlidingWindowAttention)
def self_attention(op: attn.QueryKeyValue) -> TensorType:
    """The type of q; k and v have as many rows."""
    q, k, v = _check_ranks(op)
    equal(op, "q", op.num_heads * op.head_dim, q[1], "q dim mismatch")
    width = op.num_kv_heads * op.head_dim
    equal(op, "k", q[0], k[0], "k seq must match q seq")
    equal(op, "k", width, k[1], "k dim mismatch")
    equal(op, "v", q[0], v[0], "v seq must match q seq")
    equal(op, "v", width, v[1], "v dim mismatch")
    if isinstance(op, attn.SlidingWindowAttention) and op.window_size == 0:
        fail(op, "window_size", "window_size must be > 0: got 0")
    if isinstance(op, attn.CausalAttentionRoPE):
        equal(op, "head_dim", 0, op.head_dim % 2, "rope: head_dim must be even")
    _check_groups(op)
    return f32(*q)


@rule(attn.CrossAttention, attn.MultiHeadAttn)
def cross_attention(op: attn.QueryKeyValue) -> TensorType:
    """The type of q; k and v have their own number of rows."""
    q, k, v = _check_ranks(op)
    equal(op, "q", op.num_heads * op.head_dim, q[1], "q dim mismatch")
    width = op.num_kv_heads * op.head_dim
    equal(op, "k", width, k[1], "k dim mismatch")
    equal(op, "v", k[0], v[0], "v seq must match k seq")
    equal(op, "v", width, v[1], "v dim mismatch")
    _check_groups(op)
    return f32(*q)


def _check_ranks(op: Any) -> list[Sequence[int]]:
    return [rank(op, name, 2, f"{name} must be 2D") for name in ("q", "k", "v")]


@rule(attn.MultiHeadAttnGradQ, attn.MultiHeadAttnGradK, attn.MultiHeadAttnGradV)
def attention_grad(op: attn.AttentionGrad) -> TensorType:
    """The type of q, k or v."""
    q, k, v = _check_ranks(op)
    equal(op, "q", op.num_heads * op.head_dim, q[1], "q dim mismatch")
    equal(op, "k", op.num_kv_heads * op.head_dim, k[1], "k dim mismatch")
    if tuple(k) != tuple(v):
        fail(op, "v", f"expected {list(k)} as k, got {list(v)}")
    elements(op, "grad_out", q[0] * q[1], "as q")
    elements(op, "fwd_node", q[0] * q[1], "as q")
    _check_groups(op)
    return like(op.q if isinstance(op, attn.MultiHeadAttnGradQ) else op.k)
