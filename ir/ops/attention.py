"""Attention and normalisation. Source: burn-ir `ModuleOperationIr`."""

from ir.op import In, Op, OptIn, OptScalar, Out, Scalar
from ir.records import Record
from ir.registry import MODULE, kind


class AttentionOptions(Record):
    """Scale of the scores (1 / sqrt(d) if absent), softcap, and whether a query sees only keys up to its own place."""

    scale: OptScalar
    softcap: OptScalar
    is_causal: bool


@kind(*MODULE)
class Attention(Op):
    """softmax(query · keyᵀ · scale + bias) · value.

    query (B, H, Q, d) · key (B, Hkv, K, d) · value (B, Hkv, K, dv) · mask (B, H, Q, K), true = hidden · attn_bias
    (B, H, Q, K) -> out (B, H, Q, dv). A row with everything hidden gives 0.
    """

    query: In
    key: In
    value: In
    mask: OptIn
    attn_bias: OptIn
    options: AttentionOptions
    out: Out


@kind(*MODULE)
class LayerNorm(Op):
    """`input` (.., d) normalised over its last axis, times gamma (d,), plus beta (d,)."""

    input: In
    gamma: In
    beta: OptIn
    epsilon: Scalar
    out: Out


@kind(*MODULE)
class BatchNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, per channel: x (N, C, ..), the others (C,)."""

    x: In
    gamma: In
    beta: In
    mean: In
    variance: In
    epsilon: Scalar
    out: Out
