"""Rows of the deformable kinds of `ir.ops.conv`. Reference: one tap at a time in float64, and central differences."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import ir
from ir import BF16, F16, F32, F64
from tests.cases.conv import whole
from tests.opcase import OpCase, Tolerance, Typed, case, t
from tests.reference import conv as reference

INF = float("inf")
Shape = tuple[int, int, int, int]


def fraction(*shape: int, dtype: ir.DType = F32) -> Typed:
    """Arange / number of elements, as in Burn's tests."""
    size = int(np.prod(shape))
    return t(dtype, np.arange(size) / size, shape)


def scattered(dtype: ir.DType, *shape: int) -> Typed:
    """Offsets that land between and outside the elements, never on one, where the derivative jumps."""
    places = np.arange(int(np.prod(shape)))
    return t(dtype, ((places * places * 7 + places) % 41 - 20) / 8 + 1 / 16, shape)


def deformable(
    id: str,
    x: Shape,
    weight: Shape,
    places: tuple[int, int],
    *,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    weight_groups: int = 1,
    offset_groups: int = 1,
    mask: bool = True,
    bias: bool = True,
    dtype: ir.DType = F32,
    burn: bool = False,
    gradients: bool = False,
) -> list[OpCase]:
    """The convolution, and all its gradients by central differences."""
    number = offset_groups * weight[2] * weight[3]
    offset, masked = (x[0], 2 * number, *places), (x[0], number, *places)
    operands = [
        fraction(*x, dtype=dtype) if burn else whole(dtype, *x),
        fraction(*offset, dtype=dtype) if burn else scattered(dtype, *offset),
        fraction(*weight, dtype=dtype) if burn else whole(dtype, *weight, seed=3),
        (fraction(*masked, dtype=dtype) if burn else scattered(dtype, *masked)) if mask else None,
        (fraction(weight[0], dtype=dtype) if burn else whole(dtype, weight[0])) if bias else None,
    ]
    static = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "weight_groups": weight_groups,
        "offset_groups": offset_groups,
    }
    record = ir.DeformableConv2dOptions(**static)

    def forward(*given: np.ndarray) -> np.ndarray:
        rest = iter(given[3:])
        return reference.deformable_conv(
            *given[:3], next(rest) if mask else None, next(rest) if bias else None, **static
        )

    rows = [case(f"deformable_conv_2d-{id}", ir.DeformableConv2d, *operands, want=forward, options=record)]
    if not gradients:
        return rows
    grad = whole(dtype, x[0], weight[0], *places, seed=5)
    given = [a for a in operands if a is not None]
    grads = reference.numeric_grads(forward, grad.array.astype(np.float64), *(a.array for a in given))
    wanted = iter(t(dtype, g) for g in grads)
    return [
        *rows,
        case(
            f"deformable_conv_2d_backward-{id}",
            ir.DeformableConv2dBackward,
            *operands,
            grad,
            want=[next(wanted) if a is not None else None for a in operands],
            tol=Tolerance(1e-5, 2e-5),
            options=record,
        ),
    ]


def burn_deformable(
    id: str,
    x: Shape,
    weight: Shape,
    places: tuple[int, int],
    shown: dict[tuple[int, ...], Sequence[float]],
    **static: Any,
) -> list[OpCase]:
    """Burn's own case; `shown` are the rows of the output that its test writes down, which the reference must hold."""
    (row,) = deformable(id, x, weight, places, burn=True, **static)
    for place, values in shown.items():
        np.testing.assert_allclose(row.want[0].array[place], values, rtol=1e-4, atol=6e-5)
    return [row]


CASES: list[OpCase] = [
    *burn_deformable(
        "burn",
        (1, 3, 4, 4),
        (5, 3, 3, 3),
        (2, 2),
        {(0, 0): [[0.9074, 0.6387], [0.5160, 0.4196]], (0, 4): [[6.9814, 5.2871], [4.6316, 3.9859]]},
    ),
    *burn_deformable(
        "burn_weight_groups",
        (1, 3, 4, 4),
        (6, 1, 3, 3),
        (2, 2),
        {(0, 2): [[1.307585, 1.024152], [0.902454, 0.800008]]},
        weight_groups=3,
    ),
    *burn_deformable(
        "burn_offset_groups",
        (1, 3, 4, 4),
        (6, 3, 3, 3),
        (2, 2),
        {(0, 0): [[1.0794, 0.7676], [0.7209, 0.5337]]},
        offset_groups=3,
    ),
    *burn_deformable(
        "burn_padding",
        (1, 2, 4, 4),
        (3, 2, 3, 3),
        (6, 8),
        {(0, 0, 0): [0.199779, 0.376176, 0.528501, 0.605256, 0.384365, 0.198675, 0.048145, 0.0]},
        padding=(2, 3),
    ),
    *deformable(
        "unequal", (2, 2, 5, 7), (3, 2, 2, 3), (3, 3), stride=(2, 3), padding=(1, 2), dilation=(1, 2), gradients=False
    ),
    *deformable("groups", (1, 4, 4, 3), (2, 2, 2, 2), (3, 2), weight_groups=2, offset_groups=2),
    *deformable("plain", (1, 2, 3, 4), (3, 2, 2, 2), (2, 3), mask=False, bias=False),
    *deformable("mask_alone", (1, 2, 3, 4), (3, 2, 2, 2), (2, 3), bias=False),
    *deformable("bias_alone", (1, 2, 3, 4), (3, 2, 2, 2), (2, 3), mask=False),
    *deformable("f16", (1, 2, 3, 4), (3, 2, 2, 2), (2, 3), dtype=F16),
    *deformable("bf16", (1, 2, 3, 4), (3, 2, 2, 2), (2, 3), dtype=BF16),
    *deformable(
        "with_gradients",
        (1, 2, 3, 4),
        (2, 1, 2, 2),
        (2, 2),
        stride=(2, 1),
        padding=(1, 0),
        dilation=(1, 2),
        weight_groups=2,
        offset_groups=2,
        dtype=F64,
        gradients=True,
    ),
    *deformable("no_batch", (0, 2, 3, 4), (3, 2, 2, 2), (2, 3)),
]


def one_pixel(id: str, dy: float, dx: float, want: float, offset_grad: tuple[float, float]) -> list[OpCase]:
    """A 1x1 kernel of weight 2 on the plane [[3, 5], [7, 11]], whose only tap is moved from (0, 0) by (dy, dx)."""
    x, weight = t(F32, [[[[3, 5], [7, 11]]]]), t(F32, [[[[2]]]])
    record = ir.DeformableConv2dOptions((2, 2), (0, 0), (1, 1), 1, 1)
    offset = t(F32, [dy, dx], (1, 2, 1, 1))
    corners = [[max(0.0, 1 - abs(dy - r)) * max(0.0, 1 - abs(dx - c)) for c in (0, 1)] for r in (0, 1)]
    value = want / 2
    return [
        case(
            f"deformable_conv_2d-{id}",
            ir.DeformableConv2d,
            x,
            offset,
            weight,
            None,
            None,
            want=t(F32, [[[[want]]]]),
            options=record,
        ),
        case(
            f"deformable_conv_2d_backward-{id}",
            ir.DeformableConv2dBackward,
            x,
            offset,
            weight,
            None,
            None,
            t(F32, [[[[1]]]]),
            want=[
                t(F32, np.array([[corners]]) * 2),
                t(F32, np.array(offset_grad).reshape(1, 2, 1, 1)),
                t(F32, [[[[value]]]]),
                None,
                None,
            ],
            options=record,
        ),
    ]


CASES += [
    *one_pixel("between", 0.25, 0.5, 2 * (0.75 * 4 + 0.25 * 9), (2 * (9 - 4), 2 * (0.75 * 2 + 0.25 * 4))),
    *one_pixel("half_outside", -0.5, 0.0, 3.0, (6.0, 2.0)),
    # On the pixel -1 itself nothing is read and nothing pulls (burn-flex and PyTorch; burn-ndarray differs).
    *one_pixel("at_minus_one", -1.0, 0.0, 0.0, (0.0, 0.0)),
    *one_pixel("far_outside", 100.0, -100.0, 0.0, (0.0, 0.0)),
    case(
        "deformable_conv_2d-infinity_outside_the_corners",
        ir.DeformableConv2d,
        t(F32, [[[[3, INF], [7, 11]]]]),
        t(F32, [0.5, -0.5], (1, 2, 1, 1)),
        t(F32, [[[[2]]]]),
        None,
        None,
        want=t(F32, [[[[5]]]]),
        options=ir.DeformableConv2dOptions((2, 2), (0, 0), (1, 1), 1, 1),
    ),
]
