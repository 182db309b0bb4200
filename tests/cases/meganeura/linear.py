"""Rows of `ir.meganeura.ops.linear`. References: NumPy in float64, and numbers of Meganeura's own tests."""

import numpy as np

from ir import F32
from ir.errors import ShapeError
from ir.meganeura import ops as mg
from ir.op import Op
from tests.opcase import EXACT, BadCase, OpCase, Tolerance, Typed, bad, case, t
from tests.reference.meganeura import Function, float64, waves

PRODUCTS: dict[type[Op], tuple[Function, tuple[int, ...], tuple[int, ...]]] = {
    mg.MatMul: (lambda a, b: a @ b, (2, 3), (3, 5)),
    mg.MatMulAT: (lambda a, b: a.T @ b, (3, 2), (3, 5)),
    mg.MatMulBT: (lambda a, b: a @ b.T, (2, 3), (5, 3)),
}
FUSED = {
    mg.FusedMatMulAdd: mg.MatMul,
    mg.FusedMatMulATAdd: mg.MatMulAT,
    mg.FusedMatMulBTAdd: mg.MatMulBT,
}

SUMS = Tolerance(1e-5, 1e-5)
"""Sums of 32 to 64 products of ordinary size."""


def matrices(kind: type[Op], step: float = 0.5) -> tuple[Typed, Typed]:
    """Factors of unequal sizes."""
    _, a, b = PRODUCTS[kind]
    return t(F32, waves(*a, step=step)), t(F32, waves(*b, step=step, start=1.0))


def rows() -> list[OpCase]:
    """Each product at ordinary numbers, with an infinity, and with each axis empty."""
    found: list[OpCase] = []
    for kind, (function, _, _) in PRODUCTS.items():
        name = kind.__name__.lower()
        a, b = matrices(kind)
        found.append(case(name, kind, a, b, want=float64(function)))
        inf = a.array.copy()
        inf.flat[1] = np.inf
        found.append(case(f"{name}-infinite", kind, t(F32, inf), b, want=float64(function)))
        for m, k, n in ((0, 3, 2), (2, 0, 3), (2, 3, 0)):
            a_shape = (k, m) if kind is mg.MatMulAT else (m, k)
            b_shape = (n, k) if kind is mg.MatMulBT else (k, n)
            empty = t(F32, np.ones(a_shape)), t(F32, np.ones(b_shape))
            found.append(case(f"{name}-empty-{m}-{k}-{n}", kind, *empty, want=t(F32, np.zeros((m, n)))))
    for kind, plain in FUSED.items():
        name = kind.__name__.lower()
        a, b = matrices(plain)
        d = t(F32, waves(2, 5, step=0.3))
        function = PRODUCTS[plain][0]
        want = float64(lambda a, b, d, function=function: function(a, b) + d)
        found.append(case(name, kind, a, b, d, want=want))
        tenth_a, tenth_b = (t(F32, np.full((32, 16) if turned else (16, 32), 0.1)) for turned in _turned(plain))
        ones = t(F32, np.ones((16, 16)))
        found.append(
            case(f"{name}-tenths", kind, tenth_a, tenth_b, ones, want=t(F32, np.full((16, 16), 1.32)), tol=SUMS)
        )
    return found


def _turned(kind: type[Op]) -> tuple[bool, bool]:
    """Whether a and b of a product of (16, 32) by (32, 16) are stored as (32, 16)."""
    return kind is mg.MatMulAT, kind is not mg.MatMulBT


def rms_matmul(x: np.ndarray, w_norm: np.ndarray, w_proj: np.ndarray) -> np.ndarray:
    """The norm with eps 0.01, then the product."""
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 0.01) * w_norm @ w_proj


NUMBERS = np.arange(1.0, 17)
ONES, TWO_THREE = t(F32, np.ones((2, 5))), t(F32, np.ones((2, 3)))

CASES: list[OpCase] = [
    *rows(),
    case(
        "matmul-counting",
        mg.MatMul,
        t(F32, np.tile(NUMBERS[:, None], 16)),
        t(F32, np.tile(NUMBERS, (16, 1))),
        want=t(F32, 16 * np.outer(NUMBERS, NUMBERS)),
        tol=EXACT,
    ),
    case(
        "fusedrmsnormmatmul",
        mg.FusedRmsNormMatMul,
        t(F32, waves(2, 3)),
        t(F32, [1, 0.5, 2]),
        t(F32, waves(3, 5)),
        want=float64(rms_matmul),
        eps=0.01,
    ),
    case("transpose", mg.Transpose, t(F32, [[1, 2, 3], [4, 5, 6]]), want=t(F32, [[1, 4], [2, 5], [3, 6]]), tol=EXACT),
    case("transpose-empty", mg.Transpose, t(F32, [], (0, 3)), want=t(F32, [], (3, 0))),
]

BAD_CASES: list[BadCase] = [
    bad(
        "matmul-inner", mg.MatMul, TWO_THREE, ONES, out=ONES, error=ShapeError, match="MatMul: expected 3 along axis 0"
    ),
    bad(
        "matmulat-inner", mg.MatMulAT, ONES, t(F32, np.ones((3, 5))), out=ONES, error=ShapeError, match="expected 2 al"
    ),
    bad("matmulbt-inner", mg.MatMulBT, TWO_THREE, ONES, out=ONES, error=ShapeError, match="expected 3 along axis 1"),
    bad("matmul-flat", mg.MatMul, t(F32, [1, 2]), ONES, out=ONES, error=ShapeError, match="expected two axes"),
    *(
        bad(
            f"{kind.__name__.lower()}-row", kind, *matrices(plain), t(F32, [1] * 5), out=ONES, error=ShapeError, match=m
        )
        for (kind, plain), m in zip(FUSED.items(), [rf"{k.__name__}\.d: expected the elem" for k in FUSED], strict=True)
    ),
    bad(
        "fusedrmsnormmatmul-weight",
        mg.FusedRmsNormMatMul,
        TWO_THREE,
        t(F32, [1] * 2),
        t(F32, np.ones((3, 5))),
        out=ONES,
        error=ShapeError,
        match=r"w_norm: expected the elements of \(1, 3\)",
        eps=1e-5,
    ),
    bad(
        "transpose-flat", mg.Transpose, t(F32, [1, 2]), out=t(F32, [1, 2]), error=ShapeError, match=r"Transpose\.x: exp"
    ),
]
