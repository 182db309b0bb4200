"""Resampling on a regular grid and at given points."""

from functools import partial
from itertools import product
from typing import Any

import numpy as np

import ir
from ir import (
    BF16,
    F16,
    F32,
    F64,
    GridSample2d,
    GridSampleOptions,
    GridSamplePaddingMode,
    Interpolate,
    InterpolateBackward,
    InterpolateMode,
    InterpolateOptions,
)
from tests.opcase import OpCase, Tolerance, Typed, case, t
from tests.reference import interpolate as reference

NAN, INF = float("nan"), float("inf")
MODES = [mode.value for mode in InterpolateMode]
SHORT = Tolerance(1e-4, 1e-4)
"""For values written down with four digits."""


def image(dtype: ir.DType, *shape: int) -> Typed:
    """Numbers without a pattern that an axis could share."""
    places = np.arange(int(np.prod(shape)), dtype=np.float64)
    return t(dtype, 4.0 * np.sin(0.7 * (places * places % 211 + 1)), shape)


def resized(
    id: str, x: Typed, size: tuple[int, int], mode: str, align: bool = False, want: Any = None, tol: Any = None
) -> OpCase:
    """A row of Interpolate."""
    made = want or partial(reference.interpolate, size=size, mode=mode, align=align)
    options = InterpolateOptions(InterpolateMode(mode), align)
    return case(f"interpolate-{id}", Interpolate, x, want=made, output_size=size, tol=tol, options=options)


def backward(
    id: str, x: Typed, grad: Typed, mode: str, align: bool = False, want: Any = None, tol: Any = None
) -> OpCase:
    """A row of InterpolateBackward; the output size is that of `grad`."""
    size = (grad.array.shape[2], grad.array.shape[3])
    made = want or partial(reference.interpolate_backward, size=size, mode=mode, align=align)
    options = InterpolateOptions(InterpolateMode(mode), align)
    return case(
        f"interpolate_backward-{id}",
        InterpolateBackward,
        x,
        grad,
        want=made,
        output_size=size,
        tol=tol,
        options=options,
    )


def row(*values: float, dtype: ir.DType = F32) -> Typed:
    return t(dtype, values, (1, 1, 1, len(values)))


def grid4(rows: list[list[float]]) -> Typed:
    return t(F32, [[rows]])


LINE = row(1.5410, -0.2934, -2.1788, 0.5684, -1.0845, -1.3986)
SQUARE = t(F32, np.arange(16), (1, 1, 4, 4))

INTERPOLATE = [
    *(
        resized(f"{mode}-{'up' if size > (4, 4) else 'down'}-{'aligned' if align else 'half-pixel'}",
                image(F32, 2, 3, 5, 7), size, mode, align)
        for mode, size, align in product(MODES, [(8, 11), (3, 2)], [False, True])
    ),
    *(resized(f"{mode}-f64", image(F64, 1, 2, 3, 5), (7, 4), mode) for mode in MODES),
    *(resized(f"{mode}-one-sample", image(F32, 1, 2, 1, 1), (2, 3), mode) for mode in MODES[::2]),
    *(resized(f"{mode}-to-one-{'aligned' if align else 'half-pixel'}", image(F32, 1, 1, 5, 3), (1, 1), mode, align)
      for mode, align in product(["Bilinear", "Bicubic"], [False, True])),
    *(resized(f"{mode}-same-size", SQUARE, (4, 4), mode, want=SQUARE) for mode in MODES),
    resized("Nearest-6-to-9", LINE, (1, 9), "Nearest",
            want=row(1.541, 1.541, -0.2934, -2.1788, -2.1788, 0.5684, -1.0845, -1.0845, -1.3986)),
    resized("Nearest-ratio-is-rounded-first", row(1, 2), (1, 98), "Nearest", want=row(*[1] * 50, *[2] * 48)),
    resized("NearestExact-ratio-is-exact", row(1, 2), (1, 98), "NearestExact", want=row(*[1] * 49, *[2] * 49)),
    resized("Bilinear-6-to-9-aligned", LINE, (1, 9), "Bilinear", True,
            want=row(1.541, 0.3945, -0.76475, -1.943125, -0.8052, 0.361788, -0.671275, -1.202287, -1.3986), tol=SHORT),
    resized("Bicubic-6-to-9-aligned", LINE, (1, 9), "Bicubic", True,
            want=row(1.541, 0.5747652, -1.010614, -2.197787, -0.8269969, 0.59609234, -0.5803058, -1.3792794, -1.3986)),
    resized("Bilinear-half-pixel-row-0", t(F32, np.arange(4), (1, 1, 1, 4)), (1, 8), "Bilinear",
            want=row(0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3)),
    resized("Lanczos3-aligned-row-1", t(F32, np.arange(16), (1, 1, 4, 4)), (8, 8), "Lanczos3", True),
    resized("Bilinear-f16", image(F16, 1, 2, 4, 3), (5, 7), "Bilinear"),
    resized("Bicubic-bf16-rounds-once", image(BF16, 1, 2, 4, 3), (5, 7), "Bicubic"),
    resized("Nearest-keeps-inf-and-nan-in-place", row(1, INF, NAN, 2), (1, 4), "Nearest", want=row(1, INF, NAN, 2)),
    resized("Bilinear-inf-spoils-its-neighbours-only", row(1, 2, INF, 4, 5, 6), (1, 3), "Bilinear",
            want=row(1.5, NAN, 5.5)),
    # The only row of the image is its own neighbour below, with weight 0.
    resized("Bilinear-inf-times-0-is-nan", row(1, INF, 3, 4), (1, 4), "Bilinear", want=row(NAN, NAN, 3, 4)),
    # Past the last sample both taps are that one.
    resized("Bilinear-inf-at-the-border-stays", t(F32, [[[[1, INF], [1, INF]]]]), (1, 5), "Bilinear",
            want=row(NAN, INF, INF, INF, INF)),
    resized("Lanczos3-inf-beyond-the-taps", row(INF, 0, 0, 0, 0, 0, 0, 0), (1, 16), "Lanczos3",
            want=row(*[INF, INF, INF, -INF, -INF, INF, INF, *[0] * 9])),
    resized("Bilinear-no-batch", t(F32, np.zeros((0, 2, 3, 4))), (2, 2), "Bilinear",
            want=t(F32, np.zeros((0, 2, 2, 2)))),
    resized("Bilinear-to-nothing", SQUARE, (0, 3), "Bilinear", want=t(F32, np.zeros((1, 1, 0, 3)))),
]  # fmt: skip

BACKWARD = [
    *(
        backward(f"{mode}-{'up' if size > (4, 4) else 'down'}-{'aligned' if align else 'half-pixel'}",
                 image(F32, 2, 3, 5, 7), image(F32, 2, 3, *size), mode, align)
        for mode, (size, align) in product(MODES, [((8, 11), False), ((3, 2), True)])
    ),
    backward("Nearest-7x5-to-8x7-of-ones", t(F32, np.zeros((1, 1, 7, 5))), t(F32, np.ones((1, 1, 8, 7))), "Nearest",
             want=t(F32, [[[[4, 2, 4, 2, 2], *[[2, 1, 2, 1, 1]] * 6]]])),
    backward("Bilinear-f64", image(F64, 1, 2, 3, 5), image(F64, 1, 2, 7, 4), "Bilinear"),
    backward("Bicubic-f16", image(F16, 1, 1, 3, 5), image(F16, 1, 1, 7, 4), "Bicubic"),
    backward("Nearest-bf16-sums-in-f32", row(0, dtype=BF16), t(BF16, np.ones((1, 1, 1, 300))), "Nearest",
             want=row(300, dtype=BF16)),
    backward("Bilinear-inf-in-x-does-not-matter", row(INF, NAN), row(1, 2, 3, 4), "Bilinear", want=row(3.25, 6.75)),
]  # fmt: skip


def sampled(id: str, x: Typed, grid: Typed, mode: str, padding: str, align: bool = False, want: Any = None) -> OpCase:
    """A row of GridSample2d."""
    made = want or partial(reference.grid_sample, mode=mode, padding=padding, align=align)
    return case(
        f"grid_sample-{id}",
        GridSample2d,
        x,
        grid,
        want=made,
        options=GridSampleOptions(InterpolateMode(mode), GridSamplePaddingMode(padding), align),
    )


NINE = t(F32, np.arange(9), (1, 1, 3, 3))
FOUR = t(F32, [[[[0, 0], [-1, 0.25]], [[1, 1], [0.2, -0.8]]]])
PADDINGS = [mode.value for mode in GridSamplePaddingMode]


def points(dtype: ir.DType, batch: int, height: int, width: int) -> Typed:
    """Points in -2.5..2.5, so that many lie outside and some are mirrored twice."""
    n = np.arange(batch * height * width * 2, dtype=np.float64)
    return t(dtype, 2.5 * np.sin(1.3 * n + 0.4 * n % 5), (batch, height, width, 2))


def at(*points: float) -> Typed:
    return t(F32, points, (1, 1, len(points) // 2, 2))


GRID_SAMPLE = [
    *(
        sampled(f"{mode}-{padding}-{'aligned' if align else 'half-pixel'}", image(F32, 2, 3, 4, 5),
                points(F32, 2, 3, 7), mode, padding, align)
        for mode, padding, align in [
            *product(MODES, PADDINGS, [False]),
            *product(["Bilinear"], PADDINGS, [True]),
            ("Bicubic", "Reflection", True),
        ]
    ),
    sampled("Bilinear-Zeros-values", NINE, FOUR, "Bilinear", "Zeros", want=grid4([[4, 2.0625], [2, 1.04]])),
    sampled("Bilinear-Border-aligned-values", NINE, FOUR, "Bilinear", "Border", True,
            want=grid4([[4, 3.75], [8, 1.8]])),
    sampled("Bilinear-Reflection-values", NINE, FOUR, "Bilinear", "Reflection", want=grid4([[4, 4.125], [8, 1.3]])),
    sampled("Bilinear-Zeros-outside-is-0", NINE, at(0, -2), "Bilinear", "Zeros", want=row(0)),
    sampled("Bilinear-Border-outside-is-the-edge", NINE, at(0, -2), "Bilinear", "Border", want=row(1)),
    sampled("Nearest-rounds-half-to-even", t(F32, np.arange(4), (1, 1, 1, 4)),
            at(-0.5, 0, 0, 0, 0.5, 0), "Nearest", "Border", want=row(0, 2, 2)),
    sampled("NearestExact-rounds-half-up", t(F32, np.arange(4), (1, 1, 1, 4)),
            at(-0.5, 0, 0, 0, 0.5, 0), "NearestExact", "Border", want=row(1, 2, 3)),
    sampled("first-coordinate-is-x", t(F32, [[[[1, 2, 3], [4, 5, 6]]]]), at(1, -1), "Nearest", "Zeros", True,
            want=row(3)),
    sampled("Border-not-finite-goes-to-the-centre-in-both", NINE, at(NAN, -1, INF, 1, -1, -INF), "Bilinear", "Border",
            want=row(4, 4, 4)),
    sampled("Bilinear-Zeros-not-finite-is-nan", NINE, at(NAN, 0, 0, INF), "Bilinear", "Zeros", want=row(NAN, NAN)),
    sampled("Bilinear-Reflection-not-finite-is-nan", NINE, at(NAN, 0, 0, INF), "Bilinear", "Reflection",
            want=row(NAN, NAN)),
    sampled("Nearest-Zeros-nan-is-index-0-inf-outside", NINE, at(NAN, 0, 0, INF), "Nearest", "Zeros", want=row(3, 0)),
    sampled("Nearest-Reflection-inf-is-clamped", NINE, at(0, INF, -INF, 0, NAN, 1), "Nearest", "Reflection",
            want=row(7, 3, 6)),
    sampled("far-point-overflows-no-index", NINE, at(1e30, 0, 0, -1e30), "Nearest", "Zeros", want=row(0, 0)),
    sampled("Reflection-of-one-sample", row(5), at(0.7, -3.0), "Bilinear", "Reflection", True, want=row(5)),
    sampled("inf-stays-with-its-points", t(F32, [[[[INF, 1, 2, 3]]]]), at(-0.75, 0, 0.25, 0, 0.75, 0), "Bilinear",
            "Border", want=row(NAN, 2, 3)),
    sampled("f64", image(F64, 1, 2, 3, 4), points(F64, 1, 2, 5), "Bilinear", "Reflection"),
    sampled("f16", image(F16, 1, 2, 3, 4), points(F16, 1, 2, 5), "Bilinear", "Zeros"),
    sampled("bf16", image(BF16, 1, 2, 3, 4), points(BF16, 1, 2, 5), "Bicubic", "Border"),
    sampled("no-points", NINE, t(F32, np.zeros((1, 0, 2, 2))), "Bilinear", "Zeros",
            want=t(F32, np.zeros((1, 1, 0, 2)))),
]  # fmt: skip

CASES = [*INTERPOLATE, *BACKWARD, *GRID_SAMPLE]
