"""Rows of shapes, casts, comparison, creation. Worked values: Burn's own tests and its interpreter; the rest NumPy."""

import math
from typing import Any

import numpy as np

import ir
from ir.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, U64, DType
from ir.slices import SliceRange
from tests.opcase import DTYPES, EXACT, BadCase, OpCase, Tensors, Typed, build, t
from tests.opcase import case as _case

NAN, INF = math.nan, math.inf
PLAIN = tuple(DTYPES)
FLOATS = tuple(d for d in DTYPES if d.is_float)
INTS = tuple(d for d in DTYPES if d.is_int)
BOOLS = tuple(d for d in DTYPES if d.is_bool)


def case(id: str, kind: type[ir.Op], *tensors: Tensors, want: Any, **more: Any) -> OpCase:
    """A row whose result is exact, as everything in this family is."""
    return _case(id, kind, *tensors, want=want, tol=EXACT, **more)


def sample(dtype: DType, *shape: int) -> Typed:
    """0, 1, 2, ... in `shape`; bools alternate in threes."""
    numbers = np.arange(math.prod(shape))
    return t(dtype, numbers % 3 == 0 if dtype.is_bool else numbers, shape)


def ranges(*items: tuple[int, int | None, int]) -> tuple[SliceRange, ...]:
    """Slices from (start, end, step)."""
    return tuple(SliceRange(*item) for item in items)


def _moves() -> list[OpCase]:
    x = sample(F32, 2, 3, 5)
    rows = [
        case("reshape", ir.Reshape, x, want=lambda a: a.reshape(5, 6)),
        case("reshape-to-rank-0", ir.Reshape, sample(F32, 1), want=t(F32, 0.0)),
        case("reshape-from-rank-0", ir.Reshape, t(I32, 7), want=t(I32, [[7]])),
        case("reshape-empty", ir.Reshape, sample(F32, 0, 3), want=t(F32, [], (3, 0, 7))),
        case("swap-dims", ir.SwapDims, x, dim1=0, dim2=2, want=lambda a: a.swapaxes(0, 2)),
        case("swap-dims-reversed-order", ir.SwapDims, x, dim1=2, dim2=1, want=lambda a: a.swapaxes(1, 2)),
        case("swap-dims-same", ir.SwapDims, x, dim1=1, dim2=1, want=x),
        case("swap-dims-empty", ir.SwapDims, sample(F32, 0, 3), dim1=0, dim2=1, want=t(F32, [], (3, 0))),
        case("permute", ir.Permute, x, axes=(2, 0, 1), want=lambda a: a.transpose(2, 0, 1)),
        case("permute-identity", ir.Permute, x, axes=(0, 1, 2), want=x),
        case("permute-rank-0", ir.Permute, t(F32, 3.0), axes=(), want=t(F32, 3.0)),
        case("flip", ir.Flip, t(F32, [[1, 2, 3], [4, 5, 6]]), axes=(1,), want=t(F32, [[3, 2, 1], [6, 5, 4]])),
        case("flip-two-axes", ir.Flip, x, axes=(0, 2), want=lambda a: a[::-1, :, ::-1]),
        case("flip-no-axis-is-identity", ir.Flip, x, axes=(), want=x),
        case("flip-empty", ir.Flip, sample(F32, 0, 3), axes=(0,), want=sample(F32, 0, 3)),
        case("expand", ir.Expand, sample(F32, 3, 1), want=lambda a: np.broadcast_to(a, (3, 5))),
        case("expand-rank-grows", ir.Expand, sample(I64, 1, 3), want=lambda a: np.broadcast_to(a, (2, 5, 3))),
        case("expand-1-to-0", ir.Expand, sample(F32, 3, 1), want=t(F32, [], (3, 0))),
        case("expand-same-shape", ir.Expand, x, want=x),
        case("repeat-dim-tiles", ir.RepeatDim, t(I32, [7, 8]), dim=0, times=2, want=t(I32, [7, 8, 7, 8])),
        case("repeat-dim-inner", ir.RepeatDim, x, dim=1, times=3, want=lambda a: np.tile(a, (1, 3, 1))),
        case("repeat-dim-once", ir.RepeatDim, x, dim=2, times=1, want=x),
        case("repeat-dim-zero-times", ir.RepeatDim, x, dim=1, times=0, want=t(F32, [], (2, 0, 5))),
        case("cat", ir.Cat, [x, sample(F32, 2, 2, 5)], dim=1, want=lambda a, b: np.concatenate([a, b], 1)),
        case("cat-of-one", ir.Cat, [x], dim=0, want=x),
        case("cat-empty-part", ir.Cat, [sample(F32, 1, 3), sample(F32, 1, 0)], dim=1, want=sample(F32, 1, 3)),
        case("cat-all-empty", ir.Cat, [sample(F32, 0, 3), sample(F32, 0, 3)], dim=0, want=sample(F32, 0, 3)),
        case("cat-five", ir.Cat, [t(I64, [n]) for n in range(5)], dim=0, want=t(I64, range(5))),
        case(
            "cat-same-values-of-a-nan",
            ir.Cat,
            [t(F32, [NAN, -0.0]), t(F32, [INF])],
            dim=0,
            want=t(F32, [NAN, -0.0, INF]),
        ),
    ]
    for d in PLAIN:
        two = [sample(d, 2, 3), sample(d, 2, 2)]
        rows.append(case(f"cat-{d.short}", ir.Cat, two, dim=1, want=lambda a, b: np.concatenate([a, b], 1)))
        rows.append(case(f"permute-{d.short}", ir.Permute, sample(d, 2, 3), axes=(1, 0), want=lambda a: a.T))
    return rows


def _unfolds() -> list[OpCase]:
    def unfold(dim: int, size: int, step: int) -> Any:
        return lambda a: np.lib.stride_tricks.sliding_window_view(a, size, dim)[(np.s_[:],) * dim + (np.s_[::step],)]

    x = sample(F32, 3, 7, 2)
    return [
        case("unfold", ir.Unfold, t(F32, [1, 2, 3, 4, 5]), dim=0, size=2, step=3, want=t(F32, [[1, 2], [4, 5]])),
        case("unfold-overlapping", ir.Unfold, sample(F32, 3, 7), dim=1, size=3, step=2, want=unfold(1, 3, 2)),
        case("unfold-outer-axis", ir.Unfold, x, dim=0, size=2, step=1, want=unfold(0, 2, 1)),
        case("unfold-middle-axis", ir.Unfold, x, dim=1, size=4, step=3, want=unfold(1, 4, 3)),
        case("unfold-whole-axis", ir.Unfold, x, dim=1, size=7, step=1, want=unfold(1, 7, 1)),
        case("unfold-int", ir.Unfold, sample(I8, 5), dim=0, size=3, step=2, want=unfold(0, 3, 2)),
        case("unfold-bool", ir.Unfold, sample(BOOL, 5), dim=0, size=3, step=2, want=unfold(0, 3, 2)),
        case("unfold-size-above-axis", ir.Unfold, x, dim=1, size=8, step=1, want=t(F32, [], (3, 0, 2, 8))),
        case("unfold-empty-axis", ir.Unfold, sample(F32, 0), dim=0, size=2, step=1, want=t(F32, [], (0, 2))),
    ]


# Written down by hand from Burn's rule: bounds clamp, and a negative step walks the same window from its top.
_WINDOWS: dict[str, tuple[tuple[int, int | None, int], list[int]]] = {
    "plain": ((2, 5, 1), [2, 3, 4]),
    "whole": ((0, None, 1), list(range(10))),
    "negative-start": ((-4, None, 2), [6, 8]),
    "negative-bounds": ((-4, -1, 1), [6, 7, 8]),
    "end-beyond": ((2, 100, 4), [2, 6]),
    "start-beyond": ((12, 15, 1), []),
    "start-far-below": ((-30, 2, 1), [0, 1]),
    "end-before-start": ((3, -20, 1), []),
    "empty": ((4, 4, 1), []),
    "empty-stepped": ((4, 2, 3), []),
    "reversed": ((0, None, -1), [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
    "reversed-step-3": ((1, 8, -3), [7, 4, 1]),
    "reversed-step-2-off-start": ((0, 8, -3), [7, 4, 1]),
    "reversed-empty": ((5, 2, -1), []),
    "step-beyond-window": ((3, 6, 7), [3]),
    "reversed-step-beyond-window": ((3, 6, -7), [5]),
}


def _slices() -> list[OpCase]:
    ten, x = sample(F32, 10), sample(F32, 3, 5, 7)
    rows: list[OpCase] = []
    for name, (item, visited) in _WINDOWS.items():
        rows.append(case(f"slice-{name}", ir.Slice, ten, ranges=ranges(item), want=t(F32, visited)))
        after = np.arange(10.0)
        after[visited] = 100.0 + np.arange(len(visited))
        value = t(F32, 100.0 + np.arange(len(visited)))
        rows.append(case(f"slice-assign-{name}", ir.SliceAssign, ten, value, ranges=ranges(item), want=t(F32, after)))
    for d in PLAIN:
        y, v = sample(d, 3, 5), t(d, np.zeros((2, 3)))
        rows.append(
            case(f"slice-{d.short}", ir.Slice, y, ranges=ranges((1, 3, 1), (4, None, -2)), want=lambda a: a[1:3, 4:5])
        )

        def assigned(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            a = a.copy()
            a[1:3, [4, 2, 0]] = b
            return a

        both = ranges((1, 3, 1), (0, None, -2))
        rows.append(case(f"slice-assign-{d.short}", ir.SliceAssign, y, v, ranges=both, want=assigned))

    def put(*where: Any) -> Any:
        def change(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            a = a.copy()
            a[np.ix_(*where)] = b
            return a

        return change

    mixed = ranges((1, 3, 1), (4, 1, -1), (1, 6, -2))
    rows += [
        case(
            "slice-negative-ends",
            ir.Slice,
            t(F32, [[0, 1, 2], [3, 4, 5]]),
            ranges=ranges((0, -1, 1), (0, -2, 1)),
            want=t(F32, [[0]]),
        ),
        case("slice-fewer-ranges", ir.Slice, x, ranges=ranges((1, 3, 1)), want=lambda a: a[1:3]),
        case("slice-no-range", ir.Slice, x, ranges=(), want=x),
        case("slice-two-moving", ir.Slice, x, ranges=ranges((2, 3, 1), (1, 4, 1)), want=lambda a: a[2:3, 1:4]),
        case(
            "slice-steps-and-starts",
            ir.Slice,
            x,
            ranges=ranges((1, 3, 1), (0, 5, 2), (1, 6, -2)),
            want=lambda a: a[1:3, 0:5:2, [5, 3, 1]],
        ),
        case("slice-one-of-empty", ir.Slice, x, ranges=mixed, want=t(F32, [], (2, 0, 3))),
        case("slice-empty-axis", ir.Slice, sample(F32, 0, 3), ranges=ranges((0, 0, 1)), want=sample(F32, 0, 3)),
        case("slice-rank-0", ir.Slice, t(F32, 2.0), ranges=(), want=t(F32, 2.0)),
        case("slice-int-minimum-bounds", ir.Slice, ten, ranges=ranges((-(2**63), 2**63 - 1, 1)), want=ten),
        case(
            "slice-assign-reversed-from-burn",
            ir.SliceAssign,
            t(F32, [0, 0, 0, 0, 0]),
            t(F32, [50, 30, 10]),
            ranges=ranges((0, 5, -2)),
            want=t(F32, [10, 0, 30, 0, 50]),
        ),
        case(
            "slice-assign-fewer-ranges",
            ir.SliceAssign,
            x,
            t(F32, -np.ones((1, 5, 7))),
            ranges=ranges((2, 3, 1)),
            want=put([2], range(5), range(7)),
        ),
        case(
            "slice-assign-steps-and-starts",
            ir.SliceAssign,
            x,
            t(F32, -np.arange(1, 19), (2, 3, 3)),
            ranges=ranges((1, 3, 1), (0, 5, 2), (1, 6, -2)),
            want=put([1, 2], [0, 2, 4], [5, 3, 1]),
        ),
        case(
            "slice-assign-two-moving",
            ir.SliceAssign,
            x,
            t(F32, -np.ones((2, 2, 7))),
            ranges=ranges((1, 3, 1), (3, 5, 1)),
            want=put([1, 2], [3, 4], range(7)),
        ),
        case(
            "slice-assign-all-nan",
            ir.SliceAssign,
            ten,
            t(F32, np.full(10, NAN)),
            ranges=ranges((0, 10, 1)),
            want=t(F32, np.full(10, NAN)),
        ),
        case("slice-assign-rank-0", ir.SliceAssign, t(F32, 2.0), t(F32, 3.0), ranges=(), want=t(F32, 3.0)),
    ]
    return rows


def _masks() -> list[OpCase]:
    x, mask = t(F32, [[1, 7], [2, NAN]]), t(BOOL, [[1, 0], [0, 1]])
    wide = t(BOOL, np.arange(16) % 3 == 0, (4, 2, 2))
    rows = [
        case("mask-where", ir.MaskWhere, x, mask, t(F32, [[-1, NAN], [-2, -3]]), want=t(F32, [[-1, 7], [2, -3]])),
        case(
            "mask-where-broadcast",
            ir.MaskWhere,
            sample(F32, 1, 2, 2),
            wide,
            t(F32, [[[-1]]]),
            want=lambda a, m, v: np.where(m, v, a),
        ),
        case(
            "mask-where-1-against-0",
            ir.MaskWhere,
            sample(F32, 2, 1),
            t(BOOL, [], (1, 0)),
            t(F32, [[1.0]]),
            want=t(F32, [], (2, 0)),
        ),
        case("mask-fill", ir.MaskFill, x, mask, value=5.5, want=t(F32, [[5.5, 7], [2, 5.5]])),
        case("mask-fill-nan", ir.MaskFill, x, mask, value=NAN, want=t(F32, [[NAN, 7], [2, NAN]])),
        case("mask-fill-minus-inf", ir.MaskFill, x, mask, value=-INF, want=t(F32, [[-INF, 7], [2, -INF]])),
        case("mask-fill-minus-zero", ir.MaskFill, x, mask, value=-0.0, want=t(F32, [[-0.0, 7], [2, -0.0]])),
        case(
            "mask-fill-broadcast",
            ir.MaskFill,
            sample(I32, 1, 2, 2),
            wide,
            value=-1,
            want=lambda a, m: np.where(m, -1, a),
        ),
        case("mask-fill-rank-0", ir.MaskFill, t(F32, 1.0), t(BOOL, True), value=2, want=t(F32, 2.0)),
        case("mask-fill-empty", ir.MaskFill, sample(F32, 0), t(BOOL, []), value=2, want=sample(F32, 0)),
        case("mask-fill-int-by-float", ir.MaskFill, t(I32, [1, 2]), t(BOOL, [1, 0]), value=-2.7, want=t(I32, [-2, 2])),
        case("mask-fill-int-wraps", ir.MaskFill, t(I8, [1, 2]), t(BOOL, [1, 0]), value=300, want=t(I8, [44, 2])),
        case("mask-fill-half-overflow", ir.MaskFill, t(F16, [1, 2]), t(BOOL, [1, 0]), value=1e5, want=t(F16, [INF, 2])),
        case(
            "mask-fill-bool-by-number", ir.MaskFill, t(BOOL, [0, 0]), t(BOOL, [1, 0]), value=0.5, want=t(BOOL, [1, 0])
        ),
    ]
    for d in PLAIN:
        y, store = sample(d, 2, 3), BOOLS[len(rows) % 3]
        m = t(store, [[1, 0, 1], [0, 0, 1]])
        rows.append(
            case(f"mask-fill-{d.short}", ir.MaskFill, y, m, value=1, want=lambda a, b: np.where(b, a.dtype.type(1), a))
        )
        rows.append(
            case(
                f"mask-where-{d.short}",
                ir.MaskWhere,
                y,
                m,
                t(d, np.ones((2, 3))),
                want=lambda a, b, c: np.where(b, c, a),
            )
        )
    return rows


def _comparisons() -> list[OpCase]:
    special = t(F32, [NAN, 0.0, INF, -INF, 1.0]), t(F32, [NAN, -0.0, INF, INF, 2.0])
    equal = np.array([False, True, True, False, False])
    rows = [
        case("equal-specials", ir.Equal, *special, want=t(BOOL, equal)),
        case("not-equal-specials", ir.NotEqual, *special, want=t(BOOL, ~equal)),
        case(
            "equal-broadcast", ir.Equal, t(I32, [[1], [2]]), t(I32, [[1, 2, 3]]), want=t(BOOL, [[1, 0, 0], [0, 1, 0]])
        ),
        case("not-equal-1-against-0", ir.NotEqual, sample(F32, 2, 1), sample(F32, 2, 0), want=t(BOOL, [], (2, 0))),
        case("equal-0-against-1-outer", ir.Equal, sample(F32, 0, 3), sample(F32, 1, 3), want=t(BOOL, [], (0, 3))),
        case("equal-bool-is-xnor", ir.Equal, t(BOOL, [0, 0, 1, 1]), t(BOOL, [0, 1, 0, 1]), want=t(BOOL, [1, 0, 0, 1])),
        case(
            "not-equal-bool-is-xor",
            ir.NotEqual,
            t(BOOL, [0, 0, 1, 1]),
            t(BOOL, [0, 1, 0, 1]),
            want=t(BOOL, [0, 1, 1, 0]),
        ),
        case("equal-elem-rounds-scalar-to-f32", ir.EqualElem, t(F32, [0.1, 0.2]), rhs=0.1, want=t(BOOL, [1, 0])),
        case("equal-elem-rounds-scalar-to-f16", ir.EqualElem, t(F16, [0.1, INF]), rhs=0.1, want=t(BOOL, [1, 0])),
        case("equal-elem-half-overflow", ir.EqualElem, t(F16, [INF, 65504.0]), rhs=1e5, want=t(BOOL, [1, 0])),
        case("equal-elem-wraps-scalar", ir.EqualElem, t(I8, [44, 43]), rhs=300, want=t(BOOL, [1, 0])),
        case("equal-elem-unsigned", ir.EqualElem, t(U8, [255, 1]), rhs=-1, want=t(BOOL, [1, 0])),
        case("equal-elem-truncates-scalar", ir.EqualElem, t(I32, [2, 3, -2]), rhs=2.7, want=t(BOOL, [1, 0, 0])),
        case(
            "equal-elem-i64-beyond-f64", ir.EqualElem, t(I64, [2**53 + 1, 2**53]), rhs=2**53 + 1, want=t(BOOL, [1, 0])
        ),
        case(
            "equal-elem-u64-top-bit",
            ir.EqualElem,
            t(U64, np.array([2**63, 1], np.uint64)),
            rhs=2**63,
            want=t(BOOL, [1, 0]),
        ),
        case("equal-elem-nan", ir.EqualElem, t(F32, [NAN, 1.0]), rhs=NAN, want=t(BOOL, [0, 0])),
        case(
            "not-equal-elem-truthiness",
            ir.NotEqualElem,
            t(F32, [NAN, -0.0, 0.5, -1.0]),
            rhs=0,
            want=t(BOOL, [1, 0, 1, 1]),
        ),
        case("not-equal-elem-empty", ir.NotEqualElem, sample(I64, 0), rhs=0, want=t(BOOL, [])),
        case("equal-elem-bool", ir.EqualElem, t(BOOL, [0, 1]), rhs=True, want=t(BOOL, [0, 1])),
        case("not-equal-elem-bool-by-number", ir.NotEqualElem, t(BOOL, [0, 1]), rhs=2.5, want=t(BOOL, [1, 0])),
    ]
    for n, d in enumerate(PLAIN):
        y, store = sample(d, 5), BOOLS[n % 3]
        rows.append(case(f"equal-{d.short}", ir.Equal, y, t(d, [0, 0, 2, 3, 5]), out=store, want=lambda a, b: a == b))
        rows.append(
            case(f"not-equal-elem-{d.short}", ir.NotEqualElem, y, rhs=1, out=store, want=lambda a: a != a.dtype.type(1))
        )
    return rows


def _casts() -> list[OpCase]:
    """Casts stay within floats, ints or bools; `IntoInt` and `IntoFloat` lead elsewhere and have rows of their own."""
    rows: list[OpCase] = []
    whole = t(I64, [0, 300, -1, 2**40 + 5, -(2**63), 2**63 - 1])
    rows += [case(f"cast-i64-to-{to.short}-wraps", ir.Cast, whole, out=to, want=lambda a: a) for to in INTS]
    for of in INTS:
        info = np.iinfo(DTYPES[of])
        ends = [int(info.min), 0, 100, int(info.max)]
        low = [(v & 0xFF) - 256 * ((v & 0xFF) >= 128) for v in ends]
        wide = [v & (2**64 - 1) for v in ends]
        x = Typed(np.array(ends, DTYPES[of]), of)
        rows.append(case(f"cast-{of.short}-to-i8", ir.Cast, x, want=t(I8, low)))
        rows.append(case(f"cast-{of.short}-to-u64", ir.Cast, x, want=Typed(np.array(wide, np.uint64), U64)))
    for of in FLOATS:
        given = np.asarray([1.5, -0.0, INF, -INF, NAN, 0.1]).astype(DTYPES[of])
        for to in FLOATS:
            want = t(to, given.astype(np.float32) if DTYPES[to].itemsize == 2 else given)
            rows.append(case(f"cast-{of.short}-to-{to.short}", ir.Cast, Typed(given, of), want=want))
    for of in BOOLS:
        rows += [case(f"cast-{of.short}-to-{to.short}", ir.Cast, t(of, [0, 1]), want=t(to, [0, 1])) for to in BOOLS]
    return [
        *rows,
        case("cast-f64-to-f16-through-f32", ir.Cast, t(F64, [1 + 2.0**-11 + 2.0**-40]), want=t(F16, [1.0])),
        case("cast-f64-to-bf16-through-f32", ir.Cast, t(F64, [1 + 2.0**-8 + 2.0**-40]), want=t(BF16, [1.0])),
        case("cast-f64-to-f32-overflows", ir.Cast, t(F64, [1e300, -1e300]), want=t(F32, [INF, -INF])),
        case("cast-f32-to-f16-overflows", ir.Cast, t(F32, [65520.0, 65519.0]), want=t(F16, [INF, 65504.0])),
        case("cast-f64-keeps-large", ir.Cast, t(F64, [1e300]), want=t(F64, [1e300])),
        case("cast-i8-sign-extends", ir.Cast, t(I8, [-1]), want=t(U32, [4294967295])),
        case("cast-u8-200-to-i8", ir.Cast, t(U8, [200]), want=t(I8, [-56])),
        case("cast-empty", ir.Cast, sample(F32, 0, 3), want=sample(F64, 0, 3)),
        case("cast-rank-0", ir.Cast, t(F32, 2.5), want=t(F16, 2.5)),
    ]


def _creations() -> list[OpCase]:
    rows = [case("zeros-rank-0", ir.Zeros, want=t(F32, 0.0)), case("ones-empty", ir.Ones, want=t(F32, [], (2, 0)))]
    for d in PLAIN:
        rows.append(case(f"ones-{d.short}", ir.Ones, want=t(d, np.ones((2, 3)))))
        rows.append(case(f"zeros-{d.short}", ir.Zeros, want=t(d, np.zeros((2, 3)))))
        rows.append(case(f"empty-{d.short}", ir.Empty, want=t(d, np.zeros((2, 3)))))
    return rows


def _truth() -> list[OpCase]:
    x = t(I32, [[0, 1, 0], [1, -1, 1]])
    odd = t(F32, [[NAN, -0.0], [0.0, 0.0], [0.5, INF]])
    dims = {"accumulator_len": 1}
    rows = [
        case("all", ir.All, x, want=t(BOOL, [0])),
        case("any", ir.Any, x, want=t(BOOL, [1])),
        case("all-dim", ir.AllDim, x, axis=1, **dims, want=t(BOOL, [[0], [1]])),
        case("all-dim-outer", ir.AllDim, x, axis=0, **dims, want=t(BOOL, [[0, 1, 0]])),
        case("any-dim", ir.AnyDim, x, axis=1, **dims, want=t(BOOL, [[1], [1]])),
        case("any-dim-outer", ir.AnyDim, t(I32, [[0, 1], [0, 0]]), axis=0, **dims, want=t(BOOL, [[0, 1]])),
        case("any-dim-nan-and-minus-zero", ir.AnyDim, odd, axis=1, **dims, want=t(BOOL, [[1], [0], [1]])),
        case("all-dim-nan-and-minus-zero", ir.AllDim, odd, axis=1, **dims, want=t(BOOL, [[0], [0], [1]])),
        case("all-empty", ir.All, sample(F32, 0, 3), want=t(BOOL, [1])),
        case("any-empty", ir.Any, sample(F32, 0, 3), want=t(BOOL, [0])),
        case("all-dim-empty-axis", ir.AllDim, sample(F32, 3, 0), axis=1, **dims, want=t(BOOL, [[1], [1], [1]])),
        case("any-dim-empty-axis", ir.AnyDim, sample(F32, 3, 0), axis=1, **dims, want=t(BOOL, [[0], [0], [0]])),
        case("any-dim-other-axis-empty", ir.AnyDim, sample(F32, 0, 3), axis=1, **dims, want=t(BOOL, [], (0, 1))),
        case("any-one-nan", ir.Any, t(F32, [0.0, NAN]), want=t(BOOL, [1])),
        case("any-only-minus-zero", ir.Any, t(F32, [-0.0, 0.0]), want=t(BOOL, [0])),
    ]
    for n, d in enumerate(PLAIN):
        y, store = t(d, [[1, 1, 1], [0, 1, 0]]), BOOLS[n % 3]
        rows.append(case(f"all-dim-{d.short}", ir.AllDim, y, axis=1, **dims, want=t(store, [[1], [0]])))
        rows.append(case(f"any-{d.short}", ir.Any, y, want=t(store, [1])))
    return rows


CASES: list[OpCase] = [
    *_moves(),
    *_unfolds(),
    *_slices(),
    *_masks(),
    *_comparisons(),
    *_casts(),
    *_creations(),
    *_truth(),
]


def _bad_slice(name: str, items: tuple[tuple[int, int | None, int], ...], match: str) -> BadCase:
    op = build(ir.Slice, [sample(F32, 3, 5)], [sample(F32, 3, 5)], {"ranges": ranges(*items)})
    return BadCase(name, op, ir.ShapeError, match)


BAD_CASES: list[BadCase] = [
    _bad_slice("slice-step-0", ((0, 2, 0),), "expected a step other than 0"),
    _bad_slice("slice-more-ranges-than-axes", ((0, 2, 1),) * 3, "expected at most 2 for a tensor of rank 2, got 3"),
    _bad_slice("slice-declares-another-shape", ((0, 2, 1),), r"declared shape \(3, 5\), computed \(2, 5\)"),
    BadCase(
        "cast-declares-another-shape",
        build(ir.Cast, [sample(F32, 3)], [sample(I32, 4)], {}),
        ir.ShapeError,
        r"Cast.out: declared shape \(4,\), computed \(3,\)",
    ),
    BadCase(
        "permute-declares-another-dtype",
        build(ir.Permute, [sample(F32, 3)], [sample(F64, 3)], {"axes": (0,)}),
        ir.DTypeError,
        "Permute.out: declared dtype f64, computed float32",
    ),
]
