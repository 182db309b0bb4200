"""Rows of `ir.meganeura.ops.attention`. References: loops over heads and rows in float64; numbers by hand."""

from typing import Any

import numpy as np

from ir import F32
from ir.errors import ShapeError
from ir.meganeura import ops as mg
from tests.opcase import BadCase, OpCase, Tolerance, bad, case, t
from tests.reference.meganeura import Attention, float64, rope, waves

HEADS: dict[str, Any] = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 2}
SIX: dict[str, Any] = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 4}
"""Three query heads to a key head."""

Q, K, V = t(F32, waves(4, 4)), t(F32, np.cos(0.3 * np.arange(8)).reshape(4, 2)), t(F32, np.arange(8).reshape(4, 2) / 4)
WIDE_Q, WIDE_K, WIDE_V = (t(F32, waves(5, n, step=s)) for n, s in ((24, 0.5), (8, 0.7), (8, 0.9)))
LONG_K, LONG_V = (t(F32, waves(7, 8, step=s)) for s in (0.7, 0.9))
SUMS = Tolerance(1e-5, 2e-6)


def six(window: int | None) -> Attention:
    """Six heads over two, each row seeing `window` rows up to itself, or all."""
    return Attention(6, 2, 4, lambda i, t: window is None or i - window < t <= i)


def causal_rope(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal, of q and k rotated."""
    return six(5)(rope(q, 100.0, 0, 4), rope(k, 100.0, 0, 4), v)


CAUSAL = [
    [0, 0.25, 0, 0.25],
    [0.218477, 0.468477, 0.258166, 0.508166],
    [0.660049, 0.910049, 0.647683, 0.897683],
    [0.754334, 1.004334, 0.466823, 0.716823],
]
WINDOW_2 = [
    *CAUSAL[:2],
    [0.826078, 1.076078, 0.821540, 1.071540],
    [1.253616, 1.503616, 1.170859, 1.420859],
]
FULL_ROWS_0_2 = [[0.647994, 0.897994, 0.435738, 0.685738], [1.092936, 1.342936, 1.075470, 1.325470]]
PICKED = t(F32, Q.array[[0, 2]])


def grad_rows() -> list[OpCase]:
    """The gradients of a causal, a windowed, a full and a crossed attention."""
    found: list[OpCase] = []
    for name, window, is_cross in (
        ("full", None, False),
        ("cross", None, True),
        ("causal", 5, False),
        ("w3", 3, False),
    ):
        attention = six(window)
        k, v = (LONG_K, LONG_V) if is_cross else (WIDE_K, WIDE_V)
        grad_out = waves(5, 24, step=0.3)
        given = [x.array.astype(np.float64) for x in (WIDE_Q, k, v)]
        grads = attention.grads(grad_out, *given)
        out = t(F32, attention(*given))
        kinds = (mg.MultiHeadAttnGradQ, mg.MultiHeadAttnGradK, mg.MultiHeadAttnGradV)
        for kind, grad in zip(kinds, grads, strict=True):
            operands = (t(F32, grad_out), WIDE_Q, k, v, out)
            static = {**SIX, "is_cross": is_cross, "window": window}
            found.append(
                case(f"{kind.__name__.lower()}-{name}", kind, *operands, want=t(F32, grad), tol=SUMS, **static)
            )
    return found


CASES: list[OpCase] = [
    case("causalattention", mg.CausalAttention, Q, K, V, want=t(F32, CAUSAL), tol=SUMS, **HEADS),
    case("causalattention-gqa", mg.CausalAttention, WIDE_Q, WIDE_K, WIDE_V, want=float64(six(5)), tol=SUMS, **SIX),
    case(
        "causalattention-one-row",
        mg.CausalAttention,
        *[t(F32, [[1, 2]])] * 3,
        want=t(F32, [[1, 2]]),
        **HEADS | {"num_heads": 1},
    ),
    case(
        "causalattention-no-rows",
        mg.CausalAttention,
        *[t(F32, [], (0, 4)), *[t(F32, [], (0, 2))] * 2],
        want=t(F32, [], (0, 4)),
        **HEADS,
    ),
    case(
        "causalattentionrope-rotates",
        mg.CausalAttentionRoPE,
        WIDE_Q,
        WIDE_K,
        WIDE_V,
        want=float64(causal_rope),
        tol=SUMS,
        rope_theta=100.0,
        **SIX,
    ),
    *(
        case(
            f"slidingwindowattention-{window}",
            mg.SlidingWindowAttention,
            Q,
            K,
            V,
            want=t(F32, want),
            tol=SUMS,
            window_size=window,
            **HEADS,
        )
        for window, want in ((2, WINDOW_2), (1, np.tile(V.array, 2)), (4, CAUSAL), (2**32 - 1, CAUSAL))
    ),
    case(
        "slidingwindowattention-gqa",
        mg.SlidingWindowAttention,
        WIDE_Q,
        WIDE_K,
        WIDE_V,
        want=float64(six(3)),
        tol=SUMS,
        window_size=3,
        **SIX,
    ),
    case("fullattention-gqa", mg.FullAttention, WIDE_Q, WIDE_K, WIDE_V, want=float64(six(None)), tol=SUMS, **SIX),
    case("crossattention", mg.CrossAttention, PICKED, K, V, want=t(F32, FULL_ROWS_0_2), tol=SUMS, **HEADS),
    case("crossattention-longer", mg.CrossAttention, WIDE_Q, LONG_K, LONG_V, want=float64(six(None)), tol=SUMS, **SIX),
    case(
        "crossattention-one-row-of-k",
        mg.CrossAttention,
        Q,
        t(F32, [[9, -9]]),
        t(F32, [[0.5, 2]]),
        want=t(F32, [[0.5, 2, 0.5, 2]] * 4),
        **HEADS,
    ),
    case(
        "multiheadattn", mg.MultiHeadAttn, PICKED, K, V, want=t(F32, FULL_ROWS_0_2), tol=SUMS, is_cross=False, **HEADS
    ),
    case(
        "multiheadattn-is-cross-changes-nothing",
        mg.MultiHeadAttn,
        PICKED,
        K,
        V,
        want=t(F32, FULL_ROWS_0_2),
        tol=SUMS,
        is_cross=True,
        **HEADS,
    ),
    *grad_rows(),
]

EVEN = t(F32, np.ones((4, 6)))
MATCH_HEADS = r"num_kv_heads: expected a divisor of 3 heads, got 2"
UNEVEN: dict[str, Any] = {"num_heads": 3, "num_kv_heads": 2, "head_dim": 2}

BAD_CASES: list[BadCase] = [
    *(
        bad(
            f"{kind.__name__.lower()}-heads",
            kind,
            EVEN,
            Q,
            Q,
            out=EVEN,
            error=ShapeError,
            match=MATCH_HEADS,
            **UNEVEN,
            **more,
        )
        for kind, more in (
            (mg.CausalAttention, {}),
            (mg.CausalAttentionRoPE, {"rope_theta": 1e4}),
            (mg.SlidingWindowAttention, {"window_size": 2}),
            (mg.FullAttention, {}),
            (mg.CrossAttention, {}),
            (mg.MultiHeadAttn, {"is_cross": False}),
        )
    ),
    *(
        bad(
            f"{kind.__name__.lower()}-heads",
            kind,
            EVEN,
            EVEN,
            Q,
            Q,
            EVEN,
            out=EVEN,
            error=ShapeError,
            match=MATCH_HEADS,
            is_cross=False,
            window=None,
            **UNEVEN,
        )
        for kind in (mg.MultiHeadAttnGradQ, mg.MultiHeadAttnGradK, mg.MultiHeadAttnGradV)
    ),
    bad(
        "causalattention-rows",
        mg.CausalAttention,
        PICKED,
        K,
        V,
        out=PICKED,
        error=ShapeError,
        match=r"v: expected 2 rows in k and v, got 4 and 4",
        **HEADS,
    ),
    bad(
        "crossattention-rows",
        mg.CrossAttention,
        Q,
        K,
        t(F32, np.ones((3, 2))),
        out=Q,
        error=ShapeError,
        match="expected 4 rows in k and v, got 4 and 3",
        **HEADS,
    ),
    bad(
        "fullattention-width",
        mg.FullAttention,
        Q,
        Q,
        V,
        out=Q,
        error=ShapeError,
        match=r"FullAttention\.k: expected the elements of \(4, 1, 2\)",
        **HEADS,
    ),
]
