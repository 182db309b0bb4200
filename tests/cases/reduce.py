"""Rows of `ir.ops.reduce`. References: NumPy, or numbers of Burn's own interpreter and tests."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import ir
from ir import BF16, F16, F32, F64, I8, I32, I64, U8, U64
from ir.op import Op
from ir.ops.records import ReduceDim, Unary
from ir.ops.reduce import WithIndices
from tests.cases.numeric import FLOATS, INF, INTS, NAN, SIGNED, high, ints, low
from tests.opcase import DTYPES, EXACT, BadCase, OpCase, Typed, build, case, t

Reference = Callable[..., Any]

PAIRS: dict[type[Unary], tuple[type[ReduceDim], Reference]] = {
    ir.Sum: (ir.SumDim, np.sum),
    ir.Prod: (ir.ProdDim, np.prod),
    ir.Mean: (ir.MeanDim, np.mean),
    ir.Max: (ir.MaxDim, np.max),
    ir.Min: (ir.MinDim, np.min),
    ir.MaxAbs: (ir.MaxAbsDim, lambda x, **rest: np.max(np.abs(x), **rest)),
}
CUBE = np.array([3, -1, 2, 1, 4, -2, 1, 5, 2, 2, -3, 1, 1, 2, 6, 2, -1, 1, 1, 3, 2, 1, 2, -4, 2, 1, 1, 3, -2, 2], float)


def every_axis() -> list[OpCase]:
    """Each float kind over each axis and over all, in every float dtype."""
    rows: list[OpCase] = []
    for full, (dim, function) in PAIRS.items():
        name = dim.__name__.lower()
        for d in FLOATS:
            x = t(d, CUBE, (2, 3, 5))
            rows.append(case(f"{name}-all-{d.short}", full, x, want=lambda x, f=function: f(x).reshape(1)))
            rows += [
                case(
                    f"{name}-axis{axis}-{d.short}",
                    dim,
                    x,
                    axis=axis,
                    accumulator_len=1,
                    want=lambda x, f=function, a=axis: f(x, axis=a, keepdims=True),
                )
                for axis in (0, 1, 2)
            ]
    return rows


def truncated(value: int, count: int) -> int:
    """The quotient, toward zero."""
    return abs(value) // count * (1 if value >= 0 else -1)


def integers() -> list[OpCase]:
    """Each kind in every integer dtype, at the edges of the dtype."""
    rows: list[OpCase] = []
    for d in INTS:
        values = [high(d), 2, low(d), 3, high(d), 1]
        x = Typed(ints(d, *values).array.reshape(2, 3), d)
        lines, wrap = (values[:3], values[3:]), lambda v, d=d: int(ints(d, v).array[0])
        wants: dict[type[Unary], Callable[[list[int]], int]] = {
            ir.Sum: sum,
            ir.Prod: math.prod,
            ir.Mean: lambda v, wrap=wrap: truncated(wrap(sum(v)), len(v)),
            ir.Max: max,
            ir.Min: min,
            ir.MaxAbs: lambda v, wrap=wrap: max(wrap(abs(i)) for i in v),
        }
        for full, (dim, _) in PAIRS.items():
            name, want = dim.__name__.lower(), wants[full]
            rows += [
                case(f"{name}-all-{d.short}", full, x, want=ints(d, want(values))),
                case(
                    f"{name}-{d.short}",
                    dim,
                    x,
                    axis=1,
                    accumulator_len=1,
                    want=Typed(ints(d, *map(want, lines)).array.reshape(2, 1), d),
                ),
            ]
    mean = {"axis": 1, "accumulator_len": 1}
    return [
        *rows,
        case("sum-i8-300-ones-wraps", ir.Sum, t(I8, np.ones(300)), want=t(I8, [44])),
        case("mean-i8-divides-the-wrapped-sum", ir.Mean, t(I8, np.ones(300)), want=t(I8, [0])),
        case("mean-int-truncates-toward-0", ir.Mean, t(I32, [-1, -2]), want=t(I32, [-1])),
        case("meandim-int", ir.MeanDim, t(I64, [[0, 1, 2], [3, 4, 5]]), **mean, want=t(I64, [[1], [4]])),
        case("mean-int-keeps-dtype", ir.Mean, t(I32, [[2, 2, 2], [3, 4, 5]]), want=t(I32, [3])),
        case("meandim-u8-of-256-zeros", ir.MeanDim, t(U8, np.zeros((2, 256))), **mean, want=t(U8, [[0], [0]])),
        case("mean-u64-above-i64", ir.Mean, ints(U64, 2**64 - 2, 0), want=ints(U64, 2**63 - 1)),
        case("prod-burn", ir.Prod, t(F32, [[-5, 1, 2], [3, 4, 5]]), want=t(F32, [-600]), tol=EXACT),
        case("maxabs-i8-min-stays", ir.MaxAbs, t(I8, [-128, 5]), want=t(I8, [5])),
        case("maxabs-i8-min-alone", ir.MaxAbs, t(I8, [-128]), want=t(I8, [-128])),
    ]


def not_numbers() -> list[OpCase]:
    """NaN and infinities."""
    x = [[1, NAN, -3], [INF, -INF, 2], [1, -4, 3]]
    wants: dict[type[ReduceDim], list[float]] = {
        ir.SumDim: [NAN, NAN, 0],
        ir.MeanDim: [NAN, NAN, 0],
        ir.ProdDim: [NAN, -INF, -12],
        ir.MaxDim: [NAN, INF, 3],
        ir.MinDim: [NAN, -INF, -4],
        ir.MaxAbsDim: [NAN, INF, 4],
    }
    return [
        case(
            f"{kind.__name__.lower()}-nan-{d.short}", kind, t(d, x), axis=1, accumulator_len=1, want=t(d, want, (3, 1))
        )
        for kind, want in wants.items()
        for d in FLOATS
    ]


def halves() -> list[OpCase]:
    """Sums in f32: what overflows in f16 overflows at the end only."""
    ramp = np.arange(1024.0)
    permuted = np.transpose(ramp.reshape(2, 2, 256), (1, 2, 0))
    lines = {"axis": 0, "accumulator_len": 1}
    return [
        case("sum-f16-overflows", ir.Sum, t(F16, ramp), want=t(F16, [INF])),
        case("mean-f16-does-not-overflow", ir.Mean, t(F16, ramp), want=t(F16, [511.5]), tol=EXACT),
        case(
            "meandim-f16-does-not-overflow",
            ir.MeanDim,
            t(F16, permuted),
            axis=1,
            accumulator_len=1,
            want=t(F16, permuted.mean(1, keepdims=True)),
            tol=EXACT,
        ),
        case("sumdim-f16-cancels", ir.SumDim, t(F16, [60000] * 64 + [-60000] * 64), **lines, want=t(F16, [0])),
        case("sum-f16-4096-ones", ir.Sum, t(F16, np.ones(4096)), want=t(F16, [4096]), tol=EXACT),
        case("sum-bf16-1000-ones", ir.Sum, t(BF16, np.ones(1000)), want=t(BF16, [1000]), tol=EXACT),
        case(
            "prod-f16-through-large",
            ir.Prod,
            t(F16, [60000, 60000, 2**-14, 2**-14]),
            want=lambda x: np.prod(x).reshape(1),
        ),
        case("mean-of-49-ones", ir.Mean, t(F32, np.ones(49)), want=t(F32, [1]), tol=EXACT),
    ]


def shapes() -> list[OpCase]:
    """Empty axes, rank 0 and 1, a transposed layout."""
    rows: list[OpCase] = []
    empties: dict[type[Unary], float] = {ir.Sum: 0, ir.Prod: 1, ir.Mean: NAN}
    for full, value in empties.items():
        dim, name = PAIRS[full][0], PAIRS[full][0].__name__.lower()
        of_nothing = t(F32, np.full((3, 1), value))
        rows += [
            case(f"{name}-all-empty", full, t(F32, [], (0, 3)), want=t(F32, [value])),
            case(f"{name}-empty-axis", dim, t(F32, [], (3, 0)), axis=1, accumulator_len=1, want=of_nothing),
            case(f"{name}-all-empty-f16", full, t(F16, []), want=t(F16, [value])),
        ]
    for full, (dim, function) in PAIRS.items():
        name = dim.__name__.lower()
        rows += [
            case(
                f"{name}-empty-other-axis", dim, t(F32, [], (0, 3)), axis=1, accumulator_len=1, want=t(F32, [], (0, 1))
            ),
            case(
                f"{name}-int-empty-other-axis",
                dim,
                t(I32, [], (0, 3)),
                axis=1,
                accumulator_len=1,
                want=t(I32, [], (0, 1)),
            ),
            case(
                f"{name}-rank-1",
                dim,
                t(F32, [2, -3]),
                axis=0,
                accumulator_len=1,
                want=lambda x, f=function: f(x).reshape(1),
            ),
            case(f"{name}-all-rank-0", full, t(F32, 2.5), want=t(F32, [2.5])),
        ]
    return [
        *rows,
        case("sum-int-empty", ir.Sum, t(I32, []), want=t(I32, [0])),
        case(
            "proddim-int-empty-axis", ir.ProdDim, t(U8, [], (2, 0)), axis=1, accumulator_len=1, want=t(U8, [[1], [1]])
        ),
        case(
            "sumdim-transposed",
            ir.SumDim,
            t(F32, [[1, 4], [2, 5], [3, 6]]),
            axis=1,
            accumulator_len=1,
            want=t(F32, [[5], [7], [9]]),
        ),
        case(
            "proddim-transposed",
            ir.ProdDim,
            t(F32, [[1, 4], [2, 5], [3, 6]]),
            axis=1,
            accumulator_len=1,
            want=t(F32, [[4], [10], [18]]),
        ),
    ]


def several_axes() -> list[OpCase]:
    """SumDims."""
    rows = [
        case(
            f"sumdims-{''.join(map(str, axes)) or 'none'}-{d.short}",
            ir.SumDims,
            t(d, CUBE, (2, 3, 5)),
            axes=axes,
            want=lambda x, a=axes: np.sum(x, axis=tuple(set(a)), keepdims=True),
        )
        for d in FLOATS
        for axes in ((), (1,), (2, 0), (0, 1, 2), (1, 1))
    ]
    rows += [
        case(
            f"sumdims-wraps-{d.short}",
            ir.SumDims,
            Typed(ints(d, high(d), 2, 3, 4).array.reshape(2, 2), d),
            axes=(0, 1),
            want=Typed(ints(d, high(d) + 9).array.reshape(1, 1), d),
        )
        for d in INTS
    ]
    return [
        *rows,
        case("sumdims-i8-four-times-100", ir.SumDims, t(I8, np.full((2, 2), 100)), axes=(0, 1), want=t(I8, [[-112]])),
        case("sumdims-empty-axis", ir.SumDims, t(F32, [], (2, 0, 3)), axes=(1, 2), want=t(F32, np.zeros((2, 1, 1)))),
    ]


TIES = [[3, 3, -2, -2], [1, 5, 5, 0], [0, 0, 0, 0]]
FIRST_MAX, FIRST_MIN = [0, 1, 0], [2, 3, 0]
NANS = [[1, NAN, -3], [NAN, NAN, 3], [-INF, INF, -INF], [INF, 1, INF], [-0.0, 0.0, 0.0]]
NAN_MAX, NAN_MIN = [1, 0, 1, 0, 0], [1, 0, 0, 1, 0]


def positions() -> list[OpCase]:
    """ArgMax, ArgMin and the kinds with indices: ties, NaN, dtype of the indices."""
    rows: list[OpCase] = []
    plain: dict[type[ReduceDim], tuple[list[int], list[int]]] = {
        ir.ArgMax: (FIRST_MAX, NAN_MAX),
        ir.ArgMin: (FIRST_MIN, NAN_MIN),
    }
    paired: dict[type[WithIndices], tuple[list[int], list[int], Reference]] = {
        ir.MaxDimWithIndices: (FIRST_MAX, NAN_MAX, np.max),
        ir.MinDimWithIndices: (FIRST_MIN, NAN_MIN, np.min),
    }
    for index in (I64, I32, I8, U8, U64):
        for kind, (ties, _) in plain.items():
            name = f"{kind.__name__.lower()}-indices-{index.short}"
            rows.append(case(name, kind, t(F32, TIES), axis=1, accumulator_len=1, want=t(index, ties, (3, 1))))
        for kind, (ties, _, function) in paired.items():
            name = f"{kind.__name__.lower()}-indices-{index.short}"
            want = [t(F32, function(TIES, axis=1, keepdims=True)), t(index, ties, (3, 1))]
            rows.append(case(name, kind, t(F32, TIES), dim=1, want=want))
    for d in (*FLOATS, *INTS):
        x = t(d, TIES) if d in FLOATS or d in SIGNED else t(d, np.array(TIES) + 2)
        for kind, (ties, nans) in plain.items():
            name = f"{kind.__name__.lower()}-{d.short}"
            rows.append(case(name, kind, x, axis=1, accumulator_len=1, want=t(d if d in INTS else I64, ties, (3, 1))))
            if d in FLOATS:
                rows.append(case(f"{name}-nan", kind, t(d, NANS), axis=1, accumulator_len=1, want=t(I64, nans, (5, 1))))
        for kind, (ties, nans, function) in paired.items():
            name = f"{kind.__name__.lower()}-{d.short}"
            values = t(d, function(x.array.astype(np.float64), axis=1, keepdims=True))
            rows.append(case(name, kind, x, dim=1, want=[values, t(I64, ties, (3, 1))]))
            if d in FLOATS:
                values = t(d, function(NANS, axis=1, keepdims=True))
                rows.append(case(f"{name}-nan", kind, t(d, NANS), dim=1, want=[values, t(I64, nans, (5, 1))]))
    cube = t(F32, CUBE, (2, 3, 5))
    for axis in (0, 1, 2):
        for kind, function in ((ir.ArgMax, np.argmax), (ir.ArgMin, np.argmin)):
            want = t(I64, function(cube.array, axis=axis, keepdims=True))
            rows.append(
                case(f"{kind.__name__.lower()}-axis{axis}", kind, cube, axis=axis, accumulator_len=1, want=want)
            )
    first, columns = {"axis": 0, "accumulator_len": 1}, t(F32, [[NAN, 1], [NAN, 2], [-3, 4]])
    numbers = t(I32, [[1, 3, 3], [2, 2, 0]])
    return [
        *rows,
        case("argmax-nan-columns", ir.ArgMax, columns, **first, want=t(I64, [[0, 2]])),
        case("argmin-nan-columns", ir.ArgMin, columns, **first, want=t(I64, [[0, 0]])),
        case(
            "maxdim-int-with-indices",
            ir.MaxDimWithIndices,
            numbers,
            dim=1,
            want=[t(I32, [[3], [2]]), t(I32, [[1], [0]])],
        ),
        case(
            "mindim-int-with-indices",
            ir.MinDimWithIndices,
            numbers,
            dim=1,
            want=[t(I32, [[1], [0]]), t(I32, [[0], [2]])],
        ),
        case("argmax-extremes-i64", ir.ArgMax, ints(I64, -(2**63), 2**63 - 1), **first, want=t(I64, [1])),
        case("argmin-large-u64", ir.ArgMin, ints(U64, 2**64 - 1, 2**63), **first, want=t(U64, [1])),
        case("argmax-close-f64", ir.ArgMax, t(F64, [1, 1 + 2**-50]), **first, want=t(I64, [1])),
        case(
            "argmax-empty-other-axis", ir.ArgMax, t(F32, [], (0, 3)), axis=1, accumulator_len=1, want=t(I64, [], (0, 1))
        ),
        case(
            "maxdim-empty-other-axis-with-indices",
            ir.MaxDimWithIndices,
            t(F32, [], (0, 3)),
            dim=1,
            want=[t(F32, [], (0, 1)), t(I64, [], (0, 1))],
        ),
    ]


CASES: list[OpCase] = [
    *every_axis(),
    *integers(),
    *not_numbers(),
    *halves(),
    *shapes(),
    *several_axes(),
    *positions(),
]


def refused(kind: type[Op], dtype: ir.DType, dims: tuple[int, ...]) -> BadCase:
    """`kind` along an empty axis, or over nothing at all."""
    x = Typed(np.zeros(dims, DTYPES[dtype]), dtype)
    if issubclass(kind, Unary):
        op, axis = build(kind, (x,), (t(dtype, [0]),), {}), dims.index(0)
    else:
        out = np.zeros((*dims[:-1], 1))
        axis = len(dims) - 1
        if issubclass(kind, WithIndices):
            op = build(kind, (x,), (t(dtype, out), t(I64, out)), {"dim": axis})
        else:
            op = build(kind, (x,), (t(dtype, out),), {"axis": axis, "accumulator_len": 1})
    name = f"{kind.__name__.lower()}-{dtype.short}-{'x'.join(map(str, dims))}"
    return BadCase(name, op, ir.ShapeError, f"{kind.__name__}: expected at least one element along axis {axis}, got t0")


BAD_CASES: list[BadCase] = [
    *(refused(kind, F32, (0,)) for kind in (ir.Max, ir.Min, ir.MaxAbs)),
    *(refused(kind, I32, (3, 0)) for kind in (ir.Max, ir.Min, ir.MaxAbs, ir.Mean)),
    *(refused(kind, F32, (3, 0)) for kind in (ir.MaxDim, ir.MinDim, ir.MaxAbsDim, ir.ArgMax, ir.ArgMin)),
    *(refused(kind, F32, (0, 0)) for kind in (ir.MaxDim, ir.ArgMax, ir.MaxDimWithIndices, ir.MinDimWithIndices)),
    *(refused(kind, U8, (2, 0)) for kind in (ir.MeanDim, ir.MinDim, ir.ArgMin, ir.MaxDimWithIndices)),
]
