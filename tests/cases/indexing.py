"""Rows of gather, scatter, select. Worked values: Burn's own tests; the rest a loop, one update at a time."""

import math
from typing import Any

import numpy as np

import ir
from ir.dtype import BF16, BOOL, BOOL_U8, F16, F32, I8, I16, I32, I64, U8, U16, U32, U64, DType
from ir.ops.indexing import IndexingUpdateOp
from tests.opcase import DTYPES, EQUAL, EXACT, BadCase, OpCase, Tensors, Typed, build, t
from tests.opcase import case as _case

NAN, INF = math.nan, math.inf
ADD, MUL, MIN, MAX, ASSIGN = (IndexingUpdateOp(name) for name in ("Add", "Mul", "Min", "Max", "Assign"))
UPDATES = (ASSIGN, ADD, MUL, MIN, MAX)


def case(id: str, kind: type[ir.Op], *tensors: Tensors, want: Any, tol: Any = EXACT, **more: Any) -> OpCase:
    """A row whose result is exact: moves, and sums and products of small integers."""
    return _case(id, kind, *tensors, want=want, tol=tol, **more)


def sample(dtype: DType, *shape: int) -> Typed:
    """0, 1, 2, ... in `shape`; bools alternate in threes."""
    numbers = np.arange(math.prod(shape))
    return t(dtype, numbers % 3 == 0 if dtype.is_bool else numbers, shape)


def applied(old: Any, new: Any, update: IndexingUpdateOp) -> Any:
    """One update of one element, as Burn's CPU backends do it."""
    if isinstance(old, np.bool_):
        return {ADD: old or new, MAX: old or new, MUL: old and new, MIN: old and new, ASSIGN: new}[update]
    replaced = {ASSIGN: True, MIN: new < old, MAX: new > old}.get(update)
    if replaced is not None:
        return new if replaced else old
    return old + new if update is ADD else old * new


def scattered(tensor: np.ndarray, dim: int, indices: np.ndarray, value: np.ndarray, update: IndexingUpdateOp) -> Any:
    """Reference of Scatter: row-major, one element at a time."""
    out = tensor.copy()
    for c in np.ndindex(indices.shape):
        place = (*c[:dim], int(indices[c]), *c[dim + 1 :])
        out[place] = applied(out[place], value[c], update)
    return out


def scattered_nd(data: np.ndarray, indices: np.ndarray, values: np.ndarray, update: IndexingUpdateOp) -> Any:
    """Reference of ScatterNd: row-major over the blocks, one element at a time."""
    out = data.copy()
    for b in np.ndindex(indices.shape[:-1]):
        block = tuple(map(int, indices[b]))
        for c in np.ndindex(out.shape[len(block) :]):
            out[block + c] = applied(out[block + c], values[b + c], update)
    return out


def selected(tensor: np.ndarray, dim: int, indices: np.ndarray, value: np.ndarray, update: IndexingUpdateOp) -> Any:
    """Reference of SelectAssign: a ScatterNd with the axis in front."""
    front = scattered_nd(np.moveaxis(tensor, dim, 0), indices[:, None], np.moveaxis(value, dim, 0), update)
    return np.moveaxis(front, 0, dim)


def _reads() -> list[OpCase]:
    x, six = sample(F32, 2, 3, 5), t(F32, [[0, 1, 2], [3, 4, 5]])
    nine = sample(F32, 3, 3)
    rows = [
        case("select", ir.Select, x, t(I64, [2, 0, 0, 1]), dim=1, want=lambda a, i: a[:, i]),
        case("select-outer", ir.Select, x, t(I64, [1]), dim=0, want=lambda a, i: a[i]),
        case("select-inner", ir.Select, x, t(I32, [4, 4, 0]), dim=2, want=lambda a, i: a[:, :, i]),
        case("select-nothing", ir.Select, x, t(I64, []), dim=1, want=t(F32, [], (2, 0, 5))),
        case("select-of-empty-other-axis", ir.Select, sample(F32, 0, 3), t(I64, [2]), dim=1, want=t(F32, [], (0, 1))),
        case("select-nothing-of-nothing", ir.Select, sample(F32, 0), t(I64, []), dim=0, want=t(F32, [])),
        case("select-keeps-nan", ir.Select, t(F32, [NAN, -0.0, INF]), t(I64, [1, 0]), dim=0, want=t(F32, [-0.0, NAN])),
        case(
            "select-int8-index-on-longer-axis",
            ir.Select,
            sample(I32, 300),
            t(I8, [127, 3]),
            dim=0,
            want=t(I32, [127, 3]),
        ),
        case("select-u8-index-above-i8", ir.Select, sample(I32, 300), t(U8, [255]), dim=0, want=t(I32, [255])),
        case(
            "gather-from-burn",
            ir.Gather,
            six,
            t(I64, [[2, 1, 0, 0], [2, 0, 1, 2]]),
            dim=1,
            want=t(F32, [[2, 1, 0, 0], [5, 3, 4, 5]]),
        ),
        case(
            "gather-outer-from-burn",
            ir.Gather,
            six,
            t(I64, [[0, 1, 0], [1, 0, 1]]),
            dim=0,
            want=t(F32, [[0, 4, 2], [3, 1, 5]]),
        ),
        case(
            "gather-middle",
            ir.Gather,
            x,
            t(I64, np.arange(20) % 3, (2, 2, 5)),
            dim=1,
            want=lambda a, i: np.take_along_axis(a, i, 1),
        ),
        case("gather-rank-1", ir.Gather, t(I64, [5, 6, 7]), t(I64, [2, 2]), dim=0, want=t(I64, [7, 7])),
        case("gather-nothing", ir.Gather, six, t(I64, [], (2, 0)), dim=1, want=t(F32, [], (2, 0))),
        case(
            "gather-nothing-of-nothing", ir.Gather, sample(F32, 2, 0), t(I64, [], (2, 0)), dim=1, want=sample(F32, 2, 0)
        ),
        case(
            "gather-int8-index-on-longer-axis",
            ir.Gather,
            sample(I32, 1, 300),
            t(I8, [[127, 0]]),
            dim=1,
            want=t(I32, [[127, 0]]),
        ),
        case("gather-nd-elements", ir.GatherNd, nine, t(I64, [[0, 1], [1, 2], [2, 0]]), want=t(F32, [1, 5, 6])),
        case("gather-nd-rows", ir.GatherNd, nine, t(I64, [[2], [0]]), want=t(F32, [[6, 7, 8], [0, 1, 2]])),
        case(
            "gather-nd-blocks-in-a-batch",
            ir.GatherNd,
            x,
            t(I64, [[[0, 1], [1, 2], [1, 0]]]),
            want=lambda a, i: a[i[..., 0], i[..., 1]],
        ),
        case("gather-nd-whole-tensor", ir.GatherNd, nine, t(I64, [], (2, 0)), want=lambda a, i: np.stack([a, a])),
        case("gather-nd-one-block", ir.GatherNd, nine, t(I64, [1]), want=t(F32, [3, 4, 5])),
        case("gather-nd-to-rank-0", ir.GatherNd, nine, t(I64, [1, 2]), want=t(F32, 5.0)),
        case("gather-nd-whole-tensor-no-batch", ir.GatherNd, nine, t(I64, []), want=nine),
        case("gather-nd-nothing", ir.GatherNd, nine, t(I64, [], (0, 1)), want=t(F32, [], (0, 3))),
        case("gather-nd-empty-blocks", ir.GatherNd, sample(F32, 3, 0), t(I64, [[2], [1]]), want=t(F32, [], (2, 0))),
        case("gather-nd-bool-elements", ir.GatherNd, t(BOOL, [[1, 0]]), t(I64, [[0, 0], [0, 1]]), want=t(BOOL, [1, 0])),
    ]
    for d in DTYPES:
        y = sample(d, 3, 2)
        rows += [
            case(f"select-{d.short}", ir.Select, y, t(I64, [2, 0]), dim=0, want=lambda a, i: a[i]),
            case(f"gather-{d.short}", ir.Gather, y, t(I32, [[2, 0]]), dim=0, want=lambda a, i: a[i[0], [0, 1]][None]),
            case(f"gather-nd-{d.short}", ir.GatherNd, y, t(I64, [[2], [0]]), want=lambda a, i: a[i[:, 0]]),
        ]
    for index in (I64, I32, I16, I8, U64, U32, U16, U8):
        i = t(index, [2, 0, 2])
        rows += [
            case(f"select-by-{index.short}", ir.Select, nine, i, dim=0, want=lambda a, i: a[[2, 0, 2]]),
            case(f"gather-nd-by-{index.short}", ir.GatherNd, nine, t(index, [[2, 1]]), want=t(F32, [7])),
        ]
    return rows


def _from_burn() -> list[OpCase]:
    """Updates with values that Burn's tests assert, and those of its bug reports."""
    ones, six = t(F32, [1, 1, 1]), t(F32, [[10, 20, 30], [40, 50, 60]])
    rows = [
        case(
            f"select-assign-ones-{update.value}",
            ir.SelectAssign,
            ones,
            t(I64, [1, 1, 2]),
            t(F32, [5, 6, -7]),
            dim=0,
            update=update,
            want=t(F32, want),
        )
        for update, want in zip(UPDATES, ([1, 6, -7], [1, 12, -6], [1, 30, -7], [1, 1, -7], [1, 6, 1]), strict=True)
    ]
    return [
        *rows,
        case(
            "select-assign-add",
            ir.SelectAssign,
            t(F32, [0, 1, 2]),
            t(I64, [1, 1, 0, 1, 2]),
            t(F32, [5, 4, 3, 2, 1]),
            dim=0,
            update=ADD,
            want=t(F32, [3, 12, 3]),
        ),
        case(
            "select-assign-inner",
            ir.SelectAssign,
            six,
            t(I64, [2, 0]),
            t(F32, [[7, 8], [9, 10]]),
            dim=1,
            update=ASSIGN,
            want=t(F32, [[8, 20, 7], [10, 50, 9]]),
        ),
        case(
            "scatter-duplicates-last-wins",
            ir.Scatter,
            t(F32, [0, 0, 0]),
            t(I64, [1, 1, 2]),
            t(F32, [5, 6, 7]),
            dim=0,
            update=ASSIGN,
            want=t(F32, [0, 6, 7]),
        ),
        case(
            "scatter-duplicates-all-count",
            ir.Scatter,
            t(F32, [0, 0, 0]),
            t(I64, [1, 1, 2]),
            t(F32, [5, 6, 7]),
            dim=0,
            update=ADD,
            want=t(F32, [0, 11, 7]),
        ),
        case(
            "scatter-add-outer",
            ir.Scatter,
            t(F32, np.zeros((2, 3))),
            t(I64, [[1, 0, 1], [1, 1, 0]]),
            t(F32, [[1, 2, 3], [4, 5, 6]]),
            dim=0,
            update=ADD,
            want=t(F32, [[0, 2, 6], [5, 5, 3]]),
        ),
        case(
            "scatter-assign-outer",
            ir.Scatter,
            six,
            t(I64, [[1, 0, 1], [0, 1, 0]]),
            t(F32, [[1, 2, 3], [4, 5, 6]]),
            dim=0,
            update=ASSIGN,
            want=t(F32, [[4, 2, 6], [1, 5, 3]]),
        ),
        case(
            "scatter-fewer-values-than-elements",
            ir.Scatter,
            t(F32, [[0, 1, 2, 3], [4, 5, 6, 7]]),
            t(I64, [[2, 0], [3, 1]]),
            t(F32, [[10, 20], [30, 40]]),
            dim=1,
            update=ASSIGN,
            want=t(F32, [[20, 1, 10, 3], [4, 40, 6, 30]]),
        ),
        case(
            "scatter-bool-add-is-or",
            ir.Scatter,
            t(BOOL, [1, 0, 0]),
            t(I64, [1, 0, 2]),
            t(BOOL, [0, 1, 1]),
            dim=0,
            update=ADD,
            want=t(BOOL, [1, 0, 1]),
        ),
        case(
            "select-assign-bool-add-is-or",
            ir.SelectAssign,
            t(BOOL_U8, [0, 1]),
            t(I64, [0, 0]),
            t(BOOL_U8, [1, 0]),
            dim=0,
            update=ADD,
            want=t(BOOL_U8, [1, 1]),
        ),
        case(
            "scatter-nd-mul",
            ir.ScatterNd,
            t(F32, [[2, 3, 4], [5, 6, 7]]),
            t(I64, [[0, 1], [1, 2]]),
            t(F32, [10, 2]),
            reduction=MUL,
            want=t(F32, [[2, 30, 4], [5, 6, 14]]),
        ),
        case(
            "scatter-nd-min",
            ir.ScatterNd,
            t(F32, [[5, 10], [15, 20]]),
            t(I64, [[0, 0], [1, 1]]),
            t(F32, [3, 25]),
            reduction=MIN,
            want=t(F32, [[3, 10], [15, 20]]),
        ),
    ]


def _updates() -> list[OpCase]:
    """Each update by each form in each dtype, against the loop; duplicates everywhere."""
    rows: list[OpCase] = []
    indices = t(I64, [[1, 1, 0], [1, 0, 0]])
    for d in DTYPES:
        x = sample(d, 3, 3)
        value = t(d, [[1, 0, 1], [0, 1, 1]] if d.is_bool else [[7, 0, 2], [3, 1, 2]])
        for update in UPDATES if d in (F32, F16, BF16, I32, U8, BOOL) else (ASSIGN, ADD):
            name = f"{update.value.lower()}-{d.short}"
            static = {"dim": 0, "update": update}

            def scatter(a: Any, i: Any, v: Any, update: Any = update) -> Any:
                return scattered(a, 0, i, v, update)

            def select(a: Any, i: Any, v: Any, update: Any = update) -> Any:
                return selected(a, 0, i, v, update)

            def scatter_nd(a: Any, i: Any, v: Any, update: Any = update) -> Any:
                return scattered_nd(a, i, v, update)

            rows += [
                case(f"scatter-{name}", ir.Scatter, x, indices, value, **static, want=scatter),
                case(f"select-assign-{name}", ir.SelectAssign, x, t(I32, [2, 2]), value, **static, want=select),
                case(
                    f"scatter-nd-{name}", ir.ScatterNd, x, t(I32, [[0], [0]]), value, reduction=update, want=scatter_nd
                ),
            ]
    for index in (I64, I32, I16, I8, U64, U32, U16, U8):
        rows.append(
            case(
                f"scatter-by-{index.short}",
                ir.Scatter,
                t(F32, np.zeros(200)),
                t(index, [100, 3, 100]),
                t(F32, [1, 2, 3]),
                dim=0,
                update=ADD,
                want=t(F32, [4.0 * (n == 100) + 2.0 * (n == 3) for n in range(200)]),
            )
        )
    return rows


def _edges() -> list[OpCase]:
    x, cube = sample(F32, 2, 3), sample(F32, 2, 3, 5)
    nan_row, updates = t(F32, [NAN, 1, 2, -INF]), t(F32, [0, NAN, NAN, 5])
    four = t(I64, [0, 1, 2, 3])
    rows = [
        case("scatter-min-nan", ir.Scatter, nan_row, four, updates, dim=0, update=MIN, want=t(F32, [NAN, 1, 2, -INF])),
        case("scatter-max-nan", ir.Scatter, nan_row, four, updates, dim=0, update=MAX, want=t(F32, [NAN, 1, 2, 5])),
        case(
            "scatter-add-nan", ir.Scatter, nan_row, four, updates, dim=0, update=ADD, want=t(F32, [NAN, NAN, NAN, -INF])
        ),
        case("scatter-assign-nan", ir.Scatter, nan_row, four, updates, dim=0, update=ASSIGN, want=updates),
        case(
            "scatter-nd-max-nan-half",
            ir.ScatterNd,
            t(F16, [NAN, 1]),
            t(I64, [[0], [1]]),
            t(F16, [2, NAN]),
            reduction=MAX,
            want=t(F16, [NAN, 1]),
        ),
        case(
            "scatter-assign-minus-zero",
            ir.Scatter,
            t(F32, [0.0, -0.0]),
            t(I64, [0, 1]),
            t(F32, [-0.0, 0.0]),
            dim=0,
            update=ASSIGN,
            want=t(F32, [-0.0, 0.0]),
        ),
        case(
            "scatter-add-i8-wraps",
            ir.Scatter,
            t(I8, [100, -100]),
            t(I64, [0, 1]),
            t(I8, [100, -100]),
            dim=0,
            update=ADD,
            want=t(I8, [-56, 56]),
        ),
        case(
            "scatter-mul-i32-wraps",
            ir.Scatter,
            t(I32, [2**30]),
            t(I64, [0]),
            t(I32, [6]),
            dim=0,
            update=MUL,
            want=t(I32, [-(2**31)]),
        ),
        case(
            "scatter-min-u64-top-bit",
            ir.Scatter,
            Typed(np.array([2**63 + 1, 1], np.uint64), U64),
            t(I64, [0, 1]),
            Typed(np.array([2**63, 2**63], np.uint64), U64),
            dim=0,
            update=MIN,
            want=Typed(np.array([2**63, 1], np.uint64), U64),
        ),
        # 2048 + 1 rounds to 2048 in f16: only a sum in float32 that is rounded once sees the four ones.
        case(
            "scatter-add-f16-rounds-once",
            ir.Scatter,
            t(F16, [2048]),
            t(I64, [0, 0, 0, 0]),
            t(F16, [1, 1, 1, 1]),
            dim=0,
            update=ADD,
            want=t(F16, [2052]),
        ),
        case("scatter-nothing", ir.Scatter, x, t(I64, [], (0, 3)), t(F32, [], (0, 3)), dim=0, update=ADD, want=x),
        case(
            "scatter-assign-nothing",
            ir.Scatter,
            x,
            t(I64, [], (0, 3)),
            t(F32, [], (0, 3)),
            dim=0,
            update=ASSIGN,
            want=x,
        ),
        case("select-assign-nothing", ir.SelectAssign, x, t(I64, []), t(F32, [], (0, 3)), dim=0, update=ASSIGN, want=x),
        case("scatter-nd-nothing", ir.ScatterNd, x, t(I64, [], (0, 2)), t(F32, []), reduction=MUL, want=x),
        case(
            "select-assign-of-empty-blocks",
            ir.SelectAssign,
            sample(F32, 3, 0),
            t(I64, [2, 2]),
            t(F32, [], (2, 0)),
            dim=0,
            update=ASSIGN,
            want=sample(F32, 3, 0),
        ),
        case(
            "select-assign-middle-duplicates",
            ir.SelectAssign,
            cube,
            t(I64, [2, 0, 2, 2]),
            t(F32, -np.arange(40.0), (2, 4, 5)),
            dim=1,
            update=ASSIGN,
            want=lambda a, i, v: selected(a, 1, i, v, ASSIGN),
            tol=EQUAL,
        ),
        case(
            "scatter-middle-duplicates",
            ir.Scatter,
            cube,
            t(I64, np.arange(40) % 3 // 2, (2, 4, 5)),
            t(F32, 1 + np.arange(40.0), (2, 4, 5)),
            dim=1,
            update=ASSIGN,
            want=lambda a, i, v: scattered(a, 1, i, v, ASSIGN),
        ),
        case(
            "scatter-nd-batch-of-batches",
            ir.ScatterNd,
            cube,
            t(I64, [[[0, 2], [1, 1]], [[0, 2], [0, 0]]]),
            t(F32, 100 + np.arange(20.0), (2, 2, 5)),
            reduction=ASSIGN,
            want=lambda a, i, v: scattered_nd(a, i, v, ASSIGN),
        ),
        case(
            "scatter-nd-full-depth-add",
            ir.ScatterNd,
            cube,
            t(I64, [[0, 2, 4], [1, 0, 0], [0, 2, 4]]),
            t(F32, [1, 2, 3]),
            reduction=ADD,
            want=lambda a, i, v: scattered_nd(a, i, v, ADD),
        ),
        case(
            "scatter-nd-one-place",
            ir.ScatterNd,
            x,
            t(I64, [1, 2]),
            t(F32, -9.0),
            reduction=ASSIGN,
            want=t(F32, [[0, 1, 2], [3, 4, -9]]),
        ),
    ]
    for update in UPDATES:  # no coordinates: every update meets the whole tensor
        value = t(F32, [[[3, 1, 2], [5, 0, 4]], [[2, 2, 2], [7, 3, 3]]])
        rows.append(
            case(
                f"scatter-nd-whole-tensor-{update.value.lower()}",
                ir.ScatterNd,
                x,
                t(I64, [], (2, 0)),
                value,
                reduction=update,
                want=lambda a, i, v, update=update: scattered_nd(a, i, v, update),
            )
        )
    whole = build(ir.ScatterNd, [x, t(I64, []), x], [x], {"reduction": ADD})
    rows.append(OpCase("scatter-nd-whole-tensor-no-batch", whole, (x, t(I64, []), x), (t(F32, 2 * x.array),), EXACT))
    return rows


CASES: list[OpCase] = [*_reads(), *_from_burn(), *_updates(), *_edges()]

BAD_CASES: list[BadCase] = [
    BadCase(
        "select-declares-another-length",
        build(ir.Select, [sample(F32, 3, 2), t(I64, [0, 1])], [sample(F32, 3, 2)], {"dim": 0}),
        ir.ShapeError,
        r"Select.out: declared shape \(3, 2\), computed \(2, 2\)",
    )
]
