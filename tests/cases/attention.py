"""Attention and normalisation."""

from functools import partial
from typing import Any

import numpy as np

import ir
from ir import BF16, BOOL, F16, F32, F64, Attention, BatchNorm, LayerNorm
from tests.opcase import OpCase, Typed, case, t
from tests.reference.attention import attention, batch_norm, layer_norm

NAN, INF = float("nan"), float("inf")


def wave(dtype: ir.DType, *shape: int, step: float = 0.7, high: float = 1.0) -> Typed:
    """Numbers without a pattern that an axis could share: high * sin(step * (i² + 1))."""
    places = np.arange(int(np.prod(shape)), dtype=np.float64)
    return t(dtype, high * np.sin(step * (places * places % 211 + 1)), shape)


def qkv(dtype: ir.DType = F32, heads: int = 2, kv_heads: int = 2, queries: int = 3, keys: int = 5) -> list[Typed]:
    """Query (2, heads, queries, 7), key (2, kv_heads, keys, 7), value (2, kv_heads, keys, 3)."""
    return [
        wave(dtype, 2, heads, queries, 7, high=3.0),
        wave(dtype, 2, kv_heads, keys, 7, step=0.3),
        wave(dtype, 2, kv_heads, keys, 3, step=1.1),
    ]


def attend(
    id: str,
    tensors: list[Typed],
    mask: Typed | None = None,
    bias: Typed | None = None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    is_causal: bool = False,
    want: Any = None,
) -> OpCase:
    """A row of Attention; by default the reference says what is wanted."""

    def reference(*arrays: np.ndarray) -> np.ndarray:
        q, k, v, *rest = arrays
        optional = iter(rest)
        hidden = next(optional) if mask else None
        added = next(optional) if bias else None
        return attention(q, k, v, hidden, added, scale=scale, softcap=softcap, causal=is_causal)

    return case(
        f"attention-{id}",
        Attention,
        *tensors,
        mask,
        bias,
        want=want or reference,
        scale=None if scale is None else ir.scalar(scale),
        softcap=None if softcap is None else ir.scalar(softcap),
        is_causal=is_causal,
    )


def single(*value: float, dtype: ir.DType = F32) -> list[Typed]:
    """Query and key of zeros, so that every visible key weighs the same; `value` is (1, 1, n, 1)."""
    zeros = t(dtype, np.zeros((1, 1, len(value), 1)))
    return [zeros, zeros, t(dtype, value, (1, 1, len(value), 1))]


def column(*values: float) -> Typed:
    return t(F32, values, (1, 1, len(values), 1))


HIDDEN = t(BOOL, np.arange(2 * 2 * 3 * 5) % 3 == 0, (2, 2, 3, 5))
ALL_OF_ROW_1 = t(BOOL, np.arange(3)[:, None] + np.zeros((1, 5)) == 1, (1, 1, 3, 5))
BIAS = wave(F32, 2, 2, 3, 5, step=0.2, high=2.0)

ATTENTION = [
    attend("plain", qkv()),
    attend("f64", qkv(F64)),
    attend("f16", qkv(F16)),
    attend("bf16", qkv(BF16)),
    attend("scale", qkv(), scale=0.3),
    attend("scale-negative", qkv(), scale=-1.25),
    attend("softcap", qkv(), softcap=0.8),
    attend("softcap-comes-after-scale", qkv(), scale=2.0, softcap=0.5),
    attend("mask-true-is-hidden", qkv(), HIDDEN),
    attend("mask-of-one-row-and-head", qkv(), t(BOOL, [[[[True, False, False, True, False]]]])),
    attend("mask-per-query-for-all-keys", qkv(), t(BOOL, [0, 1, 0], (1, 1, 3, 1))),
    attend("mask-row-fully-hidden-gives-0", qkv(), ALL_OF_ROW_1),
    attend("bias", qkv(), None, BIAS),
    attend("bias-per-head", qkv(), None, wave(F32, 1, 2, 1, 1)),
    attend("bias-per-key", qkv(), None, wave(F32, 1, 1, 1, 5, high=4.0)),
    attend("bias-comes-after-softcap", qkv(), None, BIAS, softcap=0.5),
    attend("bias-f16", qkv(F16), None, wave(F16, 2, 1, 3, 5)),
    attend("bias-all-minus-inf-gives-0", qkv(), None, t(F32, np.full((1, 1, 3, 5), -INF))),
    attend("causal-more-keys", qkv(), is_causal=True),
    attend("causal-more-queries", qkv(queries=5, keys=3), is_causal=True),
    attend("causal-square", qkv(queries=5), is_causal=True),
    attend("causal-mask-bias-softcap-scale", qkv(queries=5), t(BOOL, np.arange(25) % 4 == 1, (1, 1, 5, 5)),
           wave(F32, 1, 1, 5, 5), scale=0.9, softcap=1.5, is_causal=True),
    attend("gqa", qkv(heads=6, kv_heads=2)),
    attend("gqa-mask-and-bias-go-by-query-head", qkv(heads=6, kv_heads=3),
           t(BOOL, np.arange(2 * 6 * 3 * 5) % 4 == 0, (2, 6, 3, 5)), wave(F32, 1, 6, 1, 5)),
    attend("mqa-causal", qkv(heads=3, kv_heads=1), is_causal=True),
    attend("scores-beyond-exp", [t(F32, np.full((1, 1, 2, 2), 200.0)), t(F32, np.eye(2) * 200, (1, 1, 2, 2)),
                                            wave(F32, 1, 1, 2, 3)]),
    attend("f16-scores-beyond-f16", [t(F16, np.full((1, 1, 1, 4), 500.0)), t(F16, [[[[500.0] * 4, [499.5] * 4]]]),
                                     t(F16, [[[[1.0], [2.0]]]])], want=t(F16, [[[[1.0]]]])),
    attend("causal-row-0-is-value-row-0", single(3, 5, 10), is_causal=True, want=column(3, 4, 6)),
    attend("causal-and-key-0-hidden-row-0-gives-0", single(3, 5, 9), t(BOOL, [[[[True, False, False]]]]),
           is_causal=True, want=column(0, 5, 7)),
    attend("inf-value-under-the-mask-is-nan", single(1, INF), t(BOOL, [[[[False, True]]]]), want=column(NAN, NAN)),
    attend("bias-plus-inf-on-a-visible-key-is-nan", single(1, 2), None, t(F32, [[[[0.0, INF], [0.0, 0.0]]]]),
           want=column(NAN, 1.5)),
    attend("no-keys-give-0", qkv(keys=0), want=t(F32, np.zeros((2, 2, 3, 3)))),
    attend("no-queries", qkv(queries=0), want=t(F32, np.zeros((2, 2, 0, 3)))),
    attend("no-batch", [t(F32, np.zeros((0, 2, 3, 4)))] * 3, want=t(F32, np.zeros((0, 2, 3, 4)))),
]  # fmt: skip

ROWS = wave(F32, 2, 3, 5)


def normed(id: str, x: Typed, gamma: Typed, beta: Typed | None, epsilon: float = 1e-5, want: Any = None) -> OpCase:
    """A row of LayerNorm."""

    def reference(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None = None) -> np.ndarray:
        return layer_norm(x, gamma, beta, epsilon)

    return case(f"layer_norm-{id}", LayerNorm, x, gamma, beta, want=want or reference, epsilon=epsilon)


LAYER_NORM = [
    normed("no-beta", t(F32, [[1.0, 2.0, 3.0, 4.0]]), t(F32, np.ones(4)), None,
           want=t(F32, [[-1.3416355, -0.4472118, 0.4472118, 1.3416355]])),
    normed("gamma-and-beta", ROWS, wave(F32, 5, step=0.4), wave(F32, 5, step=0.9)),
    normed("rank-1", wave(F32, 7), wave(F32, 7, step=0.1), None),
    normed("rank-4", wave(F32, 2, 3, 1, 5), wave(F32, 5), None),
    normed("epsilon-inside-the-root", t(F32, [[0.0, 2.0]]), t(F32, [1, 1]), None, 3.0, want=t(F32, [[-0.5, 0.5]])),
    normed("constant-row-gives-beta", t(F32, [[7, 7, 7]]), t(F32, [2, 2, 2]), t(F32, [1, -1, 0]),
           want=t(F32, [[1, -1, 0]])),
    normed("large-mean-needs-two-passes", t(F32, [[10001.0, 10002, 10003, 10004]]), t(F32, np.ones(4)), None,
           want=t(F32, [[-1.3416355, -0.4472118, 0.4472118, 1.3416355]])),
    normed("f64", wave(F64, 3, 5), wave(F64, 5), wave(F64, 5)),
    normed("f16-sum-of-squares-beyond-f16", t(F16, [[-4000.0, 4000.0, 0.0, 0.0]]), t(F16, np.ones(4)), None),
    normed("bf16", wave(BF16, 3, 5), wave(BF16, 5), wave(BF16, 5, step=0.2)),
    normed("nan-stays-in-its-row", t(F32, [[1, NAN], [1, 3]]), t(F32, [1, 1]), None, 0.0,
           want=t(F32, [[NAN, NAN], [-1, 1]])),
    normed("width-1-gives-0", t(F32, [[4], [9]]), t(F32, [3]), None, want=t(F32, [[0], [0]])),
    normed("no-rows", t(F32, np.zeros((0, 3))), t(F32, np.ones(3)), None, want=t(F32, np.zeros((0, 3)))),
]  # fmt: skip


def channels(id: str, x: Typed, *statistics: Typed, epsilon: float = 1e-3, want: Any = None) -> OpCase:
    """A row of BatchNorm; gamma, beta, mean and variance are made up where they are not given."""
    dtype, count = x.dtype, x.array.shape[1]
    made = [wave(dtype, count, step=s) for s in (0.3, 0.5, 0.8)]
    made.append(t(dtype, 1.0 + np.arange(count) / 2))
    reference = partial(batch_norm, epsilon=epsilon)
    return case(f"batch_norm-{id}", BatchNorm, x, *(statistics or made), want=want or reference, epsilon=epsilon)


BATCH_NORM = [
    channels("spec-values", t(F32, [[[0.9601, 0.7277], [0.6272, 0.9034]]]), t(F32, [2, 3]), t(F32, [0.5, -1]),
             t(F32, [1, 2]), t(F32, [3, 8]), epsilon=1.0, want=t(F32, [[[0.4601, 0.2277], [-2.3728, -2.0966]]])),
    channels("rank-2", wave(F32, 3, 2)),
    channels("rank-3", wave(F32, 3, 2, 5)),
    channels("rank-4", wave(F32, 2, 3, 2, 5)),
    channels("rank-5", wave(F32, 1, 2, 3, 2, 2)),
    channels("f64", wave(F64, 2, 3, 4)),
    channels("f16-rounds-once", wave(F16, 2, 3, 4, high=8.0)),
    channels("bf16", wave(BF16, 2, 3, 4)),
    channels("variance-0-and-epsilon-0", t(F32, [[1.0], [2.0]]), t(F32, [1]), t(F32, [0]), t(F32, [1]), t(F32, [0]),
             epsilon=0.0, want=t(F32, [[NAN], [INF]])),
    channels("no-channels", t(F32, np.zeros((2, 0, 3))), *[t(F32, [])] * 4, want=t(F32, np.zeros((2, 0, 3)))),
]  # fmt: skip

CASES = [*ATTENTION, *LAYER_NORM, *BATCH_NORM]
