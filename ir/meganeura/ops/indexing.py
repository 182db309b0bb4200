"""Rows by index, rotary positions and KV caches. Source: meganeura `graph.rs`."""

from ir.meganeura.ops.records import F32Value, Index, OptIndex, U32Value, USize, node_kind
from ir.op import In, Op, Out


@node_kind
class Embedding(Op):
    """Rows of a table. indices U32 (n,) · table (V, H) -> out (n, H); an index beyond the table takes its last row."""

    indices: Index
    table: In
    out: Out


@node_kind
class ScatterAdd(Op):
    """Zeros, to which row i of src is added at indices[i]. indices U32 (n,) · src (n, H) -> out (vocab_size, H).

    Equal indices add up; those beyond the table are dropped.
    """

    indices: Index
    src: In
    out: Out
    vocab_size: USize


@node_kind
class RoPE(Op):
    """Rotary positions, half-split within each head: the pair of column d is d + head_dim/2.

    x (rows, heads head_dim) · offset U32 (1,), if any -> out of the type of x. The position of a row is its index +
    `pos_offset`, or + offset[0]; the angle is position * theta^(-2d / head_dim).
    """

    x: In
    offset: OptIndex
    out: Out
    theta: F32Value
    pos_offset: U32Value
    head_dim: U32Value


@node_kind
class RoPEGrad(Op):
    """The inverse rotation of `RoPE`: its gradient."""

    grad_out: In
    out: Out
    theta: F32Value
    pos_offset: U32Value
    head_dim: U32Value


@node_kind
class CacheWrite(Op):
    """The cache with row kv_pos[0] replaced. new_kv (1, D) · cache (S, D) · kv_pos U32 (1,) -> out (S, D).

    In the graph `out` is the buffer of `cache`, which whoever reads `cache` later sees; see `ir.meganeura.program`.
    """

    new_kv: In
    cache: In
    kv_pos: Index
    out: Out


@node_kind
class CachedAttention(Op):
    """Attention of one row to rows 0 to kv_pos[0] of a cache, that row included.

    q (1, num_heads head_dim) · k_cache, v_cache (S, num_kv_heads head_dim) · kv_pos U32 (1,) -> out of the type of q.
    """

    q: In
    k_cache: In
    v_cache: In
    kv_pos: Index
    out: Out
    num_heads: U32Value
    num_kv_heads: U32Value
    head_dim: U32Value
