"""Rows of `ir.ops.pool`. Reference: loops over windows in float64; values of Burn's own tests."""

from typing import Any

import numpy as np

import ir
from ir import BF16, F16, F32, F64, I8, I32, I64, U32
from tests.opcase import EQUAL, EXACT, OpCase, Tolerance, Typed, case, t
from tests.reference import pool as reference

NAN, INF = float("nan"), float("inf")
FOUR_DIGITS = Tolerance(1e-4, 5e-5)
"""For values written down with four or five digits."""

AVG = {1: ir.AvgPool1d, 2: ir.AvgPool2d}
AVG_BACKWARD = {1: ir.AvgPool1dBackward, 2: ir.AvgPool2dBackward}
MAX = {1: ir.MaxPool1d, 2: ir.MaxPool2d}
MAX_INDICES = {1: ir.MaxPool1dWithIndices, 2: ir.MaxPool2dWithIndices}
MAX_BACKWARD = {1: ir.MaxPool1dWithIndicesBackward, 2: ir.MaxPool2dWithIndicesBackward}
ADAPTIVE = {1: ir.AdaptiveAvgPool1d, 2: ir.AdaptiveAvgPool2d, 3: ir.AdaptiveAvgPool3d}
ADAPTIVE_BACKWARD = {
    1: ir.AdaptiveAvgPool1dBackward,
    2: ir.AdaptiveAvgPool2dBackward,
    3: ir.AdaptiveAvgPool3dBackward,
}


def mixed(dtype: ir.DType, *shape: int, step: int = 7) -> Typed:
    """Numbers without a pattern, with ties."""
    places = np.arange(int(np.prod(shape)))
    return t(dtype, (places * places * step + places) % 23 / 4 - 3, shape)


def line(*values: float, dtype: ir.DType = F32) -> Typed:
    return t(dtype, values, (1, 1, len(values)))


def plane(values: Any, dtype: ir.DType = F32) -> Typed:
    array = np.asarray(values)
    return t(dtype, array, (1, 1, *array.shape))


def per_rank(values: tuple[int, ...]) -> Any:
    """As the record holds it: a bare number for one axis."""
    return values[0] if len(values) == 1 else values


Numbers = tuple[int, ...]


def max_pool(
    id: str,
    x: Typed,
    kernel: Numbers,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers | None = None,
    ceil: bool = False,
    values: Typed | None = None,
    indices: Any = None,
    index_dtype: ir.DType = I64,
) -> list[OpCase]:
    """The same pool as MaxPool, with indices, and the gradient by those indices."""
    rank, dilation = len(kernel), dilation or (1,) * len(kernel)
    made, places = reference.max_pool(
        x.array, kernel=kernel, stride=stride, padding=padding, dilation=dilation, ceil=ceil
    )
    want = values or t(x.dtype, made)
    want_indices = t(index_dtype, places if indices is None else indices, made.shape)
    static = {
        "kernel_size": per_rank(kernel),
        "stride": per_rank(stride),
        "padding": per_rank(padding),
        "dilation": per_rank(dilation),
        "ceil_mode": ceil,
    }
    grad = mixed(x.dtype, *made.shape, step=5)
    back = t(x.dtype, reference.max_pool_grad(x.array.shape, grad.array, want_indices.array))
    return [
        case(f"max_pool_{rank}d-{id}", MAX[rank], x, want=want, tol=EQUAL, **static),
        case(
            f"max_pool_{rank}d_with_indices-{id}", MAX_INDICES[rank], x, want=[want, want_indices], tol=EQUAL, **static
        ),
        case(f"max_pool_{rank}d_backward-{id}", MAX_BACKWARD[rank], x, grad, want_indices, want=back, **static),
    ]


MAX_ROWS = [
    *max_pool(
        "burn_stride_1",
        line(0.5388, 0.0676, 0.7122, 0.8316, 0.0653),
        (4,),
        (1,),
        (2,),
        values=line(0.5388, 0.7122, 0.8316, 0.8316, 0.8316, 0.8316),
        indices=[0, 2, 3, 3, 3, 3],
    ),
    *max_pool(
        "negative_beats_padding",
        line(-0.6309, -0.6112, -0.6998, -0.4708),
        (3,),
        (1,),
        (1,),
        values=line(-0.6112, -0.6112, -0.4708, -0.4708),
        indices=[1, 1, 3, 3],
    ),
    *max_pool(
        "burn_dilation",
        line(0.9861, 0.5474, 0.4477, 0.0732, 0.3548, 0.8221),
        (2,),
        (1,),
        (1,),
        (2,),
        values=line(0.5474, 0.9861, 0.5474, 0.4477, 0.8221, 0.3548),
        indices=[1, 0, 1, 2, 5, 4],
    ),
    *max_pool(
        "burn_ceil",
        plane(np.arange(25).reshape(5, 5)),
        (3, 3),
        (2, 2),
        (1, 1),
        ceil=True,
        values=plane([[6, 8, 9], [16, 18, 19], [21, 23, 24]]),
        indices=[[6, 8, 9], [16, 18, 19], [21, 23, 24]],
    ),
    *max_pool(
        "six_by_six_floor",
        plane(np.arange(1, 37).reshape(6, 6)),
        (3, 3),
        (2, 2),
        (0, 0),
        values=plane([[15, 17], [27, 29]]),
    ),
    *max_pool(
        "six_by_six_ceil",
        plane(np.arange(1, 37).reshape(6, 6)),
        (3, 3),
        (2, 2),
        (0, 0),
        ceil=True,
        values=plane([[15, 17, 18], [27, 29, 30], [33, 35, 36]]),
    ),
    *max_pool("last_nan_wins", line(1, NAN, NAN, 0), (4,), (4,), (0,), values=line(NAN), indices=[2]),
    *max_pool("nan_then_more", line(NAN, 5, INF, 1, NAN), (2,), (1,), (0,), indices=[0, 2, 2, 4]),
    *max_pool("nan_in_a_plane", plane([[NAN, 1, 9], [2, NAN, 3]]), (2, 2), (1, 1), (0, 0), indices=[4, 4]),
    *max_pool("all_infinite", line(-INF, -INF), (2,), (1,), (1,), values=line(-INF, -INF, -INF), indices=[0, 0, 1]),
    *max_pool("first_of_ties", line(2, 2, 2, 1, 2), (3,), (2,), (0,), values=line(2, 2), indices=[0, 2]),
    *max_pool(
        "row_major_ties", plane([[1, 3, 3], [3, 3, 1]]), (2, 3), (1, 1), (0, 0), values=plane([[3]]), indices=[1]
    ),
    *max_pool("tie_in_the_lower_row_comes_second", plane([[1, 1, 7], [7, 1, 1]]), (2, 3), (1, 1), (0, 0), indices=[2]),
    *max_pool("window_in_the_padding", line(-1, -2), (2,), (1,), (2,), indices=[-1, 0, 0, 1, -1]),
    *max_pool("window_between_elements", line(5, 6), (2,), (1,), (2,), (3,), indices=[1, -1, 0]),
    *max_pool("dropped_tail", mixed(F64, 2, 3, 11), (3,), (4,), (0,)),
    *max_pool("unequal", mixed(F32, 2, 3, 7, 11), (3, 2), (2, 3), (1, 0), (1, 2), index_dtype=I32),
    *max_pool("unequal_dilation", mixed(F32, 2, 3, 5, 7), (2, 2), (1, 1), (1, 0), (1, 2), index_dtype=U32),
    *max_pool("ceil_drops_a_window_in_the_padding", mixed(F32, 1, 2, 5), (2,), (2,), (1,), ceil=True),
    *max_pool("ceil_unequal", mixed(F32, 2, 2, 7, 5), (3, 2), (3, 4), (1, 1), (2, 1), ceil=True, index_dtype=I8),
    *max_pool("f16", mixed(F16, 2, 3, 7, 5), (3, 2), (2, 1), (1, 1), index_dtype=I32),
    *max_pool("bf16", mixed(BF16, 2, 3, 7, 5), (3, 2), (2, 1), (1, 1)),
    *max_pool("no_batch", t(F32, [], (0, 3, 5)), (2,), (1,), (0,)),
    *max_pool("no_channels", t(F32, [], (2, 0, 5, 7)), (2, 3), (1, 2), (1, 0)),
    *max_pool("whole_plane", mixed(F32, 2, 1, 5, 7), (5, 7), (1, 1), (0, 0)),
    case(
        "max_pool_1d_backward-by_index_alone",
        ir.MaxPool1dWithIndicesBackward,
        line(0, 0, 0),
        line(1, 2, 4),
        line(2, -1, 2, dtype=I64),
        want=line(0, 0, 5),
        kernel_size=1,
        stride=1,
        padding=0,
        dilation=1,
        ceil_mode=False,
    ),
    case(
        "max_pool_1d_backward-f16_sums_in_f32",
        ir.MaxPool1dWithIndicesBackward,
        t(F16, np.zeros((1, 1, 3001))),
        t(F16, np.ones((1, 1, 3001))),
        t(I32, np.zeros((1, 1, 3001))),
        want=t(F16, [3000] + [0] * 3000, (1, 1, 3001)),
        tol=EXACT,
        kernel_size=1,
        stride=1,
        padding=0,
        dilation=1,
        ceil_mode=False,
    ),
    # Burn 0.22.0-pre.2 counts the window that starts in the padding; the declared shape decides.
    case(
        "max_pool_1d_with_indices-ceil_of_an_older_burn",
        ir.MaxPool1dWithIndices,
        line(1, 2, 3, 4, 5),
        want=[line(1, 3, 5, -INF), line(0, 2, 4, -1, dtype=I64)],
        kernel_size=2,
        stride=2,
        padding=1,
        dilation=1,
        ceil_mode=True,
    ),
]


def avg_pool(
    id: str,
    x: Typed,
    kernel: Numbers,
    stride: Numbers,
    padding: Numbers,
    include: bool,
    ceil: bool = False,
    want: Typed | None = None,
) -> list[OpCase]:
    """The pool, and its gradient."""
    rank = len(kernel)
    window = {"kernel": kernel, "stride": stride, "padding": padding, "include_pad": include}
    made = reference.avg_pool(x.array, ceil=ceil, **window)
    grad = mixed(x.dtype, *made.shape, step=5)
    static = {
        "kernel_size": per_rank(kernel),
        "stride": per_rank(stride),
        "padding": per_rank(padding),
        "count_include_pad": include,
        "ceil_mode": ceil,
    }
    back = t(x.dtype, reference.avg_pool_grad(x.array, grad.array, **window))
    tol = FOUR_DIGITS if want else None
    return [
        case(f"avg_pool_{rank}d-{id}", AVG[rank], x, want=want or t(x.dtype, made), tol=tol, **static),
        case(f"avg_pool_{rank}d_backward-{id}", AVG_BACKWARD[rank], x, grad, want=back, **static),
    ]


SIX = line(0, 1, 2, 3, 4, 5)


def six_ones_back(id: str, include: bool, ceil: bool, windows: int, *want: float) -> OpCase:
    return case(
        f"avg_pool_1d_backward-{id}",
        ir.AvgPool1dBackward,
        SIX,
        line(*[1.0] * windows),
        want=line(*want),
        kernel_size=3,
        stride=2,
        padding=1,
        count_include_pad=include,
        ceil_mode=ceil,
    )


AVG_ROWS = [
    *avg_pool("include", SIX, (3,), (2,), (1,), True, want=line(1 / 3, 2, 4)),
    *avg_pool("exclude", SIX, (3,), (2,), (1,), False, want=line(0.5, 2, 4)),
    *avg_pool(
        "ceil_include_counts_no_more_than_the_padding", SIX, (3,), (2,), (1,), True, True, line(1 / 3, 2, 4, 2.5)
    ),
    *avg_pool("ceil_exclude", SIX, (3,), (2,), (1,), False, True, line(0.5, 2, 4, 5)),
    *avg_pool("ceil_include_wide", SIX, (4,), (3,), (2,), True, True, line(0.25, 2.5, 2.25)),
    six_ones_back("exclude_by_hand", False, False, 3, 0.5, 5 / 6, 1 / 3, 2 / 3, 1 / 3, 1 / 3),
    six_ones_back("ceil_include_by_hand", True, True, 4, 1 / 3, 2 / 3, 1 / 3, 2 / 3, 1 / 3, 5 / 6),
    *avg_pool("infinity_stays_in_its_windows", line(1, 2, INF, 3, 4, NAN, 1), (2,), (1,), (0,), False),
    *avg_pool("window_in_the_padding_is_0", line(1, 2), (2,), (1,), (2,), False),
    *avg_pool("dropped_tail", mixed(F64, 2, 3, 11), (3,), (4,), (0,), True),
    *(
        row
        for include in (True, False)
        for ceil in (True, False)
        for row in avg_pool(
            f"unequal_{'include' if include else 'exclude'}_{'ceil' if ceil else 'floor'}",
            mixed(F32, 2, 3, 7, 11),
            (3, 2),
            (2, 3),
            (1, 1),
            include,
            ceil,
        )
    ),
    *avg_pool("f16", mixed(F16, 2, 3, 7, 5), (3, 2), (2, 1), (1, 1), True),
    *avg_pool("bf16", mixed(BF16, 2, 3, 7, 5), (3, 2), (2, 1), (1, 1), False),
    *avg_pool(
        "f16_sums_in_f32", t(F16, np.full((1, 1, 3), 60000)), (3,), (1,), (0,), True, want=line(60000, dtype=F16)
    ),
    *avg_pool("no_batch", t(F32, [], (0, 3, 5)), (2,), (1,), (0,), True),
    *avg_pool("no_channels", t(F32, [], (2, 0, 5, 7)), (2, 3), (1, 2), (1, 1), False),
]


def adaptive(id: str, x: Typed, size: Numbers, want: Typed | None = None) -> list[OpCase]:
    """The pool, and its gradient."""
    rank = len(size)
    made = want or t(x.dtype, reference.adaptive_avg_pool(x.array, size))
    grad = mixed(x.dtype, *made.array.shape, step=5)
    back = t(x.dtype, reference.adaptive_avg_pool_grad(x.array, grad.array))
    return [
        case(f"adaptive_avg_pool_{rank}d-{id}", ADAPTIVE[rank], x, want=made, output_size=per_rank(size)),
        case(f"adaptive_avg_pool_{rank}d_backward-{id}", ADAPTIVE_BACKWARD[rank], x, grad, want=back),
    ]


ADAPTIVE_ROWS = [
    *adaptive("seven_to_three", line(*range(7)), (3,), line(1, 3, 5)),
    *adaptive("four_to_eight", line(*range(4)), (8,), line(0, 0, 1, 1, 2, 2, 3, 3)),
    *adaptive("same_size", mixed(F32, 1, 2, 5), (5,)),
    *adaptive("evenly", mixed(F32, 2, 3, 6, 4), (2, 4)),
    *adaptive("unevenly", mixed(F32, 2, 3, 7, 5), (3, 2)),
    *adaptive("up_and_down", mixed(F64, 1, 2, 3, 11), (5, 4)),
    *adaptive("to_one", t(F32, np.arange(8), (1, 1, 2, 2, 2)), (1, 1, 1), t(F32, [3.5], (1, 1, 1, 1, 1))),
    *adaptive("volume", mixed(F32, 2, 1, 3, 5, 7), (2, 5, 4)),
    *adaptive("infinity_stays_in_its_windows", line(1, 2, INF, 3, 4, NAN, 1), (3,)),
    *adaptive("f16", mixed(F16, 2, 3, 7, 5), (3, 2)),
    *adaptive("bf16", mixed(BF16, 2, 3, 7, 5), (3, 2)),
    *adaptive("f16_sums_in_f32", t(F16, np.full((1, 1, 6), 60000)), (2,), line(60000, 60000, dtype=F16)),
    *adaptive("no_batch", t(F32, [], (0, 3, 5)), (2,)),
    case(
        "adaptive_avg_pool_1d_backward-by_hand",
        ir.AdaptiveAvgPool1dBackward,
        line(0, 0, 0, 0, 0),
        line(1, 1, 1),
        want=line(0.5, 5 / 6, 1 / 3, 5 / 6, 0.5),
    ),
]

CASES: list[OpCase] = MAX_ROWS + AVG_ROWS + ADAPTIVE_ROWS
