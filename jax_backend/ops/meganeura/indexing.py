"""Lowerings of `ir.meganeura.ops.indexing`."""

import jax.numpy as jnp
from jax import lax

from ir.errors import ShapeError
from ir.meganeura.ops.indexing import CachedAttention, CacheWrite, Embedding, RoPE, RoPEGrad, ScatterAdd
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array
from jax_backend.ops.meganeura._shared import declared, position, rotated, two_dims, viewed
from jax_backend.ops.meganeura.attention import Heads, attend


@lower(Embedding)
@declared
def embedding(op: Embedding, indices: Array, table: Array) -> Array:
    """Rows of the table; an index beyond it takes its last row."""
    return jnp.take(two_dims(table, "Embedding.table"), indices.reshape(-1), axis=0, mode="clip")


@lower(ScatterAdd)
@declared
def scatter_add(op: ScatterAdd, indices: Array, src: Array) -> Array:
    """Rows of src added up where their indices say; those beyond the table are left out."""
    rows = two_dims(src, "ScatterAdd.src")
    if rows.shape[0] != indices.size:
        raise ShapeError(f"ScatterAdd.src: expected {indices.size} rows, one per index, got {tuple(rows.shape)}")
    return jnp.zeros((op.vocab_size, rows.shape[1]), src.dtype).at[indices.reshape(-1)].add(rows, mode="drop")


@lower(RoPE)
@declared
def rope(op: RoPE, x: Array, offset: Array | None) -> Array:
    """Turned forward; an offset that is an operand takes the place of the attribute."""
    return rotated(op, x, op.head_dim, op.theta, op.pos_offset if offset is None else position(offset))


@lower(RoPEGrad)
@declared
def rope_grad(op: RoPEGrad, grad_out: Array) -> Array:
    """Turned backward."""
    return rotated(op, grad_out, op.head_dim, op.theta, op.pos_offset, direction=-1.0)


@lower(CacheWrite)
@declared
def cache_write(op: CacheWrite, new_kv: Array, cache: Array, kv_pos: Array) -> Array:
    """The cache with one row replaced, in place where its buffer is donated.

    XLA would move a position beyond the cache to its last row, so whoever runs a program checks positions before.
    """
    row = viewed(new_kv, (1, two_dims(cache, "CacheWrite.cache").shape[1]), "CacheWrite.new_kv")
    return lax.dynamic_update_slice(cache, row, (position(kv_pos), jnp.int32(0)))


@lower(CachedAttention)
@declared
def cached_attention(op: CachedAttention, q: Array, k_cache: Array, v_cache: Array, kv_pos: Array) -> Array:
    """Attention to the rows written so far, the one at kv_pos included."""
    capacity = two_dims(k_cache, "CachedAttention.k_cache").shape[0]
    hidden = lax.iota(jnp.int32, capacity) > position(kv_pos)
    return attend(op, Heads(op.num_heads, op.num_kv_heads, op.head_dim), q, k_cache, v_cache, hidden.reshape(1, -1))
