"""Rows of `ir.meganeura.ops.indexing`. References: loops in float64, and numbers worked by hand."""

from typing import Any

import numpy as np

from ir import F32, U32
from ir.errors import ShapeError
from ir.meganeura import ops as mg
from tests.opcase import EXACT, BadCase, OpCase, Tolerance, bad, case, t
from tests.reference.meganeura import Attention, float64, rope, waves

TABLE = t(F32, [[1, 2], [3, 4], [5, 6]])
SRC = t(F32, [[1, 2], [10, 20], [100, 200], [1000, 2000]])
X = t(F32, [[1, 2, 3, 4], [5, 6, 7, 8]])
ANGLES = Tolerance(2e-6, 2e-6)
FAR = Tolerance(1e-3, 1e-3)
"""Angles of thousands, in float32."""

ROTARY: dict[str, Any] = {"theta": 1e4, "pos_offset": 0, "head_dim": 4}
HEADS: dict[str, Any] = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 2}

ROPE_4 = [[1, 2, 3, 4], [-3.188785, 5.919701, 7.989471, 8.059599]]
ROPE_2 = [[1, 2, 3, 4], [-2.347314, 7.449169, -2.949652, 10.212715]]
ROPE_3 = [[-1.413353, 1.879118, -2.828857, 4.058191], [2.029399, 5.675286, -8.359518, 8.233537]]
ONES = [[1] * 8, [-0.3011687, 0.98995, 1.3817733, 1.00995] * 2]

CACHE = t(F32, [[1, 2], [3, 4], [5, 6]])
Q, K, V = t(F32, waves(1, 4)), t(F32, np.cos(0.3 * np.arange(8)).reshape(4, 2)), t(F32, np.arange(8).reshape(4, 2) / 4)


def at(place: int) -> Any:
    """A position as a U32 buffer."""
    return t(U32, [place])


CASES: list[OpCase] = [
    case(
        "embedding", mg.Embedding, t(U32, [2, 0, 2, 1]), TABLE, want=t(F32, [[5, 6], [1, 2], [5, 6], [3, 4]]), tol=EXACT
    ),
    case("embedding-beyond", mg.Embedding, t(U32, [3, 2**32 - 1]), TABLE, want=t(F32, [[5, 6], [5, 6]]), tol=EXACT),
    case("embedding-nothing", mg.Embedding, t(U32, []), TABLE, want=t(F32, [], (0, 2))),
    case(
        "scatteradd",
        mg.ScatterAdd,
        t(U32, [1, 0, 1, 3]),
        SRC,
        want=t(F32, [[10, 20], [101, 202], [0, 0], [1000, 2000]]),
        tol=EXACT,
        vocab_size=4,
    ),
    case(
        "scatteradd-beyond",
        mg.ScatterAdd,
        t(U32, [1, 0, 2, 2**32 - 1]),
        SRC,
        want=t(F32, [[10, 20], [1, 2]]),
        tol=EXACT,
        vocab_size=2,
    ),
    case(
        "scatteradd-nothing", mg.ScatterAdd, t(U32, []), t(F32, [], (0, 3)), want=t(F32, np.zeros((2, 3))), vocab_size=2
    ),
    case("rope", mg.RoPE, X, None, want=t(F32, ROPE_4), tol=ANGLES, **ROTARY),
    case("rope-two-heads", mg.RoPE, X, None, want=t(F32, ROPE_2), tol=ANGLES, **ROTARY | {"head_dim": 2}),
    case("rope-offset", mg.RoPE, X, None, want=t(F32, ROPE_3), tol=ANGLES, **ROTARY | {"pos_offset": 3}),
    case("rope-dynamic-offset", mg.RoPE, X, at(3), want=t(F32, ROPE_3), tol=ANGLES, **ROTARY),
    case("rope-offset-buffer-longer", mg.RoPE, X, t(U32, [3, 9]), want=t(F32, ROPE_3), tol=ANGLES, **ROTARY),
    case("rope-ones", mg.RoPE, t(F32, np.ones((2, 8))), None, want=t(F32, ONES), tol=ANGLES, **ROTARY),
    case(
        "rope-one-head",
        mg.RoPE,
        t(F32, waves(3, 6)),
        None,
        want=float64(lambda x: rope(x, 50.0, 7, 6)),
        tol=ANGLES,
        theta=50.0,
        pos_offset=7,
        head_dim=6,
    ),
    case(
        "rope-far",
        mg.RoPE,
        t(F32, waves(2, 4)),
        None,
        want=float64(lambda x: rope(x, 1e4, 8000, 4)),
        tol=FAR,
        **ROTARY | {"pos_offset": 8000},
    ),
    case("rope-no-rows", mg.RoPE, t(F32, [], (0, 4)), None, want=t(F32, [], (0, 4)), **ROTARY),
    case(
        "ropegrad-undoes", mg.RoPEGrad, t(F32, ROPE_3), want=X, tol=Tolerance(1e-5, 1e-5), **ROTARY | {"pos_offset": 3}
    ),
    case(
        "ropegrad-heads",
        mg.RoPEGrad,
        t(F32, waves(3, 8)),
        want=float64(lambda x: rope(x, 50.0, 2, 4, sign=-1.0)),
        tol=ANGLES,
        theta=50.0,
        pos_offset=2,
        head_dim=4,
    ),
    *(
        case(
            f"cachewrite-{place}", mg.CacheWrite, t(F32, [[7, np.nan]]), CACHE, at(place), want=t(F32, want), tol=EXACT
        )
        for place, want in ((0, [[7, np.nan], [3, 4], [5, 6]]), (2, [[1, 2], [3, 4], [7, np.nan]]))
    ),
    case(
        "cachedattention",
        mg.CachedAttention,
        Q,
        K,
        V,
        at(2),
        want=t(F32, [[0.450816, 0.700816, 0.347673, 0.597673]]),
        tol=Tolerance(1e-5, 2e-6),
        **HEADS,
    ),
    case(
        "cachedattention-first-row-alone",
        mg.CachedAttention,
        Q,
        K,
        V,
        at(0),
        want=t(F32, [[0, 0.25, 0, 0.25]]),
        **HEADS,
    ),
    case(
        "cachedattention-all-rows",
        mg.CachedAttention,
        Q,
        K,
        V,
        at(3),
        want=float64(lambda q, k, v, _: Attention(2, 1, 2, lambda i, t: True)(q, k, v)),
        **HEADS,
    ),
    case(
        "cachedattention-of-zeros",
        mg.CachedAttention,
        Q,
        t(F32, np.zeros((4, 2))),
        t(F32, [[2, 4], [4, 8], [0, 0], [9, 9]]),
        at(1),
        want=t(F32, [[3, 6, 3, 6]]),
        **HEADS,
    ),
]

BAD_CASES: list[BadCase] = [
    bad(
        "embedding-flat",
        mg.Embedding,
        t(U32, [0]),
        t(F32, [1, 2]),
        out=Q,
        error=ShapeError,
        match=r"Embedding\.table: expected two axes",
    ),
    bad(
        "scatteradd-rows",
        mg.ScatterAdd,
        t(U32, [0, 1, 1]),
        SRC,
        out=Q,
        error=ShapeError,
        match=r"ScatterAdd\.src: expected 3 rows, one per index, got \(4, 2\)",
        vocab_size=2,
    ),
    bad(
        "rope-heads",
        mg.RoPE,
        X,
        None,
        out=X,
        error=ShapeError,
        match=r"RoPE\.head_dim: expected an even divisor of 4 columns, got 3",
        **ROTARY | {"head_dim": 3},
    ),
    bad(
        "ropegrad-heads",
        mg.RoPEGrad,
        X,
        out=X,
        error=ShapeError,
        match=r"expected an even divisor of 4 columns, got 6",
        **ROTARY | {"head_dim": 6},
    ),
    bad(
        "cachewrite-width",
        mg.CacheWrite,
        t(F32, [[1, 2, 3]]),
        CACHE,
        at(0),
        out=CACHE,
        error=ShapeError,
        match=r"new_kv: expected the elements of \(1, 2\)",
    ),
    bad(
        "cachedattention-heads",
        mg.CachedAttention,
        Q,
        K,
        V,
        at(0),
        out=Q,
        error=ShapeError,
        match=r"q: expected the elements of \(1, 4, 2\)",
        **HEADS | {"num_heads": 4},
    ),
]
