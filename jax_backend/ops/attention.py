"""Attention and normalisation."""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

import ir
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, dot_precision, out_dtype, widen_half

SCORE_LIMIT = 1 << 26
"""Scores held at once, in elements (256 MiB of float32); more queries than fit are taken in blocks."""

FUSED_FROM = 1 << 24
"""Scores from which cuDNN's fused attention is used. On an H200 it takes 0.12 ms against 0.14 at 2^24 (bfloat16, heads
of 64) and 4.7 against 72 at 2^33, but twice the time of the plain form below 2^22, which is the more exact one."""

CUDNN_HEAD_LIMIT = 128
"""Widest head that cuDNN's fused attention takes on every GPU that has it."""

CUDNN_CAPABILITY = (8, 0)
"""Compute capability from which cuDNN's fused attention runs."""


class _Query(NamedTuple):
    """Some queries of every head: what their rows of scores depend on.

    q (B, Hkv, G, Q, d), G query heads to a key head · place (Q,) in the sequence · mask, bias (B, H, Q, K), each axis
    perhaps 1, None where absent or the same for every query.
    """

    q: Array
    place: Array
    mask: Array | None
    bias: Array | None


class _Scoring(NamedTuple):
    """What every query shares; `mask` and `bias` where they do not depend on the query, else None."""

    key: Array
    mask: Array | None
    bias: Array | None
    scale: Array
    softcap: Array | None
    precision: lax.Precision
    last_visible: int | None
    """Under a causal mask: query 0 sees the keys up to this place, query n those up to n further."""


@lower(ir.Attention)
def attention(
    op: ir.Attention,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    attn_bias: Array | None,
    scale: Array | None,
    softcap: Array | None,
) -> Array:
    """Scores in float32 at least, in Burn's order: scale, softcap, mask, causal, bias, softmax."""
    plain = partial(
        scaled_attention,
        mask=mask,
        attn_bias=attn_bias,
        scale=scale,
        softcap=softcap,
        is_causal=op.options.is_causal,
        precision=dot_precision(op.query.dtype),
    )
    if mask is attn_bias is scale is softcap is None and _suits_cudnn(op) and _has_cudnn():
        fused = partial(_fused_attention, is_causal=op.options.is_causal)
        return lax.platform_dependent(query, key, value, cuda=fused, default=plain)
    return plain(query, key, value)


def scaled_attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    precision: lax.Precision,
    mask: Array | None = None,
    attn_bias: Array | None = None,
    scale: Array | None = None,
    softcap: Array | None = None,
    is_causal: bool = False,
) -> Array:
    """softmax(scores) times value, (B, H, Q, d), (B, Hkv, K, d), (B, Hkv, K, dv) -> (B, H, Q, dv).

    Query head h uses key head h // (H / Hkv). `mask` hides keys where it is true; it and `attn_bias` are (B, H, Q, K),
    each axis perhaps 1. Under `is_causal` the last query sees the last key. The scale is d^-1/2 where none is given.
    """
    dtype = widen_half(query).dtype
    by_query, shared = zip(*(_split_by_query(x) for x in (mask, attn_bias)), strict=True)
    scoring = _Scoring(
        key,
        shared[0],
        shared[1],
        jnp.asarray(query.shape[3] ** -0.5, dtype) if scale is None else scale.astype(dtype),
        None if softcap is None else softcap.astype(dtype),
        precision,
        key.shape[2] - query.shape[2] if is_causal else None,
    )
    batch, heads, count, width = query.shape
    grouped = query.reshape(batch, key.shape[1], heads // key.shape[1], count, width)
    rows = _Query(grouped, jnp.arange(count), *by_query)
    attended = _attend(rows, scoring, widen_half(value)).astype(query.dtype)
    return attended.reshape(batch, heads, count, value.shape[3])


def _split_by_query(x: Array | None) -> tuple[Array | None, Array | None]:
    """A mask or bias (B, H, Q, K) as (by query, shared): it is shared where Q is 1."""
    if x is None:
        return None, None
    return (None, x) if x.shape[2] == 1 else (x, None)


def _attend(rows: _Query, scoring: _Scoring, value: Array) -> Array:
    """Softmax of the scores of each query, times value (B, Hkv, K, dv) -> (B, Hkv, G, Q, dv)."""
    batch, kv_heads, group, count, _ = rows.q.shape
    num_keys = value.shape[2]
    if num_keys == 0:
        return jnp.zeros((batch, kv_heads, group, count, value.shape[3]), value.dtype)

    def attend(some: _Query) -> Array:
        weights = _softmax(_scores(some, scoring)).reshape(*some.q.shape[:4], num_keys)
        return jnp.einsum("bhgqk,bhkd->bhgqd", weights, value, precision=scoring.precision)

    block = max(1, SCORE_LIMIT // max(1, batch * kv_heads * group * num_keys))
    if block >= count:
        return attend(rows)
    # The checkpoint keeps a gradient from storing what the blocks avoid: the scores of all queries.
    blocks = lax.map(jax.checkpoint(attend), _one_by_one(rows), batch_size=block)
    return jnp.moveaxis(blocks.squeeze(4), 0, 3)


def _one_by_one(rows: _Query) -> _Query:
    """A stack of single queries, for `lax.map` to take in blocks."""
    mask, bias = (None if x is None else jnp.moveaxis(x, 2, 0)[:, :, :, None] for x in (rows.mask, rows.bias))
    return _Query(jnp.moveaxis(rows.q, 3, 0)[:, :, :, :, None], rows.place[:, None], mask, bias)


def _scores(some: _Query, scoring: _Scoring) -> Array:
    """Scores (B, H, Q, K) of some queries of each head, -inf where hidden."""
    scale = scoring.scale
    products = jnp.einsum(
        "bhgqd,bhkd->bhgqk", some.q, scoring.key, precision=scoring.precision, preferred_element_type=scale.dtype
    )
    batch, kv_heads, group, count, num_keys = products.shape
    scores = products.reshape(batch, kv_heads * group, count, num_keys) * scale
    if scoring.softcap is not None:
        scores = scoring.softcap * jnp.tanh(scores / scoring.softcap)
    hidden = scoring.mask if some.mask is None else some.mask
    if hidden is not None:
        scores = jnp.where(hidden, -jnp.inf, scores)
    if scoring.last_visible is not None:
        places = lax.broadcasted_iota(some.place.dtype, (1, 1, 1, num_keys), 3)
        last = (some.place + scoring.last_visible).reshape(1, 1, count, 1)
        scores = jnp.where(places > last, -jnp.inf, scores)
    bias = scoring.bias if some.bias is None else some.bias
    return scores if bias is None else scores + bias.astype(scores.dtype)


def _softmax(scores: Array) -> Array:
    """Softmax over the last axis; a row of -inf gives zeros.

    The maximum cancels out, so no gradient need go through it: that of 9 heads on 512 rows takes 72 ms instead of 82.
    """
    limits = jnp.finfo(scores.dtype)
    top = lax.stop_gradient(jnp.maximum(scores.max(-1, keepdims=True), limits.min))
    powers = jnp.exp(scores - top)
    return powers / jnp.maximum(powers.sum(-1, keepdims=True), limits.tiny)


def _suits_cudnn(op: ir.Attention) -> bool:
    """The shapes and dtypes for which cuDNN's fused attention means the same and pays.

    Its causal mask counts from the first key, Burn's from the last, so under it both lengths must be equal. Its
    gradient wants even lengths.
    """
    batch, heads, num_queries, width = op.query.shape.dims
    num_keys, value_width = op.key.shape.dims[2], op.value.shape.dims[3]
    fits_width = width == value_width and width % 8 == 0 and width <= CUDNN_HEAD_LIMIT
    fits_lengths = num_queries % 2 == num_keys % 2 == 0 and (num_queries == num_keys or not op.options.is_causal)
    pays = batch * heads * num_queries * num_keys >= FUSED_FROM
    return op.query.dtype in (ir.F16, ir.BF16) and fits_width and fits_lengths and pays


@cache
def _has_cudnn() -> bool:
    """A GPU on which cuDNN's fused attention runs is present; without one it cannot even be traced."""
    try:
        devices = jax.devices("cuda")
    except RuntimeError:
        return False
    return all(tuple(map(int, d.compute_capability.split("."))) >= CUDNN_CAPABILITY for d in devices)


def _fused_attention(query: Array, key: Array, value: Array, *, is_causal: bool) -> Array:
    """The attention of cuDNN, which wants (B, N, H, d)."""
    swapped = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    return jnp.swapaxes(jax.nn.dot_product_attention(*swapped, is_causal=is_causal, implementation="cudnn"), 1, 2)


@lower(ir.LayerNorm)
def layer_norm(op: ir.LayerNorm, input: Array, gamma: Array, beta: Array | None, epsilon: Array) -> Array:
    """Mean and biased variance in two passes: E[x²] - E[x]² loses large means."""
    x = widen_half(input)
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    normed = centred / jnp.sqrt(variance + epsilon.astype(x.dtype)) * _along(gamma, x, -1)
    return (normed if beta is None else normed + _along(beta, x, -1)).astype(out_dtype(op.out))


@lower(ir.BatchNorm)
def batch_norm(
    op: ir.BatchNorm, x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, epsilon: Array
) -> Array:
    """The statistics are given, never computed or updated."""
    wide = widen_half(x)
    gamma, beta, mean, variance = (_along(v, wide, 1) for v in (gamma, beta, mean, variance))
    normed = (wide - mean) / jnp.sqrt(variance + epsilon.astype(wide.dtype))
    return (normed * gamma + beta).astype(out_dtype(op.out))


def _along(vector: Array, like: Array, axis: int) -> Array:
    """`vector` along `axis` of an array of the rank and dtype of `like`, every other axis 1."""
    shape = [1] * like.ndim
    shape[axis] = vector.shape[0]
    return vector.astype(like.dtype).reshape(shape)
