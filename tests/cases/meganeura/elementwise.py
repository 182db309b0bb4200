"""Rows of `ir.meganeura.ops.elementwise`. References: the formulas in float64."""

from collections.abc import Callable

import numpy as np

from ir import F32
from ir.errors import ShapeError
from ir.meganeura import ops as mg
from ir.op import Op
from tests.opcase import EXACT, BadCase, OpCase, bad, case, t
from tests.reference.meganeura import dsilu, float64, gelu_tanh, logistic, silu

NAN, INF = np.nan, np.inf
Function = Callable[..., np.ndarray]

UNARY: dict[type[Op], tuple[Function, list[float]]] = {
    mg.Relu: (lambda x: np.where(x <= 0, 0, x), [-INF, -2, -0.0, 0, 0.5, 3, INF, NAN]),
    mg.Sigmoid: (logistic, [-INF, -90, -3, -0.0, 0.5, 4, INF, NAN]),
    mg.Tanh: (np.tanh, [-INF, -3, -1e-5, 0, 0.5, 9, INF, NAN]),
    mg.Neg: (lambda x: -x, [-INF, -2, -0.0, 0, 0.5, NAN]),
    mg.Abs: (np.abs, [-INF, -2, -0.0, 0, 0.5, NAN]),
    mg.Log: (np.log, [0, -0.0, 1e-30, 1, 2.5, 1e30, INF, -1, NAN]),
    mg.Recip: (lambda x: 1 / x, [-INF, -2, -0.0, 0, 0.5, 1e30, INF, NAN]),
    mg.Silu: (silu, [-90, -3, -0.0, 0.5, 4, INF, NAN]),
    mg.Gelu: (gelu_tanh, [-30, -3, -1, -0.0, 0, 0.5, 1, 2, 30, NAN]),
}

BINARY: dict[type[Op], tuple[Function, list[float], list[float]]] = {
    mg.Add: (np.add, [1, -0.0, INF, INF, NAN, 3e38], [2, -0.0, 1, -INF, 1, 3e38]),
    mg.Mul: (np.multiply, [1, -0.0, INF, 0, NAN, 3e38], [2, 5, -1, INF, 1, 3e38]),
    mg.Greater: (lambda a, b: a > b, [1, 2, 2, -0.0, 0, NAN, 1, INF], [2, 1, 2, 0, -0.0, 1, NAN, INF]),
    mg.SwiGLU: (lambda g, u: silu(g) * u, [-90, -3, 0, 0.5, 4, NAN], [1, 2, -3, 0.25, -2, 1]),
    mg.SwiGLUGradUp: (lambda go, g: go * silu(g), [1, 2, -3, 0.25, -2, 1], [-90, -3, 0, 0.5, 4, NAN]),
    mg.SiluGrad: (lambda go, x: go * dsilu(x), [1, 2, -3, 0.25, -2, 1], [-90, -3, 0, 0.5, 4, NAN]),
}
MOVES = {mg.Relu, mg.Neg, mg.Abs, mg.Greater, mg.Recip, mg.Add, mg.Mul}
"""Kinds whose result IEEE fixes."""


def rows() -> list[OpCase]:
    """Each kind of one or two operands at its edges, in two dimensions, and empty."""
    found: list[OpCase] = []
    for kind, (function, values) in UNARY.items():
        name, tol = kind.__name__.lower(), EXACT if kind in MOVES else None
        found.append(case(f"{name}-edges", kind, t(F32, values), want=float64(function), tol=tol))
        found.append(case(f"{name}-matrix", kind, t(F32, [[0.5, 2], [3, 0.25], [1, 7]]), want=float64(function)))
        found.append(case(f"{name}-empty", kind, t(F32, [], (3, 0)), want=t(F32, [], (3, 0))))
    for kind, (function, left, right) in BINARY.items():
        name, tol = kind.__name__.lower(), EXACT if kind in MOVES else None
        found.append(case(f"{name}-edges", kind, t(F32, left), t(F32, right), want=float64(function), tol=tol))
        matrices = t(F32, [[0.5, 2, 3], [-3, 0.25, 1]]), t(F32, [[1, -2, 5], [0.5, 0.25, 7]])
        found.append(case(f"{name}-matrix", kind, *matrices, want=float64(function)))
        empty = t(F32, [], (0, 3))
        found.append(case(f"{name}-empty", kind, empty, empty, want=empty))
    return found


MATRIX = t(F32, [[1, 2, 3], [4, 5, 6]])

CASES: list[OpCase] = [
    *rows(),
    case("gelu-tanh-not-erf", mg.Gelu, t(F32, [1, -1, -2]), want=t(F32, [0.84119199, -0.15880801, -0.04540229])),
    case("biasadd-row", mg.BiasAdd, MATRIX, t(F32, [10, 20, 30]), want=t(F32, [[11, 22, 33], [14, 25, 36]])),
    case("biasadd-1xn", mg.BiasAdd, MATRIX, t(F32, [[10, 20, 30]]), want=t(F32, [[11, 22, 33], [14, 25, 36]])),
    case("biasadd-modulo", mg.BiasAdd, MATRIX, t(F32, [10, 20, 30, 40]), want=t(F32, [[11, 22, 33], [44, 15, 26]])),
    case("biasadd-longer-than-a", mg.BiasAdd, t(F32, [1, 2]), t(F32, [10, 20, 30]), want=t(F32, [11, 22])),
    case("biasadd-empty", mg.BiasAdd, t(F32, [], (0, 3)), t(F32, [1, 2, 3]), want=t(F32, [], (0, 3))),
    case("biasadd-no-columns", mg.BiasAdd, t(F32, [], (2, 0)), t(F32, []), want=t(F32, [], (2, 0))),
    case("add-flat-and-matrix", mg.Add, MATRIX, t(F32, [1] * 6), want=t(F32, [[2, 3, 4], [5, 6, 7]])),
    case("swigluconcat", mg.SwiGLUConcat, t(F32, [[1, -1, 2, 3]]), want=t(F32, [[1.4621172, -0.8068243]])),
    case(
        "swigluconcat-rows",
        mg.SwiGLUConcat,
        t(F32, [[0.5, -2, 3, 1], [NAN, 0, 1, 5], [-90, 1, 2, -2]]),
        want=float64(lambda x: silu(x[:, :2]) * x[:, 2:]),
    ),
    case("swigluconcat-empty", mg.SwiGLUConcat, t(F32, [], (0, 6)), want=t(F32, [], (0, 3))),
    case(
        "swigluconcatgrad",
        mg.SwiGLUConcatGrad,
        t(F32, [[1, 2]]),
        t(F32, [[1, -1, 2, 3]]),
        want=t(F32, [[1.8553416, 0.4339773, 0.7310586, -0.5378828]]),
    ),
    case(
        "swigluconcatgrad-empty",
        mg.SwiGLUConcatGrad,
        t(F32, [], (0, 3)),
        t(F32, [], (0, 6)),
        want=t(F32, [], (0, 6)),
    ),
    case(
        "swiglugradgate-edges",
        mg.SwiGLUGradGate,
        t(F32, [1, 2, -3, 0.25, -2, 1]),
        t(F32, [-90, -3, 0, 0.5, 4, NAN]),
        t(F32, [3, -2, 5, 0.5, 1, 1]),
        want=float64(lambda go, gate, up: go * up * dsilu(gate)),
    ),
    case("swiglugradgate-empty", mg.SwiGLUGradGate, *[t(F32, [], (0, 2))] * 3, want=t(F32, [], (0, 2))),
]

FIVE, SIX, OUT = t(F32, [0] * 5), t(F32, np.zeros((2, 3))), t(F32, np.zeros((2, 3)))

BAD_CASES: list[BadCase] = [
    *(
        bad(f"{kind.__name__.lower()}-size", kind, SIX, FIVE, out=OUT, error=ShapeError, match=match)
        for kind, match in (
            (mg.Add, r"Add\.b: expected the elements of \(2, 3\), got 5"),
            (mg.Mul, r"Mul\.b: expected the elements of \(2, 3\), got 5"),
            (mg.Greater, r"Greater\.b: expected the elements of \(2, 3\), got 5"),
            (mg.SwiGLU, r"SwiGLU\.up: expected the elements of \(2, 3\), got 5"),
            (mg.SwiGLUGradUp, r"SwiGLUGradUp\.gate: expected the elements of \(2, 3\), got 5"),
            (mg.SiluGrad, r"SiluGrad\.x: expected the elements of \(2, 3\), got 5"),
        )
    ),
    *(
        bad(f"{kind.__name__.lower()}-out", kind, SIX, out=FIVE, error=ShapeError, match=r"out: declared shape \(5,\)")
        for kind in UNARY
    ),
    bad("biasadd-none", mg.BiasAdd, SIX, t(F32, []), out=OUT, error=ShapeError, match="at least one element"),
    bad("swigluconcat-odd", mg.SwiGLUConcat, SIX, out=OUT, error=ShapeError, match="expected an even number of col"),
    bad("swigluconcat-flat", mg.SwiGLUConcat, FIVE, out=FIVE, error=ShapeError, match=r"x: expected two axes, got"),
    bad("swigluconcatgrad-odd", mg.SwiGLUConcatGrad, OUT, SIX, out=SIX, error=ShapeError, match="expected an even"),
    bad(
        "swiglugradgate-up",
        mg.SwiGLUGradGate,
        SIX,
        SIX,
        FIVE,
        out=OUT,
        error=ShapeError,
        match=r"SwiGLUGradGate\.up: expected the elements of \(2, 3\)",
    ),
]
