"""Rows of `ir.ops.activation`. References: the formula in float64 with SciPy, and numbers of Burn's own tests."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

import ir
from ir import BF16, F16, F32, F64, FLEX32
from ir.dtype import PlainDType
from ir.ops.records import Binary, Unary, WithDim
from tests.opcase import EXACT, OpCase, Tolerance, case, t

NAN, INF = np.nan, np.inf
FLOATS: tuple[PlainDType, ...] = (F64, F32, FLEX32, F16, BF16)
Reference = Callable[..., Any]


def wide(function: Reference) -> Reference:
    """A reference on arrays that go through float64, whatever their dtype."""
    return lambda *arrays: function(*(np.asarray(a, np.float64) for a in arrays))


def density(x: np.ndarray) -> np.ndarray:
    """The normal density."""
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Logarithm of softmax, shifted by the maximum."""
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Softmax, shifted by the maximum."""
    return np.exp(log_softmax(x, axis))


UNARY: dict[type[Unary], tuple[Reference, list[float]]] = {
    ir.Relu: (lambda x: np.where(x <= 0, 0, x), [-INF, -2, -0.0, 0, 0.5, 3, INF, NAN]),
    ir.Gelu: (lambda x: x * special.ndtr(x), [-3, -0.5, -0.0, 0, 0.5447, 2, 7, INF, NAN]),
    ir.Sigmoid: (special.expit, [-INF, -3, -0.0, 0.5, 4, INF, NAN]),
    ir.LogSigmoid: (special.log_expit, [-300, -3, -0.0, 0.5, 7, INF, NAN]),
}

BINARY: dict[type[Binary], tuple[Reference, list[float], list[float]]] = {
    ir.ReluBackward: (lambda out, g: np.where(out <= 0, 0, g), [0, -0.0, 2, 3, NAN, INF, 0], [5, 6, 7, -8, 9, 2, NAN]),
    ir.PRelu: (lambda x, a: np.where(x < 0, a * x, x), [-1.1, 0, 1.2, 0.25, -5.4, NAN], [0.5, 0.25, 0, -0.8, -0.4, 1]),
    ir.GeluBackward: (
        lambda x, g: g * (special.ndtr(x) + x * density(x)),
        [-3, -0.5, 0, 0.5, 2, 9],
        [1, 2, -3, 1, 2, 1],
    ),
    ir.SigmoidBackward: (lambda s, g: g * s * (1 - s), [0, 0.25, 0.5, 0.75, 1, NAN], [1, 2, -3, 4, 5, 1]),
    ir.LogSigmoidBackward: (lambda x, g: g * special.expit(-x), [-300, -2, 0, 3, 200], [1, 2, -3, 4, 1]),
}

DIM: dict[type[WithDim], Callable[[np.ndarray, int], np.ndarray]] = {
    ir.Softmax: softmax,
    ir.LogSoftmax: log_softmax,
    ir.Softmin: lambda x, axis: softmax(-x, axis),
}


def elementwise_rows() -> list[OpCase]:
    """Each elementwise kind in each dtype, at its edges, broadcast, and empty."""
    rows: list[OpCase] = []
    for kind, (function, values) in UNARY.items():
        name = kind.__name__.lower()
        rows += [case(f"{name}-{d.short}", kind, t(d, values), want=wide(function)) for d in FLOATS]
        rows.append(case(f"{name}-empty", kind, t(F32, [], (2, 0)), want=t(F32, [], (2, 0))))
    for kind, (function, left, right) in BINARY.items():
        name = kind.__name__.lower()
        rows += [case(f"{name}-{d.short}", kind, t(d, left), t(d, right), want=wide(function)) for d in FLOATS]
        column, row = t(F32, [[-0.5], [0.5]]), t(F32, [[0.25, -2, 1]])
        rows.append(case(f"{name}-broadcast", kind, column, row, want=wide(function)))
        rows.append(case(f"{name}-empty", kind, t(F32, [], (0, 3)), t(F32, [], (0, 3)), want=t(F32, [], (0, 3))))
    return rows


def scalar_rows() -> list[OpCase]:
    """Kinds with scalars, which are rounded to the dtype of the tensor before they are used."""
    rows: list[OpCase] = []
    for d in FLOATS:
        leaky = t(d, [0, -0.01, 2, -0.04, NAN])
        rows.append(case(f"leakyrelu-{d.short}", ir.LeakyRelu, t(d, [0, -1, 2, -4, NAN]), want=leaky, rhs=0.01))
        hard = t(d, [0.7, 1, 1, 0, 1, 0, NAN])
        values = t(d, [1, 7, 13, -3, INF, -INF, NAN])
        rows.append(case(f"hardsigmoid-{d.short}", ir.HardSigmoid, values, want=hard, alpha=0.2, beta=0.5))
    return [
        *rows,
        case("leakyrelu-slope-0", ir.LeakyRelu, t(F32, [-2, 3]), want=t(F32, [-0.0, 3]), rhs=0, tol=EXACT),
        case("leakyrelu-negative-slope", ir.LeakyRelu, t(F32, [-2, 3]), want=t(F32, [1, 3]), rhs=-0.5),
        case("leakyrelu-empty", ir.LeakyRelu, t(F32, [], (0, 2)), want=t(F32, [], (0, 2)), rhs=0.5),
        case("leakyrelu-f16-slope-rounds-first", ir.LeakyRelu, t(F16, [-2000]), want=t(F16, [-0.0999755859375 * 2000]),
             rhs=0.1, tol=EXACT),
        case("hardsigmoid-f16-rounds-once", ir.HardSigmoid, t(F16, [1025]), want=t(F16, [2**-10]), alpha=1 + 2**-10,
             beta=-1026, tol=EXACT),
        case("hardsigmoid-zero-alpha", ir.HardSigmoid, t(F32, [3, -3]), want=t(F32, [0.5, 0.5]), alpha=0, beta=0.5),
        case("hardsigmoid-empty", ir.HardSigmoid, t(F32, [], (0, 2)), want=t(F32, [], (0, 2)), alpha=1, beta=0),
    ]  # fmt: skip


def dim_rows() -> list[OpCase]:
    """Softmax and its kin: every dtype, every axis, lines without a finite value."""
    values = np.sin(np.arange(2 * 3 * 5) * 1.7) * 4
    rows: list[OpCase] = []
    for kind, function in DIM.items():
        name = kind.__name__.lower()
        rows += [
            case(f"{name}-{d.short}", kind, t(d, values, (2, 3, 5)), want=wide(lambda x, f=function: f(x, 2)), axis=2)
            for d in FLOATS
        ]
        rows += [
            case(f"{name}-axis{axis}", kind, t(F32, values, (2, 3, 5)),
                 want=wide(lambda x, f=function, a=axis: f(x, a)), axis=axis)
            for axis in (0, 1)
        ]  # fmt: skip
        sign = -1 if kind is ir.Softmin else 1
        lines = [[-INF * sign] * 3, [INF * sign, 0, 1], [NAN, 0, 1], [0, 0, 0], [0, -INF * sign, 0]]
        flat, half = (np.log(1 / 3), np.log(0.5)) if kind is ir.LogSoftmax else (1 / 3, 0.5)
        none = -INF if kind is ir.LogSoftmax else 0
        wanted = [[NAN] * 3, [NAN] * 3, [NAN] * 3, [flat] * 3, [half, none, half]]
        rows.append(case(f"{name}-no-finite-value", kind, t(F32, lines), want=t(F32, wanted), axis=1))
        huge = t(F32, [[1e30 * sign, 0], [1e4 * sign, 1e4 * sign]])
        one, zero, same = (0, -1e30, np.log(0.5)) if kind is ir.LogSoftmax else (1, 0, 0.5)
        rows.append(case(f"{name}-huge", kind, huge, want=t(F32, [[one, zero], [same, same]]), axis=1))
        rows.append(case(f"{name}-empty-batch", kind, t(F32, [], (0, 3)), want=t(F32, [], (0, 3)), axis=1))
        rows.append(case(f"{name}-empty-axis", kind, t(F32, [], (3, 0)), want=t(F32, [], (3, 0)), axis=1))
        rows.append(case(f"{name}-axis-of-1", kind, t(F32, [[3], [-4]]),
                         want=t(F32, [[0], [0]] if kind is ir.LogSoftmax else [[1], [1]]), axis=1))  # fmt: skip
    long = np.full((1, 2500), 0.5)
    return [
        *rows,
        case("softmax-f16-in-f32", ir.Softmax, t(F16, long), want=wide(lambda x: softmax(x, 1)), axis=1),
        case(
            "logsoftmax-bf16-sums-in-f32", ir.LogSoftmax, t(BF16, long), want=wide(lambda x: log_softmax(x, 1)), axis=1
        ),
    ]


def written_rows() -> list[OpCase]:
    """Numbers of Burn's tests, and values where an obvious formula loses digits."""
    big = 3.4e38
    return [
        case("gelu-burn", ir.Gelu, t(F32, [0.5447]), want=t(F32, [0.38511]), tol=Tolerance(2e-5, 0)),
        case("gelu-is-not-tanh", ir.Gelu, t(F64, [2.0]), want=t(F64, [2 * special.ndtr(2.0)])),
        case("gelu-lower-tail", ir.Gelu, t(F32, [-6, -9]), want=wide(lambda x: x * special.ndtr(x)),
             tol=Tolerance(1e-5, 0)),
        case("gelubackward-is-exact-not-tanh", ir.GeluBackward, t(F64, [0.7]), t(F64, [1]),
             want=wide(lambda x, g: g * (special.ndtr(x) + x * density(x)))),
        case("gelubackward-huge", ir.GeluBackward, t(F32, [big, -big]), t(F32, [2, 2]), want=t(F32, [2, 0])),
        case("sigmoid-huge", ir.Sigmoid, t(F32, [big, -big]), want=t(F32, [1, 0]), tol=EXACT),
        case("logsigmoid-burn", ir.LogSigmoid, t(F32, [7, -300]), want=t(F32, [-9.114665e-4, -300])),
        case("logsigmoid-huge", ir.LogSigmoid, t(F32, [big, -big]), want=t(F32, [0, -big])),
        case("logsigmoidbackward-end", ir.LogSigmoidBackward, t(F32, [-300, 200]), t(F32, [1, 1]), want=t(F32, [1, 0])),
        case("prelu-burn", ir.PRelu, t(F32, [[-1.1, 0, 1.2, 0.25, -5.4]]), t(F32, [[0.5, 0.25, 0, -0.8, -0.4]]),
             want=t(F32, [[-0.55, 0, 1.2, 0.25, 2.16]])),
        case("prelu-channels", ir.PRelu, t(F32, [[[-1, 2], [-3, -4]]]), t(F32, [[[0.5], [0.1]]]),
             want=t(F32, [[[-0.5, 2], [-0.3, -0.4]]])),
        case("relu-minus-zero-is-zero", ir.Relu, t(F32, [-0.0]), want=t(F32, [0.0]), tol=EXACT),
        case("relubackward-nan-output", ir.ReluBackward, t(F32, [NAN]), t(F32, [3]), want=t(F32, [3]), tol=EXACT),
        case("softmax-burn-masked", ir.Softmax, t(F32, [[0, -1e4, -1e4], [0, 0, -1e4]]),
             want=t(F32, [[1, 0, 0], [0.5, 0.5, 0]]), axis=1),
    ]  # fmt: skip


def rows() -> list[OpCase]:
    """The whole table; NumPy has nothing to say about infinities that are wanted."""
    with np.errstate(all="ignore"):
        return [*elementwise_rows(), *scalar_rows(), *dim_rows(), *written_rows()]


CASES: list[OpCase] = rows()
