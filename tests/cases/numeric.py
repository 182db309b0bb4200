"""Rows of `ir.ops.numeric`. References: NumPy, or numbers of Burn's own interpreter and tests.

`Full`, `Pad` and the random kinds are in `numeric_fills`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import ir
from ir import BF16, BOOL, BOOL_U8, BOOL_U32, F16, F32, F64, FLEX32, I8, I16, I32, I64, U8, U16, U32, U64
from ir.dtype import DType, PlainDType
from ir.ops.records import Binary, Unary, WithDim, WithScalar
from tests.opcase import DTYPES, EQUAL, EXACT, OpCase, Typed, case, t

NAN, INF = np.nan, np.inf
FLOATS: tuple[PlainDType, ...] = (F64, F32, FLEX32, F16, BF16)
INTS: tuple[PlainDType, ...] = (I64, I32, I16, I8, U64, U32, U16, U8)
SIGNED: tuple[PlainDType, ...] = (I64, I32, I16, I8)

Reference = Callable[..., Any]


def low(dtype: DType) -> int:
    """Smallest value of an integer dtype."""
    return int(np.iinfo(DTYPES[dtype]).min)


def high(dtype: DType) -> int:
    """Largest value of an integer dtype."""
    return int(np.iinfo(DTYPES[dtype]).max)


def ints(dtype: DType, *values: int) -> Typed:
    """Exact integers, wrapped into `dtype`."""
    bits = 8 * DTYPES[dtype].itemsize
    array = np.array([v % 2**bits for v in values], f"u{bits // 8}")
    return Typed(array.view(DTYPES[dtype]), dtype)


ARITHMETIC: dict[type[Binary], tuple[type[WithScalar], Reference]] = {
    ir.Add: (ir.AddScalar, np.add),
    ir.Sub: (ir.SubScalar, np.subtract),
    ir.Mul: (ir.MulScalar, np.multiply),
}
COMPARISONS: dict[type[Binary], tuple[type[WithScalar], Reference]] = {
    ir.Greater: (ir.GreaterElem, np.greater),
    ir.GreaterEqual: (ir.GreaterEqualElem, np.greater_equal),
    ir.Lower: (ir.LowerElem, np.less),
    ir.LowerEqual: (ir.LowerEqualElem, np.less_equal),
}
LEFT = [1.5, -0.0, 0.0, INF, INF, NAN, 65504.0, -3.0]
RIGHT = [-2.25, 0.0, -0.0, INF, -INF, 1.0, 16.0, NAN]


def arithmetic() -> list[OpCase]:
    """Add, Sub, Mul with their scalar forms, in every dtype; the comparisons likewise."""
    rows: list[OpCase] = []
    for kind, (scalar_kind, function) in ARITHMETIC.items():
        name = kind.__name__.lower()
        for d in FLOATS:
            rows.append(case(f"{name}-{d.short}", kind, t(d, LEFT), t(d, RIGHT), want=function, tol=EXACT))
            rows.append(
                case(
                    f"{name}-scalar-{d.short}",
                    scalar_kind,
                    t(d, LEFT),
                    rhs=-2.5,
                    want=lambda x, f=function: f(x, -2.5),
                    tol=EXACT,
                )
            )
        for d in INTS:
            a, b = (low(d), high(d), high(d), 7, 3), (high(d), 1, high(d), 2, 5)
            want = ints(
                d, *(int(function(np.array(x, object), np.array(y, object))) for x, y in zip(a, b, strict=True))
            )
            rows.append(case(f"{name}-wraps-{d.short}", kind, ints(d, *a), ints(d, *b), want=want))
            want = ints(d, *(int(function(np.array(x, object), 300)) for x in a))
            rows.append(case(f"{name}-scalar-wraps-{d.short}", scalar_kind, ints(d, *a), rhs=300, want=want))
    for kind, (scalar_kind, function) in COMPARISONS.items():
        name = kind.__name__.lower()
        for d in FLOATS:
            rows.append(case(f"{name}-{d.short}", kind, t(d, LEFT), t(d, RIGHT), want=function, out=BOOL))
            rows.append(
                case(
                    f"{name}-elem-{d.short}",
                    scalar_kind,
                    t(d, LEFT),
                    rhs=0,
                    want=lambda x, f=function: f(x, 0),
                    out=BOOL_U8,
                )
            )
        for d in INTS:
            a, b = ints(d, low(d), high(d), 5, 5, 4), ints(d, high(d), low(d), 5, 4, 5)
            rows.append(case(f"{name}-{d.short}", kind, a, b, want=function, out=BOOL_U32))
            rows.append(
                case(f"{name}-elem-{d.short}", scalar_kind, a, rhs=5.9, want=lambda x, f=function: f(x, 5), out=BOOL)
            )
    return rows


def numbers() -> list[OpCase]:
    """Single behaviours of the elementwise kinds: broadcasts, scalars that do not fit."""
    x = t(F32, np.arange(6), (2, 1, 3))
    return [
        case("add-broadcast", ir.Add, x, t(F32, np.arange(10) * 7, (2, 5, 1)), want=np.add, tol=EXACT),
        case("add-broadcast-0-with-1", ir.Add, t(F32, [], (2, 0)), t(F32, [1, 2], (2, 1)), want=t(F32, [], (2, 0))),
        case("add-empty-rows", ir.Add, t(I32, [], (0, 3)), t(I32, [1, 2, 3], (1, 3)), want=t(I32, [], (0, 3))),
        case("add-rank-0", ir.Add, t(I8, 100), t(I8, 100), want=t(I8, -56)),
        case("lower-broadcast", ir.Lower, x, t(F32, [1, 4, 2], (1, 1, 3)), want=np.less, out=BOOL),
        case("add-scalar-i8-300-is-44", ir.AddScalar, t(I8, [1]), rhs=300, want=t(I8, [45])),
        case("add-scalar-u8-minus-1-is-255", ir.AddScalar, t(U8, [3]), rhs=-1, want=t(U8, [2])),
        case("add-scalar-int-truncates-2.7", ir.AddScalar, t(I32, [3, -3]), rhs=-2.7, want=t(I32, [1, -5])),
        case("add-scalar-f16-1e5-is-inf", ir.AddScalar, t(F16, [1]), rhs=1e5, want=t(F16, [INF])),
        case("add-scalar-f32-1e300-is-inf", ir.AddScalar, t(F32, [1]), rhs=1e300, want=t(F32, [INF])),
        case("add-scalar-f64-keeps-1e300", ir.AddScalar, t(F64, [0]), rhs=1e300, want=t(F64, [1e300]), tol=EXACT),
        case("add-scalar-u64-from-uint", ir.AddScalar, ints(U64, 1), rhs=2**64 - 2, want=ints(U64, 2**64 - 1)),
        case("add-scalar-i64-2**40", ir.AddScalar, ints(I64, 1), rhs=2**40, want=ints(I64, 2**40 + 1)),
        case("mul-scalar-bool", ir.MulScalar, t(F32, [3]), rhs=True, want=t(F32, [3])),
        case("greater-elem-i8-300-is-44", ir.GreaterElem, t(I8, [43, 44, 45]), rhs=300, want=t(BOOL, [0, 0, 1])),
        case("lower-elem-u8-minus-1-is-255", ir.LowerElem, t(U8, [254, 255]), rhs=-1, want=t(BOOL, [1, 0])),
        case("lower-elem-nan", ir.LowerElem, t(F32, [-INF, 0, NAN]), rhs=NAN, want=t(BOOL, [0, 0, 0])),
        case("greater-equal-elem-f32-of-0.1", ir.GreaterEqualElem, t(F32, [0.1]), rhs=0.1, want=t(BOOL, [1])),
    ]


QUOTIENT = (
    [1, -1, 0, 7, -7, INF, INF, 3, -3, NAN],
    [0, 0, 0, 2, 2, 2, INF, -INF, INF, 1],
    [INF, -INF, NAN, 3.5, -3.5, INF, NAN, -0.0, -0.0, NAN],
)
REMAINDER: list[tuple[float, float, float]] = [
    (7.5, -3, -1.5),
    (-7.5, 3, 1.5),
    (-3, 3, -0.0),
    (3, -3, 0.0),
    (1, INF, 1),
    (-1, INF, INF),
    (5, -INF, -INF),
    (-5, -INF, -5),
    (1, 0, NAN),
    (INF, 2, NAN),
    (NAN, 2, NAN),
    (2, NAN, NAN),
    (-1.5, 10, 8.5),
    (1.5, -10, -8.5),
    (0.0, 5, 0.0),
]


def division() -> list[OpCase]:
    """Div and Rem with their scalar forms. XLA by itself divides by one number through its reciprocal."""
    spread = [0.1, 1.0, -7.0, 300.0, 0.565]
    rows: list[OpCase] = [
        case(
            "div-scalar-of-denormal-reciprocal",
            ir.DivScalar,
            t(F32, [1e38, 3e38, -2e38]),
            rhs=2e38,
            want=lambda x: x / np.float32(2e38),
            tol=EXACT,
        ),
        *(
            case(f"div-by-one-number-{d.short}", ir.Div, t(d, spread), t(d, [-300]), want=lambda x, y: x / y, tol=EXACT)
            for d in FLOATS
        ),
        *(
            case(f"div-scalar-large-{d.short}", ir.DivScalar, t(d, spread), rhs=3e4, want=lambda x: x / 3e4, tol=EXACT)
            for d in (F64, F16)
        ),
    ]
    a, b, r = zip(*REMAINDER, strict=True)
    for d in FLOATS:
        rows += [
            case(f"div-{d.short}", ir.Div, t(d, QUOTIENT[0]), t(d, QUOTIENT[1]), want=t(d, QUOTIENT[2]), tol=EXACT),
            case(
                f"div-scalar-{d.short}",
                ir.DivScalar,
                t(d, [7, -0.0, INF]),
                rhs=-2,
                want=t(d, [-3.5, 0.0, -INF]),
                tol=EXACT,
            ),
            case(
                f"div-scalar-by-0-{d.short}",
                ir.DivScalar,
                t(d, [7, 0, -1]),
                rhs=0,
                want=t(d, [INF, NAN, -INF]),
                tol=EXACT,
            ),
            case(f"rem-{d.short}", ir.Rem, t(d, a), t(d, b), want=t(d, r), tol=EXACT),
            case(
                f"rem-scalar-{d.short}",
                ir.RemScalar,
                t(d, [1, 2, 3, 4, 5]),
                rhs=-1.5,
                want=t(d, [-0.5, -1, -0.0, -0.5, -1]),
                tol=EQUAL,
            ),
            case(f"rem-scalar-inf-{d.short}", ir.RemScalar, t(d, [2, -2]), rhs=INF, want=t(d, [2, INF]), tol=EXACT),
        ]
    for d in SIGNED:
        m = low(d)
        rows += [
            case(f"div-{d.short}", ir.Div, t(d, [-7, 7, -7, 6]), t(d, [2, -2, -2, 3]), want=t(d, [-3, -3, 3, 2])),
            case(f"div-min-by-minus-1-{d.short}", ir.Div, t(d, [m]), t(d, [-1]), want=t(d, [m])),
            case(f"div-scalar-{d.short}", ir.DivScalar, t(d, [-7, 7, m]), rhs=-2, want=t(d, [3, -3, -(m // 2)])),
            case(
                f"rem-{d.short}",
                ir.Rem,
                t(d, [-3, -2, -1, 1, 2, 3, -7, 7, m, m]),
                t(d, [2, 3, 1, 2, 1, 3, 3, -3, -1, high(d)]),
                want=t(d, [1, 1, 0, 1, 0, 0, 2, -2, 0, high(d) - 1]),
            ),
            case(
                f"rem-scalar-{d.short}", ir.RemScalar, t(d, [-3, -2, -1, 1, 2, 3]), rhs=2, want=t(d, [1, 0, 1, 1, 0, 1])
            ),
        ]
    for d in (U64, U32, U16, U8):
        m = high(d)
        rows += [
            case(f"div-{d.short}", ir.Div, ints(d, m, 7), ints(d, 2, 2), want=ints(d, m // 2, 3)),
            case(f"div-scalar-{d.short}", ir.DivScalar, ints(d, m, 7), rhs=3, want=ints(d, m // 3, 2)),
            case(f"rem-{d.short}", ir.Rem, ints(d, m, 7), ints(d, 16, m), want=ints(d, 15, 7)),
            case(f"rem-scalar-{d.short}", ir.RemScalar, ints(d, m, 7), rhs=4, want=ints(d, 3, 3)),
        ]
    rows += [
        case(
            "rem-keeps-tiny-negative", ir.RemScalar, t(F32, [-1e-20, 1e-20]), rhs=1, want=t(F32, [1, 1e-20]), tol=EXACT
        ),
        case("rem-large-quotient", ir.RemScalar, t(F32, [16777216, 2.0**100]), rhs=3, want=t(F32, [1, 1]), tol=EXACT),
        case(
            "div-broadcast",
            ir.Div,
            t(I32, [10, 21], (2, 1)),
            t(I32, [2, 3, 5], (1, 3)),
            want=t(I32, [[5, 3, 2], [10, 7, 4]]),
        ),
    ]
    return rows


POWER: list[tuple[float, float, float]] = [
    (NAN, 0, 1),
    (1, NAN, 1),
    (0, -1, INF),
    (-0.0, -1, -INF),
    (-8, 3, -512),
    (-2, -1, -0.5),
    (-2, 0.5, NAN),
    (2, -INF, 0),
    (0.5, -INF, INF),
    (-1, INF, 1),
    (NAN, 2, NAN),
    (3, 4, 81),
]
POWI_BASES = [-INF, -2.0, -0.0, 0.0, 0.5, 3.0, INF, NAN]
INT_POWER = [(-3, 3), (0, 0), (5, 0), (2, 10), (3, 40), (2, -1), (1, -1), (-1, -1), (-1, -2), (0, -1), (3, -1), (3, -7)]


def powers() -> list[OpCase]:
    """Powi and PowiScalar; an integer exponent counts as u32."""
    rows: list[OpCase] = []
    a, b, r = zip(*POWER, strict=True)
    for d in FLOATS:
        rows.append(case(f"powi-{d.short}", ir.Powi, t(d, a), t(d, b), want=t(d, r)))
        x = t(d, POWI_BASES)
        rows += [
            case(f"powi-scalar-{e}-{d.short}", ir.PowiScalar, x, rhs=e, want=lambda x, e=e: np.float_power(x, e))
            for e in (0, 1, 2, 3, 7, -1, -2, -3)
        ]
        rows.append(
            case(
                f"powi-scalar-50-{d.short}",
                ir.PowiScalar,
                t(d, [1.25, -1.25, 1, 0]),
                rhs=50,
                want=lambda x: np.float_power(x, 50),
            )
        )
    for d in INTS:
        bits = 8 * DTYPES[d].itemsize
        pairs = [(x, e) for x, e in INT_POWER if low(d) < 0 or min(x, e) >= 0]
        want = ints(d, *(pow(x, e % 2**32, 2**bits) for x, e in pairs))
        bases, exponents = zip(*pairs, strict=True)
        rows.append(case(f"powi-{d.short}", ir.Powi, ints(d, *bases), ints(d, *exponents), want=want))
        values = [v for v in (low(d), high(d), -3, 0, 1, 2, 3) if v >= low(d)]
        for e in (0, 1, 2, 5, 40, -1, -2):
            want = ints(d, *(pow(x, e % 2**32, 2**bits) for x in values))
            rows.append(case(f"powi-scalar-{e}-{d.short}", ir.PowiScalar, ints(d, *values), rhs=e, want=want))
    rows += [
        case("powi-scalar-2.5-squares", ir.PowiScalar, t(F32, [3, -2]), rhs=2.5, want=t(F32, [9, 4]), tol=EXACT),
        case("powi-scalar-0.5-gives-ones", ir.PowiScalar, t(F32, [3, NAN]), rhs=0.5, want=t(F32, [1, 1]), tol=EXACT),
        case(
            "powi-scalar-7.9-is-a-fraction",
            ir.PowiScalar,
            t(F32, [3, -2]),
            rhs=7.9,
            want=lambda x: np.float_power(x, 7.9),
        ),
        case("powi-scalar-minus-5.5", ir.PowiScalar, t(F64, [3, 4]), rhs=-5.5, want=lambda x: np.float_power(x, -5.5)),
        case("powi-scalar-int-7.9-truncates", ir.PowiScalar, t(I8, [3, 2]), rhs=7.9, want=t(I8, [-117, -128])),
        case("powi-scalar-int-2**32+3-cubes", ir.PowiScalar, t(I64, [3, 2]), rhs=2**32 + 3, want=t(I64, [27, 8])),
        case("powi-scalar-int-2.5-squares", ir.PowiScalar, t(I32, [3, -2]), rhs=2.5, want=t(I32, [9, 4])),
        case("powi-broadcast", ir.Powi, t(I32, [2, 3], (2, 1)), t(I32, [1, 3], (1, 2)), want=t(I32, [[2, 8], [3, 27]])),
        case("powi-i64-beyond-f64", ir.Powi, ints(I64, 3), ints(I64, 39), want=ints(I64, 3**39)),
    ]
    return rows


def clamps() -> list[OpCase]:
    """Clamp, ClampMin, ClampMax: NaN, crossed bounds, integer bounds outside the dtype."""
    rows: list[OpCase] = []
    for d in FLOATS:
        x = t(d, [-INF, -3, 0.5, 4, INF, NAN])
        rows += [
            case(f"clamp-{d.short}", ir.Clamp, x, min=-1, max=2.5, want=t(d, [-1, -1, 0.5, 2.5, 2.5, NAN]), tol=EXACT),
            case(f"clamp-min-{d.short}", ir.ClampMin, x, rhs=1, want=t(d, [1, 1, 1, 4, INF, NAN]), tol=EXACT),
            case(f"clamp-max-{d.short}", ir.ClampMax, x, rhs=1, want=t(d, [-INF, -3, 0.5, 1, 1, NAN]), tol=EXACT),
            case(
                f"clamp-crossed-{d.short}", ir.Clamp, t(d, [0, 1.5, 3]), min=2, max=1, want=t(d, [2, 2, 2]), tol=EXACT
            ),
            case(f"clamp-nan-low-{d.short}", ir.Clamp, t(d, [0, 3]), min=NAN, max=1, want=t(d, [NAN, NAN])),
            case(f"clamp-nan-high-{d.short}", ir.Clamp, t(d, [0, 3]), min=0, max=NAN, want=t(d, [NAN, NAN])),
            case(f"clamp-min-nan-{d.short}", ir.ClampMin, t(d, [0, 3]), rhs=NAN, want=t(d, [NAN, NAN])),
            case(f"clamp-max-nan-{d.short}", ir.ClampMax, t(d, [0, 3]), rhs=NAN, want=t(d, [NAN, NAN])),
        ]
    for d in INTS:
        x = ints(d, 0, 1, 2, 3, 4, 5)
        rows += [
            case(f"clamp-{d.short}", ir.Clamp, x, min=1, max=4, want=ints(d, 1, 1, 2, 3, 4, 4)),
            case(f"clamp-min-{d.short}", ir.ClampMin, x, rhs=3, want=ints(d, 3, 3, 3, 3, 4, 5)),
            case(f"clamp-max-{d.short}", ir.ClampMax, x, rhs=3, want=ints(d, 0, 1, 2, 3, 3, 3)),
            case(f"clamp-crossed-{d.short}", ir.Clamp, x, min=4, max=1, want=ints(d, 4, 4, 4, 4, 4, 4)),
            case(
                f"clamp-extremes-{d.short}",
                ir.Clamp,
                ints(d, low(d), high(d)),
                min=low(d) + 1,
                max=high(d) - 1,
                want=ints(d, low(d) + 1, high(d) - 1),
            ),
        ]
    x = t(I8, [-128, 0, 100, 127])
    rows += [
        case("clamp-i8-200-300-truncates-200", ir.Clamp, x, min=200, max=300, want=t(I8, [-56, -56, -56, -56])),
        case("clamp-i8-bounds-outside-is-identity", ir.Clamp, x, min=-300, max=300, want=x),
        case("clamp-max-i8-minus-300-truncates", ir.ClampMax, x, rhs=-300, want=t(I8, [-44, -44, -44, -44])),
        case("clamp-min-u8-minus-1-is-identity", ir.ClampMin, t(U8, [0, 7, 255]), rhs=-1, want=t(U8, [0, 7, 255])),
        case("clamp-max-u8-300-is-identity", ir.ClampMax, t(U8, [0, 7, 255]), rhs=300, want=t(U8, [0, 7, 255])),
        case(
            "clamp-min-u64-minus-5-is-identity",
            ir.ClampMin,
            ints(U64, 0, 2**64 - 1),
            rhs=-5,
            want=ints(U64, 0, 2**64 - 1),
        ),
        case("clamp-int-bound-truncates-2.7", ir.ClampMin, t(I32, [0, 5]), rhs=2.7, want=t(I32, [2, 5])),
        case("clamp-empty", ir.Clamp, t(F32, [], (0, 3)), min=0, max=1, want=t(F32, [], (0, 3))),
    ]
    return rows


UNARY: dict[type[Unary], tuple[list[float], list[float]]] = {
    ir.Abs: ([-INF, -1.5, -0.0, 0.0, 2, NAN], [INF, 1.5, 0.0, 0.0, 2, NAN]),
    ir.Neg: ([-INF, -1.5, -0.0, 0.0, 2, NAN], [INF, 1.5, 0.0, -0.0, -2, NAN]),
    ir.Sign: ([-INF, -1.5, -0.0, 0.0, 2, NAN, INF, -6e-5], [-1, -1, 0.0, 0.0, 1, 0.0, 1, -1]),
}


def unary() -> list[OpCase]:
    """Abs, Neg, Sign."""
    rows: list[OpCase] = []
    for kind, (values, want) in UNARY.items():
        rows += [
            case(f"{kind.__name__.lower()}-{d.short}", kind, t(d, values), want=t(d, want), tol=EXACT) for d in FLOATS
        ]
    for d in SIGNED:
        m, x = low(d), ints(d, low(d), -3, 0, 5, high(d))
        rows += [
            case(f"abs-min-stays-{d.short}", ir.Abs, x, want=ints(d, m, 3, 0, 5, high(d))),
            case(f"neg-min-stays-{d.short}", ir.Neg, x, want=ints(d, m, 3, 0, -5, m + 1)),
            case(f"sign-{d.short}", ir.Sign, x, want=ints(d, -1, -1, 0, 1, 1)),
        ]
    for d in (U64, U32, U16, U8):
        x = ints(d, 0, 1, high(d))
        rows += [
            case(f"abs-{d.short}", ir.Abs, x, want=x),
            case(f"neg-wraps-{d.short}", ir.Neg, x, want=ints(d, 0, high(d), 1)),
            case(f"sign-{d.short}", ir.Sign, x, want=ints(d, 0, 1, 1)),
        ]
    return rows


CUMULATIVE: dict[type[WithDim], Reference] = {
    ir.CumSum: np.cumsum,
    ir.CumProd: np.cumprod,
    ir.CumMin: np.minimum.accumulate,
    ir.CumMax: np.maximum.accumulate,
}


def cumulative() -> list[OpCase]:
    """Running folds: axes, dtypes, wrap-around, NaN, accumulation of halves."""
    rows: list[OpCase] = []
    values = np.array([3, -1, 2, 5, 1, -4, 2, 2, 1, 3], float)
    for kind, function in CUMULATIVE.items():
        name = kind.__name__.lower()
        for axis in (0, 1):
            rows += [
                case(
                    f"{name}-axis{axis}-{d.short}",
                    kind,
                    t(d, values, (2, 5)),
                    axis=axis,
                    want=lambda x, f=function, a=axis: f(x, axis=a),
                )
                for d in FLOATS
            ]
        for d in INTS:
            x = ints(d, high(d), 2, 3, low(d), 5, 7, 100, 3, 1, 0)
            rows.append(
                case(f"{name}-wraps-{d.short}", kind, x, axis=0, want=lambda x, f=function: f(x, axis=0, **_keep(f, x)))
            )
        rows += [
            case(f"{name}-empty-axis", kind, t(F32, [], (3, 0)), axis=1, want=t(F32, [], (3, 0))),
            case(f"{name}-empty-other-axis", kind, t(I32, [], (0, 3)), axis=1, want=t(I32, [], (0, 3))),
            case(f"{name}-one", kind, t(F32, [-7.5]), axis=0, want=t(F32, [-7.5])),
        ]
    for d in FLOATS:
        nan, x = [3, NAN, NAN, NAN], t(d, [3, NAN, 1, 2])
        rows += [
            case(f"cummin-nan-stays-{d.short}", ir.CumMin, x, axis=0, want=t(d, nan)),
            case(f"cummax-nan-stays-{d.short}", ir.CumMax, x, axis=0, want=t(d, nan)),
            case(f"cumsum-nan-stays-{d.short}", ir.CumSum, x, axis=0, want=t(d, nan)),
            case(f"cummax-leading-nan-{d.short}", ir.CumMax, t(d, [NAN, 1, 2]), axis=0, want=t(d, [NAN, NAN, NAN])),
            case(
                f"cummin-infinities-{d.short}",
                ir.CumMin,
                t(d, [INF, 2, -INF, 3]),
                axis=0,
                want=t(d, [INF, 2, -INF, -INF]),
            ),
        ]
    rows += [
        case("cumsum-i8-100-100", ir.CumSum, t(I8, [100, 100]), axis=0, want=t(I8, [100, -56])),
        # In f16 itself the sum would stop at 2048.
        case(
            "cumsum-f16-accumulates-in-f32",
            ir.CumSum,
            t(F16, np.ones(4096)),
            axis=0,
            want=lambda x: np.cumsum(x),
            tol=EXACT,
        ),
    ]
    return rows


def _keep(function: Reference, x: np.ndarray) -> dict[str, Any]:
    return {"dtype": x.dtype} if function in (np.cumsum, np.cumprod) else {}


CASES: list[OpCase] = [
    *arithmetic(),
    *numbers(),
    *division(),
    *powers(),
    *clamps(),
    *unary(),
    *cumulative(),
]
