"""Rows of `ir.ops.sort`. References: Python's stable sort in the total order of IEEE 754, Burn's own tests."""

import struct
from typing import Any

import numpy as np

import ir
from ir import F16, F32, F64, I8, I16, I32, I64, U8, U32, U64
from ir.dtype import DType
from ir.op import Op
from ir.ops.sort import SortRecord
from tests.cases.numeric import FLOATS, INF, INTS, NAN, high, ints, low
from tests.opcase import EXACT, BadCase, OpCase, Typed, build, case, t


def total_order(value: Any) -> int:
    """A number that is smaller where `value` stands earlier: -NaN, -inf, .., -0.0, 0.0, .., inf, NaN."""
    if isinstance(value, np.integer):
        return int(value)
    bits = struct.unpack("<q", struct.pack("<d", float(value)))[0]
    return bits if bits >= 0 else -(bits & (2**63 - 1)) - 1


def ranked(x: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """The indices that sort `x` along `dim`, equals in their order."""

    def line(values: np.ndarray) -> list[int]:
        keys = [total_order(v) for v in values]
        return sorted(range(len(keys)), key=lambda i: -keys[i] if descending else keys[i])

    return np.apply_along_axis(line, dim, x) if x.size else np.zeros(x.shape, np.int64)


def rows(name: str, x: Typed, dim: int = 0, indices: DType = I64) -> list[OpCase]:
    """The three sorts in both directions, and the three selections of 0, 2 and all, as far as there are so many."""
    found: list[OpCase] = []
    kinds: dict[str, type[SortRecord]] = {"sort": ir.Sort, "argsort": ir.ArgSort}
    for descending in (False, True):
        places = ranked(x.array, dim, descending)
        values = Typed(np.take_along_axis(x.array, places, dim), x.dtype)
        wants, way = {"sort": values, "argsort": t(indices, places)}, "descending" if descending else "ascending"
        how: dict[str, Any] = {"dim": dim, "descending": descending, "tol": EXACT}
        found += [case(f"{key}-{name}-{way}", kind, x, want=wants[key], **how) for key, kind in kinds.items()]
        pair = [values, wants["argsort"]]
        found.append(case(f"sort-with-indices-{name}-{way}", ir.SortWithIndices, x, want=pair, **how))
    size = x.array.shape[dim]
    for k in sorted({0, min(2, size), size}):
        first = np.arange(k)
        best, where = Typed(np.take(values.array, first, dim), x.dtype), t(indices, np.take(places, first, dim))
        axis: dict[str, Any] = {"axis": dim, "accumulator_len": k, "tol": EXACT}
        found += [
            case(f"topk-{k}-{name}", ir.TopK, x, want=best, **axis),
            case(f"arg-topk-{k}-{name}", ir.ArgTopK, x, want=where, **axis),
            case(f"topk-{k}-with-indices-{name}", ir.TopKWithIndices, x, dim=dim, k=k, want=[best, where], tol=EXACT),
        ]
    return found


SPECIAL = [0.0, NAN, -1.5, INF, -0.0, -INF, NAN, 2, -0.0, 0.0, -NAN, 2, -1.5]
"""13 elements with ties; 2 of them are few enough for no selection, so that `long` has a line of 24 as well."""


def special(d: DType) -> list[OpCase]:
    """NaN of either sign, both zeros, infinities and ties: a whole sort, and a selection on a longer line."""
    x = t(d, SPECIAL)
    x.array[10] = np.copysign(x.array[10], -1)
    longer = Typed(np.concatenate([np.zeros_like(x.array[:11]), x.array]), d)
    return [*rows(f"special-{d.short}", x), *rows(f"long-{d.short}", longer)]


def integers(d: DType) -> list[OpCase]:
    """The extremes of the dtype, and ties."""
    return [
        *rows(f"extremes-{d.short}", ints(d, 3, high(d), low(d), 0, 3, high(d), 1, low(d)), indices=d),
        *rows(f"long-{d.short}", ints(d, *range(16), high(d), low(d), high(d))),
    ]


def selected() -> list[OpCase]:
    """Axes, sizes 0 and 1, Burn's own numbers, dtypes of the indices."""
    generator = np.random.RandomState(3)
    cube = t(F32, generator.randint(-4, 5, (3, 4, 5)))
    columns = t(F32, [[-0.5, NAN], [0, 0.94], [-0.3, NAN]])
    sevens = t(F32, [7, 1, NAN, 7, 3])
    found = [row for dim in (0, 1, 2) for row in rows(f"axis{dim}", cube, dim, I32)]
    found += [
        row for index in (I8, U8, U64) for row in rows(f"indices-{index.short}", t(F32, [2, -1, 2, 0]), indices=index)
    ]
    found += [*rows("one", t(F16, [[3], [1]]), 1), *rows("empty-axis", t(F64, [], (2, 0)), 1)]
    found += [
        *rows("empty-lines", t(I16, [], (0, 3)), 1),
        *rows("beyond-24-bits", ints(U32, 2**24, 2**24 + 1, 2**32 - 1)),
    ]
    return [
        *found,
        case(
            "sort-burn-nan-last",
            ir.Sort,
            columns,
            dim=0,
            descending=False,
            want=t(F32, [[-0.5, 0.94], [-0.3, NAN], [0, NAN]]),
        ),
        case(
            "topk-burn-nan-first", ir.TopKWithIndices, sevens, dim=0, k=3, want=[t(F32, [NAN, 7, 7]), t(I64, [2, 0, 3])]
        ),
    ]


CASES: list[OpCase] = [
    *(row for d in FLOATS for row in special(d)),
    *(row for d in INTS for row in integers(d)),
    *selected(),
]


def refused(kind: type[Op], static: dict[str, int], field: str) -> BadCase:
    """A selection of more than there are."""
    x, values, places = t(F32, [[1, 2, 3]]), t(F32, np.zeros((1, 4))), t(I64, np.zeros((1, 4)))
    outs = (values, places) if kind is ir.TopKWithIndices else (values,) if kind is ir.TopK else (places,)
    match = rf"{kind.__name__}\.{field}: expected at most 3, the size of axis 1, got 4"
    return BadCase(f"{kind.__name__.lower()}-too-many", build(kind, (x,), outs, static), ir.ShapeError, match)


BAD_CASES: list[BadCase] = [
    refused(ir.TopK, {"axis": 1, "accumulator_len": 4}, "accumulator_len"),
    refused(ir.ArgTopK, {"axis": 1, "accumulator_len": 4}, "accumulator_len"),
    refused(ir.TopKWithIndices, {"dim": 1, "k": 4}, "k"),
]
