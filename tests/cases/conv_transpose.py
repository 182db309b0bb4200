"""Rows of the transposed kinds of `ir.ops.conv`. Reference: loops in float64; values of Burn's own tests."""

from functools import partial
from typing import Any

import numpy as np

import ir
from ir import BF16, F16, F32, F64
from tests.cases.conv import Numbers, count_up, whole
from tests.opcase import EQUAL, OpCase, Typed, case, t
from tests.reference import conv as reference

KINDS: dict[int, tuple[type[ir.Op], type[ir.Op], type[ir.Op]]] = {
    1: (ir.ConvTranspose1d, ir.ConvTranspose1dWeightBackward, ir.ConvTranspose1dBiasBackward),
    2: (ir.ConvTranspose2d, ir.ConvTranspose2dWeightBackward, ir.ConvTranspose2dBiasBackward),
    3: (ir.ConvTranspose3d, ir.ConvTranspose3dWeightBackward, ir.ConvTranspose3dBiasBackward),
}
OPTIONS: dict[int, Any] = {
    1: ir.ConvTranspose1dOptions,
    2: ir.ConvTranspose2dOptions,
    3: ir.ConvTranspose3dOptions,
}


def transpose(
    id: str,
    x: Typed,
    weight: Typed,
    bias: Typed | None = None,
    *,
    stride: Numbers | None = None,
    padding: Numbers | None = None,
    padding_out: Numbers | None = None,
    dilation: Numbers | None = None,
    groups: int = 1,
    want: Any = None,
) -> list[OpCase]:
    """The transposed convolution, and its two gradients for a gradient of whole numbers."""
    rank = x.array.ndim - 2
    zeros, ones = (0,) * rank, (1,) * rank
    static = {
        "stride": stride or ones,
        "padding": padding or zeros,
        "padding_out": padding_out or zeros,
        "dilation": dilation or ones,
        "groups": groups,
    }
    forward, by_weight, by_bias = KINDS[rank]
    record = OPTIONS[rank](**static)
    first = case(
        f"conv_transpose_{rank}d-{id}",
        forward,
        x,
        weight,
        bias,
        want=t(x.dtype, want) if want is not None else partial(reference.conv_transpose, **static),
        tol=EQUAL,
        options=record,
    )
    grad = whole(x.dtype, *first.want[0].array.shape, seed=5)
    return [
        first,
        case(
            f"conv_transpose_{rank}d_weight_backward-{id}",
            by_weight,
            x,
            weight,
            grad,
            want=partial(reference.conv_transpose_weight_grad, **static),
            tol=EQUAL,
            options=record,
        ),
        case(
            f"conv_transpose_{rank}d_bias_backward-{id}",
            by_bias,
            x,
            bias or whole(x.dtype, grad.array.shape[1]),
            grad,
            want=lambda x, bias, grad: reference.bias_grad(grad),
            tol=EQUAL,
        ),
    ]


CASES: list[OpCase] = [
    *transpose(
        "burn_padding",
        count_up(1, 3, 4),
        count_up(3, 2, 3),
        count_up(2),
        padding=(1,),
        want=[[[270, 453, 516, 387], [352, 589, 679, 505]]],
    ),
    *transpose(
        "burn_stride",
        count_up(1, 2, 4),
        count_up(2, 2, 3),
        count_up(2),
        stride=(2,),
        padding=(1,),
        padding_out=(1,),
        want=[[[28, 62, 36, 78, 44, 94, 52, 62], [41, 93, 55, 121, 69, 149, 83, 93]]],
    ),
    *transpose(
        "burn_groups",
        count_up(1, 2, 4),
        count_up(2, 1, 3),
        count_up(2),
        padding=(1,),
        groups=2,
        want=[[[0, 1, 4, 7], [32, 59, 71, 59]]],
    ),
    *transpose(
        "burn_plane",
        count_up(1, 1, 2, 2),
        count_up(1, 1, 2, 2),
        stride=(2, 2),
        want=[[[[0, 0, 0, 1], [0, 0, 2, 3], [0, 2, 0, 3], [4, 6, 6, 9]]]],
    ),
    *transpose("plane_groups", count_up(1, 2, 2, 2), count_up(2, 3, 3, 3), count_up(6), groups=2),
    *transpose(
        "one_axis",
        whole(F64, 2, 3, 5),
        whole(F64, 3, 2, 4, seed=3),
        whole(F64, 2),
        stride=(3,),
        padding=(2,),
        dilation=(2,),
    ),
    *transpose(
        "unequal",
        whole(F32, 2, 3, 3, 5),
        whole(F32, 3, 4, 3, 2, seed=3),
        whole(F32, 4),
        stride=(2, 3),
        padding=(1, 3),
        padding_out=(1, 2),
        dilation=(2, 3),
    ),
    *transpose(
        "window_and_stride_of_2_aborted_xla",
        whole(F32, 3, 2, 5, 2),
        whole(F32, 2, 1, 2, 3, seed=3),
        whole(F32, 1),
        stride=(2, 2),
        padding=(1, 0),
    ),
    *transpose(
        "volume",
        whole(F32, 2, 2, 2, 3, 4),
        whole(F32, 2, 3, 2, 1, 3),
        whole(F32, 3),
        stride=(1, 2, 3),
        padding=(1, 0, 2),
        padding_out=(0, 1, 0),
    ),
    *transpose(
        "grouped",
        whole(F32, 2, 6, 3, 5),
        whole(F32, 6, 2, 3, 2, seed=3),
        whole(F32, 6),
        stride=(2, 1),
        padding=(1, 0),
        groups=3,
    ),
    *transpose("depthwise", whole(F32, 2, 5, 3, 4), whole(F32, 5, 1, 2, 3, seed=3), stride=(2, 3), groups=5),
    *transpose(
        "padding_out_beyond_the_stride", whole(F32, 1, 2, 3), whole(F32, 2, 2, 2), stride=(2,), padding_out=(5,)
    ),
    *transpose("padding_cuts_whole_taps", whole(F32, 1, 2, 7), whole(F32, 2, 3, 2), padding=(3,)),
    *transpose(
        "f16",
        whole(F16, 2, 4, 3, 5),
        whole(F16, 4, 3, 3, 2, seed=3),
        whole(F16, 6),
        stride=(2, 1),
        padding=(1, 0),
        groups=2,
    ),
    *transpose(
        "bf16",
        whole(BF16, 2, 4, 3, 5),
        whole(BF16, 4, 3, 3, 2, seed=3),
        whole(BF16, 6),
        stride=(2, 1),
        padding=(1, 0),
        groups=2,
    ),
    *transpose("no_batch", t(F32, [], (0, 2, 5)), whole(F32, 2, 3, 3), whole(F32, 3), stride=(2,)),
    case(
        "conv_transpose_1d_weight_backward-burn_ones",
        ir.ConvTranspose1dWeightBackward,
        count_up(2, 2, 8),
        count_up(2, 2, 3),
        t(F32, np.ones((2, 4, 18))),
        want=t(F32, [[[168, 184, 184]] * 2, [[280, 312, 312]] * 2]),
        tol=EQUAL,
        options=ir.ConvTranspose1dOptions((2,), (1,), (1,), (2,), 2),
    ),
    # Burn's fold4d: each row of `x` goes to the place of its one in the weight, overlaps add.
    case(
        "conv_transpose_2d-fold",
        ir.ConvTranspose2d,
        count_up(1, 4, 2, 2),
        t(F32, np.eye(4).reshape(4, 1, 2, 2)),
        None,
        want=t(F32, [[[[0, 5, 5], [10, 30, 20], [10, 25, 15]]]]),
        tol=EQUAL,
        options=ir.ConvTranspose2dOptions((1, 1), (0, 0), (0, 0), (1, 1), 1),
    ),
]
