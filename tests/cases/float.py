"""Rows of `ir.ops.float`. References: NumPy and SciPy in float64, or numbers of Burn's own tests."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

import ir
from ir import BF16, BOOL, BOOL_U8, BOOL_U32, F16, F32, F64, FLEX32, I8, I16, I32, I64, U8, U16, U32, U64
from ir.dtype import DType, PlainDType
from ir.ops.records import Unary
from tests.opcase import DTYPES, EXACT, OpCase, Typed, case, t

NAN, INF = np.nan, np.inf
FLOATS: tuple[PlainDType, ...] = (F64, F32, FLEX32, F16, BF16)
INTS: tuple[PlainDType, ...] = (I64, I32, I16, I8, U64, U32, U16, U8)

Reference = Callable[..., Any]


def wide(function: Reference) -> Reference:
    """A reference on arrays that go through float64, whatever their dtype."""
    return lambda *arrays: function(*(np.asarray(a, np.float64) for a in arrays))


UNARY: dict[type[Unary], tuple[Reference, list[float]]] = {
    ir.Exp: (np.exp, [-INF, -2.5, -0.0, 0.5, 3, INF, NAN]),
    ir.Log: (np.log, [-1, -0.0, 0, 0.25, 1, 7, INF, NAN, -INF]),
    ir.Log1p: (np.log1p, [-2, -1, -0.5, -0.0, 0.001, 6, INF, NAN]),
    ir.Erf: (special.erf, [-INF, -5, -0.056, -0.0, 0.5, 1, 5, INF, NAN]),
    ir.Sqrt: (np.sqrt, [-1, -0.0, 0, 2, 9, INF, NAN]),
    ir.Recip: (np.reciprocal, [-INF, -4, -0.0, 0, 0.3, INF, NAN]),
    ir.Sin: (np.sin, [-INF, -2, -0.0, 0.5, 3, 11, INF, NAN]),
    ir.Cos: (np.cos, [-INF, -2, -0.0, 0.5, 3, 11, INF, NAN]),
    ir.Tan: (np.tan, [-INF, -2, -0.0, 0.5, 3, 11, INF, NAN]),
    ir.Sinh: (np.sinh, [-INF, -2, -0.0, 0.001, 0.5, 5, INF, NAN]),
    ir.Cosh: (np.cosh, [-INF, -2, -0.0, 0.5, 5, INF, NAN]),
    ir.Tanh: (np.tanh, [-INF, -20, -2, -0.0, 0.001, 0.5, INF, NAN]),
    ir.ArcSin: (np.arcsin, [-INF, -1.5, -1, -0.3, -0.0, 0.7, 1, 2, NAN]),
    ir.ArcCos: (np.arccos, [-INF, -1.5, -1, -0.3, -0.0, 0.7, 1, 2, NAN]),
    ir.ArcTan: (np.arctan, [-INF, -3, -0.0, 0.5, 11, INF, NAN]),
    ir.ArcSinh: (np.arcsinh, [-INF, -3, -0.0, 0.001, 2, 11, INF, NAN]),
    ir.ArcCosh: (np.arccosh, [-INF, -1, 0, 0.5, 1, 2, 11, INF, NAN]),
    ir.ArcTanh: (np.arctanh, [-INF, -2, -1, -0.5, -0.0, 0.25, 1, 3, NAN]),
    ir.Floor: (np.floor, [-INF, -1.5, -0.5, -0.0, 0.5, 2, INF, NAN]),
    ir.Ceil: (np.ceil, [-INF, -1.5, -0.5, -0.0, 0.5, 2, INF, NAN]),
    ir.Trunc: (np.trunc, [-INF, -1.5, -0.5, -0.0, 0.5, 2.75, INF, NAN]),
    ir.Round: (np.round, [-INF, -1.5, -0.0, 0.5, 1.5, 2.5, 3.5, 4.5, INF, NAN]),
}

POW: list[tuple[float, float, float]] = [
    (NAN, 0, 1),
    (0, 0, 1),
    (1, NAN, 1),
    (1, INF, 1),
    (0, -1, INF),
    (-0.0, -1, -INF),
    (-8, 3, -512),
    (-2, -1, -0.5),
    (-8, 0.5, NAN),
    (2, -INF, 0),
    (0.5, -INF, INF),
    (-1, INF, 1),
    (-1, -INF, 1),
    (0, 0.5, 0),
    (-0.0, 0.5, 0),
    (-INF, 0.5, INF),
    (NAN, 2, NAN),
    (3, NAN, NAN),
    (INF, -2, 0),
]

ARCTAN2: list[tuple[float, float, float]] = [
    (0, -1, np.pi),
    (-0.0, -1, -np.pi),
    (0, 0, 0),
    (-0.0, 0, -0.0),
    (0, -0.0, np.pi),
    (-0.0, -0.0, -np.pi),
    (INF, INF, np.pi / 4),
    (INF, -INF, 3 * np.pi / 4),
    (1, 0, np.pi / 2),
    (-1, 0, -np.pi / 2),
    (NAN, 1, NAN),
    (1, NAN, NAN),
]

SATURATION = [NAN, INF, -INF, 300.7, -300.7, 2.9, -1.9, 0.5, -0.5, -0.0, 3e4, -3e4]


def column(table: list[tuple[float, ...]], place: int) -> list[float]:
    """One column of a table of values."""
    return [row[place] for row in table]


def saturated(values: Typed, dtype: DType) -> Typed:
    """Floats as ints in exact arithmetic: truncated, then held within the dtype; NaN gives 0."""
    info = np.iinfo(DTYPES[dtype])

    def convert(x: float) -> int:
        if np.isnan(x):
            return 0
        if np.isinf(x):
            return info.max if x > 0 else info.min
        return min(max(int(x), info.min), info.max)

    return t(dtype, np.array([convert(float(x)) for x in values.array], DTYPES[dtype]))


def exact_matmul(dtype: DType, lhs: Any, rhs: Any) -> Typed:
    """A product of integer matrices in Python ints, wrapped into `dtype`."""
    product = np.matmul(np.array(lhs, object), np.array(rhs, object))
    bits = DTYPES[dtype].itemsize * 8
    wrapped = np.array([int(x) % 2**bits for x in product.flat], np.uint64).astype(f"u{bits // 8}")
    return Typed(wrapped.view(DTYPES[dtype]).reshape(product.shape), dtype)


def unary_rows() -> list[OpCase]:
    """Each function of one float in each dtype, at its edges; halves are rounded once from f32."""
    rows: list[OpCase] = []
    for kind, (function, values) in UNARY.items():
        name = kind.__name__.lower()
        rows += [case(f"{name}-{d.short}", kind, t(d, values), want=wide(function)) for d in FLOATS]
        rows.append(case(f"{name}-empty", kind, t(F32, np.zeros((2, 0, 3))), want=t(F32, np.zeros((2, 0, 3)))))
        rows.append(case(f"{name}-rank-0", kind, t(F32, 1.0, ()), want=wide(function)))
    return rows


def predicate_rows() -> list[OpCase]:
    """`IsNan` and `IsInf`, into each bool store."""
    values = [NAN, -NAN, INF, -INF, 0, -0.0, 1]
    rows: list[OpCase] = []
    for d in FLOATS:
        rows.append(case(f"isnan-{d.short}", ir.IsNan, t(d, values), want=t(BOOL, [1, 1, 0, 0, 0, 0, 0])))
        rows.append(case(f"isinf-{d.short}", ir.IsInf, t(d, values), want=t(BOOL, [0, 0, 1, 1, 0, 0, 0])))
    payload = np.array([0x7F800001, 0xFFC12345, 0x7F800000], np.uint32).view(np.float32)
    for store in (BOOL_U8, BOOL_U32):
        rows.append(
            case(f"isnan-payload-{store.short}", ir.IsNan, Typed(payload, F32), want=t(store, [True, True, False]))
        )
        rows.append(
            case(f"isinf-payload-{store.short}", ir.IsInf, Typed(payload, F32), want=t(store, [False, False, True]))
        )
    return rows


def binary_rows() -> list[OpCase]:
    """Powers, angles and hypotenuses: the tables of IEEE, broadcasting, halves."""
    rows: list[OpCase] = []
    for d in FLOATS:
        base, exponent, power = (t(d, column(POW, n)) for n in range(3))
        y, x, angle = (t(d, column(ARCTAN2, n)) for n in range(3))
        rows.append(case(f"powf-table-{d.short}", ir.Powf, base, exponent, want=power))
        rows.append(case(f"arctan2-table-{d.short}", ir.ArcTan2, y, x, want=angle))
        for n, (b, e, want) in enumerate(POW):
            if d in (F32, F16):
                rows.append(
                    case(f"powfscalar-{n}-{d.short}", ir.PowfScalar, t(d, [b]), want=t(d, [want]), rhs=float(e))
                )
        sides = [3, INF, -INF, 0, 1.5], [4, NAN, 2, -0.0, 0.25]
        hypotenuse = [5, INF, INF, 0, np.hypot(1.5, 0.25)]
        rows.append(case(f"hypot-{d.short}", ir.Hypot, t(d, sides[0]), t(d, sides[1]), want=t(d, hypotenuse)))
        rows.append(case(f"powfscalar-{d.short}", ir.PowfScalar, t(d, [0, 1, 2]), want=t(d, [0, 1, 2**0.71]), rhs=0.71))
    return [
        *rows,
        case("powf-burn", ir.Powf, t(F32, [2, 3, 4, 5]), t(F32, [-0.45, -0.24, -0.5, -0.6]),
             want=wide(np.power)),
        case("powf-broadcast", ir.Powf, t(F32, [[1], [2]]), t(F32, [[0, 3, 0.5]]),
             want=t(F32, [[1, 1, 1], [1, 8, np.sqrt(2)]])),
        case("powfscalar-int-exponent", ir.PowfScalar, t(F32, [-3, 2]), want=t(F32, [-27, 8]), rhs=3),
        case("powfscalar-exponent-above-f32", ir.PowfScalar, t(F32, [0.5, 1, 2]), want=t(F32, [0, 1, INF]), rhs=1e300),
        case("powfscalar-f16-exponent-rounds-first", ir.PowfScalar, t(F16, [1024]), rhs=1.0002, want=t(F16, [1024]),
             tol=EXACT),
        case("arctan2-broadcast", ir.ArcTan2, t(F32, [[1], [-2]]), t(F32, [[3, -0.5, 0]]), want=wide(np.arctan2)),
        case("hypot-broadcast", ir.Hypot, t(F32, [[3, 4, 5]]), t(F32, [[4], [3]]), want=wide(np.hypot)),
        case("hypot-no-overflow", ir.Hypot, t(F32, [3e38, 1e30, 1e-30]), t(F32, [3e38, 1e30, 1e-30]),
             want=t(F32, [INF, 1e30 * np.sqrt(2), 1e-30 * np.sqrt(2)])),
        case("hypot-no-overflow-f64", ir.Hypot, t(F64, [1e300, 1e-300]), t(F64, [1e300, 1e-300]),
             want=t(F64, [1e300 * np.sqrt(2), 1e-300 * np.sqrt(2)])),
        case("hypot-f16-squares-in-f32", ir.Hypot, t(F16, [300]), t(F16, [400]), want=t(F16, [500]), tol=EXACT),
        case("hypot-empty", ir.Hypot, t(F32, [], (0, 1)), t(F32, [[1, 2, 3]]), want=t(F32, [], (0, 3))),
    ]  # fmt: skip


def huge_rows() -> list[OpCase]:
    """Arguments near the end of the range, where a formula by the book overflows."""
    rows: list[OpCase] = []
    for d, big in ((F32, 3e38), (F64, 1e308)):
        rows += [
            case(f"arccosh-huge-{d.short}", ir.ArcCosh, t(d, [big, 1e20]), want=wide(np.arccosh)),
            case(f"arcsinh-huge-{d.short}", ir.ArcSinh, t(d, [big, -big, 1e20]), want=wide(np.arcsinh)),
            case(f"arctan-huge-{d.short}", ir.ArcTan, t(d, [big, -big]), want=wide(np.arctan)),
            case(f"erf-huge-{d.short}", ir.Erf, t(d, [big, -big]), want=t(d, [1, -1]), tol=EXACT),
            case(f"tanh-huge-{d.short}", ir.Tanh, t(d, [big, -big]), want=t(d, [1, -1]), tol=EXACT),
            case(f"round-huge-{d.short}", ir.Round, t(d, [big, -big]), want=t(d, [big, -big]), tol=EXACT),
        ]
    return [
        *rows,
        case("exp-overflow-f32", ir.Exp, t(F32, [89, -104]), want=t(F32, [INF, 0])),
        case("exp-overflow-f16", ir.Exp, t(F16, [11, 12, -18]), want=t(F16, [np.exp(11.0), INF, 0])),
        case("log1p-tiny", ir.Log1p, t(F32, [1e-10, -1e-10]), want=t(F32, [1e-10, -1e-10])),
        case("sin-large-argument", ir.Sin, t(F32, [1e4, 12345.678]), want=wide(np.sin)),
        case("tan-f16-rounds-once", ir.Tan, t(F16, [1.5703125, 0.25]), want=wide(np.tan)),
        case("erf-burn", ir.Erf, t(F32, [-0.056, 1]), want=t(F32, [-0.06312324, 0.8427008])),
        case("round-half-even", ir.Round, t(F32, [1.5, 2.5, 3.5, 4.5, -1.5, 0.5]), want=t(F32, [2, 2, 4, 4, -2, 0])),
    ]


def matmul_rows() -> list[OpCase]:
    """Products of every dtype: accumulation, wrapping, broadcasting, empty axes."""
    lhs, rhs = [[[1, 7], [2, 3]]], [[[4, 7], [2, 3]], [[2, 5], [6, 3]]]
    product = [[[18, 28], [14, 23]], [[44, 26], [22, 19]]]
    rows: list[OpCase] = []
    for d in (*FLOATS, *INTS):
        tol = EXACT  # small whole numbers are exact in every dtype
        rows.append(case(f"matmul-batch-{d.short}", ir.Matmul, t(d, lhs), t(d, rhs), want=t(d, product), tol=tol))
        rows.append(
            case(f"matmul-k0-{d.short}", ir.Matmul, t(d, [], (2, 0)), t(d, [], (0, 3)), want=t(d, [0] * 6, (2, 3)))
        )
    for d in INTS:
        info = np.iinfo(DTYPES[d])
        a, b = [[info.max, 2], [info.min, 3]], [[info.max, 5], [2, info.min]]
        left, right = (Typed(np.array(m, DTYPES[d]), d) for m in (a, b))
        rows.append(case(f"matmul-wraps-{d.short}", ir.Matmul, left, right, want=exact_matmul(d, a, b)))
    x, y = np.sin(np.arange(2 * 3 * 5 * 7)), np.cos(np.arange(3 * 7 * 11))
    rows += [
        case(f"matmul-broadcast-{d.short}", ir.Matmul, t(d, x, (2, 3, 5, 7)), t(d, y, (1, 3, 7, 11)),
             want=wide(np.matmul))
        for d in (F64, F32)
    ]  # fmt: skip
    long = np.ones((1, 4099))
    return [
        *rows,
        case("matmul-int-burn", ir.Matmul, t(I32, [[1, 7], [2, 3], [1, 5]]), t(I32, [[4, 7, 5], [2, 3, 5]]),
             want=t(I32, [[18, 28, 40], [14, 23, 25], [14, 22, 30]])),
        case("matmul-i32-wraps-to-5", ir.Matmul, t(I32, [[2**31 - 1, 2]]), t(I32, [[2**31 - 1], [2]]),
             want=t(I32, [[5]])),
        case("matmul-f16-sums-in-f32", ir.Matmul, t(F16, long), t(F16, long.T), want=t(F16, [[4100]]), tol=EXACT),
        case("matmul-bf16-sums-in-f32", ir.Matmul, t(BF16, long[:, :1029]), t(BF16, long.T[:1029]),
             want=t(BF16, [[1032]]), tol=EXACT),
        case("matmul-f16-overflow-inside", ir.Matmul, t(F16, [[300, -300]]), t(F16, [[300], [300]]), want=t(F16, [[0]]),
             tol=EXACT),
        case("matmul-mixed-floats", ir.Matmul, t(F16, [[1, 2]]), t(F32, [[1.0001], [3]]), want=t(F16, [[7]])),
        case("matmul-nan-inf", ir.Matmul, t(F32, [[INF, 1], [NAN, 1]]), t(F32, [[1, 0], [2, 3]]),
             want=t(F32, [[INF, NAN], [NAN, NAN]])),
        case("matmul-m0", ir.Matmul, t(F32, [], (0, 3)), t(F32, np.ones((3, 2))), want=t(F32, [], (0, 2))),
        case("matmul-n0", ir.Matmul, t(F32, np.ones((2, 3))), t(F32, [], (3, 0)), want=t(F32, [], (2, 0))),
        case("matmul-batch0", ir.Matmul, t(F32, [], (0, 2, 3)), t(F32, np.ones((1, 3, 2))), want=t(F32, [], (0, 2, 2))),
    ]  # fmt: skip


def cross_rows() -> list[OpCase]:
    """Cross products along the first, an inner and the last axis."""
    a, b = np.sin(np.arange(2 * 3 * 5)), np.cos(np.arange(2 * 3 * 5))

    def along(axis: int) -> Reference:
        return wide(lambda x, y: np.cross(x, y, axis=axis))

    rows = [
        case(f"cross-{d.short}", ir.Cross, t(d, [[1, 2, 3]]), t(d, [[4, 5, 6]]), want=t(d, [[-3, 6, -3]]), dim=1)
        for d in FLOATS
    ]
    return [
        *rows,
        case("cross-inner", ir.Cross, t(F32, a, (2, 3, 5)), t(F32, b, (2, 3, 5)), want=along(1), dim=1),
        case("cross-first", ir.Cross, t(F32, a, (3, 10)), t(F32, b, (3, 10)), want=along(0), dim=0),
        case("cross-broadcast", ir.Cross, t(F32, a[:15], (5, 3)), t(F32, [[1, 0, -2]]), want=along(1), dim=1),
        case("cross-f16-products-in-f32", ir.Cross, t(F16, [300, 300, 0]), t(F16, [300, 301, 0]),
             want=t(F16, [0, 0, 300]), tol=EXACT, dim=0),
        case("cross-empty", ir.Cross, t(F32, [], (0, 3)), t(F32, [], (0, 3)), want=t(F32, [], (0, 3)), dim=1),
    ]  # fmt: skip


def into_int_rows() -> list[OpCase]:
    """Every float dtype into every int dtype: truncation and saturation."""
    rows: list[OpCase] = []
    for source in FLOATS:
        for target in INTS:
            values = t(source, SATURATION)
            name = f"intoint-{source.short}-{target.short}"
            rows.append(case(name, ir.IntoInt, values, want=saturated(values, target)))
    for source in (F64, F32):
        for target in INTS:
            values = t(source, [3e9, -3e9, 5e9, 1e19, -1e19, 1e30, 2.0**63, -(2.0**63), 2.0**31, 16777217.0, 255.5])
            name = f"intoint-wide-{source.short}-{target.short}"
            rows.append(case(name, ir.IntoInt, values, want=saturated(values, target)))
    return [
        *rows,
        case("intoint-i8-spec", ir.IntoInt, t(F32, [300.7, -1e9]), want=t(I8, [127, -128])),
        case("intoint-u8-spec", ir.IntoInt, t(F32, [-3e9, 200.9]), want=t(U8, [0, 200])),
        case("intoint-empty", ir.IntoInt, t(F32, [], (0, 2)), want=t(I64, [], (0, 2))),
    ]


def into_float_rows() -> list[OpCase]:
    """Every int dtype into every float dtype: nearest even, halves through f32."""
    rows: list[OpCase] = []
    for source in INTS:
        info = np.iinfo(DTYPES[source])
        values = Typed(np.array([info.min, info.max, 0, 1, 3, 100], DTYPES[source]), source)
        for target in FLOATS:
            single = target in (F16, BF16)
            made = values.array.astype(np.float32).astype(DTYPES[target]) if single else values.array
            name = f"intofloat-{source.short}-{target.short}"
            rows.append(case(name, ir.IntoFloat, values, want=t(target, made), tol=EXACT))
    return [
        *rows,
        case("intofloat-nearest-even", ir.IntoFloat, t(I64, [2**24 + 1, 2**24 + 3, -(2**24) - 1]),
             want=t(F32, [2**24, 2**24 + 4, -(2**24)]), tol=EXACT),
        case("intofloat-f16-overflow", ir.IntoFloat, t(U32, [70000, 65504]), want=t(F16, [INF, 65504]), tol=EXACT),
        case("intofloat-f16-double-rounding", ir.IntoFloat, t(I32, [2**24 + 2**13 + 1]),
             want=t(BF16, [2.0**24]), tol=EXACT),
        case("intofloat-u64-top", ir.IntoFloat, Typed(np.array([2**64 - 1, 2**63 + 1], np.uint64), U64),
             want=t(F64, [2.0**64, 2.0**63]), tol=EXACT),
        case("intofloat-empty", ir.IntoFloat, t(I64, [], (0, 2)), want=t(F32, [], (0, 2))),
    ]  # fmt: skip


def rows() -> list[OpCase]:
    """The whole table; NumPy has nothing to say about infinities that are wanted."""
    tables = (
        unary_rows,
        predicate_rows,
        binary_rows,
        huge_rows,
        matmul_rows,
        cross_rows,
        into_int_rows,
        into_float_rows,
    )
    with np.errstate(all="ignore"):
        return [row for table in tables for row in table()]


CASES: list[OpCase] = rows()
