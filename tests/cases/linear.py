"""Rows of `ir.ops.linear`. Reference: matrix products and loops in float64."""

from typing import Any

import numpy as np

import ir
from ir import BF16, F16, F32, F64, FLEX32, I8, I32, I64, U8, U64
from tests.opcase import EQUAL, EXACT, OpCase, Typed, case, t

NAN, INF = float("nan"), float("inf")


def whole(dtype: ir.DType, *shape: int, seed: int = 1) -> Typed:
    """Small whole numbers without a pattern: sums of products are exact in float32."""
    places = np.arange(int(np.prod(shape)))
    return t(dtype, (places * places * seed + places // 3) % 13 - 6, shape)


def wide(a: Any) -> np.ndarray:
    return np.asarray(a, np.float64)


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    y = (wide(x)[..., :, None] * wide(weight)).sum(-2)
    return y if bias is None else y + wide(bias)


def rows(a: np.ndarray) -> np.ndarray:
    return wide(a).reshape(-1, a.shape[-1])


def embedding_grad(weights: np.ndarray, grad: np.ndarray, indices: np.ndarray) -> np.ndarray:
    total = np.zeros(weights.shape)
    for place, index in np.ndenumerate(indices):
        if 0 <= index < len(weights):
            total[int(index)] += wide(grad[place])
    return total


def forward(id: str, x: Typed, weight: Typed, bias: Typed | None = None, want: Any = linear, tol: Any = None) -> OpCase:
    return case(f"linear-{id}", ir.Linear, x, weight, bias, want=want, tol=tol)


FORWARD = [
    forward("by_hand", t(F32, [[1, 2]]), t(F32, [[1, 2], [3, 4]]), want=t(F32, [[7, 10]])),
    forward("bias", whole(F32, 3, 5), whole(F32, 5, 2, seed=3), whole(F32, 2)),
    forward("rank_1", whole(F32, 5), whole(F32, 5, 2, seed=3), whole(F32, 2)),
    forward("rank_4", whole(F64, 2, 1, 3, 5), whole(F64, 5, 7, seed=3), whole(F64, 7)),
    forward("no_rows", t(F32, [], (0, 5)), whole(F32, 5, 2)),
    forward("no_features", t(F32, [], (3, 0)), t(F32, [], (0, 2)), whole(F32, 2)),
    forward("flex32", whole(FLEX32, 3, 5), whole(FLEX32, 5, 2)),
    forward("inf_meets_zero", t(F32, [[INF, 1]]), t(F32, [[0, 1], [2, 3]]), want=t(F32, [[NAN, INF]])),
    *(
        forward(
            f"{dtype.short}_sums_in_f32", t(dtype, np.full((1, 3001), 1)), t(dtype, np.full((3001, 1), 1)), tol=EQUAL
        )
        for dtype in (F16, BF16)
    ),
    # The sum and the bias are rounded together: 2048 + 1 and then + 1 would stay at 2048 in f16.
    forward("f16_rounds_once", t(F16, [[2048, 1]]), t(F16, [[1], [1]]), t(F16, [1]), want=t(F16, [[2050]])),
    forward("f16_beyond_range", t(F16, [[60000, 60000]]), t(F16, [[1], [1]]), want=t(F16, [[INF]])),
]

BACKWARD = [
    case(
        "linear_x_backward-by_hand",
        ir.LinearXBackward,
        t(F32, [[1, 2, 3], [4, 5, 6]]),
        t(F32, np.ones((2, 2, 3))),
        want=t(F32, [[[6, 15], [6, 15]], [[6, 15], [6, 15]]]),
    ),
    case(
        "linear_weight_backward-by_hand",
        ir.LinearWeightBackward,
        t(F32, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
        t(F32, np.ones((2, 2, 3))),
        want=t(F32, [[16, 16, 16], [20, 20, 20]]),
    ),
    case("linear_bias_backward-by_hand", ir.LinearBiasBackward, t(F32, np.ones((2, 2, 3))), want=t(F32, [4, 4, 4])),
    *(
        row
        for dtype in (F64, F32, F16, BF16)
        for row in (
            case(
                f"linear_x_backward-{dtype.short}",
                ir.LinearXBackward,
                whole(dtype, 5, 2),
                whole(dtype, 3, 1, 7, 2, seed=3),
                want=lambda w, g: linear(g, w.T),
                tol=EQUAL,
            ),
            case(
                f"linear_weight_backward-{dtype.short}",
                ir.LinearWeightBackward,
                whole(dtype, 3, 1, 7, 5),
                whole(dtype, 3, 1, 7, 2, seed=3),
                want=lambda x, g: linear(rows(x).T, rows(g)),
                tol=EQUAL,
            ),
            case(
                f"linear_bias_backward-{dtype.short}",
                ir.LinearBiasBackward,
                whole(dtype, 3, 1, 7, 2),
                want=lambda g: rows(g).sum(0),
                tol=EQUAL,
            ),
        )
    ),
    case(
        "linear_weight_backward-rank_1",
        ir.LinearWeightBackward,
        t(F32, [1, 2]),
        t(F32, [3, 5, 7]),
        want=t(F32, [[3, 5, 7], [6, 10, 14]]),
    ),
    case("linear_bias_backward-rank_1", ir.LinearBiasBackward, t(F32, [3, 5]), want=t(F32, [3, 5])),
    case(
        "linear_weight_backward-no_rows",
        ir.LinearWeightBackward,
        t(F32, [], (0, 5)),
        t(F32, [], (0, 2)),
        want=t(F32, np.zeros((5, 2))),
    ),
    case(
        "linear_bias_backward-f16_sums_in_f32",
        ir.LinearBiasBackward,
        t(F16, np.ones((3001, 1))),
        want=t(F16, [3000]),
        tol=EXACT,
    ),
]

TABLE = t(F32, [[0, 1, 2], [3, 4, 5]])
EMBEDDING = [
    case(
        "embedding-by_hand",
        ir.Embedding,
        TABLE,
        t(I64, [[0, 1], [1, 1]]),
        want=t(F32, [[[0, 1, 2], [3, 4, 5]], [[3, 4, 5], [3, 4, 5]]]),
    ),
    *(
        case(
            f"embedding-{indices.short}_indices",
            ir.Embedding,
            whole(BF16, 7, 3),
            t(indices, [[6, 0], [5, 6]]),
            want=lambda w, i: w[i.astype(int)],
            tol=EXACT,
        )
        for indices in (I8, I32, U8, U64)
    ),
    case("embedding-moves_nan", ir.Embedding, t(F32, [[NAN], [1]]), t(I64, [[1, 1]]), want=t(F32, [[[1], [1]]])),
    case("embedding-no_indices", ir.Embedding, TABLE, t(I64, [], (2, 0)), want=t(F32, [], (2, 0, 3))),
    case("embedding-no_width", ir.Embedding, t(F32, [], (2, 0)), t(I64, [[1]]), want=t(F32, [], (1, 1, 0))),
    *(
        case(
            f"embedding_backward-{dtype.short}_{indices.short}",
            ir.EmbeddingBackward,
            whole(dtype, 7, 3),
            whole(dtype, 2, 5, 3, seed=3),
            t(indices, [[6, 0, 6, 2, 6], [0, 0, 5, 6, 2]]),
            want=embedding_grad,
            tol=EQUAL,
        )
        for dtype, indices in ((F64, I64), (F32, I32), (F16, U8), (BF16, I64), (F32, U64))
    ),
    case(
        "embedding_backward-out_of_range_adds_nothing",
        ir.EmbeddingBackward,
        whole(F32, 3, 2),
        whole(F32, 1, 4, 2),
        t(I64, [[-1, 3, 1, 5_000_000_000]]),
        want=embedding_grad,
    ),
    case(
        "embedding_backward-f16_sums_in_f32",
        ir.EmbeddingBackward,
        t(F16, [[0]]),
        t(F16, np.ones((1, 3001, 1))),
        t(I64, np.zeros((1, 3001))),
        want=t(F16, [[3000]]),
        tol=EXACT,
    ),
    case(
        "embedding_backward-no_indices",
        ir.EmbeddingBackward,
        whole(F32, 3, 2),
        t(F32, [], (0, 4, 2)),
        t(I64, [], (0, 4)),
        want=t(F32, np.zeros((3, 2))),
    ),
]

CASES: list[OpCase] = FORWARD + BACKWARD + EMBEDDING
