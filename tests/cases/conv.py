"""Rows of `ir.ops.conv`. Reference: loops in float64; values of Burn's own tests."""

from functools import partial
from typing import Any

import numpy as np

import ir
from ir import BF16, F16, F32, F64, FLEX32
from tests.opcase import EQUAL, EXACT, OpCase, Typed, case, t
from tests.reference import conv as reference

NAN, INF = float("nan"), float("inf")
CONV: dict[int, tuple[type[ir.Op], type[ir.Op], type[ir.Op], type[ir.Op]]] = {
    1: (ir.Conv1d, ir.Conv1dXBackward, ir.Conv1dWeightBackward, ir.Conv1dBiasBackward),
    2: (ir.Conv2d, ir.Conv2dXBackward, ir.Conv2dWeightBackward, ir.Conv2dBiasBackward),
    3: (ir.Conv3d, ir.Conv3dXBackward, ir.Conv3dWeightBackward, ir.Conv3dBiasBackward),
}
OPTIONS: dict[int, Any] = {1: ir.Conv1dOptions, 2: ir.Conv2dOptions, 3: ir.Conv3dOptions}
Numbers = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


def whole(dtype: ir.DType, *shape: int, seed: int = 1) -> Typed:
    """Small whole numbers without a pattern: sums of products are exact in float32."""
    places = np.arange(int(np.prod(shape)))
    return t(dtype, (places * places * seed + places // 3) % 13 - 6, shape)


def with_infinity(x: Typed, channel: int) -> Typed:
    """`x` with an infinity in the middle of one channel of the last item."""
    array = x.array.copy()
    array[-1, channel, array.shape[2] // 2] = INF
    return Typed(array, x.dtype)


def count_up(*shape: int, dtype: ir.DType = F32) -> Typed:
    return t(dtype, np.arange(int(np.prod(shape))), shape)


def options(stride: Numbers, pads: Pads, dilation: Numbers, groups: int) -> Any:
    """The record of a convolution; three axes have one number for both sides."""
    padding = tuple(before for before, _ in pads) if len(stride) == 3 else pads
    return OPTIONS[len(stride)](stride, padding, dilation, groups)


def conv(
    id: str,
    x: Typed,
    weight: Typed,
    bias: Typed | None = None,
    *,
    stride: Numbers | None = None,
    pads: Pads | None = None,
    dilation: Numbers | None = None,
    groups: int = 1,
    want: Any = None,
    gradients: bool = True,
    grad: Typed | None = None,
) -> list[OpCase]:
    """The convolution, and its gradients for `grad`, by default whole numbers."""
    rank = x.array.ndim - 2
    stride, pads, dilation = stride or (1,) * rank, pads or ((0, 0),) * rank, dilation or (1,) * rank
    static = {"stride": stride, "pads": pads, "dilation": dilation, "groups": groups}
    forward, by_x, by_weight, by_bias = CONV[rank]
    record = options(stride, pads, dilation, groups)
    rows = [
        case(
            f"conv_{rank}d-{id}",
            forward,
            x,
            weight,
            bias,
            want=t(x.dtype, want) if want is not None else partial(reference.conv, **static),
            tol=EQUAL,
            options=record,
        )
    ]
    if not gradients:
        return rows
    grad = grad or whole(x.dtype, *rows[0].want[0].array.shape, seed=5)
    by_loops = {"tol": EQUAL, "options": record}
    return [
        *rows,
        case(
            f"conv_{rank}d_x_backward-{id}",
            by_x,
            x,
            weight,
            grad,
            want=partial(reference.conv_x_grad, **static),
            **by_loops,
        ),
        case(
            f"conv_{rank}d_weight_backward-{id}",
            by_weight,
            x,
            weight,
            grad,
            want=partial(reference.conv_weight_grad, **static),
            **by_loops,
        ),
        case(
            f"conv_{rank}d_bias_backward-{id}",
            by_bias,
            x,
            bias or whole(x.dtype, weight.array.shape[0]),
            grad,
            want=lambda x, bias, grad: reference.bias_grad(grad),
            tol=EQUAL,
        ),
    ]


def by_ones(id: str, backward: int, x: Typed, weight: Typed, want: Any, **static: Any) -> OpCase:
    """A gradient for ones: `backward` 1 by x, 2 by the weight."""
    rank = x.array.ndim - 2
    plain: dict[str, Any] = {"stride": (1,) * rank, "pads": ((0, 0),) * rank, "dilation": (1,) * rank, "groups": 1}
    plain |= static
    shape = reference.conv(x.array, weight.array, **plain).shape
    name = ("", "x", "weight")[backward]
    return case(
        f"conv_{rank}d_{name}_backward-{id}",
        CONV[rank][backward],
        x,
        weight,
        t(x.dtype, np.ones(shape)),
        want=t(x.dtype, want, (x if backward == 1 else weight).array.shape),
        tol=EQUAL,
        options=options(**plain),
    )


ARANGE = (count_up(2, 2, 4), count_up(2, 2, 3), count_up(2))
CONV_ROWS = [
    *conv(
        "burn_padding",
        *ARANGE,
        pads=((1, 1),),
        want=[[[43, 67, 82, 49], [104, 176, 227, 158]], [[139, 187, 202, 113], [392, 584, 635, 414]]],
    ),
    *conv(
        "burn_dilation",
        *ARANGE,
        pads=((1, 1),),
        dilation=(2,),
        want=[[[62, 38], [159, 111]], [[158, 102], [447, 367]]],
    ),
    *conv(
        "burn_groups",
        count_up(2, 2, 4),
        count_up(2, 1, 3),
        count_up(2),
        pads=((1, 1),),
        groups=2,
        want=[[[2, 5, 8, 3], [42, 63, 75, 47]], [[26, 29, 32, 11], [114, 159, 171, 103]]],
    ),
    *conv(
        "more_before_than_after",
        t(F32, [[[1, 2, 3, 4, 5]]]),
        t(F32, [[[1, 10, 100]]]),
        stride=(2,),
        pads=((2, 1),),
        want=[[[100, 321, 543]]],
    ),
    *conv(
        "padding_at_the_end_alone",
        t(F32, [[[1, 2, 3, 4, 5]]]),
        t(F32, [[[1, 10, 100]]]),
        stride=(2,),
        pads=((0, 3),),
        want=[[[321, 543, 5]]],
    ),
    *conv(
        "padding_meets_infinity",
        t(F32, [[[1, 2]]]),
        t(F32, [[[INF, 1, 1]]]),
        pads=((1, 1),),
        want=[[[NAN, INF]]],
        gradients=False,
    ),
    *conv(
        "padding_meets_nan_in_a_plane",
        whole(F32, 1, 2, 5, 7),
        t(F32, np.where(np.arange(36).reshape(2, 2, 3, 3) == 20, NAN, 1)),
        pads=((1, 1), (2, 0)),
        gradients=False,
    ),
    case(
        "conv_1d_weight_backward-padding_meets_infinity",
        ir.Conv1dWeightBackward,
        t(F32, [[[1, 2]]]),
        t(F32, [[[0, 0, 0]]]),
        t(F32, [[[INF, 1]]]),
        want=t(F32, [[[NAN, INF, INF]]]),
        options=options((1,), ((1, 1),), (1,), 1),
    ),
    by_ones(
        "burn_stride",
        1,
        count_up(2, 2, 4),
        count_up(2, 2, 3),
        [[[8, 16, 8, 10], [14, 28, 14, 16]]] * 2,
        stride=(2,),
        pads=((1, 1),),
    ),
    by_ones(
        "burn_stride",
        2,
        count_up(2, 2, 4),
        count_up(2, 2, 3),
        [[[10, 20, 24], [18, 36, 40]]] * 2,
        stride=(2,),
        pads=((1, 1),),
    ),
    by_ones(
        "a_tail_that_no_window_reaches",
        1,
        count_up(1, 1, 10),
        t(F32, [[[1, 2, 3, 4]]]),
        [1, 2, 3, 4, 1, 2, 3, 4, 0, 0],
        stride=(4,),
    ),
    by_ones(
        "burn_groups",
        2,
        count_up(1, 2, 5, 5),
        count_up(2, 1, 3, 3),
        [[54, 63, 72], [99, 108, 117], [144, 153, 162], [279, 288, 297], [324, 333, 342], [369, 378, 387]],
        groups=2,
    ),
    *conv(
        "one_axis",
        whole(F64, 2, 3, 11),
        whole(F64, 5, 3, 4, seed=3),
        whole(F64, 5),
        stride=(3,),
        pads=((2, 1),),
        dilation=(2,),
    ),
    *conv(
        "unequal",
        whole(F32, 2, 3, 7, 11),
        whole(F32, 5, 3, 3, 2, seed=3),
        whole(F32, 5),
        stride=(2, 3),
        pads=((1, 2), (3, 0)),
        dilation=(2, 3),
    ),
    *conv(
        "volume",
        whole(F32, 2, 3, 3, 5, 7),
        whole(F32, 2, 3, 2, 3, 1),
        whole(F32, 2),
        stride=(1, 2, 3),
        pads=((1, 1), (0, 0), (2, 2)),
        dilation=(2, 1, 1),
    ),
    *conv(
        "window_and_stride_of_2_padded",
        whole(F32, 3, 1, 8, 5),
        whole(F32, 2, 1, 2, 3, seed=3),
        whole(F32, 2),
        stride=(2, 2),
        pads=((1, 1), (0, 0)),
    ),
    *conv("volume_groups", whole(F32, 1, 4, 3, 4, 5), whole(F32, 6, 2, 2, 2, 3), groups=2),
    *conv(
        "grouped",
        whole(F32, 2, 6, 5, 7),
        whole(F32, 9, 2, 3, 2, seed=3),
        whole(F32, 9),
        stride=(2, 1),
        pads=((1, 0), (1, 1)),
        groups=3,
    ),
    *conv(
        "depthwise",
        whole(F32, 3, 5, 7, 5),
        whole(F32, 10, 1, 3, 3, seed=3),
        whole(F32, 10),
        pads=((1, 1), (1, 1)),
        groups=5,
    ),
    *conv("pointwise", whole(F32, 2, 3, 5, 7), whole(F32, 4, 3, 1, 1, seed=3), stride=(2, 3)),
    *conv("padding_wider_than_the_kernel", whole(F32, 1, 2, 3), whole(F32, 2, 2, 2), pads=((3, 4),)),
    *conv("dropped_tails", whole(F32, 2, 2, 11, 13), whole(F32, 3, 2, 3, 2), stride=(4, 5)),
    *conv("flex32", whole(FLEX32, 1, 2, 7), whole(FLEX32, 3, 2, 3), whole(FLEX32, 3)),
    *conv(
        "f16",
        whole(F16, 2, 4, 5, 7),
        whole(F16, 6, 2, 3, 2, seed=3),
        whole(F16, 6),
        stride=(2, 1),
        pads=((1, 0), (1, 1)),
        groups=2,
    ),
    *conv(
        "bf16",
        whole(BF16, 2, 4, 5, 7),
        whole(BF16, 6, 2, 3, 2, seed=3),
        whole(BF16, 6),
        stride=(2, 1),
        pads=((1, 0), (1, 1)),
        groups=2,
    ),
    *conv("bf16_without_bias", whole(BF16, 2, 3, 7), whole(BF16, 2, 3, 3, seed=3), pads=((1, 1),)),
    *conv("no_batch", t(F32, [], (0, 2, 5)), whole(F32, 3, 2, 3), whole(F32, 3)),
    *conv("no_channels", t(F32, [], (2, 0, 5)), t(F32, [], (3, 0, 3)), whole(F32, 3), pads=((1, 1),)),
    *conv("nothing_out", whole(F32, 2, 2, 5), t(F32, [], (0, 2, 3)), t(F32, [], (0,))),
    *(
        row
        for dtype in (F16, BF16)
        for row in conv(f"{dtype.short}_sums_in_f32", t(dtype, np.ones((1, 3001, 3))), t(dtype, np.ones((1, 3001, 2))))
    ),
    *(
        row
        for dtype in (F64, F32)
        for batch, ins, outs, groups in ((2, 4, 6, 2), (2, 6, 3, 3), (2, 3, 3, 3), (2, 3, 6, 3), (1, 6, 3, 3))
        for row in conv(
            f"infinity_stays_in_its_group_{dtype.short}_{batch}_{ins}_{outs}",
            with_infinity(whole(dtype, batch, ins, 7), -1),
            whole(dtype, outs, ins // groups, 3, seed=3),
            groups=groups,
            grad=with_infinity(whole(dtype, batch, outs, 5, seed=5), 0),
        )
    ),
    # The sum 2049 and the bias are rounded together: 2048 and then + 1 would stay at 2048.
    *conv(
        "f16_rounds_once", t(F16, [[[2048], [1]]]), t(F16, [[[1], [1]]]), t(F16, [1]), want=[[[2050]]], gradients=False
    ),
]


def unfold(
    id: str,
    x: Typed,
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    want: Any = None,
) -> OpCase:
    made = partial(reference.unfold4d, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    return case(
        f"unfold_4d-{id}",
        ir.Unfold4d,
        x,
        want=made if want is None else t(x.dtype, want),
        tol=EXACT,
        kernel_size=kernel,
        options=ir.Unfold4dOptions(stride, padding, dilation),
    )


UNFOLD_ROWS = [
    unfold(
        "by_hand",
        count_up(1, 2, 3, 4),
        (2, 3),
        (1, 2),
        (0, 1),
        (1, 2),
        want=[
            [
                [0, 0],
                [1, 5],
                [3, 7],
                [0, 0],
                [5, 9],
                [7, 11],
                [0, 0],
                [13, 17],
                [15, 19],
                [0, 0],
                [17, 21],
                [19, 23],
            ]
        ],
    ),
    unfold("plain", count_up(1, 2, 4, 4), (2, 2)),
    unfold("unequal", whole(F32, 2, 3, 7, 11), (3, 2), (2, 3), (1, 4), (2, 3)),
    unfold("infinity_stays", t(F32, [[[[1, INF, NAN], [2, -INF, -0.0], [3, 4, 5]]]]), (2, 2), padding=(1, 0)),
    unfold("dropped_tail", whole(F64, 1, 2, 8, 9), (3, 2), (4, 5)),
    unfold("bf16", whole(BF16, 1, 2, 3, 5), (2, 2)),
    unfold("no_batch", t(F32, [], (0, 2, 3, 5)), (2, 2)),
    unfold("whole_plane", whole(F32, 1, 2, 3, 5), (3, 5)),
]

CASES: list[OpCase] = CONV_ROWS + UNFOLD_ROWS
